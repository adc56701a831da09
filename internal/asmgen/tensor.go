package asmgen

import "bytes"

// bf16Unit is how many elements AVX2 converts at a time.
const bf16Unit = 16

// Tensor writes the conversions between float32 and BF16 of package tensor.
func Tensor() []*File {
	f := NewFile("tensor", "bf16")
	widen512(f)
	narrow512(f)
	widen256(f)
	narrow256(f)
	return []*File{f}
}

func widen512(f *File) {
	fn := f.Func("widen512", "widen512 sets dst[i] to the BF16 i of src, i < n, n > 0.", "dst *float32, src *byte, n int")
	dst, src, n := fn.Arg("dst"), fn.Arg("src"), fn.Arg("n")
	fn.elementLoop(n, fn.GP("masks"), func() {
		for i := range 4 {
			fn.I("VPMOVZXWD.Z", src.At(32*i), K(1+i), Z(i))
			fn.I("VPSLLD", 16, Z(i), Z(i))
			fn.I("VMOVDQU32", Z(i), K(1+i), dst.At(64*i))
		}
		fn.I("ADDQ", 128, src)
		fn.I("ADDQ", 256, dst)
	})
	fn.Return()
}

func narrow512(f *File) {
	fn := f.Func("narrow512", `narrow512 sets the BF16 i of dst to src[i], to nearest even with overflow to Inf,
i < n, n > 0. A NaN keeps its sign and gets all other bits.`, "dst *byte, src *float32, n int")
	dst, src, n := fn.Arg("dst"), fn.Arg("src"), fn.Arg("n")
	t := fn.GP("masks and constants")
	broadcast(fn, 0x7fff, t, Z(16))
	broadcast(fn, 1, t, Z(17))
	fn.elementLoop(n, t, func() {
		for i := range 4 {
			x, u := Z(i), Z(4+i)
			fn.I("VMOVDQU32.Z", src.At(64*i), K(1+i), x)
			fn.I("VCMPPS", unordered, x, x, K(5))
			fn.I("VPSRLD", 16, x, u)
			fn.I("VPANDD", Z(17), u, Z(8))
			fn.I("VPADDD", Z(16), Z(8), Z(8))
			fn.I("VPADDD", Z(8), x, x)
			fn.I("VPSRLD", 16, x, x)
			fn.I("VPORD", Z(16), u, K(5), x)
			fn.I("VPMOVDW", x, K(1+i), dst.At(32*i))
		}
		fn.I("ADDQ", 256, src)
		fn.I("ADDQ", 128, dst)
	})
	fn.Return()
}

func widen256(f *File) {
	fn := f.Func("widen256", "widen256 sets dst[i] to the BF16 i of src, i < 16·n, n > 0.", "dst *float32, src *byte, n int")
	dst, src, n := fn.Arg("dst"), fn.Arg("src"), fn.Arg("n")
	loop := fn.Label("loop")
	for i := range bf16Unit / 8 {
		fn.I("VPMOVZXWD", src.At(16*i), Y(i))
		fn.I("VPSLLD", 16, Y(i), Y(i))
		fn.I("VMOVDQU", Y(i), dst.At(32*i))
	}
	fn.I("ADDQ", 2*bf16Unit, src)
	fn.I("ADDQ", 4*bf16Unit, dst)
	fn.I("SUBQ", 1, n)
	fn.Jump("JNZ", loop)
	fn.Return()
}

func narrow256(f *File) {
	half := f.Table("half", bytes.Repeat([]byte{0xff, 0x7f, 0, 0}, 8))
	one := f.Table("one", bytes.Repeat([]byte{1, 0, 0, 0}, 8))
	fn := f.Func("narrow256", `narrow256 sets the BF16 i of dst to src[i], to nearest even with overflow to Inf,
i < 16·n, n > 0. A NaN keeps its sign and gets all other bits.`, "dst *byte, src *float32, n int")
	dst, src, n := fn.Arg("dst"), fn.Arg("src"), fn.Arg("n")
	loop := fn.Label("loop")
	for i := range bf16Unit / 8 {
		x, u, t, nan := Y(i), Y(2), Y(3), Y(4)
		fn.I("VMOVUPS", src.At(32*i), x)
		fn.I("VCMPPS", unordered, x, x, nan)
		fn.I("VPSRLD", 16, x, u)
		fn.I("VPAND", one, u, t)
		fn.I("VPADDD", half, t, t)
		fn.I("VPADDD", t, x, x)
		fn.I("VPSRLD", 16, x, x)
		fn.I("VPOR", half, u, u)
		fn.I("VBLENDVPS", nan, u, x, x)
	}
	fn.I("VPACKUSDW", Y(1), Y(0), Y(0))
	fn.I("VPERMQ", 0xd8, Y(0), Y(0))
	fn.I("VMOVDQU", Y(0), dst.At(0))
	fn.I("ADDQ", 4*bf16Unit, src)
	fn.I("ADDQ", 2*bf16Unit, dst)
	fn.I("SUBQ", 1, n)
	fn.Jump("JNZ", loop)
	fn.Return()
}
