package train

import (
	"context"
	"errors"
	"fmt"

	"github.com/microscale-go/microscale/internal/memory"
	"github.com/microscale-go/microscale/llama"
	"github.com/microscale-go/microscale/nn"
)

// evaluationBatch is the number of sequences that Evaluate computes together. It is fixed, because
// the sequences of a batch share per-tensor scales.
const evaluationBatch = 16

// Evaluate returns the mean loss of a model in nats per token on contiguous sequences of the given
// length, under the scope s. Targets below 0 do not count.
func Evaluate(ctx context.Context, m *llama.Model, s nn.Scope, tokens, targets []int32, length int) (loss float64, err error) {
	if err := checkBatch(tokens, targets, 1, len(tokens), length); err != nil {
		return 0, fmt.Errorf("evaluate: %w", err)
	}
	sequences := len(tokens) / length
	if need, has := inferenceBytes(m.Config, min(sequences, evaluationBatch), length), available(); need > float64(has) {
		return 0, fmt.Errorf("evaluate: sequences of %d tokens need at least %s of memory, but %s are available: use shorter sequences", length, memory.Text(need), memory.Text(float64(has)))
	}
	s.Inference, s.Recompute, s.Pad = true, false, true
	var sum float64
	total := 0
	for i := 0; i < sequences; i += evaluationBatch {
		if err := ctx.Err(); err != nil {
			return 0, err
		}
		end := min(i+evaluationBatch, sequences)
		batch := targets[i*length : end*length]
		counted := 0
		for _, t := range batch {
			if t >= 0 {
				counted++
			}
		}
		if counted == 0 {
			continue
		}
		s.Random.Microbatch, s.ReuseWeights = i/evaluationBatch, total > 0
		mean, err := m.Loss(&s, tokens[i*length:end*length], batch, end-i)
		if err != nil {
			return 0, err
		}
		sum += mean * float64(counted)
		total += counted
	}
	if total == 0 {
		return 0, errors.New("evaluate: all targets are negative")
	}
	return sum / float64(total), nil
}
