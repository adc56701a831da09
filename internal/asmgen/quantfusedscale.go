package asmgen

import (
	"math/bits"
	"slices"
)

// amaxes leaves the amaxes of the 16 blocks of a group, in their order, in Z0.
// Pairs of vectors are folded into one that holds maxima of both: dwords, or words
// of BF16, then quadwords, then lanes change places until each is one block's.
func (k *fused) amaxes() sequence {
	var s sequence
	free := []Vec{Z(0), Z(1), Z(2), Z(3), Z(4), Z(5), Z(6), Z(7)}
	take := func() Vec { v := free[0]; free = free[1:]; return v }
	release := func(v Vec) { free = append([]Vec{v}, free...) }
	leaves := min(16, k.groupBytes()/64)
	leafBytes := k.groupBytes() / leaves
	greater, steps := "VPMAXUD", foldSteps[1:]
	if k.source == 16 {
		greater, steps = "VPMAXUW", foldSteps
	}
	var fold func(first, n int) Vec
	fold = func(first, n int) Vec {
		if n == 1 {
			v := take()
			at := k.next.At(first * leafBytes)
			s.I("VPANDD", at, zAbs, v)
			if leafBytes == 128 {
				t := take()
				s.I("VPANDD", at.At(64), zAbs, t)
				s.I("VPMAXUD", t, v, v)
				release(t)
			}
			return v
		}
		a := fold(first, n/2)
		b := fold(first+n/2, n/2)
		t := take()
		s.foldBy(steps[bits.Len(uint(n))-2], greater, a, b, t)
		release(t)
		release(b)
		return a
	}
	fold(0, leaves)
	if k.source == 16 { // of each block there are maxima in two lanes
		s.I("VSHUFI32X4", 0xb1, Z(0), Z(0), Z(1))
		s.I(greater, Z(1), Z(0), Z(0))
		s.I("VMOVDQU64", k.tables.words[k.global], Z(1))
		s.I("VPERMW", Z(0), Z(1), Z(0))
		s.I("VPSLLD", 16, Z(0), Z(0))
	}
	s.I("VPMAXUD", Z(0), zAmax, zAmax)
	return s
}

// foldSteps are the instructions that put every other word, dword, quadword or pair
// of lanes of two vectors beside each other, and those between them.
var foldSteps = [][2]instruction{
	{{"VPUNPCKLWD", nil}, {"VPUNPCKHWD", nil}},
	{{"VPUNPCKLDQ", nil}, {"VPUNPCKHDQ", nil}},
	{{"VPUNPCKLQDQ", nil}, {"VPUNPCKHQDQ", nil}},
	foldLanes, foldLanes,
}

var foldLanes = [2]instruction{{"VSHUFI32X4", []any{0x88}}, {"VSHUFI32X4", []any{0xdd}}}

// foldMaxima leaves in a the maxima of a and of b, each of which holds those of
// n/2 blocks as dwords; t is room.
func (s *sequence) foldMaxima(greater string, n int, a, b, t Vec) {
	s.foldBy(foldSteps[bits.Len(uint(n))-1], greater, a, b, t)
}

// foldBy is foldMaxima by a step.
func (s *sequence) foldBy(step [2]instruction, greater string, a, b, t Vec) {
	s.I(step[0].mnemonic, append(slices.Clone(step[0].operands), b, a, t)...)
	s.I(step[1].mnemonic, append(slices.Clone(step[1].operands), b, a, a)...)
	s.I(greater, t, a, a)
}

// factors stores the scales of the amaxes in Z0, and in the write buffer what
// their elements are encoded with.
func (k *fused) factors() sequence {
	return append(k.factorsOf(k.scales.At(0)), instruction{"ADDQ", []any{16, k.scales}})
}

// factorsOf is factors of scales to a given place.
func (k *fused) factorsOf(scales Mem) sequence {
	if k.global {
		return k.globalFactors(scales)
	}
	return k.exponentFactors(scales)
}

// exponentFactors: the code of a scale is the exponent of amax·ratio, raised by
// what the rule adds to the significand. The write buffer gets e of the smallest
// normal element, and behind it 2^(23-m)·(1 + bias·2^-23).
func (k *fused) exponentFactors(scales Mem) sequence {
	var s sequence
	amax, code, t := Z(0), Z(0), Z(1)
	s.I("VPSUBD.BCST", k.c.At("low"), amax, t)
	s.I("VPTESTMD", amax, amax, K(1))
	s.I("VPCMPUD.BCST", 6, k.c.At("span"), t, K(1), K(1))
	s.I("KORW", K(1), kFlags, kFlags)
	s.I("VMULPS.BCST", k.c.At("ratio"), amax, amax)
	s.I("VPADDD.BCST", k.c.At("up"), amax, amax)
	s.I("VPSRLD", 23, amax, code)
	s.I("VPSUBD.BCST", k.c.At("down"), code, code)
	s.I("VPXORD", t, t, t)
	s.I("VPMAXSD", t, code, code)
	s.I("VPMOVDB", code, scales)
	s.I("VPMAXSD.BCST", k.c.At("floor"), code, code)
	if k.integer {
		s.I("VPBROADCASTD", k.c.At("base"), t)
		s.I("VPSUBD", code, t, t)
		s.I("VPSLLD", 23, t, t)
		s.I("VMOVDQA64", t, k.write.At(0))
	} else {
		s.I("VPSUBD.BCST", k.c.At("least"), code, t)
		s.I("VPSLLD", 23, t, t)
		s.I("VMOVDQA64", t, k.write.At(0))
		s.I("VPBROADCASTD", k.c.At("base"), t)
		s.I("VPSUBD", code, t, t)
		s.I("VPBROADCASTD", k.c.At("step"), Z(2))
		s.I("VPSLLVD", Z(2), t, t)
		s.I("VPSLLD", 16, t, t) // modulo 2^16
		s.I("VPSRLD", 16, t, t)
		s.I("VPORD.BCST", k.c.At("anchor"), t, t)
		s.I("VMOVDQA64", t, k.write.At(64))
	}
	return s
}

// globalFactors: scale = e4m3(amax·encode), and the write buffer gets
// 1/(scale·decode), kept finite.
func (k *fused) globalFactors(scales Mem) sequence {
	var s sequence
	amax, t, u := Z(0), Z(1), Z(2)
	s.I("VPCMPUD.BCST", 5, k.c.At("infinity"), amax, K(1))
	s.I("KORW", K(1), kFlags, kFlags)
	s.I("VMULPS.BCST", k.c.At("encode"), amax, amax)
	s.I("VMINPS.BCST", k.c.At("scaleLimit"), amax, amax)
	s.I("VPANDD", amax, zBinade, t)
	s.I("VPMAXUD.BCST", k.c.At("scaleLeast"), t, t)
	s.I("VPBROADCASTD", k.c.At("scaleAnchor"), u)
	s.I("VFMADD213PS", amax, u, t)
	s.I("VPSRLD", 20, t, u)
	s.I("VPADDD", u, t, t)
	s.I("VPMOVDB", t, scales)
	s.I("VPSLLD", 24, t, t)
	s.I("VPSRLD", 4, t, t)
	s.I("VMULPS.BCST", k.c.At("rebias"), t, t)
	s.I("VMULPS.BCST", k.c.At("decode"), t, t)
	s.I("VPBROADCASTD", k.c.At("one"), u)
	s.I("VDIVPS", t, u, t)
	s.I("VMINPS.BCST", k.c.At("most"), t, t)
	s.I("VMOVDQA64", t, k.write.At(0))
	return s
}
