package asmgen

import (
	"math/bits"
	"slices"
)

// foldAmaxes leaves the amaxes of a group in Z0, and raises zAmax to them. Kernels of blocks
// of 32 share a routine.
func (k *fused) foldAmaxes(f *File) {
	if k.global {
		k.Emit(k.amaxes())
		return
	}
	name := "amaxes" + sourceSuffix(k.source)
	r := f.routine(name)
	if r == nil {
		r = f.Routine(name, name+" leaves the amaxes of 16 blocks of 32 in Z0, and raises Z20 to them.")
		r.Note(k.next, "the blocks")
		r.Emit(k.amaxes())
		r.Return()
	}
	k.Call(r, k.next)
}

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

// foldBy folds the maxima in a and b into a by a step. t is a scratch register.
func (s *sequence) foldBy(step [2]instruction, greater string, a, b, t Vec) {
	s.I(step[0].mnemonic, append(slices.Clone(step[0].operands), b, a, t)...)
	s.I(step[1].mnemonic, append(slices.Clone(step[1].operands), b, a, a)...)
	s.I(greater, t, a, a)
}

// factors stores the scales of the amaxes in Z0, and in the write buffer what
// their elements are encoded with.
func (k *fused) factors() (s sequence) {
	if k.global {
		globalFactors(&s, k.c, k.scales.At(0), k.write.At(0))
	} else {
		k.exponentFactors(&s)
	}
	s.I("ADDQ", 16, k.scales)
	return s
}

// exponentFactors: the write buffer gets e of the smallest normal element, and behind
// it 2^(23-m)·(1 + bias·2^-23); of integers the factor.
func (k *fused) exponentFactors(s *sequence) {
	code, t := exponentCodes(s, k.c, k.scales.At(0)), Z(1)
	s.I("VPMAXSD.BCST", k.c.At("floor"), code, code)
	if k.integer {
		s.I("VPBROADCASTD", k.c.At("base"), t)
		s.I("VPSUBD", code, t, t)
		s.I("VPSLLD", 23, t, t)
		s.I("VMOVDQA64", t, k.write.At(0))
		return
	}
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
