package asm

// AVX2 kernels of E4M3 scales under a global scale. Codes of BF16 are found by words that are compared with
// the cuts of a scale, a row of quant's globalCuts. Cuts at 1.25, 2.5 and 5 times the scale are a binade apart, as
// are those at 1.75 and 3.5, so that a difference of bits, without its mantissa, counts the cuts that it passed.

// Of the rows of globalCuts, which begin after its constants. TestCutsLayout of package quant has the same numbers.
const (
	cutRowShift = 7  // a row has 128 bytes
	cutBytes    = 32 // of a cut, as words: 1.25 times the scale and 1.75 times, both less a binade, then
	// the last magnitudes below 0.25 times the scale and 0.75 times
	firstRow = 64
)

// Registers of constants that codes are made with.
var (
	yCutNibbles = Y(9)  // tables256.nibbles
	yCutOrder   = Y(10) // tables256.order
	yCutLimit   = Y(11) // the largest code, in each byte
	yCutSign    = Y(13) // the sign bit of a code, in each byte
)

// loadCuts fills the registers of codes by cuts, and those of their scales.
func (k *fused256) loadCuts(f *File) {
	k.I("VMOVDQU", k.binade, yBinade)
	k.I("VMOVDQU", k.low, yLow)
	k.I("VMOVDQU", k.abs16, yAbs)
	k.I("VMOVDQU", k.nibbles, yCutNibbles)
	k.I("VMOVDQU", k.order, yCutOrder)
	k.I("VMOVDQU", k.limit, yCutLimit)
	k.I("VMOVDQU", f.shared("signE2M1", repeated(0x0808080808080808)), yCutSign)
}

// globalScales stores the scales of a group, e4m3(amax·encode), and in a slot what encode needs of each: the
// offset of its cuts, or 1/(scale·decode), kept finite.
func (k *fused256) globalScales(f *File) {
	for i := range 2 {
		k.first = i * lanes256
		k.amaxes()
		if i == 0 {
			k.I("VMOVDQA", Y(0), yFirst)
		}
	}
	if k.words {
		k.cutScales(f)
		return
	}
	amaxes, scales := [2]Vec{yFirst, Y(0)}, [2]Vec{Y(2), Y(3)}
	k.I("VPMAXUD", amaxes[1], amaxes[0], Y(1))
	k.raiseAmax(Y(1))
	k.scaleCodes(amaxes, scales)
	k.I("VPACKUSDW", scales[1], scales[0], Y(0)) // quarters of the scales in the order 0 2 1 3
	k.I("VPACKUSWB", Y(0), Y(0), Y(1))
	k.I("VEXTRACTI128", 1, Y(1), X(5))
	k.I("VPUNPCKLDQ", X(5), X(1), X(1))
	k.I("VMOVDQU", X(1), k.scales.At(0))
	for i, t := range scales {
		k.I("VPSLLD", 20, t, t)
		k.I("VMULPS", k.slot("rebias"), t, t)
		k.I("VMULPS", k.slot("decode"), t, t)
		k.I("VMOVUPS", k.slot("one"), Y(1))
		k.I("VDIVPS", t, Y(1), t)
		k.I("VMINPS", k.slot("most"), t, t)
		k.I("VMOVDQU", t, k.write.At(32*i))
	}
}

// scaleCodes sets the dwords of scales to e4m3(amax·encode), and changes amaxes. It uses Y1 and Y4.
func (k *fused256) scaleCodes(amaxes, scales [2]Vec) {
	for _, step := range []func(a, t, u Vec){
		func(a, _, _ Vec) { k.I("VMULPS", k.slot("encode"), a, a) },
		func(a, _, _ Vec) { k.I("VMINPS", k.slot("scaleLimit"), a, a) },
		func(a, t, _ Vec) { k.I("VPAND", yBinade, a, t) },
		func(_, t, _ Vec) { k.I("VPMAXUD", k.slot("scaleLeast"), t, t) },
		func(a, t, _ Vec) { k.I("VFMADD132PS", k.slot("scaleAnchor"), a, t) },
		func(_, t, u Vec) { k.I("VPSRLD", 20, t, u) },
		func(_, t, u Vec) { k.I("VPADDD", u, t, t) },
		func(_, t, _ Vec) { k.I("VPAND", yLow, t, t) },
	} {
		for i := range amaxes {
			step(amaxes[i], scales[i], []Vec{Y(1), Y(4)}[i])
		}
	}
}

// cutScales stores the scales of a group, and the offsets of their cuts as words. yFirst and Y0 have its amaxes as amaxes leaves them.
func (k *fused256) cutScales(f *File) {
	words, zero := Y(5), Y(2)
	foldBy(k, foldSteps256[2], "VPMAXUW", yFirst, Y(0), Y(1), words)
	k.I("VPXOR", zero, zero, zero)
	k.I("VPMAXUW", k.slot("amax"), words, Y(1))
	k.I("VPUNPCKLWD", words, zero, yFirst)
	k.I("VPUNPCKHWD", words, zero, Y(0))
	k.I("VMOVDQU", Y(1), k.slot("amax"))
	k.scaleCodes([2]Vec{yFirst, Y(0)}, [2]Vec{Y(2), Y(3)})
	k.I("VPACKUSDW", Y(3), Y(2), Y(0))
	k.I("VPACKUSWB", Y(0), Y(0), Y(1))
	k.I("VPSLLW", cutRowShift, Y(0), Y(2))
	k.I("VPERMQ", 0x08, Y(1), Y(1)) // the first quadword of each half
	k.I("VMOVDQU", Y(2), k.write.At(0))
	k.I("VMOVDQU", X(1), k.scales.At(0))
	k.checkZeroScales(f, Y(0), words)
}

// checkZeroScales sets flags where a block with a magnitude has the scale 0, and one of the blocks of the group has
// a magnitude below 2^-124. Under this scale those need not be the largest code; all above are. scales and amaxes are words
// in the same order.
func (k *fused256) checkZeroScales(f *File, scales, amaxes Vec) {
	const above = 0x0180 // 2^-124
	limit := f.shared("aboveZero", repeated((above-2)*0x0001000100010001))
	done, t, ones, zero, found := k.NewLabel("done"), Y(4), Y(6), Y(1), yFirst
	k.I("VPXOR", zero, zero, zero)
	k.I("VPCMPEQW", zero, scales, scales)
	k.I("VPCMPEQW", zero, amaxes, amaxes)
	k.I("VPANDN", scales, amaxes, t)
	k.I("VPTEST", t, t)
	k.Jump("JZ", done)
	k.I("VPXOR", found, found, found)
	k.I("VPCMPEQD", ones, ones, ones)
	k.I("XORL", k.left, k.left)
	loop := k.Label("tiny")
	k.I("VPAND", k.next.At(0).By(k.left, 1), yAbs, t)
	k.I("VPADDW", ones, t, t) // zero becomes the largest word
	k.I("VPMINUW", limit, t, scales)
	k.I("VPCMPEQW", scales, t, t)
	k.I("VPOR", t, found, found)
	k.I("ADDQ", k.bytes(16), k.left)
	k.I("CMPQ", k.left, k.bytes(group256))
	k.Jump("JL", loop)
	k.flag(found)
	k.Place(done)
}

// cutPairs leaves the codes of 64 elements in Y0. The offsets of their rows are the next factors. It uses
// k.codeAhead as a scratch register. The steps of two vectors alternate, so that fewer instructions of the
// processor's scheduler wait for others in it.
func (k *fused256) cutPairs() {
	x := append(k.vectors(k.src.At(0)), k.vectors(k.src.At(k.bytes(32)))...)
	counts := func(i int) (n, t, below, above Vec) {
		first := i % 2 * 4
		return Y(first), Y(first + 1), Y(first + 2), Y(first + 3)
	}
	compare := func(i int) {
		n, t, below, above := counts(i)
		cut := func(c int) Mem { return k.c.base.At(firstRow+c*cutBytes).By(k.codeAhead, 1) }
		k.I("MOVWLZX", k.read.At(k.factorBytes()*i), k.codeAhead)
		k.I("VPAND", x[i], yAbs, above)
		k.I("VPSUBUSW", cut(0), above, n)
		k.I("VPSUBUSW", cut(1), above, t)
		k.I("VPCMPGTW", cut(2), above, below)
		k.I("VPCMPGTW", cut(3), above, above)
	}
	count := func(i int) {
		n, t, below, above := counts(i)
		k.I("VPSRLW", 7, n, n)
		k.I("VPSRLW", 7, t, t)
		k.I("VPADDW", above, below, below)
		k.I("VPADDW", t, n, n)
		k.I("VPSUBW", below, n, n)
	}
	signed := func(i int, dst Vec) {
		codes, t, signs := Y(0), Y(1), Y(5)
		k.I("VMOVDQU", x[i], signs)
		k.I("VPACKUSWB", Y(4), codes, codes)
		k.I("VPACKSSWB", x[i+1], signs, signs)
		k.I("VPMINUB", yCutLimit, codes, codes)
		k.I("VPOR", yCutSign, codes, t)
		k.I("VPBLENDVB", signs, t, codes, dst)
	}
	for u, dst := range []Vec{yFirst, Y(0)} {
		compare(2 * u)
		compare(2*u + 1)
		count(2 * u)
		count(2*u + 1)
		signed(2*u, dst)
	}
}
