package asm

// tensorNEON writes the conversions between float32 and BF16 for arm64. Instructions of a loop for 16 elements: widen 9,
// narrow 33.
func tensorNEON() *File {
	f := ARM64.NewFile("tensor", "bf16")
	neonWiden(f)
	neonNarrow(f)
	return f
}

// neonUnits prints body for each bf16Unit of n elements, and stores the number of elements done.
func neonUnits(fn *Func, n Reg, body func()) {
	done := fn.GP("elements done")
	fn.I("MOVD", "ZR", done)
	end := fn.NewLabel("end")
	fn.I("SUBS", bf16Unit, n)
	fn.Jump("BLT", end)
	loop := fn.Label("loop")
	body()
	fn.I("ADD", bf16Unit, done)
	fn.I("SUBS", bf16Unit, n)
	fn.Jump("BGE", loop)
	fn.Place(end)
	fn.I("MOVD", done, fn.FP("done"))
	fn.Return()
}

func neonWiden(f *File) {
	fn := f.Func("widenNEON", "widenNEON sets dst[i] to the BF16 i of src, i < done: whole units of n elements.",
		"dst *float32, src *byte, n int) (done int")
	dst, src, n := fn.Arg("dst"), fn.Arg("src"), fn.Arg("n")
	zero, wide := V(6), neonRange(2, 4)
	neonZero(fn, zero)
	neonUnits(fn, n, func() {
		fn.I("VLD1.P", src.post(2*bf16Unit), list(V(0).H8(), V(1).H8()))
		for i, v := range wide {
			fn.I([]string{"VZIP1", "VZIP2"}[i%2], V(i/2).H8(), zero.H8(), v.H8())
		}
		fn.I("VST1.P", list(wide[0].S4(), wide[1].S4(), wide[2].S4(), wide[3].S4()), dst.post(4*bf16Unit))
	})
}

func neonNarrow(f *File) {
	fn := f.Func("narrowNEON", `narrowNEON sets the BF16 i of dst to src[i], to nearest even with overflow to Inf,
i < done: whole units of n elements. A NaN keeps its sign and gets all other bits.`, "dst *byte, src *float32, n int) (done int")
	dst, src, n, tmp := fn.Arg("dst"), fn.Arg("src"), fn.Arg("n"), fn.GP("scratch")
	half, one, magnitude := V(16), V(17), V(18)
	for i, value := range []int{0x7fff, 1, 0x7fffffff} {
		neonConstant(fn, []Neon{half, one, magnitude}[i], value, tmp)
	}
	neonUnits(fn, n, func() {
		fn.I("VLD1.P", src.post(4*bf16Unit), list(V(0).S4(), V(1).S4(), V(2).S4(), V(3).S4()))
		for i := range 4 {
			x, sum, number := V(i), V(4+i), V(8)
			fn.I("VUSHR", 16, x.S4(), sum.S4())
			fn.I("VAND", one.B16(), sum.B16(), sum.B16())
			fn.I("VADD", half.S4(), sum.S4(), sum.S4())
			fn.I("VADD", x.S4(), sum.S4(), sum.S4())
			fn.I("VFCMEQ", x.S4(), x.S4(), number.S4())
			fn.I("VORR", magnitude.B16(), x.B16(), x.B16())
			fn.I("VBIF", number.B16(), x.B16(), sum.B16())
		}
		for i := range 2 {
			fn.I("VUZP2", V(5+2*i).H8(), V(4+2*i).H8(), V(i).H8())
		}
		fn.I("VST1.P", list(V(0).H8(), V(1).H8()), dst.post(2*bf16Unit))
	})
}
