package comm

import (
	"fmt"

	"github.com/microscale-go/microscale/format"
	"github.com/microscale-go/microscale/internal/memory"
	"github.com/microscale-go/microscale/quant"
	"github.com/microscale-go/microscale/tensor"
)

// A Wire is the format in which values travel between ranks.
type Wire interface {
	// String returns the name of the format.
	String() string
	// Block returns the number of consecutive values that share a scale; 1 without scales.
	Block() int
	// Size returns the bytes of n values.
	Size(n int) int
	// Encode rounds src to the format, in dst of Size(len(src)) bytes.
	Encode(dst []byte, src []float32)
	// Decode sets dst to the values that src holds.
	Decode(dst []float32, src []byte)
}

// Formats without scales. F32 is exact.
var (
	F32  Wire = floatWire{scalarWire{format.F32}}
	BF16 Wire = scalarWire{format.BF16}
)

// Round sets dst to src rounded to the format of a wire, as Encode and Decode do.
func Round(dst, src []float32, wire Wire) {
	if wire == F32 {
		copy(dst, src)
		return
	}
	data := make([]byte, wire.Size(len(src)))
	wire.Encode(data, src)
	wire.Decode(dst, data)
}

type scalarWire struct{ scalar *format.Scalar }

// String returns the name of the format.
func (w scalarWire) String() string { return w.scalar.Name }

// Block returns 1: values have no scales.
func (w scalarWire) Block() int { return 1 }

// Size returns the bytes of n values.
func (w scalarWire) Size(n int) int { return n * w.scalar.StoredBits() / 8 }

// Encode rounds src to the format.
func (w scalarWire) Encode(dst []byte, src []float32) { must(tensor.ToBytes(dst, src, w.scalar)) }

// Decode converts src to float32.
func (w scalarWire) Decode(dst []float32, src []byte) { must(tensor.FromBytes(dst, src, w.scalar)) }

// A floatWire copies float32 values in the order of bytes of the machine, which all ranks share.
type floatWire struct{ scalarWire }

// Encode copies src.
func (floatWire) Encode(dst []byte, src []float32) { copy(dst, memory.Bytes(src)) }

// Decode copies src.
func (floatWire) Decode(dst []float32, src []byte) { copy(memory.Bytes(dst), src) }

// Quantized returns the wire of a quantizer whose blocks are one row high, such as MXFP8 or
// FP8 in blocks of 1×128. The values of one message are one row: the codes of all blocks,
// followed by their scales and, in formats with a global scale, by that.
func Quantized(q quant.Quantizer) (Wire, error) {
	if err := q.Validate(); err != nil {
		return nil, err
	}
	f := q.Format
	if !f.Scaled() || f.Block.Rows != 1 || f.Block.Cols == 0 || q.Rounding == format.Stochastic {
		return nil, fmt.Errorf("values cannot travel as %s: want blocks within a row, rounded without random bits", f)
	}
	return quantizedWire{q}, nil
}

type quantizedWire struct{ quantizer quant.Quantizer }

// String returns the name of the format.
func (w quantizedWire) String() string { return w.quantizer.Format.Name }

// Block returns the block size of the format.
func (w quantizedWire) Block() int { return w.quantizer.Format.Block.Cols }

// Size returns the bytes of the codes, the scales and the global scale of n values.
func (w quantizedWire) Size(n int) int {
	if n == 0 {
		return 0
	}
	f := w.quantizer.Format
	_, scales := f.ScaleShape(1, n)
	size := (f.PaddedCols(n)*f.Element.StoredBits() + scales*f.Scale.StoredBits()) / 8
	if f.Global {
		size += 4
	}
	return size
}

// Encode quantizes src as one row.
func (w quantizedWire) Encode(dst []byte, src []float32) {
	if len(src) == 0 {
		return
	}
	t, err := w.quantizer.Rowwise(tensor.Of(1, len(src), src), quant.With{})
	must(err)
	dst = dst[copy(dst, t.Codes):]
	dst = dst[copy(dst, t.ScaleBytes()):]
	copy(dst, w.globalBytes(t))
}

// Decode dequantizes one row.
func (w quantizedWire) Decode(dst []float32, src []byte) {
	if len(dst) == 0 {
		return
	}
	t, err := quant.NewTensor(w.quantizer.Format, 1, len(dst))
	must(err)
	src = src[copy(t.Codes, src):]
	src = src[copy(t.Scales, src):]
	src = src[copy(memory.Bytes(t.Scales32), src):]
	if w.quantizer.Format.Global {
		var global [1]float32
		copy(memory.Bytes(global[:]), src)
		t.Global = global[0]
	}
	copy(dst, t.Dequantize(1).Data)
}

// globalBytes returns the global scale of t, nothing where the format has none.
func (w quantizedWire) globalBytes(t *quant.Tensor) []byte {
	if !w.quantizer.Format.Global {
		return nil
	}
	return memory.Bytes([]float32{t.Global})
}

// must panics on errors that checked arguments exclude.
func must(err error) {
	if err != nil {
		panic("comm: " + err.Error())
	}
}
