package decoder

import (
	"context"
	"errors"
	"fmt"

	"github.com/microscale-go/microscale/nn"
	"github.com/microscale-go/microscale/tensor"
)

// AppendEach adds one token to each of several sessions of the model, which read the weights together:
// tokens[i] to sessions[i]. Row i of the logits belongs to the token that follows in session i, and is
// valid until the next call of one of the sessions. Append of each token computes the same, up to the
// order of sums in kernels for several rows. A session without a free position is an error that
// matches ErrContextFull. On error, the sessions are unchanged.
func (m *Model) AppendEach(ctx context.Context, sessions []*Session, tokens []int32) (logits tensor.Dense, err error) {
	if err := checkEach(m, sessions, tokens); err != nil {
		return tensor.Dense{}, fmt.Errorf("sessions: append: %w", err)
	}
	if err := ctx.Err(); err != nil {
		return tensor.Dense{}, err
	}
	for _, s := range sessions {
		if err := s.setLength(ctx, s.Position()+1); err != nil {
			return tensor.Dense{}, err
		}
	}
	before := make([]int, len(sessions))
	for i, s := range sessions {
		before[i] = s.Position()
	}
	defer func() {
		if err != nil {
			for i, s := range sessions {
				s.Truncate(before[i])
			}
		}
	}()
	p := *sessions[0].scopes
	if len(tokens) > arenaTokens {
		p.setArena(new(nn.Arena))
	}
	x, _, err := m.forward(&p, tokens, 1, sessions...)
	if err != nil {
		return tensor.Dense{}, err
	}
	for i, s := range sessions {
		if s.short > 0 {
			s.tokens = append(s.tokens, tokens[i])
		}
	}
	return m.headLogits(&p.exempt, x)
}

func checkEach(m *Model, sessions []*Session, tokens []int32) error {
	if len(tokens) == 0 || len(tokens) != len(sessions) {
		return fmt.Errorf("got %d tokens, want one for each of %d sessions", len(tokens), len(sessions))
	}
	seen := make(map[*Session]bool, len(sessions))
	for _, s := range sessions {
		switch {
		case s.model != m:
			return errors.New("a session belongs to another model")
		case seen[s]:
			return errors.New("a session is given twice")
		case s.Position() == s.positions:
			return fmt.Errorf("%w: it has %d positions", ErrContextFull, s.positions)
		}
		seen[s] = true
	}
	return nil
}
