//go:build (amd64 || arm64) && !purego

package quant

// Kernels of AVX2 and some of NEON take whole units. Row tails go through a buffer of one unit, or a plain loop.

const (
	codesUnit    = 32  // elements of kernels for codes of 8 bits, and of the decoders
	nibblesUnit  = 64  // of those for codes of 4 bits
	amaxUnit     = 16  // of amaxes and maxima
	factorsChunk = 512 // elements whose factors are spread at a time
)

// A rowTail is a buffer for the last elements of a row.
type rowTail struct {
	src     [nibblesUnit]float32
	random  [nibblesUnit]uint32
	factors [nibblesUnit / factorExtent]float32
	codes   [nibblesUnit]byte
}

// newRowTail copies the elements from whole on. The last factor is repeated.
func newRowTail(whole int, src []float32, random []uint32, factors []float32) (e rowTail) {
	copy(e.src[:], src[whole:])
	if random != nil {
		copy(e.random[:], random[whole:])
	}
	spreadEnd(e.factors[:], factors[whole/factorExtent:])
	return e
}

// spreadEnd sets dst to factors, and repeats the last.
func spreadEnd(dst, factors []float32) {
	for i := range dst {
		dst[i] = factors[min(i, len(factors)-1)]
	}
}

// decodeUnits returns a decodeKernel of codes of that many bits by a kernel that
// takes whole units.
func decodeUnits(bits, extent int, kernel func(dst *float32, src *byte, scales *float32, n int, t *decodeTables)) func(dst []float32,
	src []byte, scales []float32, t *decodeTables) {
	return func(dst []float32, src []byte, scales []float32, t *decodeTables) {
		whole := len(dst) / codesUnit * codesUnit
		if whole > 0 {
			kernel(&dst[0], &src[0], &scales[0], whole/codesUnit, t)
		}
		if whole < len(dst) {
			end := new(struct {
				dst    [codesUnit]float32
				src    [codesUnit]byte
				scales [2]float32
			})
			copy(end.src[:], src[whole*bits/8:])
			spreadEnd(end.scales[:], scales[whole/extent:ceilDiv(len(dst), extent)])
			kernel(&end.dst[0], &end.src[0], &end.scales[0], 1, t)
			copy(dst[whole:], end.dst[:])
		}
	}
}
