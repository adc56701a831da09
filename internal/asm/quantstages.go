package asm

import (
	"encoding/binary"
	"fmt"
	"math"
)

// quantStages writes the kernels that quantize rows stage by stage: codes under factors of 16
// elements each, rounded to nearest or stochastically; the random bits; and the Hadamard
// transform.
func quantStages() *File {
	f := NewFile("quant", "stages")
	low, high := gatherTables(f, "stages")
	joinCodes(f, 4, false, low, high)
	joinCodes(f, 4, true, low, high)
	joinCodes(f, 8, true, low, high)
	fillPhilox(f)
	hadamardBlocks(f)
	return f
}

func joinCodes(f *File, bits int, random bool, low, high Sym) {
	name, what, params := fmt.Sprintf("join%d", bits), "to nearest", "codes *byte, src *float32"
	if random {
		name, what, params = fmt.Sprintf("joinRandom%d", bits), "with the bits of random", params+", random *uint32"
	}
	fn := f.Func(name, fmt.Sprintf(`%s sets code i, of %d bits, to that of src[i] times factors[i/16], rounded
%s, i < n, n > 0, and returns the bits of the largest magnitude of src. Where
that is Inf or NaN, the codes are undefined.`, name, bits, what), params+", n int, factors *float32, c *encodeConstants) (amax uint64")
	codes, src, n, factors := fn.Arg("codes"), fn.Arg("src"), fn.Arg("n"), fn.Arg("factors")
	var rnd Reg
	if random {
		rnd = fn.Arg("random")
	}
	c := constants{fn.Arg("c"), encodeNames}
	t := fn.GP("masks, constants and result")
	zSign, zSignShift, zLow, zHigh, zAbs, zBinade, zAmax, zJoin, zero := Z(21), X(22), Z(23), Z(24), Z(25), Z(26), Z(27), Z(28), Z(29)
	zLimit, zLeast, zAnchor, zShift := Z(17), Z(18), Z(19), Z(20)
	for _, v := range []struct {
		name string
		v    Vec
	}{{"limit", zLimit}, {"least", zLeast}, {"anchor", zAnchor}, {"shift", zShift}, {"sign", zSign}} {
		fn.I("VPBROADCASTD", c.At(v.name), v.v)
	}
	fn.I("VMOVD", c.At("signShift"), zSignShift)
	fn.I("VMOVDQU64", low, zLow)
	fn.I("VMOVDQU64", high, zHigh)
	broadcast(fn, 0x7fffffff, t, zAbs)
	broadcast(fn, 0xff800000, t, zBinade)
	broadcast(fn, 0x10011001, t, zJoin) // bytes times 1, 16
	fn.I("VPXORD", zAmax, zAmax, zAmax)
	fn.I("VPXORD", zero, zero, zero)
	if random {
		stochasticConstants(fn, c)
	}
	fn.elementLoop(n, t, func() {
		for j := range 4 {
			fn.I("PREFETCHT0", src.At(64*j+rowPrefetch))
			fn.I("VMOVDQU32.Z", src.At(64*j), K(1+j), Z(j))
		}
		for j := range 4 {
			y, e, s := Z(j), Z(4+j), Z(8+j)
			fn.I("VPANDD", y, zAbs, e)
			fn.I("VPMAXUD", e, zAmax, zAmax)
			fn.I("VMULPS.BCST", factors.At(4*j), y, y)
			if !random {
				clampTo(fn, zLimit, y)
				roundingSum(fn, y, e, zBinade, zLeast, zAnchor)
				fn.I("VPSRLVD", zShift, e, s)
				fn.I("VPADDD", s, e, e)
				continue
			}
			stochasticCode(fn, j, rnd, zAbs, zBinade, zero, zShift)
		}
		fn.gatherCodes(zLow, zHigh, zSign, zSignShift)
		fn.storeGathered(bits, codes, zJoin)
		if random {
			fn.I("ADDQ", 256, rnd)
		}
		fn.I("ADDQ", 256, src)
		fn.I("ADDQ", 16, factors)
	})
	fn.maxDword(zAmax, t)
	fn.I("MOVQ", t, fn.FP("amax"))
	fn.Return()
}

// Registers of the constants of stochastic rounding.
var (
	zStochasticLargest  = Z(16) // largest code
	zStochasticBinade   = Z(17) // exponent of the smallest normal element
	zStochasticMantissa = Z(18) // mantissa bits
	zThirtyTwo          = Z(19)
	zImplicit           = Z(30) // implicit bit of a significand
)

// stochasticConstants sets them.
func stochasticConstants(fn *Func, c constants) {
	fn.I("VPBROADCASTD", c.At("largest"), zStochasticLargest)
	fn.I("VPBROADCASTD", c.At("binade"), zStochasticBinade)
	fn.I("VPBROADCASTD", c.At("mantissa"), zStochasticMantissa)
	fn.I("VPBROADCASTD", c.At("thirtyTwo"), zThirtyTwo)
	fn.I("VPBROADCASTD", c.At("implicit"), zImplicit)
}

// storeGathered stores the bytes of Z(4) under K(1) as codes of 8 bits, or joins two to a byte, and moves
// codes on. join has bytes of 1 and 16.
func (fn *Func) storeGathered(bits int, codes Reg, join Vec) {
	if bits == 8 {
		fn.I("VMOVDQU8", Z(4), K(1), codes.At(0))
		fn.I("ADDQ", 64, codes)
		return
	}
	fn.I("VPMOVM2B", K(1), Z(5))
	fn.I("VPANDD", Z(5), Z(4), Z(4)) // a last code without a second one in its byte
	fn.I("VPMADDUBSW", join, Z(4), Z(4))
	fn.I("VPTESTMW", Z(5), Z(5), K(5))
	fn.I("VPMOVWB", Z(4), Y(4))
	fn.I("VMOVDQU8", Y(4), K(5), codes.At(0))
	fn.I("ADDQ", 32, codes)
}

// stochasticCode sets Z(4+j) to the magnitudes of the codes of the scaled elements in Z(j), rounded by
// the words at rnd. Z(8+j), Z(12) to Z(14) and K5 are scratch registers.
func stochasticCode(fn *Func, j int, rnd Reg, zAbs, zBinade, zero, zShift Vec) {
	y, e, s := Z(j), Z(4+j), Z(8+j)
	// The significand, and the binades above that of the smallest normal element.
	binades, u := Z(12), Z(13)
	fn.I("VPANDD", y, zAbs, e)
	fn.I("VPSRLD", 23, e, binades)
	fn.I("VPTESTMD", binades, binades, K(5))
	fn.I("VPANDND", e, zBinade, e) // the mantissa bits
	fn.I("VPORD", zImplicit, e, K(5), e)
	fn.I("VPSUBD", zStochasticBinade, binades, binades)
	fn.I("VPSUBD", binades, zero, u)
	fn.I("VPMAXSD", zero, binades, binades)
	fn.I("VPSLLVD", zStochasticMantissa, binades, binades) // codes below those of the binade
	fn.I("VPMAXSD", zero, u, u)
	fn.I("VPADDD", zShift, u, u) // bits of the significand that are dropped
	fn.I("VPSRLVD", u, e, s)
	fn.I("VPADDD", binades, s, s)
	// They are a fraction of 32 bits; adding the random bits may carry.
	fn.I("VPSUBD", zThirtyTwo, u, Z(14))
	fn.I("VPSUBD", u, zThirtyTwo, u)
	fn.I("VPSLLVD", u, e, u)
	fn.I("VPSRLVD", Z(14), e, Z(14))
	fn.I("VPORD", Z(14), u, u)
	fn.I("VMOVDQU32.Z", rnd.At(64*j), K(1+j), Z(14))
	fn.I("VPADDD", Z(14), u, u)
	fn.I("VPCMPUD", 1, Z(14), u, K(5)) // less: it did
	fn.I("VPTERNLOGD", 0xff, Z(14), Z(14), Z(14))
	fn.I("VPSUBD", Z(14), s, K(5), s)
	fn.I("VPMINSD", zStochasticLargest, s, e)
}

// fillPhilox writes the Philox kernel. Each quadword has one counter; the upper halves are
// ignored until the end.
func fillPhilox(f *File) {
	fn := f.Func("fillPhilox", `fillPhilox sets dst to the words of Philox4x32-10 of the counters from first
on, 32·n words.`, "dst *uint32, first uint64, n int, c *philoxConstants")
	dst, n, c := fn.Arg("dst"), fn.Arg("n"), fn.Arg("c")
	first := fn.Arg("first")
	var order []byte // unpacking then leaves the words in order
	for _, i := range []uint64{0, 4, 1, 5, 2, 6, 3, 7} {
		order = binary.LittleEndian.AppendUint64(order, i)
	}
	zCounter, zStep, zKey, zM0, zM1, zEight := Z(16), Z(17), Z(18), Z(19), Z(20), Z(21)
	const rounds, keyBytes, stepAt = 10, 8, 80
	t := fn.GP("constants")
	fn.I("VPBROADCASTQ", first, zCounter)
	fn.I("VPADDQ", f.Table("philoxOrder", order), zCounter, zCounter)
	fn.I("VPBROADCASTD", c.At(stepAt), zStep)
	fn.I("VPBROADCASTD", c.At(stepAt+4), zKey)
	broadcast(fn, 0xd2511f53, t, zM0)
	broadcast(fn, 0xcd9e8d57, t, zM1)
	fn.I("MOVQ", 8, t)
	fn.I("VPBROADCASTQ", t, zEight)
	fn.I("MOVL", "$0xaaaaaaaa", t)
	fn.I("KMOVW", t, K(1))
	loop := fn.Label("loop")
	fn.I("VMOVDQA64", zCounter, Z(0))
	fn.I("VPSRLQ", 32, zCounter, Z(1))
	fn.I("VMOVDQA64", zStep, Z(2))
	fn.I("VMOVDQA64", zKey, Z(3))
	x := [4]Vec{Z(0), Z(1), Z(2), Z(3)}
	spare := [2]Vec{Z(4), Z(5)}
	for r := range rounds {
		p0, p1 := spare[0], spare[1]
		fn.I("VPMULUDQ", zM0, x[0], p0)
		fn.I("VPMULUDQ", zM1, x[2], p1)
		hi1, hi0 := x[0], x[2]
		fn.I("VPSRLQ", 32, p1, hi1)
		fn.I("VPSRLQ", 32, p0, hi0)
		fn.I("VPTERNLOGD.BCST", 0x96, c.At(keyBytes*r), x[1], hi1)
		fn.I("VPTERNLOGD.BCST", 0x96, c.At(keyBytes*r+4), x[3], hi0)
		x, spare = [4]Vec{hi1, p1, hi0, p0}, [2]Vec{x[1], x[3]}
	}
	fn.I("VPSLLQ", 32, x[1], x[1])
	fn.I("VPSLLQ", 32, x[3], x[3])
	fn.I("VPBLENDMD", x[1], x[0], K(1), x[0])
	fn.I("VPBLENDMD", x[3], x[2], K(1), x[2])
	fn.I("VPUNPCKLQDQ", x[2], x[0], x[1])
	fn.I("VPUNPCKHQDQ", x[2], x[0], x[3])
	fn.I("VMOVDQU64", x[1], dst.At(0))
	fn.I("VMOVDQU64", x[3], dst.At(64))
	fn.I("VPADDQ", zEight, zCounter, zCounter)
	fn.I("ADDQ", 128, dst)
	fn.I("SUBQ", 1, n)
	fn.Jump("JNZ", loop)
	fn.Return()
}

// hadamardBlocks writes the Hadamard transform in float64, whose sums are those of the Go
// twin. A butterfly is the other element plus this one times ±1.
func hadamardBlocks(f *File) {
	fn := f.Func("hadamardBlocks", `hadamardBlocks replaces each 16 of 16·n elements by their transform, times the
signs at signs before it, rounded to BF16; a NaN becomes nan.`, "x *float32, n int, signs *uint32, nan uint32")
	x, n, signs := fn.Arg("x"), fn.Arg("n"), fn.Arg("signs")
	doubles := func(name string, negative func(i int) bool) Sym {
		var data []byte
		for i := range 8 {
			v := 1.0
			if negative(i) {
				v = -1
			}
			data = binary.LittleEndian.AppendUint64(data, math.Float64bits(v))
		}
		return f.Table(name, data)
	}
	for h := range 3 {
		fn.I("VMOVUPD", doubles(fmt.Sprintf("hadamard%d", h), func(i int) bool { return i>>h&1 == 1 }), Z(16+h))
	}
	t := fn.GP("constants")
	fn.I("VMOVDQU32", signs.At(0), Z(19))
	fn.I("MOVL", fn.FP("nan"), t)
	fn.I("VPBROADCASTD", t, Z(20))
	fn.I("MOVQ", fmt.Sprintf("$0x%x", math.Float64bits(0.25)), t)
	fn.I("VPBROADCASTQ", t, Z(21))
	broadcast(fn, 0x7fff, t, Z(22))
	broadcast(fn, 1, t, Z(23))
	broadcast(fn, 0xffff0000, t, Z(24))
	fn.I("VPXORD", Z(25), Z(25), Z(25))
	loop := fn.Label("loop")
	fn.I("VPXORD", x.At(0), Z(19), Z(0))
	fn.I("VEXTRACTF64X4", 1, Z(0), Y(1))
	fn.I("VCVTPS2PD", Y(0), Z(0))
	fn.I("VCVTPS2PD", Y(1), Z(1))
	for h := range 3 {
		for v := range 2 {
			switch h {
			case 0:
				fn.I("VPERMILPD", 0x55, Z(v), Z(2+v))
			case 1:
				fn.I("VPERMPD", 0x4e, Z(v), Z(2+v))
			case 2:
				fn.I("VSHUFF64X2", 0x4e, Z(v), Z(v), Z(2+v))
			}
			fn.I("VFMADD213PD", Z(2+v), Z(16+h), Z(v))
		}
	}
	fn.I("VADDPD", Z(1), Z(0), Z(2))
	fn.I("VSUBPD", Z(1), Z(0), Z(3))
	for v := 2; v < 4; v++ {
		fn.I("VFMADD213PD", Z(25), Z(21), Z(v)) // plus 0, as a product of matrices: -0 becomes 0
		fn.I("VCVTPD2PS", Z(v), Y(v))
	}
	fn.I("VINSERTF64X4", 1, Y(3), Z(2), Z(2))
	fn.Comment("BF16, to nearest even")
	fn.I("VCMPPS", unordered, Z(2), Z(2), K(1))
	fn.roundToBF16(Z(2), Z(3), Z(22), Z(23))
	fn.I("VPANDD", Z(24), Z(3), Z(3))
	fn.I("VMOVDQA32", Z(20), K(1), Z(3))
	fn.I("VMOVDQU32", Z(3), x.At(0))
	fn.I("ADDQ", 64, x)
	fn.I("SUBQ", 1, n)
	fn.Jump("JNZ", loop)
	fn.Return()
}
