package asm

// The kernels of package quant for arm64 of rows with known factors, of columns and of training. Instructions of 16 elements of
// float32: rows 50, columns 71, joined codes of 4 bits 61, of 8 bits rounded stochastically 111, maxima of columns 16, a Hadamard
// transform 112; and of 16 random words 161. Errors of a scale take 44 for 8 elements, with weights 9 more. Sums of errors of 8
// scales take 37 for an element.

// rows writes the kernel of rows of codes of 8 bits.
func (q neonQuant) rows() {
	fn := q.Func("rowsNEON", "rowsNEON encodes rows of blocks of 64·units elements, of float32, or BF16 (half), by a factor for each "+
		"block\nof a row to codes of 8 bits. Elements are finite.", "p rowsArgs, half int, c *encodeConstants")
	src, half, codes, factors := fn.Arg("src"), fn.Arg("half"), fn.Arg("codes"), fn.Arg("factors")
	rows, units, c := fn.Arg("rows"), fn.Arg("units"), fn.Arg("c")
	blocks, left, tmp := fn.GP("blocks left"), fn.GP("elements left of the block, by 16"), fn.GP("scratch")
	neonZero(fn, neonWidth)
	neonRoundConstants(fn, c, tmp)
	row := fn.Label("row")
	fn.I("MOVD", fn.FP("blocks"), blocks)
	block := fn.Label("block")
	fn.I("VLD1R.P", factors.post(4), list(neonRounding[0].S4()))
	fn.I("LSL", 2, units, left)
	loop := fn.Label("unit")
	fn.Call(q.load, src, half)
	q.scaled(fn)
	fn.Call(q.round)
	fn.I("VST1.P", list(V(0).B16()), codes.post(16))
	fn.I("SUBS", 1, left)
	fn.Jump("BNE", loop)
	fn.I("SUBS", 1, blocks)
	fn.Jump("BNE", block)
	fn.addGaps(tmp, map[string]Reg{"srcGap": src, "codeGap": codes, "factorGap": factors})
	fn.I("SUBS", 1, rows)
	fn.Jump("BNE", row)
	fn.Return()
}

// scaled multiplies V0…V3 by the factor.
func (q neonQuant) scaled(fn *Func) {
	for _, v := range neonRange(0, 4) {
		fn.I("VFMUL", neonRounding[0].S4(), v.S4(), v.S4())
	}
}

// maxima writes the kernel of the maxima of columns.
func (q neonQuant) maxima() {
	fn := q.Func("columnMaximaNEON", "columnMaximaNEON raises the maxima of 16·n columns to the bits of their magnitudes, of "+
		"float32, or BF16 (half).", "maxima *uint32, src *byte, n, rows, srcStride, half int")
	at, half := fn.GP("position"), fn.Arg("half")
	maxima, src, n, rows, stride := fn.Arg("maxima"), fn.Arg("src"), fn.Arg("n"), fn.Arg("rows"), fn.Arg("srcStride")
	left, next := fn.GP("rows left"), fn.GP("the next row")
	neonZero(fn, neonWidth)
	columns := fn.Label("columns")
	fn.I("VLD1", "("+string(maxima)+")", neonList(Neon.S4, neonRange(16, 4)))
	fn.I("MOVD", src, next)
	fn.I("MOVD", rows, left)
	row := fn.Label("row")
	fn.I("MOVD", next, at)
	fn.Call(q.load, at, half)
	for i, v := range neonRange(0, 4) {
		fn.I("VFABS", v.S4(), v.S4())
		fn.I("VUMAX", v.S4(), V(16+i).S4(), V(16+i).S4())
	}
	fn.I("ADD", stride, next)
	fn.I("SUBS", 1, left)
	fn.Jump("BNE", row)
	fn.I("VST1.P", neonList(Neon.S4, neonRange(16, 4)), maxima.post(64))
	fn.I("MOVD", 64, left)
	fn.I("LSR", half, left, left)
	fn.I("ADD", left, src)
	fn.I("SUBS", 1, n)
	fn.Jump("BNE", columns)
	fn.Return()
}

// columns writes the kernel of the codes of columns. The codes of 16 rows of 4 columns are transposed by way of memory.
func (q neonQuant) columns() {
	fn := q.Func("columnsNEON", `columnsNEON encodes n tiles of 64 rows and columns of float32, or BF16 (half), side by side, to codes of 8, 6
or 4 bits, or integers (0), that are stored as rows. A row of factors is of 16·blockRows rows. Elements are finite.`,
		"p columnsArgs, half, bits int, c *encodeConstants")
	at, half := fn.GP("position"), fn.Arg("half")
	src, factors := fn.Arg("src"), fn.Arg("factors")
	store, bits := fn.GP("position of codes"), fn.Arg("bits")
	codes, n, codeStride, srcStride := fn.Arg("codes"), fn.Arg("n"), fn.Arg("codeStride"), fn.Arg("srcStride")
	factor, parts, rows, tmp := fn.GP("position of factors"), fn.GP("rows left, by 16"), fn.GP("rows left, by 4"), fn.GP("scratch")
	same, column, buffer := fn.GP("rows left of the factors, by 16"), fn.GP("codes of the column"), fn.GP("position in the buffer")
	c := fn.Arg("c")
	fn.Frame(64)
	neonZero(fn, neonWidth)
	q.codeConstants(fn, c, tmp)
	fn.I("LSL", 4, n, n)
	columns := fn.Label("columns")
	fn.I("MOVD", src, at)
	fn.I("MOVD", factors, factor)
	fn.I("MOVD", codes, column)
	fn.I("MOVD", fn.FP("blockRows"), same)
	fn.I("MOVD", 4, parts)
	part := fn.Label("part")
	fn.I("VLD1", "("+string(factor)+")", list(neonRounding[0].S4()))
	fn.I("ADD", 8, RSP, buffer)
	fn.I("MOVD", 4, rows)
	loop := fn.Label("rows")
	narrow, wide := fn.NewLabel("narrow"), fn.NewLabel("wide")
	fn.I("CBNZ", half, string(narrow))
	for _, v := range neonRange(0, 4) {
		fn.I("VLD1", "("+string(at)+")", list(v.S4()))
		fn.I("ADD", srcStride, at)
	}
	fn.Jump("B", wide)
	fn.Place(narrow)
	for _, v := range neonRange(0, 4) {
		fn.I("VLD1", "("+string(at)+")", list(v.H4()))
		fn.I("VZIP1", v.H8(), neonWidth.H8(), v.H8())
		fn.I("ADD", srcStride, at)
	}
	fn.Place(wide)
	q.scaled(fn)
	q.codes(fn, bits)
	fn.I("VST1.P", list(V(0).B16()), buffer.post(16))
	fn.I("SUBS", 1, rows)
	fn.Jump("BNE", loop)
	fn.I("SUB", 64, buffer)
	fn.I("VLD4", "("+string(buffer)+")", neonList(Neon.B16, neonRange(8, 4)))
	fn.I("MOVD", column, tmp)
	for i, v := range neonRange(8, 4) {
		fn.I("MOVD", tmp, store)
		fn.I("VORR", v.B16(), v.B16(), V(0).B16())
		fn.Call(q.store, store, bits)
		if i == 0 {
			fn.I("MOVD", store, column)
		}
		if i < 3 {
			fn.I("ADD", codeStride, tmp)
		}
	}
	kept := fn.NewLabel("kept")
	fn.I("SUBS", 1, same)
	fn.Jump("BNE", kept)
	fn.I("MOVD", fn.FP("blockRows"), same)
	fn.I("MOVD", fn.FP("factorStride"), tmp)
	fn.I("ADD", tmp, factor)
	fn.Place(kept)
	fn.I("SUBS", 1, parts)
	fn.Jump("BNE", part)
	fn.I("MOVD", 16, tmp)
	fn.I("ADD", tmp, factors)
	fn.I("LSR", half, tmp, tmp)
	fn.I("ADD", tmp, src)
	fn.I("ADD", string(codeStride)+"<<2", codes)
	fn.I("SUBS", 1, n)
	fn.Jump("BNE", columns)
	fn.Return()
}

const neonJoinDoc = " sets the codes of src, of 8, 6 or 4 bits, to those of its elements times factors[i/16], i < 16·n, n > 0"

// join writes the kernel of stored codes.
func (q neonQuant) join() {
	fn := q.Func("joinNEON", "joinNEON"+neonJoinDoc+".", "codes *byte, src *float32, n int, factors *float32, bits int, c *encodeConstants")
	src, half := fn.Arg("src"), fn.GP("zero")
	n, factors := fn.Arg("n"), fn.Arg("factors")
	codes, bits, c, tmp := fn.Arg("codes"), fn.Arg("bits"), fn.Arg("c"), fn.GP("scratch")
	fn.I("MOVD", "ZR", half)
	q.codeConstants(fn, c, tmp)
	loop := fn.Label("loop")
	fn.I("VLD1R.P", factors.post(4), list(neonRounding[0].S4()))
	fn.Call(q.load, src, half)
	q.scaled(fn)
	fn.Call(q.round)
	fn.Call(q.store, codes, bits)
	fn.I("SUBS", 1, n)
	fn.Jump("BNE", loop)
	fn.Return()
}

// joinRandom writes the kernel of stored codes that are rounded stochastically. The dropped bits of a significand are a fraction of
// 32 bits; adding the random bits may carry.
func (q neonQuant) joinRandom() {
	fn := q.Func("joinRandomNEON", "joinRandomNEON"+neonJoinDoc+",\nrounded with the bits of random. Elements are finite.",
		"codes *byte, src *float32, random *uint32, n int, factors *float32, bits int, c *encodeConstants")
	src, half := fn.Arg("src"), fn.GP("zero")
	n, factors := fn.Arg("n"), fn.Arg("factors")
	codes, bits, random, c, tmp := fn.Arg("codes"), fn.Arg("bits"), fn.Arg("random"), fn.Arg("c"), fn.GP("scratch")
	fn.I("MOVD", "ZR", half)
	q.codeConstants(fn, c, tmp)
	neonZero(fn, neonWidth)
	mask, implicit, binade, mantissa, shift, largest, bits32 := V(8), V(9), V(10), V(11), V(12), V(13), V(14)
	neonConstant(fn, mask, 0x007fffff, tmp)
	for _, l := range []struct {
		to Neon
		at int
	}{{implicit, 44}, {binade, 28}, {mantissa, 32}, {shift, 12}, {largest, 36}, {bits32, 40}} {
		neonLoad(fn, l.to, c, l.at, tmp)
	}
	signs, b, t, d, code := V(7), V(4), V(5), V(15), V(23)
	op := func(mnemonic string, x, y, to Neon) { fn.I(mnemonic, x.S4(), y.S4(), to.S4()) }
	and := func(mnemonic string, x, y, to Neon) { fn.I(mnemonic, x.B16(), y.B16(), to.B16()) }
	loop := fn.Label("loop")
	fn.I("VLD1R.P", factors.post(4), list(neonRounding[0].S4()))
	fn.Call(q.load, src, half)
	fn.I("VLD1.P", random.post(64), neonList(Neon.S4, neonRange(16, 4)))
	q.scaled(fn)
	neonSigns(fn, signs, t)
	for i, a := range neonRange(0, 4) {
		fn.I("VFABS", a.S4(), a.S4())
		fn.I("VUSHR", 23, a.S4(), b.S4())
		op("VCMTST", b, b, t)
		and("VAND", implicit, t, t)
		and("VAND", mask, a, a)
		and("VORR", t, a, a) // significand
		op("VSUB", binade, b, b)
		op("VSUB", b, neonWidth, d)
		op("VSMAX", neonWidth, d, d)
		op("VSMAX", neonWidth, b, b)
		op("VUSHL", mantissa, b, b) // codes below those of the binade
		op("VADD", shift, d, d)     // bits dropped
		op("VSUB", d, neonWidth, t)
		op("VUSHL", t, a, code)
		op("VADD", b, code, code)
		op("VSUB", d, bits32, t)
		op("VUSHL", t, a, a)
		op("VADD", V(16+i), a, a)
		op("VCMHI", a, V(16+i), t) // -1 where that carries
		op("VSUB", t, code, code)
		op("VUMIN", largest, code, a)
	}
	neonNarrowCodes(fn, signs)
	fn.Call(q.store, codes, bits)
	fn.I("SUBS", 1, n)
	fn.Jump("BNE", loop)
	fn.Return()
}

// philox writes the kernel of random words: four counters at a time.
func (q neonQuant) philox() {
	fn := q.Func("philoxNEON", "philoxNEON sets dst to the words of Philox4x32-10 for the counters from first on, 16·n words.",
		"dst *uint32, first uint64, n int, c *philoxConstants")
	dst, first, n, c := fn.Arg("dst"), fn.Arg("first"), fn.Arg("n"), fn.Arg("c")
	key, left, tmp := fn.GP("position in the keys"), fn.GP("rounds left"), fn.GP("scratch")
	counters, four, step, tensor := neonRange(16, 2), V(18), V(19), V(22)
	for i, v := range counters {
		fn.I("ADD", 2*i, first, tmp)
		fn.I("VMOV", tmp, v.D2().lane(0))
		fn.I("ADD", 1, tmp)
		fn.I("VMOV", tmp, v.D2().lane(1))
	}
	fn.I("MOVD", 4, tmp)
	fn.I("VDUP", tmp, four.D2())
	neonLoad(fn, step, c, 8*philoxRounds, tmp)
	neonLoad(fn, tensor, c, 8*philoxRounds+4, tmp)
	m0, m1 := V(23), V(24)
	neonConstant(fn, m0, 0xd2511f53, tmp)
	neonConstant(fn, m1, 0xcd9e8d57, tmp)
	loop := fn.Label("loop")
	w := neonRange(0, 4)
	for i, uzp := range []string{"VUZP1", "VUZP2"} {
		fn.I(uzp, counters[1].S4(), counters[0].S4(), w[i].S4())
	}
	for _, v := range counters {
		fn.I("VADD", four.D2(), v.D2(), v.D2())
	}
	fn.I("VORR", step.B16(), step.B16(), w[2].B16())
	fn.I("VORR", tensor.B16(), tensor.B16(), w[3].B16())
	fn.I("MOVD", c, key)
	fn.I("MOVD", philoxRounds, left)
	round := fn.Label("round")
	fn.I("VLD2R.P", key.post(8), list(V(20).S4(), V(21).S4()))
	for i, m := range []Neon{m0, m1} {
		fn.I("VUMULL", m.S2(), w[2*i].S2(), V(4+2*i).D2())
		fn.I("VUMULL2", m.S4(), w[2*i].S4(), V(5+2*i).D2())
	}
	for i := range 2 { // the products of the other multiplier, its upper halves with the key
		from := 6 - 2*i
		fn.I("VUZP2", V(from+1).S4(), V(from).S4(), w[2*i].S4())
		fn.I("VEOR", w[2*i+1].B16(), w[2*i].B16(), w[2*i].B16())
		fn.I("VEOR", V(20+i).B16(), w[2*i].B16(), w[2*i].B16())
		fn.I("VUZP1", V(from+1).S4(), V(from).S4(), w[2*i+1].S4())
	}
	fn.I("SUBS", 1, left)
	fn.Jump("BNE", round)
	fn.I("VST4.P", neonList(Neon.S4, w), dst.post(64))
	fn.I("SUBS", 1, n)
	fn.Jump("BNE", loop)
	fn.Return()
}

// hadamard writes the kernel of the transform. A vector has elements i and i+8.
func (q neonQuant) hadamard() {
	fn := q.Func("hadamardNEON", "hadamardNEON replaces each 16 of 16·n elements of x by their transform, times the signs at signs "+
		"before it, rounded\nto BF16; a NaN becomes nan.", "x *float32, n int, signs *uint32, nan uint32")
	x, n, signs, tmp := fn.Arg("x"), fn.Arg("n"), fn.Arg("signs"), fn.GP("scratch")
	flips, quarter, zero := neonRange(16, 4), V(20), V(21)
	half, one, upper, nan := V(22), V(23), V(24), V(25)
	fn.I("VLD1", "("+string(signs)+")", neonList(Neon.S4, flips))
	fn.I("MOVD", 0x3fd0000000000000, tmp)
	fn.I("VDUP", tmp, quarter.D2())
	neonZero(fn, zero)
	for i, value := range []int{0x7fff, 1, 0xffff0000} {
		neonConstant(fn, []Neon{half, one, upper}[i], value, tmp)
	}
	fn.I("MOVWU", fn.FP("nan"), tmp)
	fn.I("VDUP", tmp, nan.S4())
	loop := fn.Label("loop")
	fn.I("VLD1", "("+string(x)+")", neonList(Neon.S4, neonRange(0, 4)))
	for i, v := range neonRange(0, 4) {
		fn.I("VEOR", flips[i].B16(), v.B16(), v.B16())
	}
	neonShuffle(fn, Neon.S4, neonRange(0, 4), neonRange(26, 4))
	for i := range 4 {
		fn.I("VFCVTL", V(26+i).S2(), V(2*i).D2())
		fn.I("VFCVTL2", V(26+i).S4(), V(2*i+1).D2())
	}
	from, to := neonRange(0, 8), neonRange(8, 8)
	for apart := 1; apart < 8; apart *= 2 {
		for i := range 8 {
			if i&apart == 0 {
				fn.I("VFADD", from[i+apart].D2(), from[i].D2(), to[i].D2())
				fn.I("VFSUB", from[i+apart].D2(), from[i].D2(), to[i+apart].D2())
			}
		}
		from, to = to, from
	}
	for i := 0; i < 8; i += 2 { // the sums and differences of elements 8 apart, to V0…V3
		a, b := to[0], to[1]
		neonShuffle(fn, Neon.D2, from[i:i+2], []Neon{a, b})
		fn.I("VFADD", b.D2(), a.D2(), from[i].D2())
		fn.I("VFSUB", b.D2(), a.D2(), from[i+1].D2())
	}
	for i, v := range from {
		fn.I("VFMUL", quarter.D2(), v.D2(), v.D2())
		fn.I("VFADD", zero.D2(), v.D2(), v.D2()) // as a product of matrices: -0 becomes 0
		to := V(i%2*2 + i/4)
		if i/2%2 == 0 {
			fn.I("VFCVTN", v.D2(), to.S2())
		} else {
			fn.I("VFCVTN2", v.D2(), to.S4())
		}
	}
	for _, v := range neonRange(0, 4) {
		sum, number := V(4), V(5)
		fn.I("VUSHR", 16, v.S4(), sum.S4())
		fn.I("VAND", one.B16(), sum.B16(), sum.B16())
		fn.I("VADD", half.S4(), sum.S4(), sum.S4())
		fn.I("VADD", v.S4(), sum.S4(), sum.S4())
		fn.I("VFCMEQ", v.S4(), v.S4(), number.S4())
		fn.I("VAND", upper.B16(), sum.B16(), v.B16())
		fn.I("VBIF", number.B16(), nan.B16(), v.B16())
	}
	fn.I("VST1.P", neonList(Neon.S4, neonRange(0, 4)), x.post(64))
	fn.I("SUBS", 1, n)
	fn.Jump("BNE", loop)
	fn.Return()
}

// search writes the kernel of the errors of scales. A vector of sums has two of the eight positions.
func (q neonQuant) search() {
	fn := q.Func("searchNEON", `searchNEON sets errors[k], k < n, to the sum of weight·(decodes[k]·q-x)² over 16·groups elements x of
src, q the element's rounding of x times factors[k], or divided by it: of eight sums by position, joined by halves. groups and
n are positive, src is finite, and weights may be nil.`, "errors *float64, src, weights *float32, groups int, factors, decodes *float32, "+
		"n, divide int, c *searchConstants")
	errors, src, weights, groups := fn.Arg("errors"), fn.Arg("src"), fn.Arg("weights"), fn.Arg("groups")
	factors, decodes, n := fn.Arg("factors"), fn.Arg("decodes"), fn.Arg("n")
	divide, c := fn.Arg("divide"), fn.Arg("c")
	at, weight, left, tmp := fn.GP("position"), fn.GP("position of weights"), fn.GP("elements left, by 8"), fn.GP("scratch")
	factor, decode, binade, limit, least, anchor := V(24), V(25), V(26), V(27), V(28), V(29)
	x, wide, sums := neonRange(0, 2), neonRange(4, 4), neonRange(16, 4)
	for i, v := range []Neon{limit, least, anchor} {
		neonLoad(fn, v, c, 4*i, tmp)
	}
	neonConstant(fn, binade, 0x7f800000, tmp)
	fn.I("LSL", 1, groups, groups)
	widen := func(from Neon, to []Neon) {
		fn.I("VFCVTL", from.S2(), to[0].D2())
		fn.I("VFCVTL2", from.S4(), to[1].D2())
	}
	candidate := fn.Label("candidate")
	fn.I("VLD1R.P", factors.post(4), list(factor.S4()))
	fn.I("VLD1R.P", decodes.post(4), list(decode.S4()))
	for _, sum := range sums {
		neonZero(fn, sum)
	}
	fn.I("MOVD", src, at)
	fn.I("MOVD", weights, weight)
	fn.I("MOVD", groups, left)
	loop := fn.Label("loop")
	over, scaled, plain := fn.NewLabel("over"), fn.NewLabel("scaled"), fn.NewLabel("plain")
	fn.I("VLD1.P", at.post(32), neonList(Neon.S4, x))
	for i, v := range x {
		fn.I("VFABS", v.S4(), v.S4())
		widen(v, wide[2*i:])
	}
	fn.I("CBNZ", divide, string(over))
	for _, v := range x {
		fn.I("VFMUL", factor.S4(), v.S4(), v.S4())
	}
	fn.Jump("B", scaled)
	fn.Place(over)
	for _, v := range x {
		fn.I("VFDIV", factor.S4(), v.S4(), v.S4())
	}
	fn.Place(scaled)
	for i, v := range x {
		t := V(2)
		fn.I("VFMIN", limit.S4(), v.S4(), v.S4())
		fn.I("VAND", binade.B16(), v.B16(), t.B16())
		fn.I("VUMAX", least.S4(), t.S4(), t.S4())
		fn.I("VFMUL", anchor.S4(), t.S4(), t.S4()) // what rounds to a step of the binade
		fn.I("VFADD", t.S4(), v.S4(), v.S4())
		fn.I("VFSUB", t.S4(), v.S4(), v.S4())
		fn.I("VFMUL", decode.S4(), v.S4(), v.S4())
		widen(v, neonRange(8, 2))
		for j, d := range wide[2*i : 2*i+2] {
			fn.I("VFSUB", d.D2(), V(8+j).D2(), d.D2())
			fn.I("VFMUL", d.D2(), d.D2(), d.D2())
		}
	}
	fn.I("CBZ", weights, string(plain))
	fn.I("VLD1.P", weight.post(32), neonList(Neon.S4, neonRange(8, 2)))
	for i := range 2 {
		widen(V(8+i), neonRange(20, 2))
		for j, d := range wide[2*i : 2*i+2] {
			fn.I("VFMUL", V(20+j).D2(), d.D2(), d.D2())
		}
	}
	fn.Place(plain)
	for i, d := range wide {
		fn.I("VFADD", d.D2(), sums[i].D2(), sums[i].D2())
	}
	fn.I("SUBS", 1, left)
	fn.Jump("BNE", loop)
	for _, pair := range [][2]int{{2, 0}, {3, 1}, {1, 0}} {
		fn.I("VFADD", sums[pair[0]].D2(), sums[pair[1]].D2(), sums[pair[1]].D2())
	}
	fn.I("VFADDP", sums[0].D2(), sums[0].D2(), sums[0].D2())
	fn.I("FMOVD.P", "F16", errors.post(8))
	fn.I("SUBS", 1, n)
	fn.Jump("BNE", candidate)
	fn.Return()
}

// errorSums writes the kernel of the sums of the errors of blocks, 8 candidates at a time. A lane is a candidate, so that sums are
// in the order of the elements.
func (q neonQuant) errorSums() {
	fn := q.Func("errorSumsNEON", `errorSumsNEON sets the sums of blocks of extent elements x of src: for each block, lanes of
variance·e² and then lanes of mean·e, e = decodes[s+i]·q-x in lane i, q the element's rounding of x times factors[s+i], or divided
by it, s the start of the block. There are 8 or 16 lanes. extent and blocks are positive. Sums of blocks with values that are not
finite may be anything.`, "p sumArgs, divide int, c *sumConstants")
	sums, src, variances, means := fn.Arg("sums"), fn.Arg("src"), fn.Arg("variances"), fn.Arg("means")
	blocks, starts, lanes := fn.Arg("blocks"), fn.Arg("starts"), fn.Arg("lanes")
	factors, decodes := fn.Arg("factors"), fn.Arg("decodes")
	divide, c, tmp := fn.Arg("divide"), fn.Arg("c"), fn.GP("scratch")
	at := []Reg{fn.GP("position in src"), fn.GP("in variances"), fn.GP("in means")}
	factor, decode := fn.GP("position in factors"), fn.GP("in decodes")
	left, unused := fn.GP("elements left"), fn.GP("lanes left")
	limit, lowest, least, anchor, binade := V(24), V(25), V(26), V(27), V(28)
	for i, v := range []Neon{limit, lowest, least, anchor} {
		neonLoad(fn, v, c, 4*i, tmp)
	}
	neonConstant(fn, binade, 0x7f800000, tmp)
	fn.I("LSL", 2, lanes)
	x, variance, mean := V(0), V(1), V(2)
	by, times, squares, products := neonRange(16, 2), neonRange(18, 2), neonRange(20, 2), neonRange(22, 2)
	block := fn.Label("block")
	fn.I("MOVD.P", starts.post(8), tmp)
	fn.I("ADD", string(tmp)+"<<2", factors, factor)
	fn.I("ADD", string(tmp)+"<<2", decodes, decode)
	fn.I("MOVD", lanes, unused)
	pass := fn.Label("pass")
	for i, r := range []Reg{src, variances, means} {
		fn.I("MOVD", r, at[i])
	}
	fn.I("MOVD", fn.FP("extent"), left)
	fn.I("VLD1.P", factor.post(32), neonList(Neon.S4, by))
	fn.I("VLD1.P", decode.post(32), neonList(Neon.S4, times))
	for _, sum := range neonRange(20, 4) {
		neonZero(fn, sum)
	}
	element := fn.Label("element")
	over, scaled := fn.NewLabel("over"), fn.NewLabel("scaled")
	for i, v := range []Neon{x, variance, mean} {
		fn.I("VLD1R.P", at[i].post(4), list(v.S4()))
	}
	rounded := neonRange(4, 2)
	fn.I("CBNZ", divide, string(over))
	for i, v := range rounded {
		fn.I("VFMUL", by[i].S4(), x.S4(), v.S4())
	}
	fn.Jump("B", scaled)
	fn.Place(over)
	for i, v := range rounded {
		fn.I("VFDIV", by[i].S4(), x.S4(), v.S4())
	}
	fn.Place(scaled)
	for i, v := range rounded {
		t := V(6 + i)
		fn.I("VFMIN", limit.S4(), v.S4(), v.S4())
		fn.I("VFMAX", lowest.S4(), v.S4(), v.S4())
		fn.I("VAND", binade.B16(), v.B16(), t.B16())
		fn.I("VUMAX", least.S4(), t.S4(), t.S4())
		fn.I("VFMUL", anchor.S4(), t.S4(), t.S4()) // what rounds to a step of the binade
		fn.I("VFADD", t.S4(), v.S4(), v.S4())
		fn.I("VFSUB", t.S4(), v.S4(), v.S4())
		fn.I("VFMUL", times[i].S4(), v.S4(), v.S4())
		fn.I("VFSUB", x.S4(), v.S4(), v.S4())
		fn.I("VFMUL", v.S4(), v.S4(), t.S4())
		fn.I("VFMUL", variance.S4(), t.S4(), t.S4())
		fn.I("VFADD", t.S4(), squares[i].S4(), squares[i].S4())
		fn.I("VFMUL", mean.S4(), v.S4(), v.S4())
		fn.I("VFADD", v.S4(), products[i].S4(), products[i].S4())
	}
	fn.I("SUBS", 1, left)
	fn.Jump("BNE", element)
	fn.I("ADD", lanes, sums, tmp)
	fn.I("VST1.P", neonList(Neon.S4, squares), sums.post(32))
	fn.I("VST1", neonList(Neon.S4, products), "("+string(tmp)+")")
	fn.I("SUBS", 32, unused)
	fn.Jump("BNE", pass)
	fn.I("ADD", lanes, sums)
	for i, r := range []Reg{src, variances, means} {
		fn.I("MOVD", at[i], r)
	}
	fn.I("SUBS", 1, blocks)
	fn.Jump("BNE", block)
	fn.Return()
}
