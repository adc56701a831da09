package asm

import (
	"maps"
	"slices"
)

// The kernels of package quant for arm64 that compute scales and codes share routines, so that each source, width of codes and
// kind of scales is a branch of one function. Instructions of 16 elements, and of the four blocks of a group:
//
//	largest magnitude    13 (float32), 8 (BF16), and 10 for each block
//	scales               20 (E8M0), 20 (E4M3 under a global one), 12 (float32)
//	codes of 8 bits      57 (float32), 61 (BF16); of 6 bits 8 more, of 4 bits 5 more, of integers 25 less

// Registers of constants. V0 to V5 are scratch, V24 is the factor of a block.
var (
	neonWidth    = V(6)             // zero
	neonAmax     = V(7)             // largest amax so far
	neonScaling  = neonRange(8, 12) // constants of the scales
	neonUnitStep = V(19)            // steps of an integer in 1
	neonSixMasks = neonRange(20, 3) // masks of two codes of 6 bits, and of four; indices of the 12 bytes of 16 codes
	neonFewest   = V(23)            // least integer
	neonRounding = neonRange(24, 8) // see neonRoundConstants
)

// Kinds of scales, the order of their constants in quant's neonScaling.
const (
	neonExponent = iota
	neonGlobal
	neonFloat
)

// neonScalingNames are the constants of each kind.
var neonScalingNames = [][]string{
	neonExponent: {"low", "span", "ratio", "up", "down", "factor"},
	neonGlobal:   {"encode", "scaleLimit", "scaleLeast", "scaleAnchor", "rebias", "decode", "one", "most"},
	neonFloat:    {"max", "most", "mask", "one"},
}

// neonFusedFields are the fields of quant.neonArgs.
const neonFusedFields = "codes, scales, src *byte, groups, rows, codeGap, scaleGap, srcGap, half, units, bits, kind int, " +
	"s *neonScaling, c *encodeConstants"

// neonRoundConstants loads the constants of round16 from encodeConstants.
func neonRoundConstants(fn *Func, c, tmp Reg) {
	sign, binade, place, shift := neonRounding[1], neonRounding[2], neonRounding[3], neonRounding[4]
	for i, v := range []Neon{neonRounding[7], neonRounding[6], neonRounding[5]} { // limit, least, anchor
		neonLoad(fn, v, c, 4*i, tmp)
	}
	negative := func(v Neon, offset int) { // a left shift by a negative number
		fn.I("MOVWU", c.At(offset), tmp)
		fn.I("NEG", tmp, tmp)
		fn.I("VDUP", tmp, v)
	}
	negative(shift.S4(), 12)
	negative(place.B16(), 20)
	fn.I("VMOVI", 0x80, sign.B16())
	neonConstant(fn, binade, 0x7f800000, tmp)
	fn.Note("V24…V31", "factor, sign of a byte, mask of exponents, right shifts of the sign and of sums, anchor, least, limit")
}

// A neonQuant is the file of these kernels with their routines.
type neonQuant struct {
	*File
	load, round, integers, store, scale *Func
}

// neonRoutines writes the routines.
func neonRoutines(f *File) neonQuant {
	q := neonQuant{File: f}
	q.load = f.Routine("load16", "load16 loads 16 elements to V0…V3, of float32, or BF16 where R1 is not 0.")
	q.load.Note("R0", "elements; on return, those after them")
	q.load.Note("R1", "whether they are BF16")
	half := q.load.NewLabel("half")
	q.load.I("CBNZ", Reg("R1"), string(half))
	q.load.I("VLD1.P", Reg("R0").post(64), neonList(Neon.S4, neonRange(0, 4)))
	q.load.Return()
	q.load.Place(half)
	q.load.I("VLD1.P", Reg("R0").post(32), list(V(2).H8(), V(3).H8()))
	neonShuffle(q.load, Neon.H8, []Neon{neonWidth, V(2)}, neonRange(0, 2))
	neonShuffle(q.load, Neon.H8, []Neon{neonWidth, V(3)}, neonRange(2, 2))
	q.load.Return()
	q.round16()
	q.integers16()
	q.store16()
	q.scale4()
	return q
}

// round16 writes the routine of codes. A code is the rounding sum of the magnitude a and its binade e, e·anchor + a, plus that sum
// shifted right.
func (q *neonQuant) round16() {
	fn := q.Routine("round16", "round16 leaves the codes of the 16 elements in V0…V3, times their factor, in V0.")
	q.round = fn
	binade, shift, anchor, least, limit := neonRounding[2], neonRounding[4], neonRounding[5], neonRounding[6], neonRounding[7]
	signs, e := V(4), V(5)
	neonSigns(fn, signs, e)
	for _, v := range neonRange(0, 4) {
		fn.I("VFABS", v.S4(), v.S4())
		fn.I("VFMIN", limit.S4(), v.S4(), v.S4())
		fn.I("VAND", binade.B16(), v.B16(), e.B16())
		fn.I("VUMAX", least.S4(), e.S4(), e.S4())
		fn.I("VFMLA", anchor.S4(), e.S4(), v.S4())
		fn.I("VUSHL", shift.S4(), v.S4(), e.S4())
		fn.I("VADD", e.S4(), v.S4(), v.S4())
	}
	neonNarrowCodes(fn, signs)
	fn.Return()
}

// neonSigns leaves the sign bits of the codes of V0…V3 in signs, by way of t.
func neonSigns(fn *Func, signs, t Neon) {
	sign, place := neonRounding[1], neonRounding[3]
	fn.I("VUZP2", V(1).H8(), V(0).H8(), signs.H8())
	fn.I("VUZP2", V(3).H8(), V(2).H8(), t.H8())
	fn.I("VUZP2", t.B16(), signs.B16(), signs.B16())
	fn.I("VAND", sign.B16(), signs.B16(), signs.B16())
	fn.I("VUSHL", place.B16(), signs.B16(), signs.B16())
}

// neonNarrowCodes leaves the lowest bytes of the dwords of V0…V3 in V0, with signs.
func neonNarrowCodes(fn *Func, signs Neon) {
	fn.I("VUZP1", V(1).H8(), V(0).H8(), V(0).H8())
	fn.I("VUZP1", V(3).H8(), V(2).H8(), V(2).H8())
	fn.I("VUZP1", V(2).B16(), V(0).B16(), V(0).B16())
	fn.I("VORR", signs.B16(), V(0).B16(), V(0).B16())
}

// integers16 writes the routine of codes of INT8.
func (q *neonQuant) integers16() {
	fn := q.Routine("integers16", "integers16 leaves the codes of INT8 of the 16 elements in V0…V3, times their factor, in V0.")
	q.integers = fn
	for _, v := range neonRange(0, 4) {
		fn.I("VFMUL", neonUnitStep.S4(), v.S4(), v.S4())
		fn.I("VFCVTNS", v.S4(), v.S4())
	}
	fn.I("VSQXTN", V(0).S4(), V(0).H4())
	fn.I("VSQXTN2", V(1).S4(), V(0).H8())
	fn.I("VSQXTN", V(2).S4(), V(2).H4())
	fn.I("VSQXTN2", V(3).S4(), V(2).H8())
	fn.I("VSQXTN", V(0).H8(), V(0).B8())
	fn.I("VSQXTN2", V(2).H8(), V(0).B16())
	fn.I("VSMAX", neonFewest.B16(), V(0).B16(), V(0).B16())
	fn.Return()
}

// store16 writes the routine that stores codes.
func (q *neonQuant) store16() {
	fn := q.Routine("store16", "store16 stores the 16 codes in the bytes of V0.")
	q.store = fn
	codes, bits, tmp := Reg("R4"), Reg("R5"), Reg("R25")
	fn.Note(codes, "destination; on return, what follows")
	fn.Note(bits, "bits of a stored code; 0 for integers")
	fn.Note(tmp, "scratch")
	v, t := V(0), V(1)
	nibbles, whole := fn.NewLabel("nibbles"), fn.NewLabel("whole")
	fn.I("CBZ", bits, string(whole))
	fn.I("CMP", 6, bits)
	fn.Jump("BGT", whole)
	fn.Jump("BLT", nibbles)
	fn.I("VUSHR", 2, v.H8(), t.H8())
	fn.I("VBIF", neonSixMasks[0].B16(), t.B16(), v.B16())
	fn.I("VUSHR", 4, v.S4(), t.S4())
	fn.I("VBIF", neonSixMasks[1].B16(), t.B16(), v.B16())
	fn.I("VTBL", neonSixMasks[2].B16(), list(v.B16()), v.B16())
	fn.I("FMOVD.P", "F0", codes.post(8))
	fn.I("VMOV", v.S4().lane(2), tmp)
	fn.I("MOVW.P", tmp, codes.post(4))
	fn.Return()
	fn.Place(nibbles)
	fn.I("VUZP2", v.B16(), v.B16(), t.B16())
	fn.I("VUZP1", v.B16(), v.B16(), v.B16())
	fn.I("VSHL", 4, t.B16(), t.B16())
	fn.I("VORR", t.B16(), v.B16(), v.B16())
	fn.I("FMOVD.P", "F0", codes.post(8))
	fn.Return()
	fn.Place(whole)
	fn.I("VST1.P", list(v.B16()), codes.post(16))
	fn.Return()
}

// codeConstants loads the constants of round16, integers16 and store16 from encodeConstants.
func (q neonQuant) codeConstants(fn *Func, c, tmp Reg) {
	const unitAt, largestAt = 24, 36
	sixes := q.shared("sixes", []byte{0, 1, 2, 4, 5, 6, 8, 9, 10, 12, 13, 14, 0xff, 0xff, 0xff, 0xff})
	neonRoundConstants(fn, c, tmp)
	neonConstant(fn, neonSixMasks[0], 0x003f003f, tmp)
	neonConstant(fn, neonSixMasks[1], 0x00000fff, tmp)
	fn.I("MOVD", "$"+sixes.String(), tmp)
	fn.I("VLD1", "("+string(tmp)+")", list(neonSixMasks[2].B16()))
	neonLoad(fn, neonUnitStep, c, unitAt, tmp)
	fn.I("MOVWU", c.At(largestAt), tmp)
	fn.I("NEG", tmp, tmp)
	fn.I("VDUP", tmp, neonFewest.B16())
}

// codes leaves the codes of the elements in V0…V3, times their factor, in V0.
func (q neonQuant) codes(fn *Func, bits Reg) {
	integers, done := fn.NewLabel("integers"), fn.NewLabel("done")
	fn.I("CBZ", bits, string(integers))
	fn.Call(q.round)
	fn.Jump("B", done)
	fn.Place(integers)
	fn.Call(q.integers)
	fn.Place(done)
}

// addGaps adds the arguments of these names to registers, by way of tmp.
func (fn *Func) addGaps(tmp Reg, gaps map[string]Reg) {
	for _, name := range slices.Sorted(maps.Keys(gaps)) {
		fn.I("MOVD", fn.FP(name), tmp)
		fn.I("ADD", tmp, gaps[name])
	}
}

// scale4 writes the routine of scales.
func (q *neonQuant) scale4() {
	fn := q.Routine("scale4", `scale4 stores the scales of the four amaxes in V0, raises V7 to them, and leaves the factors of their elements
in V1. V7 becomes all ones where an amax needs the reference implementation, unless that is Inf or NaN.`)
	q.scale = fn
	scales, kind := Reg("R2"), Reg("R3")
	fn.Note(scales, "scales; on return, those after them")
	fn.Note(kind, "kind of scales")
	amax, t, code := V(0).S4(), V(1).S4(), V(2).S4()
	named := func(kind int) func(name string) Neon {
		return func(name string) Neon {
			for i, n := range neonScalingNames[kind] {
				if n == name {
					return neonScaling[i].S4()
				}
			}
			panic("asm: there is no constant " + name)
		}
	}
	bytes := func() { // of the codes
		fn.I("VUZP1", code.B16(), code.B16(), V(3).B16())
		fn.I("VUZP1", V(3).B16(), V(3).B16(), V(3).B16())
		fn.I("FMOVS.P", "F3", scales.post(4))
	}
	global, float := fn.NewLabel("global"), fn.NewLabel("float")
	fn.I("CMP", neonGlobal, kind)
	fn.Jump("BEQ", global)
	fn.Jump("BGT", float)

	c := named(neonExponent)
	fn.I("VSUB", c("low"), amax, t)
	fn.I("VCMHI", c("span"), t, t)
	fn.I("VCMTST", amax, amax, code)
	fn.I("VAND", code.B16(), t.B16(), t.B16())
	fn.I("VORR", amax.B16(), t.B16(), t.B16())
	fn.I("VUMAX", t, neonAmax.S4(), neonAmax.S4())
	fn.I("VFMUL", c("ratio"), amax, code)
	fn.I("VADD", c("up"), code, code)
	fn.I("VUSHR", 23, code, code)
	fn.I("VSUB", c("down"), code, code)
	fn.I("VSMAX", neonWidth.S4(), code, code)
	bytes()
	fn.I("VSUB", code, c("factor"), t)
	fn.I("VSHL", 23, t, t)
	fn.Return()

	c = named(neonGlobal)
	fn.Place(global)
	fn.I("VUMAX", amax, neonAmax.S4(), neonAmax.S4())
	fn.I("VFMUL", c("encode"), amax, amax)
	fn.I("VFMIN", c("scaleLimit"), amax, amax)
	fn.I("VAND", neonRounding[2].B16(), amax.B16(), t.B16())
	fn.I("VUMAX", c("scaleLeast"), t, t)
	fn.I("VFMLA", c("scaleAnchor"), t, amax)
	fn.I("VUSHR", 20, amax, code)
	fn.I("VADD", amax, code, code)
	bytes()
	fn.I("VSHL", 24, code, code)
	fn.I("VUSHR", 4, code, code)
	fn.I("VFMUL", c("rebias"), code, code)
	fn.I("VFMUL", c("decode"), code, code)
	fn.I("VFDIV", code, c("one"), t)
	fn.I("VFMIN", c("most"), t, t) // kept finite
	fn.Return()

	c = named(neonFloat)
	fn.Place(float)
	fn.I("VUMAX", amax, neonAmax.S4(), neonAmax.S4())
	fn.I("VFDIV", amax, c("max"), t)
	fn.I("VFMIN", c("most"), t, t)
	fn.I("VAND", c("mask").B16(), t.B16(), t.B16())
	fn.I("VCMTST", amax, amax, code)
	fn.I("VBIF", code.B16(), c("one").B16(), t.B16()) // of blocks of zeros
	fn.I("VFDIV", t, c("one"), V(3).S4())
	fn.I("VST1.P", list(V(3).S4()), scales.post(16))
	fn.Return()
}

// loadScaling loads the constants of scales.
func neonLoadScaling(fn *Func, from Reg) {
	for i := 0; i < len(neonScaling); i += 4 {
		fn.I("VLD4R.P", from.post(16), neonList(Neon.S4, neonScaling[i:i+4]))
	}
	neonZero(fn, neonWidth)
	neonZero(fn, neonAmax)
	fn.Note("V6…V18", "zero, largest amax, constants of the scales")
}

// result returns the largest amax.
func neonAmaxResult(fn *Func, tmp Reg) {
	fn.I("VUMAXV", neonAmax.S4(), neonAmax.S4())
	fn.I("VMOV", neonAmax.S4().lane(0), tmp)
	fn.I("MOVD", tmp, fn.FP("amax"))
	fn.Return()
}

// scales writes the kernel of scales alone.
func (q neonQuant) scales() {
	fn := q.Func("scalesNEON", `scalesNEON sets scales[i] to the scale of a block of amaxes[i], of a kind of neonScaling, and factors[i]
to the factor of its elements, i < 4·n, n > 0. It returns the bits of the largest amax; all ones where one needs the reference
implementation.`, "factors *float32, scales *byte, amaxes *uint32, n, kind int, s *neonScaling) (amax uint64")
	amaxes, factors, scales, kind := fn.Arg("amaxes"), fn.Arg("factors"), fn.Arg("scales"), fn.Arg("kind")
	n, tmp := fn.Arg("n"), fn.Arg("s")
	neonLoadScaling(fn, tmp)
	neonConstant(fn, neonRounding[2], 0x7f800000, tmp)
	loop := fn.Label("loop")
	fn.I("VLD1.P", amaxes.post(16), list(V(0).S4()))
	fn.Call(q.scale, scales, kind)
	fn.I("VST1.P", list(V(1).S4()), factors.post(16))
	fn.I("SUBS", 1, n)
	fn.Jump("BNE", loop)
	neonAmaxResult(fn, tmp)
}

// fused writes the kernel that quantizes rows.
func (q neonQuant) fused() {
	fn := q.Func("fuseNEON", `fuseNEON quantizes rows of groups of 4 blocks, at least one, of 16·units elements, float32 or BF16
(half), to codes of 8, 6 or 4 bits, or integers (0), and returns the bits of the largest magnitude; all ones where a block
must be encoded by the reference implementation. Gaps are the bytes from the end of a row to the next one.`, "p neonArgs) (amax uint64")
	src, half, scales, kind := fn.Arg("src"), fn.Arg("half"), fn.Arg("scales"), fn.Arg("kind")
	codes, bits, units := fn.Arg("codes"), fn.Arg("bits"), fn.Arg("units")
	groups, first, blocks := fn.Arg("groups"), fn.GP("elements of the group"), fn.GP("blocks left")
	left, buffer, tmp := fn.GP("units left"), fn.GP("position in the amaxes or factors of the group"), fn.GP("scratch")
	rows, c := fn.Arg("rows"), fn.Arg("c")
	fn.Frame(16)
	fn.I("MOVD", fn.FP("s"), tmp)
	neonLoadScaling(fn, tmp)
	q.codeConstants(fn, c, tmp)
	eachBlock := func(begin, unit, end func()) {
		fn.I("ADD", 8, RSP, buffer)
		fn.I("MOVD", 4, blocks)
		block := fn.Label("block")
		begin()
		fn.I("MOVD", units, left)
		loop := fn.Label("unit")
		unit()
		fn.I("SUBS", 1, left)
		fn.Jump("BNE", loop)
		end()
		fn.I("SUBS", 1, blocks)
		fn.Jump("BNE", block)
	}
	group := fn.Label("group")
	fn.I("MOVD", src, first)
	amax, abs := V(4), V(5)
	narrow, wide, sum, ends := fn.NewLabel("narrow"), fn.NewLabel("wide"), fn.NewLabel("sum"), fn.NewLabel("ends")
	eachBlock(func() {
		neonZero(fn, amax)
		neonConstant(fn, abs, 0x7fff7fff, tmp)
	}, func() {
		fn.I("CBNZ", half, string(narrow))
		fn.I("VLD1.P", src.post(64), neonList(Neon.S4, neonRange(0, 4)))
		for _, v := range neonRange(0, 4) {
			fn.I("VFABS", v.S4(), v.S4())
			fn.I("VUMAX", v.S4(), amax.S4(), amax.S4())
		}
		fn.Jump("B", wide)
		fn.Place(narrow)
		fn.I("VLD1.P", src.post(32), list(V(0).H8(), V(1).H8()))
		for _, v := range neonRange(0, 2) {
			fn.I("VAND", abs.B16(), v.B16(), v.B16())
			fn.I("VUMAX", v.H8(), amax.H8(), amax.H8())
		}
		fn.Place(wide)
	}, func() {
		fn.I("CBNZ", half, string(sum))
		fn.I("VUMAXV", amax.S4(), amax.S4())
		fn.Jump("B", ends)
		fn.Place(sum)
		fn.I("VUMAXV", amax.H8(), amax.H8())
		fn.I("VSHL", 16, amax.S4(), amax.S4())
		fn.Place(ends)
		fn.I("FMOVS.P", "F4", buffer.post(4))
	})
	fn.I("MOVD", first, src)
	fn.I("SUB", 16, buffer)
	fn.I("VLD1", "("+string(buffer)+")", list(V(0).S4()))
	fn.Call(q.scale, scales, kind)
	fn.I("VST1", list(V(1).S4()), "("+string(buffer)+")")
	eachBlock(func() { fn.I("VLD1R.P", buffer.post(4), list(neonRounding[0].S4())) }, func() {
		fn.Call(q.load, src, half)
		q.scaled(fn)
		q.codes(fn, bits)
		fn.Call(q.store, codes, bits)
	}, func() {})
	fn.I("SUBS", 1, groups)
	fn.Jump("BNE", group)
	fn.addGaps(tmp, map[string]Reg{"srcGap": src, "codeGap": codes, "scaleGap": scales})
	fn.I("MOVD", fn.FP("groups"), groups)
	fn.I("SUBS", 1, rows)
	fn.Jump("BNE", group)
	neonAmaxResult(fn, tmp)
}
