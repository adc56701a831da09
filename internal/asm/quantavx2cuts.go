package asm

// AVX2 kernels find codes of 4 bits from BF16 by comparing words: the bits of the magnitudes, and the cuts
// of the code of a scale, which are a row of quant's cutRows. Cuts at 1.25, 2.5 and 5 times the scale are
// a binade apart, as are those at 1.75 and 3.5, so that a difference of bits, without its mantissa, counts
// the cuts that it passed.

const cutRowShift = 3 // a row of cutRows has eight bytes

// yCuts are the cuts of a block, as words: 1.25 times the scale and 1.75 times, both less a binade, then
// the last magnitudes below 0.25 times the scale and 0.75 times.
var yCuts = [4]Vec{Y(9), Y(10), Y(11), Y(13)}

// cutRows stores the scales of the amaxes in Y0, and in a slot the offsets of their cuts.
func (k *fused256) cutRows(f *File) {
	codes := Y(0)
	if k.global {
		codes = Y(1)
		k.I("VMOVDQA", Y(0), Y(3))
		k.globalScales()
		k.checkZeroScales(f, codes, Y(3))
	} else {
		k.exponentScales()
	}
	k.I("VPSLLD", cutRowShift, codes, codes)
	k.I("VMOVDQU", codes, k.write.At(4*k.first))
}

// checkZeroScales sets flags where a block with a magnitude has the scale 0, and one of the eight blocks has
// a magnitude below 2^-124. Under this scale those need not be the largest code; all above are.
func (k *fused256) checkZeroScales(f *File, codes, amaxes Vec) {
	const above = 0x0180 // 2^-124
	limit := f.shared("aboveZero", repeated((above-2)*0x0001000100010001))
	done, t, ones, zero, found := k.NewLabel("done"), Y(4), Y(5), Y(2), Y(6)
	k.I("VPXOR", zero, zero, zero)
	k.I("VPCMPEQD", zero, codes, t)
	k.I("VPCMPEQD", zero, amaxes, amaxes)
	k.I("VPANDN", t, amaxes, t)
	k.I("VPTEST", t, t)
	k.Jump("JZ", done)
	k.I("VPXOR", found, found, found)
	k.I("VPCMPEQD", ones, ones, ones)
	k.I("XORL", k.left, k.left)
	loop := k.Label("tiny")
	k.I("VPAND", k.next.At(k.first*k.bytes(16)).By(k.left, 1), yAbs, t)
	k.I("VPADDW", ones, t, t) // zero becomes the largest word
	k.I("VPMINUW", limit, t, Y(7))
	k.I("VPCMPEQW", Y(7), t, t)
	k.I("VPOR", t, found, found)
	k.I("ADDQ", k.bytes(16), k.left)
	k.I("CMPQ", k.left, lanes256*k.bytes(16))
	k.Jump("JL", loop)
	k.flag(found)
	k.Place(done)
}

// cutCodes leaves the codes of 32 elements in Y0, without signs. The offsets of their cuts are in the
// factors from byte first on. It uses k.codeAhead as a scratch register.
func (k *fused256) cutCodes(x []Mem, first int) {
	for i, at := range x {
		if i*16%k.extent() == 0 {
			k.I("MOVL", k.read.At(first+4*i), k.codeAhead)
			for c, cut := range yCuts {
				k.I("VPBROADCASTW", k.c.base.At(4*len(k.c.names)+2*c).By(k.codeAhead, 1), cut)
			}
		}
		a, n, t := Y(4), Y(i), Y(5)
		k.I("VPAND", at, yAbs, a)
		k.I("VPSUBUSW", yCuts[0], a, n)
		k.I("VPSRLW", 7, n, n)
		k.I("VPSUBUSW", yCuts[1], a, t)
		k.I("VPSRLW", 7, t, t)
		k.I("VPADDW", t, n, n)
		for _, cut := range yCuts[2:] {
			k.I("VPCMPGTW", cut, a, t)
			k.I("VPSUBW", t, n, n)
		}
	}
	k.I("VPACKUSWB", Y(1), Y(0), Y(0))
	k.I("VPMINUB", k.limit, Y(0), Y(0))
}
