package generation

import (
	"context"
	"time"

	"github.com/microscale-go/microscale/decoder"
)

// Single reports whether the next pass of an answer computes one token, so that StepEach can take it.
func (a *Answer) Single() bool {
	return len(a.pending) == 1 && (a.Tokens > 0 || !a.request.ScorePrompt)
}

// A Step is the result of one pass of an answer.
type Step struct {
	Part
	Err error
}

// StepEach is Step for several answers of the model whose next passes are Single. They read the
// weights together. Their contexts must differ.
func (m *Model) StepEach(ctx context.Context, answers []*Answer) []Step {
	start := time.Now()
	steps := make([]Step, len(answers))
	sessions := make([]*decoder.Session, len(answers))
	tokens := make([]int32, len(answers))
	for i, a := range answers {
		sessions[i], tokens[i] = a.context.session, a.pending[0]
	}
	logits, err := m.decoder.AppendEach(ctx, sessions, tokens)
	for i, a := range answers {
		if err != nil {
			steps[i].Err = err
			continue
		}
		spent, count := a.counters()
		*count++
		a.context.tokens = append(a.context.tokens, tokens[i])
		a.pending = a.pending[1:]
		steps[i].Part, steps[i].Err = a.next(logits.Row(i))
		*spent += time.Since(start)
	}
	return steps
}

// counters returns the time and the number of tokens that the next pass adds to.
func (a *Answer) counters() (spent *time.Duration, count *int) {
	if a.Tokens == 0 {
		return &a.PromptTime, &a.read
	}
	return &a.Time, &a.steps
}
