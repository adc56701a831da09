// Package gemm multiplies quantized matrices: C = alpha·A·Bᵀ, at the speed of
// the machine.
//
//	       K                 K                   N
//	  ┌─────────┐       ┌─────────┐         ┌─────────┐
//	M │    A    │   ·  N│    B    │ᵀ  =   M │    C    │
//	  └─────────┘       └─────────┘         └─────────┘
//
// Both operands hold their lines along K, the dimension that is summed over, so
// that the blocks of their formats lie along it. The lines of a rowwise tensor
// are the rows of its source, those of a columnwise tensor the columns of it;
// with rowwise and columnwise copies of the same three tensors the three products
// of a linear layer Y = X·Wᵀ are
//
//	fprop  Y  = X·Wᵀ    Mul(y, x.rowwise, w.rowwise)
//	dgrad  dX = dY·W    Mul(dx, dy.rowwise, w.columnwise)
//	wgrad  dW = dYᵀ·X   Mul(dw, dy.columnwise, x.columnwise)
//
// A and B may have different formats. Packing decodes both into panels of one
// type (kernel.go), and the kernels know panels alone, no format. The result is
// that of Reference to the bound
//
//	|C − Reference| ≤ (K+8)·2⁻²³·|alpha|·Σ|a·b| + (K+8)·2⁻¹²⁶·max(1, |alpha|)
//
// whose last term is there because BF16 kernels flush products and sums below 2⁻¹²⁶ to
// zero. To them BF16 elements below it are zeros, too, whatever they are multiplied by,
// and the bound is to the reference of such zeros. Scales that are not multiplied to the
// elements are multiplied to sums over parts of a line, or to the result: FP32 and global
// scales, and all of B where it is read as it is. The bound holds where those sums without
// them stay within float32's range, too, and C may be Inf, NaN or a flushed zero where they
// do not, as with scales or elements near the ends of that range. An element that only its
// scale takes beyond float32's range is Inf to Reference, and finite to kernels that
// multiply by the scale later: C may then be finite where Reference is Inf or NaN. C does
// not depend on the number of threads: the sum of one element runs over k in steps that the
// kernel alone determines.
//
// Products of few lines of A, up to 4 to 32, read B's codes as they are: packing
// them would take longer. A is then what the caller made it. With AVX-512, lines that
// BF16 holds, and weights of 4 bits with E8M0 or E4M3 scales or of 8 bits with E8M0 or one
// FP32 scale for each line or the tensor, B is decoded to BF16 (but where BF16 products
// are no faster than float32 ones not for one or two lines by 4 bits); with lines quantized to
// integers in blocks (mxint8, or the format of the weights) and weights of mxfp4,
// mxfp6-e2m3, mxint8 or nvfp4, the products of a block are exact integers, which takes
// fewer instructions; all others, and BF16 and float32 weights, are multiplied in float32.
// Quantizing A for integers is the caller's choice, since it changes the result:
//
//	q := quant.Quantizer{Format: quant.MXINT8}
//	a, err := q.Rowwise(x, quant.With{Into: a})
//	err = gemm.Mul(y, a, w, gemm.Options{})
//
// Which kernel comes first depends on the formats, on M, on the instructions that the
// processor has, and on its vendor and family: on Intel's, where BF16 dot products are
// no faster than float32 ones, float32 panels come before BF16 ones. Where there is AMX,
// its tiles of BF16 come before both for all but float32 operands, and before int8 panels,
// but where a product of E8M0 scales has up to 20 lines and packs B (Kernels has the order,
// internal/cpu the facts). All of it is fixed, and nothing is timed. Kernels differ in how
// sums are rounded, always within the bound: two machines give the same bits where they
// take the same kernel, which Options.Kernel can ask for.
//
// Dimensions are M, N and K for those of the whole product, m, n and k for those
// of a part.
package gemm

import (
	"github.com/microscale-go/microscale/quant"
	"github.com/microscale-go/microscale/tensor"
)

// Options of a product. The zero value is C = A·Bᵀ on all processors.
type Options struct {
	Alpha      float32   // factor of the product; 0 stands for 1
	Accumulate bool      // C += in place of C =, which does not read C
	Bias       []float32 // added to every row of C; nil, or N elements
	Threads    int       // goroutines; 0: one per processor
	Kernel     string    // a kernel by its name (see Kernels); "": the best one that takes the operands
}

// Mul sets c, M×N, to alpha·A·Bᵀ + bias for A of M lines and B of N lines along
// the same K. It fails, and leaves c alone, where shapes do not match, where an
// operand's codes or scales are not those of its shape, where c shares memory with an
// operand or the bias, and where the kernel asked for cannot take the operands. Where a
// scale is NaN, c is what Reference has, NaN in all of the row or column, and the error is
// a *NaNScale.
func Mul(c tensor.Dense, a, b *quant.Tensor, o Options) error {
	p, err := planDense(c, a, b, false, o)
	if err != nil {
		return err
	}
	return p.run(c, extent{0, p.m}, extent{0, p.n}, nil, o)
}

// MulBF16 is Mul with its result rounded once, from the float32 that Mul
// computes, to the elements of c: a rowwise M×N tensor of the format bf16.
func MulBF16(c, a, b *quant.Tensor, o Options) error {
	p, err := planBF16(c, a, b, false, o)
	if err != nil {
		return err
	}
	return p.runBF16(c, nil, o)
}
