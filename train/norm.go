package train

import (
	"math"

	"github.com/microscale-go/microscale/internal/parallel"
	"github.com/microscale-go/microscale/nn"
	"github.com/microscale-go/microscale/tensor"
)

// gradientNorm returns the Euclidean norm of all gradients, in float64: the sums of squares of the
// rows of each parameter, added in order. Ranks that have some of the rows each compute the same
// sums (see rowSquares), so that the norm depends neither on threads nor on ranks.
func gradientNorm(params []*nn.Param, threads int) float64 {
	var total float64
	for _, p := range params {
		sums := make([]float64, p.Grad.Rows)
		rowSquares(sums, p.Grad, threads)
		for _, s := range sums {
			total += s
		}
	}
	return math.Sqrt(total)
}

// rowSquares sets sums to the sums of squares of the rows of x.
func rowSquares(sums []float64, x tensor.Dense, threads int) {
	const elements = 1 << 14 // for one goroutine
	parallel.For(x.Rows, max(1, elements/max(1, x.Cols)), threads, func(from, to int) {
		for i := from; i < to; i++ {
			sums[i] = sumSquares(x.Row(i))
		}
	})
}

// sumSquares adds squares in float64, in four interleaved sums.
func sumSquares(x []float32) float64 {
	var s0, s1, s2, s3 float64
	for ; len(x) >= 4; x = x[4:] {
		s0 += float64(float64(x[0]) * float64(x[0]))
		s1 += float64(float64(x[1]) * float64(x[1]))
		s2 += float64(float64(x[2]) * float64(x[2]))
		s3 += float64(float64(x[3]) * float64(x[3]))
	}
	for _, v := range x {
		s0 += float64(float64(v) * float64(v))
	}
	return (s0 + s1) + (s2 + s3)
}

// clipScale returns the factor that reduces gradients of the given norm to limit, or 1 if limit is 0.
func clipScale(norm, limit float64) float64 {
	if limit > 0 && norm > limit {
		return limit / norm
	}
	return 1
}
