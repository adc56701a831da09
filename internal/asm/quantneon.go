package asm

// QuantNEON writes the kernels of package quant for arm64. They take any number of elements:
// 16 at a time, then one at a time in lane 0.
func QuantNEON() []*File {
	f := ARM64.NewFile("quant", "neon")
	neonAmaxes(f, "amaxesNEON", "float32", 4)
	neonAmaxes(f, "amaxesBF16NEON", "BF16", 2)
	q := neonRoutines(f)
	q.encode()
	q.scales()
	q.fused()
	q.rows()
	q.maxima()
	q.columns()
	q.join()
	q.joinRandom()
	q.philox()
	q.hadamard()
	q.search()
	q.errorSums()
	q.transpose("transposeNEON", 4)
	q.transpose("transposeCodesNEON", 1)
	q.transpose("transposeWordsNEON", 2)
	q.transposeFour()
	neonDecodeBytes(f)
	neonDecodeNibbles(f)
	neonDecodeIntegers(f)
	neonDecodeSixes(f)
	return []*File{f}
}

// A neonBlocks is a loop over blocks of extent elements, the last of which may be partial.
type neonBlocks struct {
	fn              *Func
	n, extent, left Reg
}

// each calls begin at the start of each block, then sixteen and one for its elements, then end.
func (l neonBlocks) each(begin, sixteen, one, end func()) {
	fn := l.fn
	block := fn.Label("block")
	begin()
	fn.I("CMP", l.n, l.extent)
	fn.I("CSEL", "LT", l.extent, l.n, l.left)
	fn.I("SUB", l.left, l.n)
	rest, single, next := fn.NewLabel("rest"), fn.NewLabel("single"), fn.NewLabel("next")
	fn.I("SUBS", 16, l.left)
	fn.Jump("BLT", rest)
	loop := fn.Label("sixteen")
	sixteen()
	fn.I("SUBS", 16, l.left)
	fn.Jump("BGE", loop)
	fn.Place(rest)
	fn.I("ADDS", 16, l.left)
	fn.Jump("BEQ", next)
	fn.Place(single)
	one()
	fn.I("SUBS", 1, l.left)
	fn.Jump("BGT", single)
	fn.Place(next)
	end()
	fn.I("CBNZ", l.n, string(block))
}

// neonConstant fills the dwords of a register.
func neonConstant(fn *Func, v Neon, value int, tmp Reg) {
	fn.I("MOVD", value, tmp)
	fn.I("VDUP", tmp, v.S4())
}

// neonLoad fills the dwords of a register with one at an offset from c.
func neonLoad(fn *Func, v Neon, c Reg, offset int, tmp Reg) {
	fn.I("MOVWU", c.At(offset), tmp)
	fn.I("VDUP", tmp, v.S4())
}

// neonAmaxes writes the kernel that raises amaxes to the magnitudes of blocks.
func neonAmaxes(f *File, name, source string, size int) {
	fn := f.Func(name, name+` raises amaxes[i/extent] to the bits, as float32, of the magnitude of element
i of src, i < n, of `+source+`.`, "amaxes *uint32, src *byte, n, extent int")
	amaxes, src := fn.Arg("amaxes"), fn.Arg("src")
	l := neonBlocks{fn, fn.Arg("n"), fn.Arg("extent"), fn.GP("elements left of the block")}
	tmp, old := fn.GP("scratch"), fn.GP("amax before")
	lanes := Neon.S4
	if size == 2 {
		lanes = Neon.H8
	}
	amax, abs := lanes(V(4)), V(5)
	fn.Note("V4", "maximum of the magnitudes")
	if size == 2 {
		neonConstant(fn, abs, 0x7fff7fff, tmp)
	} else {
		neonConstant(fn, abs, 0x7fffffff, tmp)
	}
	raise := func(v Neon) {
		fn.I("VAND", abs.B16(), v.B16(), v.B16())
		fn.I("VUMAX", lanes(v), amax, amax)
	}
	l.each(func() {
		fn.I("VEOR", amax.B16(), amax.B16(), amax.B16())
	}, func() {
		vectors := []Neon{V(0), V(1), V(2), V(3)}[:size]
		var loaded []Neon
		for _, v := range vectors {
			loaded = append(loaded, lanes(v))
		}
		fn.I("VLD1.P", src.post(16*size), list(loaded...))
		for _, v := range vectors {
			raise(v)
		}
	}, func() {
		if size == 2 {
			fn.I("MOVHU.P", src.post(2), tmp)
			fn.I("FMOVS", tmp, "F0")
		} else {
			fn.I("FMOVS.P", src.post(4), "F0")
		}
		raise(V(0))
	}, func() {
		fn.I("VUMAXV", amax, amax)
		fn.I("VMOV", "V4.S[0]", tmp)
		if size == 2 {
			fn.I("LSL", 16, tmp)
		}
		fn.I("MOVWU", amaxes.At(0), old)
		fn.I("CMP", old, tmp)
		fn.I("CSEL", "HI", tmp, old, tmp)
		fn.I("MOVW.P", tmp, amaxes.post(4))
	})
	fn.Return()
}

// encode writes the kernel for codes of one byte.
func (q neonQuant) encode() {
	fn := q.Func("encodeNEON", `encodeNEON sets codes[i] to the code of src[i] times factors[i/extent], or divided by it, i < n. Codes of
NaN and Inf are undefined.`, "codes *byte, src *float32, n int, factors *float32, extent, divide int, c *encodeConstants")
	src, codes, factors, divide, c := fn.Arg("src"), fn.Arg("codes"), fn.Arg("factors"), fn.Arg("divide"), fn.Arg("c")
	l := neonBlocks{fn, fn.Arg("n"), fn.Arg("extent"), fn.GP("elements left of the block")}
	tmp, factor := fn.GP("scratch"), neonRounding[0]
	neonRoundConstants(fn, c, tmp)
	scale := func(elements []Neon) {
		over, scaled := fn.NewLabel("over"), fn.NewLabel("scaled")
		fn.I("CBNZ", divide, string(over))
		for _, v := range elements {
			fn.I("VFMUL", factor.S4(), v.S4(), v.S4())
		}
		fn.Jump("B", scaled)
		fn.Place(over)
		for _, v := range elements {
			fn.I("VFDIV", factor.S4(), v.S4(), v.S4())
		}
		fn.Place(scaled)
		fn.Call(q.round)
	}
	l.each(func() {
		fn.I("VLD1R.P", factors.post(4), list(factor.S4()))
	}, func() {
		fn.I("VLD1.P", src.post(64), neonList(Neon.S4, neonRange(0, 4)))
		scale(neonRange(0, 4))
		fn.I("VST1.P", list(V(0).B16()), codes.post(16))
	}, func() {
		fn.I("FMOVS.P", src.post(4), "F0")
		scale(neonRange(0, 1))
		fn.I("VMOV", "V0.B[0]", tmp)
		fn.I("MOVB.P", tmp, codes.post(1))
	}, func() {})
	fn.Return()
}

// A neonDecoder is the part that decode kernels share. Bytes 2 and 3 of the values come from
// tables; the others are zero.
type neonDecoder struct {
	neonBlocks
	dst, src, scales, table, tmp Reg
}

func newNeonDecoder(f *File, name, doc, params string) neonDecoder {
	fn := f.Func(name, doc, params)
	d := neonDecoder{dst: fn.Arg("dst"), src: fn.Arg("src"), scales: fn.Arg("scales"), table: fn.Arg("t"), tmp: fn.GP("scratch")}
	d.neonBlocks = neonBlocks{fn, fn.Arg("n"), fn.Arg("extent"), fn.GP("elements left of the block")}
	neonZero(fn, V(13))
	fn.Note("V12 V13", "scale; zero")
	return d
}

func neonZero(fn *Func, v Neon) { fn.I("VEOR", v.B16(), v.B16(), v.B16()) }

// store stores the first n values, whose bytes 2 and 3 are in V0 and V1.
func (d neonDecoder) store(n int) {
	fn := d.fn
	scaled := func(v, halves Neon, zip string) {
		fn.I(zip, halves.H8(), V(13).H8(), v.H8())
		fn.I("VFMUL", V(12).S4(), v.S4(), v.S4())
	}
	fn.I("VZIP1", V(1).B16(), V(0).B16(), V(2).B16())
	if n < 16 {
		scaled(V(4), V(2), "VZIP1")
		fn.I("FMOVS.P", "F4", d.dst.post(4))
		return
	}
	fn.I("VZIP2", V(1).B16(), V(0).B16(), V(3).B16())
	for i := range 4 {
		scaled(V(4+i), V(2+i/2), []string{"VZIP1", "VZIP2"}[i%2])
	}
	fn.I("VST1.P", list(V(4).S4(), V(5).S4(), V(6).S4(), V(7).S4()), d.dst.post(64))
}

func (d neonDecoder) loadScale() { d.fn.I("VLD1R.P", d.scales.post(4), list(V(12).S4())) }

const decodeParamsNEON = "dst *float32, src *byte, scales *float32, n, extent int, t *decodeTables"

// neonDecodeBytes looks up the 128 magnitudes in two tables of 128 bytes, each in two halves.
func neonDecodeBytes(f *File) {
	d := newNeonDecoder(f, "decodeBytesNEON", "decodeBytesNEON sets dst[i] to scales[i/extent] times the value of the code src[i], i < n.",
		decodeParamsNEON)
	fn := d.fn
	sign, half := V(15), V(14)
	tables := func(i int) string {
		return list(V(16+4*i).B16(), V(17+4*i).B16(), V(18+4*i).B16(), V(19+4*i).B16())
	}
	for i := range 4 {
		fn.I("VLD1.P", d.table.post(64), tables(i))
	}
	fn.Note("V14 V15", "64; sign bits")
	fn.Note("V16…V31", "tables of bytes 2, then of bytes 3")
	fn.I("VMOVI", 0x80, sign.B16())
	fn.I("VMOVI", 64, half.B16())
	lookUp := func() {
		codes, signs, upper := V(8), V(9), V(10)
		fn.I("VAND", sign.B16(), codes.B16(), signs.B16())
		fn.I("VEOR", signs.B16(), codes.B16(), codes.B16())
		fn.I("VSUB", half.B16(), codes.B16(), upper.B16())
		for i := range 2 {
			fn.I("VTBL", codes.B16(), tables(2*i), V(i).B16())
			fn.I("VTBX", upper.B16(), tables(2*i+1), V(i).B16())
		}
		fn.I("VORR", signs.B16(), V(1).B16(), V(1).B16())
	}
	d.each(d.loadScale, func() {
		fn.I("VLD1.P", d.src.post(16), list(V(8).B16()))
		lookUp()
		d.store(16)
	}, func() {
		fn.I("MOVBU.P", d.src.post(1), d.tmp)
		fn.I("FMOVS", d.tmp, "F8")
		lookUp()
		d.store(1)
	}, func() {})
	fn.Return()
}

// neonDecodeNibbles looks up 16 codes in two tables of 16 bytes.
func neonDecodeNibbles(f *File) {
	d := newNeonDecoder(f, "decodeNibblesNEON", "decodeNibblesNEON sets dst[i] to scales[i/extent] times the value of code i of 4 "+
		"bits,\ni < n. extent is even.", decodeParamsNEON)
	fn := d.fn
	low, third, highest := V(15), V(16), V(17)
	fn.I("FMOVQ", d.table.At(0), "F16")
	fn.I("FMOVQ", d.table.At(128), "F17")
	fn.I("VMOVI", 0x0f, low.B16())
	fn.Note("V15…V17", "low nibbles; tables of bytes 2 and 3")
	lookUp := func() {
		fn.I("VUSHR", 4, V(8).B16(), V(9).B16())
		fn.I("VAND", low.B16(), V(8).B16(), V(8).B16())
		fn.I("VZIP1", V(9).B16(), V(8).B16(), V(8).B16())
		fn.I("VTBL", V(8).B16(), list(third.B16()), V(0).B16())
		fn.I("VTBL", V(8).B16(), list(highest.B16()), V(1).B16())
	}
	d.each(d.loadScale, func() {
		fn.I("VLD1.P", d.src.post(8), list(V(8).B8()))
		lookUp()
		d.store(16)
	}, func() {
		fn.I("MOVBU.P", d.src.post(1), d.tmp)
		fn.I("FMOVS", d.tmp, "F8")
		lookUp()
		d.store(1)
		last := fn.NewLabel("last")
		fn.I("SUBS", 1, d.left)
		fn.Jump("BEQ", last)
		fn.I("VMOV", "V4.S[1]", d.tmp)
		fn.I("MOVW.P", d.tmp, d.dst.post(4))
		fn.Place(last)
	}, func() {})
	fn.Return()
}

const decodeUnitParamsNEON = "dst *float32, src *byte, scales *float32, n int, t *decodeTables"

// neonUnitDecoder writes a kernel that decodes n units of 32 codes, each with a scale, by halves, of which INT8 takes 22
// instructions and 6 bits 24.
func neonUnitDecoder(f *File, name, codes string, begin, half func(d neonDecoder)) {
	doc := name + " sets dst[i] to scales[i/32] times the value of the code i of " + codes + ", i < 32·n, n > 0."
	fn := f.Func(name, doc, decodeUnitParamsNEON)
	d := neonDecoder{dst: fn.Arg("dst"), src: fn.Arg("src"), scales: fn.Arg("scales"), table: fn.Arg("t"), tmp: fn.GP("scratch")}
	d.neonBlocks = neonBlocks{fn: fn, n: fn.Arg("n"), left: fn.GP("halves left")}
	neonZero(fn, V(13))
	begin(d)
	unit := fn.Label("unit")
	d.loadScale()
	fn.I("MOVD", 2, d.left)
	loop := fn.Label("half")
	half(d)
	fn.I("SUBS", 1, d.left)
	fn.Jump("BNE", loop)
	fn.I("SUBS", 1, d.n)
	fn.Jump("BNE", unit)
	fn.Return()
}

func neonDecodeIntegers(f *File) {
	const oneAt = 256 + 4 // the value of the code 1
	begin := func(d neonDecoder) { neonLoad(d.fn, V(14), d.table, oneAt, d.tmp) }
	neonUnitDecoder(f, "decodeIntegersNEON", "INT8", begin, func(d neonDecoder) {
		fn := d.fn
		fn.I("VLD1.P", d.src.post(16), list(V(8).B16()))
		fn.I("VSSHLL", 0, V(8).B8(), V(0).H8())
		fn.I("VSSHLL2", 0, V(8).B16(), V(1).H8())
		for i := range 2 {
			fn.I("VSSHLL", 0, V(i).H4(), V(4+2*i).S4())
			fn.I("VSSHLL2", 0, V(i).H8(), V(5+2*i).S4())
		}
		for _, v := range neonRange(4, 4) {
			fn.I("VSCVTF", v.S4(), v.S4())
			fn.I("VFMUL", V(14).S4(), v.S4(), v.S4())
			fn.I("VFMUL", V(12).S4(), v.S4(), v.S4())
		}
		fn.I("VST1.P", neonList(Neon.S4, neonRange(4, 4)), d.dst.post(64))
	})
}

// neonDecodeSixes looks up 16 codes of 6 bits, which 12 bytes hold, in two tables of 64 bytes.
func neonDecodeSixes(f *File) {
	spread := f.Table("spread", []byte{0, 1, 2, 0xff, 3, 4, 5, 0xff, 6, 7, 8, 0xff, 9, 10, 11, 0xff})
	table := func(i int) string { return neonList(Neon.B16, neonRange(16+4*i, 4)) }
	neonUnitDecoder(f, "decodeSixesNEON", "6 bits", func(d neonDecoder) {
		fn := d.fn
		fn.I("MOVD", "$"+spread.String(), d.tmp)
		fn.I("VLD1", "("+string(d.tmp)+")", list(V(24).B16()))
		fn.I("VMOVI", 0x3f, V(25).B16())
		neonConstant(fn, V(26), 0x00000fff, d.tmp)
		neonConstant(fn, V(27), 0x003f003f, d.tmp)
		fn.I("VLD1", "("+string(d.table)+")", table(0))
		fn.I("ADD", 128, d.table)
		fn.I("VLD1", "("+string(d.table)+")", table(1))
	}, func(d neonDecoder) {
		fn, v, t := d.fn, V(8), V(9)
		fn.I("FMOVD.P", d.src.post(8), "F8")
		fn.I("MOVWU.P", d.src.post(4), d.tmp)
		fn.I("VMOV", d.tmp, v.S4().lane(2))
		fn.I("VTBL", V(24).B16(), list(v.B16()), v.B16())
		fn.I("VSHL", 4, v.S4(), t.S4())
		fn.I("VBIF", V(26).B16(), t.B16(), v.B16())
		fn.I("VSHL", 2, v.H8(), t.H8())
		fn.I("VBIF", V(27).B16(), t.B16(), v.B16())
		fn.I("VAND", V(25).B16(), v.B16(), v.B16())
		for i := range 2 {
			fn.I("VTBL", v.B16(), table(i), V(i).B16())
		}
		d.store(16)
	})
}
