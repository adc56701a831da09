package asm

import (
	"fmt"
	"slices"
)

// Gemm writes the micro-kernels of package gemm, whose contract is in its kernel.go, and its
// packing functions.
func Gemm() []*File {
	dots := NewFile("gemm", "dot")
	for panels := 1; panels <= 3; panels++ {
		dotFloat{"BF16", "VDPBF16PS", Z, 8, panels}.write(dots)
		dotFloat{"F32", "VFMADD231PS", Z, 8, panels}.write(dots)
		dotFloat{"F32", "VFMADD231PS", Y, 4, panels}.write(dots)
		for _, s := range int8Scalings {
			dotInt8{int8Scaling: s, panels: panels}.write(dots)
		}
	}
	tiles := NewFile("gemm", "tiles")
	for panels := 1; panels <= 2; panels++ {
		dotTiles{panels: panels}.write(tiles)
		streamRows(tiles, panels)
	}
	packs := NewFile("gemm", "pack")
	gemmTables(packs)
	return slices.Concat([]*File{dots, tiles, packs, gemmInterleaved()}, gemmVectors(), gemmVectorsF32(), gemmNEON())
}

// dotParams are the parameters of gemm.dotFunc.
const dotParams = "chunks, steps int, a, b unsafe.Pointer, bPanel int, c *float32, ldc int, alpha float32, accumulate bool"

// A tile is the part that micro-kernels share: pointers into the panels and into C.
//
// The previous elements of C are read from `from`: from C, or from zeros if not accumulating.
// These are negative zeros, which do not change a product that is added to them.
type tile struct {
	fn                         *Func
	rows, panels, vector       int // vector: bytes of a vector
	chunks, steps, a, b        Reg
	bPanel, c, ldc, from, next Reg // next: from one row of from to the next
}

func newTile(f *File, name, doc string, rows, panels, vector int) *tile {
	fn := f.Func(name, doc, dotParams)
	t := &tile{fn: fn, rows: rows, panels: panels, vector: vector}
	t.chunks, t.steps = fn.Arg("chunks"), fn.Arg("steps")
	t.a, t.b, t.bPanel = fn.Arg("a"), fn.Arg("b"), fn.Arg("bPanel")
	t.c, t.ldc = fn.Arg("c"), fn.Arg("ldc")
	t.from, t.next = fn.GP("previous elements of C"), fn.GP("distance of their rows")
	fn.I("SHLQ", 2, t.ldc)
	fn.I("MOVQ", t.c, t.from)
	fn.I("MOVQ", t.ldc, t.next)
	add := fn.NewLabel("add")
	fn.I("CMPB", fn.FP("accumulate"), 0)
	fn.Jump("JNE", add)
	fn.I("LEAQ", minusZeros(f, 192), t.from)
	fn.I("XORL", t.next, t.next)
	fn.Place(add)
	return t
}

// minusZeros is a table of float32 negative zeros.
func minusZeros(f *File, bytes int) Sym {
	zeros := make([]byte, bytes)
	for i := 3; i < len(zeros); i += 4 {
		zeros[i] = 0x80
	}
	return f.shared("minusZeros", zeros)
}

// panel returns the memory disp bytes past the current position in panel j of B.
func (t *tile) panel(j, disp int) Mem {
	m := t.b.At(disp)
	if j > 0 {
		m = m.By(t.bPanel, j)
	}
	return m
}

// prefetch prefetches the tile of C. Its rows are often a power of two apart, so that they are
// evicted early.
func (t *tile) prefetch(row, left Reg) {
	t.fn.I("MOVQ", t.c, row)
	t.fn.I("MOVQ", t.rows, left)
	loop := t.fn.Label("prefetch")
	for j := 0; j < t.panels*t.vector; j += 64 {
		t.fn.I("PREFETCHT0", row.At(j))
	}
	t.fn.I("ADDQ", t.ldc, row)
	t.fn.I("SUBQ", 1, left)
	t.fn.Jump("JNZ", loop)
}

// A dotFloat is a micro-kernel for float32 or BF16 panels, of rows × panels vectors.
type dotFloat struct {
	elements, instruction string
	vec                   func(int) Vec
	rows, panels          int
}

func (d dotFloat) write(f *File) {
	vector := map[byte]int{'Y': 32, 'Z': 64}[d.vec(0).width]
	name := fmt.Sprintf("dot%s_%dx%d", d.elements, d.rows, d.panels*vector/4)
	t := newTile(f, name, fmt.Sprintf("%s is a microkernel for %s panels of %d lanes (see kernel).", name, d.elements, vector/4), d.rows,
		d.panels, vector)
	fn := t.fn
	k, row := fn.GP("steps left"), fn.GP("row of C")
	sums := d.rows * d.panels
	sum := func(i, j int) Vec { return d.vec(i*d.panels + j) }
	bs := func(j int) Vec { return d.vec(sums + j) }
	spare := 16
	if vector == 64 {
		spare = 32
	}
	spare -= sums + d.panels
	as := func(i int) Vec { return d.vec(sums + d.panels + i%spare) }
	fn.Note(fmt.Sprintf("%v…%v", sum(0, 0), sum(d.rows-1, d.panels-1)), "sums of the chunk, row by row")
	fn.Note(fmt.Sprintf("%v…%v", bs(0), bs(d.panels-1)), "b")
	fn.Note(fmt.Sprintf("%v…%v", as(0), as(spare-1)), "a")

	t.prefetch(row, k)
	chunk := fn.Label("chunk")
	for i := range sums {
		if vector == 64 {
			fn.I("VPXORQ", d.vec(i), d.vec(i), d.vec(i))
		} else {
			fn.I("VXORPS", d.vec(i), d.vec(i), d.vec(i))
		}
	}
	step := func(u int) {
		for j := range d.panels {
			fn.I("VMOVUPS", t.panel(j, u*vector), bs(j))
		}
		for i := range d.rows {
			fn.I("VBROADCASTSS", t.a.At(u*vector+4*i), as(i))
			for j := range d.panels {
				fn.I(d.instruction, as(i), bs(j), sum(i, j))
			}
		}
	}
	fn.I("MOVQ", t.steps, k)
	loop := fn.Label("loop")
	step(0)
	fn.I("ADDQ", vector, t.a)
	fn.I("ADDQ", vector, t.b)
	fn.I("SUBQ", 1, k)
	fn.Jump("JNZ", loop)

	fn.Comment("C (+)= alpha · scale of b · scale of a · sum")
	scaleB, s := bs, as(0) // free now
	for j := range d.panels {
		fn.I("VBROADCASTSS", fn.FP("alpha"), scaleB(j))
		fn.I("VMULPS", t.panel(j, 0), scaleB(j), scaleB(j))
	}
	fn.I("MOVQ", t.c, row)
	for i := range d.rows {
		for j := range d.panels {
			if vector == 64 {
				fn.I("VMULPS.BCST", t.a.At(4*i), scaleB(j), s)
			} else {
				fn.I("VBROADCASTSS", t.a.At(4*i), s)
				fn.I("VMULPS", s, scaleB(j), s)
			}
			fn.I("VFMADD213PS", t.from.At(j*vector), sum(i, j), s)
			fn.I("VMOVUPS", s, row.At(j*vector))
		}
		fn.I("ADDQ", t.ldc, row)
		fn.I("ADDQ", t.next, t.from)
	}
	fn.I("MOVQ", t.c, t.from)
	fn.I("MOVQ", t.ldc, t.next)
	fn.I("ADDQ", vector, t.a)
	fn.I("ADDQ", vector, t.b)
	fn.I("SUBQ", 1, t.chunks)
	fn.Jump("JNZ", chunk)
	fn.Return()
}
