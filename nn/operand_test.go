package nn

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/microscale-go/microscale/format"
	"github.com/microscale-go/microscale/internal/slow"
	"github.com/microscale-go/microscale/recipe"
	"github.com/microscale-go/microscale/tensor"
)

// TestShapeErrors checks the errors for shapes that a recipe does not support, and that padding allows
// any number of tokens.
func TestShapeErrors(t *testing.T) {
	for _, c := range []struct {
		recipe          string
		tokens, in, out int
		want            string
		paddingHelps    bool
		forwardSucceeds bool
	}{
		{"mxfp8", 33, 64, 64, "recipe mxfp8: input: got 33×64, want a multiple of 32×32; pad the tokens to a multiple of 32", true, false},
		{"mxfp8", 32, 48, 64, "input: got 32×48, want a multiple of 32×32", false, false},
		{"mxfp8", 32, 64, 48, "weight: got 48×64, want a multiple of 32×32", false, false},
		{"nvfp4", 24, 64, 64, "input: got 24×64, want a multiple of 16×16; pad the tokens to a multiple of 128", true, false},
		{"tensorwise", 12, 64, 64, "input: got 12×64, want a multiple of 8×16; pad the tokens to a multiple of 16", true, false},
		{"tensorwise", 8, 64, 24, "grad: got 8×24, want a multiple of 8×16", false, true},
		{"bf16", 7, 5, 3, "", true, true},
	} {
		r, err := recipe.Lookup(c.recipe)
		if err != nil {
			t.Fatal(err)
		}
		rng := rand.New(rand.NewPCG(1, 2))
		l := NewLinear("proj", c.in, c.out, true)
		l.Weight.InitNormal(0.1, 1)
		x, dy := matrix(rng, c.tokens, c.in, 1), matrix(rng, c.tokens, c.out, 1)
		try := func(s *Scope) (tensor.Dense, tensor.Dense, error) {
			y, saved, err := l.Forward(s, x)
			if (err == nil) != c.forwardSucceeds && !s.Pad {
				t.Errorf("%s: forward of %d×%d: %v", c.recipe, c.tokens, c.in, err)
			}
			if err != nil {
				return y, y, err
			}
			dx, err := l.Backward(s, saved, dy)
			return y, dx, err
		}
		_, _, err = try(&Scope{Recipe: r})
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s, %d×%d to %d: error %v, want one with %q", c.recipe, c.tokens, c.in, c.out, err, c.want)
		}
		y, dx, err := try(&Scope{Recipe: r, Pad: true})
		if (err == nil) != c.paddingHelps {
			t.Errorf("%s, %d×%d to %d: padded: %v", c.recipe, c.tokens, c.in, c.out, err)
		}
		if err == nil && (y.Rows != c.tokens || dx.Rows != c.tokens) {
			t.Errorf("%s: padding left %d and %d tokens of %d", c.recipe, y.Rows, dx.Rows, c.tokens)
		}
	}

	l := NewLinear("proj", 64, 64, false)
	s := &Scope{Recipe: recipe.Recipes()[0]}
	if _, _, err := l.Forward(s, tensor.New(32, 63)); err == nil || !strings.Contains(err.Error(),
		"proj: forward: input: got 63 columns, want 64") {
		t.Errorf("wrong width of the input: got %v", err)
	}
	_, saved, err := l.Forward(s, tensor.New(32, 64))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := l.Backward(s, saved, tensor.New(31, 64)); err == nil || !strings.Contains(err.Error(), "gradient: got 31×64, want 32×64") {
		t.Errorf("wrong shape of the gradient: got %v", err)
	}
	if _, err := l.Backward(s, nil, tensor.New(32, 64)); err == nil {
		t.Error("backward pass without saved activations: got no error")
	}
}

// TestPadding checks that padding changes neither results nor gradients, for formats whose scales do
// not depend on other rows.
func TestPadding(t *testing.T) {
	for _, r := range recipe.Recipes() {
		if r.Grad.Rowwise.Rounding == format.Stochastic {
			continue // the index of an element does not change, but its block's companions may
		}
		whole := runStep(t, Scope{Recipe: r}, 64, 64, 64)
		l := NewLinear(layerName, 64, 64, true)
		copy(l.Weight.Value.Data, whole.w.Data)
		copy(l.Bias.Value.Data, whole.b.Data)
		s := &Scope{Recipe: r, Pad: true}
		const tokens = 40
		x, dy := whole.x.Clone(), whole.dy.Clone()
		clear(x.Data[tokens*64:])
		clear(dy.Data[tokens*64:])
		want, saved, err := l.Forward(s, x)
		if err != nil {
			t.Fatal(err)
		}
		wantDX, err := l.Backward(s, saved, dy)
		if err != nil {
			t.Fatal(err)
		}
		wantDW := l.Weight.Grad.Clone()
		l.Weight.ZeroGrad()
		got, saved, err := l.Forward(s, x.View(0, tokens, 0, 64))
		if err != nil {
			t.Fatal(err)
		}
		gotDX, err := l.Backward(s, saved, dy.View(0, tokens, 0, 64))
		if err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(got.Clone().Data, want.Data[:tokens*64]) || !slices.Equal(gotDX.Clone().Data, wantDX.Data[:tokens*64]) {
			t.Errorf("%s: results with padding differ", r.Name)
		}
		if !slices.Equal(l.Weight.Grad.Data, wantDW.Data) && r.Alignment() > 1 {
			t.Errorf("%s: gradients with padding differ", r.Name)
		}
	}
}

// TestReuseWeights checks when a forward pass quantizes the weight.
func TestReuseWeights(t *testing.T) {
	r, _ := recipe.Lookup("mxfp8")
	other, _ := recipe.Lookup("mxfp4")
	l := NewLinear("proj", 64, 64, false)
	l.Weight.InitNormal(1, 1)
	count := 0
	s := Scope{Recipe: r}
	s.Observer.Operand = func(o Observation) {
		if o.Operand == Weight {
			count++
		}
	}
	x := matrix(rand.New(rand.NewPCG(1, 2)), 32, 64, 1)
	for _, c := range []struct {
		what   string
		change func(s *Scope)
		want   int // copies made
	}{
		{"the first microbatch", func(*Scope) {}, 2},
		{"its recomputation", func(s *Scope) { s.Recompute = true }, 0},
		{"the second", func(s *Scope) { s.ReuseWeights = true }, 0},
		{"another recipe", func(s *Scope) { s.ReuseWeights, s.Recipe = true, other }, 2},
		{"the first one's again", func(s *Scope) { s.ReuseWeights = true }, 2},
		{"inference between steps", func(s *Scope) { s.ReuseWeights, s.Inference = true, true }, 0},
		{"the next step", func(s *Scope) { s.Random.Step = 1 }, 2},
		{"inference at 0", func(s *Scope) { s.Inference = true }, 1},
		{"a second one", func(s *Scope) { s.ReuseWeights = true }, 2},
	} {
		scope := s
		c.change(&scope)
		count = 0
		if _, _, err := l.Forward(&scope, x); err != nil {
			t.Fatal(err)
		}
		if count != c.want {
			t.Errorf("%s: got %d new copies of the weight, want %d", c.what, count, c.want)
		}
	}
}

// TestSaved checks that only the columnwise copy of X is saved, or with SaveOriginalInput the original
// in BF16, with the same gradients.
func TestSaved(t *testing.T) {
	slow.Emulated(t, slow.OwnProducts)
	const tokens, in, out = 128, 256, 64
	n := tokens * in
	for name, want := range map[string]int{
		"f32": 4 * n, "bf16": 2 * n, "tensorwise": n + 4, "delayed": n + 4, "blockwise": n + 4*in, "mxfp8": n + n/32,
		"mxfp6": n*6/8 + n/32, "mxfp4": n/2 + n/32, "nvfp4": n/2 + n/16,
	} {
		r, _ := recipe.Lookup(name)
		plain := runStep(t, Scope{Recipe: r}, tokens, in, out)
		if plain.savedBytes != want {
			t.Errorf("%s: got %d saved bytes, want %d", name, plain.savedBytes, want)
		}
		if r.Delayed.Enabled() {
			continue
		}
		original := runStep(t, Scope{Recipe: r}, tokens, in, out, func(l *Linear) { l.SaveOriginalInput = true })
		size := 2 * n
		if name == "f32" {
			size = 4 * n
		}
		if original.savedBytes != size {
			t.Errorf("%s: got %d saved bytes of the original, want %d", name, original.savedBytes, size)
		}
		if !slices.Equal(original.dw.Data, plain.dw.Data) || !slices.Equal(original.dx.Data, plain.dx.Data) {
			t.Errorf("%s: gradients with SaveOriginalInput differ", name)
		}
	}
	r, _ := recipe.Lookup("delayed")
	l := NewLinear("proj", 64, 64, false)
	l.SaveOriginalInput = true
	if _, _, err := l.Forward(&Scope{Recipe: r}, tensor.New(32, 64)); err == nil || !strings.Contains(err.Error(), "SaveOriginalInput") {
		t.Errorf("delayed scaling with SaveOriginalInput: got %v", err)
	}
}

// TestOperandText marshals every operand, and checks that an invalid one does not panic.
func TestOperandText(t *testing.T) {
	for o := Operand(0); int(o) < operands; o++ {
		text, err := o.MarshalText()
		var back Operand
		if e := back.UnmarshalText(text); err != nil || e != nil || back != o || string(text) != o.String() {
			t.Errorf("%s: got %q, %s, %v, %v", o, text, back, err, e)
		}
	}
	bad := Operand(operands)
	if _, err := bad.MarshalText(); err == nil || bad.String() != "Operand(9)" {
		t.Errorf("invalid operand: got %s, %v", bad, err)
	}
	if err := bad.UnmarshalText([]byte("bias")); err == nil {
		t.Error("UnmarshalText(bias): got no error")
	}
}

// TestWeightStream checks that the random bits of a weight do not depend on the microbatch in
// which it is quantized, while those of gradients do.
func TestWeightStream(t *testing.T) {
	first, second := Random{Seed: 1}, Random{Seed: 1, Microbatch: 1}
	for o := Input; o <= Grad; o++ {
		same := *first.stream("proj", o, 0) == *second.stream("proj", o, 0)
		if same != (o == Weight) {
			t.Errorf("%s: the streams of two microbatches are equal: %t", o, same)
		}
	}
}

// TestSavedOfAnotherModule checks that a backward pass rejects the activations of another module.
func TestSavedOfAnotherModule(t *testing.T) {
	s := scopeOf(t, "bf16")
	x := matrix(rand.New(rand.NewPCG(1, 1)), 32, 64, 1)
	_, saved, err := NewRMSNorm("norm", 64, 1e-5).Forward(s, x)
	if err != nil {
		t.Fatal(err)
	}
	l := NewLinear("l", 64, 64, false)
	if _, err := l.Backward(s, saved, x); err == nil || !strings.Contains(err.Error(), "no saved activations") {
		t.Errorf("got %v", err)
	}
}
