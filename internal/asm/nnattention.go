package asm

// nnAttention writes the kernels of attention on a KV cache, with the bits of the portable Go code
// in nn/decode.go: products and sums are rounded separately.
func nnAttention() *File {
	f := NewFile("nn", "attention")
	for _, vec := range []func(int) Vec{Z, Y} {
		writeScores(f, vec)
		writeAddRows(f, vec)
	}
	return f
}

// writeScores writes dst[i] = Σ q[j]·k[i][j]. Lane l of 16 sums the products of j ≡ l.
func writeScores(f *File, vec func(int) Vec) {
	fn := f.Func(widthName("scores", vec(0)), widthName("scores", vec(0))+" sets dst to the dot products of q with n rows of k, at least "+
		"one, stride bytes\napart. Rows have blocks of 16 elements.",
		"dst, q, k *float32, n, stride, blocks int")
	dst, n, stride := fn.Arg("dst"), fn.Arg("n"), fn.Arg("stride")
	row := fn.Arg("k")
	q, k, left := fn.GP("position in q"), fn.GP("position in k"), fn.GP("blocks left")
	size := vec(0).bytes()
	parts := 64 / size
	rows := fn.Label("row")
	fn.I("MOVQ", fn.FP("q"), q)
	fn.I("MOVQ", row, k)
	fn.I("MOVQ", fn.FP("blocks"), left)
	for i := range parts {
		fn.I("VXORPS", vec(i), vec(i), vec(i))
	}
	block := fn.Label("block")
	for i := range parts {
		fn.I("VMOVUPS", q.At(size*i), vec(2+i))
		fn.I("VMULPS", k.At(size*i), vec(2+i), vec(2+i))
		fn.I("VADDPS", vec(2+i), vec(i), vec(i))
	}
	fn.I("ADDQ", 64, q)
	fn.I("ADDQ", 64, k)
	fn.I("SUBQ", 1, left)
	fn.Jump("JNZ", block)
	sum, t := vec(0), vec(2)
	if parts == 2 {
		fn.I("VADDPS", vec(1), sum, sum)
	} else {
		fn.I("VEXTRACTF64X4", 1, sum, t.Y())
		fn.I("VADDPS", t.Y(), sum.Y(), sum.Y())
	}
	fn.I("VEXTRACTF128", 1, sum.Y(), t.X())
	fn.I("VADDPS", t.X(), sum.X(), sum.X())
	for _, swap := range []int{0x4e, 0xb1} {
		fn.I("VPSHUFD", swap, sum.X(), t.X())
		fn.I("VADDPS", t.X(), sum.X(), sum.X())
	}
	fn.I("VMOVSS", sum.X(), dst.At(0))
	fn.I("ADDQ", 4, dst)
	fn.I("ADDQ", stride, row)
	fn.I("SUBQ", 1, n)
	fn.Jump("JNZ", rows)
	fn.Return()
}

// writeAddRows writes dst[j] += Σ p[i]·v[i][j], in the order of i.
func writeAddRows(f *File, vec func(int) Vec) {
	fn := f.Func(widthName("addRows", vec(0)), widthName("addRows", vec(0))+" adds to dst n rows of v, at least one, stride bytes apart, "+
		"each times an element\nof p. Rows have blocks of 16 elements.",
		"dst, p, v *float32, n, stride, blocks int")
	dst, column, stride, blocks := fn.Arg("dst"), fn.Arg("v"), fn.Arg("stride"), fn.Arg("blocks")
	p, v, left := fn.GP("position in p"), fn.GP("position in v"), fn.GP("rows left")
	size := vec(0).bytes()
	parts := 64 / size
	columns := fn.Label("columns")
	fn.I("MOVQ", fn.FP("p"), p)
	fn.I("MOVQ", column, v)
	fn.I("MOVQ", fn.FP("n"), left)
	for i := range parts {
		fn.I("VMOVUPS", dst.At(size*i), vec(i))
	}
	row := fn.Label("row")
	fn.I("VBROADCASTSS", p.At(0), vec(4))
	for i := range parts {
		fn.I("VMULPS", v.At(size*i), vec(4), vec(2+i))
		fn.I("VADDPS", vec(2+i), vec(i), vec(i))
	}
	fn.I("ADDQ", 4, p)
	fn.I("ADDQ", stride, v)
	fn.I("SUBQ", 1, left)
	fn.Jump("JNZ", row)
	for i := range parts {
		fn.I("VMOVUPS", vec(i), dst.At(size*i))
	}
	fn.I("ADDQ", 64, dst)
	fn.I("ADDQ", 64, column)
	fn.I("SUBQ", 1, blocks)
	fn.Jump("JNZ", columns)
	fn.Return()
}
