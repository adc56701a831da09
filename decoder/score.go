package decoder

import (
	"context"
	"errors"
	"fmt"

	"github.com/microscale-go/microscale/nn"
	"github.com/microscale-go/microscale/tensor"
)

// scoreRows is the maximum number of rows of logits that AppendAll computes at a time. It bounds their memory.
const scoreRows = 64

// AppendAll adds tokens to the sequence, at most PromptChunk, and passes the logits that follow each of them to use:
// row i belongs to the token that follows tokens[first+i]. length is the number of tokens of the whole text, of which
// these may be a part: LongRoPE depends on it. The logits are valid until use returns. Too many tokens are an error
// that matches ErrContextFull. On error, the session is unchanged.
func (s *Session) AppendAll(ctx context.Context, tokens []int32, length int, use func(first int, logits tensor.Dense) error) (err error) {
	before := s.Position()
	if len(tokens) == 0 || len(tokens) > PromptChunk {
		return fmt.Errorf("session: append and score %d tokens: want 1 to %d", len(tokens), PromptChunk)
	}
	if len(tokens) > s.positions-before {
		return fmt.Errorf("session: append %d tokens after %d: %w: it has %d positions", len(tokens), before, ErrContextFull, s.positions)
	}
	if length < before+len(tokens) {
		return fmt.Errorf("session: append %d tokens after %d: the whole text has %d", len(tokens), before, length)
	}
	if err := s.setLength(ctx, length); err != nil {
		return err
	}
	defer func() {
		if err != nil {
			s.Truncate(before)
		}
	}()
	x, err := s.pass(ctx, tokens, new(nn.Arena))
	if err != nil {
		return err
	}
	for first := 0; first < x.Rows; first += scoreRows {
		s.arena.Turn() // frees the logits before
		logits, err := s.model.headLogits(&s.scopes.exempt, x.View(first, min(first+scoreRows, x.Rows), 0, x.Cols))
		if err == nil {
			err = use(first, logits)
		}
		if err := errors.Join(err, ctx.Err()); err != nil {
			return err
		}
	}
	return nil
}
