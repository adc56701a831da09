package asm

// AVX2 kernels find codes of 4 and 8 bits from BF16 by the bits of magnitudes as words. Quarters of binades
// begin at significands 1, 1.25, 1.5 and 1.75.
//
// Under E8M0 scales, all magnitudes of a quarter have one code: those above its first value, or from
// it on in the upper half of a binade, where ties go to the code above.
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
