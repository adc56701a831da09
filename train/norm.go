package train

import (
	"encoding/binary"
	"math"

	"github.com/microscale-go/microscale/comm"
	"github.com/microscale-go/microscale/internal/parallel"
	"github.com/microscale-go/microscale/nn"
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
	if !r.data.distributed() && r.tensor.Size() == 1 {
		return gradientNorm(r.params, r.Threads), nil
	}
	sums := make([][]float64, len(r.params))
	for i, p := range r.own {
		sums[i] = make([]float64, p.Grad.Rows)
		rowSquares(sums[i], p.Grad, r.Threads)
	}
	if r.data.distributed() {
		if err := joinSums(r.data.group(trafficControl), sums, func(i, rank int) int { return r.cuts[i][rank+1] - r.cuts[i][rank] }); err != nil {
			return 0, err
		}
	}
	if r.tensor.Size() == 1 {
		return normOf(sums), nil
	}
	rows := func(i, rank int) int {
		if rank > 0 && r.params[i].Place == (nn.Place{}) {
			return 0 // rank 0 has the same
		}
		return r.params[i].Grad.Rows
	}
	for i := range sums {
		sums[i] = sums[i][:rows(i, r.tensor.Rank())]
	}
	if err := joinSums(r.tensor.Group.For(trafficControl), sums, rows); err != nil {
		return 0, err
	}
	return normOf(sums), nil
}

// joinSums replaces sums, those of rows by parameter, with the sums of all ranks, one rank after the
// other. rows returns how many a rank has of parameter i.
func joinSums(g *comm.Group, sums [][]float64, rows func(i, rank int) int) error {
	var own []byte
	for _, values := range sums {
		for _, s := range values {
			own = binary.LittleEndian.AppendUint64(own, math.Float64bits(s))
		}
	}
	all, err := g.GatherAll(own)
	if err != nil {
		return err
	}
	for i := range sums {
		sums[i] = nil
		for rank := range all {
			for range rows(i, rank) {
				sums[i] = append(sums[i], math.Float64frombits(binary.LittleEndian.Uint64(all[rank])))
				all[rank] = all[rank][8:]
			}
		}
	}
	return nil
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
