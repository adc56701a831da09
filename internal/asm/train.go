package asm

// Train writes the kernels of package train.
func Train() []*File {
	f := NewFile("train", "adamw")
	for _, vec := range []func(int) Vec{Z, Y} {
		writeAdamW(f, vec)
	}
	return []*File{f, adamwNEON()}
}

// adamwNames are the fields of train.adamwFactors.
var adamwNames = []string{"scale", "beta1", "fresh1", "beta2", "fresh2", "bias", "epsilon", "keep"}

// writeAdamW writes a step of AdamW: see updateGeneric in package train, whose operations and order
// these are.
func writeAdamW(f *File, vec func(int) Vec) {
	name := widthName("update", vec(0))
	fn := f.Func(name, name+" updates weights w and moments m and v for gradients grad.\nn is the vectors of 16 or 8 elements, at least one.",
		"w, grad, m, v *float32, n int, c *adamwFactors")
	pw, pg, pm, pv, n := fn.Arg("w"), fn.Arg("grad"), fn.Arg("m"), fn.Arg("v"), fn.Arg("n")
	c := constants{fn.Arg("c"), adamwNames}
	k := map[string]Vec{}
	for i, name := range adamwNames {
		k[name] = vec(8 + i)
		fn.I("VBROADCASTSS", c.At(name), k[name])
	}
	w, g, m, v, t := vec(0), vec(1), vec(2), vec(3), vec(4)
	loop := fn.Label("loop")
	fn.I("VMULPS", pg.At(0), k["scale"], g)
	fn.I("VMULPS", pm.At(0), k["beta1"], m)
	fn.I("VMULPS", g, k["fresh1"], t)
	fn.I("VADDPS", t, m, m)
	fn.I("VMOVUPS", m, pm.At(0))
	fn.I("VMULPS", pv.At(0), k["beta2"], v)
	fn.I("VMULPS", g, g, g)
	fn.I("VMULPS", g, k["fresh2"], g)
	fn.I("VADDPS", g, v, v)
	fn.I("VMOVUPS", v, pv.At(0))
	fn.I("VSQRTPS", v, v)
	fn.I("VADDPS", k["epsilon"], v, v)
	fn.I("VMULPS", k["bias"], m, m)
	fn.I("VDIVPS", v, m, m)
	fn.I("VMULPS", pw.At(0), k["keep"], w)
	fn.I("VSUBPS", m, w, w)
	fn.I("VMOVUPS", w, pw.At(0))
	for _, p := range []Reg{pw, pg, pm, pv} {
		fn.I("ADDQ", vec(0).bytes(), p)
	}
	fn.I("SUBQ", 1, n)
	fn.Jump("JNZ", loop)
	fn.Return()
}

// adamwNEON is writeAdamW for arm64, in 23 instructions for 4 elements.
func adamwNEON() *File {
	f := ARM64.NewFile("train", "adamw")
	fn := f.Func("updateNEON", "updateNEON updates weights w and moments m and v for gradients grad.\nn is the vectors of 4 elements, "+
		"at least one.", "w, grad, m, v *float32, n int, c *adamwFactors")
	pw, pg, pm, pv, n, c := fn.Arg("w"), fn.Arg("grad"), fn.Arg("m"), fn.Arg("v"), fn.Arg("n"), fn.Arg("c")
	k := map[string]Neon{}
	for i, name := range adamwNames {
		k[name] = V(16 + i).S4()
	}
	for i := 0; i < len(adamwNames); i += 4 {
		fn.I("VLD4R.P", c.post(16), neonList(Neon.S4, neonRange(16+i, 4)))
	}
	w, g, m, v, t := V(0).S4(), V(1).S4(), V(2).S4(), V(3).S4(), V(4).S4()
	at := func(r Reg) string { return "(" + string(r) + ")" }
	loop := fn.Label("loop")
	fn.I("VLD1", at(pw), list(w))
	fn.I("VLD1.P", pg.post(16), list(g))
	fn.I("VLD1", at(pm), list(m))
	fn.I("VLD1", at(pv), list(v))
	fn.I("VFMUL", k["scale"], g, g)
	fn.I("VFMUL", k["beta1"], m, m)
	fn.I("VFMUL", k["fresh1"], g, t)
	fn.I("VFADD", t, m, m)
	fn.I("VST1.P", list(m), pm.post(16))
	fn.I("VFMUL", k["beta2"], v, v)
	fn.I("VFMUL", g, g, g)
	fn.I("VFMUL", k["fresh2"], g, g)
	fn.I("VFADD", g, v, v)
	fn.I("VST1.P", list(v), pv.post(16))
	fn.I("VFSQRT", v, v)
	fn.I("VFADD", k["epsilon"], v, v)
	fn.I("VFMUL", k["bias"], m, m)
	fn.I("VFDIV", v, m, m)
	fn.I("VFMUL", k["keep"], w, w)
	fn.I("VFSUB", m, w, w)
	fn.I("VST1.P", list(w), pw.post(16))
	fn.I("SUBS", 1, n)
	fn.Jump("BNE", loop)
	fn.Return()
	return f
}
