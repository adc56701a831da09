package asmgen

import "fmt"

// stripParams are those of gemm.stripFunc.
const stripParams = "tiles int, a, b unsafe.Pointer, aPanel, bPanel, lines int, columns uint32, begin, end, accumulate bool, " +
	"sums unsafe.Pointer, sumsNext int, from, to *float32, fromNext, toNext int, alpha float32"

const (
	tileLines = 16
	tileLine  = 64 // bytes
	tileBytes = tileLines * tileLine

	tileAhead = 4 // lines of C to fetch with each tile of a line: all of them with eight
)

// A dotTiles is a strip kernel for BF16 panels of 16 lanes, those of A by lines. It
// multiplies two tiles of A by one or two of B at a time, and leaves the sums in memory,
// from which vectors scale them where the chunk ends.
type dotTiles struct {
	panels int // of B

	fn                  *Func
	a, b                [2]Reg
	line, lines, left   Reg // bytes of a tile's line; lines of C in this pair of tiles; tiles or lines left
	i                   Reg // line of a tile
	sums, from, to, row Reg // sums of the pair; a line of C as it was, and to be, and of the sums
}

func (d dotTiles) write(f *File) {
	name := fmt.Sprintf("dotTiles_32x%d", d.panels*tileLines)
	d.fn = f.Func(name, name+" is a strip kernel for BF16 panels of 16 lanes (see kernel).", stripParams)
	fn := d.fn
	d.a, d.b = [2]Reg{fn.GP("a"), fn.GP("a, second panel")}, [2]Reg{fn.GP("b"), fn.GP("b, second panel")}
	d.line, d.lines, d.left = fn.GP("bytes of a tile's line"), fn.GP("lines of C in this pair of tiles"), fn.GP("tiles or lines left")
	d.i = fn.GP("line of a tile")
	d.sums, d.from, d.to, d.row = fn.Arg("sums"), fn.Arg("from"), fn.Arg("to"), fn.GP("line of sums")
	tmp := fn.GP("scratch")
	fn.Note("TMM0…TMM3", "sums, lines first")
	fn.Note("TMM4 TMM5 TMM6 TMM7", "two of A, two of B")
	fn.Note("K1 K2", "columns of C that there are")
	fn.Note("Z0 Z1", "alpha · scales of B")
	configureTiles(f, fn, tmp)
	fn.I("MOVL", fn.FP("columns"), tmp)
	for j := range d.panels {
		fn.I("KMOVW", tmp, K(1+j))
		fn.I("SHRL", tileLines, tmp)
	}
	fn.I("MOVL", tileLine, d.line)

	pair := fn.Label("pair")
	whole, one, next := fn.NewLabel("whole"), fn.NewLabel("one"), fn.NewLabel("next")
	fn.I("MOVQ", fn.FP("lines"), d.lines)
	fn.I("CMPQ", d.lines, 2*tileLines)
	fn.Jump("JLE", whole)
	fn.I("MOVL", 2*tileLines, d.lines)
	fn.Place(whole)
	fn.I("MOVQ", fn.FP("a"), d.a[0])
	fn.I("MOVQ", fn.FP("aPanel"), d.a[1])
	fn.I("ADDQ", d.a[0], d.a[1])
	fn.I("MOVQ", fn.FP("b"), d.b[0])
	if d.panels > 1 {
		fn.I("MOVQ", fn.FP("bPanel"), d.b[1])
		fn.I("ADDQ", d.b[0], d.b[1])
	}
	fn.I("CMPQ", d.lines, tileLines)
	fn.Jump("JLE", one)
	d.multiply(2)
	scale := fn.NewLabel("scale")
	fn.Jump("JMP", scale)
	fn.Place(one)
	d.multiply(1)

	fn.Place(scale)
	fn.I("CMPB", fn.FP("end"), 0)
	fn.Jump("JEQ", next)
	fn.Comment("C (+)= alpha · scale of b · scale of a · sum")
	for j := range d.panels {
		fn.I("VBROADCASTSS", fn.FP("alpha"), Z(j))
		fn.I("VMULPS", d.b[j].At(0), Z(j), Z(j))
	}
	add := fn.NewLabel("add")
	fn.I("CMPB", fn.FP("accumulate"), 0)
	fn.Jump("JNE", add)
	d.scale(false)
	fn.Jump("JMP", next)
	fn.Place(add)
	d.scale(true)

	fn.Place(next)
	fn.I("MOVQ", fn.FP("aPanel"), tmp)
	fn.I("SHLQ", 1, tmp)
	fn.I("ADDQ", tmp, fn.FP("a"))
	fn.I("ADDQ", fn.FP("sumsNext"), d.sums)
	fn.I("SUBQ", 2*tileLines, fn.FP("lines"))
	fn.Jump("JG", pair)
	fn.I("TILERELEASE")
	fn.Return()
}

// multiply adds the products of so many tiles of A to the sums. The panels' pointers go
// on to what follows these tiles: the scales, where the chunk ends.
func (d *dotTiles) multiply(tiles int) {
	fn := d.fn
	sum := func(i, j int) Tile { return T(i*d.panels + j) }
	sums := func(i, j int) Mem { return d.sums.At((i*d.panels+j)*tileBytes).By(d.line, 1) }
	again, ready := fn.NewLabel("again"), fn.NewLabel("ready")
	fn.I("CMPB", fn.FP("begin"), 0)
	fn.Jump("JEQ", again)
	for i := range tiles * d.panels {
		fn.I("TILEZERO", T(i))
	}
	fn.Jump("JMP", ready)
	fn.Place(again)
	for i := range tiles {
		for j := range d.panels {
			fn.I("TILELOADD", sums(i, j), sum(i, j))
		}
	}
	fn.Place(ready)
	fn.Comment("lines of C of the next pair come from far")
	near := fn.NewLabel("near")
	fn.I("MOVQ", d.sums, d.row)
	fn.I("XORL", d.i, d.i)
	fn.I("CMPB", fn.FP("end"), 0)
	fn.Jump("JEQ", near)
	fn.I("MOVQ", fn.FP("toNext"), d.i)
	fn.I("MOVQ", d.i, d.row)
	fn.I("SHLQ", 5, d.row) // 2·tileLines of them
	fn.I("ADDQ", d.to, d.row)
	fn.Place(near)
	fn.I("MOVQ", fn.FP("tiles"), d.left)
	loop := fn.Label("tile")
	fn.I("TILELOADD", d.a[0].At(0).By(d.line, 1), T(4))
	for j := range d.panels {
		fn.I("TILELOADD", d.b[j].At(0).By(d.line, 1), T(6+j))
		fn.I("TDPBF16PS", T(6+j), T(4), sum(0, j))
	}
	if tiles > 1 {
		fn.I("TILELOADD", d.a[1].At(0).By(d.line, 1), T(5))
		for j := range d.panels {
			fn.I("TDPBF16PS", T(6+j), T(5), sum(1, j))
		}
	}
	for _, r := range append(append([]Reg(nil), d.a[:tiles]...), d.b[:d.panels]...) {
		fn.I("ADDQ", tileBytes, r)
	}
	for range tileAhead {
		for j := range d.panels {
			fn.I("PREFETCHT0", d.row.At(j*tileLine))
		}
		fn.I("ADDQ", d.i, d.row)
	}
	fn.I("SUBQ", 1, d.left)
	fn.Jump("JNZ", loop)
	for i := range tiles {
		for j := range d.panels {
			fn.I("TILESTORED", sum(i, j), sums(i, j))
		}
	}
}

// scale multiplies the sums by their scales, and adds C as it was where it is to.
func (d *dotTiles) scale(accumulate bool) {
	fn := d.fn
	done := fn.NewLabel("done")
	for t, a := range d.a {
		fn.I("LEAQ", d.sums.At(t*d.panels*tileBytes), d.row)
		fn.I("XORL", d.i, d.i)
		loop := fn.Label("line")
		fn.I("VBROADCASTSS", a.At(0).By(d.i, 4), Z(2))
		for j := range d.panels {
			s := Z(3 + j)
			fn.I("VMULPS", Z(2), Z(j), s)
			if accumulate {
				fn.I("VMOVUPS.Z", d.from.At(j*tileLine), K(1+j), Z(5+j))
				fn.I("VFMADD132PS", d.row.At(j*tileBytes), Z(5+j), s)
			} else {
				fn.I("VMULPS", d.row.At(j*tileBytes), s, s)
			}
			fn.I("VMOVUPS", s, K(1+j), d.to.At(j*tileLine))
		}
		if accumulate {
			fn.I("ADDQ", fn.FP("fromNext"), d.from)
		}
		fn.I("ADDQ", fn.FP("toNext"), d.to)
		fn.I("ADDQ", tileLine, d.row)
		fn.I("SUBQ", 1, d.lines)
		fn.Jump("JZ", done)
		fn.I("ADDQ", 1, d.i)
		fn.I("CMPQ", d.i, tileLines)
		fn.Jump("JNE", loop)
	}
	fn.Place(done)
}

// configureTiles makes all tiles 16 lines of 64 bytes. Their state belongs to a thread of
// the system, and a goroutine may go on in another one wherever it is not in assembly:
// what configures tiles releases them before it returns.
func configureTiles(f *File, fn *Func, tmp Reg) {
	config := make([]byte, 64)
	config[0] = 1 // the palette
	for i := range 8 {
		config[16+2*i], config[48+i] = tileLine, tileLines
	}
	fn.I("LEAQ", f.shared("tiles", config), tmp)
	fn.I("LDTILECFG", tmp.At(0))
}
