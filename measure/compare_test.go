package measure_test

import (
	"math"
	"strings"
	"testing"

	"github.com/microscale-go/microscale/measure"
	"github.com/microscale-go/microscale/tensor"
)

// TestCompare compares views, whose rows are not contiguous, and checks which operand is the
// reference.
func TestCompare(t *testing.T) {
	want := tensor.Of(2, 4, []float32{1, 2, 9, 9, 3, 4, 9, 9}).View(0, 2, 0, 2)
	got := tensor.Of(2, 2, []float32{1, 2, 3, 6})
	r, err := measure.Compare(measure.Comparison{Got: got, Want: want, Block: 1})
	if err != nil {
		t.Fatal(err)
	}
	// Σx² = 30, Σe² = 4, Σe/Σ|x| = 2/10, max |e|/|x| = 2/4, and one block with an error: 16/4.
	if math.Abs(r.SQNR-10*math.Log10(30./4)) > 1e-12 || r.Bias != 0.2 || r.MaxRelative != 0.5 ||
		math.Abs(r.MeanBlockSQNR-10*math.Log10(4)) > 1e-12 || r.Elements != 4 {
		t.Errorf("got %+v", r)
	}
	if swapped, err := measure.Compare(measure.Comparison{Got: want, Want: got}); err != nil || swapped.Bias != -1./6 {
		t.Errorf("swapped: got %+v, %v, want a bias of -1/6", swapped, err)
	}
	long := tensor.New(3, 70)
	for i := range long.Data {
		long.Data[i] = float32(i%7) - 3
	}
	noisy := long.Clone()
	noisy.Set(0, 33, 2.5)
	a, b := measure.New(32), measure.Comparison{Got: noisy, Want: long}
	for i := range long.Rows {
		a.Add(long.Row(i), noisy.Row(i))
	}
	if r, err := measure.Compare(b); err != nil || r != a.Result() {
		t.Errorf("got %+v, %v, want that of an Accumulator with blocks of 32, %+v", r, err, a.Result())
	}
}

func TestCompareErrors(t *testing.T) {
	x := tensor.New(2, 3)
	for want, c := range map[string]measure.Comparison{
		"compare: Got is 3×2 and Want is 2×3, want the same shape": {Got: tensor.New(3, 2), Want: x},
		"compare: Got is 3×3 and Want is 2×3, want the same shape": {Got: tensor.New(3, 3), Want: x},
		"compare: Got is 2×2 and Want is 2×3, want the same shape": {Got: tensor.New(2, 2), Want: x},
		"compare: Got is 0×0 and Want is 2×3, want the same shape": {Want: x},
		"compare: Got: got 0 elements":                             {Got: tensor.Dense{Rows: 2, Cols: 3, Stride: 3}, Want: x},
		"compare: Want: invalid shape -1×3":                        {Got: x, Want: tensor.Dense{Rows: -1, Cols: 3, Stride: 3}},
		"compare: Block: got -32, want a positive number":          {Got: x, Want: x, Block: -32},
	} {
		if r, err := measure.Compare(c); err == nil || !strings.HasPrefix(err.Error(), want) || r != (measure.Result{}) {
			t.Errorf("got %+v, %v, want an error with %q", r, err, want)
		}
	}
}
