package asmgen

import "fmt"

// transposeDwords16: elements that stand in the panel as they do in the line.
func (w *gemmPack) transposeDwords16() {
	fn := w.f.Func("transposeDwords16", "transposeDwords16 copies 16 lines, stride bytes apart, to a panel: the first dword\nof every line, then the second ones, 4·n in all.", "dst, src unsafe.Pointer, stride, n int")
	dst, src, stride, n := fn.Arg("dst"), fn.Arg("src"), fn.Arg("stride"), fn.Arg("n")
	set := lines(fn, src, stride)
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

// A panel8 is what the packing of 8 lanes by AVX2 shares: lines 0…3 from one
// register, 4…7 from another.
type panel8 struct {
	fn             *Func
	src            [2]Reg
	stride, triple Reg
}

func newPanel8(fn *Func, src, stride Reg) *panel8 {
	p := &panel8{fn: fn, src: [2]Reg{src, fn.GP("source, four lines on")}, stride: stride, triple: fn.GP("3·stride")}
	fn.I("LEAQ", src.At(0).By(stride, 4), p.src[1])
	fn.I("LEAQ", stride.At(0).By(stride, 2), p.triple)
	return p
}

// line returns the memory of the current place in a line.
func (p *panel8) line(i int) Mem {
	m := p.src[i/4].At(0)
	switch i % 4 {
	case 1, 2:
		return m.By(p.stride, i%4)
	case 3:
		return m.By(p.triple, 1)
	}
	return m
}

// store transposes Y0…Y7, eight dwords of each line, to eight steps at dst, of so
// many bytes. It uses Y8…Y15.
func (p *panel8) store(dst Reg, step int) {
	p.turn(func(d int, v Vec) { p.fn.I("VMOVUPS", v, dst.At(step*d)) })
}

// turn transposes Y0…Y7, and hands each dword d of every line where it is, in one
// of Y8…Y15.
func (p *panel8) turn(each func(d int, v Vec)) {
	fn := p.fn
	for i := 0; i < 8; i += 2 { // pairs of lines: dwords 0 1 4 5 low, 2 3 6 7 high
		fn.I("VUNPCKLPS", Y(i+1), Y(i), Y(8+i))
		fn.I("VUNPCKHPS", Y(i+1), Y(i), Y(9+i))
	}
	for i := 0; i < 8; i += 4 { // four lines: Y(i+d) has dwords d and 4+d
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

// bytesToF32: a table of all codes, by gathering.
func (w *gemmPack) bytesToF32(lanes int) {
	name := fmt.Sprintf("packBytesF32x%d", lanes)
	fn := w.f.Func(name, fmt.Sprintf(`%s packs 8 lines of byte codes, stride bytes apart, as 8·n steps of a
float32 panel of %d lanes: the entries of a table of 256, each times the scale of its line.`, name, lanes),
		"dst, src unsafe.Pointer, stride int, scales unsafe.Pointer, n int, table unsafe.Pointer")
	dst, src, stride := fn.Arg("dst"), fn.Arg("src"), fn.Arg("stride")
	scales, n, table := fn.Arg("scales"), fn.Arg("n"), fn.Arg("table")
	p := newPanel8(fn, src, stride)
	loop := fn.Label("loop")
	for i := range 8 {
		fn.I("VPMOVZXBD", p.line(i), Y(8))
		fn.I("VPCMPEQD", Y(9), Y(9), Y(9))
		fn.I("VGATHERDPS", Y(9), table.At(0).By("Y8", 4), Y(i))
		fn.I("VBROADCASTSS", scales.At(4*i), Y(10))
		fn.I("VMULPS", Y(10), Y(i), Y(i))
	}
	p.store(dst, 4*lanes)
	fn.I("ADDQ", 32*lanes, dst)
	fn.I("ADDQ", 8, p.src[0])
	fn.I("ADDQ", 8, p.src[1])
	fn.I("SUBQ", 1, n)
	fn.Jump("JNZ", loop)
	fn.Return()
}

// floatsToF32: the magnitude of a code, at the place of a float16's exponent and
// mantissa, is its value but for a power of two, subnormals included, which take no
// longer than others there.
func (w *gemmPack) floatsToF32(lanes int) {
	name := fmt.Sprintf("packFloatsF32x%d", lanes)
	fn := w.f.Func(name, fmt.Sprintf(`%s packs 8 lines of byte codes, stride bytes apart, as 8·n steps of a
float32 panel of %d lanes: their values, each times the scale of its line. It reports
whether there was a code that is not finite, or an integer; the panel is not good then.`, name, lanes),
		"dst, src unsafe.Pointer, stride int, scales unsafe.Pointer, n int, c *floatCodes) (found uint64")
	dst, src, stride := fn.Arg("dst"), fn.Arg("src"), fn.Arg("stride")
	scales, n, c := fn.Arg("scales"), fn.Arg("n"), fn.Arg("c")
	p := newPanel8(fn, src, stride)
	found, t := fn.GP("found"), fn.GP("scratch")
	const magnitude, shift, signShift, sign, largest, factor = 0, 16, 32, 48, 64, 80
	fn.I("XORL", found, found)
	loop := fn.Label("loop")
	fn.I("VPXOR", X(11), X(11), X(11))
	for i := range 8 {
		fn.I("VPMOVZXBW", p.line(i), X(8))
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
	p.store(dst, 4*lanes)
	fn.I("ADDQ", 32*lanes, dst)
	fn.I("ADDQ", 8, p.src[0])
	fn.I("ADDQ", 8, p.src[1])
	fn.I("SUBQ", 1, n)
	fn.Jump("JNZ", loop)
	fn.I("MOVQ", found, fn.FP("found"))
	fn.Return()
}

// halvesToF32: BF16 is the upper half of a float32.
func (w *gemmPack) halvesToF32(lanes int) {
	name := fmt.Sprintf("packHalvesF32x%d", lanes)
	fn := w.f.Func(name, fmt.Sprintf(`%s packs 8 lines of BF16, stride bytes apart, as 8·n steps of a float32
panel of %d lanes.`, name, lanes), "dst, src unsafe.Pointer, stride, n int")
	dst, src, stride, n := fn.Arg("dst"), fn.Arg("src"), fn.Arg("stride"), fn.Arg("n")
	p := newPanel8(fn, src, stride)
	loop := fn.Label("loop")
	for i := range 8 {
		fn.I("VPMOVZXWD", p.line(i), Y(i))
		fn.I("VPSLLD", 16, Y(i), Y(i))
	}
	p.store(dst, 4*lanes)
	fn.I("ADDQ", 32*lanes, dst)
	fn.I("ADDQ", 16, p.src[0])
	fn.I("ADDQ", 16, p.src[1])
	fn.I("SUBQ", 1, n)
	fn.Jump("JNZ", loop)
	fn.Return()
}

// transposeDwords8 is transposeDwords16 for 8 lanes, by AVX2.
func (w *gemmPack) transposeDwords8() {
	fn := w.f.Func("transposeDwords8", "transposeDwords8 copies 8 lines, stride bytes apart, to a panel: the first dword\nof every line, then the second ones, 8·n in all.", "dst, src unsafe.Pointer, stride, n int")
	dst, src, stride, n := fn.Arg("dst"), fn.Arg("src"), fn.Arg("stride"), fn.Arg("n")
	p := newPanel8(fn, src, stride)
	loop := fn.Label("loop")
	for i := range 8 {
		fn.I("VMOVUPS", p.line(i), Y(i))
	}
	p.store(dst, 32)
	fn.I("ADDQ", 256, dst)
	fn.I("ADDQ", 32, p.src[0])
	fn.I("ADDQ", 32, p.src[1])
	fn.I("SUBQ", 1, n)
	fn.Jump("JNZ", loop)
	fn.Return()
}
