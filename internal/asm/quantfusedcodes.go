package asm

// Registers that hold 64 elements while they become codes.
var (
	zSums   = [4]Vec{Z(8), Z(9), Z(10), Z(11)} // rounding sums, then codes in zSums[1]
	zX      = Z(12)                            // elements that are not read from memory
	zScaleE = Z(13)                            // factor of the elements; under E8M0 scales, minimum of e in their block
	zScaleC = Z(14)                            // 2^(23-m)·(1 + bias·2^-23) of the block
	zTemp   = Z(15)
	zPairs  = Z(16) // codes of the previous 64 elements, two to a word
)

// element returns the index in 64 elements of the first element of vector i, and its memory. Of
// BF16, two vectors have the even and the odd elements of the same 32.
func (k *fused) element(i int) (element int, at Mem) {
	if k.source == 16 {
		i = i / 2 * 2
	}
	return 16 * i, k.src.At(16 * i * k.source / 8)
}

// take returns the elements of vector i: their memory, or zX with those of BF16 as float32.
func (k *fused) take(s *sequence, i int) any {
	_, at := k.element(i)
	switch {
	case k.source == 32:
		return at
	case i%2 == 0:
		s.I("VPSLLD", 16, at, zX)
	default:
		s.I("VPANDD", at, zUpper, zX)
	}
	return zX
}

// factor sets v to the factors of the elements of vector i. The factors are in the read buffer,
// from byte offset on.
func (k *fused) factor(s *sequence, i, offset int, v Vec) {
	element, _ := k.element(i)
	block := element / k.block()
	if before, _ := k.element(i - 1); i > 0 && before/k.block() == block {
		return // v has it already
	}
	s.I("VBROADCASTSS", k.read.At(offset+4*block), v)
	if k.source == 16 && k.block() == 16 { // the even or odd elements of two blocks
		s.I("VBROADCASTSS", k.read.At(offset+4*(block+1)), kUpperLanes, v)
	}
}

// sums sets zSums[i] to the rounding sums of vector i, multiplied by zTimes.
func (k *fused) sums(s *sequence, i int) {
	v := zSums[i]
	x := k.take(s, i)
	k.factor(s, i, 0, zScaleE)
	if k.global {
		s.I("VMULPS", x, zScaleE, zX)
		clampTo(s, zLimit, zX)
		roundingSum(s, zX, v, zBinade, zLeast, zAnchor)
	} else {
		k.factor(s, i, 64, zScaleC)
		roundingSum(s, x, v, zBinade, zScaleE, zScaleC)
	}
	s.I("VPMADDWD", zTimes, v, v)
}

// integers sets zSums[i] to the codes of vector i, as dwords.
func (k *fused) integers(s *sequence, i int) {
	x := k.take(s, i)
	k.factor(s, i, 0, zScaleE)
	s.I("VMULPS", x, zScaleE, zSums[i])
	clampTo(s, zLimit, zSums[i])
	s.I("VCVTPS2DQ", zSums[i], zSums[i])
}

// join packs the codes of zSums into zSums[1]: 64 bytes, or 32 words of two codes of 4 bits.
func (k *fused) join(s *sequence) {
	codes, signs := zSums[1], zSums[3]
	if k.integer {
		s.I("VPACKSSDW", zSums[1], zSums[0], zSums[0])
		s.I("VPACKSSDW", zSums[3], zSums[2], zSums[2])
		s.I("VPACKSSWB", zSums[2], zSums[0], codes)
		if k.source == 32 {
			s.I("VPERMD", codes, zOrder, codes)
		} else {
			s.I("VPSHUFB", zOrder, codes, codes)
			s.I("VPERMQ", codes, zDword, codes)
		}
		return
	}
	joinSums(s, zSums, zTemp)
	if !k.global { // under some rules, the largest magnitude is above the limit
		s.I("VPMINUB", zLimit, codes, codes)
	}
	s.I("VPTERNLOGD", 0xd8, zSign, signs, codes) // where zSign is set signs, else codes
	orderCodes(s, k.source, codes)
	if k.bits == 4 {
		s.I("VPMADDUBSW", zJoin, codes, codes)
	}
}

// joinPairs keeps the codes of 64 elements, two to a word, where the number of steps left is even,
// and continues at stored. Otherwise it joins the codes of 128 elements.
func (k *fused) joinPairs(stored Label) {
	second, codes := k.NewLabel("second"), zSums[1]
	k.I("TESTQ", 1, k.left)
	k.Jump("JNZ", second)
	k.I("VMOVDQA64", codes, zPairs)
	k.Jump("JMP", stored)
	k.Place(second)
	k.I("VPACKUSWB", codes, zPairs, codes)
	k.I("VPERMQ", codes, zSpread, codes)
}

// joinSixes packs the four codes of 6 bits in each dword into its three low bytes.
func joinSixes(e emitter, v Vec) {
	e.I("VPMADDUBSW", zJoin, v, v)
	e.I("VPMADDWD", zJoin2, v, v)
}
