package asmgen

import (
	"fmt"
	"slices"
)

// Gemm writes the microkernels of package gemm, whose contract is in its
// kernel.go, and the packing of the usual formats.
func Gemm() []*File {
	dots := NewFile("gemm", "dot")
	for panels := 1; panels <= 3; panels++ {
		dotFloat{"BF16", "VDPBF16PS", Z, 8, panels}.write(dots)
		dotFloat{"F32", "VFMADD231PS", Z, 8, panels}.write(dots)
		dotFloat{"F32", "VFMADD231PS", Y, 4, panels}.write(dots)
		dotInt8{"MX", 32, "VPADDD", panels}.write(dots)
		dotInt8{"NV", 16, "VMULPS", panels}.write(dots)
	}
	tiles := NewFile("gemm", "tiles")
	for panels := 1; panels <= 2; panels++ {
		dotTiles{panels: panels}.write(tiles)
		streamLines(tiles, panels)
	}
	packs := NewFile("gemm", "pack")
	gemmTables(packs)
	return slices.Concat([]*File{dots, tiles, packs}, gemmVectors(), gemmVectorsF32())
}

// dotParams are those of gemm.dotFunc.
const dotParams = "chunks, steps int, a, b unsafe.Pointer, bPanel int, c *float32, ldc int, alpha float32, accumulate bool"

// A tile is what microkernels share: pointers into the panels and into C.
type tile struct {
	fn                                              *Func
	rows, panels, line                              int // line: bytes of a vector
	chunks, steps, a, b, bPanel, c, ldc, accumulate Reg
}

func newTile(f *File, name, doc string, rows, panels, line int) *tile {
	fn := f.Func(name, doc, dotParams)
	t := &tile{fn: fn, rows: rows, panels: panels, line: line}
	t.chunks, t.steps = fn.Arg("chunks"), fn.Arg("steps")
	t.a, t.b, t.bPanel = fn.Arg("a"), fn.Arg("b"), fn.Arg("bPanel")
	t.c, t.ldc = fn.Arg("c"), fn.Arg("ldc")
	t.accumulate = fn.GP("accumulate")
	fn.I("MOVBLZX", fn.FP("accumulate"), t.accumulate)
	fn.I("SHLQ", 2, t.ldc)
	return t
}

// panel returns the memory disp bytes behind the current place in panel j of B.
func (t *tile) panel(j, disp int) Mem {
	m := t.b.At(disp)
	if j > 0 {
		m = m.By(t.bPanel, j)
	}
	return m
}

// prefetch asks for the tile of C: its rows are often a power of two apart, so
// that they leave the first cache early.
func (t *tile) prefetch(row Reg) {
	t.fn.I("MOVQ", t.c, row)
	for range t.rows {
		for j := 0; j < t.panels*t.line; j += 64 {
			t.fn.I("PREFETCHT0", row.At(j))
		}
		t.fn.I("ADDQ", t.ldc, row)
	}
}

// A dotFloat is a kernel for float32 or BF16 panels, of rows × panels vectors.
type dotFloat struct {
	elements, instruction string
	vec                   func(int) Vec
	rows, panels          int
}

func (d dotFloat) write(f *File) {
	line := map[byte]int{'Y': 32, 'Z': 64}[d.vec(0).width]
	name := fmt.Sprintf("dot%s_%dx%d", d.elements, d.rows, d.panels*line/4)
	t := newTile(f, name, fmt.Sprintf("%s is a microkernel for %s panels of %d lanes (see kernel).", name, d.elements, line/4), d.rows, d.panels, line)
	fn := t.fn
	k, row := fn.GP("steps left"), fn.GP("row of C")
	sums := d.rows * d.panels
	sum := func(i, j int) Vec { return d.vec(i*d.panels + j) }
	bs := func(j int) Vec { return d.vec(sums + j) }
	spare := 16
	if line == 64 {
		spare = 32
	}
	spare -= sums + d.panels
	as := func(i int) Vec { return d.vec(sums + d.panels + i%spare) }
	fn.Note(fmt.Sprintf("%v…%v", sum(0, 0), sum(d.rows-1, d.panels-1)), "sums of the chunk, rows first")
	fn.Note(fmt.Sprintf("%v…%v", bs(0), bs(d.panels-1)), "b")
	fn.Note(fmt.Sprintf("%v…%v", as(0), as(spare-1)), "a")

	t.prefetch(row)
	chunk := fn.Label("chunk")
	for i := range sums {
		if line == 64 {
			fn.I("VPXORQ", d.vec(i), d.vec(i), d.vec(i))
		} else {
			fn.I("VXORPS", d.vec(i), d.vec(i), d.vec(i))
		}
	}
	step := func(u int) {
		for j := range d.panels {
			fn.I("VMOVUPS", t.panel(j, u*line), bs(j))
		}
		for i := range d.rows {
			fn.I("VBROADCASTSS", t.a.At(u*line+4*i), as(i))
			for j := range d.panels {
				fn.I(d.instruction, as(i), bs(j), sum(i, j))
			}
		}
	}
	const unroll = 4
	rest, one, done := fn.NewLabel("rest"), fn.NewLabel("one"), fn.NewLabel("done")
	fn.I("MOVQ", t.steps, k)
	fn.I("SUBQ", unroll, k)
	fn.Jump("JL", rest)
	loop := fn.Label("loop")
	for u := range unroll {
		step(u)
	}
	fn.I("ADDQ", unroll*line, t.a)
	fn.I("ADDQ", unroll*line, t.b)
	fn.I("SUBQ", unroll, k)
	fn.Jump("JGE", loop)
	fn.Place(rest)
	fn.I("ADDQ", unroll, k)
	fn.Jump("JZ", done)
	fn.Place(one)
	step(0)
	fn.I("ADDQ", line, t.a)
	fn.I("ADDQ", line, t.b)
	fn.I("SUBQ", 1, k)
	fn.Jump("JNZ", one)

	fn.Place(done)
	fn.Comment("C (+)= alpha · scale of b · scale of a · sum")
	// b's registers are free now; with two panels or fewer, those of a besides.
	free := append([]Vec(nil), bs(0), as(0))
	if d.panels > 1 {
		free = append(free, bs(1))
	} else {
		free = append(free, as(1))
	}
	scaleB, scaleA, s := free[0], free[1], free[2]
	write := func(accumulate bool) {
		for j := range d.panels {
			fn.I("VBROADCASTSS", fn.FP("alpha"), scaleB)
			fn.I("VMULPS", t.panel(j, 0), scaleB, scaleB)
			fn.I("MOVQ", t.c, row)
			for i := range d.rows {
				fn.I("VBROADCASTSS", t.a.At(4*i), scaleA)
				fn.I("VMULPS", scaleA, scaleB, s)
				if accumulate {
					fn.I("VFMADD213PS", row.At(j*line), sum(i, j), s)
				} else {
					fn.I("VMULPS", sum(i, j), s, s)
				}
				fn.I("VMOVUPS", s, row.At(j*line))
				fn.I("ADDQ", t.ldc, row)
			}
		}
	}
	add, next := fn.NewLabel("add"), fn.NewLabel("next")
	fn.I("TESTQ", t.accumulate, t.accumulate)
	fn.Jump("JNZ", add)
	write(false)
	fn.Jump("JMP", next)
	fn.Place(add)
	write(true)
	fn.Place(next)
	fn.I("MOVL", 1, t.accumulate)
	fn.I("ADDQ", line, t.a)
	fn.I("ADDQ", line, t.b)
	fn.I("SUBQ", 1, t.chunks)
	fn.Jump("JNZ", chunk)
	fn.Return()
}

// A dotInt8 is a kernel for int8 panels of 16 lanes with chunks of one block, of
// 4 rows × panels vectors. The sum of a block starts from what a's panel holds
// for b's bias, and is exact.
type dotInt8 struct {
	scales  string // whose they are: MX exponents, NVFP4 floats
	block   int
	combine string // the instruction that multiplies the scales of a and b
	panels  int
}

func (d dotInt8) write(f *File) {
	const rows, line = 4, 64
	name := fmt.Sprintf("dot%s_%dx%d", d.scales, rows, d.panels*line/4)
	t := newTile(f, name, fmt.Sprintf("%s is a microkernel for int8 panels with chunks of %d (see kernel).", name, d.block), rows, d.panels, line)
	fn := t.fn
	row := fn.GP("row of C")
	n := rows * d.panels
	total := func(i, j int) Vec { return Z(i*d.panels + j) }
	dot := func(i, j int) Vec { return Z(n + i*d.panels + j) }
	bs := func(j int) Vec { return Z(2*n + j) }
	spare := 32 - 2*n - d.panels
	as := func(i int) Vec { return Z(2*n + d.panels + i%spare) }
	fn.Note(fmt.Sprintf("Z0…%v", total(rows-1, d.panels-1)), "totals, rows first")
	fn.Note(fmt.Sprintf("%v…%v", dot(0, 0), dot(rows-1, d.panels-1)), "sums of the block")
	fn.Note(fmt.Sprintf("%v…%v", bs(0), bs(d.panels-1)), "b")
	fn.Note(fmt.Sprintf("%v…Z31", as(0)), "a; scales of the block")
	steps := d.block / 4

	for i := range n {
		fn.I("VPXORQ", Z(i), Z(i), Z(i))
	}
	t.prefetch(row)
	chunk := fn.Label("chunk")
	for i := range rows {
		for j := range d.panels {
			fn.I("VPBROADCASTD", t.a.At((steps+1)*line+4*i), dot(i, j))
		}
	}
	for u := range steps {
		for j := range d.panels {
			fn.I("VMOVDQU32", t.panel(j, u*line), bs(j))
		}
		for i := range rows {
			fn.I("VPBROADCASTD", t.a.At(u*line+4*i), as(i))
			for j := range d.panels {
				fn.I("VPDPBUSD", as(i), bs(j), dot(i, j))
			}
		}
	}
	for j := range d.panels {
		fn.I("VMOVUPS", t.panel(j, steps*line), bs(j))
	}
	for i := range rows {
		for j := range d.panels {
			s := as(i*d.panels + j)
			fn.I("VCVTDQ2PS", dot(i, j), dot(i, j))
			fn.I(d.combine+".BCST", t.a.At(steps*line+4*i), bs(j), s)
			fn.I("VFMADD231PS", s, dot(i, j), total(i, j))
		}
	}
	fn.I("ADDQ", (steps+2)*line, t.a)
	fn.I("ADDQ", (steps+1)*line, t.b)
	fn.I("SUBQ", 1, t.chunks)
	fn.Jump("JNZ", chunk)

	fn.Comment("C (+)= alpha · total")
	alpha := bs(0)
	fn.I("VBROADCASTSS", fn.FP("alpha"), alpha)
	add := fn.NewLabel("add")
	fn.I("TESTQ", t.accumulate, t.accumulate)
	fn.Jump("JNZ", add)
	for _, accumulate := range []bool{false, true} {
		if accumulate {
			fn.Place(add)
		}
		for i := range rows {
			for j := range d.panels {
				if accumulate {
					fn.I("VFMADD213PS", t.c.At(j*line), alpha, total(i, j))
				} else {
					fn.I("VMULPS", alpha, total(i, j), total(i, j))
				}
				fn.I("VMOVUPS", total(i, j), t.c.At(j*line))
			}
			fn.I("ADDQ", t.ldc, t.c)
		}
		fn.Return()
	}
}
