//go:build !purego

package quant

// AVX2 has no masks, so its kernels take whole units.

// encodeExtents16 sets codes, one to a byte, to those of src times factors[i/16], or
// divided by them.
func encodeExtents16(divide bool, codes []byte, src, factors []float32, c *encodeConstants) {
	whole := len(src) / codesUnit * codesUnit
	if whole > 0 {
		encodeUnitsAVX2(divide, &codes[0], &src[0], whole/codesUnit, &factors[0], c)
	}
	if whole < len(src) {
		end := newRowTail(whole, src, nil, factors)
		encodeUnitsAVX2(divide, &end.codes[0], &end.src[0], 1, &end.factors[0], c)
		copy(codes[whole:len(src)], end.codes[:])
	}
}

func encodeUnitsAVX2(divide bool, codes *byte, src *float32, n int, factors *float32, c *encodeConstants) {
	if divide {
		encodeOverAVX2(codes, src, n, factors, c)
	} else {
		encodeTimesAVX2(codes, src, n, factors, c)
	}
}

func joinNibblesAVX2(codes []byte, src []float32, _ []uint32, factors []float32, c *encodeConstants) {
	whole := len(src) / nibblesUnit * nibblesUnit
	if whole > 0 {
		join4AVX2(&codes[0], &src[0], whole/nibblesUnit, &factors[0], c)
	}
	if whole < len(src) {
		end := newRowTail(whole, src, nil, factors)
		join4AVX2(&end.codes[0], &end.src[0], 1, &end.factors[0], c)
		copy(codes[whole/2:ceilDiv(len(src), 2)], end.codes[:])
	}
}

func joinRandomBytesAVX2(codes []byte, src []float32, random []uint32, factors []float32, c *encodeConstants) {
	whole := len(src) / codesUnit * codesUnit
	if whole > 0 {
		joinRandom8AVX2(&codes[0], &src[0], &random[0], whole/codesUnit, &factors[0], c)
	}
	if whole < len(src) {
		end := newRowTail(whole, src, random, factors)
		joinRandom8AVX2(&end.codes[0], &end.src[0], &end.random[0], 1, &end.factors[0], c)
		copy(codes[whole:len(src)], end.codes[:])
	}
}

func joinRandomNibblesAVX2(codes []byte, src []float32, random []uint32, factors []float32, c *encodeConstants) {
	whole := len(src) / nibblesUnit * nibblesUnit
	if whole > 0 {
		joinRandom4AVX2(&codes[0], &src[0], &random[0], whole/nibblesUnit, &factors[0], c)
	}
	if whole < len(src) {
		end := newRowTail(whole, src, random, factors)
		joinRandom4AVX2(&end.codes[0], &end.src[0], &end.random[0], 1, &end.factors[0], c)
		copy(codes[whole/2:ceilDiv(len(src), 2)], end.codes[:])
	}
}

// encodeAVX2 returns a kernel for any extents by encodeExtents16.
func encodeAVX2(divide bool) func([]byte, []float32, []float32, int, *encodeConstants) {
	return func(codes []byte, src, factors []float32, extent int, c *encodeConstants) {
		var each [factorsChunk / factorExtent]float32
		step := factorsChunk // within a block, or over whole ones
		if extent%factorExtent != 0 {
			step = min(extent, factorsChunk)
		}
		j, left := 0, extent // of block j
		for len(src) > 0 {
			n := min(step, len(src))
			if extent%factorExtent != 0 {
				n = min(n, left)
			}
			for i := range ceilDiv(n, factorExtent) {
				each[i] = factors[j]
				if left -= min(factorExtent, n-i*factorExtent); left == 0 {
					j, left = j+1, extent
				}
			}
			encodeExtents16(divide, codes[:n], src[:n], each[:], c)
			codes, src = codes[n:], src[n:]
		}
	}
}

func raiseAVX2(amaxes []uint32, src []byte, extent int) {
	const size = 4
	n, extent := wholeBlocks(src, extent, size)
	if n > 0 {
		amaxesAVX2(&amaxes[0], &src[0], n, extent/amaxUnit)
	}
	for j := n; j*extent*size < len(src); j++ {
		block := src[j*extent*size : min((j+1)*extent*size, len(src))]
		whole := len(block) / (size * amaxUnit) * amaxUnit
		if whole > 0 {
			amaxesAVX2(&amaxes[j], &block[0], 1, whole/amaxUnit)
		}
		for i := whole; i < len(block)/size; i++ {
			amaxes[j] = max(amaxes[j], magnitude(block, false, i))
		}
	}
}

func raiseBF16AVX2(amaxes []uint32, src []byte, extent int) {
	const size = 2
	n, extent := wholeBlocks(src, extent, size)
	if n > 0 {
		amaxesBF16AVX2(&amaxes[0], &src[0], n, extent/amaxUnit)
	}
	for j := n; j*extent*size < len(src); j++ {
		block := src[j*extent*size : min((j+1)*extent*size, len(src))]
		whole := len(block) / (size * amaxUnit) * amaxUnit
		if whole > 0 {
			amaxesBF16AVX2(&amaxes[j], &block[0], 1, whole/amaxUnit)
		}
		for i := whole; i < len(block)/size; i++ {
			amaxes[j] = max(amaxes[j], magnitude(block, true, i))
		}
	}
}

// wholeBlocks returns how many blocks of src a kernel takes that has units of amaxUnit
// elements, and the extent of blocks, at most that of src.
func wholeBlocks(src []byte, extent, size int) (n, inside int) {
	if inside = min(extent, len(src)/size); inside%amaxUnit == 0 {
		n = len(src) / (size * inside)
	}
	return n, inside
}
