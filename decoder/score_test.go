package decoder

import (
	"context"
	"errors"
	"math"
	"slices"
	"testing"

	"github.com/microscale-go/microscale/tensor"
)

// TestAppendAll compares the logits after every token with those of Append token by token, up to the order of sums
// in kernels for several rows.
func TestAppendAll(t *testing.T) {
	m, err := New(Config{HiddenSize: 64, IntermediateSize: 64, NumHiddenLayers: 2, NumAttentionHeads: 2, MaxPositionEmbeddings: 256},
		Options{}, 3)
	if err != nil {
		t.Fatal(err)
	}
	session := func() *Session {
		t.Helper()
		s, err := m.NewSession(150)
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	tokens := make([]int32, 150)
	for i := range tokens {
		tokens[i] = int32(i * 37 % 256)
	}
	one := session()
	var want [][]float32
	for _, token := range tokens {
		logits, err := one.Append(t.Context(), []int32{token})
		if err != nil {
			t.Fatal(err)
		}
		want = append(want, slices.Clone(logits))
	}
	all := session()
	for _, part := range [][]int32{tokens[:3], tokens[3:140], tokens[140:]} {
		before := all.Position()
		err := all.AppendAll(t.Context(), part, before+len(part), func(first int, logits tensor.Dense) error {
			for i := range logits.Rows {
				for j, got := range logits.Row(i) {
					if w := want[before+first+i][j]; math.Abs(float64(got-w)) > 1e-5*(1+math.Abs(float64(w))) {
						t.Fatalf("token %d: logit %d is %g, want %g", before+first+i, j, got, w)
					}
				}
			}
			want[before+first] = nil // each row once
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if all.Position() != len(tokens) {
		t.Errorf("%d tokens, want %d", all.Position(), len(tokens))
	}
	all.Truncate(100)
	nothing := func(int, tensor.Dense) error { return nil }
	if err := all.AppendAll(t.Context(), tokens[:51], 151, nothing); !errors.Is(err, ErrContextFull) {
		t.Errorf("too many tokens: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	if err := all.AppendAll(ctx, tokens[:5], 105, func(int, tensor.Dense) error { cancel(); return nil }); !errors.Is(err, context.Canceled) {
		t.Errorf("canceled: %v", err)
	}
	if all.Position() != 100 || all.AppendAll(t.Context(), nil, 100, nothing) == nil || all.AppendAll(t.Context(), tokens[:5], 104,
		nothing) == nil {
		t.Errorf("%d tokens after errors, want 100", all.Position())
	}
}
