package quant_test

import (
	"fmt"

	"github.com/microscale-go/microscale/quant"
	"github.com/microscale-go/microscale/tensor"
)

// A matrix in MXFP8: each 32 elements of a row share a power of two.
func Example() {
	x := tensor.New(2, 64)
	for i := range x.Data {
		x.Data[i] = float32(i)
	}
	t, err := quant.Quantizer{Format: quant.MXFP8}.Rowwise(x, quant.With{})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(len(t.Codes), "bytes of codes, scales", t.Scales)
	y := t.Dequantize(0)
	fmt.Println(x.At(0, 21), "became", y.At(0, 21), "and", x.At(1, 63), "became", y.At(1, 63))
	// Output:
	// 128 bytes of codes, scales [124 125 125 126]
	// 21 became 20 and 127 became 128
}

// One block under each scale rule: 480 is above 448, E4M3's largest value.
func ExampleScaleRule() {
	x := tensor.Of(1, 2, []float32{480, 100})
	for _, rule := range quant.ScaleRules() {
		t, err := quant.Quantizer{Format: quant.MXFP8, Rule: rule}.Rowwise(x, quant.With{})
		if err != nil {
			fmt.Println(err)
			return
		}
		fmt.Printf("%-5s scale %v, values %v\n", rule, t.Scale(0, 0), t.Dequantize(1).Data)
	}
	// Output:
	// rceil scale 2, values [480 96]
	// floor scale 1, values [448 96]
	// ceil  scale 2, values [480 96]
	// even  scale 1, values [448 96]
	// round scale 1, values [448 96]
}

// NVFP4 has a second scale, for the whole tensor.
func ExampleQuantizer_Rowwise() {
	t, err := quant.Quantizer{Format: quant.NVFP4}.Rowwise(tensor.Of(1, 4, []float32{0.1, -0.7, 2.5, 3.4}), quant.With{})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Printf("amax %v, global scale %v, block scale %v\n", t.Amax, t.Global, t.Format.Scale.Decode(uint32(t.Scales[0])))
	fmt.Printf("codes % x, values %v\n", t.Codes[:2], t.Dequantize(1).Data)
	// Output:
	// amax 3.4, global scale 0.001264881, block scale 448
	// codes a0 76, values [0 -0.56666666 2.2666667 3.4]
}

// A matrix product that sums over the rows needs blocks down the columns.
func ExampleQuantizer_Columnwise() {
	x := tensor.New(64, 3)
	t, err := quant.Quantizer{Format: quant.MXFP4}.Columnwise(x, quant.With{})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(t.StoredRows(), "rows of", t.StoredCols(), "elements in", t.RowBytes(), "bytes")
	// Output: 3 rows of 64 elements in 32 bytes
}

// Tiles of a large tensor are quantized one by one, with the amax of all, and
// are the same as the whole.
func ExampleConcat() {
	x := tensor.New(4, 16)
	for i := range x.Data {
		x.Data[i] = float32(i * i)
	}
	q := quant.Quantizer{Format: quant.NVFP4}
	amax := quant.Amax(x, 0)
	var tiles []*quant.Tensor
	for row := 0; row < 4; row += 2 {
		tile, err := q.Rowwise(x.View(row, row+2, 0, 16), quant.With{Amax: &amax, FirstRow: row})
		if err != nil {
			fmt.Println(err)
			return
		}
		tiles = append(tiles, tile)
	}
	t, err := quant.Concat(tiles...)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(t.Shape, t.Amax)
	fmt.Println(t.Transpose())
	// Output:
	// [4 16] 3969
	// <nil> cannot transpose nvfp4 codes: got blocks of 1×16, want square ones; quantize the transpose from the source
}

// Stochastic rounding draws its bits from the element's place, so that it can be
// replayed.
func ExampleStream() {
	s := quant.Stream{Seed: 42, Step: 7, Tensor: 3}
	again := quant.Stream{Seed: 42, Step: 7, Tensor: 3}
	fmt.Println(s.At(1000) == again.At(1000), s.At(1000) == s.At(1001))
	// Output: true false
}
