package nn

import (
	"fmt"
	"math"

	"github.com/microscale-go/microscale/internal/parallel"
	"github.com/microscale-go/microscale/tensor"
)

// CrossEntropy is the loss of predicting one class for each row, in nats:
//
//	loss = mean over rows of log Σ e^logits − logits[target]      dlogits = (softmax(logits) − onehot(target))/rows
//
// Rows whose target is negative do not count. The losses of the rows are summed
// in float64, in their order.
type CrossEntropy struct{ Name string }

// CrossEntropySaved is what a forward keeps for its backward.
type CrossEntropySaved struct {
	logits  tensor.Dense
	targets []int32
	max     []float32 // of each row
	sum     []float32 // Σ e^(logit−max) of each row
	counted int
}

// Bytes returns the memory that it takes.
func (s *CrossEntropySaved) Bytes() int { return 4 * (len(s.logits.Data) + 3*len(s.targets)) }

// Params returns nothing.
func (c *CrossEntropy) Params() []*Param { return nil }

// Forward returns the mean loss of the rows that count. It keeps logits.
func (c *CrossEntropy) Forward(s *Scope, logits tensor.Dense, targets []int32) (loss float64, saved *CrossEntropySaved, err error) {
	if len(targets) != logits.Rows {
		return 0, nil, fmt.Errorf("%s: %d targets for %d rows", c.Name, len(targets), logits.Rows)
	}
	saved = &CrossEntropySaved{logits: logits, targets: targets, max: make([]float32, logits.Rows), sum: make([]float32, logits.Rows)}
	for i, target := range targets {
		if int(target) >= logits.Cols {
			return 0, nil, fmt.Errorf("%s: target %d is %d, outside the vocabulary of %d", c.Name, i, target, logits.Cols)
		}
		if target >= 0 {
			saved.counted++
		}
	}
	if saved.counted == 0 {
		return 0, nil, fmt.Errorf("%s: no target among %d rows", c.Name, logits.Rows)
	}
	losses := make([]float64, logits.Rows)
	parallel.For(logits.Rows, rowGrain(4*logits.Cols), s.Threads, func(from, to int) {
		e := make([]float32, logits.Cols) // of a row
		for i := from; i < to; i++ {
			row := logits.Row(i)
			top := maximum(row)
			copy(e, row)
			exps(e, top)
			var sum float64
			for _, v := range e {
				sum += float64(v)
			}
			saved.max[i], saved.sum[i] = top, float32(sum)
			if target := targets[i]; target >= 0 {
				losses[i] = math.Log(sum) + float64(top) - float64(row[target])
			}
		}
	})
	for _, l := range losses {
		loss += l
	}
	return loss / float64(saved.counted), saved, nil
}

// Backward returns weight·dlogits, rounded to the format of activations. It
// takes the place of the logits.
func (c *CrossEntropy) Backward(s *Scope, saved *CrossEntropySaved, weight float32) tensor.Dense {
	d := saved.logits
	share := weight / float32(saved.counted)
	parallel.For(d.Rows, rowGrain(4*d.Cols), s.Threads, func(from, to int) {
		for i := from; i < to; i++ {
			row, target := d.Row(i), saved.targets[i]
			if target < 0 {
				clear(row)
				continue
			}
			factor, top := share/saved.sum[i], saved.max[i]
			exps(row, top)
			for j, e := range row {
				row[j] = e * factor
			}
			row[target] -= share
			s.round(row)
		}
	})
	saved.logits = tensor.Dense{}
	return d
}
