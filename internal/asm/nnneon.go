package asm

// nnNEON writes the kernels of package nn for arm64, with the bits of their Go twins: products and sums are
// rounded separately. Instructions of a loop: round 12 for 4 elements, exp 44, sigmoid 46, largest 5; scores 13 for 16
// products, addRows 13.
func nnNEON() []*File {
	f := ARM64.NewFile("nn", "rows")
	neonRound(f)
	neonExp(f, false)
	neonExp(f, true)
	neonLargest(f)
	neonScores(f)
	neonAddRows(f)
	return []*File{f}
}

// neonRowLoop writes a loop over n vectors of x, whose elements are in V0 and whose results are in a register.
func neonRowLoop(fn *Func, x, n Reg, result Neon, body func()) {
	loop := fn.Label("loop")
	fn.I("VLD1", "("+string(x)+")", list(V(0).S4()))
	body()
	fn.I("VST1.P", list(result.S4()), x.post(16))
	fn.I("SUBS", 1, n)
	fn.Jump("BNE", loop)
	fn.Return()
}

func neonRound(f *File) {
	fn := f.Func("roundNEON", "roundNEON rounds n vectors of 4 float32 to BF16, in place.", "x *float32, n int")
	x, n, tmp := fn.Arg("x"), fn.Arg("n"), fn.GP("scratch")
	v, sum, nan, number := V(0), V(1), V(2), V(3)
	upper, half, one, quiet := V(4), V(5), V(6), V(7)
	for i, value := range []int{0xffff0000, 0x7fff, 1, 1 << 22} {
		neonConstant(fn, []Neon{upper, half, one, quiet}[i], value, tmp)
	}
	neonRowLoop(fn, x, n, nan, func() {
		fn.I("VUSHR", 16, v.S4(), sum.S4())
		fn.I("VAND", one.B16(), sum.B16(), sum.B16())
		fn.I("VADD", half.S4(), sum.S4(), sum.S4())
		fn.I("VADD", v.S4(), sum.S4(), sum.S4())
		fn.I("VORR", quiet.B16(), v.B16(), nan.B16())
		fn.I("VFCMEQ", v.S4(), v.S4(), number.S4())
		fn.I("VBIT", number.B16(), sum.B16(), nan.B16())
		fn.I("VAND", upper.B16(), nan.B16(), nan.B16())
	})
}

// neonExp writes e^(x-top), or the logistic function 1/(1+e^-x), by the steps of exp in package nn.
func neonExp(f *File, sigmoid bool) {
	var fn *Func
	if sigmoid {
		fn = f.Func("sigmoidNEON", "sigmoidNEON sets n vectors of 4 elements of x to 1/(1+e^-x), in place.", "x *float32, n int, c *expConstants")
	} else {
		fn = f.Func("expNEON", "expNEON sets n vectors of 4 elements of x to e^(x-top), in place.",
			"x *float32, n int, top float32, c *expConstants")
	}
	row, count, c, tmp := fn.Arg("x"), fn.Arg("n"), fn.Arg("c"), fn.GP("scratch")
	x, n, r, p, k, t, top, zero := V(0), V(1), V(2), V(3), V(4), V(5), V(6), V(7)
	neonZero(fn, zero)
	constant := map[string]Neon{}
	for i, name := range expNames {
		constant[name] = V(8 + i).S4()
		neonLoad(fn, V(8+i), c, 4*i, tmp)
	}
	fn.Note("V8…V23", "constants of exp")
	if !sigmoid {
		fn.I("FMOVS", fn.FP("top"), "F6")
		fn.I("VDUP", top.S4().lane(0), top.S4())
	}
	op := func(mnemonic string, a, b, to Neon) { fn.I(mnemonic, a.S4(), b.S4(), to.S4()) }
	named := func(mnemonic, name string, b, to Neon) { fn.I(mnemonic, constant[name], b.S4(), to.S4()) }
	neonRowLoop(fn, row, count, p, func() {
		if sigmoid {
			fn.I("VEOR", V(8+len(expNames)-2).B16(), x.B16(), x.B16()) // sign
		} else {
			op("VFSUB", top, x, x)
		}
		named("VFMUL", "log2e", x, n)
		named("VFADD", "round", n, n)
		named("VFSUB", "round", n, n)
		named("VFMUL", "high", n, t)
		op("VFSUB", t, x, r)
		named("VFMUL", "low", n, t)
		op("VFSUB", t, r, r)
		named("VFMUL", "c7", r, p)
		for _, name := range []string{"c6", "c5", "c4", "c3"} {
			named("VFADD", name, p, p)
			op("VFMUL", r, p, p)
		}
		named("VFADD", "c2", p, p)
		op("VFMUL", r, r, t)
		op("VFMUL", t, p, p)
		op("VFADD", r, p, p)
		named("VFADD", "one", p, p)
		fn.I("VFCVTZS", n.S4(), n.S4())
		fn.I("VSSHR", 1, n.S4(), k.S4())
		op("VSUB", k, n, n)
		for _, exponent := range []Neon{k, n} {
			named("VADD", "bias", exponent, exponent)
			fn.I("VSHL", 23, exponent.S4(), exponent.S4())
			op("VFMUL", exponent, p, p)
		}
		named("VFCMGT", "most", x, t)
		fn.I("VBIT", t.B16(), V(8+len(expNames)-3).B16(), p.B16()) // infinity
		fn.I("VFCMGT", x.S4(), constant["least"], t.S4())
		fn.I("VBIT", t.B16(), zero.B16(), p.B16())
		op("VFCMEQ", x, x, t)
		fn.I("VBIF", t.B16(), x.B16(), p.B16())
		if sigmoid {
			named("VFADD", "one", p, p)
			fn.I("VFDIV", p.S4(), constant["one"], p.S4())
		}
	})
}

func neonLargest(f *File) {
	fn := f.Func("largestNEON", "largestNEON returns the largest element of n vectors of 4 that is not NaN, or -Inf.",
		"x *float32, n int) (top float32")
	x, n, tmp := fn.Arg("x"), fn.Arg("n"), fn.GP("scratch")
	v, top, greater := V(0), V(1), V(2)
	neonConstant(fn, top, 0xff800000, tmp)
	raise := func() {
		fn.I("VFCMGT", top.S4(), v.S4(), greater.S4())
		fn.I("VBIT", greater.B16(), v.B16(), top.B16())
	}
	loop := fn.Label("loop")
	fn.I("VLD1.P", x.post(16), list(v.S4()))
	raise()
	fn.I("SUBS", 1, n)
	fn.Jump("BNE", loop)
	for _, bytes := range []int{8, 4} {
		fn.I("VEXT", bytes, top.B16(), top.B16(), v.B16())
		raise()
	}
	fn.I("FMOVS", "F1", fn.FP("top"))
	fn.Return()
}

// neonScores is writeScores: lane l of 16 sums the products of j ≡ l.
func neonScores(f *File) {
	fn := f.Func("scoresNEON", "scoresNEON sets dst to the dot products of q with n rows of k, at least one, stride bytes\napart. Rows have "+
		"blocks of 16 elements.", "dst, q, k *float32, n, stride, blocks int")
	dst, from, row, n := fn.Arg("dst"), fn.Arg("q"), fn.Arg("k"), fn.Arg("n")
	stride, blocks := fn.Arg("stride"), fn.Arg("blocks")
	q, k, left := fn.GP("position in q"), fn.GP("position in k"), fn.GP("blocks left")
	var sums, qs, ks []Neon
	for i := range 4 {
		sums, qs, ks = append(sums, V(i).S4()), append(qs, V(4+i).S4()), append(ks, V(16+i).S4())
	}
	rows := fn.Label("row")
	fn.I("MOVD", from, q)
	fn.I("MOVD", row, k)
	fn.I("MOVD", blocks, left)
	for i := range sums {
		neonZero(fn, sums[i])
	}
	block := fn.Label("block")
	fn.I("VLD1.P", q.post(64), list(qs...))
	fn.I("VLD1.P", k.post(64), list(ks...))
	for i := range sums {
		fn.I("VFMUL", ks[i], qs[i], qs[i])
		fn.I("VFADD", qs[i], sums[i], sums[i])
	}
	fn.I("SUBS", 1, left)
	fn.Jump("BNE", block)
	for _, pair := range [][2]int{{2, 0}, {3, 1}, {1, 0}} {
		fn.I("VFADD", sums[pair[0]], sums[pair[1]], sums[pair[1]])
	}
	fn.I("VEXT", 8, V(0).B16(), V(0).B16(), V(1).B16())
	fn.I("VFADD", V(1).S4(), V(0).S4(), V(0).S4())
	fn.I("VFADDP", V(0).S4(), V(0).S4(), V(0).S4())
	fn.I("FMOVS.P", "F0", dst.post(4))
	fn.I("ADD", stride, row)
	fn.I("SUBS", 1, n)
	fn.Jump("BNE", rows)
	fn.Return()
}

// neonAddRows is writeAddRows: it adds in the order of the rows.
func neonAddRows(f *File) {
	fn := f.Func("addRowsNEON", "addRowsNEON adds to dst n rows of v, at least one, stride bytes apart, each times an element\nof p. "+
		"Rows have blocks of 16 elements.", "dst, p, v *float32, n, stride, blocks int")
	dst, from, column, n := fn.Arg("dst"), fn.Arg("p"), fn.Arg("v"), fn.Arg("n")
	stride, blocks := fn.Arg("stride"), fn.Arg("blocks")
	p, v, left := fn.GP("position in p"), fn.GP("position in v"), fn.GP("rows left")
	var sums, vs []Neon
	for i := range 4 {
		sums, vs = append(sums, V(i).S4()), append(vs, V(4+i).S4())
	}
	columns := fn.Label("columns")
	fn.I("MOVD", from, p)
	fn.I("MOVD", column, v)
	fn.I("MOVD", n, left)
	fn.I("VLD1", "("+string(dst)+")", list(sums...))
	row := fn.Label("row")
	fn.I("VLD1R.P", p.post(4), list(V(16).S4()))
	fn.I("VLD1", "("+string(v)+")", list(vs...))
	for i := range sums {
		fn.I("VFMUL", V(16).S4(), vs[i], vs[i])
		fn.I("VFADD", vs[i], sums[i], sums[i])
	}
	fn.I("ADD", stride, v)
	fn.I("SUBS", 1, left)
	fn.Jump("BNE", row)
	fn.I("VST1.P", list(sums...), dst.post(64))
	fn.I("ADD", 64, column)
	fn.I("SUBS", 1, blocks)
	fn.Jump("BNE", columns)
	fn.Return()
}
