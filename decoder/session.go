package decoder

import (
	"context"
	"errors"
	"fmt"

	"github.com/microscale-go/microscale/nn"
	"github.com/microscale-go/microscale/quant"
	"github.com/microscale-go/microscale/tensor"
)

// PromptChunk is the maximum number of tokens of one forward pass of a session. It bounds the
// memory of activations.
const PromptChunk = 512

// arenaTokens is the maximum number of tokens of a call of Append whose activations stay allocated
// for the next call. Layers of a longer call reuse the memory of the layers before them.
const arenaTokens = 8

// ErrContextFull is the error of appending more tokens than a session has positions for.
var ErrContextFull = errors.New("the context is full")

// A Session is one sequence of tokens with its KV cache. It computes under the Model.Inference of
// the time when it began. Weights must not change while it is in use. Sessions of one model share
// its buffers: use them from one goroutine at a time.
type Session struct {
	model     *Model
	scopes    *scopes
	positions int
	caches    []nn.Cache
	arena     nn.Arena

	short  int     // length of a text up to which LongRoPE has its short divisors; 0: the context is not longer, or there is no LongRoPE
	long   bool    // the caches are those of the long divisors
	tokens []int32 // of the text, if short > 0; after an error, the caches may hold fewer
}

// NewSession returns an empty session of at most the given number of positions; 0 means those of
// the model. The KV cache grows with the tokens.
func (m *Model) NewSession(positions int) (*Session, error) {
	if positions == 0 {
		positions = m.Positions()
	}
	if positions < 1 || positions > m.Positions() {
		return nil, fmt.Errorf("session: got %d positions, want 1 to %d, the positions of the model", positions, m.Positions())
	}
	if err := nn.CheckCacheFormat(m.Inference.Cache); err != nil {
		return nil, fmt.Errorf("session: %w", err)
	}
	scope := m.Inference
	scope.Inference, scope.Pad = true, true
	s := &Session{model: m, scopes: m.scopes(scope), positions: positions}
	if short := m.shortLength(); short < positions {
		s.short = short
	}
	s.caches = s.emptyCaches()
	s.scopes.setArena(&s.arena)
	return s, nil
}

func (s *Session) emptyCaches() []nn.Cache {
	caches := make([]nn.Cache, len(s.model.layers))
	for i := range caches {
		caches[i].Positions = s.positions
	}
	return caches
}

// shortLength returns the length of a text up to which LongRoPE has its short divisors; 0 without LongRoPE.
func (m *Model) shortLength() int {
	for _, l := range m.plan.Layers {
		if rope := l.Attention.Rope; rope != nil && rope.Long != nil {
			return rope.Short
		}
	}
	return 0
}

// setLength prepares the session for a text of n tokens: LongRoPE has other divisors for a longer text, also for the
// tokens before, which are computed again. The caches of the other divisors are freed first. On error, the next call
// computes the rest.
func (s *Session) setLength(ctx context.Context, n int) error {
	if s.short == 0 {
		return nil
	}
	if long := n > s.short; long != s.long {
		s.caches, s.long = s.emptyCaches(), long
	}
	s.setCaches(n)
	arena := new(nn.Arena)
	for done := s.caches[0].Len(); done < len(s.tokens); {
		chunk := s.tokens[done:min(done+PromptChunk, len(s.tokens))]
		if _, err := s.forward(ctx, chunk, arena); err != nil {
			s.truncateCaches(done)
			return err
		}
		done += len(chunk)
	}
	return nil
}

func (s *Session) setCaches(length int) {
	for i := range s.caches {
		s.caches[i].Length = length
	}
}

// CacheBytes returns the memory of the KV cache of a number of positions, in bytes.
func (m *Model) CacheBytes(positions int) int {
	f := m.Inference.Cache
	if f.Element == nil {
		f = quant.F32
	}
	bytes := 0
	for _, l := range m.layers {
		bytes += 2 * l.attention.KVHeads * f.Bytes(positions, l.attention.HeadDim)
	}
	return bytes
}

// Position returns the number of tokens in the session.
func (s *Session) Position() int {
	if s.short > 0 {
		return len(s.tokens)
	}
	return s.caches[0].Len()
}

// Positions returns the maximum number of tokens.
func (s *Session) Positions() int { return s.positions }

// Truncate keeps the first n tokens. It panics unless 0 ≤ n ≤ Position.
func (s *Session) Truncate(n int) {
	if n < 0 || n > s.Position() {
		panic(fmt.Sprintf("decoder: truncate a session of %d tokens to %d", s.Position(), n))
	}
	s.truncateCaches(n)
	s.tokens = s.tokens[:min(n, len(s.tokens))]
}

// truncateCaches keeps at most n tokens of each cache: after an error, those of some layers hold fewer.
func (s *Session) truncateCaches(n int) {
	for i := range s.caches {
		s.caches[i].Truncate(min(n, s.caches[i].Len()))
	}
}

// Append adds tokens to the sequence and returns the logits of the token that follows the last one.
// They are valid until the next call. Too many tokens are an error that matches ErrContextFull.
// Append checks ctx between passes of 512 tokens. On error, the session is unchanged.
func (s *Session) Append(ctx context.Context, tokens []int32) (logits []float32, err error) {
	before := s.Position()
	if len(tokens) == 0 {
		return nil, errors.New("session: append: got no tokens")
	}
	if len(tokens) > s.positions-before {
		return nil, fmt.Errorf("session: append %d tokens after %d: %w: it has %d positions", len(tokens), before, ErrContextFull, s.positions)
	}
	if err := s.setLength(ctx, before+len(tokens)); err != nil {
		return nil, err
	}
	arena := &s.arena
	if len(tokens) > arenaTokens {
		arena = new(nn.Arena)
	}
	var x tensor.Dense
	for len(tokens) > 0 {
		n := min(len(tokens), PromptChunk)
		if x, err = s.pass(ctx, tokens[:n], arena); err != nil {
			s.Truncate(before)
			return nil, err
		}
		tokens = tokens[n:]
	}
	s.arena.Turn() // after many tokens, nothing else frees the logits before
	y, err := s.model.headLogits(&s.scopes.exempt, x.View(x.Rows-1, x.Rows, 0, x.Cols))
	if err != nil {
		s.Truncate(before)
		return nil, err
	}
	return y.Row(0), nil
}

// pass returns the input of the head for tokens, and adds them to the text. Its activations are in the arena.
func (s *Session) pass(ctx context.Context, tokens []int32, arena *nn.Arena) (tensor.Dense, error) {
	x, err := s.forward(ctx, tokens, arena)
	if err == nil && s.short > 0 {
		s.tokens = append(s.tokens, tokens...)
	}
	return x, err
}

// forward is pass without adding the tokens to the text.
func (s *Session) forward(ctx context.Context, tokens []int32, arena *nn.Arena) (tensor.Dense, error) {
	if err := ctx.Err(); err != nil {
		return tensor.Dense{}, err
	}
	s.scopes.setArena(arena)
	x, _, err := s.model.forward(s.scopes, tokens, 1, s)
	s.scopes.setArena(&s.arena)
	for _, scope := range [...]*nn.Scope{&s.scopes.quantized, &s.scopes.exempt} {
		scope.Random.Microbatch++
		scope.ReuseWeights = true
	}
	return x, err
}
