package nn

import (
	"math"
	"testing"

	"github.com/microscale-go/microscale/tensor"
)

// TestInitNormal compares draws with recorded ones, so that initialization is the same in every
// version, and checks the mean and the standard deviation of a larger matrix.
func TestInitNormal(t *testing.T) {
	p := newParam("model.layers.0.q_proj.weight", 2, 3)
	p.InitNormal(0.5, 42)
	for i, want := range []uint32{0xbedf6e81, 0x3e638835, 0x3ee0939a, 0x3cee7e28, 0x3d7e5261, 0x3e2c1720} {
		if got := math.Float32bits(p.Value.Data[i]); got != want {
			t.Errorf("element %d: got %#08x (%g), want %#08x", i, got, p.Value.Data[i], want)
		}
	}
	large := newParam("large", 300, 200)
	large.InitNormal(0.02, 7)
	var sum, squares float64
	seen := map[float32]int{}
	for _, v := range large.Value.Data {
		sum += float64(v)
		squares += float64(v) * float64(v)
		seen[v]++
	}
	n := float64(len(large.Value.Data))
	if mean, deviation := sum/n, math.Sqrt(squares/n); math.Abs(mean) > 0.0005 || math.Abs(deviation-0.02) > 0.0005 {
		t.Errorf("got mean %g and standard deviation %g, want 0 and 0.02", mean, deviation)
	}
	if len(seen) < len(large.Value.Data)*99/100 {
		t.Errorf("%d elements: got %d distinct values", len(large.Value.Data), len(seen))
	}
}

// TestRMSNormRows checks the gradient of the weight if its last chunk is a single row.
func TestRMSNormRows(t *testing.T) {
	const width = 8
	n := NewRMSNorm("norm", width, 1e-5)
	for _, rows := range []int{1, normRows, normRows + 1, 2*normRows + 1} {
		x, dy := tensor.New(rows, width), tensor.New(rows, width)
		for i := range x.Data {
			x.Data[i], dy.Data[i] = 1, 1
		}
		clear(n.Weight.Grad.Data)
		s := &Scope{Recipe: lookup(t, "bf16")}
		_, saved, err := n.Forward(s, x)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := n.Backward(s, saved, dy); err != nil {
			t.Fatal(err)
		}
		for j, g := range n.Weight.Grad.Data { // each row adds 1/sqrt(1 + epsilon)
			if math.Abs(float64(g)-float64(rows)) > 1e-3*float64(rows) {
				t.Errorf("%d rows: gradient of weight %d: got %g, want %d", rows, j, g, rows)
			}
		}
	}
}

// TestDotOrder checks the order of dot: element i is added to sum i mod 4.
func TestDotOrder(t *testing.T) {
	one := []float32{1, 1, 1, 1}
	for _, tc := range []struct {
		a    []float32
		want float64
	}{
		{[]float32{1, -0x1p60, 0, 0x1p60}, 0},             // (1 - 2^60) + 2^60
		{[]float32{0x1p60, -0x1p60, 1, 1}, 2},             // 0 + 2
		{[]float32{0x1p60, 1, -0x1p60, 1}, 0},             // (2^60 + 1) + (-2^60 + 1)
		{[]float32{0x1p60, 0, 0, 0, -0x1p60, 0, 0, 1}, 1}, // the first and the fifth are one sum
	} {
		b := one
		if len(tc.a) > len(b) {
			b = append(append([]float32{}, one...), one...)
		}
		if got := dot(tc.a, b); got != tc.want {
			t.Errorf("dot(%v): got %g, want %g", tc.a, got, tc.want)
		}
	}
}
