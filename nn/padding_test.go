package nn

import (
	"math"
	"slices"
	"testing"

	"github.com/microscale-go/microscale/internal/slow"
	"github.com/microscale-go/microscale/recipe"
)

// TestAttentionPadding puts NaN and large values into the padding of Q, K and V: outputs and gradients are those of
// zeros there, with quantized operands, too, and zero in the padding.
func TestAttentionPadding(t *testing.T) {
	slow.Emulated(t, slow.OwnProducts)
	const length = 40
	for _, r := range recipe.Recipes() {
		for _, quantized := range []bool{false, true} {
			a, x, dy := attention(t, 3, length)
			s := scopeOf(t, r.Name)
			s.Recipe.Attention.DotProduct = quantized && r.Input.Rowwise.Format.Name != ""
			s.Lengths = []int{length, 5, 0}
			s.ClearPadding(x)
			s.ClearPadding(dy)
			wantY, wantDX := pass(t, s, a, x, dy, 3)
			for i := range x.Rows {
				if s.padding(i, x.Rows) {
					x.Row(i)[i%x.Cols], x.Row(i)[(i+1)%x.Cols] = float32(math.NaN()), 1e6
				}
			}
			y, dx := pass(t, s, a, x, dy, 3)
			if !slices.Equal(y.Data, wantY.Data) || !slices.Equal(dx.Data, wantDX.Data) {
				t.Errorf("%s, quantized %t: padding changes results", r.Name, quantized)
			}
			s.ClearPadding(wantY)
			s.ClearPadding(wantDX)
			if !slices.Equal(y.Data, wantY.Data) || !slices.Equal(dx.Data, wantDX.Data) {
				t.Errorf("%s, quantized %t: results in padding are not zero", r.Name, quantized)
			}
		}
	}
}

// TestEmbeddingPadding checks that padding has rows of zeros in memory that is used again, whatever its
// ids are, and that it has no gradient.
func TestEmbeddingPadding(t *testing.T) {
	e := NewEmbedding("e", 4, 8)
	for i := range e.Weight.Value.Data {
		e.Weight.Value.Data[i] = float32(1 + i)
	}
	s := f32Scope(t)
	s.Arena, s.Lengths = &Arena{}, []int{1, 0}
	for range 8 {
		s.Arena.Turn()
		y, err := e.Forward(s, []int32{2, -1, 99, 3})
		if err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(y.Row(0), e.Weight.Value.Row(2)) || !slices.Equal(y.Data[8:], make([]float32, 24)) {
			t.Fatalf("got %v", y.Data)
		}
		for i := range y.Data {
			y.Data[i] = 1
		}
		if err := e.Backward(s, []int32{2, -1, 99, 3}, y); err != nil {
			t.Fatal(err)
		}
	}
	want := make([]float32, 32)
	for i := 16; i < 24; i++ {
		want[i] = 8
	}
	if !slices.Equal(e.Weight.Grad.Data, want) {
		t.Errorf("got gradients %v", e.Weight.Grad.Data)
	}
	s.Lengths = nil
	if _, err := e.Forward(s, []int32{2, -1}); err == nil {
		t.Error("a negative id without padding: got no error")
	}
}
