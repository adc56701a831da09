package decoder

import (
	"context"
	"errors"
	"slices"
	"testing"

	"github.com/microscale-go/microscale/tensor"
)

// TestLongText compares sessions of a model with LongRoPE, whose divisors depend on the length of the text, with whole texts: token by
// token over the limit, after Truncate to less than it, in a batch, after an error, and with the scores of all tokens.
func TestLongText(t *testing.T) {
	m := loadFamily(t, writeFamily(t, familyConfig("phi3"), same), true)
	const short, all = 16, 24
	tokens := make([]int32, all)
	for i := range tokens {
		tokens[i] = int32(i * 5 % 48)
	}
	want := func(n int) []float32 {
		t.Helper()
		y, err := m.Logits(t.Context(), tokens[:n], 1)
		if err != nil {
			t.Fatal(err)
		}
		return y.Row(n - 1)
	}
	check := func(what string, n int, got []float32) {
		t.Helper()
		if !near(got, want(n)) {
			t.Errorf("%s, %d tokens: got %v, want %v", what, n, got[:4], want(n)[:4])
		}
	}
	s := newSession(t, m, 0)
	for n := 1; n <= all; n++ {
		check("one by one", n, appendTokens(t, s, tokens[n-1]))
	}
	s.Truncate(10)
	check("truncated", 11, appendTokens(t, s, tokens[10]))
	check("again", all, appendTokens(t, s, tokens[11:]...))
	s.Truncate(short + 2)
	check("truncated above", short+3, appendTokens(t, s, tokens[short+2]))

	a, b := newSession(t, m, 0), newSession(t, m, 0)
	appendTokens(t, a, tokens[:short-1]...)
	appendTokens(t, b, tokens[:3]...)
	for i := range 4 {
		y, err := m.AppendEach(t.Context(), []*Session{a, b}, []int32{tokens[short-1+i], tokens[3+i]})
		if err != nil {
			t.Fatal(err)
		}
		check("batch", short+i, slices.Clone(y.Row(0)))
		check("batch", 4+i, slices.Clone(y.Row(1)))
	}

	s = newSession(t, m, 0)
	appendTokens(t, s, tokens[:short]...)
	canceled, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := s.Append(canceled, tokens[short:short+1]); !errors.Is(err, context.Canceled) || s.Position() != short {
		t.Errorf("canceled: got %v after %d tokens", err, s.Position())
	}
	for i := range s.caches {
		if held := s.caches[i].Bytes(); held != 0 {
			t.Errorf("cache %d of the short divisors holds %d bytes while those of the long ones are computed", i, held)
		}
	}
	check("after an error", short+1, appendTokens(t, s, tokens[short]))
	if _, err := s.Append(canceled, tokens[short+1:short+2]); !errors.Is(err, context.Canceled) || s.Position() != short+1 {
		t.Errorf("canceled: got %v after %d tokens", err, s.Position())
	}
	s.Truncate(5)
	if _, err := s.Append(canceled, tokens[5:6]); !errors.Is(err, context.Canceled) || s.Position() != 5 {
		t.Errorf("canceled: got %v after %d tokens", err, s.Position())
	}
	s.Truncate(4)
	check("after an error and fewer tokens", 6, appendTokens(t, s, tokens[4:6]...))

	// Scores of parts have the divisors of the whole text, and not those of the text before.
	s = newSession(t, m, 0)
	for _, n := range []int{8, all, 8} {
		s.Truncate(0)
		y, err := m.Logits(t.Context(), tokens[:n], 1)
		if err != nil {
			t.Fatal(err)
		}
		for at := 0; at < n; at += 4 {
			err := s.AppendAll(t.Context(), tokens[at:at+4], n, func(first int, logits tensor.Dense) error {
				for i := range logits.Rows {
					if got, want := logits.Row(i), y.Row(at+first+i); !near(got, want) {
						t.Errorf("score %d of %d: got %v, want %v", at+first+i, n, got[:4], want[:4])
					}
				}
				return nil
			})
			if err != nil {
				t.Fatal(err)
			}
		}
	}

	fits := newSession(t, m, short) // never needs the tokens again
	appendTokens(t, fits, tokens[:short]...)
	if fits.tokens != nil {
		t.Error("a context that is not longer than the limit keeps its tokens")
	}
}
