package train

import (
	"encoding/binary"
	"math"

	"github.com/microscale-go/microscale/internal/nn"
	"github.com/microscale-go/microscale/internal/parallel"
	"github.com/microscale-go/microscale/tensor"
)

// gradientNorm returns the Euclidean norm of all gradients, in float64: the sums of squares of the
// rows of each parameter, added in order. So the norm depends neither on threads nor on ranks.
func gradientNorm(params []*nn.Param, threads int) float64 {
	sums := make([][]float64, len(params))
	for i, p := range params {
		sums[i] = make([]float64, p.Grad.Rows)
		rowSquares(sums[i], p.Grad, threads)
	}
	return normOf(sums)
}

// normOf returns the norm for the sums of squares of rows.
func normOf(sums [][]float64) float64 {
	var total float64
	for _, rows := range sums {
		for _, s := range rows {
			total += s
		}
	}
	return math.Sqrt(total)
}

// norm returns the norm of the gradients of all ranks.
func (r *run) norm() (float64, error) {
	if !r.Parallel.distributed() {
		return gradientNorm(r.params, r.Threads), nil
	}
	var own []byte
	for _, p := range r.own {
		sums := make([]float64, p.Grad.Rows)
		rowSquares(sums, p.Grad, r.Threads)
		for _, s := range sums {
			own = binary.LittleEndian.AppendUint64(own, math.Float64bits(s))
		}
	}
	all, err := r.Parallel.group(trafficControl).GatherAll(own)
	if err != nil {
		return 0, err
	}
	sums := make([][]float64, len(r.params))
	for i := range r.params {
		for rank := range all {
			for range r.cuts[i][rank+1] - r.cuts[i][rank] {
				sums[i] = append(sums[i], math.Float64frombits(binary.LittleEndian.Uint64(all[rank])))
				all[rank] = all[rank][8:]
			}
		}
	}
	return normOf(sums), nil
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
