package nn

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/microscale-go/microscale/internal/slow"
	"github.com/microscale-go/microscale/recipe"
	"github.com/microscale-go/microscale/tensor"
)

// TestHoldWeight checks that the products of a layer that holds its weight have the bits of one that
// quantizes the master weights in each step, that high-precision products use the held values, and
// that these stay until the next call.
func TestHoldWeight(t *testing.T) {
	slow.Race(t, slow.Repeats)
	slow.Emulated(t, slow.OwnProducts)
	rng := rand.New(rand.NewPCG(5, 6))
	x, dy := matrix(rng, 128, 128, 1), matrix(rng, 128, 64, 1e-3)
	products := func(t *testing.T, l *Linear, s *Scope) (y, dx tensor.Dense) {
		t.Helper()
		y, saved, err := l.Forward(s, x)
		if err != nil {
			t.Fatal(err)
		}
		if dx, err = l.Backward(s, saved, dy); err != nil {
			t.Fatal(err)
		}
		l.EndForward(s)
		l.EndBackward(s)
		return y, dx
	}
	for _, r := range recipe.Recipes() {
		t.Run(r.Name, func(t *testing.T) {
			s := &Scope{Recipe: r}
			plain, held := NewLinear("proj", 128, 64, false), NewLinear("proj", 128, 64, false)
			plain.Weight.InitNormal(0.02, 1)
			held.Weight.InitNormal(0.02, 1)
			err := held.HoldWeight(s)
			if !r.Weight.Rowwise.Format.Scaled() || r.Weight.Rowwise.Hadamard {
				if err == nil {
					t.Fatal("HoldWeight without quantization: got no error")
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			for step := range 3 {
				wantY, wantDX := products(t, plain, s)
				y, dx := products(t, held, s)
				if !slices.Equal(y.Data, wantY.Data) || !slices.Equal(dx.Data, wantDX.Data) {
					t.Fatalf("step %d: products differ", step)
				}
				if !slices.Equal(held.Weight.Value.Data, plain.Weight.Value.Data) {
					t.Fatal("the master weight changed")
				}
				if _, columnwise := held.WeightBytes(); columnwise != 0 {
					t.Fatalf("columnwise copy between passes: got %d bytes, want none", columnwise)
				}
				for i := range plain.Weight.Value.Data { // a step of the optimizer
					plain.Weight.Value.Data[i] += float32(rng.NormFloat64() * 0.01)
				}
				copy(held.Weight.Value.Data, plain.Weight.Value.Data)
				inference := *s // which leaves no trace in delayed scales
				inference.Inference = true
				if !r.Delayed.Enabled() { // whose scales have moved on
					if y, _, err := held.Forward(&inference, x); err != nil || !slices.Equal(y.Data, wantY.Data) {
						t.Fatalf("the held values follow the master weight (%v)", err)
					}
				}
				copy(held.Weight.Value.Data, plain.Weight.Value.Data)
				if err := held.HoldWeight(s); err != nil {
					t.Fatal(err)
				}
			}
			high := *s
			high.Recipe.HighPrecision[recipe.Fprop] = true
			high.Recipe.Delayed = recipe.Delayed{}
			if err := held.HoldWeight(&high); err != nil {
				t.Fatal(err)
			}
			y, _ := products(t, held, &high)
			held.SettleWeight(1)
			values := NewLinear("proj", 128, 64, false)
			copy(values.Weight.Value.Data, held.Weight.Value.Data)
			want, saved, err := values.Forward(&high, x)
			if err != nil || !slices.Equal(y.Data, want.Data) {
				t.Errorf("a high-precision product does not use the held values (%v)", err)
			}
			if slices.Equal(held.Weight.Value.Data, plain.Weight.Value.Data) {
				t.Error("SettleWeight left the master weight")
			}
			if _, err := held.Backward(&high, saved, dy); err == nil || !strings.Contains(err.Error(), "cannot be trained any more") {
				t.Errorf("a backward pass without master weights: %v", err)
			}
			if err := held.HoldWeight(s); err == nil {
				t.Error("HoldWeight after SettleWeight: got no error")
			}
		})
	}
}
