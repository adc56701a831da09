package decoder

import (
	"fmt"
	"slices"
	"testing"

	"github.com/microscale-go/microscale/nn"
)

// A trace is what two steps of training leave.
type trace struct {
	losses []float64
	grads  [][]float32
	state  map[string][]float32
}

func (a trace) same(b trace) error {
	if !slices.Equal(a.losses, b.losses) {
		return fmt.Errorf("losses %v and %v", a.losses, b.losses)
	}
	for i := range a.grads {
		if !slices.Equal(a.grads[i], b.grads[i]) {
			return fmt.Errorf("gradients of parameter %d", i)
		}
	}
	for name, s := range a.state {
		if !slices.Equal(s, b.state[name]) {
			return fmt.Errorf("state of %s", name)
		}
	}
	return nil
}

// train runs two steps of two microbatches.
func train(t testing.TB, c Config, o Options, s nn.Scope) (trace, *Model) {
	t.Helper()
	m, err := New(c, o, 7)
	if err != nil {
		t.Fatal(err)
	}
	tokens, targets := text(4, 32)
	half := len(tokens) / 2
	var tr trace
	for step := range 2 {
		for _, p := range m.Params() {
			p.ZeroGrad()
		}
		s.Random.Step = uint32(step)
		for micro := range 2 {
			s.Random.Microbatch, s.ReuseWeights = micro, micro > 0
			loss, err := m.Train(&s, tokens[micro*half:(micro+1)*half], targets[micro*half:(micro+1)*half], 2, 0.5)
			if err != nil {
				t.Fatal(err)
			}
			tr.losses = append(tr.losses, loss)
		}
		for _, p := range m.Params() {
			tr.grads = append(tr.grads, slices.Clone(p.Grad.Data))
			for i, g := range p.Grad.Data {
				p.Value.Data[i] -= 0.02 * g
			}
		}
	}
	tr.state = m.State()
	return tr, m
}

// TestThreads checks that results do not depend on the number of threads, under every recipe.
func TestThreads(t *testing.T) {
	for _, r := range recipes() {
		t.Run(r.Name, func(t *testing.T) {
			s := scope(t, r.Name)
			s.Threads = 1
			want, _ := train(t, small, Options{}, *s)
			s.Threads = 3
			got, _ := train(t, small, Options{}, *s)
			if err := want.same(got); err != nil {
				t.Errorf("differ on 1 and 3 threads: %v", err)
			}
		})
	}
}

// TestRecompute checks that recomputed layers have the same bits and save less.
func TestRecompute(t *testing.T) {
	names := []string{"delayed", "nvfp4", "f32", "bf16", "mxfp8"}
	if testing.Short() {
		names = names[:2]
	}
	for _, name := range names {
		t.Run(name, func(t *testing.T) {
			s := scope(t, name)
			if name != "f32" {
				s.Recipe.Attention.DotProduct = name == "delayed" || name == "mxfp8"
			}
			want, plain := train(t, small, Options{}, *s)
			got, again := train(t, small, Options{Recompute: true}, *s)
			if err := want.same(got); err != nil {
				t.Errorf("differ with recomputation: %v", err)
			}
			if again.Memory().Activations() >= plain.Memory().Activations() {
				t.Errorf("%d bytes are kept with recomputation, %d without", again.Memory().Activations(), plain.Memory().Activations())
			}
			if name == "delayed" && len(want.state) != 2*5 {
				t.Errorf("%d modules have a state", len(want.state))
			}
		})
	}
}

// TestTrainArena checks that a pass in the memory of earlier passes has the bits of one in new memory.
func TestTrainArena(t *testing.T) {
	for _, name := range []string{"bf16", "nvfp4"} {
		for _, recompute := range []bool{false, true} {
			for _, lengths := range [][]int{nil, {64, 30}} {
				pass := func(m *Model, salt int) (loss float64, gradients map[string][]float32) {
					s := scope(t, name)
					s.Pad, s.Threads, s.Lengths = true, 1, lengths
					gradients = map[string][]float32{}
					for _, p := range m.Params() {
						p.ZeroGrad()
						gradients[p.Name] = p.Grad.Data
					}
					tokens, targets := sequence(128, salt)
					targets = slices.Clone(targets)
					for i, n := range lengths {
						for j := n; j < 64; j++ {
							targets[i*64+j] = -1
						}
					}
					loss, err := m.Train(s, tokens, targets, 2, 1)
					if err != nil {
						t.Fatal(err)
					}
					return loss, gradients
				}
				used, fresh := paddedModel(t, false, Options{Recompute: recompute}), paddedModel(t, false, Options{Recompute: recompute})
				for range 3 { // until the memory of the first pass is reused
					pass(used, 5)
				}
				fresh.arena = nil
				got, gradients := pass(used, 3)
				want, first := pass(fresh, 3)
				sameGradients(t, fmt.Sprintf("%s, recompute %v, lengths %v", name, recompute, lengths), got, want, gradients, first)
			}
		}
	}
}

// TestStoredShare checks that activations in MXFP8 take 33/64 of BF16, apart from the inverse root mean
// squares of norms and activations outside of the layers.
func TestStoredShare(t *testing.T) {
	_, plain := train(t, small, Options{}, *scope(t, "bf16"))
	s := *scope(t, "mxfp8")
	_, operands := train(t, small, Options{}, s)
	s.Recipe.StoreQuantized = true
	_, stored := train(t, small, Options{}, s)
	a, b, c := plain.Memory(), operands.Memory(), stored.Memory()
	outside := a.Linear - (a.Linear-b.Linear)*64/31 // the input of the head
	if b.Norms != a.Norms || b.SwiGLU != a.SwiGLU || b.Attention != a.Attention || c.Linear != b.Linear || outside <= 0 ||
		outside > a.Linear/8 {
		t.Errorf("bf16 saves %+v, mxfp8 %+v, and with stored activations %+v", a, b, c)
	}
	if 64*c.SwiGLU != 33*a.SwiGLU || 64*c.Attention != 33*a.Attention || 100*c.Norms > 65*a.Norms {
		t.Errorf("of %+v in BF16, %+v is stored", a, c)
	}
}

// TestStoreQuantized checks that quantized activations take less memory, and that the gradient is close.
func TestStoreQuantized(t *testing.T) {
	want, plain := train(t, small, Options{}, *scope(t, "bf16"))
	quantized := *scope(t, "bf16")
	quantized.Recipe.StoreQuantized = true
	got, stored := train(t, small, Options{}, quantized)
	if stored.Memory().Activations() >= plain.Memory().Activations() {
		t.Errorf("%d bytes are kept quantized, %d otherwise", stored.Memory().Activations(), plain.Memory().Activations())
	}
	if want.losses[0] != got.losses[0] {
		t.Errorf("first loss: got %g, want %g", got.losses[0], want.losses[0])
	}
	if err := want.same(got); err == nil {
		t.Error("nothing differs")
	}
	for i, loss := range want.losses {
		if d := got.losses[i] - loss; d > 0.02 || d < -0.02 {
			t.Errorf("loss %d: got %g, want about %g", i, got.losses[i], loss)
		}
	}
}

// TestExempt checks that the recipe quantizes all products except those of exempt layers, the head and
// attention.
func TestExempt(t *testing.T) {
	c := small
	c.NumHiddenLayers = 4
	for _, o := range []Options{{}, {FirstBF16: 1, LastBF16: 1}, {LastBF16: 2}} {
		s := scope(t, "mxfp8")
		low := map[string]int{}
		s.Observer.Product = func(p nn.Product) {
			if a, b := p.A.Format.Scaled(), p.B.Format.Scaled(); a != b {
				t.Errorf("%s: operands %s and %s", p.Module, p.A.Format, p.B.Format)
			} else if a {
				low[p.Module]++
			}
		}
		train(t, c, o, *s)
		want := map[string]int{}
		for l := o.FirstBF16; l < 4-o.LastBF16; l++ {
			for _, name := range []string{"self_attn.qkv_proj", "self_attn.o_proj", "mlp.gate_up_proj", "mlp.down_proj"} {
				want[fmt.Sprintf("model.layers.%d.%s", l, name)] = 4 * 3 // four microbatches, three products
			}
		}
		if fmt.Sprint(low) != fmt.Sprint(want) {
			t.Errorf("%+v: quantized products %v, want %v", o, low, want)
		}
	}
	for _, o := range []Options{{FirstBF16: 3, LastBF16: 2}, {FirstBF16: -1}} {
		if _, err := New(c, o, 1); err == nil {
			t.Errorf("%+v: got no error", o)
		}
	}
}

// TestSeed checks that weights depend only on the seed and the name, and their standard deviations.
func TestSeed(t *testing.T) {
	a, err := New(small, Options{}, 1)
	if err != nil {
		t.Fatal(err)
	}
	deeper := small
	deeper.NumHiddenLayers++
	b, err := New(deeper, Options{Recompute: true}, 1)
	if err != nil {
		t.Fatal(err)
	}
	other, err := New(small, Options{}, 2)
	if err != nil {
		t.Fatal(err)
	}
	byName := map[string][]float32{}
	for _, p := range b.Params() {
		byName[p.Name] = p.Value.Data
	}
	n := 0
	for i, p := range a.Params() {
		n += len(p.Value.Data)
		if p.Value.Rows == 1 {
			continue
		}
		residual := p.Value.Rows == small.HiddenSize && (p.Value.Cols == 256 || p.Name[len(p.Name)-13:] == "o_proj.weight")
		if !residual && !slices.Equal(p.Value.Data, byName[p.Name]) {
			t.Errorf("%s depends on the number of layers", p.Name)
		}
		if slices.Equal(p.Value.Data, other.Params()[i].Value.Data) {
			t.Errorf("%s does not depend on the seed", p.Name)
		}
		square := 0.0
		for _, v := range p.Value.Data {
			square += float64(v) * float64(v)
		}
		want := 0.02 * 0.02
		if residual {
			want /= 2 * float64(small.NumHiddenLayers)
		}
		if ratio := square / float64(len(p.Value.Data)) / want; ratio < 0.95 || ratio > 1.05 {
			t.Errorf("%s has %.3f times the variance it should have", p.Name, ratio)
		}
	}
	if n != a.Config.Parameters() {
		t.Errorf("%d weights, Parameters says %d", n, a.Config.Parameters())
	}
}
