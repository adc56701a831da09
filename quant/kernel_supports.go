//go:build (amd64 || arm64) && !purego

package quant

import (
	"fmt"

	"github.com/microscale-go/microscale/format"
)

// What kernels of both architectures support, their constants and their arguments.

// amaxOrFlagged returns the result of a fused kernel as fusedKernel.begin does.
func amaxOrFlagged(amax uint64) uint32 {
	if amax >= exponentMask {
		return flagged
	}
	return uint32(amax)
}

func exponentOf(o *output) exponentConstants { return o.q.exponentConstants() }

func globalOf(o *output) globalConstants { return newGlobalConstants(o.q.Format.Element, o.global) }

func bytesOf(o *output) bytesConstants { return o.q.bytesConstants() }

// globalBlocks are blocks of 16 elements of E2M1, whose codes kernels hold, under E4M3 scales and a global one, as Transformer Engine
// computes them.
var globalBlocks = condition[*Quantizer]{"blocks of 16, global scale", func(q *Quantizer) bool {
	f := q.Format
	return f.Scale == format.E4M3 && f.Global && f.Block == Shape{1, 16} && f.Element == format.E2M1 &&
		q.Arithmetic == EncodeFirst && q.signMagnitude()
}}

// exponentBlocks are blocks of 32 under E8M0 scales with elements of the given width: of 4 bits, those of E2M1, whose codes kernels hold.
func exponentBlocks(bits int, integer bool) condition[*Quantizer] {
	name := fmt.Sprintf("blocks of 32, %d bits", bits)
	if integer {
		name += ", integers"
	}
	return condition[*Quantizer]{name, func(q *Quantizer) bool {
		f := q.Format
		if f.Scale != format.E8M0 || f.Block != (Shape{1, 32}) || f.Element.StoredBits() != bits || q.UnitZeroScale {
			return false
		}
		if integer {
			return f.Element.Integer && isSymmetric(f.Element) && q.Rounding == format.NearestEven && q.NegativeZero == KeepNegativeZero
		}
		return q.signMagnitude() && (bits != 4 || f.Element == format.E2M1)
	}}
}

// exponentScale, globalScale and bytesScale are the scales that kernels compute.
var exponentScale = condition[*Quantizer]{"E8M0", func(q *Quantizer) bool {
	return q.Format.Scale == format.E8M0 && !q.UnitZeroScale
}}

var globalScale = condition[*Quantizer]{"E4M3 and global", func(q *Quantizer) bool {
	return q.Format.Scale == format.E4M3 && q.Format.Global && q.Arithmetic == EncodeFirst
}}

var bytesScale = condition[*Quantizer]{"FP32", func(q *Quantizer) bool {
	return q.Format.Scale == format.F32 && q.Arithmetic == EncodeFirst
}}

// bytes128 are blocks of 128 elements of 8 bits under FP32 scales, as Transformer Engine computes them.
var bytes128 = condition[*Quantizer]{"blocks of 128, 8 bits", func(q *Quantizer) bool {
	return q.Format.Block == Shape{1, 128} && q.Format.Element.StoredBits() == 8 && bytesScale.holds(q) && q.signMagnitude()
}}

// integers, ofBits and signed are the elements that kernels decode. Those of signed have a negative zero.
var integers = condition[*format.Scalar]{"8 bits, integers", func(e *format.Scalar) bool { return e.Integer && e.Bits() == 8 }}

func ofBits(bits int) condition[*format.Scalar] {
	return condition[*format.Scalar]{fmt.Sprintf("%d bits", bits), func(e *format.Scalar) bool { return e.Bits() == bits }}
}

func signed(bits int) condition[*format.Scalar] {
	return condition[*format.Scalar]{fmt.Sprintf("%d bits", bits), func(e *format.Scalar) bool {
		return e.Bits() == bits && e.HasNegativeZero()
	}}
}

// rowsArgs are the arguments of a kernel of rowKernels: those of rowPart, with gaps from the end of a row to the
// next, in bytes, instead of strides.
type rowsArgs struct {
	codes, src                 *byte
	factors                    *float32
	rows, blocks, units        int
	codeGap, srcGap, factorGap int
	ahead                      int
	stream                     int // not 0: with non-temporal stores
}

func rowsBy(kernel func(p rowsArgs, c *encodeConstants), size int) func(rowPart, *encodeConstants) {
	return func(t rowPart, c *encodeConstants) {
		width := t.blocks * t.units * rowUnit
		kernel(rowsArgs{
			codes: &t.codes[0], src: &t.src[0], factors: &t.factors[0], rows: t.rows, blocks: t.blocks, units: t.units,
			codeGap: t.codeStride - width, srcGap: t.srcStride - size*width, factorGap: 4 * (t.factorStride - t.blocks),
			ahead: t.ahead, stream: index(t.stream),
		}, c)
	}
}

// columnsArgs are the arguments of a kernel of columnKernels: those of columnPart.
type columnsArgs struct {
	codes, src                          *byte
	factors                             *float32
	n, blockRows                        int
	codeStride, srcStride, factorStride int
	ahead                               int
	store                               int // see columnPart.store
	powers                              int // not 0: factors are powers of two
}

func columnsBy(kernel func(p columnsArgs, c *encodeConstants)) func(columnPart, *encodeConstants) {
	return func(t columnPart, c *encodeConstants) {
		kernel(columnsArgs{
			codes: &t.codes[0], src: &t.src[0], factors: &t.factors[0], n: t.n, blockRows: t.blockRows,
			codeStride: t.codeStride, srcStride: t.srcStride, factorStride: t.factorStride,
			ahead: t.ahead, store: t.store(), powers: index(t.powers),
		}, c)
	}
}

// sumArgs are the arguments of a kernel of error sums: those of blockSums.
type sumArgs struct {
	sums, src, variances, means *float32
	extent, blocks              int
	starts                      *int
	factors, decodes            *float32
	lanes                       int
}

func sumsBy(kernel func(p sumArgs, c *sumConstants)) sumKernel {
	return func(b blockSums, c *sumConstants) {
		n := len(b.starts)
		kernel(sumArgs{&b.sums[0], &b.x[0], &b.variances[0], &b.means[0], len(b.x) / n, n, &b.starts[0], &b.factors[0], &b.decodes[0],
			b.lanes}, c)
	}
}

func transposeFourBy(kernel func(dst, src *byte, n, dstStride, srcStride int)) func([]byte, []byte, int, int, int) {
	return func(dst, src []byte, n, dstStride, srcStride int) { kernel(&dst[0], &src[0], n, dstStride, srcStride) }
}
