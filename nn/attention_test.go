package nn

import (
	"bytes"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/microscale-go/microscale/internal/slow"
	"github.com/microscale-go/microscale/quant"
	"github.com/microscale-go/microscale/tensor"
)

// attention returns a module, its input and a gradient of its output, rounded to BF16.
func attention(t testing.TB, batch, length int) (*Attention, tensor.Dense, tensor.Dense) {
	t.Helper()
	r := rand.New(rand.NewPCG(2, 1))
	a := &Attention{Name: "attention", Heads: 4, KVHeads: 2, HeadDim: 32,
		Rotary: NewRotary(RotaryConfig{HeadDim: 32, Positions: length, Base: 10000})}
	x, dy := randomDense(r, batch*length, a.Width()), randomDense(r, batch*length, 4*32)
	scopeOf(t, "bf16").Round(x)
	scopeOf(t, "bf16").Round(dy)
	return a, x, dy
}

// pass runs a forward and a backward pass and returns the output and the gradient of the input.
func pass(t testing.TB, s *Scope, a *Attention, x, dy tensor.Dense, batch int) (y, dx tensor.Dense) {
	t.Helper()
	y, saved, err := a.Forward(s, x.Clone(), batch)
	if err != nil {
		t.Fatal(err)
	}
	return y, dense(t)(a.Backward(s, saved, dy))
}

// TestAttentionThreads compares the bits of results on different numbers of threads.
func TestAttentionThreads(t *testing.T) {
	slow.Emulated(t, slow.OwnProducts)
	a, x, dy := attention(t, 3, 160)
	for _, name := range []string{"f32", "bf16", "tensorwise", "delayed", "mxfp8", "nvfp4"} {
		var y1, dx1 tensor.Dense
		for _, threads := range []int{1, 2, 5} {
			s := scopeOf(t, name)
			s.Recipe.Attention.DotProduct = s.Recipe.Input.Rowwise.Format.Scaled()
			s.Threads = threads
			y, dx := pass(t, s, a, x, dy, 3)
			if threads == 1 {
				y1, dx1 = y, dx
			} else if !slices.Equal(y.Data, y1.Data) || !slices.Equal(dx.Data, dx1.Data) {
				t.Errorf("%s: results differ on %d threads", name, threads)
			}
		}
	}
}

// TestAttentionQuantized checks that with DotProduct every operand has the recipe's format, the bits
// that quant gives its source, and one scale for all heads; that without it every operand is BF16;
// and that there are two products in the forward pass and five in the backward pass, which recomputes
// P.
func TestAttentionQuantized(t *testing.T) {
	const batch, length = 2, 64
	a, x, dy := attention(t, batch, length)
	exactY, exactDx := pass(t, f32Scope(t), a, x, dy, batch)
	for _, tc := range []struct {
		recipe    string
		tolerance float64 // of the root mean square error over that of the values
	}{{"bf16", 0.01}, {"tensorwise", 0.1}, {"mxfp8", 0.1}, {"mxfp6", 0.15}, {"mxfp4", 0.4}} {
		s := scopeOf(t, tc.recipe)
		s.Recipe.Attention.DotProduct = tc.recipe != "bf16"
		products, observed := 0, 0
		amaxes := map[Operand]map[float32]bool{}
		s.Observer.Product = func(p Product) {
			products++
			for _, operand := range []*quant.Tensor{p.A, p.B} {
				if want := s.Recipe.Input.Rowwise.Format.Scaled(); operand.Format.Scaled() != want {
					t.Errorf("%s: operand format: got %s", tc.recipe, operand.Format)
				}
			}
		}
		s.Observer.Operand = func(o Observation) {
			observed++
			q := s.Recipe.Input.Rowwise
			if o.Operand == gradOutput || o.Operand == gradProbability {
				q = s.Recipe.Grad.Rowwise
			}
			q.Rounding, q.Hadamard = 0, false
			if amaxes[o.Operand] == nil {
				amaxes[o.Operand] = map[float32]bool{}
			}
			amaxes[o.Operand][o.Quantized.Amax] = true
			with := quant.With{Amax: &o.Quantized.Amax}
			want, err := q.Rowwise(o.Source, with)
			if o.Direction == quant.Columnwise {
				want, err = q.Columnwise(o.Source, with)
			}
			if err != nil || !bytes.Equal(want.Codes, o.Quantized.Codes) || !bytes.Equal(want.ScaleBytes(), o.Quantized.ScaleBytes()) {
				t.Errorf("%s: %s %s differs from quant's result: %v", tc.recipe, o.Direction, o.Operand, err)
			}
		}
		y, dx := pass(t, s, a, x, dy, batch)
		if want := batch * a.KVHeads * (2 + 5); products != want {
			t.Errorf("%s: got %d products, want %d", tc.recipe, products, want)
		}
		want := 2 * products
		if s.savesCodes() { // the backward pass has no sources of Q and K, twice each, and of V
			want -= 5 * batch * a.KVHeads
		}
		if tc.recipe != "bf16" && observed != want {
			t.Errorf("%s: got %d observed operands, want %d", tc.recipe, observed, want)
		}
		if s.Recipe.Input.Rowwise.Format.PerTensor() {
			for _, o := range []Operand{query, key, value, probability, gradOutput} {
				if len(amaxes[o]) != 1 {
					t.Errorf("%s: %s: got %d scales, want 1", tc.recipe, o, len(amaxes[o]))
				}
			}
			if !amaxes[probability][1] {
				t.Errorf("%s: amax of probabilities: want 1", tc.recipe)
			}
		}
		for what, pair := range map[string][2]tensor.Dense{"output": {y, exactY}, "gradient": {dx, exactDx}} {
			if e := relativeError(pair[0].Data, pair[1].Data); !(e > 0 && e < tc.tolerance) {
				t.Errorf("%s: relative error of the %s: got %.4f", tc.recipe, what, e)
			}
		}
	}
}

func relativeError(got, want []float32) float64 {
	e, sum := 0.0, 0.0
	for i, v := range want {
		e += (float64(got[i]) - float64(v)) * (float64(got[i]) - float64(v))
		sum += float64(v) * float64(v)
	}
	return math.Sqrt(e / sum)
}

// TestAttentionDelayed checks that scales come from the step before, those of a recomputation from the
// pass that it repeats, and that SetState restores them.
func TestAttentionDelayed(t *testing.T) {
	a, x, dy := attention(t, 1, 32)
	s := scopeOf(t, "delayed")
	s.Recipe.Attention.DotProduct = true
	first, _ := pass(t, s, a, x, dy, 1) // with scales of 1
	a.EndForward(s)
	a.EndBackward(s)
	state := a.State()
	if len(state) == 0 {
		t.Fatal("State returned nothing")
	}
	scales := map[Operand]float32{}
	s.Observer.Operand = func(o Observation) { scales[o.Operand] = o.Quantized.Scales32[0] }
	second, _ := pass(t, s, a, x, dy, 1)
	if slices.Equal(first.Data, second.Data) {
		t.Error("the second step used the scales of the first")
	}
	if want := 1 / (s.Recipe.Input.Rowwise.Format.Element.Max() / 1); scales[probability] != want {
		t.Errorf("scale of probabilities: got %g, want %g", scales[probability], want)
	}
	for o := query; o <= gradProbability; o++ {
		if scales[o] == 1 || scales[o] == 0 {
			t.Errorf("scale of %s: got %g", o, scales[o])
		}
	}
	a.EndForward(s)
	a.EndBackward(s)

	b, _, _ := attention(t, 1, 32)
	if err := b.SetState(state); err != nil {
		t.Fatal(err)
	}
	s.Observer = Observer{}
	if again, _ := pass(t, s, b, x, dy, 1); !slices.Equal(again.Data, second.Data) {
		t.Error("results differ after SetState")
	}
	if err := b.SetState(state[1:]); err == nil {
		t.Error("SetState of a truncated state: got no error")
	}
}

// TestAttentionMultiHead checks that the output has the values of FP8 codes.
func TestAttentionMultiHead(t *testing.T) {
	a, x, _ := attention(t, 1, 32)
	s := scopeOf(t, "tensorwise")
	s.Inference = true
	s.Recipe.Attention.DotProduct, s.Recipe.Attention.MultiHead = true, true
	y, _, err := a.Forward(s, x, 1)
	if err != nil {
		t.Fatal(err)
	}
	magnitudes := map[float64]bool{}
	for _, v := range y.Data {
		magnitudes[math.Abs(float64(v))] = true
	}
	if n := len(magnitudes); n < 50 || n > 127 {
		t.Errorf("output: got %d magnitudes, want 50 to 127, the number of E4M3", n)
	}
}

// TestStoreQuantized checks that saved activations take fewer bytes when they are quantized, and that
// the gradient is close.
func TestStoreQuantized(t *testing.T) {
	a, x, dy := attention(t, 2, 64)
	s := scopeOf(t, "bf16")
	_, saved, err := a.Forward(s, x.Clone(), 2)
	if err != nil {
		t.Fatal(err)
	}
	plain := saved.Bytes()
	want := dense(t)(a.Backward(s, saved, dy))
	s.Recipe.StoreQuantized = true
	if _, saved, err = a.Forward(s, x.Clone(), 2); err != nil {
		t.Fatal(err)
	}
	if plain != 2*len(x.Data) || saved.Bytes() != len(x.Data)*33/32 {
		t.Errorf("got %d and %d saved bytes of %d elements", plain, saved.Bytes(), len(x.Data))
	}
	if e := relativeError(dense(t)(a.Backward(s, saved, dy)).Data, want.Data); !(e > 0 && e < 0.1) {
		t.Errorf("relative error of the gradient: got %g", e)
	}
}

// TestAttentionShapes checks that wrong shapes are errors.
func TestAttentionShapes(t *testing.T) {
	a, x, dy := attention(t, 1, 32)
	s := scopeOf(t, "bf16")
	for name, f := range map[string]func() error{
		"width":     func() error { _, _, err := a.Forward(s, dy.Clone(), 1); return err },
		"batch":     func() error { _, _, err := a.Forward(s, x.Clone(), 3); return err },
		"positions": func() error { _, _, err := a.Forward(s, tensor.New(33, x.Cols), 1); return err },
		"unsaved":   func() error { _, err := a.Backward(s, nil, dy); return err },
		"gradient": func() error {
			_, saved, _ := a.Forward(s, x.Clone(), 1)
			_, err := a.Backward(s, saved, x)
			return err
		},
	} {
		if f() == nil {
			t.Errorf("%s: got no error", name)
		}
	}
}

// TestSavedCodes checks that FP8 attention with per-tensor scales saves Q, K and V as one byte per
// element, and that its gradient has the bits of operands quantized again from the BF16 sources with
// the scales of the forward pass.
func TestSavedCodes(t *testing.T) {
	slow.Emulated(t, slow.OwnProducts)
	for _, name := range []string{"delayed", "tensorwise"} {
		s := scopeOf(t, name)
		s.Recipe.Attention.DotProduct = true
		codes, x, dy := attention(t, 2, 64)
		sources, _, _ := attention(t, 2, 64)
		for step := range 3 { // delayed scales change
			for i := range x.Data {
				x.Data[i] *= 1.5
			}
			s.Round(x)
			y, saved, err := codes.Forward(s, x.Clone(), 2)
			if err != nil {
				t.Fatal(err)
			}
			want, other, err := sources.Forward(s, x.Clone(), 2)
			if err != nil {
				t.Fatal(err)
			}
			if n := saved.Bytes(); n != len(x.Data)+3*4 {
				t.Fatalf("%s: got %d saved bytes of %d elements", name, n, len(x.Data))
			}
			rotated := x.Clone()
			if err := sources.prepare(s, rotated, 64, 0, 64); err != nil {
				t.Fatal(err)
			}
			other.(*attentionSaved).qkv, other.(*attentionSaved).codes = must(s.save(rotated)), attentionCodes{}
			codes.EndForward(s)
			sources.EndForward(s)
			got := dense(t)(codes.Backward(s, saved, dy))
			wanted := dense(t)(sources.Backward(s, other, dy))
			if !slices.Equal(y.Data, want.Data) || !slices.Equal(got.Data, wanted.Data) {
				t.Errorf("%s, step %d: gradients of saved codes and saved sources differ", name, step)
			}
			codes.EndBackward(s)
			sources.EndBackward(s)
			if _, err := codes.Backward(s, saved, dy); err == nil {
				t.Errorf("%s: second use of saved activations: got no error", name)
			}
		}
	}
}
