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
//
// If ranks share the layers (Scope.Ranks), each has the logits of an equal run of classes, in order.
// The ranks exchange maxima, sums and the target's logit of each row, and add the sums in order.
type CrossEntropy struct{ Name string }

type lossSaved struct {
	logits  tensor.Dense
	targets []int32
	first   int       // class of the first column
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
	kept := &lossSaved{logits: logits, targets: targets, first: s.Ranks.Rank() * logits.Cols, max: make([]float32, logits.Rows),
		sum: make([]float32, logits.Rows)}
	classes := s.Ranks.Size() * logits.Cols
	for i, target := range targets {
		if int(target) >= classes {
			return 0, nil, fmt.Errorf("%s: target %d is %d, want less than the vocabulary size, %d", c.Name, i, target, classes)
		}
		if target >= 0 {
			kept.counted++
		}
	}
	if kept.counted == 0 {
		return 0, nil, fmt.Errorf("%s: all %d targets are negative", c.Name, logits.Rows)
	}
	parallel.For(logits.Rows, parallel.RowGrain(logits.Cols), s.Threads, func(from, to int) {
		for i := from; i < to; i++ {
			kept.max[i] = maximum(logits.Row(i))
		}
	})
	if err := s.maxRanks(TrafficActivations, kept.max); err != nil {
		return 0, nil, fmt.Errorf("%s: %w", c.Name, err)
	}
	sums := make([]float64, 2*logits.Rows) // Σ e^(logit−max) and the logit of the target, by row
	parallel.For(logits.Rows, parallel.RowGrain(4*logits.Cols), s.Threads, func(from, to int) {
		e := make([]float32, logits.Cols)
		for i := from; i < to; i++ {
			copy(e, logits.Row(i))
			exps(e, kept.max[i])
			for _, v := range e {
				sums[2*i] += float64(v)
			}
			if j := kept.column(i); j >= 0 {
				sums[2*i+1] = float64(logits.Row(i)[j])
			}
		}
	})
	if err := s.sumRanks64(sums); err != nil {
		return 0, nil, fmt.Errorf("%s: %w", c.Name, err)
	}
	for i, target := range targets {
		sum := sums[2*i]
		kept.sum[i] = float32(sum)
		if target >= 0 {
			loss += math.Log(sum) + float64(kept.max[i]) - sums[2*i+1]
		}
	}
	return loss / float64(kept.counted), kept, nil
}

// column returns the column of the target of a row, -1 if the row does not count or another rank has
// the column.
func (s *lossSaved) column(row int) int {
	if j := int(s.targets[row]) - s.first; s.targets[row] >= 0 && 0 <= j && j < s.logits.Cols {
		return j
	}
	return -1
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
	parallel.For(d.Rows, parallel.RowGrain(4*d.Cols), s.Threads, func(from, to int) {
		for i := from; i < to; i++ {
			row := d.Row(i)
			if kept.targets[i] < 0 {
				clear(row)
				continue
			}
			factor, top := share/kept.sum[i], kept.max[i]
			exps(row, top)
			for j, e := range row {
				row[j] = e * factor
			}
			if j := kept.column(i); j >= 0 {
				row[j] -= share
			}
			s.round(row)
		}
	})
	kept.logits = tensor.Dense{}
	return d, nil
}
