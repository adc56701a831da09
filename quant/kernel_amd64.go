//go:build !purego

package quant

import (
	"github.com/microscale-go/microscale/format"
	"github.com/microscale-go/microscale/internal/cpu"
)

var fusedKernels = []fusedKernel{
	{cpu.AVX512, false, exponentBlocks(8, false), beginExponent(fuse8)},
	{cpu.AVX512, false, exponentBlocks(6, false), beginExponent(fuse6)},
	{cpu.AVX512, false, exponentBlocks(4, false), beginExponent(fuse4)},
	{cpu.AVX512, false, exponentBlocks(8, true), beginExponent(fuseInt8)},
	{cpu.AVX512, false, globalBlocks, beginGlobal(fuseGlobal4)},
	{cpu.AVX512, true, exponentBlocks(8, false), beginExponent(fuse8BF16)},
	{cpu.AVX512, true, exponentBlocks(6, false), beginExponent(fuse6BF16)},
	{cpu.AVX512, true, exponentBlocks(4, false), beginExponent(fuse4BF16)},
	{cpu.AVX512, true, exponentBlocks(8, true), beginExponent(fuseInt8BF16)},
	{cpu.AVX512, true, globalBlocks, beginGlobal(fuseGlobal4BF16)},
}

// globalBlocks says that a kernel serves blocks of 16 elements of 4 bits under
// E4M3 scales and a global one, as Transformer Engine computes them.
func globalBlocks(q *Quantizer) bool {
	f := q.Format
	return f.Scale == format.E4M3 && f.Global && f.Block == Shape{1, 16} && f.Element.StoredBits() == 4 &&
		q.Arithmetic == EncodeFirst && q.signMagnitude()
}

// exponentBlocks says that a kernel serves blocks of 32 under E8M0 scales with
// elements of the given width.
func exponentBlocks(bits int, integer bool) func(*Quantizer) bool {
	return func(q *Quantizer) bool {
		f := q.Format
		if f.Scale != format.E8M0 || f.Block != (Shape{1, 32}) || f.Element.StoredBits() != bits {
			return false
		}
		if integer {
			return f.Element.Integer && q.Rounding == format.NearestEven && q.NegativeZero == KeepNegativeZero
		}
		return q.signMagnitude()
	}
}

func beginExponent(kernel func(codes, scales, src *byte, groups int, c *exponentConstants) uint64) func(*run) fusedCall {
	return func(r *run) fusedCall {
		c := r.q.exponentConstants()
		return func(codes, scales, src []byte, groups int) uint32 {
			return uint32(kernel(&codes[0], &scales[0], &src[0], groups, &c))
		}
	}
}

func beginGlobal(kernel func(codes, scales, src *byte, groups int, c *globalConstants) uint64) func(*run) fusedCall {
	return func(r *run) fusedCall {
		c := newGlobalConstants(r.q.Format.Element, r.global)
		return func(codes, scales, src []byte, groups int) uint32 {
			return uint32(kernel(&codes[0], &scales[0], &src[0], groups, &c))
		}
	}
}

var encodeKernels = []encodeKernel{
	{cpu.AVX512, false, encodeBy(encodeTimes)},
	{cpu.AVX512, true, encodeBy(encodeOver)},
}

func encodeBy(kernel func(codes *byte, src *float32, n int, factors *float32, extent int, c *encodeConstants) uint64) func([]byte, []float32, []float32, int, *encodeConstants) uint32 {
	return func(codes []byte, src, factors []float32, extent int, c *encodeConstants) uint32 {
		return uint32(kernel(&codes[0], &src[0], len(src), &factors[0], extent, c))
	}
}

var amaxKernels = []amaxKernel{
	{cpu.AVX512, func(amaxes []uint32, x []float32, extent int) {
		amaxes512(&amaxes[0], &x[0], len(x), extent)
	}},
}

var widenKernels = []widenKernel{
	{cpu.AVX512, func(dst []float32, src []byte) { widen512(&dst[0], &src[0], len(dst)) }},
}

var columnKernels = []columnKernel{
	{cpu.AVX512, exponentBlocks(8, false), func(r *run) columnCall {
		c := r.q.exponentConstants()
		return func(codes, scales []byte, src []float32, tiles, codeStride, scaleStride, srcStride int) uint32 {
			return uint32(columns8(&codes[0], &scales[0], &src[0], tiles, codeStride, scaleStride, srcStride, &c))
		}
	}},
}

var transposeKernels = []transposeKernel{
	{cpu.AVX512, func(dst, src []float32, dstStride, srcStride, n int) {
		transpose512(&dst[0], &src[0], 4*dstStride, 4*srcStride, n)
	}},
}

var decodeKernels = []decodeKernel{
	{cpu.AVX512, func(e *format.Scalar) bool {
		return e.Bits() == 8 && !e.Integer && !e.NoZero && e.Specials != format.UnsignedZero
	}, 32, byteTable(decodeBytes)},
	{cpu.AVX512, func(e *format.Scalar) bool { return e.Integer }, 32, valueTable(decodeIntegers)},
	{cpu.AVX512, func(e *format.Scalar) bool { return e.Bits() == 6 }, 32, byteTable(decodeSixes)},
	{cpu.AVX512, func(e *format.Scalar) bool { return e.Bits() == 4 }, 32, valueTable(decodeNibbles32)},
	{cpu.AVX512, func(e *format.Scalar) bool { return e.Bits() == 4 }, 16, valueTable(decodeNibbles16)},
}

func byteTable(kernel func(dst *float32, src *byte, scales *float32, n int, table *byte)) func([]float32, []byte, []float32, *decodeTables) {
	return func(dst []float32, src []byte, scales []float32, t *decodeTables) {
		kernel(&dst[0], &src[0], &scales[0], len(dst), &t.bytes[0])
	}
}

func valueTable(kernel func(dst *float32, src *byte, scales *float32, n int, table *float32)) func([]float32, []byte, []float32, *decodeTables) {
	return func(dst []float32, src []byte, scales []float32, t *decodeTables) {
		kernel(&dst[0], &src[0], &scales[0], len(dst), &t.values[0])
	}
}
