package train

import (
	"fmt"
	"math"
	"slices"
	"testing"

	"github.com/microscale-go/microscale/comm"
	"github.com/microscale-go/microscale/nn"
	"github.com/microscale-go/microscale/tensor"
)

// reduceOnes sums gradients of ones of a 2×50 parameter over two ranks, each of which adds one row, after
// change. It returns the gradients and the reducer of rank 0.
func reduceOnes(t *testing.T, wire string, distributed bool, change func(r *reducer)) (sum []float32, first *reducer) {
	t.Helper()
	w, err := comm.ParseWire(wire)
	if err != nil {
		t.Fatal(err)
	}
	err = comm.Run(2, comm.Options{}, func(g *comm.Group) error {
		p := newParam("a", 2, 50)
		for i := range p.Grad.Data {
			p.Grad.Data[i] = 1
		}
		params := []*nn.Param{p}
		r := newReducer(&Parallel{Group: g, GradReduce: w, DistributedOptimizer: distributed}, params, [][]int{{0, 1, 2}}, 1)
		if change != nil {
			change(r)
		}
		calls := 0
		o := nn.Observer{Gradients: func([]*nn.Param) { calls++ }}
		r.begin(&gradientTree{}, &o)
		o.Gradients(params)
		if calls != 1 {
			return fmt.Errorf("the observer was called %d times", calls)
		}
		if err := r.finish(); err != nil {
			return err
		}
		if g.Rank() == 0 {
			sum, first = p.Grad.Data, r
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return sum, first
}

// TestReducer sums gradients in each format, in parts that do not fill blocks.
func TestReducer(t *testing.T) {
	for _, wire := range comm.WireNames() {
		for _, distributed := range []bool{false, true} {
			sum, r := reduceOnes(t, wire, distributed, nil)
			want := slices.Repeat([]float32{2}, 100)
			if distributed {
				copy(want[50:], slices.Repeat([]float32{1}, 50)) // of the other rank
			}
			if !slices.Equal(sum, want) || r.nonFinite.Load() {
				t.Errorf("%s, distributed %t: got %v, not finite %t", wire, distributed, sum, r.nonFinite.Load())
			}
		}
	}
}

// TestReducerNonFinite checks that formats that saturate report Inf and NaN.
func TestReducerNonFinite(t *testing.T) {
	for _, wire := range []string{"mxfp8", "fp8-blocks"} {
		for _, v := range []float64{math.NaN(), math.Inf(-1)} {
			_, r := reduceOnes(t, wire, true, func(r *reducer) {
				r.params[0].Grad.Data[70] = float32(v)
			})
			if !r.nonFinite.Load() {
				t.Errorf("%s: %g is not reported", wire, v)
			}
		}
	}
}

// TestReducerNoise compares the error of gradients in another format with its definition.
func TestReducerNoise(t *testing.T) {
	_, r := reduceOnes(t, "bf16", false, func(r *reducer) {
		r.noise.enabled = true
		r.params[0].Grad.Data[70] = 1 + 1.0/1024 // BF16 rounds it to 1
	})
	d := 1.0 / 1024
	if want := 10 * math.Log10((99+(1+d)*(1+d))/(d*d)); math.Abs(r.noise.sqnr()-want) > 1e-9 {
		t.Errorf("got %g dB, want %g", r.noise.sqnr(), want)
	}
}

// TestBuckets checks that a bucket ends with the parameter that makes it full.
func TestBuckets(t *testing.T) {
	var params []*nn.Param
	var cuts [][]int
	for _, rows := range []int{600, 600, 10, 2000, 1} {
		params = append(params, newParam("p", rows, 1024))
		cuts = append(cuts, []int{0, rows})
	}
	var got [][]int
	for _, b := range newBuckets([]int{0, 1, 2, 3, 4}, cuts, func(i int) tensor.Dense { return params[i].Grad }) {
		got = append(got, b.params)
	}
	if want := "[[0 1] [2 3] [4]]"; fmt.Sprint(got) != want {
		t.Errorf("got buckets %v, want %s", got, want)
	}
}

// TestAllFinite places NaN and Inf at every element of slices of every length up to three groups of four.
func TestAllFinite(t *testing.T) {
	for n := range 13 {
		x := make([]float32, n)
		for i := range x {
			x[i] = math.MaxFloat32
		}
		if !allFinite(x) {
			t.Errorf("%d finite elements are not finite", n)
		}
		for i := range x {
			for _, v := range []float64{math.NaN(), math.Inf(1), math.Inf(-1)} {
				if x[i] = float32(v); allFinite(x) {
					t.Errorf("%g at element %d of %d is finite", v, i, n)
				}
			}
			x[i] = -math.MaxFloat32
		}
	}
}

// TestReducerBegins: a step does not inherit that the gradients of the last one were not finite.
func TestReducerBegins(t *testing.T) {
	r := &reducer{}
	r.nonFinite.Store(true)
	r.begin(nil, &nn.Observer{})
	if r.nonFinite.Load() {
		t.Error("the gradients of a new step are not finite")
	}
}

// TestScheduleEnds: the cosine reaches a tenth at the last step, with or without warm-up, and stays there.
func TestScheduleEnds(t *testing.T) {
	for _, tc := range []struct {
		step, steps  int
		warmup, want float64
	}{{0, 1, 0, 0.1}, {0, 2, 0, 0.55}, {1, 2, 0, 0.1}, {5, 2, 0, 0.1}, {0, 4, 0.5, 0.5}, {1, 4, 0.5, 1}, {2, 4, 0.5, 0.55}, {3, 4, 0.5, 0.1},
		{3, 4, 1, 1}, {4, 4, 1, 0.1}} {
		if got := cosine.Factor(tc.step, tc.steps, tc.warmup); math.Abs(got-tc.want) > 1e-12 {
			t.Errorf("step %d of %d, warm-up %g: got %g, want %g", tc.step, tc.steps, tc.warmup, got, tc.want)
		}
	}
}

// TestReducerBytes: of two ranks, each sends a half to the other, and holds its half from both to add them; gradients in
// FP32 take memory for that of the other alone.
func TestReducerBytes(t *testing.T) {
	for _, wire := range comm.WireNames() {
		_, r := reduceOnes(t, wire, false, nil)
		want := 3 * r.wire().Size(50)
		if r.wire() == comm.F32 {
			want = 4 * 50
		}
		if got := r.bytes(); got != want {
			t.Errorf("%s: got %d bytes, want %d", wire, got, want)
		}
	}
}
