package asm

import "bytes"

// Tensor writes the conversions between float32 and BF16 of package tensor.
func Tensor() []*File {
	f := NewFile("tensor", "bf16")
	widen512(f)
	narrow512(f)
	widen256(f)
	narrow256(f)
	return []*File{f, tensorNEON()}
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
	half, one, magnitude := Z(16), Z(17), Z(18)
	broadcast(fn, 0x7fff, t, half)
	broadcast(fn, 1, t, one)
	broadcast(fn, 0x7fffffff, t, magnitude)
	fn.elementLoop(n, t, func() {
		for i := range 4 {
			x, sum := Z(i), Z(4+i)
			fn.I("VMOVDQU32.Z", src.At(64*i), K(1+i), x)
			fn.I("VCMPPS", unordered, x, x, K(5))
			fn.roundToBF16(x, sum, half, one)
			fn.I("VPORD", magnitude, x, K(5), sum)
			fn.I("VPSRLD", 16, sum, sum)
			fn.I("VPMOVDW", sum, K(1+i), dst.At(32*i))
		}
		fn.I("ADDQ", 256, src)
		fn.I("ADDQ", 128, dst)
	})
	fn.Return()
}

// units prints body for each unit of n elements, and stores the number of elements done.
func (fn *Func) units(n Reg, unit int, body func()) {
	done := fn.GP("elements done")
	fn.I("XORL", done, done)
	end := fn.NewLabel("end")
	fn.I("SUBQ", unit, n)
	fn.Jump("JL", end)
	loop := fn.Label("loop")
	body()
	fn.I("ADDQ", unit, done)
	fn.I("SUBQ", unit, n)
	fn.Jump("JGE", loop)
	fn.Place(end)
	fn.I("MOVQ", done, fn.FP("done"))
	fn.Return()
}

// bf16Unit is how many elements AVX2 and NEON convert at a time.
const bf16Unit = 16

func widen256(f *File) {
	fn := f.Func("widen256", "widen256 sets dst[i] to the BF16 i of src, i < done: whole units of n elements.",
		"dst *float32, src *byte, n int) (done int")
	dst, src, n := fn.Arg("dst"), fn.Arg("src"), fn.Arg("n")
	fn.units(n, bf16Unit, func() {
		for i := range bf16Unit / 8 {
			fn.I("VPMOVZXWD", src.At(16*i), Y(i))
			fn.I("VPSLLD", 16, Y(i), Y(i))
			fn.I("VMOVDQU", Y(i), dst.At(32*i))
		}
		fn.I("ADDQ", 2*bf16Unit, src)
		fn.I("ADDQ", 4*bf16Unit, dst)
	})
}

func narrow256(f *File) {
	half := f.Table("half", bytes.Repeat([]byte{0xff, 0x7f, 0, 0}, 8))
	one := f.Table("one", bytes.Repeat([]byte{1, 0, 0, 0}, 8))
	magnitude := f.Table("magnitude", bytes.Repeat([]byte{0xff, 0xff, 0xff, 0x7f}, 8))
	fn := f.Func("narrow256", `narrow256 sets the BF16 i of dst to src[i], to nearest even with overflow to Inf,
i < done: whole units of n elements. A NaN keeps its sign and gets all other bits.`, "dst *byte, src *float32, n int) (done int")
	dst, src, n := fn.Arg("dst"), fn.Arg("src"), fn.Arg("n")
	fn.units(n, bf16Unit, func() {
		for i := range bf16Unit / 8 {
			x, sum, nan := Y(2), Y(i), Y(3)
			fn.I("VMOVUPS", src.At(32*i), x)
			fn.roundToBF16(x, sum, half, one)
			fn.I("VCMPPS", unordered, x, x, nan)
			fn.I("VPOR", magnitude, x, x)
			fn.I("VBLENDVPS", nan, x, sum, sum)
			fn.I("VPSRLD", 16, sum, sum)
		}
		fn.I("VPACKUSDW", Y(1), Y(0), Y(0))
		fn.I("VPERMQ", 0xd8, Y(0), Y(0))
		fn.I("VMOVDQU", Y(0), dst.At(0))
		fn.I("ADDQ", 4*bf16Unit, src)
		fn.I("ADDQ", 2*bf16Unit, dst)
	})
}
