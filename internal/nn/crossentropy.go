package nn

import (
	"fmt"
	"math"

	"github.com/microscale-go/microscale/internal/parallel"
	"github.com/microscale-go/microscale/tensor"
)

// CrossEntropy is the mean negative log-likelihood of one class per row, in nats:
//
//	loss = mean over rows of log Σ e^logits − logits[target]      dlogits = (softmax(logits) − onehot(target))/rows
//
// Rows with a negative target do not count. Losses of rows are added in float64, in order.
type CrossEntropy struct{ Name string }

type lossSaved struct {
	logits  tensor.Dense
	targets []int32
	max     []float32 // of each row
	sum     []float32 // Σ e^(logit−max) of each row
	counted int       // rows that count
}

// Bytes implements Saved.
func (s *lossSaved) Bytes() int { return 4 * (len(s.logits.Data) + 3*len(s.targets)) }

// Forward returns the mean loss of the rows that count. saved keeps logits.
func (c *CrossEntropy) Forward(s *Scope, logits tensor.Dense, targets []int32) (loss float64, saved Saved, err error) {
	if len(targets) != logits.Rows {
		return 0, nil, fmt.Errorf("%s: got %d targets, want %d", c.Name, len(targets), logits.Rows)
	}
	kept := &lossSaved{logits: logits, targets: targets, max: make([]float32, logits.Rows), sum: make([]float32, logits.Rows)}
	for i, target := range targets {
		if int(target) >= logits.Cols {
			return 0, nil, fmt.Errorf("%s: target %d is %d, want less than the vocabulary size, %d", c.Name, i, target, logits.Cols)
		}
		if target >= 0 {
			kept.counted++
		}
	}
	if kept.counted == 0 {
		return 0, nil, fmt.Errorf("%s: all %d targets are negative", c.Name, logits.Rows)
	}
	losses := make([]float64, logits.Rows)
	parallel.For(logits.Rows, rowGrain(4*logits.Cols), s.Threads, func(from, to int) {
		e := make([]float32, logits.Cols)
		for i := from; i < to; i++ {
			row := logits.Row(i)
			top := maximum(row)
			copy(e, row)
			exps(e, top)
			var sum float64
			for _, v := range e {
				sum += float64(v)
			}
			kept.max[i], kept.sum[i] = top, float32(sum)
			if target := targets[i]; target >= 0 {
				losses[i] = math.Log(sum) + float64(top) - float64(row[target])
			}
		}
	})
	for _, l := range losses {
		loss += l
	}
	return loss / float64(kept.counted), kept, nil
}

// Backward returns weight·dlogits, rounded to the recipe's Activations, in the memory of the logits.
// It consumes saved.
func (c *CrossEntropy) Backward(s *Scope, saved Saved, weight float32) (tensor.Dense, error) {
	kept, _ := saved.(*lossSaved)
	if kept == nil || kept.logits.Data == nil {
		return tensor.Dense{}, nothingSaved(c.Name)
	}
	d := kept.logits
	share := weight / float32(kept.counted)
	parallel.For(d.Rows, rowGrain(4*d.Cols), s.Threads, func(from, to int) {
		for i := from; i < to; i++ {
			row, target := d.Row(i), kept.targets[i]
			if target < 0 {
				clear(row)
				continue
			}
			factor, top := share/kept.sum[i], kept.max[i]
			exps(row, top)
			for j, e := range row {
				row[j] = e * factor
			}
			row[target] -= share
			s.round(row)
		}
	})
	kept.logits = tensor.Dense{}
	return d, nil
}
