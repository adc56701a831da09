package nn

import (
	"errors"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/microscale-go/microscale/format"
	"github.com/microscale-go/microscale/internal/slow"
	"github.com/microscale-go/microscale/quant"
	"github.com/microscale-go/microscale/tensor"
)

// TestCacheScales checks that attention with the scales of an FP8 KV cache uses E4M3 keys and values
// with these scales, in one pass and token by token, and that training does not.
func TestCacheScales(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 9))
	const heads, kvHeads, dim, tokens = 2, 1, 16, 8
	scales := &CacheScales{Key: 0.003, Value: 0.0007} // some elements saturate
	attention := func(c *CacheScales) *Attention {
		return &Attention{Name: "a", Heads: heads, KVHeads: kvHeads, HeadDim: dim,
			Rotary: NewRotary(RotaryConfig{HeadDim: dim, Positions: 64, Base: 1e4}), CacheScales: c}
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

// TestCacheFormat compares attention whose keys and values are in a block format with attention whose
// keys and values were rounded to it by hand: in one pass, in parts and token by token, after
// Truncate, and for a window. The cache holds as many bytes as the format has. For elements of 4 bits, heads were transformed by hand, too.
func TestCacheFormat(t *testing.T) {
	slow.Race(t, slow.Repeats)
	const tokens, cut = 75, 40
	for i, f := range []quant.Format{quant.BF16, quant.MXFP8, quant.FP8Row, quant.MXFP4, quant.NVFP4, quant.MXFP6E2M3} {
		if i%slow.Stride(1, 3) > 0 {
			continue
		}
		for name, a := range map[string]*Attention{
			"groups":     {Heads: 4, KVHeads: 2, HeadDim: 64},
			"row tails":  {Heads: 2, KVHeads: 2, HeadDim: 80},
			"window":     {Heads: 4, KVHeads: 1, HeadDim: 32, Window: 37},
			"without it": {Heads: 1, KVHeads: 1, HeadDim: 16},
		} {
			t.Run(f.Name+"/"+name, func(t *testing.T) {
				rng := rand.New(rand.NewPCG(1, 9))
				s := *scopeOf(t, "f32")
				s.Inference = true
				x := matrix(rng, tokens, a.Width(), 1)
				rounded := x.Clone()
				spread := func(x tensor.Dense) {
					for i := 0; f.Element.StoredBits() <= 4 && i < len(x.Data); i += a.HeadDim {
						hadamard(x.Data[i : i+a.HeadDim])
					}
				}
				spread(rounded)
				for i := range rounded.Rows {
					for from := a.Heads * a.HeadDim; from < x.Cols; from += a.HeadDim {
						q, err := quant.Quantizer{Format: f}.Rowwise(rounded.View(i, i+1, from, from+a.HeadDim),
							quant.With{Amax: new(float32(448 * 6))})
						if err != nil {
							t.Fatal(err)
						}
						copy(rounded.Row(i)[from:], q.Dequantize(1).Row(0))
					}
				}
				want, _, err := a.Forward(&s, rounded, 1)
				if err != nil {
					t.Fatal(err)
				}
				spread(want)
				s.Cache = f
				got, _, err := a.Forward(&s, x.Clone(), 1)
				if err != nil {
					t.Fatal(err)
				}
				if !slices.Equal(got.Data, want.Data) {
					t.Error("one pass: other bits than those of rounded keys and values")
				}
				tolerance := 1e-5 * float64(quant.Amax(want, 1))
				for _, step := range []int{1, 3, 30} {
					var cache Cache
					extend := func(from, to int) {
						o, err := a.Extend(&s, x.View(from, to, 0, x.Cols).Clone(), &cache)
						if err != nil {
							t.Fatal(err)
						}
						for i := range o.Rows {
							for j, v := range o.Row(i) {
								if w := want.At(from+i, j); !(math.Abs(float64(v-w)) <= tolerance) {
									t.Fatalf("by %d, token %d, element %d: got %g, want %g", step, from+i, j, v, w)
								}
							}
						}
					}
					for from := 0; from < tokens; from += step {
						extend(from, min(from+step, tokens))
					}
					cache.Truncate(cut)
					extend(cut, tokens)
					if n := 2 * a.KVHeads * f.Bytes(tokens, a.HeadDim); cache.Bytes() != n || cache.Len() != tokens {
						t.Errorf("%d tokens in %d bytes, want %d in %d", cache.Len(), cache.Bytes(), tokens, n)
					}
				}
			})
		}
	}
	for _, f := range []quant.Format{quant.FP8Tensor, quant.FP8Block} {
		if err := CheckCacheFormat(f); !errors.Is(err, errors.ErrUnsupported) {
			t.Errorf("%s: got %v", f, err)
		}
	}
}

// TestNoTokens checks passes of no tokens: without a cache, and with a cache in float32 or as codes.
func TestNoTokens(t *testing.T) {
	const heads, dim = 2, 32
	a := &Attention{Name: "a", Heads: heads, KVHeads: 1, HeadDim: dim, Rotary: NewRotary(RotaryConfig{HeadDim: dim, Positions: 64, Base: 1e4})}
	none, one := tensor.New(0, a.Width()), tensor.New(1, a.Width())
	s := scopeOf(t, "bf16")
	_, saved, err := a.Forward(s, none, 1)
	if err != nil {
		t.Fatal(err)
	}
	if d, err := a.Backward(s, saved, tensor.New(0, heads*dim)); err != nil || d.Rows != 0 || d.Cols != a.Width() {
		t.Errorf("Backward: got %d×%d (%v), want 0×%d", d.Rows, d.Cols, err, a.Width())
	}
	for _, format := range []quant.Format{{}, quant.MXFP8} {
		s := *scopeOf(t, "bf16")
		s.Inference, s.Cache = true, format
		if o, _, err := a.Forward(&s, none, 1); err != nil || o.Rows != 0 || o.Cols != heads*dim {
			t.Errorf("%s: Forward: got %d×%d (%v), want 0×%d", format, o.Rows, o.Cols, err, heads*dim)
		}
		cache := &Cache{}
		for _, x := range []tensor.Dense{none, one, none} {
			if o, err := a.Extend(&s, x.Clone(), cache); err != nil || o.Rows != x.Rows || o.Cols != heads*dim {
				t.Errorf("%s: Extend: got %d×%d (%v), want %d×%d", format, o.Rows, o.Cols, err, x.Rows, heads*dim)
			}
		}
		if cache.Len() != 1 {
			t.Errorf("%s: got a cache of %d tokens, want 1", format, cache.Len())
		}
	}
}
