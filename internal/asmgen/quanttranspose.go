package asmgen

// quantTranspose writes the transposition of float32, 16 rows of 16 at a time, and
// of BF16, 32 rows of 32.
func quantTranspose() *File {
	f := NewFile("quant", "transpose")
	t := &transposition{Func: f.Func("transpose512", `transpose512 sets dst[j][i] to src[i][j], i < 16·n, j < 16, n > 0. Rows are so
many bytes apart.`, "dst, src *float32, dstStride, srcStride, n int")}
	t.begin()
	loop := t.Label("loop")
	t.I("MOVQ", t.src, t.row)
	for i := range 16 {
		t.I("VMOVUPS", t.row.At(0), Z(i))
		t.I("ADDQ", t.srcStride, t.row)
	}
	t.turn()
	t.I("MOVQ", t.dst, t.row)
	for c := range 16 {
		t.I("VMOVUPS", Z(c), t.row.At(0))
		t.I("ADDQ", t.dstStride, t.row)
	}
	t.end(16, loop)

	t = &transposition{Func: f.Func("transposeWords", `transposeWords sets dst[j][i] to src[i][j], both of two bytes, i < 32·n, j < 32,
n > 0. Rows are so many bytes apart.`, "dst, src *byte, dstStride, srcStride, n int")}
	t.begin()
	loop = t.Label("loop")
	for half, unpack := range []string{"VPUNPCKLWD", "VPUNPCKHWD"} { // columns 8L+4·half+k of two rows are dwords 4L+k
		t.I("MOVQ", t.src, t.row)
		for i := range 16 {
			t.I("VMOVDQU64", t.row.At(0), Z(i))
			t.I(unpack, t.row.At(0).By(t.srcStride, 1), Z(i), Z(i))
			t.I("LEAQ", t.row.At(0).By(t.srcStride, 2), t.row)
		}
		t.turn()
		t.I("MOVQ", t.dst, t.row)
		if half == 1 {
			t.I("LEAQ", t.row.At(0).By(t.dstStride, 4), t.row)
		}
		for c := range 16 {
			t.I("VMOVDQU64", Z(c), t.row.At(0))
			t.I("ADDQ", t.dstStride, t.row)
			if c%4 == 3 {
				t.I("LEAQ", t.row.At(0).By(t.dstStride, 4), t.row)
			}
		}
	}
	t.end(32, loop)
	return f
}

// transposition is a kernel that turns rows of cache lines.
type transposition struct {
	*Func
	dst, src, dstStride, srcStride, n, row Reg
}

func (t *transposition) begin() {
	t.dst, t.src, t.dstStride, t.srcStride = t.Arg("dst"), t.Arg("src"), t.Arg("dstStride"), t.Arg("srcStride")
	t.n, t.row = t.Arg("n"), t.GP("a row of either")
}

// turn makes Z0 to Z15 the columns of the dwords that they hold.
func (t *transposition) turn() {
	t.Comment("4×4 within lanes: row 4g+k becomes columns 4L+k of rows 4g to 4g+3")
	for i := 0; i < 16; i += 2 {
		t.I("VUNPCKLPS", Z(i+1), Z(i), Z(16+i))
		t.I("VUNPCKHPS", Z(i+1), Z(i), Z(17+i))
	}
	for g := 0; g < 16; g += 4 {
		t.I("VUNPCKLPD", Z(18+g), Z(16+g), Z(g))
		t.I("VUNPCKHPD", Z(18+g), Z(16+g), Z(g+1))
		t.I("VUNPCKLPD", Z(19+g), Z(17+g), Z(g+2))
		t.I("VUNPCKHPD", Z(19+g), Z(17+g), Z(g+3))
	}
	t.Comment("4×4 of lanes, so that vector c is column c")
	for k := range 4 {
		low0, low1, high0, high1 := Z(16+4*k), Z(17+4*k), Z(18+4*k), Z(19+4*k)
		t.I("VSHUFF32X4", 0x44, Z(4+k), Z(k), low0)
		t.I("VSHUFF32X4", 0x44, Z(12+k), Z(8+k), low1)
		t.I("VSHUFF32X4", 0xee, Z(4+k), Z(k), high0)
		t.I("VSHUFF32X4", 0xee, Z(12+k), Z(8+k), high1)
		t.I("VSHUFF32X4", 0x88, low1, low0, Z(k))
		t.I("VSHUFF32X4", 0xdd, low1, low0, Z(4+k))
		t.I("VSHUFF32X4", 0x88, high1, high0, Z(8+k))
		t.I("VSHUFF32X4", 0xdd, high1, high0, Z(12+k))
	}
}

// end goes on with the next rows, so many of them.
func (t *transposition) end(rows int, loop Label) {
	t.I("ADDQ", 64, t.dst)
	t.I("MOVQ", t.srcStride, t.row)
	t.I("IMULQ", rows, t.row)
	t.I("ADDQ", t.row, t.src)
	t.I("SUBQ", 1, t.n)
	t.Jump("JNZ", loop)
	t.Return()
}
