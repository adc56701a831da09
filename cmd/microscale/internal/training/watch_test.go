package training

import (
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/microscale-go/microscale/nn"
	"github.com/microscale-go/microscale/recipe"
	"github.com/microscale-go/microscale/tensor"
)

// TestWatcher checks that operands are compared with their sources, in both directions
// and with transforms.
func TestWatcher(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	normal := func(rows, cols int) tensor.Dense {
		x := tensor.New(rows, cols)
		for i := range x.Data {
			x.Data[i] = float32(math.Round(random.NormFloat64()*16) / 16) // in BF16
		}
		return x
	}
	for _, tc := range []struct {
		recipe string
		least  float64 // SQNR
		most   float64
		blocks int64 // of the input, in both directions
	}{{"mxfp8", 29, 33, 2 * 128 * 128 / 32}, {"nvfp4", 13, 22, 2 * 128 * 128 / 16}, {"tensorwise", 25, 33, 2},
		{"bf16", math.Inf(1), math.Inf(1), 0}} {
		r, err := recipe.Lookup(tc.recipe)
		if err != nil {
			t.Fatal(err)
		}
		w := newWatcher(r)
		l := nn.NewLinear("model.layers.3.mlp.down_proj", 128, 128, false)
		copy(l.Weight.Value.Data, normal(128, 128).Data)
		s := &nn.Scope{Recipe: r}
		s.Observer.Operand = func(o nn.Observation) { w.observe(7, o) }
		_, saved, err := l.Forward(s, normal(128, 128))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := l.Backward(s, saved, normal(128, 128)); err != nil {
			t.Fatal(err)
		}
		operands, scales := w.rows()
		var seen []string
		for _, o := range operands {
			seen = append(seen, o.Name+" "+o.Direction)
			if o.SQNR < tc.least || o.SQNR > tc.most || o.Step != 7 || o.Module != "3.down_proj" || o.Elements != 128*128 ||
				!(o.Amax > 2 && o.Amax < 16) {
				t.Errorf("%s: %+v, want an SQNR of %g to %g", tc.recipe, o, tc.least, tc.most)
			}
		}
		if got, want := strings.Join(seen, ", "), "input rowwise, input columnwise, weight rowwise, weight columnwise, gradient rowwise, "+
			"gradient columnwise"; got != want {
			t.Errorf("%s: operands %s", tc.recipe, got)
		}
		var n int64
		for _, h := range scales {
			if h.Name == "input" {
				for _, count := range h.Counts {
					n += count
				}
			}
		}
		if n != tc.blocks {
			t.Errorf("%s: %d scales of the input, want %d", tc.recipe, n, tc.blocks)
		}
	}
}

func TestModuleLabel(t *testing.T) {
	for name, want := range map[string]string{"model.layers.3.self_attn.qkv_proj": "3.qkv_proj", "lm_head": "lm_head", "": ""} {
		if got := moduleLabel(name); got != want {
			t.Errorf("%s becomes %s, want %s", name, got, want)
		}
	}
}
