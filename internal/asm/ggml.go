package asm

// GGML writes the kernel that pairs the 4-bit codes of ggml's structs.
func GGML() []*File {
	f, neon := NewFile("gguf/ggml", "structs"), ARM64.NewFile("gguf/ggml", "structs")
	pairMXFP4(f)
	neonPairMXFP4(neon)
	return []*File{f, neon}
}

const (
	pairDoc    = "pairMXFP4 sets n structs to codes and scales, n > 0: interleaveMXFP4."
	pairParams = "dst, codes, scales *byte, n int"
)

// pairMXFP4 writes the kernel for structs of a scale and 16 bytes of codes.
func pairMXFP4(f *File) {
	const bytes, size = 17, 16
	fn := f.Func("pairMXFP4", pairDoc, pairParams)
	dst, codes, scales, n := fn.Arg("dst"), fn.Arg("codes"), fn.Arg("scales"), fn.Arg("n")
	t := fn.GP("scratch")
	x, second, even, odd, low, high := X(0), X(1), X(2), X(3), X(4), X(5)
	broadcast(fn, 0x0f0f0f0f, t, low)
	fn.I("VPSLLW", 4, low, high)
	loop := fn.Label("loop")
	fn.I("MOVB", scales.At(0), t)
	fn.I("MOVB", t, dst.At(0))
	fn.I("VMOVDQU", codes.At(0), x)
	fn.I("VPSRLDQ", 8, x, second) // the half of the codes that becomes high nibbles
	fn.I("VPSLLW", 4, second, odd)
	fn.I("VPAND", odd, high, odd)
	fn.I("VPAND", x, low, even)
	fn.I("VPOR", odd, even, even)
	fn.I("VPSRLW", 4, x, x)
	fn.I("VPAND", x, low, x)
	fn.I("VPAND", second, high, odd)
	fn.I("VPOR", x, odd, odd)
	fn.I("VPUNPCKLBW", odd, even, even)
	fn.I("VMOVDQU", even, dst.At(1))
	fn.I("ADDQ", bytes, dst)
	fn.I("ADDQ", size, codes)
	fn.I("ADDQ", 1, scales)
	fn.I("SUBQ", 1, n)
	fn.Jump("JNZ", loop)
	fn.Return()
}

// neonPairMXFP4 is pairMXFP4 for arm64: 10 instructions for a struct.
func neonPairMXFP4(f *File) {
	fn := f.Func("pairMXFP4", pairDoc, pairParams)
	dst, codes, scales, n := fn.Arg("dst"), fn.Arg("codes"), fn.Arg("scales"), fn.Arg("n")
	t := fn.GP("scale")
	even, second, odd := V(0), V(1), V(2) // the first half of the codes, and that which becomes high nibbles
	loop := fn.Label("loop")
	fn.I("MOVBU.P", scales.post(1), t)
	fn.I("VLD1.P", codes.post(16), list(even.B8(), second.B8()))
	fn.I("VMOV", second.B8(), odd.B8())
	fn.I("VSRI", 4, even.B8(), odd.B8())
	fn.I("VSLI", 4, second.B8(), even.B8())
	fn.I("VZIP1", odd.B16(), even.B16(), even.B16())
	fn.I("MOVB.P", t, dst.post(1))
	fn.I("VST1.P", list(even.B16()), dst.post(16))
	fn.I("SUBS", 1, n)
	fn.Jump("BNE", loop)
	fn.Return()
}
