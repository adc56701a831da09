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
// s. Targets below 0 do not count; sequences may end with padding.
func Evaluate(ctx context.Context, m *decoder.Model, s nn.Scope, tokens, targets []int32, length int) (e Evaluation, err error) {
	if err := checkBatch(tokens, targets, 1, len(tokens), length); err != nil {
		return e, fmt.Errorf("evaluate: %w", err)
	}
	sequences := len(tokens) / length
	if need, has := inferenceBytes(m.Config, min(sequences, evaluationBatch), length), available(); need > float64(has) {
		return e, fmt.Errorf("evaluate: sequences of %d tokens need at least %s of memory, but %s are available: use shorter sequences", length,
			memory.Text(need), memory.Text(float64(has)))
	}
	batches, err := evaluateBatches(ctx, m, s, tokens, targets, length, func(int) bool { return true })
	if err != nil {
		return e, err
	}
	return combine(batches)
}

// A batchLoss is the loss of the sequences of a batch of an evaluation, in nats per token.
type batchLoss struct {
	Targets   int       // that count
	Loss      float64   // mean over Targets
	Sequences []float64 // mean of each sequence; NaN for one without a target that counts
}

// evaluateBatches returns the losses of the batches of an evaluation whose index mine selects.
func evaluateBatches(ctx context.Context, m *decoder.Model, s nn.Scope, tokens, targets []int32, length int,
	mine func(batch int) bool) (all []batchLoss, err error) {
	s.Inference, s.Recompute, s.Pad = true, false, true
	sequences, first := len(tokens)/length, true
	for i := 0; i < sequences; i += evaluationBatch {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		if !mine(i / evaluationBatch) {
			continue
		}
		from, to := i*length, min(i+evaluationBatch, sequences)*length
		s.Random.Microbatch, s.ReuseWeights = i/evaluationBatch, !first
		s.Lengths = lengths(tokens[from:to], length)
		one, err := evaluateBatch(m, s, tokens[from:to], targets[from:to], length)
		if err != nil {
			return nil, err
		}
		first = first && one.Targets == 0
		all = append(all, one)
	}
	return all, nil
}

// evaluateBatch returns the losses of one batch.
func evaluateBatch(m *decoder.Model, s nn.Scope, tokens, targets []int32, length int) (b batchLoss, err error) {
	n := len(targets) / length
	if b.Targets = counted(targets); b.Targets == 0 {
		b.Sequences = slices.Repeat([]float64{math.NaN()}, n)
		return b, nil
	}
	logits, err := m.Infer(&s, tokens, n)
	if err != nil {
		return b, err
	}
	entropy := nn.CrossEntropy{Name: "loss"}
	if b.Loss, _, err = entropy.Forward(&s, logits, targets); err != nil {
		return b, err
	}
	for from := 0; from < len(targets); from += length {
		mean := math.NaN()
		if one := targets[from : from+length]; counted(one) > 0 {
			if mean, _, err = entropy.Forward(&s, logits.View(from, from+length, 0, logits.Cols), one); err != nil {
				return b, err
			}
		}
		b.Sequences = append(b.Sequences, mean)
	}
	return b, nil
}

// combine returns the evaluation of batches in order.
func combine(batches []batchLoss) (e Evaluation, err error) {
	var sum float64
	total := 0
	for _, b := range batches {
		e.Sequences = append(e.Sequences, b.Sequences...)
		sum += b.Loss * float64(b.Targets)
		total += b.Targets
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
