package train

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/microscale-go/microscale/decoder"
	"github.com/microscale-go/microscale/internal/memory"
	"github.com/microscale-go/microscale/nn"
)

// evaluationBatch is the number of sequences that Evaluate computes together. It is fixed, because
// the sequences of a batch share per-tensor scales.
const evaluationBatch = 16

// An Evaluation is the loss of a model on text, in nats per token.
type Evaluation struct {
	Loss      float64   // mean over all targets that count
	Sequences []float64 // mean of each sequence; NaN for one without a target that counts
}

// Evaluate returns the loss of a model on contiguous sequences of the given length, under the scope
// s. Targets below 0 do not count.
func Evaluate(ctx context.Context, m *decoder.Model, s nn.Scope, tokens, targets []int32, length int) (e Evaluation, err error) {
	if err := checkBatch(tokens, targets, 1, len(tokens), length); err != nil {
		return e, fmt.Errorf("evaluate: %w", err)
	}
	sequences := len(tokens) / length
	if need, has := inferenceBytes(m.Config, min(sequences, evaluationBatch), length), available(); need > float64(has) {
		return e, fmt.Errorf("evaluate: sequences of %d tokens need at least %s of memory, but %s are available: use shorter sequences", length, memory.Text(need), memory.Text(float64(has)))
	}
	s.Inference, s.Recompute, s.Pad = true, false, true
	entropy := nn.CrossEntropy{Name: "loss"}
	var sum float64
	total := 0
	for i := 0; i < sequences; i += evaluationBatch {
		if err := ctx.Err(); err != nil {
			return e, err
		}
		end := min(i+evaluationBatch, sequences)
		batch := targets[i*length : end*length]
		n := counted(batch)
		if n == 0 {
			e.Sequences = append(e.Sequences, slices.Repeat([]float64{math.NaN()}, end-i)...)
			continue
		}
		s.Random.Microbatch, s.ReuseWeights = i/evaluationBatch, total > 0
		logits, err := m.Infer(&s, tokens[i*length:end*length], end-i)
		if err != nil {
			return e, err
		}
		mean, _, err := entropy.Forward(&s, logits, batch)
		if err != nil {
			return e, err
		}
		sum += mean * float64(n)
		total += n
		for from := 0; from < len(batch); from += length {
			mean := math.NaN()
			if one := batch[from : from+length]; counted(one) > 0 {
				if mean, _, err = entropy.Forward(&s, logits.View(from, from+length, 0, logits.Cols), one); err != nil {
					return e, err
				}
			}
			e.Sequences = append(e.Sequences, mean)
		}
	}
	if total == 0 {
		return e, errors.New("evaluate: all targets are negative")
	}
	e.Loss = sum / float64(total)
	return e, nil
}

// counted returns the number of targets that count.
func counted(targets []int32) (n int) {
	for _, t := range targets {
		if t >= 0 {
			n++
		}
	}
	return n
}
