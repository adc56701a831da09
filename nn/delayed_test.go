package nn

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/microscale-go/microscale/quant"
	"github.com/microscale-go/microscale/recipe"
	"github.com/microscale-go/microscale/tensor"
)

func lookup(t *testing.T, name string) recipe.Recipe {
	t.Helper()
	r, err := recipe.Lookup(name)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// TestDelayedScaleTable compares with Transformer Engine's fused update by hand: a history of three,
// the amax of each step, and the scale and history after it.
func TestDelayedScaleTable(t *testing.T) {
	inf, nan := float32(math.Inf(1)), float32(math.NaN())
	for _, c := range []struct {
		name  string
		r     recipe.Delayed
		start []float32 // history[0] is the amax of the step
		old   float32   // scale
		scale float32
		after []float32
	}{
		{"the largest", recipe.Delayed{AmaxHistoryLen: 3}, []float32{7, 0, 14}, 1, 32, []float32{0, 14, 7}},
		{"what falls out takes part once more", recipe.Delayed{AmaxHistoryLen: 3}, []float32{1, 14, 7}, 1, 32, []float32{0, 7, 1}},
		{"and is gone then", recipe.Delayed{AmaxHistoryLen: 3}, []float32{1, 7, 1}, 32, 64, []float32{0, 1, 1}},
		{"most recent", recipe.Delayed{AmaxHistoryLen: 3, AmaxComputeAlgorithm: recipe.MostRecent}, []float32{7, 14, 28}, 1, 64,
			[]float32{0, 28, 7}},
		{"a margin", recipe.Delayed{AmaxHistoryLen: 3, Margin: 2}, []float32{7, 0, 0}, 1, 16, []float32{0, 0, 7}},
		{"a negative margin", recipe.Delayed{AmaxHistoryLen: 3, Margin: -1}, []float32{7, 0, 0}, 1, 128, []float32{0, 0, 7}},
		{"no amax: nothing moves, max keeps the scale", recipe.Delayed{AmaxHistoryLen: 3}, []float32{0, 14, 7}, 5, 5, []float32{0, 14, 7}},
		{"no amax, most recent", recipe.Delayed{AmaxHistoryLen: 3, AmaxComputeAlgorithm: recipe.MostRecent}, []float32{0, 14, 7}, 5, 5,
			[]float32{0, 14, 7}},
		{"Inf keeps the scale", recipe.Delayed{AmaxHistoryLen: 3}, []float32{inf, 14, 7}, 5, 5, []float32{0, 7, inf}},
		{"and stays in the history", recipe.Delayed{AmaxHistoryLen: 3}, []float32{1, 7, inf}, 5, 5, []float32{0, inf, 1}},
		{"Inf, most recent", recipe.Delayed{AmaxHistoryLen: 3, AmaxComputeAlgorithm: recipe.MostRecent}, []float32{inf, 1, 1}, 5, 5,
			[]float32{0, 1, inf}},
		{"NaN is passed over by max", recipe.Delayed{AmaxHistoryLen: 3}, []float32{nan, 14, 7}, 5, 32, []float32{0, 7, nan}},
		{"NaN, most recent", recipe.Delayed{AmaxHistoryLen: 3, AmaxComputeAlgorithm: recipe.MostRecent}, []float32{nan, 14, 7}, 5, 5,
			[]float32{0, 7, nan}},
		{"a history of one", recipe.Delayed{AmaxHistoryLen: 1}, []float32{14}, 1, 32, []float32{0}},
		{"a tiny amax: the largest float32", recipe.Delayed{AmaxHistoryLen: 1}, []float32{1e-40}, 1, math.MaxFloat32, []float32{0}},
	} {
		d := delayedScale{scale: c.old, history: slices.Clone(c.start)}
		d.update(c.r, 448)
		if math.Float32bits(d.scale) != math.Float32bits(c.scale) || !slices.EqualFunc(d.history, c.after, sameFloat) {
			t.Errorf("%s: scale %g, history %v; want %g, %v", c.name, d.scale, d.history, c.scale, c.after)
		}
	}
}

func sameFloat(a, b float32) bool { return a == b || a != a && b != b }

// plainUpdate is §1.2 of the source documents as written there.
func plainUpdate(hist []float32, old float32, algorithm recipe.AmaxAlgorithm, scaledMax float32) (float32, []float32) {
	n := len(hist)
	last := hist[0]
	amax := 0.0
	next := slices.Clone(hist)
	if last != 0 {
		rolled := append(slices.Clone(hist[1:]), last)
		for _, a := range rolled {
			if !math.IsNaN(float64(a)) {
				amax = math.Max(amax, float64(a))
			}
		}
		copy(next, rolled)
		next[0] = 0
	}
	if algorithm == recipe.MostRecent {
		amax = float64(last)
	}
	if math.IsNaN(amax) || math.IsInf(amax, 0) || amax <= 0 {
		return old, next[:n]
	}
	scale := float64(scaledMax) / amax
	if scale > math.MaxFloat32 {
		scale = math.MaxFloat32
	}
	return float32(scale), next[:n]
}

// TestDelayedScaleRandom compares update with plainUpdate over many steps of unusual amaxes.
func TestDelayedScaleRandom(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	odd := []float32{0, 0, float32(math.Inf(1)), float32(math.NaN()), 1e-45, math.MaxFloat32}
	for range 300 {
		r := recipe.Delayed{AmaxHistoryLen: 1 + rng.IntN(6), AmaxComputeAlgorithm: recipe.AmaxAlgorithm(rng.IntN(2)), Margin: rng.IntN(4)}
		d := delayedScale{}
		d.prepare(r.AmaxHistoryLen)
		scale, hist := float32(1), make([]float32, r.AmaxHistoryLen)
		for range 20 {
			amax := float32(math.Exp(rng.NormFloat64() * 4))
			if rng.IntN(3) == 0 {
				amax = odd[rng.IntN(len(odd))]
			}
			d.history[0], hist[0] = amax, amax
			d.update(r, 57344)
			scale, hist = plainUpdate(hist, scale, r.AmaxComputeAlgorithm, float32(math.Ldexp(57344, -r.Margin)))
			if math.Float32bits(d.scale) != math.Float32bits(scale) || !slices.EqualFunc(d.history, hist, sameFloat) {
				t.Fatalf("%+v: scale %g, history %v; want %g, %v", r, d.scale, d.history, scale, hist)
			}
		}
	}
}

// TestDelayedLayer follows a layer over steps of two microbatches with its weight quantized once: the
// scales in use, when they change, the scales of recomputation, and a layer that gets the state of
// another.
func TestDelayedLayer(t *testing.T) {
	r := lookup(t, "delayed")
	r.Delayed.AmaxHistoryLen = 4
	rng := rand.New(rand.NewPCG(5, 6))
	l := NewLinear("proj", 64, 64, false)
	l.Weight.InitNormal(0.1, 1)

	type slot struct {
		scale float32
		hist  []float32
	}
	want := map[Operand]*slot{Input: {1, make([]float32, 4)}, Weight: {1, make([]float32, 4)}, Grad: {1, make([]float32, 4)}}
	inUse := map[Operand]float32{}
	see := func(o Operand, x tensor.Dense) {
		s := want[o]
		s.hist[0] = max(s.hist[0], quant.Amax(x, 1))
		inUse[o] = s.scale
	}
	update := func(operands ...Operand) {
		for _, o := range operands {
			s, largest := want[o], float32(448)
			if o == Grad {
				largest = 57344
			}
			s.scale, s.hist = plainUpdate(s.hist, s.scale, recipe.Max, largest)
		}
	}
	got := map[Operand]float32{}
	var follower *Linear
	for step := range 6 {
		for m := range 2 {
			s := &Scope{Recipe: r, Random: Random{Step: uint32(step), Microbatch: m}, ReuseWeights: m > 0}
			s.Observer.Operand = func(o Observation) { got[o.Operand] = o.Quantized.Scales32[0] }
			x := matrix(rng, 32, 64, math.Exp(rng.NormFloat64()))
			dy := matrix(rng, 32, 64, math.Exp(rng.NormFloat64()))
			if m == 0 {
				w := l.Weight.Value.Clone()
				roundBF16(w.Data)
				see(Weight, w)
			}
			see(Input, x)
			first, _, err := l.Forward(s, x)
			if err != nil {
				t.Fatal(err)
			}
			l.EndForward(s)
			update(Input, Weight)

			// inference between the passes changes no state
			infer := *s
			infer.Inference, infer.ReuseWeights = true, true
			if _, _, err := l.Forward(&infer, dy); err != nil {
				t.Fatal(err)
			}

			again := *s
			again.Recompute = true
			y, saved, err := l.Forward(&again, x)
			if err != nil {
				t.Fatal(err)
			}
			if !slices.Equal(first.Data, y.Data) {
				t.Fatalf("step %d: the result of the recomputation differs", step)
			}
			see(Grad, dy)
			if _, err := l.Backward(s, saved, dy); err != nil {
				t.Fatal(err)
			}
			l.EndBackward(s)
			update(Grad)
			for o, scale := range inUse {
				if g := got[o]; g != 1/scale {
					t.Errorf("step %d, microbatch %d: %s was quantized with scale %g, want %g", step, m, o, g, 1/scale)
				}
			}
			for o, w := range want {
				if d := l.delayed[o]; d.scale != w.scale || !slices.Equal(d.history, w.hist) {
					t.Errorf("step %d, microbatch %d: %s has scale %g, history %v; want %g, %v", step, m, o, d.scale, d.history, w.scale, w.hist)
				}
			}
		}
		for i := range l.Weight.Value.Data {
			l.Weight.Value.Data[i] *= 1.25
		}
		if follower == nil {
			follower = NewLinear("proj", 64, 64, false)
			if err := follower.SetState(l.State()); err != nil {
				t.Fatal(err)
			}
			copy(follower.Weight.Value.Data, l.Weight.Value.Data)
			s := &Scope{Recipe: r, Random: Random{Step: 1}}
			x := matrix(rand.New(rand.NewPCG(1, 1)), 32, 64, 1)
			a, _, err := l.Forward(s, x)
			if err != nil {
				t.Fatal(err)
			}
			b, _, err := follower.Forward(s, x)
			if err != nil || !slices.Equal(a.Data, b.Data) {
				t.Errorf("results differ after SetState (%v)", err)
			}
			w := l.Weight.Value.Clone()
			roundBF16(w.Data)
			see(Weight, w) // what this pass adds
			see(Input, x)
		}
	}
}

// TestCalibration checks that calibrating computes in BF16 and collects amaxes, and that the next step
// uses their scales.
func TestCalibration(t *testing.T) {
	r := lookup(t, "delayed")
	rng := rand.New(rand.NewPCG(5, 6))
	x, dy := matrix(rng, 32, 64, 100), matrix(rng, 32, 64, 1e-5)
	l := NewLinear("proj", 64, 64, false)
	l.Weight.InitNormal(0.1, 1)
	run := func(s *Scope) tensor.Dense {
		y, saved, err := l.Forward(s, x)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := l.Backward(s, saved, dy); err != nil {
			t.Fatal(err)
		}
		l.EndForward(s)
		l.EndBackward(s)
		return y
	}
	high := (&Scope{Recipe: r}).Disabled()
	bf16 := run(&high)
	calibrated := run(&Scope{Recipe: r, Calibrating: true, Observer: Observer{Product: func(p Product) {
		if p.A.Format.Name != "bf16" || p.B.Format.Name != "bf16" {
			t.Errorf("calibrating: %s of %s and %s, want bf16", p.GEMM, p.A.Format, p.B.Format)
		}
	}}})
	if !slices.Equal(bf16.Data, calibrated.Data) {
		t.Error("results of calibrating and of BF16 differ")
	}
	seen := 0
	run(&Scope{Recipe: r, Observer: Observer{Operand: func(o Observation) {
		seen++
		largest := float32(448)
		if o.Operand == Grad {
			largest = 57344
		}
		if want := 1 / (largest / quant.Amax(o.Source, 1)); o.Quantized.Scales32[0] != want {
			t.Errorf("%s %s: scale %g after calibration, want %g", o.Operand, o.Direction, o.Quantized.Scales32[0], want)
		}
	}}})
	if seen != 6 {
		t.Errorf("got %d operands, want 6", seen)
	}
}

func TestBadState(t *testing.T) {
	l := NewLinear("proj", 64, 64, false)
	if s := l.State(); s != nil {
		t.Errorf("State without delayed scaling: got %v, want nil", s)
	}
	for _, s := range [][]float32{{1, 2}, {1, 2, 3}, {1, 0, 0, 0, 1, 0}, {1, 0, 1, 0, float32(math.NaN()), 0}} {
		if err := l.SetState(s); err == nil {
			t.Errorf("SetState(%v): got no error", s)
		}
	}
	if err := l.SetState(nil); err != nil {
		t.Error(err)
	}
}
