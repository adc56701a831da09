package measure

import (
	"math/rand/v2"
	"testing"
)

// TestState checks that a restored accumulator gives the same result as the original.
func TestState(t *testing.T) {
	random := rand.New(rand.NewPCG(7, 8))
	row := func(a *Accumulator) {
		want, got := make([]float32, 100), make([]float32, 100)
		for i := range want {
			want[i], got[i] = element(random, true), element(random, true)
		}
		a.AddRow(Row{Want: want, Got: got, Limits: []float32{1}, Extent: 100})
	}
	a, b := New(32), New(8)
	row(a)
	data, err := a.MarshalBinary()
	if err == nil {
		err = b.UnmarshalBinary(data)
	}
	if err != nil || bits(*a) != bits(*b) {
		t.Fatalf("%v: %+v became %+v", err, a, b)
	}
	for _, damaged := range [][]byte{nil, data[1:], append(data[:len(data):len(data)], 0), make([]byte, len(data))} {
		if err := b.UnmarshalBinary(damaged); err == nil {
			t.Errorf("%d damaged bytes: got no error", len(damaged))
		}
	}
	if bits(*a) != bits(*b) {
		t.Error("UnmarshalBinary changed the accumulator on error")
	}
}
