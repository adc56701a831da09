package nn

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/microscale-go/microscale/internal/slow"
	"github.com/microscale-go/microscale/quant"
	"github.com/microscale-go/microscale/recipe"
)

// TestPool checks that layers with a shared pool give the same bits, and reuse tensors.
func TestPool(t *testing.T) {
	slow.Purego(t, slow.OwnProducts)
	slow.Emulated(t, slow.OwnProducts)
	for _, r := range recipe.Recipes() {
		results := func(m *Pool) (all []float32, operands map[*quant.Tensor]int) {
			rng := rand.New(rand.NewPCG(3, 5))
			operands = map[*quant.Tensor]int{}
			layers := []*Linear{NewLinear("a", 128, 256, false), NewLinear("b", 256, 128, false)}
			for _, l := range layers {
				copy(l.Weight.Value.Data, matrix(rng, l.out, l.in, 1).Data)
			}
			for round, tokens := range []int{64, 128, 64, 64} {
				s := &Scope{Recipe: r, Random: Random{Seed: 1, Step: uint32(round)}, Pool: m}
				s.Observer.Product = func(p Product) { operands[p.A]++ }
				x, dy := matrix(rng, tokens, 128, 1), matrix(rng, tokens, 128, 1e-3)
				h, first, err := layers[0].Forward(s, x)
				if err != nil {
					t.Fatal(err)
				}
				y, second, err := layers[1].Forward(s, h)
				if err != nil {
					t.Fatal(err)
				}
				for i, l := range []*Linear{layers[1], layers[0]} {
					if dy, err = l.Backward(s, []Saved{second, first}[i], dy); err != nil {
						t.Fatal(err)
					}
				}
				all = slices.Concat(all, y.Data, dy.Data, layers[0].Weight.Grad.Data, layers[1].Weight.Grad.Data)
			}
			return all, operands
		}
		want, fresh := results(nil)
		got, reused := results(&Pool{})
		if !slices.Equal(got, want) {
			t.Errorf("%s: results with a pool differ", r.Name)
		}
		if len(fresh) != 24 || len(reused) > 18 {
			t.Errorf("%s: 24 operands: got %d tensors without and %d with a pool", r.Name, len(fresh), len(reused))
		}
	}
}

// TestPoolFits checks that a tensor of another format, direction or shape is not reused.
func TestPoolFits(t *testing.T) {
	x := matrix(rand.New(rand.NewPCG(1, 1)), 64, 32, 1)
	m := &Pool{}
	spare := must(quant.Quantizer{Format: quant.MXFP8}.Rowwise(x, quant.With{}))
	m.put(spare, nil)
	unnamed := quant.MXFP8
	unnamed.Block.Rows = 32
	if m.take(quant.MXFP4, quant.Rowwise, x) != nil || m.take(unnamed, quant.Rowwise, x) != nil ||
		m.take(quant.MXFP8, quant.Columnwise, x) != nil || m.take(quant.MXFP8, quant.Rowwise, x.View(0, 32, 0, 32)) != nil {
		t.Error("the pool returned a tensor that does not fit")
	}
	if m.take(quant.MXFP8, quant.Rowwise, x) != spare || m.take(quant.MXFP8, quant.Rowwise, x) != nil {
		t.Error("the pool did not return a tensor that fits, or returned it twice")
	}
	for range maxPooled + 5 {
		m.put(spare)
	}
	if len(m.free) != maxPooled {
		t.Errorf("got %d tensors in the pool, want at most %d", len(m.free), maxPooled)
	}
}

// TestBackwardOnce checks the errors of backward passes whose operands are gone.
func TestBackwardOnce(t *testing.T) {
	s := scopeOf(t, "mxfp8")
	l := NewLinear("l", 64, 32, false)
	x, dy := matrix(rand.New(rand.NewPCG(1, 1)), 32, 64, 1), matrix(rand.New(rand.NewPCG(1, 2)), 32, 32, 1)
	_, saved, err := l.Forward(s, x)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := l.Backward(s, saved, dy); err != nil {
		t.Fatal(err)
	}
	if _, err := l.Backward(s, saved, dy); err == nil || !strings.Contains(err.Error(), "used before") {
		t.Errorf("second backward pass: got %v", err)
	}
	if _, saved, err = l.Forward(s, x); err != nil {
		t.Fatal(err)
	}
	inference := *s
	inference.Inference = true
	if _, _, err := l.Forward(&inference, x); err != nil {
		t.Fatal(err)
	}
	if _, err := l.Backward(s, saved, dy); err == nil || !strings.Contains(err.Error(), "the columnwise copy of the weight is gone") {
		t.Errorf("backward pass after inference: got %v", err)
	}
}
