package quant

import (
	"math/rand/v2"
	"testing"

	"github.com/microscale-go/microscale/format"
	"github.com/microscale-go/microscale/tensor"
)

// TestColumns quantizes columns of a matrix that two ranks of a job have, in ranges as those of Q, K
// and V: with the amax of the whole, their values are those of the whole matrix, and so are the
// values of Quantizer.Reference.
func TestColumns(t *testing.T) {
	const rows, cols = 128, 192
	random := rand.New(rand.NewPCG(1, 2))
	x := tensor.New(rows, cols)
	for i := range x.Data {
		x.Data[i] = float32(random.NormFloat64())
	}
	parts := [][][2]int{{{0, 64}, {128, 160}}, {{64, 128}, {160, 192}}}
	for _, f := range []Format{NVFP4, MXFP8, FP8Tensor} {
		for _, hadamard := range []bool{false, f == NVFP4} {
			for _, d := range []Direction{Rowwise, Columnwise} {
				q := Quantizer{Format: f, Rounding: format.Stochastic, Hadamard: hadamard}
				stream := &Stream{Seed: 7, Step: 3, Tensor: 5, Direction: d}
				quantize := q.Rowwise
				if d == Columnwise {
					quantize = q.Columnwise
				}
				whole, err := quantize(x, With{Random: stream, FirstRow: 64})
				if err != nil {
					t.Fatal(err)
				}
				want := whole.Dequantize(1)
				var amax float32
				for _, ranges := range parts {
					a, err := q.Amax(gather(x, ranges), d, 1)
					if err != nil {
						t.Fatal(err)
					}
					amax = max(amax, a)
				}
				if f.NeedsAmax() && amax != whole.Amax {
					t.Errorf("%s %s: amax %g of the parts, want %g", d, f, amax, whole.Amax)
				}
				for _, ranges := range parts {
					with := With{Random: stream, FirstRow: 64, Columns: &Columns{Of: cols, Ranges: ranges}}
					if f.NeedsAmax() {
						with.Amax = &amax
					}
					own := gather(x, ranges)
					part, err := quantize(own, with)
					if err != nil {
						t.Fatal(err)
					}
					reference, err := q.Reference(own, d, with)
					if err != nil {
						t.Fatal(err)
					}
					wanted := gather(want, ranges)
					for what, got := range map[string]tensor.Dense{"quantized": part.Dequantize(1), "reference": reference.Dequantize(1)} {
						for i, v := range got.Data {
							if v != wanted.Data[i] {
								t.Fatalf("%s %s, %s: element %d is %g, want %g", d, f, what, i, v, wanted.Data[i])
							}
						}
					}
				}
			}
		}
	}
	for _, c := range []Columns{{64, [][2]int{{0, 32}, {48, 80}}}, {64, [][2]int{{-1, 63}}}, {64, [][2]int{{0, 32}, {64, 32}}},
		{64, [][2]int{{0, 32}}}} {
		if _, err := (Quantizer{Format: MXFP8}).Rowwise(tensor.New(32, 64), With{Columns: &c}); err == nil {
			t.Errorf("columns %v: no error", c)
		}
	}
}

// gather returns the columns of ranges side by side.
func gather(x tensor.Dense, ranges [][2]int) tensor.Dense {
	y := tensor.New(x.Rows, (&Columns{Ranges: ranges}).n())
	for i := range x.Rows {
		row := y.Row(i)
		for _, r := range ranges {
			row = row[copy(row, x.Row(i)[r[0]:r[1]]):]
		}
	}
	return y
}
