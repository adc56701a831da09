//go:build !purego

package quant

import (
	"github.com/microscale-go/microscale/format"
	"github.com/microscale-go/microscale/internal/cpu"
)

// The primitives without a kernel for arm64 have empty tables.
var (
	fusedKernels     []fusedKernel
	rowKernels       []rowKernel
	columnKernels    []columnKernel
	scaleKernels     []scaleKernel
	joinKernels      []joinKernel
	searchKernels    []searchKernel
	philoxKernels    []philoxKernel
	hadamardKernels  []hadamardKernel
	spreadKernels    []spreadKernel
	transposeKernels []transposeKernel
	codesKernels     []codesKernel
)

var amaxKernels = []amaxKernel{amaxNEON(false, 4, amaxesNEON), amaxNEON(true, 2, amaxesBF16NEON)}

func amaxNEON(raw bool, size int, kernel func(amaxes *uint32, src *byte, n, extent int)) amaxKernel {
	return amaxKernel{cpu.NEON, raw, func(amaxes []uint32, src []byte, extent int) {
		kernel(&amaxes[0], &src[0], len(src)/size, extent)
	}, func(src []byte) (amax uint32) {
		kernel(&amax, &src[0], len(src)/size, len(src))
		return amax
	}}
}

var encodeKernels = []encodeKernel{
	{cpu.NEON, false, func(codes []byte, src, factors []float32, extent int, c *encodeConstants) {
		encodeTimesNEON(&codes[0], &src[0], len(src), &factors[0], extent, c)
	}},
	{cpu.NEON, true, func(codes []byte, src, factors []float32, extent int, c *encodeConstants) {
		encodeOverNEON(&codes[0], &src[0], len(src), &factors[0], extent, c)
	}},
}

var decodeKernels = []decodeKernel{
	decodeNEON(8, 32, decodeBytesNEON),
	decodeNEON(4, 32, decodeNibblesNEON),
	decodeNEON(4, 16, decodeNibblesNEON),
}

func decodeNEON(bits, extent int, kernel func(dst *float32, src *byte, scales *float32, n, extent int, t *decodeTables)) decodeKernel {
	return decodeKernel{cpu.NEON, func(e *format.Scalar) bool { return e.Bits() == bits && e.HasNegativeZero() }, extent,
		func(dst []float32, src []byte, scales []float32, t *decodeTables) {
			kernel(&dst[0], &src[0], &scales[0], len(dst), extent, t)
		}}
}

// fence orders non-temporal stores, of which there are none.
func fence() {}
