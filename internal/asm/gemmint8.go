package asm

import "fmt"

// A dotInt8 is a micro-kernel for a sub-panel of A of 4 lanes and int8 panels of B of 16 lanes,
// with chunks of one block: 4 rows × panels vectors. The sum of a block is exact.
type dotInt8 struct {
	int8Scaling
	panels int
	t      *tile
}

// An int8Scaling is how the scales of int8 panels are applied: add adds the sums of a block times
// the scales to the totals.
type int8Scaling struct {
	name  string
	block int
	add   func(d dotInt8)
}

// int8Scalings lists exponents and floats. VPDPBUSD and multiplications run on two of Zen's four
// vector pipes. With exponents, all other instructions run on the other two, VSCALEFPS included.
var int8Scalings = []int8Scaling{
	{"MX", 32, dotInt8.addExponents},
	{"NV", 16, dotInt8.addFloats},
}

const int8Rows, int8Vector = 4, 64 // rows of a tile, and bytes of a vector

// The registers: totals of the tile and sums of the block, row by row; b; then a.
func (d dotInt8) total(i, j int) Vec { return Z(i*d.panels + j) }
func (d dotInt8) sum(i, j int) Vec   { return d.total(int8Rows+i, j) }
func (d dotInt8) b(j int) Vec        { return d.sum(int8Rows, j) }
func (d dotInt8) a(i int) Vec {
	first := d.b(d.panels).number
	return Z(first + i%(32-first))
}

// word returns the memory of row i in vector v of a chunk of A: a step, the scales after the
// steps, or the initial values.
func (d dotInt8) word(v, i int) Mem { return d.t.a.At((v*int8Rows + i) * 4) }

// steps returns the number of steps in a block.
func (d dotInt8) steps() int { return d.block / 4 }

// load loads vector v of the chunks of B.
func (d dotInt8) load(v int) {
	for j := range d.panels {
		d.t.fn.I("VMOVDQU32", d.t.panel(j, v*int8Vector), d.b(j))
	}
}

func (d dotInt8) write(f *File) {
	name := fmt.Sprintf("dot%s_%dx%d", d.name, int8Rows, d.panels*int8Vector/4)
	t := newTile(f, name, fmt.Sprintf("%s is a microkernel for int8 panels with chunks of %d (see kernel).", name, d.block), int8Rows,
		d.panels, int8Vector)
	d.t = t
	fn := t.fn
	row, left := fn.GP("row of C"), fn.GP("scratch")
	fn.Note(fmt.Sprintf("%v…%v", d.total(0, 0), d.total(int8Rows-1, d.panels-1)), "totals, row by row")
	fn.Note(fmt.Sprintf("%v…%v", d.sum(0, 0), d.sum(int8Rows-1, d.panels-1)), "sums of the block")
	fn.Note(fmt.Sprintf("%v…%v", d.b(0), d.b(d.panels-1)), "b; its scales")
	fn.Note(fmt.Sprintf("%v…Z31", d.a(0)), "a; scales of the block")
	for i := range int8Rows * d.panels {
		fn.I("VPXORQ", Z(i), Z(i), Z(i))
	}
	t.prefetch(row, left)
	chunk := fn.Label("chunk")
	d.start()
	for u := range d.steps() {
		d.load(u)
		for i := range int8Rows {
			fn.I("VPBROADCASTD", d.word(u, i), d.a(i))
			for j := range d.panels {
				fn.I("VPDPBUSD", d.a(i), d.b(j), d.sum(i, j))
			}
		}
	}
	d.load(d.steps())
	d.add(d)
	fn.I("ADDQ", (d.steps()+2)*int8Rows*4, t.a)
	fn.I("ADDQ", (d.steps()+1)*int8Vector, t.b)
	fn.I("SUBQ", 1, t.chunks)
	fn.Jump("JNZ", chunk)
	d.end()
}

// start sets the sums of a row to their initial value. Moves between registers take no pipe.
func (d dotInt8) start() {
	for i := range int8Rows {
		d.t.fn.I("VPBROADCASTD", d.word(d.steps()+1, i), d.sum(i, 0))
		for j := 1; j < d.panels; j++ {
			d.t.fn.I("VMOVDQA64", d.sum(i, 0), d.sum(i, j))
		}
	}
}

// addExponents subtracts 1.5·2^23 times the scale of A from the sums, which are floats here, and
// multiplies them by the scale of B.
func (d dotInt8) addExponents() {
	for i := range int8Rows {
		offset := d.a(i)
		d.t.fn.I("VPBROADCASTD", d.word(d.steps(), i), offset)
		for j := range d.panels {
			d.t.fn.I("VSUBPS", offset, d.sum(i, j), d.sum(i, j))
		}
		for j := range d.panels {
			d.t.fn.I("VSCALEFPS", d.b(j), d.sum(i, j), d.sum(i, j))
		}
		for j := range d.panels {
			d.t.fn.I("VADDPS", d.sum(i, j), d.total(i, j), d.total(i, j))
		}
	}
}

func (d dotInt8) addFloats() {
	for i := range int8Rows {
		for j := range d.panels {
			scale, sum := d.a(i*d.panels+j), d.sum(i, j)
			d.t.fn.I("VCVTDQ2PS", sum, sum)
			d.t.fn.I("VMULPS.BCST", d.word(d.steps(), i), d.b(j), scale)
			d.t.fn.I("VFMADD231PS", scale, sum, d.total(i, j))
		}
	}
}

// end adds the totals to C.
func (d dotInt8) end() {
	t, fn := d.t, d.t.fn
	fn.Comment("C (+)= alpha · total")
	alpha := d.b(0)
	fn.I("VBROADCASTSS", fn.FP("alpha"), alpha)
	for i := range int8Rows {
		for j := range d.panels {
			fn.I("VFMADD213PS", t.from.At(j*int8Vector), alpha, d.total(i, j))
			fn.I("VMOVUPS", d.total(i, j), t.c.At(j*int8Vector))
		}
		fn.I("ADDQ", t.ldc, t.c)
		fn.I("ADDQ", t.next, t.from)
	}
	fn.Return()
}
