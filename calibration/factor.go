package calibration

import (
	"cmp"
	"fmt"
	"slices"

	"gonum.org/v1/gonum/blas"
	"gonum.org/v1/gonum/blas/blas64"
	"gonum.org/v1/gonum/lapack/lapack64"

	"github.com/microscale-go/microscale/quant"
)

// A Factor says how GPTQ spreads what rounding a column loses over the columns after it. With H permuted and
// damped, H⁻¹ = Uᵀ·U for an upper triangular U, whose row i over its diagonal element is the row of the
// inverse of H without the columns before i.
type Factor struct {
	Order   []int   // of the columns: by falling mean square, equal ones as they are
	Damping float64 // was added to the diagonal, as a share of its mean
	Dead    int     // columns that are zero for every token; they are rounded to nearest

	u   []float32     // U by rows of len(Order), 0 below the diagonal
	aim *quant.Tensor // D·H⁻¹ of Aim, transposed; nil: none
}

// DefaultDamping is GPTQ's; a factorization that fails is repeated with ten times as much, up to maxDamping.
const (
	DefaultDamping = 0.01
	maxDamping     = 1.0
)

// NewFactor returns the factor of the n×n matrix H whose upper triangle is given, row after row. It returns an
// error if H is not finite and positive semidefinite, even when it is damped.
func NewFactor(upper []float32, n int) (*Factor, error) {
	at := func(i, j int) float64 {
		i, j = min(i, j), max(i, j)
		return float64(upper[i*n-i*(i-1)/2+j-i])
	}
	f := &Factor{Order: make([]int, n)}
	sum := 0.0
	for i := range f.Order {
		f.Order[i] = i
		if sum += at(i, i); at(i, i) == 0 {
			f.Dead++
		}
	}
	slices.SortStableFunc(f.Order, func(a, b int) int { return cmp.Compare(at(b, b), at(a, a)) })
	if !(sum > 0) {
		return nil, fmt.Errorf("the mean squares add up to %g, want a positive number", sum)
	}
	for f.Damping = DefaultDamping; f.Damping <= maxDamping; f.Damping *= 10 {
		if f.decompose(at, sum/float64(n)) {
			return f, nil
		}
	}
	return nil, fmt.Errorf("the products have no Cholesky factor, even with %g of the mean of its diagonal added: collect the statistics "+
		"again, over more text", maxDamping)
}

// decompose sets U. With J the reversal of the order, L the lower Cholesky factor of J·H·J and R = J·L·J, which is
// upper, H = R·Rᵀ, so that U = R⁻¹. ok is false if there is no factor.
func (f *Factor) decompose(at func(i, j int) float64, mean float64) (ok bool) {
	n := len(f.Order)
	reversed := make([]float64, n*n)
	for i := range n {
		for j := range i + 1 {
			reversed[i*n+j] = at(f.Order[n-1-i], f.Order[n-1-j])
		}
		reversed[i*n+i] += f.Damping * mean
	}
	lower, ok := lapack64.Potrf(blas64.Symmetric{Uplo: blas.Lower, N: n, Data: reversed, Stride: n})
	if !ok || !lapack64.Trtri(lower) {
		return false
	}
	f.u = make([]float32, n*n)
	for i := range n {
		for j := i; j < n; j++ {
			f.u[i*n+j] = float32(reversed[(n-1-i)*n+n-1-j])
		}
	}
	return true
}
