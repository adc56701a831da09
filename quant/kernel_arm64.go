//go:build !purego

package quant

import (
	"github.com/microscale-go/microscale/format"
	"github.com/microscale-go/microscale/internal/cpu"
)

func init() {
	decodeKernels = []decodeKernel{
		decodeNEON(decodeBytesNEONNeeds, 8, 32, decodeBytesNEON),
		decodeNEON(decodeNibblesNEONNeeds, 4, 32, decodeNibblesNEON),
		decodeNEON(decodeNibblesNEONNeeds, 4, 16, decodeNibblesNEON),
	}
	add(&amaxKernels, amaxesNEONNeeds, variant{}, amaxNEON(4, amaxesNEON))
	add(&amaxKernels, amaxesBF16NEONNeeds, variant{bf16: true}, amaxNEON(2, amaxesBF16NEON))
	add(&maxKernels, amaxesNEONNeeds, variant{}, func(src []byte) (amax uint32) {
		amaxesNEON(&amax, &src[0], len(src)/4, len(src))
		return amax
	})
	add(&maxKernels, amaxesBF16NEONNeeds, variant{bf16: true}, func(src []byte) (amax uint32) {
		amaxesBF16NEON(&amax, &src[0], len(src)/2, len(src))
		return amax
	})
	add(&encodeKernels, encodeTimesNEONNeeds, variant{}, encodeNEON(encodeTimesNEON))
	add(&encodeKernels, encodeOverNEONNeeds, variant{divides: true}, encodeNEON(encodeOverNEON))
}

func amaxNEON(size int, kernel func(amaxes *uint32, src *byte, n, extent int)) func([]uint32, []byte, int) {
	return func(amaxes []uint32, src []byte, extent int) { kernel(&amaxes[0], &src[0], len(src)/size, extent) }
}

func encodeNEON(kernel func(codes *byte, src *float32, n int, factors *float32, extent int, c *encodeConstants)) func([]byte, []float32,
	[]float32, int, *encodeConstants) {
	return func(codes []byte, src, factors []float32, extent int, c *encodeConstants) {
		kernel(&codes[0], &src[0], len(src), &factors[0], extent, c)
	}
}

func decodeNEON(needs cpu.Set, bits, extent int, kernel func(dst *float32, src *byte, scales *float32, n, extent int,
	t *decodeTables)) decodeKernel {
	return decodeKernel{needs, func(e *format.Scalar) bool { return e.Bits() == bits && e.HasNegativeZero() }, extent,
		func(dst []float32, src []byte, scales []float32, t *decodeTables) {
			kernel(&dst[0], &src[0], &scales[0], len(dst), extent, t)
		}}
}

// fence orders non-temporal stores, of which there are none.
func fence() {}
