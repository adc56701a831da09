package quant_test

import (
	"bytes"
	"fmt"
	"log"

	"github.com/microscale-go/microscale/quant"
	"github.com/microscale-go/microscale/tensor"
)

// The examples of the documents that docs/documents.md lists.

// quantized returns x quantized along its rows.
func quantized(q quant.Quantizer, x tensor.Dense, with quant.With) *quant.Tensor {
	t, err := q.Rowwise(x, with)
	if err != nil {
		log.Fatal(err)
	}
	return t
}

// Values of two magnitudes, under one scale for the tensor and one for each block of 32. E4M3 spans
// more than their factor of 10⁴, so that both keep the small values.
func Example_mixedMagnitudes() {
	x := tensor.New(1, 64)
	copy(x.Data, []float32{100, 95, 103})
	copy(x.Data[32:], []float32{0.01, 0.02, 0.015})
	for _, f := range []quant.Format{quant.FP8Tensor, quant.MXFP8} {
		t := quantized(quant.Quantizer{Format: f}, x, quant.With{})
		y := t.Dequantize(1).Data
		fmt.Printf("%-10s scales %.4g and %.4g: %.4g %.4g\n", f, t.Scale(0, 0), t.Scale(0, 32), y[:3], y[32:35])
	}
	// Output:
	// fp8-tensor scales 0.2299 and 0.2299: [103 95.64 103] [0.009879 0.01976 0.01437]
	// mxfp8      scales 0.25 and 6.104e-05: [96 96 104] [0.009766 0.01953 0.01465]
}

// The worked block of eight values, and the scale of a block with amax 3600.
func Example_workedBlock() {
	x := tensor.Of(1, 8, []float32{0.1, 0.25, 0.5, 1.2, 3.8, 12, 45, 150})
	t := quantized(quant.Quantizer{Format: quant.MXFP8}, x, quant.With{})
	fmt.Println("scale", t.Scale(0, 0))
	for i, y := range t.Dequantize(1).Data {
		fmt.Printf("%-4v → %-7v %+.1f%%\n", x.Data[i], y, 100*(y/x.Data[i]-1))
	}
	large := quantized(quant.Quantizer{Format: quant.MXFP8}, tensor.Of(1, 1, []float32{3600}), quant.With{})
	fmt.Println("amax 3600: scale", large.Scale(0, 0))
	// Output:
	// scale 0.5
	// 0.1  → 0.1015625 +1.6%
	// 0.25 → 0.25    +0.0%
	// 0.5  → 0.5     +0.0%
	// 1.2  → 1.25    +4.2%
	// 3.8  → 3.75    -1.3%
	// 12   → 12      +0.0%
	// 45   → 44      -2.2%
	// 150  → 144     -4.0%
	// amax 3600: scale 16
}

// A row of 40 elements is stored as two blocks. Decoding trims the zeros that fill the second.
func Example_partialBlock() {
	x := tensor.New(1, 40)
	for i := range x.Data {
		x.Data[i] = float32(i)
	}
	t := quantized(quant.Quantizer{Format: quant.MXFP8}, x, quant.With{})
	y := t.Dequantize(1)
	fmt.Println(len(t.Codes), "codes,", len(t.Scales), "scales,", y.Cols, "values, the last", y.At(0, 39))
	// Output: 64 codes, 2 scales, 40 values, the last 40
}

// Rowwise and columnwise copies have other scales, so they differ in value: neither follows from the
// other.
func Example_directions() {
	x := tensor.New(32, 32)
	for i := range x.Data {
		x.Data[i] = float32(i%32)*100 + 1.9
	}
	q := quant.Quantizer{Format: quant.MXFP8}
	columnwise, err := q.Columnwise(x, quant.With{})
	if err != nil {
		log.Fatal(err)
	}
	rowwise := quantized(q, x, quant.With{})
	fmt.Println("rowwise scale", rowwise.Scale(0, 0), "value", rowwise.Dequantize(1).At(0, 0))
	fmt.Println("columnwise scale", columnwise.Scale(0, 0), "value", columnwise.Dequantize(1).At(0, 0))
	// Output:
	// rowwise scale 8 value 1.875
	// columnwise scale 0.0078125 value 1.875
}

// Square blocks of a weight: the columnwise copy has the same codes, transposed.
func Example_squareBlocks() {
	x := tensor.New(64, 64)
	for i := range x.Data {
		x.Data[i] = float32(i%97) / 31
	}
	q := quant.Quantizer{Format: quant.MXFP8x32}
	transposed, err := quantized(q, x, quant.With{}).Transpose()
	if err != nil {
		log.Fatal(err)
	}
	columnwise, err := q.Columnwise(x, quant.With{})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("the same codes:", bytes.Equal(transposed.Codes, columnwise.Codes), "and scales:",
		bytes.Equal(transposed.Scales, columnwise.Scales))
	// Output: the same codes: true and scales: true
}

// The three steps of current scaling: amax, scale, cast.
func Example_currentScaling() {
	x := tensor.Of(1, 4, []float32{0.3952, -1.5, 7, 0.01})
	amax := quant.Amax(x, 1)
	t := quantized(quant.Quantizer{Format: quant.FP8Tensor}, x, quant.With{Amax: &amax})
	fmt.Println("amax", amax, "decode scale", t.Scales32[0])
	fmt.Printf("codes % x, values %.4g\n", t.Codes, t.Dequantize(1).Data)
	// Output:
	// amax 7 decode scale 0.015625
	// codes 5d ec 7e 32, values [0.4062 -1.5 7 0.009766]
}

// A global scale of NVFP4 that was calibrated before: the amax does not come from the tensor. Values
// above it saturate.
func Example_calibrated() {
	calibrated := float32(6)
	for _, x := range [][]float32{{0.5, -3}, {0.5, -12}} {
		t := quantized(quant.Quantizer{Format: quant.NVFP4}, tensor.Of(1, 2, x), quant.With{Amax: &calibrated})
		fmt.Printf("global scale %.4g: %v became %.4g\n", t.Global, x, t.Dequantize(1).Data)
	}
	// Output:
	// global scale 0.002232: [0.5 -3] became [0.5 -3]
	// global scale 0.002232: [0.5 -12] became [0.5 -6]
}
