package decoder

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/microscale-go/microscale/nn"
	"github.com/microscale-go/microscale/recipe"
)

// paddedModel returns a small model, with biases if bias is set.
func paddedModel(t *testing.T, bias bool, o Options) *Model {
	t.Helper()
	c := Config{VocabSize: 64, HiddenSize: 64, IntermediateSize: 128, NumHiddenLayers: 2, NumAttentionHeads: 4, NumKeyValueHeads: 2,
		MaxPositionEmbeddings: 160}.WithDefaults()
	plan, err := planOf(c)
	if err != nil {
		t.Fatal(err)
	}
	for i := range plan.Layers {
		l := &plan.Layers[i]
		l.Attention.Bias, l.Attention.OutputBias, l.MLP.Bias = bias, bias, bias
	}
	m, err := newModel(c, plan, o, plan.newEmbedding())
	if err != nil {
		t.Fatal(err)
	}
	m.train(m.projections()...)
	for _, p := range m.Params() {
		if !strings.HasSuffix(p.Name, "norm.weight") {
			p.InitNormal(0.1, 1)
		}
	}
	return m
}

// gradientsOf runs a pass of a new model and returns its loss and gradients.
func gradientsOf(t *testing.T, bias bool, o Options, s nn.Scope, tokens, targets []int32, batch int) (loss float64,
	gradients map[string][]float32) {
	t.Helper()
	m := paddedModel(t, bias, o)
	s.Pad, s.Threads, s.Random = true, 1, nn.Random{Seed: 1}
	var err error
	if loss, err = m.Train(&s, tokens, targets, batch, 1); err != nil {
		t.Fatalf("%s, lengths %v: %v", s.Recipe.Name, s.Lengths, err)
	}
	gradients = map[string][]float32{}
	for _, p := range m.Params() {
		gradients[p.Name] = p.Grad.Data
	}
	return loss, gradients
}

// sameGradients compares losses and gradients bit by bit.
func sameGradients(t *testing.T, what string, gotLoss, wantLoss float64, got, want map[string][]float32) {
	t.Helper()
	if gotLoss != wantLoss || math.IsNaN(gotLoss) {
		t.Errorf("%s: loss %v, want %v", what, gotLoss, wantLoss)
	}
	for name, w := range want {
		for i, v := range got[name] {
			if math.Float32bits(v) != math.Float32bits(w[i]) {
				t.Errorf("%s: gradient of %s: element %d is %g, want %g", what, name, i, v, w[i])
				break
			}
		}
	}
}

// sequence returns tokens and targets of a text of n tokens.
func sequence(n, salt int) (tokens, targets []int32) {
	for i := range n + 1 {
		tokens = append(tokens, int32((i*i*7+i*salt+salt)%64))
	}
	return tokens[:n], tokens[1:]
}

// pad extends a sequence to the given length. Tokens of padding are junk.
func pad(tokens, targets []int32, length int, junk int32) (padded, paddedTargets []int32) {
	n := length - len(tokens)
	return append(slices.Clone(tokens), slices.Repeat([]int32{junk}, n)...), append(slices.Clone(targets), slices.Repeat([]int32{-1}, n)...)
}

// TestPaddingAlone checks that a padded sequence has the loss and the gradients of the sequence alone, bit
// by bit, under every recipe, with biases and recomputed activations, too.
func TestPaddingAlone(t *testing.T) {
	for _, r := range recipe.Recipes() {
		for _, n := range []int{1, 17, 32, 129} {
			if testing.Short() && n == 32 || r.Name == "f32" && n == 1 { // a product of one row in FP32 has a separate kernel
				continue
			}
			tokens, targets := sequence(n, 3)
			bias, o := n != 17, Options{Recompute: n == 129}
			s := nn.Scope{Recipe: r}
			wantLoss, want := gradientsOf(t, bias, o, s, tokens, targets, 1)
			s.Lengths = []int{n}
			padded, paddedTargets := pad(tokens, targets, 160, -1)
			loss, got := gradientsOf(t, bias, o, s, padded, paddedTargets, 1)
			sameGradients(t, fmt.Sprintf("%s, %d tokens", r.Name, n), loss, wantLoss, got, want)
		}
	}
}

// TestPaddingContent checks that the tokens of padding have no effect in a batch of several sequences,
// one of them empty, and that the loss is the mean over the tokens of all.
func TestPaddingContent(t *testing.T) {
	for _, r := range recipe.Recipes() {
		s := nn.Scope{Recipe: r, Lengths: []int{40, 7, 0, 64}}
		var first, second, targets []int32
		var sum, count float64
		for i, n := range s.Lengths {
			tokens, wanted := sequence(n, i)
			one, padded := pad(tokens, wanted, 64, -1)
			other, _ := pad(tokens, wanted, 64, int32(5+i))
			first, second, targets = append(first, one...), append(second, other...), append(targets, padded...)
			if n > 0 && r.Name == "f32" {
				alone, _ := gradientsOf(t, true, Options{}, nn.Scope{Recipe: r, Lengths: []int{n}}, one, padded, 1)
				sum, count = sum+alone*float64(n), count+float64(n)
			}
		}
		wantLoss, want := gradientsOf(t, true, Options{}, s, first, targets, 4)
		loss, got := gradientsOf(t, true, Options{}, s, second, targets, 4)
		sameGradients(t, r.Name, loss, wantLoss, got, want)
		if r.Name == "f32" && math.Abs(loss-sum/count) > 1e-12 {
			t.Errorf("loss %v, want %v, the mean over the tokens", loss, sum/count)
		}
	}
}

// TestPaddingErrors checks lengths and targets that do not fit, and models without support.
func TestPaddingErrors(t *testing.T) {
	m := paddedModel(t, false, Options{})
	r, err := recipe.Lookup("bf16")
	if err != nil {
		t.Fatal(err)
	}
	tokens, targets := sequence(8, 1)
	for want, s := range map[string]nn.Scope{
		"model: padding: got lengths of 1 sequences, want 2":              {Lengths: []int{4}},
		"model: padding: the length of sequence 1 is 5, want 0 to 4":      {Lengths: []int{4, 5}},
		"model: padding: the length of sequence 0 is -1, want 0 to 4":     {Lengths: []int{-1, 4}},
		"model: train: target 3 of sequence 1 is 9 in padding, want a ne": {Lengths: []int{4, 3}},
	} {
		s.Recipe = r
		if _, err := m.Train(&s, tokens, targets, 2, 1); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want %q", err, want)
		}
	}
	m.plan.Softcap = 1
	m.Inference.Lengths = []int{4, 3}
	if _, err := m.Logits(context.Background(), tokens, 2); err == nil || !strings.Contains(err.Error(), "padding: a factor or softcap") {
		t.Errorf("error %v", err)
	}
}
