package nn

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/microscale-go/microscale/format"
	"github.com/microscale-go/microscale/tensor"
)

// TestCacheScales checks that attention with the scales of an FP8 KV cache uses E4M3 keys and values
// with these scales, in one pass and token by token, and that training does not.
func TestCacheScales(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 9))
	const heads, kvHeads, dim, tokens = 2, 1, 16, 8
	scales := &CacheScales{Key: 0.003, Value: 0.0007} // some elements saturate
	attention := func(c *CacheScales) *Attention {
		return &Attention{Name: "a", Heads: heads, KVHeads: kvHeads, HeadDim: dim, Rotary: NewRotary(RotaryConfig{HeadDim: dim, Positions: 64, Base: 1e4}), CacheScales: c}
	}
	s := *scopeOf(t, "bf16")
	s.Inference = true
	x := matrix(rng, tokens, (heads+2*kvHeads)*dim, 1)
	s.Round(x)

	// By hand: E4M3 of the rotated keys and of the values.
	var want []float32
	watched := s
	watched.Observer.KeysValues = func(_ string, keys, values tensor.Dense) {
		for i := range tokens {
			for _, part := range []struct {
				row   []float32
				scale float32
			}{{keys.Row(i), scales.Key}, {values.Row(i), scales.Value}} {
				for _, v := range part.row {
					cached := part.scale * format.E4M3.Decode(format.E4M3.Encode(v/part.scale))
					want = append(want, format.BF16.Decode(format.BF16.Encode(cached)))
				}
			}
		}
	}
	o, _, err := attention(scales).Forward(&watched, x.Clone(), 1)
	if err != nil {
		t.Fatal(err)
	}
	a, cache := attention(scales), &Cache{}
	for i := range tokens {
		row, err := a.Extend(&s, x.View(i, i+1, 0, x.Cols).Clone(), cache)
		if err != nil {
			t.Fatal(err)
		}
		if i == 0 { // attends only to its own value
			value := want[kvHeads*dim : 2*kvHeads*dim]
			if !slices.Equal(row.Row(0), slices.Concat(value, value)) || !slices.Equal(o.Row(0), row.Row(0)) {
				t.Errorf("first token: got output %v, want its cached value", row.Row(0))
			}
		}
	}
	if !slices.Equal(cache.rows.Data, want) {
		t.Error("keys and values of the cache differ from those by hand")
	}
	plain, _, err := attention(nil).Forward(&s, x.Clone(), 1)
	if err != nil {
		t.Fatal(err)
	}
	if slices.Equal(o.Data, plain.Data) {
		t.Error("the scales of the cache have no effect")
	}
	train := s
	train.Inference = false
	trained, _, err := attention(scales).Forward(&train, x.Clone(), 1)
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(trained.Data, plain.Data) {
		t.Error("the scales of the cache change a training pass")
	}
}
