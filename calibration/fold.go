package calibration

import (
	"math"

	"github.com/microscale-go/microscale/internal/parallel"
	"github.com/microscale-go/microscale/quant"
	"github.com/microscale-go/microscale/tensor"
)

// Shares of the logarithm of the magnitude of a column that Fold tries, in steps from 0 to 1; and the largest exponent.
const (
	foldSteps    = 4
	foldExponent = 12
)

// Fold returns a power of two for each column of an input, by which the columns of the weights that read it are to be multiplied and the
// input divided, so that the codes of columns with large magnitudes lose less. After AWQ (Lin et al., arXiv 2306.00978), it is the
// root mean square of the column to a power of which q loses least, by the diagonal of H; here rounded to a power of two, so that
// BF16 holds every product. gain is the loss without a fold over that with it; 1: all powers are 1.
func Fold(q quant.Quantizer, weights []tensor.Dense, square []float32, threads int) (powers []float32, gain float64, err error) {
	logs, sum, live := make([]float64, len(square)), 0.0, 0
	for j, s := range square {
		if s > 0 {
			logs[j] = math.Log2(float64(s)) / 2
			sum, live = sum+logs[j], live+1
		}
	}
	var least, plain float64
	for step := range foldSteps + 1 {
		some := make([]float32, len(square))
		for j, s := range square {
			exponent := 0.0
			if s > 0 { // a column without magnitude stays
				exponent = math.RoundToEven((logs[j] - sum/float64(live)) * float64(step) / foldSteps)
			}
			some[j] = float32(math.Exp2(min(max(exponent, -foldExponent), foldExponent)))
		}
		loss, err := foldLoss(q, weights, square, some, threads)
		if err != nil {
			return nil, 0, err
		}
		if step == 0 {
			plain = loss
		}
		if step == 0 || loss < least {
			least, powers = loss, some
		}
	}
	if least == plain {
		return powers, 1, nil
	}
	return powers, plain / least, nil
}

// foldLoss returns the error of the outputs by the diagonal of H when weights times the powers of their columns are quantized.
func foldLoss(q quant.Quantizer, weights []tensor.Dense, square, powers []float32, threads int) (loss float64, err error) {
	with := quant.With{Threads: threads, Amax: new(float32)}
	folded := make([]tensor.Dense, len(weights))
	for i, w := range weights {
		folded[i] = tensor.New(w.Rows, w.Cols)
		for row := range w.Rows {
			for j, v := range w.Row(row) {
				folded[i].Row(row)[j] = v * powers[j]
			}
		}
		*with.Amax = max(*with.Amax, quant.Amax(folded[i], threads)) // siblings share a global scale
	}
	if !q.Format.Global {
		with.Amax = nil
	}
	for _, w := range folded {
		t, err := q.Rowwise(w, with)
		if err != nil {
			return 0, err
		}
		values, rows := t.Dequantize(threads), make([]float64, w.Rows)
		parallel.For(w.Rows, 1, threads, func(from, to int) {
			for row := from; row < to; row++ {
				for j, v := range values.Row(row) {
					d := float64(v) - float64(w.Row(row)[j])
					rows[row] += d * d * float64(square[j]/(powers[j]*powers[j]))
				}
			}
		})
		for _, r := range rows {
			loss += r
		}
	}
	return loss, nil
}
