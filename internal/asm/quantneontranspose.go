package asm

import (
	"fmt"
	"math/bits"
)

// The transpositions of package quant for arm64. A tile has 16/size rows of 16 bytes. Instructions of one, the loop included: 20
// for 4 × 4 float32, 44 for 8 × 8 codes of 16 bits, 100 for 16 × 16 codes of 8 bits; 32 for four rows of 16 bytes.

// transpose writes the kernel for elements of a size in bytes.
func (q neonQuant) transpose(name string, size int) {
	side := 16 / size
	fn := q.Func(name, fmt.Sprintf(`%s sets element (j, i) of dst to element (i, j) of src, of %d bits, for i < %d·down and
j < %[3]d·right, both positive. Strides are in bytes.`, name, 8*size, side), "dst, src *byte, down, right, dstStride, srcStride int")
	dst, src, down, dstStride, srcStride := fn.Arg("dst"), fn.Arg("src"), fn.Arg("down"), fn.Arg("dstStride"), fn.Arg("srcStride")
	left, to, columns, row := fn.GP("units left of the rows"), fn.GP("position"), fn.GP("the next columns"), fn.GP("row of the source")
	rows := fn.Label("rows")
	fn.I("MOVD", src, columns)
	fn.I("MOVD", dst, to)
	fn.I("MOVD", fn.FP("right"), left)
	unit := fn.Label("unit")
	fn.I("MOVD", columns, row)
	from, next := neonRange(0, side), neonRange(16, side)
	for _, v := range from {
		fn.I("VLD1.P", "("+string(row)+")("+string(srcStride)+")", list(v.B16()))
	}
	lanes := map[int]func(Neon) Neon{1: Neon.B16, 2: Neon.H8, 4: Neon.S4}[size]
	for n := side; n > 1; n /= 2 {
		neonShuffle(fn, lanes, from, next)
		from, next = next, from
	}
	for _, v := range from {
		fn.I("VST1.P", list(v.B16()), "("+string(to)+")("+string(dstStride)+")")
	}
	fn.I("ADD", 16, columns)
	fn.I("SUBS", 1, left)
	fn.Jump("BNE", unit)
	fn.I("ADD", fmt.Sprintf("%s<<%d", srcStride, bits.TrailingZeros(uint(side))), src)
	fn.I("ADD", 16, dst)
	fn.I("SUBS", 1, down)
	fn.Jump("BNE", rows)
	fn.Return()
}

// transposeFour writes the transposition of four rows of bytes, 16 columns at a time.
func (q neonQuant) transposeFour() {
	fn := q.Func("transposeFourNEON", `transposeFourNEON stores four rows of 16·n bytes transposed, n > 0: four contiguous bytes for
each column. Strides are in bytes.`, "dst, src *byte, n, dstStride, srcStride int")
	dst, src, n, dstStride, srcStride := fn.Arg("dst"), fn.Arg("src"), fn.Arg("n"), fn.Arg("dstStride"), fn.Arg("srcStride")
	row := fn.GP("row of the source")
	loop := fn.Label("columns")
	fn.I("MOVD", src, row)
	for _, v := range neonRange(0, 4) {
		fn.I("VLD1.P", "("+string(row)+")("+string(srcStride)+")", list(v.B16()))
	}
	neonShuffle(fn, Neon.B16, neonRange(0, 4), neonRange(4, 4))
	neonShuffle(fn, Neon.B16, neonRange(4, 4), neonRange(0, 4))
	for _, v := range neonRange(0, 4) {
		for i := range 4 {
			fn.I("VST1.P", v.S4().lane(i), "("+string(dst)+")("+string(dstStride)+")")
		}
	}
	fn.I("ADD", 16, src)
	fn.I("SUBS", 1, n)
	fn.Jump("BNE", loop)
	fn.Return()
}
