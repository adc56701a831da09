package asmgen

// quantTranspose writes the transposition of float32, 16 rows of 16 at a time.
func quantTranspose() *File {
	f := NewFile("quant", "transpose")
	fn := f.Func("transpose512", `transpose512 sets dst[j][i] to src[i][j], i < 16·n, j < 16, n > 0. Rows are so
many bytes apart.`, "dst, src *float32, dstStride, srcStride, n int")
	dst, src, dstStride, srcStride, n := fn.Arg("dst"), fn.Arg("src"), fn.Arg("dstStride"), fn.Arg("srcStride"), fn.Arg("n")
	row, ahead := fn.GP("a row of either"), fn.GP("the row 16 rows further")
	loop := fn.Label("loop")
	fn.I("MOVQ", src, row)
	fn.I("MOVQ", srcStride, ahead)
	fn.I("SHLQ", 4, ahead)
	fn.I("ADDQ", src, ahead)
	for i := range 16 {
		fn.I("PREFETCHT0", ahead.At(0))
		fn.I("VMOVUPS", row.At(0), Z(i))
		fn.I("ADDQ", srcStride, row)
		fn.I("ADDQ", srcStride, ahead)
	}
	fn.Comment("4×4 within lanes: row 4g+k becomes columns 4L+k of rows 4g to 4g+3")
	for i := 0; i < 16; i += 2 {
		fn.I("VUNPCKLPS", Z(i+1), Z(i), Z(16+i))
		fn.I("VUNPCKHPS", Z(i+1), Z(i), Z(17+i))
	}
	for g := 0; g < 16; g += 4 {
		fn.I("VUNPCKLPD", Z(18+g), Z(16+g), Z(g))
		fn.I("VUNPCKHPD", Z(18+g), Z(16+g), Z(g+1))
		fn.I("VUNPCKLPD", Z(19+g), Z(17+g), Z(g+2))
		fn.I("VUNPCKHPD", Z(19+g), Z(17+g), Z(g+3))
	}
	fn.Comment("4×4 of lanes, so that vector c is column c")
	for k := range 4 {
		low0, low1, high0, high1 := Z(16+4*k), Z(17+4*k), Z(18+4*k), Z(19+4*k)
		fn.I("VSHUFF32X4", 0x44, Z(4+k), Z(k), low0)
		fn.I("VSHUFF32X4", 0x44, Z(12+k), Z(8+k), low1)
		fn.I("VSHUFF32X4", 0xee, Z(4+k), Z(k), high0)
		fn.I("VSHUFF32X4", 0xee, Z(12+k), Z(8+k), high1)
		fn.I("VSHUFF32X4", 0x88, low1, low0, Z(k))
		fn.I("VSHUFF32X4", 0xdd, low1, low0, Z(4+k))
		fn.I("VSHUFF32X4", 0x88, high1, high0, Z(8+k))
		fn.I("VSHUFF32X4", 0xdd, high1, high0, Z(12+k))
	}
	fn.I("MOVQ", dst, row)
	for c := range 16 {
		fn.I("VMOVUPS", Z(c), row.At(0))
		fn.I("ADDQ", dstStride, row)
	}
	fn.I("ADDQ", 64, dst)
	fn.I("SHLQ", 4, srcStride)
	fn.I("ADDQ", srcStride, src)
	fn.I("SHRQ", 4, srcStride)
	fn.I("SUBQ", 1, n)
	fn.Jump("JNZ", loop)
	fn.Return()
	return f
}
