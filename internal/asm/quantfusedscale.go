package asm

import (
	"fmt"
	"math/bits"
	"slices"
)

// foldAmaxes leaves the amaxes of a group in Z0, raises zAmax to them, and moves k.next to the
// next group. It also raises amaxes of columns, unless the argument maxima is nil.
func (k *fused) foldAmaxes(f *File) {
	rows, done := k.NewLabel("rows"), k.NewLabel("done")
	k.I("CMPQ", k.FP("maxima"), "$0")
	k.Jump("JEQ", rows)
	k.I("MOVQ", k.FP("groups"), k.maxima)
	k.I("SUBQ", k.groups, k.maxima)
	k.I("SHLQ", bits.Len(uint(k.groupBytes()))-1, k.maxima)
	k.I("ADDQ", k.FP("maxima"), k.maxima)
	k.callAmaxes(f, true)
	k.Jump("JMP", done)
	k.Place(rows)
	k.callAmaxes(f, false)
	k.Place(done)
}

// callAmaxes calls a routine that kernels with blocks of the same size share.
func (k *fused) callAmaxes(f *File, columns bool) {
	name, more := "amaxes", ""
	if columns {
		name, more = "amaxesColumns", ", and the amaxes of its columns"
	}
	name += fmt.Sprint(k.block()) + sourceSuffix(k.source)
	r := f.routine(name)
	if r == nil {
		r = f.Routine(name, fmt.Sprintf("%s leaves the amaxes of 16 blocks of %d in Z0, and raises Z20 to them%s.", name, k.block(), more))
		r.Note(k.next, "the blocks; on return, those after them")
		r.Note(k.second, "bit 1 is 0")
		if columns {
			r.Note(k.maxima, "amaxes of their columns")
		}
		k.amaxes(r, columns)
		r.Return()
	}
	if columns {
		k.Call(r, k.next, k.second, k.maxima)
	} else {
		k.Call(r, k.next, k.second)
	}
}

// amaxes leaves the amaxes of the 16 blocks of a group, in their order, in Z0.
// Pairs of vectors are folded into one that holds maxima of both: dwords, or words
// of BF16, then quadwords, then lanes change places until each is one block's. A loop
// folds half of the group into one vector.
func (k *fused) amaxes(fn *Func, columns bool) {
	free := []Vec{Z(0), Z(1), Z(2), Z(3), Z(4), Z(5), Z(6)}
	take := func() Vec { v := free[0]; free = free[1:]; return v }
	release := func(v Vec) { free = append([]Vec{v}, free...) }
	leaves := min(16, k.groupBytes()/64)
	leafBytes := k.groupBytes() / leaves
	greater, steps := "VPMAXUD", foldSteps[1:]
	if k.source == 16 {
		greater, steps = "VPMAXUW", foldSteps
	}
	load := func(at int, v Vec) {
		fn.I("VPANDD", k.next.At(at), zAbs, v)
		if columns {
			t := take()
			fn.I(greater, k.maxima.At(at), v, t)
			fn.I("VMOVDQU64", t, k.maxima.At(at))
			release(t)
		}
	}
	var fold func(first, n int) Vec
	fold = func(first, n int) Vec {
		v := take()
		if n == 1 {
			load(first*leafBytes, v)
			if leafBytes == 128 {
				t := take()
				load(first*leafBytes+64, t)
				fn.I("VPMAXUD", t, v, v)
				release(t)
			}
			return v
		}
		release(v)
		a := fold(first, n/2)
		b := fold(first+n/2, n/2)
		t := take()
		foldBy(fn, steps[bits.Len(uint(n))-2], greater, a, b, t, a)
		release(t)
		release(b)
		return a
	}
	half := fn.Label("half")
	fn.I("VMOVDQA64", Z(0), Z(7))
	fold(0, leaves/2)
	fn.I("ADDQ", k.groupBytes()/2, k.next)
	if columns {
		fn.I("ADDQ", k.groupBytes()/2, k.maxima)
	}
	fn.I("BTCQ", 1, k.second) // clear before the second half
	fn.Jump("JCC", half)
	foldBy(fn, steps[bits.Len(uint(leaves))-2], greater, Z(7), Z(0), Z(1), Z(0))
	if k.source == 16 { // each block has maxima in two lanes
		fn.I("VSHUFI32X4", 0xb1, Z(0), Z(0), Z(1))
		fn.I(greater, Z(1), Z(0), Z(0))
		fn.I("VMOVDQU64", k.tables.words[k.global], Z(1))
		fn.I("VPERMW", Z(0), Z(1), Z(0))
		fn.I("VPSLLD", 16, Z(0), Z(0))
	}
	fn.I("VPMAXUD", Z(0), zAmax, zAmax)
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

// foldBy folds the maxima in a and b into dst by a step. It changes a and t.
func foldBy(e emitter, step [2]instruction, greater string, a, b, t, dst Vec) {
	e.I(step[0].mnemonic, append(slices.Clone(step[0].operands), b, a, t)...)
	e.I(step[1].mnemonic, append(slices.Clone(step[1].operands), b, a, a)...)
	e.I(greater, t, a, dst)
}

// factors stores the scales of the amaxes in Z0, and the factors of their elements in the write
// buffer.
func (k *fused) factors() (s sequence) {
	if k.lookup {
		k.nibbleBases(&s)
	} else if k.global {
		globalFactors(&s, k.c, k.scales.At(0), k.write.At(0))
	} else {
		k.exponentFactors(&s)
	}
	s.I("ADDQ", 16, k.scales)
	return s
}

// exponentFactors stores e of the smallest normal element in the write buffer, then
// 2^(23-m)·(1 + bias·2^-23). Of integers, it stores the factor.
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
