package train

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/microscale-go/microscale/nn"
	"github.com/microscale-go/microscale/tensor"
)

// TestAdamW compares steps with the formulas in float64, and the bits on three threads with those on
// one.
func TestAdamW(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	a := AdamW{Beta1: 0.9, Beta2: 0.95, Epsilon: 1e-3, Decay: 0.5}
	const rate, scale = 0.01, 0.25
	one := []*nn.Param{newParam("model.embed_tokens.weight", 3, 5), newParam("model.norm.weight", 1, 7), newParam("proj.weight", 300, 200)}
	three := make([]*nn.Param, len(one))
	var w, m, v [][]float64
	for i, p := range one {
		three[i] = newParam(p.Name, p.Value.Rows, p.Value.Cols)
		n := len(p.Value.Data)
		w, m, v = append(w, make([]float64, n)), append(m, make([]float64, n)), append(v, make([]float64, n))
		for j := range n {
			p.Value.Data[j] = float32(rng.NormFloat64())
			w[i][j] = float64(p.Value.Data[j])
		}
		copy(three[i].Value.Data, p.Value.Data)
	}
	ones, threes := newMoments(one), newMoments(three)
	for step := range 5 {
		for i, p := range one {
			for j := range p.Grad.Data {
				p.Grad.Data[j] = float32(rng.NormFloat64() * math.Pow(10, float64(rng.IntN(6)-5)))
			}
			copy(three[i].Grad.Data, p.Grad.Data)
			decay := 0.0
			if p.Name == "proj.weight" {
				decay = a.Decay
			}
			for j, g := range p.Grad.Data {
				g := float64(g) * scale
				m[i][j] = a.Beta1*m[i][j] + (1-a.Beta1)*g
				v[i][j] = a.Beta2*v[i][j] + (1-a.Beta2)*g*g
				t := float64(step + 1)
				w[i][j] -= rate * (m[i][j]/(1-math.Pow(a.Beta1, t))/(math.Sqrt(v[i][j]/(1-math.Pow(a.Beta2, t)))+a.Epsilon) + decay*w[i][j])
			}
		}
		a.step(one, ones, step+1, rate, scale, 1)
		a.step(three, threes, step+1, rate, scale, 3)
	}
	for i, p := range one {
		if !slices.Equal(p.Value.Data, three[i].Value.Data) {
			t.Errorf("%s: results on one and three threads differ", p.Name)
		}
		for j, got := range p.Value.Data {
			// Five steps, of a weight below 8 and of an update below rate, each rounded a few times.
			if d := math.Abs(float64(got) - w[i][j]); d > 5*(8*0x1p-24+8*rate*0x1p-24) {
				t.Fatalf("%s: element %d: got %g, want %g", p.Name, j, got, w[i][j])
			}
		}
	}
}

func TestClip(t *testing.T) {
	p := []*nn.Param{newParam("a", 1, 2), newParam("b", 2, 1)}
	copy(p[0].Grad.Data, []float32{3, -4})
	copy(p[1].Grad.Data, []float32{12, 0})
	norm := gradientNorm(p, 2)
	if norm != 13 {
		t.Errorf("norm: got %g, want 13", norm)
	}
	for _, tc := range []struct{ limit, want float64 }{{0, 1}, {13, 1}, {20, 1}, {6.5, 0.5}} {
		if got := clipScale(norm, tc.limit); got != tc.want {
			t.Errorf("limit %g: got scale %g, want %g", tc.limit, got, tc.want)
		}
	}
	p[0].Grad.Data[0] = 1e30 // its square exceeds float32
	if norm := gradientNorm(p, 1); math.Abs(norm/1e30-1) > 1e-6 {
		t.Errorf("norm: got %g, want 1e30", norm)
	}
}

func TestSchedule(t *testing.T) {
	for _, tc := range []struct {
		s      Schedule
		warmup float64
		at     map[int]float64 // of 100 steps
	}{
		{cosine, 0.1, map[int]float64{0: 0.1, 4: 0.5, 9: 1, 54: 0.55, 99: 0.1}},
		{wsd, 0.1, map[int]float64{0: 0.1, 9: 1, 79: 1, 89: 0.55, 99: 0.1}},
		{constant, 0.5, map[int]float64{0: 0.02, 49: 1, 99: 1}},
		{cosine, 0, map[int]float64{49: 0.55, 99: 0.1}},
		{wsd, 1, map[int]float64{0: 0.01, 98: 0.99}},
	} {
		for step, want := range tc.at {
			if got := tc.s.Factor(step, 100, tc.warmup); math.Abs(got-want) > 1e-12 {
				t.Errorf("%s: step %d of 100, warm-up %g: got %g, want %g", tc.s, step, tc.warmup, got, want)
			}
		}
	}
	for _, s := range Schedules() {
		for _, steps := range []int{1, 2, 3, 12} {
			for step := range steps {
				if f := s.Factor(step, steps, 0.1); !(f > 0 && f <= 1) {
					t.Errorf("%s: step %d of %d: got %g, want 0 to 1", s, step, steps, f)
				}
			}
		}
		var got Schedule
		text, err := s.MarshalText()
		if e := got.UnmarshalText(text); e != nil || err != nil || got != s {
			t.Errorf("%s: got %q, %s, %v, %v", s, text, got, err, e)
		}
	}
	linear := Schedule("linear")
	if err := linear.UnmarshalText([]byte("linear")); err == nil {
		t.Error("UnmarshalText(linear): got no error")
	}
	if _, err := linear.MarshalText(); err == nil || linear.Factor(0, 10, 0) != 1 {
		t.Errorf("MarshalText of linear: got %v", err)
	}
}

func newParam(name string, rows, cols int) *nn.Param {
	return &nn.Param{Name: name, Value: tensor.New(rows, cols), Grad: tensor.New(rows, cols)}
}
