package asm

import "fmt"

// neonPacks writes the functions of arm64 that pack panels of float32 or BF16, 8 rows at a time. A loop of n groups of
// 8 bytes of each row (or of 8 elements that are wider) transposes first, so that the 8 lanes of a step,
// and their scales, are in order. Instructions per element, loop control included:
//
//	float32   1.1   transposeDwords8
//	BF16      1.1   packHalvesF32
//	8 bits    2.3   packFloatsF32: E4M3, E5M2, and formats of 6 bits, one code per byte
//	          1.5   packIntegersF32
//	4 bits    1.2   packNibblesF32
//
// BF16 panels, which are wide, take as many: an instruction joins the upper halves of each 4 lanes of two positions, two more those of
// four, and one store of four remains.
func neonPacks(f *File) {
	neonDwords(f)
	neonQuads(f)
	neonHalves(f)
	for _, panel := range []string{"F32", "BF16"} {
		neonFloats(f, panel)
		neonIntegers(f, panel)
		neonNibbles(f, panel)
	}
	neonWidePacks(f)
}

// A neonPack is the part that these functions share.
type neonPack struct {
	fn                           *Func
	dst, src, stride, step, n, p Reg
	joins                        bool // four positions, as BF16
	position                     int  // of the four
}

func newNeonPack(f *File, name, doc, params string) *neonPack {
	fn := f.Func(name, doc, params)
	return &neonPack{fn: fn, dst: fn.Arg("dst"), src: fn.Arg("src"), stride: fn.Arg("stride"), step: fn.Arg("step"), n: fn.Arg("n"),
		p: fn.GP("row")}
}

// load loads the current position of all rows to V0…V7 and advances it.
func (k *neonPack) load(lanes func(Neon) Neon, advance int) {
	k.fn.I("MOVD", k.src, k.p)
	for i := range 8 {
		k.fn.I("VLD1.P", "("+string(k.p)+")("+string(k.stride)+")", list(lanes(V(i))))
	}
	k.fn.I("ADD", advance, k.src)
}

// neonShuffle interleaves the first half of a list of vectors with the second. Of the index of an
// element in the list, the highest bit becomes the lowest.
func neonShuffle(fn *Func, lanes func(Neon) Neon, in, out []Neon) {
	half := len(in) / 2
	for i := range half {
		for j, zip := range []string{"VZIP1", "VZIP2"} {
			if at := 2*i + j; at < len(out) {
				fn.I(zip, lanes(in[half+i]), lanes(in[i]), lanes(out[at]))
			}
		}
	}
}

// neonRange returns n registers from V(first) on.
func neonRange(first, n int) (regs []Neon) {
	for i := range n {
		regs = append(regs, V(first+i))
	}
	return regs
}

// transposeBytes loads 8 bytes of each row, and sets V8…V11 to pairs of columns.
func (k *neonPack) transposeBytes() {
	k.load(Neon.B8, 8)
	for i := range 4 {
		k.fn.I("VZIP1", V(4+i).B16(), V(i).B16(), V(8+i).B16())
	}
	neonShuffle(k.fn, Neon.B16, neonRange(8, 4), neonRange(0, 4))
	neonShuffle(k.fn, Neon.B16, neonRange(0, 4), neonRange(8, 4))
}

// store stores the lanes of a step.
func (k *neonPack) store(low, high Neon) {
	k.fn.I("VST1", list(low.S4(), high.S4()), "("+string(k.dst)+")")
	k.fn.I("ADD", k.step, k.dst)
}

// storeWide stores the lanes of two steps of a wide panel: 8 bytes of each two lanes in a register.
func (k *neonPack) storeWide(pairs []Neon) {
	k.fn.I("VST1", list(neonEach(Neon.D2, pairs)...), "("+string(k.dst)+")")
	k.fn.I("ADD", k.step, k.dst)
}

// loop calls body n times, and ends the function.
func (k *neonPack) loop(body func()) {
	loop := k.fn.Label("loop")
	body()
	k.fn.I("SUBS", 1, k.n)
	k.fn.Jump("BNE", loop)
}

func neonDwords(f *File) {
	k := newNeonPack(f, "transposeDwords8", "transposeDwords8 copies 8 rows, stride bytes apart, to a panel: the first dword of\nevery "+
		"row, then the second ones, 8·n in all, step bytes apart.", "dst, src unsafe.Pointer, stride, step, n int")
	k.loop(func() {
		for range 2 {
			k.load(Neon.S4, 16)
			for first := 0; first < 8; first += 4 {
				neonShuffle(k.fn, Neon.S4, neonRange(first, 4), neonRange(8+first, 4))
				neonShuffle(k.fn, Neon.S4, neonRange(8+first, 4), []Neon{V(16 + first/4), V(18 + first/4), V(20 + first/4), V(22 + first/4)})
			}
			for d := range 4 {
				k.store(V(16+2*d), V(17+2*d))
			}
		}
	})
	k.fn.Return()
}

func neonQuads(f *File) {
	k := newNeonPack(f, "transposeQuads8", "transposeQuads8 copies 8 rows, stride bytes apart, to a wide panel: the first 8 bytes of\nevery "+
		"row, then the second ones, 2·n in all, step bytes apart.", "dst, src unsafe.Pointer, stride, step, n int")
	k.loop(func() {
		k.load(Neon.D2, 16)
		for half, zip := range []string{"VZIP1", "VZIP2"} {
			pairs := neonRange(8+4*half, 4)
			for i, pair := range pairs {
				k.fn.I(zip, V(2*i+1).D2(), V(2*i).D2(), pair.D2())
			}
			k.storeWide(pairs)
		}
	})
	k.fn.Return()
}

func neonHalves(f *File) {
	k := newNeonPack(f, "packHalvesF32", "packHalvesF32 packs 8 rows of BF16, stride bytes apart, as 8·n steps of a float32\npanel, step "+
		"bytes apart.", "dst, src unsafe.Pointer, stride, step, n int")
	neonZero(k.fn, V(16))
	k.loop(func() {
		k.load(Neon.H8, 16)
		neonShuffle(k.fn, Neon.H8, neonRange(0, 8), neonRange(8, 8))
		neonShuffle(k.fn, Neon.H8, neonRange(8, 8), neonRange(0, 8))
		neonShuffle(k.fn, Neon.H8, neonRange(0, 8), neonRange(8, 8))
		for i := range 8 {
			neonShuffle(k.fn, Neon.H8, []Neon{V(16), V(8 + i)}, neonRange(0, 2)) // BF16 is the upper half of a float32
			k.store(V(0), V(1))
		}
	})
	k.fn.Return()
}

// neonPackParams are the parameters of functions that decode codes.
const neonPackParams = "dst, src unsafe.Pointer, stride int, scales unsafe.Pointer, step, n int"

var neonLaneScales = neonRange(24, 2) // of the rows

// loadScales loads the scales of the rows.
func (k *neonPack) loadScales() {
	k.fn.I("MOVD", k.fn.FP("scales"), k.p)
	k.fn.I("VLD1", "("+string(k.p)+")", list(neonLaneScales[0].S4(), neonLaneScales[1].S4()))
	k.fn.Note("V24 V25", "scales of the rows")
}

// newNeonPacker begins a function that packs codes for panels of a type, which are as described.
func newNeonPacker(f *File, name, panel, codes string, positions int, doc, params string) *neonPack {
	name += panel
	count, steps, kind := positions, "steps", "float32"
	if panel == "BF16" {
		count, steps, kind = positions/4, "pairs of steps", "wide BF16"
	}
	k := newNeonPack(f, name, fmt.Sprintf(`%s packs 8 rows of %s, stride bytes apart, as %d·n %s of a
%s panel, step bytes apart: their values, times the scale of the row.%s`, name, codes, count, steps, kind, doc), neonPackParams+params)
	k.joins = panel == "BF16"
	return k
}

// storeScaled multiplies the lanes of a position by the scales and stores them, or joins those of four positions first.
func (k *neonPack) storeScaled(low, high Neon) {
	first, joined, to := neonRange(12, 2), neonRange(14, 2), []Neon{low, high}
	if k.joins {
		to = [][]Neon{first, joined, first, to}[k.position]
	}
	for i, v := range []Neon{low, high} {
		k.fn.I("VFMUL", neonLaneScales[i].S4(), v.S4(), to[i].S4())
		if k.joins && k.position%2 == 1 { // BF16 is the upper half of a float32
			k.fn.I("VSRI", 16, first[i].S4(), to[i].S4())
		}
	}
	if !k.joins {
		k.store(low, high)
		return
	}
	if k.position++; k.position == 4 {
		k.position = 0
		pairs := neonRange(16, 4)
		neonShuffle(k.fn, Neon.S4, append(joined, to...), pairs)
		k.storeWide(pairs)
	}
}

// neonFloats moves the magnitude of a code to the exponent and mantissa of a float16, as floatsToF32 does.
func neonFloats(f *File, panel string) {
	k := newNeonPacker(f, "packFloats", panel, "byte codes", 8, ` It reports codes
that are not finite; the panel is invalid then.`, ", c *floatCodes) (found uint64")
	fn, c, tmp := k.fn, k.fn.Arg("c"), k.fn.GP("scratch")
	magnitude, shift, signShift, sign, factor, worst := V(26), V(27), V(28), V(29), V(30), V(31)
	const largestAt, factorAt = 64, 80
	k.loadScales()
	fn.I("VLD1", "("+string(c)+")", list(magnitude.H8(), shift.H8(), signShift.H8(), sign.H8()))
	neonLoad(fn, factor, c, factorAt, tmp)
	neonZero(fn, worst)
	fn.Note("V26…V30", "constants of floatCodes")
	fn.Note("V31", "maximum of the magnitudes of codes")
	k.loop(func() {
		k.transposeBytes()
		for i := range 4 {
			for half, widen := range []string{"VUXTL", "VUXTL2"} {
				codes, words, signs := V(8+i).B8(), V(0), V(1)
				if half == 1 {
					codes = V(8 + i).B16()
				}
				fn.I(widen, codes, words.H8())
				fn.I("VMUL", signShift.H8(), words.H8(), signs.H8())
				fn.I("VAND", magnitude.B16(), words.B16(), words.B16())
				fn.I("VUMAX", words.H8(), worst.H8(), worst.H8())
				fn.I("VMUL", shift.H8(), words.H8(), words.H8())
				fn.I("VAND", sign.B16(), signs.B16(), signs.B16())
				fn.I("VORR", signs.B16(), words.B16(), words.B16())
				fn.I("VFCVTL", words.H4(), V(2).S4())
				fn.I("VFCVTL2", words.H8(), V(3).S4())
				for _, v := range neonRange(2, 2) {
					fn.I("VFMUL", factor.S4(), v.S4(), v.S4())
				}
				k.storeScaled(V(2), V(3))
			}
		}
	})
	fn.I("VUMAXV", worst.H8(), worst.H8())
	fn.I("VMOV", "V31.H[0]", tmp)
	fn.I("MOVHU", c.At(largestAt), k.p)
	fn.I("CMP", k.p, tmp)
	fn.I("CSET", "HI", tmp)
	fn.I("MOVD", tmp, fn.FP("found"))
	fn.Return()
}

// neonIntegers converts fixed-point numbers of 6 fractional bits.
func neonIntegers(f *File, panel string) {
	const fraction = 6 // bits of INT8
	k := newNeonPacker(f, "packIntegers", panel, "INT8", 8, "", "")
	fn := k.fn
	k.loadScales()
	k.loop(func() {
		k.transposeBytes()
		for i := range 4 {
			fn.I("VSSHLL", 0, V(8+i).B8(), V(0).H8())
			fn.I("VSSHLL2", 0, V(8+i).B16(), V(1).H8())
			for j := range 2 {
				fn.I("VSSHLL", 0, V(j).H4(), V(2).S4())
				fn.I("VSSHLL2", 0, V(j).H8(), V(3).S4())
				for _, v := range neonRange(2, 2) {
					fn.I("VSCVTF.X", fraction, v.S4(), v.S4())
				}
				k.storeScaled(V(2), V(3))
			}
		}
	})
	fn.Return()
}

// neonNibbles looks up the upper byte of a float16; the lower one is zero.
func neonNibbles(f *File, panel string) {
	k := newNeonPacker(f, "packNibbles", panel, "4-bit codes", 16, ` The upper bytes
of the values as float16 are in table, 16 bytes; the lower ones are zero.`, ", table unsafe.Pointer")
	fn, table := k.fn, k.fn.Arg("table")
	zero, low, values := V(26), V(27), V(28)
	k.loadScales()
	neonZero(fn, zero)
	fn.I("VMOVI", 0x0f, low.B16())
	fn.I("FMOVQ", table.At(0), "F28")
	fn.Note("V26…V28", "zero; mask of low nibbles; table")
	k.loop(func() {
		k.transposeBytes()
		for i := range 4 {
			nibbles := []Neon{V(0), V(1)} // of even and odd positions
			fn.I("VAND", low.B16(), V(8+i).B16(), nibbles[0].B16())
			fn.I("VUSHR", 4, V(8+i).B16(), nibbles[1].B16())
			for _, v := range nibbles {
				fn.I("VTBL", v.B16(), list(values.B16()), v.B16())
			}
			for _, zip := range []string{"VZIP1", "VZIP2"} {
				for _, v := range nibbles {
					fn.I(zip, v.B16(), zero.B16(), V(2).B16())
					fn.I("VFCVTL2", V(2).H8(), V(3).S4())
					fn.I("VFCVTL", V(2).H4(), V(2).S4())
					k.storeScaled(V(2), V(3))
				}
			}
		}
	})
	fn.Return()
}
