package asm

// AVX2 kernels find codes of 4 and 8 bits from BF16 by the bits of magnitudes as words. Quarters of binades
// begin at significands 1, 1.25, 1.5 and 1.75.
//
// Under E8M0 scales, all magnitudes of a quarter have one code: those above its first value, or from
// it on in the upper half of a binade, where ties go to the code above.
//
// Under E4M3 scales, words are compared with the cuts of a scale, a row of quant's globalCuts. Cuts at
// 1.25, 2.5 and 5 times the scale are a binade apart, as are those at 1.75 and 3.5, so that a difference of
// bits, without its mantissa, counts the cuts that it passed.
//
// Of codes of 8 bits, exponent and mantissa lie in those of an element: a code is a difference of bits, less those of the
// mantissa that are dropped. With one less than half a step added before, the truncated difference is rounded to nearest, but for a
// tie between an odd code and the even one above: there, all bits that are dropped, and the last that stays, are set. That is not so of
// codes of subnormal elements: a block that has one is rounded as float32.

// Registers of E8M0 scales, and codes of 4 bits.
var (
	yWordOne     = Y(9)
	yQuarter     = Y(10) // bits of a quarter of the scale
	yQuarters    = Y(11) // codes of quarters
	yLastQuarter = Y(12) // the last one before those of the largest code
	yQuarterMax  = Y(13) // the last one of yQuarters
)

// Registers of codes of 8 bits.
var (
	yByteLimit  = Y(8)  // the largest code
	yWordLow    = Y(9)  // the bits that are dropped and the last that stays
	yWordBase   = Y(10) // of a block: the bits of its code 0, if it were normal, less half the least bit that stays, plus 1
	yWordTimes  = Y(11) // what moves the bits that stay to bit 0 of the upper half of a product
	yByteTie    = Y(12) // yWordLow in each byte
	yByteNormal = Y(13) // the least normal code
	yByteSign   = Y(14)
)

// loadBytes fills the registers of codes of 8 bits.
func (k *fused256) loadBytes() {
	k.I("VMOVDQU", k.limit, yByteLimit)
	k.I("VMOVDQU", k.sign, yByteSign)
	k.I("VPBROADCASTD", k.c.At("wordLow"), yWordLow)
	k.I("VPBROADCASTD", k.c.At("wordTimes"), yWordTimes)
	k.I("VPBROADCASTD", k.c.At("byteTie"), yByteTie)
	k.I("VPBROADCASTD", k.c.At("byteNormal"), yByteNormal)
}

// byteBases stores yWordBase of blocks whose smallest normal element, as float32, is in least. It changes least and t.
func (k *fused256) byteBases(least, t Vec) {
	k.I("VPSRLD", 16, least, least)
	k.I("VPSUBD", k.slot("below"), least, least)
	k.I("VPSLLD", 16, least, t)
	k.I("VPOR", t, least, least)
	k.I("VMOVDQU", least, k.write.At(bases256))
}

// byteCodes leaves the codes of 32 elements, a block, in Y0.
func (k *fused256) byteCodes(x []Mem) {
	dropped, codes := [2]Vec{Y(0), Y(1)}, [2]Vec{Y(2), Y(3)}
	source := [2]Vec{Y(6), Y(7)}
	subnormal := k.NewLabel("subnormal")
	k.I("VPBROADCASTD", k.read.At(bases256), yWordBase)
	for i, at := range x {
		k.I("VMOVDQU", at, source[i])
		k.I("VPAND", source[i], yAbs, dropped[i])
		k.I("VPSUBUSW", yWordBase, dropped[i], dropped[i])
		k.I("VPMULHW", yWordTimes, dropped[i], codes[i])
		k.I("VPAND", yWordLow, dropped[i], dropped[i])
	}
	k.I("VPACKUSWB", dropped[1], dropped[0], Y(1))
	k.I("VPACKUSWB", codes[1], codes[0], Y(0))
	k.I("VPCMPEQB", yByteTie, Y(1), Y(1))
	k.I("VPSUBB", Y(1), Y(0), Y(0))
	k.I("VPMINUB", yByteLimit, Y(0), Y(0)) // some scale rules leave the largest magnitude above it
	k.I("VPCMPGTB", Y(0), yByteNormal, Y(1))
	k.I("VPTEST", Y(1), Y(1))
	k.Jump("JNZ", subnormal)
	signed := k.Label("signed")
	k.I("VPACKSSWB", source[1], source[0], Y(4))
	k.I("VPAND", yByteSign, Y(4), Y(4))
	k.I("VPOR", Y(4), Y(0), Y(0))
	k.after = func() {
		k.Place(subnormal)
		k.subnormalCodes(x, source, signed)
	}
}

// subnormalCodes continues at signed with the codes of a block at x in Y0, where Y1 has those below the least normal one.
func (k *fused256) subnormalCodes(x []Mem, source [2]Vec, signed Label) {
	zero := Y(2)
	for i, s := range source {
		k.I("VPAND", s, yAbs, Y(2+i))
	}
	k.I("VPACKUSWB", Y(3), Y(2), Y(2)) // not zero where a magnitude is not
	k.I("VPXOR", Y(3), Y(3), Y(3))
	k.I("VPCMPEQB", Y(3), Y(2), zero)
	k.I("VPANDN", Y(1), zero, Y(1))
	k.I("VPTEST", Y(1), Y(1))
	k.Jump("JZ", signed)
	k.load()
	k.I("VBROADCASTSS", k.read.At(0), yFactor)
	k.I("VBROADCASTSS", k.read.At(anchors256), yAnchor)
	k.exponentCodes(x)
	for i, at := range x {
		k.I("VMOVDQU", at, source[i])
	}
	k.loadBytes()
	k.Jump("JMP", signed)
}

// loadQuarters fills the registers of E8M0 scales.
func (k *fused256) loadQuarters(f *File) {
	const last = 16
	codes := []byte{1, 1, 1, 1, 1, 1, 2, 2, 2, 3, 3, 4, 4, 5, 5, 6} // from a quarter of the scale on
	k.I("VMOVDQU", f.shared("wordOnes", repeated(0x0001000100010001)), yWordOne)
	k.I("VMOVDQU", f.shared("quarters", append(codes, codes...)), yQuarters)
	k.I("VMOVDQU", f.shared("quarterLast", repeated(last*0x0101010101010101)), yLastQuarter)
	k.I("VMOVDQU", f.shared("quarterMax", repeated((last-1)*0x0101010101010101)), yQuarterMax)
}

// firstQuarters stores the scales of the amaxes in Y0, and in a slot the bits of a quarter of each, as
// two words.
func (k *fused256) firstQuarters(f *File) {
	code, t := Y(0), Y(1)
	k.exponentScales()
	k.I("VPMAXSD", k.slot("floor"), code, code)
	k.I("VPSUBD", f.shared("dwordTwos", repeated(0x0000000200000002)), code, code)
	k.I("VPSLLD", 7, code, code)
	k.I("VPSLLD", 16, code, t)
	k.I("VPOR", t, code, code)
	k.I("VMOVDQU", code, k.write.At(4*k.first))
}

// quarterCodes leaves the codes of 32 elements in Y0, without signs. The bits of a quarter of their scale
// are in the factors at byte first.
func (k *fused256) quarterCodes(x []Mem, first int) {
	k.I("VPBROADCASTD", k.read.At(first), yQuarter)
	for i, at := range x {
		a, t := Y(4), Y(5)
		k.I("VPAND", at, yAbs, a)
		k.I("VPSRLW", 6, a, t)
		k.I("VPANDN", yWordOne, t, t) // 1 in the lower half of a binade
		k.I("VPSUBW", t, a, a)
		k.I("VPSUBW", yQuarter, a, a)
		k.I("VPSRAW", 5, a, Y(i))
	}
	quarter, above := Y(0), Y(1)
	k.I("VPACKSSWB", Y(1), Y(0), quarter)
	k.I("VPCMPGTB", yLastQuarter, quarter, above)
	k.I("VPMINSB", yQuarterMax, quarter, quarter)
	k.I("VPSHUFB", quarter, yQuarters, Y(0)) // zero of negative quarters
	k.I("VPSUBB", above, Y(0), Y(0))
}

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

// checkZeroScales sets flags where a block with a magnitude has the scale 0, and one of the blocks of the group has
// a magnitude below 2^-124. Under this scale those need not be the largest code; all above are. scales and amaxes are words
// in the same order.
func (k *fused256) checkZeroScales(f *File, scales, amaxes Vec) {
	const above = 0x0180 // 2^-124
	limit := f.shared("aboveZero", repeated((above-2)*0x0001000100010001))
	done, t, ones, zero, found := k.NewLabel("done"), Y(4), Y(5), Y(1), yFirst
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

// cutCodes leaves the codes of 32 elements in Y0. The offsets of their rows are in the
// factors from byte first on. It uses k.codeAhead as a scratch register.
func (k *fused256) cutCodes(x []Mem, first int) {
	for i, at := range x {
		source, a, n, t := Y(6+i), Y(4), Y(i), Y(5)
		cut := func(c int) Mem { return k.c.base.At(firstRow+c*cutBytes).By(k.codeAhead, 1) }
		k.I("MOVL", k.read.At(first+4*i), k.codeAhead)
		k.I("VMOVDQU", at, source)
		k.I("VPAND", source, yAbs, a)
		k.I("VPSUBUSW", cut(0), a, n)
		k.I("VPSRLW", 7, n, n)
		k.I("VPSUBUSW", cut(1), a, t)
		k.I("VPSRLW", 7, t, t)
		k.I("VPADDW", t, n, n)
		for c := 2; c < 4; c++ {
			k.I("VPCMPGTW", cut(c), a, t)
			k.I("VPSUBW", t, n, n)
		}
	}
	k.I("VPACKUSWB", Y(1), Y(0), Y(0))
	k.I("VPMINUB", yCutLimit, Y(0), Y(0))
	k.I("VPACKSSWB", Y(7), Y(6), Y(4)) // signs
	k.I("VPOR", yCutSign, Y(0), Y(5))
	k.I("VPBLENDVB", Y(4), Y(5), Y(0), Y(0))
}
