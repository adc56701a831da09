package quant

import (
	"bytes"
	"math/rand/v2"
	"testing"

	"github.com/microscale-go/microscale/format"
	"github.com/microscale-go/microscale/tensor"
)

// TestTransposeShapes transposes codes of every width at shapes around the tiles
// and compares them one by one; twice gives the original.
func TestTransposeShapes(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	formats := []Format{FP8Tensor, FP8Block, BF16, F32, NVFP4x16, MXFP8x32, {Name: "e3m2", Element: format.E3M2, Scale: format.E8M0,
		Block: Shape{4, 4}}}
	for _, f := range formats {
		for _, shape := range [][2]int{{1, 1}, {7, 9}, {8, 8}, {64, 64}, {65, 63}, {130, 77}, {16, 200}, {0, 8}, {8, 0}} {
			x := tensor.New(shape[0], shape[1])
			for i := range x.Data {
				x.Data[i] = float32(rng.NormFloat64())
			}
			q, err := Quantizer{Format: f}.Rowwise(x, With{})
			if err != nil {
				t.Fatal(err)
			}
			r, err := q.Transpose()
			if err != nil {
				t.Fatal(err)
			}
			got, want := r.Dequantize(1), q.Dequantize(1)
			for i := range want.Rows {
				for j, w := range want.Row(i) {
					if got.At(j, i) != w {
						t.Fatalf("%s %v: element (%d, %d) of the transpose is %g, want %g", f, shape, j, i, got.At(j, i), w)
					}
				}
			}
			back, err := r.Transpose()
			if err != nil {
				t.Fatal(err)
			}
			if !bytes.Equal(back.Codes, q.Codes) || !bytes.Equal(back.ScaleBytes(), q.ScaleBytes()) {
				t.Errorf("%s %v: the transpose of the transpose is another tensor", f, shape)
			}
		}
	}
}
