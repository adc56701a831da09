package quant

import (
	"math/rand/v2"
	"testing"

	"github.com/microscale-go/microscale/format"
	"github.com/microscale-go/microscale/tensor"
)

// TestStochasticWords: the word of an element is Stream.At of its index in the
// source, rows first, in both directions, for widths that the generator's fours
// divide and others, and in tiles that begin at any row.
func TestStochasticWords(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for _, shape := range [][2]int{{32, 64}, {5, 37}, {33, 6}, {64, 20}, {1, 1}} {
		x := tensor.New(shape[0], shape[1])
		for i := range x.Data {
			x.Data[i] = float32(rng.NormFloat64())
		}
		for _, f := range []Format{MXFP4, MXFP8, MXFP6E3M2} {
			for d := range Direction(2) {
				for _, first := range []int{0, 3} {
					q := Quantizer{Format: f, Rounding: format.Stochastic}
					stream := Stream{Seed: 1, Step: 2, Tensor: 3, Operand: 4, Direction: d}
					quantize := q.Rowwise
					if d == Columnwise {
						quantize = q.Columnwise
					}
					got, err := quantize(x, With{Random: &stream, FirstRow: first})
					if err != nil {
						t.Fatal(err)
					}
					codes := make([]byte, got.paddedCols())
					for l := range got.StoredRows() {
						f.Element.Split(codes, got.row(l))
						for c := range got.StoredCols() {
							row, col := l, c
							if d == Columnwise {
								row, col = c, l
							}
							random := stream.At(uint64(first+row)*uint64(x.Cols) + uint64(col))
							want := f.Element.EncodeWith(x.At(row, col)/got.Scale(l, c), format.Conversion{Rounding: format.Stochastic}, random)
							if codes[c] != byte(want) {
								t.Fatalf("%s %s %v from row %d: (%d, %d) became %#x, want %#x", d, f, shape, first, row, col, codes[c], want)
							}
						}
					}
				}
			}
		}
	}
}
