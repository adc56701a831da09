package nn

import (
	"math"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/microscale-go/microscale/comm"
	"github.com/microscale-go/microscale/internal/slow"
	"github.com/microscale-go/microscale/recipe"
	"github.com/microscale-go/microscale/tensor"
)

// onRanks calls f on two goroutine ranks that share the layers.
func onRanks(t *testing.T, s *Scope, f func(s *Scope) error) {
	t.Helper()
	err := comm.Run(2, comm.Options{Timeout: time.Minute}, func(g *comm.Group) error {
		own := *s
		own.Ranks = Ranks{Group: g}
		return f(&own)
	})
	if err != nil {
		t.Fatal(err)
	}
}

// TestEmbeddingRanks divides a vocabulary among two ranks: both have the rows of one table, and the
// gradients of their own tokens.
func TestEmbeddingRanks(t *testing.T) {
	const vocabulary, width = 12, 8
	rng := rand.New(rand.NewPCG(1, 2))
	ids := []int32{0, 11, 5, 6, 6, 3, 11}
	dy := matrix(rng, len(ids), width, 1)
	s := scopeOf(t, "bf16")
	whole := NewEmbedding("table", vocabulary, width)
	whole.Weight.InitNormal(1, 7)
	want := dense(t)(whole.Forward(s, ids))
	if err := whole.Backward(s, ids, dy); err != nil {
		t.Fatal(err)
	}
	onRanks(t, s, func(s *Scope) error {
		e := NewEmbedding("table", vocabulary/2, width)
		e.Divide(s.Ranks.Rank(), 2)
		e.Weight.InitNormal(1, 7)
		y, err := e.Forward(s, ids)
		if err != nil {
			return err
		}
		if !sameData(y, want) {
			t.Errorf("rank %d: other rows than of one table", s.Ranks.Rank())
		}
		if err := e.Backward(s, ids, dy); err != nil {
			return err
		}
		first := s.Ranks.Rank() * vocabulary / 2
		if !sameData(e.Weight.Grad, whole.Weight.Grad.View(first, first+vocabulary/2, 0, width)) {
			t.Errorf("rank %d: other gradients than of one table", s.Ranks.Rank())
		}
		if _, err := e.Forward(s, []int32{vocabulary}); err == nil {
			t.Error("a token outside the vocabulary: no error")
		}
		return nil
	})
}

// TestLossRanks divides the logits among two ranks. Sums in float64 are added in another order, so
// losses differ by rounding in float64, and gradients at most by one rounding of a sum to float32.
func TestLossRanks(t *testing.T) {
	const rows, classes = 9, 64
	rng := rand.New(rand.NewPCG(3, 4))
	logits := matrix(rng, rows, classes, 3)
	targets := []int32{0, 63, 31, 32, -1, 5, 40, -1, 1}
	s := scopeOf(t, "f32")
	c := CrossEntropy{Name: "loss"}
	want, saved, err := c.Forward(s, logits.Clone(), targets)
	if err != nil {
		t.Fatal(err)
	}
	wantGrad := dense(t)(c.Backward(s, saved, 1))
	onRanks(t, s, func(s *Scope) error {
		first := s.Ranks.Rank() * classes / 2
		loss, saved, err := c.Forward(s, logits.View(0, rows, first, first+classes/2).Clone(), targets)
		if err != nil {
			return err
		}
		if math.Abs(loss-want) > 0x1p-50*want {
			t.Errorf("rank %d: loss %v, want %v", s.Ranks.Rank(), loss, want)
		}
		d, err := c.Backward(s, saved, 1)
		if err != nil {
			return err
		}
		for i := range rows {
			for j, v := range d.Row(i) {
				// The target's gradient is a difference, p − 1.
				if w := wantGrad.At(i, first+j); math.Abs(float64(v-w)) > 0x1p-22*math.Max(math.Abs(float64(w)), 1./rows/8) {
					t.Errorf("rank %d: gradient %d, %d is %g, want %g", s.Ranks.Rank(), i, j, v, w)
				}
			}
		}
		if _, _, err := c.Forward(s, logits.View(0, rows, 0, classes/2), []int32{classes, 0, 0, 0, 0, 0, 0, 0, 0}); err == nil {
			t.Error("a target outside the vocabulary: no error")
		}
		return nil
	})
}

// TestAttentionRanks gives each of two ranks half of the heads. With one scale for all heads, in FP8
// attention with current scaling, results are those of one process.
func TestAttentionRanks(t *testing.T) {
	const heads, kv, size, tokens = 4, 2, 32, 64
	r, err := recipe.Lookup("tensorwise")
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Set("fp8_dpa", "true"); err != nil {
		t.Fatal(err)
	}
	s := &Scope{Recipe: r, Threads: 1}
	rng := rand.New(rand.NewPCG(5, 6))
	x, dy := matrix(rng, tokens, (heads+2*kv)*size, 1), matrix(rng, tokens, heads*size, 1e-2)
	run := func(s *Scope, heads, kv int, x, dy tensor.Dense) (y, dx tensor.Dense, err error) {
		a := &Attention{Name: "attention", Heads: heads, KVHeads: kv, HeadDim: size}
		y, saved, err := a.Forward(s, x.Clone(), 2)
		if err != nil {
			return y, dx, err
		}
		dx, err = a.Backward(s, saved, dy)
		return y, dx, err
	}
	want, wantDX, err := run(s, heads, kv, x, dy)
	if err != nil {
		t.Fatal(err)
	}
	onRanks(t, s, func(s *Scope) error {
		rank := s.Ranks.Rank()
		columns := func(x tensor.Dense, first, n int) tensor.Dense {
			return x.View(0, x.Rows, first+rank*n/2, first+(rank+1)*n/2)
		}
		qkv := func(x tensor.Dense) tensor.Dense {
			q := besides(columns(x, 0, heads*size), columns(x, heads*size, kv*size))
			return besides(q, columns(x, (heads+kv)*size, kv*size))
		}
		y, dx, err := run(s, heads/2, kv/2, qkv(x), columns(dy, 0, heads*size))
		if err != nil {
			return err
		}
		if !sameData(y, columns(want, 0, heads*size)) {
			t.Errorf("rank %d: O differs", rank)
		}
		if !sameData(dx, qkv(wantDX)) {
			t.Errorf("rank %d: dQKV differs", rank)
		}
		return nil
	})
}

// TestTokensRanks divides the tokens of a norm and of an embedding among two ranks: outputs and
// gradients are those of one process, of the norm's weight where the ranks have multiples of 64 tokens.
func TestTokensRanks(t *testing.T) {
	const tokens, vocabulary, width = 256, 12, 32
	rng := rand.New(rand.NewPCG(7, 8))
	x, dy := matrix(rng, tokens, width, 1), matrix(rng, tokens, width, 1e-2)
	ids := make([]int32, tokens)
	for i := range ids {
		ids[i] = rng.Int32N(vocabulary)
	}
	s := scopeOf(t, "bf16")
	type result struct{ y, dx, dw, rows, table tensor.Dense }
	run := func(s *Scope, x, dy tensor.Dense) (r result, err error) {
		n := NewRMSNorm("norm", width, 1e-5)
		y, saved, err := n.Forward(s, x)
		if err != nil {
			return r, err
		}
		r.y = y
		if r.dx, err = n.Backward(s, saved, dy); err != nil {
			return r, err
		}
		e := NewEmbedding("table", vocabulary/s.Ranks.Size(), width)
		if s.Ranks.Size() > 1 {
			e.Divide(s.Ranks.Rank(), s.Ranks.Size())
		}
		e.Weight.InitNormal(1, 7)
		if r.rows, err = e.Forward(s, ids); err != nil {
			return r, err
		}
		r.dw, r.table = n.Weight.Grad, e.Weight.Grad
		return r, e.Backward(s, ids, dy)
	}
	want, err := run(s, x, dy)
	if err != nil {
		t.Fatal(err)
	}
	onRanks(t, s, func(s *Scope) error {
		s.Ranks.Sequence = true
		rank := s.Ranks.Rank()
		got, err := run(s, ownTokens(rank, x), ownTokens(rank, dy))
		if err != nil {
			return err
		}
		for name, pair := range map[string][2]tensor.Dense{
			"Y of the norm": {got.y, ownTokens(rank, want.y)}, "dX of the norm": {got.dx, ownTokens(rank, want.dx)},
			"dw of the norm":    {got.dw, want.dw},
			"rows of the table": {got.rows, ownTokens(rank, want.rows)}, "gradient of the table": {got.table, ownTokens(rank, want.table)},
		} {
			if !sameData(pair[0], pair[1]) {
				t.Errorf("rank %d: %s differs", rank, name)
			}
		}
		if _, err := NewEmbedding("table", vocabulary/2, width).Forward(s, ids[:3]); err == nil {
			t.Error("3 tokens on 2 ranks: no error")
		}
		return nil
	})
}

// TestBiasRanks divides a fused layer with biases among two ranks: by outputs each rank has the columns
// of Y and of the gradient of its part; by inputs it is an error.
func TestBiasRanks(t *testing.T) {
	const in, part, tokens = 16, 32, 8
	rng := rand.New(rand.NewPCG(5, 6))
	x, dy := matrix(rng, tokens, in, 1), matrix(rng, tokens, 2*part, 1)
	layer := func(part int) *Linear {
		return NewFusedLinear(layerName, in, true, Part{"a", part}, Part{"b", part})
	}
	fill := func(l *Linear) {
		for i, p := range l.Params() {
			p.InitNormal(1, 7)
			for j := range p.Value.Cols {
				if i%2 == 1 { // a bias
					p.Value.Row(0)[j] = float32(100*i + p.Place.Col + j)
				}
			}
		}
	}
	s := scopeOf(t, "f32")
	whole := layer(part)
	fill(whole)
	want, saved, err := whole.Forward(s, x)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := whole.Backward(s, saved, dy); err != nil {
		t.Fatal(err)
	}
	onRanks(t, s, func(s *Scope) error {
		rank := s.Ranks.Rank()
		l := layer(part / 2)
		if err := l.Divide(SplitInputs, rank, 2); err == nil {
			t.Error("a bias after a sum over ranks: no error")
		}
		if err := l.Divide(SplitOutputs, rank, 2); err != nil {
			return err
		}
		fill(l)
		y, saved, err := l.Forward(s, x)
		if err != nil {
			return err
		}
		if !sameData(y, l.partOf(s, Grad, want)) {
			t.Errorf("rank %d: Y differs", rank)
		}
		if _, err := l.Backward(s, saved, l.partOf(s, Grad, dy)); err != nil {
			return err
		}
		for i, p := range l.Params() {
			at, of := p.Place, whole.Params()[i].Grad
			if at.Rows != of.Rows || at.Cols != of.Cols || !sameData(p.Grad, of.View(at.Row, at.Row+p.Grad.Rows, at.Col, at.Col+p.Grad.Cols)) {
				t.Errorf("rank %d: the gradient of %s at %+v differs", rank, p.Name, at)
			}
		}
		return nil
	})
}

// TestDelayedRanks checks that delayed scaling, whose amaxes are reduced after a pass, reduces none for
// an operand.
func TestDelayedRanks(t *testing.T) {
	slow.Emulated(t, slow.OwnProducts)
	for recipe, wanted := range map[string]bool{"delayed": false, "tensorwise": true} {
		s := scopeOf(t, recipe)
		onRanks(t, s, func(s *Scope) error {
			s.ReduceAmax = s.Ranks.Group.For("delayed").Max
			if _, err := runDivided(*s, SplitInputs); err != nil {
				return err
			}
			if n := s.Ranks.Group.Traffic()[TrafficAmaxes]; n > 0 != wanted {
				t.Errorf("%s: sent %d bytes of amaxes of operands", recipe, n)
			}
			return nil
		})
	}
}

// TestUnevenTokensRanks checks that ranks cannot divide a number of tokens that is not their multiple.
func TestUnevenTokensRanks(t *testing.T) {
	onRanks(t, scopeOf(t, "bf16"), func(s *Scope) error {
		s.Ranks.Sequence = true
		if _, err := s.sumRanks(tensor.New(3, 4)); err == nil || !strings.Contains(err.Error(), "got 3 tokens, want a multiple of the 2 ranks") {
			t.Errorf("3 tokens on 2 ranks: error %v", err)
		}
		return nil
	})
}
