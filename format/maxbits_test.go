package format

import (
	"math"
	"testing"
)

func TestMaxBits(t *testing.T) {
	x := []float32{0, -3, 2, 1, float32(math.Copysign(0, -1)), -7, 5}
	for n := range x {
		want := uint32(0)
		for _, v := range x[:n] {
			want = max(want, math.Float32bits(float32(math.Abs(float64(v)))))
		}
		if got := maxBits(x[:n]); got != want {
			t.Errorf("%v: got bits %#x, want %#x", x[:n], got, want)
		}
	}
	if got := maxBits(append(x, float32(math.NaN()))); got <= 0x7f800000 {
		t.Errorf("with a NaN: got bits %#x, want more than those of Inf", got)
	}
}
