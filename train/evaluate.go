package train

import (
	"context"
	"errors"
	"fmt"

	"github.com/microscale-go/microscale/internal/memory"
	"github.com/microscale-go/microscale/llama"
	"github.com/microscale-go/microscale/nn"
)

// evaluationBatch is how many windows Evaluate reads at a time. It is fixed: the
// windows of a batch share the scale of a tensor.
const evaluationBatch = 16

// Evaluate returns the mean loss of a model in nats per token, on at most limit
// tokens of text in windows of sequence bytes, and how many tokens those were.
// The windows are spread evenly over the text and the same for every model. The
// model computes under the scope, and learns nothing.
func Evaluate(ctx context.Context, m *llama.Model, s nn.Scope, text []byte, sequence, limit int) (loss float64, tokens int, err error) {
	starts := validationStarts(len(text), sequence, max(limit/sequence, 1))
	if len(starts) == 0 {
		return 0, 0, errors.New("the text is too short to evaluate on")
	}
	if need, has := inferenceBytes(m.Config, min(len(starts), evaluationBatch), sequence), available(); need > float64(has) {
		return 0, 0, fmt.Errorf("evaluating sequences of %d tokens needs at least %s of memory, and %s are available: use shorter sequences", sequence, memory.Text(need), memory.Text(float64(has)))
	}
	s.Inference, s.Recompute, s.Pad = true, false, true
	var sum float64
	for i := 0; i < len(starts); i += evaluationBatch {
		if err := ctx.Err(); err != nil {
			return 0, 0, err
		}
		part := starts[i:min(i+evaluationBatch, len(starts))]
		s.Microbatch = i / evaluationBatch
		ids, targets := windows(text, part, sequence)
		mean, err := m.Loss(&s, ids, targets, len(part))
		if err != nil {
			return 0, 0, err
		}
		sum += mean * float64(len(ids))
		tokens += len(ids)
	}
	return sum / float64(tokens), tokens, nil
}
