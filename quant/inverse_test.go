package quant

import (
	"math"
	"math/big"
	"slices"
	"testing"

	"github.com/microscale-go/microscale/format"
	"github.com/microscale-go/microscale/tensor"
)

// TestGlobalInverse: in BF16 arithmetic it is the BF16 number that codes are
// computed with; else no other float32 is nearer to the inverse of the decode
// scale. It is finite and positive for every amax.
func TestGlobalInverse(t *testing.T) {
	step := uint32(0x1001f)
	if testing.Short() {
		step *= 15
	}
	for _, arithmetic := range []Arithmetic{EncodeFirst, EncodeFirst64, DecodeFirst, DecodeFirstBF16, BlockOnly, BlockNearest} {
		q := Quantizer{Format: NVFP4, Arithmetic: arithmetic}
		for bits := uint32(0); bits <= exponentMask; bits += step {
			amax := math.Float32frombits(bits)
			x := tensor.Of(1, 16, make([]float32, 16))
			got := q.GlobalInverse(amax)
			quantized, err := q.Rowwise(x, With{Amax: &amax, Threads: 1})
			if err != nil {
				t.Fatal(err)
			}
			switch {
			case !(got > 0) || got > maxFloat32:
				t.Fatalf("arithmetic %d, amax %g: the inverse is %g", arithmetic, amax, got)
			case arithmetic == DecodeFirstBF16:
				if got != toBF16(got) || 1/got != quantized.Global {
					t.Fatalf("amax %g: the inverse %g is not the BF16 number whose inverse is %g", amax, got, quantized.Global)
				}
			case got < maxFloat32:
				for _, other := range []float32{math.Nextafter32(got, 0), math.Nextafter32(got, maxFloat32)} {
					if distance(other, quantized.Global).Cmp(distance(got, quantized.Global)) < 0 {
						t.Fatalf("arithmetic %d, amax %g: the inverse is %g, and %g is nearer to that of %g", arithmetic, amax, got, other, quantized.Global)
					}
				}
			}
		}
	}
}

// distance returns |x·y - 1|, exactly.
func distance(x, y float32) *big.Rat {
	product := new(big.Rat).SetFloat64(float64(x) * float64(y)) // 48 bits
	return product.Abs(product.Sub(product, big.NewRat(1, 1)))
}

// TestWithNaN: tiles that know of a NaN elsewhere are what they are in the
// whole tensor.
func TestWithNaN(t *testing.T) {
	x := tensor.New(4, 8)
	for i := range x.Data {
		x.Data[i] = float32(i)
	}
	x.Data[30] = float32(math.NaN())
	for _, policy := range []NonFinite{Tolerate, Poison, PoisonNaN, PoisonZero} {
		q := Quantizer{Format: FP8Tensor, NonFinite: policy}
		whole, err := q.Rowwise(x, With{Threads: 1})
		if err != nil {
			t.Fatal(err)
		}
		for row := range x.Rows {
			tile, err := q.Rowwise(x.View(row, row+1, 0, x.Cols), With{Amax: &whole.Amax, NaN: true, Threads: 1})
			if err != nil {
				t.Fatal(err)
			}
			if got, want := math.Float32bits(tile.Scales32[0]), math.Float32bits(whole.Scales32[0]); got != want {
				t.Errorf("policy %d, row %d: scale %#x, want %#x", policy, row, got, want)
			}
			if got, want := string(tile.Codes), string(whole.row(row)); got != want {
				t.Errorf("policy %d, row %d: codes % x, want % x", policy, row, got, want)
			}
		}
		if poisoned := format.E4M3.IsNaN(uint32(whole.Codes[0])); poisoned != (policy != Tolerate) {
			t.Errorf("policy %d: an element of a tensor with a NaN elsewhere is NaN: %v", policy, poisoned)
		}
	}
}

// TestGivenGlobal: With.Inverse is the inverse of the global scale, so that amax/2688
// gives the codes that the amax gives, and a smaller scale saturates.
func TestGivenGlobal(t *testing.T) {
	x := tensor.Of(1, 16, []float32{6, -3, 1.5, 0.75, 0, 0.3, -0.2, 4, 2, 1, -1, 5, -6, 0.1, 0.6, 3})
	q := Quantizer{Format: NVFP4}
	for _, d := range []Direction{Rowwise, Columnwise} {
		amax, inverse := float32(5376), float32(0.5) // 2688/5376
		want, err := direction(q, x, d, With{Amax: &amax})
		if err != nil {
			t.Fatal(err)
		}
		got, err := direction(q, x, d, With{Inverse: &inverse})
		if err != nil {
			t.Fatal(err)
		}
		if got.Global != 2 || want.Global != 2 || !slices.Equal(got.Codes, want.Codes) || !slices.Equal(got.Scales, want.Scales) {
			t.Errorf("%s: a global scale of %g has other codes than an amax of %g", d, got.Global, amax)
		}
	}
	inverse := float32(4480) // blocks cannot exceed 6·448/4480 = 0.6
	got, err := q.Rowwise(x, With{Inverse: &inverse})
	if err != nil {
		t.Fatal(err)
	}
	if v := got.Dequantize(1).Data; math.Abs(float64(v[0])-0.6) > 1e-6 || math.Abs(float64(v[1])+0.6) > 1e-6 {
		t.Errorf("6 and -3 decode to %g and %g, want ±0.6", v[0], v[1])
	}
}
