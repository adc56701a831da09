package decoder

import (
	"math"
	"strings"
	"testing"

	"github.com/microscale-go/microscale/internal/slow"
	"github.com/microscale-go/microscale/tensor"
)

// enlarged returns a model with weights as large as those of a trained one, so that attention attends; those of the embedding are
// larger by a factor of their own.
func enlarged(t *testing.T, tied bool, embedding float32) *Model {
	t.Helper()
	config := small
	config.TieWordEmbeddings = tied
	m, err := New(config, Options{}, 1)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range m.Params() {
		factor := float32(3)
		switch {
		case strings.Contains(p.Name, "embed"):
			factor = embedding
		case strings.Contains(p.Name, "norm"):
			factor = 1
		}
		for i := range p.Value.Data {
			p.Value.Data[i] *= factor
		}
	}
	return m
}

// TestGradients compares the gradient of every parameter under f32 with the change of the loss along
// it.
func TestGradients(t *testing.T) {
	slow.Race(t, slow.Repeats)
	for _, tied := range []bool{false, true} {
		m := enlarged(t, tied, 20)
		s := scope(t, "f32")
		tokens, targets := text(2, 48)
		targets[5] = -1
		if _, err := m.Train(s, tokens, targets, 2, 1); err != nil {
			t.Fatal(err)
		}
		for _, p := range m.Params() {
			grad := p.Grad.Clone().Data
			norm := 0.0
			for _, g := range grad {
				norm += float64(g) * float64(g)
			}
			if norm = math.Sqrt(norm); norm < 1e-6 {
				t.Errorf("%s: the gradient is %g", p.Name, norm)
				continue
			}
			original := tensor.Of(p.Value.Rows, p.Value.Cols, append([]float32(nil), p.Value.Data...))
			at := func(step float64) float64 {
				for i, v := range original.Data {
					p.Value.Data[i] = v + float32(step*float64(grad[i])/norm)
				}
				loss, err := m.Loss(s, tokens, targets, 2)
				if err != nil {
					t.Fatal(err)
				}
				return loss
			}
			// Central differences of two steps, extrapolated.
			h := 0.02
			d1, d2 := (at(h)-at(-h))/(2*h), (at(2*h)-at(-2*h))/(4*h)
			slope := (4*d1 - d2) / 3
			copy(p.Value.Data, original.Data)
			if math.Abs(slope-norm) > 2e-4*norm+2e-5 {
				t.Errorf("%s: the slope along the gradient is %g, its norm %g", p.Name, slope, norm)
			}
		}
	}
}
