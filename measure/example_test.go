package measure_test

import (
	"fmt"

	"github.com/microscale-go/microscale/measure"
	"github.com/microscale-go/microscale/quant"
	"github.com/microscale-go/microscale/tensor"
)

// Quantize two blocks, one of large and one of small values, with one scale for both and with one
// scale each.
func Example() {
	x := tensor.New(1, 64)
	for i := range x.Data {
		x.Data[i] = float32(i%32+1) / 10
		if i >= 32 {
			x.Data[i] /= 1 << 17
		}
	}
	for _, f := range []quant.Format{quant.FP8Tensor, quant.MXFP8} {
		q, err := quant.Quantizer{Format: f}.Rowwise(x, quant.With{})
		if err != nil {
			fmt.Println(err)
			return
		}
		r, err := measure.Compare(measure.Comparison{Got: q.Dequantize(1), Want: x})
		if err != nil {
			fmt.Println(err)
			return
		}
		fmt.Printf("%-10s  SQNR %.1f dB, blocks %.1f dB, worst %.0f%%, %d flushed\n", f, r.SQNR, r.MeanBlockSQNR, 100*r.MaxRelative, r.Flushed)
	}
	// Output:
	// fp8-tensor  SQNR 32.1 dB, blocks 21.3 dB, worst 100%, 9 flushed
	// mxfp8       SQNR 31.7 dB, blocks 31.7 dB, worst 5%, 0 flushed
}

// Goroutines measure tiles separately; Merge combines them in a fixed order.
func ExampleAccumulator_Merge() {
	want, got := []float32{1, 2, 3, 4}, []float32{1, 2, 3, 3.5}
	whole := measure.New(2)
	for i := 0; i < len(want); i += 2 {
		tile := measure.New(2)
		tile.AddRow(measure.Row{Want: want[i : i+2], Got: got[i : i+2], Limits: []float32{3.5}, Extent: 2})
		whole.Merge(tile)
	}
	r := whole.Result()
	fmt.Printf("%d elements, %d saturated, SQNR %.2f dB, bias %.1f%%\n", r.Elements, r.Saturated, r.SQNR, 100*r.Bias)
	// Output: 4 elements, 1 saturated, SQNR 20.79 dB, bias -5.0%
}
