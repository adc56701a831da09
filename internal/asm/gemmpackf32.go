package asm

// transposeDwords16 copies elements that the panel stores unchanged.
func (w *gemmPack) transposeDwords16() {
	fn := w.f.Func("transposeDwords16", "transposeDwords16 copies 16 rows, stride bytes apart, to a panel: the first dword\nof every row, "+
		"then the second ones, 4·n in all.", "dst, src unsafe.Pointer, stride, n int")
	dst, src, stride, n := fn.Arg("dst"), fn.Arg("src"), fn.Arg("stride"), fn.Arg("n")
	set := sixteenRows(fn, src, stride)
	loop := fn.Label("loop")
	set.load(fn, 0)
	for d := range 4 {
		fn.I("VMOVDQU64", Z(d), dst.At(64*d))
	}
	fn.I("ADDQ", 256, dst)
	set.advance(fn, 16)
	fn.I("SUBQ", 1, n)
	fn.Jump("JNZ", loop)
	fn.Return()
}

// A panel8 addresses 8 rows from two registers, and transposes them.
type panel8 struct {
	fn             *Func
	src            [2]Reg // rows 0…3, rows 4…7
	stride, triple Reg
}

func newPanel8(fn *Func, src, stride Reg) *panel8 {
	p := &panel8{fn: fn, src: [2]Reg{src, fn.GP("source, four rows on")}, stride: stride, triple: fn.GP("3·stride")}
	fn.I("LEAQ", src.At(0).By(stride, 4), p.src[1])
	fn.I("LEAQ", stride.At(0).By(stride, 2), p.triple)
	return p
}

// row returns the memory of the current position in row i.
func (p *panel8) row(i int) Mem { return rowAt(p.src[i/4], p.stride, p.triple, i%4, 0) }

// A pack8 is the part that packing functions of 8 rows by AVX2 share. Panels have 8 or 16
// lanes, so the distance of their steps is a parameter.
type pack8 struct {
	*panel8
	dst         [2]Reg // steps 0…3, steps 4…7
	step, step3 Reg
}

func newPack8(fn *Func, dst, src, stride Reg) *pack8 {
	p := &pack8{newPanel8(fn, src, stride), [2]Reg{dst, fn.GP("destination, four steps on")}, fn.Arg("step"), fn.GP("3·step")}
	fn.I("LEAQ", dst.At(0).By(p.step, 4), p.dst[1])
	fn.I("LEAQ", p.step.At(0).By(p.step, 2), p.step3)
	return p
}

// advance moves the rows by n bytes and the panel by 8 steps.
func (p *pack8) advance(n int) {
	for i := range p.src {
		p.fn.I("ADDQ", n, p.src[i])
		p.fn.I("LEAQ", p.dst[i].At(0).By(p.step, 8), p.dst[i])
	}
}

// store transposes Y0…Y7, eight dwords of each row, to eight steps. It uses Y8…Y15.
func (p *pack8) store() {
	p.transpose(func(d int, v Vec) { p.fn.I("VMOVUPS", v, rowAt(p.dst[d/4], p.step, p.step3, d%4, 0)) })
}

// transpose transposes Y0…Y7. It calls each with dword d of every row, in one of Y8…Y15.
func (p *panel8) transpose(each func(d int, v Vec)) {
	fn := p.fn
	for i := 0; i < 8; i += 2 { // pairs of rows: dwords 0 1 4 5 low, 2 3 6 7 high
		fn.I("VUNPCKLPS", Y(i+1), Y(i), Y(8+i))
		fn.I("VUNPCKHPS", Y(i+1), Y(i), Y(9+i))
	}
	for i := 0; i < 8; i += 4 { // four rows: Y(i+d) has dwords d and 4+d
		fn.I("VUNPCKLPD", Y(10+i), Y(8+i), Y(i))
		fn.I("VUNPCKHPD", Y(10+i), Y(8+i), Y(i+1))
		fn.I("VUNPCKLPD", Y(11+i), Y(9+i), Y(i+2))
		fn.I("VUNPCKHPD", Y(11+i), Y(9+i), Y(i+3))
	}
	for d := range 4 {
		fn.I("VPERM2F128", 0x20, Y(4+d), Y(d), Y(8+d))
		fn.I("VPERM2F128", 0x31, Y(4+d), Y(d), Y(12+d))
		each(d, Y(8+d))
		each(4+d, Y(12+d))
	}
}

// bytesToF32 looks up all codes in a table, with gathers.
func (w *gemmPack) bytesToF32() {
	fn := w.f.Func("packBytesF32", `packBytesF32 packs 8 rows of byte codes, stride bytes apart, as 8·n steps of a
float32 panel, step bytes apart: the entries of a table of 256, times the scale of the row.`,
		"dst, src unsafe.Pointer, stride int, scales unsafe.Pointer, step, n int, table unsafe.Pointer")
	dst, src, stride := fn.Arg("dst"), fn.Arg("src"), fn.Arg("stride")
	scales, n, table := fn.Arg("scales"), fn.Arg("n"), fn.Arg("table")
	p := newPack8(fn, dst, src, stride)
	loop := fn.Label("loop")
	for i := range 8 {
		fn.I("VPMOVZXBD", p.row(i), Y(8))
		fn.I("VPCMPEQD", Y(9), Y(9), Y(9))
		fn.I("VGATHERDPS", Y(9), table.At(0).By("Y8", 4), Y(i))
		fn.I("VBROADCASTSS", scales.At(4*i), Y(10))
		fn.I("VMULPS", Y(10), Y(i), Y(i))
	}
	p.store()
	p.advance(8)
	fn.I("SUBQ", 1, n)
	fn.Jump("JNZ", loop)
	fn.Return()
}

// floatsToF32 moves the magnitude of a code to the exponent and mantissa of a float16. The
// result is the value of the code up to a power of two, subnormals included.
func (w *gemmPack) floatsToF32() {
	fn := w.f.Func("packFloatsF32", `packFloatsF32 packs 8 rows of byte codes, stride bytes apart, as 8·n steps of a
float32 panel, step bytes apart: their values, times the scale of the row. It reports codes
that are not finite; the panel is invalid then.`,
		"dst, src unsafe.Pointer, stride int, scales unsafe.Pointer, step, n int, c *floatCodes) (found uint64")
	dst, src, stride := fn.Arg("dst"), fn.Arg("src"), fn.Arg("stride")
	scales, n, c := fn.Arg("scales"), fn.Arg("n"), fn.Arg("c")
	p := newPack8(fn, dst, src, stride)
	found, t := fn.GP("found"), fn.GP("scratch")
	const magnitude, shift, signShift, sign, largest, factor = 0, 16, 32, 48, 64, 80
	fn.I("XORL", found, found)
	loop := fn.Label("loop")
	fn.I("VPXOR", X(11), X(11), X(11))
	for i := range 8 {
		fn.I("VPMOVZXBW", p.row(i), X(8))
		fn.I("VPAND", c.At(magnitude), X(8), X(9))
		fn.I("VPCMPGTW", c.At(largest), X(9), X(10))
		fn.I("VPOR", X(10), X(11), X(11))
		fn.I("VPMULLW", c.At(shift), X(9), X(9))
		fn.I("VPMULLW", c.At(signShift), X(8), X(8))
		fn.I("VPAND", c.At(sign), X(8), X(8))
		fn.I("VPOR", X(8), X(9), X(9))
		fn.I("VCVTPH2PS", X(9), Y(9))
		fn.I("VMULPS", c.At(factor), Y(9), Y(9))
		fn.I("VBROADCASTSS", scales.At(4*i), Y(10))
		fn.I("VMULPS", Y(10), Y(9), Y(i))
	}
	fn.I("VPMOVMSKB", X(11), t)
	fn.I("ORQ", t, found)
	p.store()
	p.advance(8)
	fn.I("SUBQ", 1, n)
	fn.Jump("JNZ", loop)
	fn.I("MOVQ", found, fn.FP("found"))
	fn.Return()
}

// halvesToF32 shifts BF16 to the upper half of a float32.
func (w *gemmPack) halvesToF32() {
	fn := w.f.Func("packHalvesF32", `packHalvesF32 packs 8 rows of BF16, stride bytes apart, as 8·n steps of a float32
panel, step bytes apart.`, "dst, src unsafe.Pointer, stride, step, n int")
	dst, src, stride, n := fn.Arg("dst"), fn.Arg("src"), fn.Arg("stride"), fn.Arg("n")
	p := newPack8(fn, dst, src, stride)
	loop := fn.Label("loop")
	for i := range 8 {
		fn.I("VPMOVZXWD", p.row(i), Y(i))
		fn.I("VPSLLD", 16, Y(i), Y(i))
	}
	p.store()
	p.advance(16)
	fn.I("SUBQ", 1, n)
	fn.Jump("JNZ", loop)
	fn.Return()
}

// transposeDwords8 is transposeDwords16 for 8 rows, with AVX2.
func (w *gemmPack) transposeDwords8() {
	fn := w.f.Func("transposeDwords8", "transposeDwords8 copies 8 rows, stride bytes apart, to a panel: the first dword of\nevery row, "+
		"then the second ones, 8·n in all, step bytes apart.", "dst, src unsafe.Pointer, stride, step, n int")
	dst, src, stride, n := fn.Arg("dst"), fn.Arg("src"), fn.Arg("stride"), fn.Arg("n")
	p := newPack8(fn, dst, src, stride)
	loop := fn.Label("loop")
	for i := range 8 {
		fn.I("VMOVUPS", p.row(i), Y(i))
	}
	p.store()
	p.advance(32)
	fn.I("SUBQ", 1, n)
	fn.Jump("JNZ", loop)
	fn.Return()
}
