package decoder

import (
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/microscale-go/microscale/nn"
	"github.com/microscale-go/microscale/quant"
)

// student returns a model with weights as large as those of a trained one, and a student of it in NVFP4.
func student(t *testing.T, tied bool) (*Model, *Student) {
	t.Helper()
	embedding := float32(20)
	if tied { // logits are products with it
		embedding = 4
	}
	m := enlarged(t, tied, embedding)
	q, err := m.Quantize(quant.Quantizer{Format: quant.NVFP4}, false, 1)
	if err != nil {
		t.Fatal(err)
	}
	s, err := q.Student()
	if err != nil {
		t.Fatal(err)
	}
	return m, s
}

// TestStudent compares gradients with differences of the divergence: of global scales, whose gradients are the sums of those of the
// block scales, and of norms along the gradient.
func TestStudent(t *testing.T) {
	for _, tied := range []bool{false, true} {
		m, s := student(t, tied)
		scope := *scope(t, "f32")
		tokens, _ := text(1, 40)
		at := func() float64 {
			inference := scope
			inference.Inference = true
			kl, err := s.Divergence(inference, m, tokens)
			if err != nil {
				t.Fatal(err)
			}
			sum := 0.0
			for _, v := range kl {
				sum += v
			}
			return sum / float64(len(kl))
		}
		kl, err := s.Divergence(scope, m, tokens)
		if err != nil {
			t.Fatal(err)
		}
		if len(kl) != len(tokens) || slices.Min(kl) < -1e-6 || slices.Max(kl) < 1e-3 {
			t.Errorf("tied %v: divergences of %d tokens, from %g to %g", tied, len(kl), slices.Min(kl), slices.Max(kl))
		}
		slope := func(set func(step float64)) float64 {
			const h = 0.01
			set(h)
			up := at()
			set(-h)
			down := at()
			set(0)
			return (up - down) / (2 * h)
		}
		layers := s.Layers()
		if len(layers) != 4*small.NumHiddenLayers {
			t.Fatalf("got %d layers", len(layers))
		}
		for _, l := range layers {
			sum, w, global := 0.0, l.Weight, l.Weight.Global
			for _, g := range l.Grad.Data {
				sum += float64(g)
			}
			got := slope(func(step float64) { w.Global = float32(float64(global) * math.Exp(step)) })
			if math.Abs(got-sum) > 0.02*math.Abs(sum)+2e-4 {
				t.Errorf("tied %v: %s: the slope is %g, the gradient %g", tied, l.Name, got, sum)
			}
		}
		for _, p := range s.Norms() {
			checkNorm(t, p, slope)
		}
	}
}

// checkNorm compares the gradient of a norm with the slope along it.
func checkNorm(t *testing.T, p *nn.Param, slope func(set func(step float64)) float64) {
	t.Helper()
	norm, start := 0.0, slices.Clone(p.Value.Data)
	for _, g := range p.Grad.Data {
		norm += float64(g) * float64(g)
	}
	norm = math.Sqrt(norm)
	got := slope(func(step float64) {
		for i, v := range start {
			p.Value.Data[i] = v + float32(step*float64(p.Grad.Data[i])/norm)
		}
	})
	if math.Abs(got-norm) > 0.02*norm+2e-4 {
		t.Errorf("%s: the slope along the gradient is %g, its norm %g", p.Name, got, norm)
	}
}

// TestStudentErrors: models whose scales are not trained.
func TestStudentErrors(t *testing.T) {
	config := small
	m, err := New(config, Options{}, 1)
	if err != nil {
		t.Fatal(err)
	}
	q, err := m.Quantize(quant.Quantizer{Format: quant.FP8Block}, false, 1)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := q.Student(); err == nil || !strings.Contains(err.Error(), "cannot be trained") {
		t.Errorf("square blocks: got %v", err)
	}
	m.plan.Softcap = 30
	if _, err := m.Student(); err == nil || !strings.Contains(err.Error(), "no backward pass") {
		t.Errorf("a softcap: got %v", err)
	}
}
