package quant

import (
	"slices"
	"testing"

	"github.com/microscale-go/microscale/tensor"
)

// TestViewRows compares rows of tensors with copies of these rows, and checks that they share memory.
func TestViewRows(t *testing.T) {
	x := tensor.New(300, 256)
	for i := range x.Data {
		x.Data[i] = float32(i%977) - 488
	}
	for _, f := range Formats() {
		q, err := Quantizer{Format: f}.Rowwise(x, With{})
		if err != nil {
			t.Fatal(err)
		}
		want, err := q.SliceRows(128, 300)
		if err != nil {
			t.Fatal(err)
		}
		got := q.ViewRows(128, 300)
		if err := got.Validate(); err != nil {
			t.Error(err)
		}
		if !slices.Equal(got.Dequantize(1).Data, want.Dequantize(1).Data) || !slices.Equal(got.ScaleBytes(), want.ScaleBytes()) {
			t.Errorf("%s: the rows differ", f)
		}
		if got.Codes[0]++; q.Codes[128*q.RowBytes()] != got.Codes[0] {
			t.Errorf("%s: the rows are a copy", f)
		}
	}
}
