package decoder

import (
	"context"
	"errors"
	"math"
	"runtime"
	"runtime/debug"
	"slices"
	"testing"

	"github.com/microscale-go/microscale/checkpoint"
	"github.com/microscale-go/microscale/internal/slow"
	"github.com/microscale-go/microscale/quant"
	"github.com/microscale-go/microscale/safetensors"
	"github.com/microscale-go/microscale/tensor"
)

// sessionModel returns a trained model with positions for several passes of a session, and as many
// tokens.
func sessionModel(t testing.TB) (*Model, []int32) {
	t.Helper()
	c := small
	c.MaxPositionEmbeddings = 1100
	tokens, _ := text(1, 1100)
	return trained(t, c), tokens
}

func newSession(t testing.TB, m *Model, positions int) *Session {
	t.Helper()
	s, err := m.NewSession(positions)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func appendTokens(t testing.TB, s *Session, tokens ...int32) []float32 {
	t.Helper()
	logits, err := s.Append(context.Background(), tokens)
	if err != nil {
		t.Fatal(err)
	}
	return slices.Clone(logits)
}

// near reports whether logits differ by rounding only: products of few rows may add in another
// order than products of many.
func near(a, b []float32) bool {
	for i := range a {
		if !(math.Abs(float64(a[i]-b[i])) <= 1e-4) {
			return false
		}
	}
	return len(a) == len(b)
}

// TestSession checks that tokens appended in several calls have the logits of the whole sequence:
// over the limit of a pass, one by one, after Truncate, and with a second session between.
func TestSession(t *testing.T) {
	m, tokens := sessionModel(t)
	whole, err := m.Logits(context.Background(), tokens, 1)
	if err != nil {
		t.Fatal(err)
	}
	if m.Vocabulary() != whole.Cols || m.Positions() != whole.Rows {
		t.Errorf("vocabulary %d and %d positions, logits %d×%d", m.Vocabulary(), m.Positions(), whole.Rows, whole.Cols)
	}
	one, other := newSession(t, m, 0), newSession(t, m, 100)
	check := func(s *Session, tokens ...int32) {
		t.Helper()
		if got := appendTokens(t, s, tokens...); !near(got, whole.Row(s.Position()-1)) {
			t.Errorf("logits at position %d differ from those of the whole sequence", s.Position())
		}
	}
	check(one, tokens[:1030]...)
	check(other, tokens[:7]...)
	check(one, tokens[1030])
	check(one, tokens[1031:]...)
	one.Truncate(600)
	check(one, tokens[600:602]...)
	check(other, tokens[7:9]...)
	one.Truncate(0)
	check(one, tokens[:3]...)
}

// TestSessionErrors checks that a failed Append leaves the session as it was.
func TestSessionErrors(t *testing.T) {
	m, tokens := sessionModel(t)
	for _, positions := range []int{-1, 1101} {
		if _, err := m.NewSession(positions); err == nil {
			t.Errorf("%d positions: got no error", positions)
		}
	}
	s := newSession(t, m, 1000)
	appendTokens(t, s, tokens[:10]...)
	canceled, cancel := context.WithCancel(context.Background())
	cancel()
	for name, c := range map[string]struct {
		ctx    context.Context
		tokens []int32
		want   error
	}{
		"full":     {context.Background(), tokens[:991], ErrContextFull},
		"canceled": {canceled, tokens[:2], context.Canceled},
		"none":     {context.Background(), nil, nil},
		"unknown":  {context.Background(), append(slices.Clone(tokens[:600]), 256), nil}, // in the second pass
	} {
		if _, err := s.Append(c.ctx, c.tokens); err == nil || !errors.Is(err, c.want) && c.want != nil {
			t.Errorf("%s: got %v", name, err)
		}
		if s.Position() != 10 {
			t.Errorf("%s: %d tokens, want 10", name, s.Position())
		}
	}
	fresh := newSession(t, m, 0)
	if want, got := appendTokens(t, fresh, tokens[:11]...), appendTokens(t, s, tokens[10]); !near(got, want) {
		t.Error("logits after failed calls differ")
	}
	appendTokens(t, s, tokens[11:1000]...)
	if _, err := s.Append(context.Background(), tokens[:1]); !errors.Is(err, ErrContextFull) {
		t.Errorf("a token after the last position: got %v", err)
	}
	broken := *m
	broken.head = newProjection("", "lm_head", m.plan.Hidden/2, false, []string{"lm_head"}, m.plan.Vocabulary)
	broken.head.train()
	s = newSession(t, &broken, 20)
	if _, err := s.Append(context.Background(), tokens[:2]); err == nil || s.Position() != 0 {
		t.Errorf("a head of another width: %d tokens (%v), want 0 and an error", s.Position(), err)
	}
}

// TestAllocationsOfSession checks that a token allocates less than the activations of one layer: those of
// the pass before are reused.
func TestAllocationsOfSession(t *testing.T) {
	slow.Race(t, slow.Allocations)
	c := Config{VocabSize: 1000, HiddenSize: 512, IntermediateSize: 2048, NumHiddenLayers: 4, NumAttentionHeads: 8, NumKeyValueHeads: 2,
		MaxPositionEmbeddings: 400}
	m, err := New(c, Options{}, 1)
	if err != nil {
		t.Fatal(err)
	}
	if m, err = m.Quantize(quant.Quantizer{Format: quant.MXFP8}, false, 1); err != nil {
		t.Fatal(err)
	}
	m.head.linear, m.head.frozen = nil, &frozen{name: "lm_head", parts: []frozenPart{{weight: mustRowwise(t, m.head.linear.Weight.Value)}}}
	m.Inference.Threads = 1
	s := newSession(t, m, 0)
	appendTokens(t, s, make([]int32, 300)...) // grows the cache
	var before, after runtime.MemStats
	const warm, tokens = 3, 20
	for i := range warm + tokens {
		if i == warm {
			runtime.ReadMemStats(&before)
		}
		appendTokens(t, s, 1)
	}
	runtime.ReadMemStats(&after)
	// outputs of norms, linear layers, attention and SwiGLU
	layer := 4 * (512 + 768 + 512 + 512 + 512 + 4096 + 2048 + 512)
	if got := int(after.TotalAlloc-before.TotalAlloc)/tokens - 4*c.VocabSize; got > layer { // appendTokens copies the logits
		t.Errorf("got %d bytes allocated per token, want at most %d", got, layer)
	}
}

// TestInputsFreed checks that linear layers keep no inputs of passes over many tokens, which are larger
// than the weights.
func TestInputsFreed(t *testing.T) {
	m, tokens := sessionModel(t)
	m, err := m.Quantize(quant.Quantizer{Format: quant.MXFP8}, false, 1)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := m.Logits(t.Context(), tokens[:100], 1); err != nil {
		t.Fatal(err)
	}
	s := newSession(t, m, 0)
	appendTokens(t, s, tokens[:100]...)
	for range 2 {
		for _, p := range m.projections() {
			if p.frozen != nil && p.frozen.last.codes != nil && p.frozen.last.codes.Rows() > arenaTokens {
				t.Errorf("%s keeps an input of %d tokens", p.name, p.frozen.last.codes.Rows())
			}
		}
		appendTokens(t, s, tokens[100])
	}
}

func mustRowwise(t *testing.T, x tensor.Dense) *quant.Tensor {
	q, err := quant.Quantizer{Format: quant.BF16}.Rowwise(x, quant.With{})
	if err != nil {
		t.Fatal(err)
	}
	return q
}

// TestAllocationsOfAppend checks that a token takes no memory from the heap once the caches of a
// session have their size. Two cases take some: a cache of codes for each tile that it decodes, and a
// pass for several sessions, though not for each of its layers.
func TestAllocationsOfAppend(t *testing.T) {
	slow.Race(t, slow.Allocations)
	defer debug.SetGCPercent(debug.SetGCPercent(-1)) // pools keep their scratch
	const (
		positions = 64
		tiles     = 2 * 2 * 2 * 2 // 33 tokens of K and V of two heads in two layers
		perTile   = 5             // the decoder of a format; 4 with kernels
		perPass   = 5
		inputs    = 2 * 4 // of layers
		perInput  = 4     // the decoder of a format
	)
	m := trained(t, small)
	dir := t.TempDir()
	if err := m.Save(dir, safetensors.BF16); err != nil {
		t.Fatal(err)
	}
	low := quantized(t, dir, "low", quant.Quantizer{Format: quant.MXFP4}, checkpoint.Plain())
	for _, c := range []struct {
		inputs, cache quant.Format
		residual      bool
		limit         float64
	}{
		{inputs: quant.BF16},
		{inputs: quant.MXINT8},
		{inputs: quant.MXINT8, residual: true, limit: inputs * perInput},
		{inputs: quant.BF16, cache: quant.MXFP8, limit: tiles * perTile},
	} {
		fast, err := Load(t.Context(), low, LoadOptions{Inference: true, Inputs: Inputs{c.inputs, c.residual}})
		if err != nil {
			t.Fatal(err)
		}
		fast.Inference.Threads, fast.Inference.Cache = 1, c.cache
		var sessions []*Session
		for range 3 {
			sessions = append(sessions, newSession(t, fast, positions))
			appendTokens(t, sessions[len(sessions)-1], make([]int32, positions)...)
		}
		tokens := []int32{'a', 'b', 'c'}
		measure := func(sessions []*Session, limit float64, add func() error) {
			got := testing.AllocsPerRun(20, func() {
				for _, s := range sessions {
					s.Truncate(positions / 2)
				}
				if err := add(); err != nil {
					t.Fatal(err)
				}
			})
			if got > limit {
				t.Errorf("inputs in %s, cache in %q, %d sessions: got %v allocations for a token, want at most %v", c.inputs, c.cache, len(sessions),
					got, limit)
			}
		}
		measure(sessions[:1], c.limit, func() error {
			_, err := sessions[0].Append(t.Context(), tokens[:1])
			return err
		})
		measure(sessions, perPass+3*c.limit, func() error {
			_, err := fast.AppendEach(t.Context(), sessions, tokens)
			return err
		})
	}
}
