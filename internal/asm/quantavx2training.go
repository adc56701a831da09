package asm

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"
)

// quantTraining256 writes the AVX2 kernels of optional stages: stochastic rounding and its
// random bits, the Hadamard transform, the errors of scales, and the transposition.
func quantTraining256() *File {
	f := NewFile("quant", "trainingavx2")
	tables := makeTables256(f)
	for _, bits := range []int{8, 4} {
		k := kernel256{tables256: tables, source: 32}
		k.randomStage(f, bits)
	}
	k := &kernel256{tables256: tables, source: 32}
	k.philox(f)
	k.hadamard(f)
	for _, s := range searchRows {
		k.searchErrors(f, s)
	}
	k.errorSums(f, "errorSumsTimes", "VMULPS", "times")
	k.errorSums(f, "errorSumsOver", "VDIVPS", "divided by")
	k.transpose(f)
	return f
}

// repeated returns a vector of copies of a quadword.
func repeated(v uint64) []byte { return bytes.Repeat(binary.LittleEndian.AppendUint64(nil, v), 4) }

func (k *kernel256) randomStage(f *File, bits int) {
	unit := 32 * 8 / bits
	k.begin(f, fmt.Sprintf("joinRandom%d", bits), fmt.Sprintf(`sets code i, of %d bits, to that of the element src[i] of %%s times
factors[i/16], rounded with the bits of random, i < %d·n, n > 0, and returns the bits
of the largest magnitude of src. Where that is Inf or NaN, the codes are undefined.`, bits, unit),
		"codes *byte, src *float32, random *uint32, n int, factors *float32, c *encodeConstants) (amax uint64")
	l := k.codesLoop(unit, true, encodeNames)
	k.spread("shift", "binade", "mantissa", "largest", "thirtyTwo", "implicit")
	k.I("VPCMPEQD", Y(0), Y(0), Y(0))
	k.I("VPABSD", Y(0), Y(0))
	k.I("VMOVDQU", Y(0), k.slot("one"))
	l.emit(k, func(u int, at Mem) {
		k.magnitudes(k.vectors(at), func(i int, a Vec) {
			k.I("VPMAXUD", a, yStageAmax, yStageAmax)
			k.I("VMULPS", stageFactor(i), a, a)
			k.roundRandomly(a, l.random.At(128*u+32*i), Y(i))
		})
		k.pack()
	})
}

// roundRandomly sets code to the codes of the magnitudes a. The dropped bits of a significand
// are a fraction of 32 bits; adding the random bits may carry.
func (k *kernel256) roundRandomly(a Vec, random Mem, code Vec) {
	significand, binades, dropped, t := Y(5), Y(6), yLow, yShift // which have no constants here
	k.I("VPSRLD", 23, a, binades)
	k.I("VPXOR", t, t, t)
	k.I("VPCMPEQD", binades, t, t)
	k.I("VPANDN", k.slot("implicit"), t, t)
	k.I("VPANDN", a, yBinade, significand)
	k.I("VPOR", t, significand, significand)
	k.I("VPSUBD", k.slot("binade"), binades, binades) // above that of the smallest normal element
	k.I("VPXOR", t, t, t)
	k.I("VPSUBD", binades, t, dropped)
	k.I("VPMAXSD", t, dropped, dropped)
	k.I("VPMAXSD", t, binades, binades)
	k.I("VPSLLVD", k.slot("mantissa"), binades, binades) // codes below those of the binade
	k.I("VPADDD", k.slot("shift"), dropped, dropped)
	k.I("VPSRLVD", dropped, significand, code)
	k.I("VPADDD", binades, code, code)
	k.I("VMOVDQU", k.slot("thirtyTwo"), binades)
	k.I("VPSUBD", binades, dropped, t)
	k.I("VPSUBD", dropped, binades, dropped)
	k.I("VPSRLVD", t, significand, t)
	k.I("VPSLLVD", dropped, significand, significand)
	k.I("VPOR", t, significand, significand)
	k.I("VPADDD", random, significand, significand)
	k.I("VPMAXUD", random, significand, t)
	k.I("VPCMPEQD", significand, t, t) // minus one where there is no carry
	k.I("VPADDD", k.slot("one"), code, code)
	k.I("VPADDD", t, code, code)
	k.I("VPMINSD", k.slot("largest"), code, code)
}

const philoxRounds = 10

// A philoxState is four words of each of four counters, one in the low half of each quadword.
type philoxState struct {
	*kernel256
	words [4]Vec
	spare [2]Vec
}

// round does round r of the generator, which leaves the words and the spare registers in other places.
func (s *philoxState) round(r int, m0, m1 Vec, key0, key1 Mem) {
	w, p0, p1 := s.words, s.spare[r], s.spare[1-r]
	s.I("VPMULUDQ", m0, w[0], p0)
	s.I("VPMULUDQ", m1, w[2], p1)
	hi1, hi0 := w[0], w[2]
	s.I("VPSRLQ", 32, p1, hi1)
	s.I("VPSRLQ", 32, p0, hi0)
	s.I("VPXOR", w[1], hi1, hi1)
	s.I("VPXOR", w[3], hi0, hi0)
	s.I("VPXOR", key0, hi1, hi1)
	s.I("VPXOR", key1, hi0, hi0)
	s.words, s.spare = [4]Vec{hi1, p1, hi0, p0}, [2]Vec{w[1], w[3]}
}

// store joins the words of each counter and stores two counters each.
func (s *philoxState) store(first, second Mem) {
	w := s.words
	s.I("VPSLLQ", 32, w[1], w[1])
	s.I("VPSLLQ", 32, w[3], w[3])
	s.I("VPBLENDD", 0xaa, w[1], w[0], w[0])
	s.I("VPBLENDD", 0xaa, w[3], w[2], w[2])
	s.I("VPUNPCKLQDQ", w[2], w[0], w[1])
	s.I("VPUNPCKHQDQ", w[2], w[0], w[3])
	s.I("VMOVDQU", w[1], first)
	s.I("VMOVDQU", w[3], second)
}

// philox writes fillPhilox: one counter in each quadword, two vectors at a time.
func (k *kernel256) philox(f *File) {
	k.begin(f, "fillPhilox", "sets dst to the words of Philox4x32-10 for the counters from first\non, 32·n words%.0s.",
		"dst *uint32, first uint64, n int, c *philoxConstants")
	dst, n, c := k.Arg("dst"), k.Arg("n"), k.Arg("c")
	key, left := k.GP("keys of two rounds"), k.GP("rounds left")
	keys := k.reserve("key", 2*philoxRounds) // two of each round; step and tensor follow
	k.slot("step")
	k.slot("tensor")
	k.I("LEAQ", keys, key)
	k.I("MOVQ", 2*philoxRounds+2, left)
	fill := k.Label("keys")
	k.I("VPBROADCASTD", c.At(0), Y(0))
	k.I("VMOVDQU", Y(0), key.At(0))
	k.I("ADDQ", 4, c)
	k.I("ADDQ", 32, key)
	k.I("SUBQ", 1, left)
	k.Jump("JNZ", fill)
	var orders [2]Sym // so that unpacking leaves the words in order
	for v := range orders {
		var order []byte
		for _, i := range []uint64{0, 2, 1, 3} {
			order = binary.LittleEndian.AppendUint64(order, i+4*uint64(v))
		}
		orders[v] = f.Table(fmt.Sprintf("philoxOrder%d", v), order)
	}
	eight := f.Table("philoxEight", repeated(8))
	yCounter, yM0, yM1 := Y(12), Y(13), Y(14)
	k.I("VPBROADCASTQ", k.FP("first"), yCounter)
	k.I("VMOVDQU", f.Table("philoxM0", repeated(0xd2511f53)), yM0)
	k.I("VMOVDQU", f.Table("philoxM1", repeated(0xcd9e8d57)), yM1)
	loop := k.Label("loop")
	var states [2]philoxState
	for v := range states {
		s := philoxState{k, [4]Vec{Y(6 * v), Y(6*v + 1), Y(6*v + 2), Y(6*v + 3)}, [2]Vec{Y(6*v + 4), Y(6*v + 5)}}
		k.I("VPADDQ", orders[v], yCounter, s.words[0])
		k.I("VPSRLQ", 32, s.words[0], s.words[1])
		k.I("VMOVDQU", k.slot("step"), s.words[2])
		k.I("VMOVDQU", k.slot("tensor"), s.words[3])
		states[v] = s
	}
	k.I("LEAQ", keys, key)
	k.I("MOVQ", philoxRounds/2, left)
	round := k.Label("rounds")
	for r := range 2 { // after two, the words are in the registers where they were
		for v := range states {
			states[v].round(r, yM0, yM1, key.At(64*r), key.At(64*r+32))
		}
	}
	k.I("ADDQ", 128, key)
	k.I("SUBQ", 1, left)
	k.Jump("JNZ", round)
	for v := range states {
		states[v].store(dst.At(64*v), dst.At(64*v+32))
	}
	k.I("VPADDQ", eight, yCounter, yCounter)
	k.I("ADDQ", 128, dst)
	k.I("SUBQ", 1, n)
	k.Jump("JNZ", loop)
	k.Return()
}

// hadamard writes hadamardBlocks: butterflies within and between four vectors of float64.
func (k *kernel256) hadamard(f *File) {
	k.begin(f, "hadamardBlocks", `replaces each 16 of 16·n elements of %s by their transform, times the
signs at signs before it, rounded to BF16; a NaN becomes nan.`, "x *float32, n int, signs *uint32, nan uint32")
	x, n, signs := k.Arg("x"), k.Arg("n"), k.Arg("signs")
	var flips [2]Vec // signs of the other element of a butterfly
	for h := range flips {
		var data []byte
		for i := range 4 {
			data = binary.LittleEndian.AppendUint64(data, math.Float64bits(float64(1-2*(i>>h&1))))
		}
		flips[h] = Y(14 + h)
		k.I("VMOVUPD", f.Table(fmt.Sprintf("hadamard%d", h), data), flips[h])
	}
	quarter := f.Table("quarter", repeated(math.Float64bits(0.25)))
	half := f.Table("hadamardHalf", repeated(0x00007fff00007fff))
	one := f.Table("hadamardOne", repeated(0x0000000100000001))
	t := k.GP("constants")
	k.I("MOVL", k.FP("nan"), t)
	k.I("VMOVD", t, X(13))
	k.I("VPBROADCASTD", X(13), Y(13))
	k.I("VMOVDQU", signs.At(0), Y(12))
	k.I("VMOVDQU", signs.At(32), Y(11))
	loop := k.Label("loop")
	for i := range 2 {
		k.I("VPXOR", x.At(32*i), []Vec{Y(12), Y(11)}[i], Y(8))
		k.I("VEXTRACTI128", 1, Y(8), X(9))
		k.I("VCVTPS2PD", X(8), Y(2*i))
		k.I("VCVTPS2PD", X(9), Y(2*i+1))
	}
	for v := range 4 {
		k.I("VPERMILPD", 5, Y(v), Y(8))
		k.I("VFMADD213PD", Y(8), flips[0], Y(v))
		k.I("VPERMPD", 0x4e, Y(v), Y(8))
		k.I("VFMADD213PD", Y(8), flips[1], Y(v))
	}
	k.I("VADDPD", Y(1), Y(0), Y(4))
	k.I("VSUBPD", Y(1), Y(0), Y(5))
	k.I("VADDPD", Y(3), Y(2), Y(6))
	k.I("VSUBPD", Y(3), Y(2), Y(7))
	k.I("VADDPD", Y(6), Y(4), Y(0))
	k.I("VADDPD", Y(7), Y(5), Y(1))
	k.I("VSUBPD", Y(6), Y(4), Y(2))
	k.I("VSUBPD", Y(7), Y(5), Y(3))
	k.I("VMOVUPD", quarter, Y(9))
	k.I("VPXOR", Y(8), Y(8), Y(8))
	for v := range 4 {
		k.I("VFMADD213PD", Y(8), Y(9), Y(v)) // plus 0, as a product of matrices: -0 becomes 0
		k.I("VCVTPD2PSY", Y(v), X(v))
	}
	for i := range 2 {
		v := Y(2 * i)
		k.I("VINSERTI128", 1, X(2*i+1), v, v)
		k.I("VCMPPS", unordered, v, v, Y(8))
		k.roundToBF16(v, Y(9), half, one)
		k.I("VPAND", k.upper, Y(9), Y(9))
		k.I("VBLENDVPS", Y(8), Y(13), Y(9), Y(9))
		k.I("VMOVUPS", Y(9), x.At(32*i))
	}
	k.I("ADDQ", 64, x)
	k.I("SUBQ", 1, n)
	k.Jump("JNZ", loop)
	k.Return()
}

func (k *kernel256) searchErrors(f *File, s searchRow) {
	k.begin(f, s.name, fmt.Sprintf(`sets errors[k], k < n, to the sum of %s over 16·groups
elements x of src, of %%s, q the element's rounding of x %s: of eight sums by
position, joined by halves. groups and n are positive, and src is finite.`, s.term(), s.does), s.signature())
	errors, src, groups := k.Arg("errors"), k.Arg("src"), k.Arg("groups")
	var weights Reg // less src
	if s.weighted {
		weights = k.Arg("weights")
		k.I("SUBQ", src, weights)
	}
	factors, decodes, n := k.Arg("factors"), k.Arg("decodes"), k.Arg("n")
	k.c = constants{k.Arg("c"), searchNames}
	x, left := k.GP("elements"), k.GP("groups left")
	yLimit, yLeast, yAnchor, yDecode, sums := Y(12), Y(13), Y(10), Y(9), [2]Vec{Y(7), Y(8)}
	for i, v := range []Vec{yLimit, yLeast, yAnchor} {
		k.I("VPBROADCASTD", k.c.At(searchNames[i]), v)
	}
	k.I("VMOVDQU", k.abs, yAbs)
	k.I("VMOVDQU", k.binade, yBinade)

	candidate := k.Label("candidate")
	k.I("VBROADCASTSS", factors.At(0), yFactor)
	k.I("VBROADCASTSS", decodes.At(0), yDecode)
	for _, s := range sums {
		k.I("VPXOR", s, s, s)
	}
	k.I("MOVQ", src, x)
	k.I("MOVQ", groups, left)

	group := k.Label("group")
	for i := range 2 {
		a, q, t := Y(0), Y(1), Y(2)
		k.I("VPAND", x.At(32*i), yAbs, a)
		k.I(s.operation, yFactor, a, q)
		k.I("VMINPS", yLimit, q, q)
		k.I("VMAXPS", yLeast, q, t)
		k.I("VPAND", yBinade, t, t)
		k.I("VMULPS", yAnchor, t, t) // the addend that rounds to a step of the binade
		k.I("VADDPS", t, q, q)
		k.I("VSUBPS", t, q, q)
		k.I("VMULPS", yDecode, q, q)
		for j, sum := range sums {
			if j == 1 {
				k.I("VEXTRACTF128", 1, a, a.X())
				k.I("VEXTRACTF128", 1, q, q.X())
			}
			k.I("VCVTPS2PD", a.X(), Y(3))
			k.I("VCVTPS2PD", q.X(), Y(4))
			k.I("VSUBPD", Y(3), Y(4), Y(4))
			k.I("VMULPD", Y(4), Y(4), Y(4))
			if s.weighted {
				k.I("VCVTPS2PD", weights.At(32*i+16*j).By(x, 1), Y(3))
				k.I("VMULPD", Y(3), Y(4), Y(4))
			}
			k.I("VADDPD", Y(4), sum, sum)
		}
	}
	k.I("ADDQ", 64, x)
	k.I("SUBQ", 1, left)
	k.Jump("JNZ", group)

	k.I("VADDPD", sums[1], sums[0], Y(0))
	k.I("VEXTRACTF128", 1, Y(0), X(1))
	k.I("VADDPD", X(1), X(0), X(0))
	k.I("VPERMILPD", 1, X(0), X(1))
	k.I("VADDSD", X(1), X(0), X(0))
	k.I("VMOVSD", X(0), errors.At(0))
	k.I("ADDQ", 8, errors)
	k.I("ADDQ", 4, factors)
	k.I("ADDQ", 4, decodes)
	k.I("SUBQ", 1, n)
	k.Jump("JNZ", candidate)
	k.Return()
}

// transpose writes the transposition of eight rows at a time, as two 8×8 blocks.
func (k *kernel256) transpose(f *File) {
	k.begin(f, "transpose", "sets dst[j][i] to src[i][j], both of %s, i < 8·n, j < 16, n > 0. Strides are in\nbytes.",
		"dst, src *float32, dstStride, srcStride, n int")
	dst, src, dstStride, srcStride, n := k.Arg("dst"), k.Arg("src"), k.Arg("dstStride"), k.Arg("srcStride"), k.Arg("n")
	from := newPanel8(k.Func, src, srcStride)
	triple, at := k.GP("3·dstStride"), [2]Reg{k.GP("four rows of dst"), k.GP("four more")}
	k.I("LEAQ", dstStride.At(0).By(dstStride, 2), triple)
	loop := k.Label("loop")
	k.I("MOVQ", dst, at[0])
	for half := range 2 {
		k.I("LEAQ", at[0].At(0).By(dstStride, 4), at[1])
		for i := range 8 {
			k.I("VMOVUPS", from.row(i).At(32*half), Y(i))
		}
		from.transpose(func(d int, v Vec) {
			m := at[d/4].At(0)
			switch d % 4 {
			case 1, 2:
				m = m.By(dstStride, d%4)
			case 3:
				m = m.By(triple, 1)
			}
			k.I("VMOVUPS", v, m)
		})
		if half == 0 {
			k.I("LEAQ", at[0].At(0).By(dstStride, 8), at[0])
		}
	}
	k.I("LEAQ", src.At(0).By(srcStride, 8), src)
	k.I("LEAQ", from.src[1].At(0).By(srcStride, 8), from.src[1])
	k.I("ADDQ", 32, dst)
	k.I("SUBQ", 1, n)
	k.Jump("JNZ", loop)
	k.Return()
}
