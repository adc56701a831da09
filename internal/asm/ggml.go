package asm

// GGML writes the kernel that pairs the 4-bit codes of ggml's structs.
func GGML() []*File {
	f := NewFile("gguf/ggml", "structs")
	pairMXFP4(f)
	return []*File{f}
}

// pairMXFP4 writes the kernel for structs of a scale and 16 bytes of codes.
func pairMXFP4(f *File) {
	const bytes, size = 17, 16
	fn := f.Func("pairMXFP4", "pairMXFP4 sets n structs to codes and scales, n > 0: interleaveMXFP4.", "dst, codes, scales *byte, n int")
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
