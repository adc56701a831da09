package decoder

import (
	"context"
	"errors"
	"testing"

	"github.com/microscale-go/microscale/checkpoint"
	"github.com/microscale-go/microscale/quant"
	"github.com/microscale-go/microscale/safetensors"
)

// TestAppendEach compares sessions of different lengths that compute their tokens together with
// sessions that compute them one after another.
func TestAppendEach(t *testing.T) {
	trainable := trained(t, small)
	dir := t.TempDir()
	if err := trainable.Save(dir, safetensors.BF16); err != nil {
		t.Fatal(err)
	}
	models := map[string]*Model{"trainable": trainable}
	for _, f := range []quant.Format{quant.MXFP8, quant.MXFP4, quant.NVFP4} {
		low := quantized(t, dir, f.Name, quant.Quantizer{Format: f}, checkpoint.Plain())
		for _, inputs := range []quant.Format{{}, quant.BF16, quant.MXINT8} {
			m, err := Load(t.Context(), low, LoadOptions{Inference: true, Inputs: Inputs{Format: inputs}})
			if err != nil {
				t.Fatal(err)
			}
			models[f.Name+" "+inputs.Name] = m
		}
	}
	b, err := Load(t.Context(), dir, LoadOptions{Inference: true})
	if err != nil {
		t.Fatal(err)
	}
	models["bf16"] = b
	prompts := [][]int32{{'t'}, {'t', 'h', 'e', ' ', 'q'}, {'d', 'o', 'g'}, {'f', 'o', 'x', ' '}, {'a'}}
	for name, m := range models {
		t.Run(name, func(t *testing.T) {
			for _, n := range []int{1, 2, 5} {
				var together, alone []*Session
				for _, p := range prompts[:n] {
					together, alone = append(together, newSession(t, m, 20)), append(alone, newSession(t, m, 20))
					appendTokens(t, together[len(together)-1], p...)
					appendTokens(t, alone[len(alone)-1], p...)
				}
				for step := range 4 {
					tokens := make([]int32, n)
					for i := range tokens {
						tokens[i] = int32('a' + 3*i + step)
					}
					logits, err := m.AppendEach(t.Context(), together, tokens)
					if err != nil {
						t.Fatal(err)
					}
					for i, s := range alone {
						want := appendTokens(t, s, tokens[i])
						if !near(logits.Row(i), want) {
							t.Errorf("%d sessions, step %d, session %d: distance %g", n, step, i, distance(logits.Row(i), want))
						}
					}
				}
			}
		})
	}
}

// TestAppendEachErrors checks that a failed call leaves the sessions as they were.
func TestAppendEachErrors(t *testing.T) {
	m, _ := sessionModel(t)
	other, err := New(small, Options{}, 1)
	if err != nil {
		t.Fatal(err)
	}
	a, b, full := newSession(t, m, 10), newSession(t, m, 10), newSession(t, m, 2)
	appendTokens(t, a, 1, 2)
	appendTokens(t, b, 3)
	appendTokens(t, full, 3, 4)
	canceled, cancel := context.WithCancel(t.Context())
	cancel()
	for name, c := range map[string]struct {
		ctx      context.Context
		sessions []*Session
		tokens   []int32
		want     error
	}{
		"none":     {t.Context(), nil, nil, nil},
		"fewer":    {t.Context(), []*Session{a, b}, []int32{1}, nil},
		"twice":    {t.Context(), []*Session{a, a}, []int32{1, 2}, nil},
		"other":    {t.Context(), []*Session{a, newSession(t, other, 10)}, []int32{1, 2}, nil},
		"full":     {t.Context(), []*Session{a, full}, []int32{1, 2}, ErrContextFull},
		"canceled": {canceled, []*Session{a, b}, []int32{1, 2}, context.Canceled},
		"unknown":  {t.Context(), []*Session{a, b}, []int32{1, 256}, nil},
	} {
		if _, err := m.AppendEach(c.ctx, c.sessions, c.tokens); err == nil || c.want != nil && !errors.Is(err, c.want) {
			t.Errorf("%s: got %v", name, err)
		}
		if a.Position() != 2 || b.Position() != 1 || full.Position() != 2 {
			t.Fatalf("%s: %d, %d and %d tokens, want 2, 1 and 2", name, a.Position(), b.Position(), full.Position())
		}
	}
}
