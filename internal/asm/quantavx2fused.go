package asm

import "math/bits"

const (
	lanes256 = 8   // blocks whose scales are computed at once
	group256 = 256 // elements of a group

	// Layout of the factors of a group, as yFactor, yAnchor and yWordBase have them.
	factorsBytes = 96
	anchors256   = 32 // of blocks of 32
	bases256     = 64 // of blocks whose codes have 8 bits, by words
)

// Registers of float32 under a global scale.
var (
	yLeast256  = Y(9) // smallest normal element
	yAnchor256 = Y(7) // of the rounding sum
)

// A fused256 is a fused kernel for AVX2, of groups of 256 elements.
type fused256 struct {
	*kernel256
	fusedLoop
	bits                   int // of a stored code
	integer, global, words bool
	first                  int    // block of the group whose scales are computed
	limit                  any    // memory of the largest code, in each byte, unless integer
	after                  func() // if not nil, prints what follows the end of the function
}

func quantFused256() *File {
	f := NewFile("quant", "fusedavx2")
	tables := makeTables256(f)
	for _, kind := range fusedKinds256() {
		k := &fused256{kernel256: &kernel256{tables256: tables, source: kind.source}, bits: kind.bits, integer: kind.integer,
			global: kind.global, words: kind.words}
		k.Func, k.c.names = kind.begin(f, "AVX2", k.blocks(), 32, false)
		k.emit(f)
	}
	return f
}

// fusedKinds256 returns the kinds that have kernels for AVX2.
func fusedKinds256() []fusedKind {
	var kinds []fusedKind
	for _, k := range fusedKinds() {
		switch {
		case k.bits == 4 && k.source == 16:
			k.words = true
		case k.bits == 8 && k.source == 16 && !k.integer:
			k.bits = 6
			words := k
			words.bits, words.words = 8, true
			kinds = append(kinds, words)
		}
		kinds = append(kinds, k)
	}
	return kinds
}

// rounds reports whether codes are rounded as float32: those of words only in some blocks.
func (k *fused256) rounds() bool { return !k.words || k.bits == 8 }

// blocks returns the number of blocks of a group.
func (k *fused256) blocks() int { return group256 / k.extent() }

// extent returns the number of elements that share a scale.
func (k *fused256) extent() int {
	if k.global {
		return 16
	}
	return 32
}

// factorBytes returns the size of what encode needs of a block.
func (k *fused256) factorBytes() int {
	if k.words && k.global {
		return 2
	}
	return 4
}

func (k *fused256) emit(f *File) {
	k.take(k.Func, &k.c.base)
	k.constants(f)
	k.I("LEAQ", k.reserve("buffer", 2*factorsBytes/32), k.write)
	k.I("LEAQ", k.write.At(factorsBytes), k.read)
	elements := 32
	if k.bits == 4 {
		elements = 64
	}
	k.run(k.Func, group256/elements, k.factorBytes()*elements/k.extent(), func() {
		switch {
		case k.global:
			k.globalScales(f)
		case k.words && k.bits == 4:
			k.foldAmaxes(f)
			k.firstQuarters(f)
		default:
			k.foldAmaxes(f)
			k.exponentFactors()
		}
		k.I("ADDQ", k.blocks(), k.scales)
		k.I("ADDQ", k.bytes(group256), k.next)
	}, func() {
		k.prefetchSource(k.Func, k.bytes(elements))
		k.codesOf(elements)
		k.store(elements)
		k.I("ADDQ", k.bytes(elements), k.src)
	})
	k.result()
	if k.after != nil {
		k.after()
	}
}

// nextRow moves to the next row of groups, if there is one.
func (fn *Func) nextRow(loop Label, groups, codes, scales, src Reg) {
	fn.I("MOVQ", fn.FP("groups"), groups)
	fn.I("ADDQ", fn.FP("codeGap"), codes)
	fn.I("ADDQ", fn.FP("scaleGap"), scales)
	fn.I("ADDQ", fn.FP("srcGap"), src)
	fn.I("SUBQ", 1, fn.FP("rows"))
	fn.Jump("JNZ", loop)
}

// constants fills the slots and registers of constants.
func (k *fused256) constants(f *File) {
	if k.global {
		k.spread("encode", "scaleLimit", "scaleLeast", "scaleAnchor")
		if !k.words {
			k.spread("decode", "rebias", "one", "most")
		}
		k.limit = f.shared("largestE2M1", repeated(0x0707070707070707))
	} else {
		k.spread("ratio", "up", "down", "low", "floor")
		if k.rounds() {
			k.spread("limit", "least", "base", "step", "anchor")
		}
		k.I("VPBROADCASTD", k.c.At("span"), Y(0)) // the first value beyond it
		k.I("VPCMPEQD", Y(1), Y(1), Y(1))
		k.I("VPSUBD", Y(1), Y(0), Y(0))
		k.I("VMOVDQU", Y(0), k.slot("beyond"))
		if k.rounds() {
			k.limit = k.slot("limit")
		}
	}
	if k.integer {
		k.I("VCVTPS2DQ", k.slot("limit"), Y(0))
		k.I("VPXOR", Y(1), Y(1), Y(1))
		k.I("VPSUBD", Y(0), Y(1), Y(0))
		k.I("VPACKSSDW", Y(0), Y(0), Y(0))
		k.I("VPACKSSWB", Y(0), Y(0), Y(0))
		k.I("VMOVDQU", Y(0), k.slot("limit")) // the least code, in each byte
	}
	k.zero("amax", "flags")
	switch {
	case k.words && k.global:
		k.loadCuts(f)
	case k.words && k.bits == 4:
		k.I("VMOVDQU", k.abs16, yAbs)
		k.loadQuarters(f)
	case k.words:
		k.spread("below")
		k.I("VMOVDQU", k.abs16, yAbs)
		k.loadBytes()
	default:
		k.load()
	}
	if k.global && !k.words {
		k.I("VPBROADCASTD", k.c.At("least"), yLeast256)
		k.I("VPBROADCASTD", k.c.At("anchor"), yAnchor256)
	}
}

// foldAmaxes leaves the amaxes of eight blocks of 32 in Y0, and raises the largest so far to them.
// Kernels share a routine.
func (k *fused256) foldAmaxes(f *File) {
	name := "amaxes" + sourceSuffix(k.source)
	r := f.routine(name)
	if r == nil {
		shared := *k
		kernel := *k.kernel256
		shared.kernel256 = &kernel
		r = f.Routine(name, name+" leaves the amaxes of 8 blocks of 32 in Y0.")
		r.Note(k.next, "the blocks")
		kernel.Func = r
		shared.amaxes()
		if k.source == 16 {
			shared.widenAmaxes()
		}
		r.Return()
	}
	k.Call(r, k.next)
	k.raiseAmax(Y(0))
}

// raiseAmax raises the largest amax so far to those in v, using Y1.
func (k *fused256) raiseAmax(v Vec) {
	k.I("VPMAXUD", k.slot("amax"), v, Y(1))
	k.I("VMOVDQU", Y(1), k.slot("amax"))
}

// amaxes leaves the amaxes of eight blocks of a group, in their order, in Y0: maxima
// of pairs of vectors, dwords, then quadwords, then halves changing places. Those of BF16 change places
// as words, dwords, then quadwords; the words of both halves of Y0 are then maxima of the same blocks. It uses Y1 to Y5.
func (k *fused256) amaxes() {
	greater, steps := "VPMAXUD", foldSteps256
	if k.source == 16 {
		greater, steps = "VPMAXUW", foldSteps
	}
	free := []Vec{Y(0), Y(1), Y(2), Y(3), Y(4), Y(5)}
	take := func() Vec { v := free[0]; free = free[1:]; return v }
	release := func(v Vec) { free = append([]Vec{v}, free...) }
	var fold func(first, n int) Vec
	fold = func(first, n int) Vec {
		a := take()
		if n == 1 {
			k.blockMaxima(k.next.At((k.first+first)*k.bytes(k.extent())), a, free[0])
			return a
		}
		release(a)
		a, b := fold(first, n/2), fold(first+n/2, n/2)
		t := take()
		foldBy(k, steps[bits.Len(uint(n))-2], greater, a, b, t, a)
		release(t)
		release(b)
		return a
	}
	fold(0, lanes256)
}

// widenAmaxes leaves the amaxes of eight blocks, as words in both halves of Y0, there as float32.
func (k *fused256) widenAmaxes() {
	k.I("VEXTRACTI128", 1, Y(0), X(1))
	k.I("VPMAXUW", X(1), X(0), X(0))
	k.I("VPMOVZXWD", X(0), Y(0))
	k.I("VPSLLD", 16, Y(0), Y(0))
}

// foldSteps256 are the foldSteps of dwords, quadwords and halves.
var foldSteps256 = [][2]instruction{foldSteps[1], foldSteps[2], {{"VPERM2I128", []any{0x20}}, {"VPERM2I128", []any{0x31}}}}

// blockMaxima sets v to the maxima of the block at at in each lane, using t.
func (k *fused256) blockMaxima(at Mem, v, t Vec) {
	greater := "VPMAXUD"
	if k.source == 16 {
		greater = "VPMAXUW"
	}
	for i := range k.bytes(k.extent()) / 32 {
		if i == 0 {
			k.I("VPAND", at, yAbs, v)
			continue
		}
		k.I("VPAND", at.At(32*i), yAbs, t)
		k.I(greater, t, v, v)
	}
}

// storeScales stores the low bytes of the dwords of v, which have no others.
func (k *fused256) storeScales(v, t Vec) {
	k.I("VEXTRACTI128", 1, v, t.X())
	k.I("VPACKUSDW", t.X(), v.X(), t.X())
	k.I("VPACKUSWB", t.X(), t.X(), t.X())
	k.I("VMOVQ", t.X(), k.scales.At(0))
}

// flag sets flags where v has a dword of ones.
func (k *fused256) flag(v Vec) {
	k.I("VPOR", k.slot("flags"), v, v)
	k.I("VMOVDQU", v, k.slot("flags"))
}

// exponentScales stores the E8M0 scales of the amaxes in Y0 and leaves their codes there.
func (k *fused256) exponentScales() {
	amax, code, t, zero, u := Y(0), Y(0), Y(1), Y(2), Y(3)
	k.I("VPXOR", zero, zero, zero)
	k.I("VPSUBD", k.slot("low"), amax, t)
	k.I("VPMAXUD", k.slot("beyond"), t, u)
	k.I("VPCMPEQD", u, t, t)
	k.I("VPCMPEQD", zero, amax, u)
	k.I("VPANDN", t, u, t)
	k.flag(t)
	k.I("VMULPS", k.slot("ratio"), amax, amax)
	k.I("VPADDD", k.slot("up"), amax, amax)
	k.I("VPSRLD", 23, amax, code)
	k.I("VPSUBD", k.slot("down"), code, code)
	k.I("VPMAXSD", zero, code, code)
	k.storeScales(code, t)
}

// exponentFactors is fused.exponentFactors: of the amaxes in Y0 the scales, and in
// slots the binade of the smallest normal element and the anchor of its rounding.
func (k *fused256) exponentFactors() {
	code, t, u := Y(0), Y(1), Y(3)
	k.exponentScales()
	k.I("VPMAXSD", k.slot("floor"), code, code)
	k.I("VMOVDQU", k.slot("base"), t)
	k.I("VPSUBD", code, t, t)
	if k.integer {
		k.I("VPSLLD", 23, t, t)
		k.I("VMOVDQU", t, k.write.At(0))
		return
	}
	k.I("VPSUBD", k.slot("least"), code, u)
	k.I("VPSLLD", 23, u, u)
	k.I("VMOVDQU", u, k.write.At(0))
	k.I("VPSLLVD", k.slot("step"), t, t)
	k.I("VPSLLD", 16, t, t) // modulo 2^16
	k.I("VPSRLD", 16, t, t)
	k.I("VPOR", k.slot("anchor"), t, t)
	k.I("VMOVDQU", t, k.write.At(anchors256))
	if k.words {
		k.byteBases(u, t)
	}
}

// codesOf computes the codes of a number of elements: the last 32 in Y0, the 32 before them in yFirst, where store takes them.
func (k *fused256) codesOf(elements int) {
	if k.words && k.global {
		k.cutPairs()
		return
	}
	for u := range elements / 32 {
		k.unit(u)
		if u+1 < elements/32 {
			k.I("VMOVDQA", Y(0), yFirst)
		}
	}
}

// unit leaves the codes of 32 elements in Y0: those of 8 or 6 bits without their signs, which
// are the first bits of the bytes of Y4.
func (k *fused256) unit(u int) {
	x := k.vectors(k.src.At(u * k.bytes(32)))
	first := 4 * u * 32 / k.extent()
	if !k.words {
		k.I("VBROADCASTSS", k.read.At(first), yFactor)
	}
	switch {
	case k.words && k.bits == 8:
		k.byteCodes(x)
		return
	case k.words:
		k.quarterCodes(x, first)
	case k.integer:
		k.integers(x)
		return
	case k.global:
		k.I("VBROADCASTSS", k.read.At(first+4), yFactor2)
		k.codes(x, func(i int, a, e Vec) {
			k.I("VMULPS", []Vec{yFactor, yFactor2}[i/2], a, a)
			k.I("VPAND", yBinade, a, e)
			k.I("VPMAXSD", yLeast256, e, e)
			k.I("VFMADD132PS", yAnchor256, a, e)
		})
		k.I("VPMINUB", k.limit, Y(0), Y(0))
	default:
		k.I("VBROADCASTSS", k.read.At(anchors256+first), yAnchor)
		k.exponentCodes(x)
	}
	k.signs(x)
	if k.bits == 4 {
		k.I("VPSRLW", 7-packings[4].sign, Y(4), Y(4))
		k.I("VPOR", Y(4), Y(0), Y(0))
	}
}

// exponentCodes is codes by the binade in yFactor and the anchor in yAnchor.
func (k *fused256) exponentCodes(x []Mem) {
	k.codes(x, func(_ int, a, e Vec) {
		k.I("VPAND", yBinade, a, e)
		k.I("VPMAXSD", yFactor, e, e)
		k.I("VFMADD213PS", a, yAnchor, e)
	})
	k.I("VPMINUB", k.limit, Y(0), Y(0)) // some scale rules leave the largest magnitude above it
}

// integers is unit for INT8: packing saturates, but at one below the least code.
func (k *fused256) integers(x []Mem) {
	for i := range 4 {
		v := Y(i)
		switch {
		case k.source == 32:
			k.I("VMULPS", x[i], yFactor, v)
		case i%2 == 0:
			k.I("VMOVDQU", x[i/2], Y(7))
			k.I("VPUNPCKLWD", Y(7), yZero, v)
			k.I("VMULPS", yFactor, v, v)
		default:
			k.I("VPUNPCKHWD", Y(7), yZero, v)
			k.I("VMULPS", yFactor, v, v)
		}
		k.I("VCVTPS2DQ", v, v)
	}
	k.I("VPACKSSDW", Y(1), Y(0), Y(0))
	k.I("VPACKSSDW", Y(3), Y(2), Y(2))
	k.I("VPACKSSWB", Y(2), Y(0), Y(0))
	k.I("VPMAXSB", k.slot("limit"), Y(0), Y(0))
}

// store stores the codes in Y0, and those in yFirst where they have 4 bits.
func (k *fused256) store(elements int) {
	stored := k.NewLabel("stored")
	switch {
	case k.words && k.global:
		k.pairsBy(yCutNibbles, yCutOrder)
	case k.bits == 4:
		k.pairs()
	case k.bits == 6:
		k.storeSixes()
		return
	case k.integer || k.words:
		k.sort()
	default:
		other := k.NewLabel("other")
		k.I("CMPL", k.c.At("bits"), "$6")
		k.Jump("JNE", other)
		k.storeSixes()
		k.Jump("JMP", stored)
		k.Place(other)
		k.I("VPOR", Y(4), Y(0), Y(0))
		k.sort()
	}
	if k.words && k.global {
		k.I("MOVQ", k.FP("codeAhead"), k.codeAhead)
	}
	k.storeCodes("VMOVDQU", Y(0), k.dst.At(0), k.codeAhead)
	k.I("ADDQ", elements*k.bits/8, k.dst)
	k.Place(stored)
}

// storeSixes stores 32 codes of 6 bits.
func (k *fused256) storeSixes() {
	k.I("VPSRLW", 7-packings[6].sign, Y(4), Y(4))
	k.I("VPOR", Y(4), Y(0), Y(0))
	k.sort()
	k.I("VPMADDUBSW", k.sixes, Y(0), Y(0))
	k.I("VPMADDWD", k.twelves, Y(0), Y(0))
	k.I("VPSHUFB", k.triples, Y(0), Y(0))
	k.I("VMOVDQU", k.packed, Y(4))
	k.I("VPERMD", Y(0), Y(4), Y(0))
	k.I("VMOVDQU", X(0), k.dst.At(0))
	k.I("VEXTRACTI128", 1, Y(0), X(0))
	k.I("VMOVQ", X(0), k.dst.At(16))
	k.I("ADDQ", 24, k.dst)
}

// result returns the largest amax, or all ones if a flag is set.
func (k *fused256) result() {
	done := k.NewLabel("done")
	k.Comment("the largest amax; all ones where a block was flagged")
	k.I("VMOVDQU", k.slot("amax"), Y(2))
	if k.words && k.global { // words
		k.I("VPSLLD", 16, Y(2), Y(0))
		k.I("VPMAXUD", Y(0), Y(2), Y(2))
		k.I("VPAND", k.upper, Y(2), Y(2))
	}
	k.maxDword256(Y(2), k.left)
	flagged := k.NewLabel("flagged")
	if k.global {
		k.I("CMPL", k.left, k.c.At("infinity"))
		k.Jump("JCC", flagged)
	}
	k.I("VMOVDQU", k.slot("flags"), Y(2))
	k.I("VPTEST", Y(2), Y(2))
	k.Jump("JZ", done)
	k.Place(flagged)
	k.I("MOVL", -1, k.left)
	k.Place(done)
	k.I("MOVQ", k.left, k.FP("amax"))
	k.Return()
}
