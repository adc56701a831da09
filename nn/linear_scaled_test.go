package nn

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/microscale-go/microscale/quant"
	"github.com/microscale-go/microscale/tensor"
)

// TestScaledLinear compares products with those of the decoded weight, and the gradient of every block scale with a difference that is
// exact but for rounding: Y is linear in the scale, so half the scale takes away half its share of Σ R∘Y, for a fixed R. That
// share is the gradient of its logarithm.
func TestScaledLinear(t *testing.T) {
	rng := rand.New(rand.NewPCG(7, 8))
	s := &Scope{Recipe: lookup(t, "f32"), Threads: 2, Pool: new(Pool)}
	for _, f := range []quant.Format{quant.NVFP4, quant.MXFP4, quant.MXFP8, quant.BF16} {
		t.Run(f.Name, func(t *testing.T) {
			w, err := quant.Quantizer{Format: f}.Rowwise(matrix(rng, 6, 40, 1), quant.With{}) // with a partial block
			if err != nil {
				t.Fatal(err)
			}
			l := &ScaledLinear{Name: "proj", Weight: w, Bias: []float32{1, 2, 3, 4, 5, 6}}
			x, r := matrix(rng, 32, 40, 1), matrix(rng, 32, 6, 1)
			loss := func() (sum float64) {
				values := w.Dequantize(1)
				y, saved, err := l.Forward(&Scope{Recipe: s.Recipe, Inference: true}, x)
				if err != nil || saved != nil {
					t.Fatal(err, saved)
				}
				for i := range y.Rows {
					for j, v := range y.Row(i) {
						want := dot(x.Row(i), values.Row(j)) + float64(l.Bias[j])
						if math.Abs(float64(v)-want) > 1e-4 {
							t.Fatalf("Y[%d, %d] is %g, want %g", i, j, v, want)
						}
					}
					sum += dot(y.Row(i), r.Row(i))
				}
				return sum
			}
			before := loss()
			var dx tensor.Dense
			for range 2 { // gradients add up
				_, saved, err := l.Forward(s, x)
				if err != nil {
					t.Fatal(err)
				}
				if dx, err = l.Backward(s, saved, r); err != nil {
					t.Fatal(err)
				}
				if _, err := l.Backward(s, saved, r); f.Scaled() && err == nil {
					t.Error("a second backward pass: got no error")
				}
			}
			values := w.Dequantize(1).Transpose()
			for i := range dx.Rows {
				for j, v := range dx.Row(i) {
					if want := dot(r.Row(i), values.Row(j)); math.Abs(float64(v)-want) > 1e-4 {
						t.Fatalf("dX[%d, %d] is %g, want %g", i, j, v, want)
					}
				}
			}
			if !f.Scaled() {
				if l.Grad.Data != nil {
					t.Error("an unquantized weight has a gradient")
				}
				return
			}
			for b, code := range w.Scales {
				w.Scales[b] = byte(f.Scale.Encode(f.Scale.Decode(uint32(code)) / 2))
				want := 2 * (before - loss())
				w.Scales[b] = code
				if got := float64(l.Grad.Data[b]) / 2; math.Abs(got-want) > 1e-3*(1+math.Abs(want)) {
					t.Errorf("block %d: the gradient is %g, want %g", b, got, want)
				}
			}
		})
	}
	w, err := quant.Quantizer{Format: quant.FP8Block}.Rowwise(matrix(rng, 128, 128, 1), quant.With{})
	if err != nil {
		t.Fatal(err)
	}
	if err := (&ScaledLinear{Name: "proj", Weight: w}).Check(); err == nil {
		t.Error("a weight with square blocks: got no error")
	}
}

// TestDivergence compares the divergence with its definition, and its gradient with q − p.
func TestDivergence(t *testing.T) {
	rng := rand.New(rand.NewPCG(9, 10))
	s := &Scope{Recipe: lookup(t, "f32"), Threads: 2}
	logits, original := matrix(rng, 5, 301, 4), matrix(rng, 5, 301, 4)
	copy(logits.Row(3), original.Row(3))
	d, p := logits.Clone(), original.Clone()
	kl, err := Divergence(s, d, p, 0.5)
	if err != nil {
		t.Fatal(err)
	}
	softmax := func(row []float32) (q []float64) {
		sum := 0.0
		for _, v := range row {
			sum += math.Exp(float64(v))
		}
		for _, v := range row {
			q = append(q, math.Exp(float64(v))/sum)
		}
		return q
	}
	for i := range logits.Rows {
		q, p := softmax(logits.Row(i)), softmax(original.Row(i))
		want := 0.0
		for j := range q {
			want += p[j] * math.Log(p[j]/q[j])
			if got := float64(d.Row(i)[j]); math.Abs(got-(q[j]-p[j])/2) > 1e-6 {
				t.Fatalf("row %d: the gradient of logit %d is %g, want %g", i, j, got, (q[j]-p[j])/2)
			}
		}
		if math.Abs(kl[i]-want) > 1e-5*(1+want) {
			t.Errorf("row %d: got %g, want %g", i, kl[i], want)
		}
	}
	if _, err := Divergence(s, matrix(rng, 2, 3, 1), matrix(rng, 2, 4, 1), 1); err == nil {
		t.Error("logits of different vocabularies: got no error")
	}
}
