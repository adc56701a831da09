// Package gemm multiplies quantized matrices: C = alpha·A·Bᵀ + bias.
//
//	       K                 K                   N
//	  ┌─────────┐       ┌─────────┐         ┌─────────┐
//	M │    A    │   ·  N│    B    │ᵀ  =   M │    C    │
//	  └─────────┘       └─────────┘         └─────────┘
//
// The stored rows of both operands lie along K, the dimension of the sum. So do
// their blocks. A rowwise tensor stores the rows of its source, a columnwise tensor
// its columns. With rowwise and columnwise copies of three tensors, the products of a linear layer
// Y = X·Wᵀ are
//
//	fprop  Y  = X·Wᵀ    Mul(y, x.rowwise, w.rowwise)
//	dgrad  dX = dY·W    Mul(dx, dy.rowwise, w.columnwise)
//	wgrad  dW = dYᵀ·X   Mul(dw, dy.columnwise, x.columnwise)
//
// A and B may have different formats. Packing decodes each into panels of one type
// (kernel.go); kernels know panels, not formats. If M is small, a vector kernel
// reads the codes of B without packing (vector.go).
//
// # Accuracy
//
// Reference defines the result. Mul differs from it by at most
//
//	|C − Reference| ≤ (K+8)·2⁻²³·|alpha|·Σ|a·b| + (K+8)·2⁻¹²⁶·max(1, |alpha|)
//
// The second term covers BF16 kernels, which flush products and sums below 2⁻¹²⁶ to
// zero. They also read BF16 elements below 2⁻¹²⁶ as zero; the bound is to the
// reference of such zeros. Kernels of BF16 for NEON round the sum of each two products, and
// that of these sums, to odd (BFMMLA, BFDOT), which the first term covers.
//
// FP32 and global scales multiply sums, not elements. The bound holds while the sums
// without these scales stay in float32's range; outside of it C may be Inf, NaN or a
// flushed zero. Conversely, C may be finite where Reference overflows because a scale
// takes one element out of range. Vector kernels multiply sums of blocks by E8M0 scales, too, some after moving
// elements of 8 bits by 2⁻²⁰: products without scales lose bits below 2⁻¹⁰⁶ and are zero below 2⁻¹³⁰.
//
// With Options.Accumulator, a model of a matrix unit (package mma) adds the products instead, with
// the alignment and truncation of the hardware: see Unit and unit.go. The bound above does not
// hold for it.
//
// # Determinism
//
// C does not depend on the number of threads: the kernel alone determines the order
// of the sum over K. Two machines give the same bits with the same kernel, which
// Options.Kernel can fix. The choice of the kernel is a function of the formats, M,
// which scales and elements it supports, and the processor (Kernels), never of a timing.
//
// Dimensions M, N and K are those of the product; m, n and k are those of a part.
package gemm

import (
	"github.com/microscale-go/microscale/mma"
	"github.com/microscale-go/microscale/quant"
	"github.com/microscale-go/microscale/tensor"
)

// Options of a product. The zero value computes C = A·Bᵀ on all processors.
type Options struct {
	Alpha      float32   // factor of the product; 0 means 1
	Accumulate bool      // compute C += instead of C =, which does not read C
	Bias       []float32 // N elements, added to every row of C; nil: none
	Threads    int       // goroutines; 0: one per processor
	Kernel     string    // name of a kernel (see Kernels); "": the first that supports the operands

	// Accumulator adds the products as a matrix unit of a GPU does. The zero value is FP32.
	Accumulator mma.Accumulator
}

// Mul sets c, M×N, to alpha·A·Bᵀ + bias. A has M stored rows and B has N, of K
// elements each.
//
// It returns an error, and leaves c unchanged, if shapes do not match, an operand is
// damaged, c shares memory with an input, or the requested kernel does not support the
// operands. If a scale is NaN, the whole row or column of c is NaN as in Reference, and
// the error is a *NaNScale.
func Mul(c tensor.Dense, a, b *quant.Tensor, o Options) error {
	p, err := planDense(c, a, b, rowMajor, o)
	if err != nil {
		return err
	}
	return p.run(c, extent{0, p.m}, extent{0, p.n}, nil, o)
}

// MulBF16 is Mul with the float32 result rounded once to BF16. c is a rowwise M×N
// tensor of the format bf16.
func MulBF16(c, a, b *quant.Tensor, o Options) error {
	p, err := planBF16(c, a, b, rowMajor, o)
	if err != nil {
		return err
	}
	return p.runBF16(c, nil, o)
}
