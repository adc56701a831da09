package asm

import "fmt"

// macroFields are the fields of gemm.macroArgs.
const macroFields = "chunks, tiles, each int, a, b unsafe.Pointer, aPanel, bPanel, next, rows int, columns uint32, accumulate bool, " +
	"work unsafe.Pointer, running, c *float32, ldc int, alpha float32"

const (
	tileRows     = 16
	tileRowBytes = 64 // bytes
	tileBytes    = tileRows * tileRowBytes
	tileAhead    = 1 // rows of each panel of B in the next chunk to prefetch with a tile
)

// A dotTiles is a macro-kernel for BF16 panels of 16 lanes, those of A by rows. It multiplies
// two tiles of A by one or two of B at a time, over a chunk. It stores the sums of tiles when
// the next products begin, and scales them in vector registers between those products, so that
// the tile unit and the vector units work at the same time. Each two tiles of A read the tiles
// of B again. These stay in the first-level cache, which tiles of A bypass (TILELOADDT1).
type dotTiles struct {
	panels int // of B

	fn             *Func
	a, b           [2]Reg
	rowBytes, left Reg // bytes of a row of a tile; tiles left
	from, to       Reg // previous elements of a row of C, and its destination
	row, scale     Reg // its sums and its scale of A
	rows, each     Reg // rows to scale; those left for the current tile
	ahead          Reg // rows of B in the next chunk
	tmp            Reg
}

// The frame of a macro-kernel.
const (
	stripPair     = 8 * iota // the current panels of A
	stripRows                // rows of C from these on
	stripFromNext            // distance of rows of the previous elements of C
	stripTo                  // destination of the first row of C
	stripToNext
	stripFrame
)

func (d dotTiles) write(f *File) {
	name := fmt.Sprintf("dotTiles_32x%d", d.panels*tileRows)
	d.fn = f.Func(name, name+" is a macro-kernel for BF16 panels of 16 lanes (see kernel).", "p macroArgs")
	fn := d.fn
	fn.Frame(stripFrame)
	d.takeRegisters()
	configureTiles(f, fn, d.tmp)
	d.begin(minusZeros(f, 2*tileRowBytes))

	chunk := fn.Label("chunk")
	d.beginChunk()
	pair := fn.Label("pair")
	d.beginPair()
	one, scale := fn.NewLabel("one"), fn.NewLabel("scale")
	fn.I("CMPQ", d.tmp, tileRows)
	fn.Jump("JLE", one)
	d.multiply(2)
	fn.Jump("JMP", scale)
	fn.Place(one)
	d.multiply(1)
	fn.Place(scale)
	d.scaleAll()
	d.nextRows()

	fn.I("MOVQ", SP.At(stripPair), d.a[0])
	same := fn.NewLabel("same")
	fn.I("CMPQ", d.a[0], fn.FP("a"))
	fn.Jump("JNE", same)
	d.nextC()
	fn.Place(same)
	fn.I("MOVQ", fn.FP("aPanel"), d.tmp)
	fn.I("LEAQ", d.a[0].At(0).By(d.tmp, 2), d.a[0])
	fn.I("MOVQ", SP.At(stripRows), d.tmp)
	fn.I("SUBQ", 2*tileRows, d.tmp)
	fn.Jump("JG", pair)
	d.chunkBytes(d.tmp)
	fn.I("ADDQ", d.tmp, fn.FP("a"))
	fn.I("ADDQ", d.tmp, fn.FP("b"))
	fn.I("SUBQ", 1, fn.FP("chunks"))
	fn.Jump("JNZ", chunk)

	for t := range 2 * d.panels {
		d.store(t)
	}
	d.scaleAll()
	fn.I("TILERELEASE")
	fn.Return()
}

// takeRegisters assigns the registers.
func (d *dotTiles) takeRegisters() {
	fn := d.fn
	d.a, d.b = [2]Reg{fn.GP("a"), fn.GP("a, second panel")}, [2]Reg{fn.GP("b"), fn.GP("b, second panel")}
	d.rowBytes, d.left = fn.GP("bytes of a row of a tile"), fn.GP("tiles left")
	d.from, d.to = fn.GP("previous elements of a row of C"), fn.GP("destination of the row")
	d.row, d.scale = fn.GP("sums of the row"), fn.GP("its scale of A")
	d.rows, d.each = fn.GP("rows to scale"), fn.GP("those left for a tile")
	d.ahead, d.tmp = fn.GP("rows of B in the next chunk"), fn.GP("scratch")
	fn.Note("TMM0…TMM3", "sums, row by row")
	fn.Note("TMM4 TMM5 TMM6 TMM7", "two of A, two of B")
	fn.Note("K1 K2", "columns of C")
	fn.Note("Z0 Z1", "alpha · scales of B")
}

// begin sets the masks of columns, and C as the previous elements: zeros, without accumulate.
func (d *dotTiles) begin(zeros Sym) {
	fn := d.fn
	fn.I("MOVL", fn.FP("columns"), d.tmp)
	for j := range d.panels {
		fn.I("KMOVW", d.tmp, K(1+j))
		fn.I("SHRL", tileRows, d.tmp)
	}
	fn.I("MOVQ", fn.FP("c"), d.from)
	fn.I("MOVQ", fn.FP("ldc"), d.tmp)
	add := fn.NewLabel("add")
	fn.I("CMPB", fn.FP("accumulate"), 0)
	fn.Jump("JNE", add)
	fn.I("LEAQ", zeros, d.from)
	fn.I("XORL", d.tmp, d.tmp)
	fn.Place(add)
	fn.I("MOVQ", d.from, SP.At(stripTo))
	fn.I("MOVQ", d.tmp, SP.At(stripToNext))
	fn.I("MOVL", tileRowBytes, d.rowBytes)
	fn.I("XORL", d.rows, d.rows)
}

// chunkBytes sets r to the bytes of a chunk of one panel.
func (d *dotTiles) chunkBytes(r Reg) {
	d.fn.I("MOVQ", d.fn.FP("tiles"), r)
	d.fn.I("SHLQ", 10, r) // tileBytes
	d.fn.I("ADDQ", tileRowBytes, r)
}

// beginChunk sets the first panel of A, its number of rows in tmp, and the rows to prefetch: those of
// the next chunk, or of the next panels after the last.
func (d *dotTiles) beginChunk() {
	fn := d.fn
	fn.I("MOVQ", fn.FP("a"), d.a[0])
	near := fn.NewLabel("near")
	d.chunkBytes(d.ahead)
	fn.I("CMPQ", fn.FP("chunks"), 1)
	fn.Jump("JNE", near)
	fn.I("MOVQ", fn.FP("next"), d.ahead)
	fn.Place(near)
	fn.I("ADDQ", fn.FP("b"), d.ahead)
	fn.I("MOVQ", fn.FP("rows"), d.tmp)
}

// beginPair sets the pointers of two panels of A, of which tmp rows are left, and of all of B.
func (d *dotTiles) beginPair() {
	fn := d.fn
	fn.I("MOVQ", d.a[0], SP.At(stripPair))
	fn.I("MOVQ", d.tmp, SP.At(stripRows))
	fn.I("MOVQ", fn.FP("aPanel"), d.a[1])
	fn.I("ADDQ", d.a[0], d.a[1])
	fn.I("MOVQ", fn.FP("b"), d.b[0])
	if d.panels > 1 {
		fn.I("MOVQ", fn.FP("bPanel"), d.b[1])
		fn.I("ADDQ", d.b[0], d.b[1])
	}
}

// store stores the sums of tile t. The rows of all panels are contiguous.
func (d *dotTiles) store(t int) {
	if t == 0 {
		d.fn.I("MOVQ", d.fn.FP("work"), d.tmp)
	}
	d.fn.I("TILESTORED", T(t), d.tmp.At(t/d.panels*d.panels*tileBytes+t%d.panels*tileRowBytes).By(d.rowBytes, d.panels))
}

// multiply computes the sums of the given number of tiles of A over the chunk, and scales rows
// of the previous sums. It advances the pointers of the panels to the scales.
func (d *dotTiles) multiply(tiles int) {
	fn := d.fn
	done, none := fn.NewLabel("multiplied"), fn.NewLabel("none")
	d.step(tiles, true)
	fn.I("MOVQ", fn.FP("tiles"), d.left)
	fn.I("SUBQ", 1, d.left)
	fn.Jump("JZ", done)
	loop := fn.Label("tile")
	d.step(tiles, false)
	fn.I("MOVQ", fn.FP("each"), d.each)
	fn.I("TESTQ", d.rows, d.rows)
	fn.Jump("JZ", none)
	row := fn.Label("row")
	d.scaleRow()
	fn.I("SUBQ", 1, d.rows)
	fn.Jump("JZ", none)
	fn.I("SUBQ", 1, d.each)
	fn.Jump("JNZ", row)
	fn.Place(none)
	fn.I("SUBQ", 1, d.left)
	fn.Jump("JNZ", loop)
	fn.Place(done)
}

// step adds the products of a tile of each panel. The first step stores the previous sums and
// clears them.
func (d *dotTiles) step(tiles int, first bool) {
	fn := d.fn
	dot := func(i, j int) {
		t := i*d.panels + j
		if first {
			d.store(t)
			fn.I("TILEZERO", T(t))
		}
		fn.I("TDPBF16PS", T(6+j), T(4+i), T(t))
	}
	fn.I("TILELOADDT1", d.a[0].At(0).By(d.rowBytes, 1), T(4))
	for j := range d.panels {
		fn.I("TILELOADD", d.b[j].At(0).By(d.rowBytes, 1), T(6+j))
		dot(0, j)
	}
	if tiles > 1 {
		fn.I("TILELOADDT1", d.a[1].At(0).By(d.rowBytes, 1), T(5))
		for j := range d.panels {
			dot(1, j)
		}
	} else if first {
		for j := range d.panels {
			d.store(d.panels + j)
		}
	}
	if !first {
		for i := range tileAhead {
			fn.I("PREFETCHT1", d.ahead.At(i*tileRowBytes))
		}
		if d.panels > 1 {
			fn.I("MOVQ", fn.FP("bPanel"), d.tmp)
			for i := range tileAhead {
				fn.I("PREFETCHT1", d.ahead.At(i*tileRowBytes).By(d.tmp, 1))
			}
		}
		fn.I("ADDQ", tileAhead*tileRowBytes, d.ahead)
	}
	for _, r := range append(append([]Reg(nil), d.a[:tiles]...), d.b[:d.panels]...) {
		fn.I("ADDQ", tileBytes, r)
	}
}

// scaleAll scales the remaining rows.
func (d *dotTiles) scaleAll() {
	fn := d.fn
	none := fn.NewLabel("none")
	fn.I("TESTQ", d.rows, d.rows)
	fn.Jump("JZ", none)
	row := fn.Label("row")
	d.scaleRow()
	fn.I("SUBQ", 1, d.rows)
	fn.Jump("JNZ", row)
	fn.Place(none)
}

// scaleRow sets a row of C to alpha · scale of b · scale of a · sums plus its previous elements.
func (d *dotTiles) scaleRow() {
	fn := d.fn
	fn.I("VBROADCASTSS", d.scale.At(0), Z(2))
	for j := range d.panels {
		s, c := Z(3+j), Z(5+j)
		fn.I("VMULPS", Z(2), Z(j), s)
		fn.I("VMOVUPS.Z", d.from.At(j*tileRowBytes), K(1+j), c)
		fn.I("VFMADD132PS", d.row.At(j*tileRowBytes), c, s)
		fn.I("VMOVUPS", s, K(1+j), d.to.At(j*tileRowBytes))
	}
	fn.I("ADDQ", 4, d.scale)
	fn.I("ADDQ", d.panels*tileRowBytes, d.row)
	fn.I("ADDQ", SP.At(stripFromNext), d.from)
	fn.I("ADDQ", SP.At(stripToNext), d.to)
}

// nextRows selects the rows of the latest sums for scaling. The pointers of the panels point to
// the scales.
func (d *dotTiles) nextRows() {
	fn := d.fn
	ready := fn.NewLabel("ready")
	fn.I("MOVQ", fn.FP("work"), d.row)
	fn.I("LEAQ", d.row.At(2*d.panels*tileBytes), d.scale)
	for j := range d.panels {
		fn.I("VBROADCASTSS", fn.FP("alpha"), Z(j))
		fn.I("VMULPS", d.b[j].At(0), Z(j), Z(j))
	}
	fn.I("VMOVUPS", d.a[0].At(0), Z(2))
	fn.I("VMOVUPS", Z(2), d.scale.At(0))
	fn.I("MOVQ", SP.At(stripRows), d.rows)
	fn.I("CMPQ", d.rows, tileRows)
	fn.Jump("JLE", ready)
	fn.I("VMOVUPS", d.a[1].At(0), Z(2))
	fn.I("VMOVUPS", Z(2), d.scale.At(tileRowBytes))
	fn.I("CMPQ", d.rows, 2*tileRows)
	fn.Jump("JLE", ready)
	fn.I("MOVL", 2*tileRows, d.rows)
	fn.Place(ready)
}

// nextC sets the previous elements of C to those of the previous chunk, and the destination to
// running, or in the last chunk to C.
func (d *dotTiles) nextC() {
	fn := d.fn
	kept := fn.NewLabel("kept")
	fn.I("MOVQ", SP.At(stripTo), d.from)
	fn.I("MOVQ", SP.At(stripToNext), d.tmp)
	fn.I("MOVQ", d.tmp, SP.At(stripFromNext))
	fn.I("MOVQ", fn.FP("running"), d.to)
	fn.I("MOVL", d.panels*tileRowBytes, d.tmp)
	fn.I("CMPQ", fn.FP("chunks"), 1)
	fn.Jump("JNE", kept)
	fn.I("MOVQ", fn.FP("c"), d.to)
	fn.I("MOVQ", fn.FP("ldc"), d.tmp)
	fn.Place(kept)
	fn.I("MOVQ", d.to, SP.At(stripTo))
	fn.I("MOVQ", d.tmp, SP.At(stripToNext))
}

// streamRows writes the function that copies rows of the given number of panels to C with
// non-temporal stores.
func streamRows(f *File, panels int) {
	name := fmt.Sprintf("streamRows%d", panels*tileRows)
	fn := f.Func(name, name+fmt.Sprintf(` copies contiguous rows of %d floats to C with non-temporal stores.
The rows of C are ldc bytes apart and aligned to cache lines.`, panels*tileRows), "c, src *float32, ldc, rows int")
	c, src, ldc, rows := fn.Arg("c"), fn.Arg("src"), fn.Arg("ldc"), fn.Arg("rows")
	loop := fn.Label("row")
	for j := range panels {
		fn.I("VMOVUPS", src.At(j*tileRowBytes), Z(j))
		fn.I("VMOVNTPS", Z(j), c.At(j*tileRowBytes))
	}
	fn.I("ADDQ", panels*tileRowBytes, src)
	fn.I("ADDQ", ldc, c)
	fn.I("SUBQ", 1, rows)
	fn.Jump("JNZ", loop)
	fn.I("SFENCE")
	fn.Return()
}

// configureTiles configures all tiles as 16 rows of 64 bytes. Their state belongs to a thread of
// the operating system, and a goroutine may change its thread outside of assembly. So a function
// that configures tiles must release them before it returns.
func configureTiles(f *File, fn *Func, tmp Reg) {
	config := make([]byte, 64)
	config[0] = 1 // the palette
	for i := range 8 {
		config[16+2*i], config[48+i] = tileRowBytes, tileRows
	}
	fn.I("LEAQ", f.shared("tiles", config), tmp)
	fn.I("LDTILECFG", tmp.At(0))
}
