package decoder

import (
	"slices"
	"testing"

	"github.com/microscale-go/microscale/nn"
	"github.com/microscale-go/microscale/recipe"
)

// small is a model of two layers with groups of two heads.
var small = Config{HiddenSize: 128, IntermediateSize: 256, NumHiddenLayers: 2, NumAttentionHeads: 4, NumKeyValueHeads: 2}

// text returns tokens of batch sequences and their targets.
func text(batch, length int) (tokens, targets []int32) {
	const phrase = "the quick brown fox jumps over the lazy dog, and "
	for b := range batch {
		for i := range length {
			tokens = append(tokens, int32(phrase[(b*7+i)%len(phrase)]))
			targets = append(targets, int32(phrase[(b*7+i+1)%len(phrase)]))
		}
	}
	return tokens, targets
}

func scope(t testing.TB, name string) *nn.Scope {
	t.Helper()
	r, err := recipe.Lookup(name)
	if err != nil {
		t.Fatal(err)
	}
	return &nn.Scope{Recipe: r, Random: nn.Random{Seed: 1}}
}

// recipes returns all recipes, or under -short (for emulated processors) one with state and one with
// every kind of quantization.
func recipes() []recipe.Recipe {
	return slices.DeleteFunc(recipe.Recipes(), func(r recipe.Recipe) bool {
		return testing.Short() && r.Name != "delayed" && r.Name != "nvfp4"
	})
}

// TestLearns checks that gradient descent lowers the loss under every recipe.
func TestLearns(t *testing.T) {
	for _, r := range recipes() {
		t.Run(r.Name, func(t *testing.T) {
			m, err := New(small, Options{}, 1)
			if err != nil {
				t.Fatal(err)
			}
			s := scope(t, r.Name)
			tokens, targets := text(2, 32)
			var first, last float64
			for step := range 5 {
				s.Random.Step = uint32(step)
				for _, p := range m.Params() {
					p.ZeroGrad()
				}
				loss, err := m.Train(s, tokens, targets, 2, 1)
				if err != nil {
					t.Fatal(err)
				}
				if step == 0 {
					first = loss
				}
				last = loss
				for _, p := range m.Params() {
					for i, g := range p.Grad.Data {
						p.Value.Data[i] -= 0.05 * g
					}
				}
			}
			t.Logf("%.3f → %.3f nats, %d bytes of weights, %d of activations", first, last, m.WeightBytes(), m.Memory().Activations())
			if first < 5.4 || first > 5.7 || last > first-0.5 {
				t.Errorf("the loss went from %g to %g", first, last)
			}
		})
	}
}

// TestErrors checks the errors for invalid arguments.
func TestErrors(t *testing.T) {
	m, err := New(small, Options{}, 1)
	if err != nil {
		t.Fatal(err)
	}
	tokens, targets := text(2, 32)
	inference := scope(t, "bf16")
	inference.Inference = true
	for name, f := range map[string]func() error{
		"inference": func() error { _, err := m.Train(inference, tokens, targets, 2, 1); return err },
		"recipe":    func() error { _, err := m.Train(&Scope{}, tokens, targets, 2, 1); return err },
		"batch":     func() error { _, err := m.Train(scope(t, "bf16"), tokens, targets, 3, 1); return err },
		"empty":     func() error { _, err := m.Loss(scope(t, "bf16"), nil, nil, 1); return err },
		"targets":   func() error { _, err := m.Loss(scope(t, "bf16"), tokens, targets[1:], 2); return err },
		"token":     func() error { _, err := m.Infer(scope(t, "bf16"), []int32{256}, 1); return err },
		"divisible": func() error { _, err := m.Loss(scope(t, "mxfp8"), tokens[:33], targets[:33], 1); return err },
		"state":     func() error { return m.SetState(map[string][]float32{"model.layers.9": {1, 0}}) },
		"positions": func() error {
			long := make([]int32, m.Config.MaxPositionEmbeddings+1)
			_, err := m.Infer(scope(t, "bf16"), long, 1)
			return err
		},
	} {
		if err := f(); err == nil {
			t.Errorf("%s: got no error", name)
		}
	}
	padded := scope(t, "mxfp8")
	padded.Pad = true
	if _, err := m.Loss(padded, tokens[:33], targets[:33], 1); err != nil {
		t.Errorf("padded: %v", err)
	}
}
