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

// Round sets dst to src rounded to the format of wire.
func Round(dst, src []float32, wire Wire) {
	if wire == F32 {
		copy(dst, src)
		return
	}
	data := make([]byte, wire.Size(min(len(src), chunkElements)))
	for len(src) > 0 {
		n := min(len(src), chunkElements)
		part := data[:wire.Size(n)]
		wire.Encode(part, src[:n])
		wire.Decode(dst[:n], part)
		dst, src = dst[n:], src[n:]
	}
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

// A floatWire copies float32 values in the byte order of the machine. All ranks have the same.
type floatWire struct{ scalarWire }

// Encode copies src.
func (floatWire) Encode(dst []byte, src []float32) { copy(dst, memory.Bytes(src)) }

// Decode copies src.
func (floatWire) Decode(dst []float32, src []byte) { copy(memory.Bytes(dst), src) }

// Quantized returns the wire of a quantizer whose blocks are one row high, such as MXFP8 or
// FP8 in blocks of 1×128. Encode quantizes its values as one row. It writes the codes of all blocks, then
// the scales, then the global scale of formats that have one. Operations of a Group encode at most 32768
// values at a time.
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

// Encode quantizes src.
func (w quantizedWire) Encode(dst []byte, src []float32) {
	if len(src) == 0 {
		return
	}
	t, rest := w.view(dst, len(src))
	_, err := w.quantizer.Rowwise(tensor.Of(t.Rows(), t.Cols(), src), quant.With{Into: t, Threads: 1})
	must(err)
	rest = rest[copy(rest, memory.Bytes(t.Scales32)):]
	if w.quantizer.Format.Global {
		copy(rest, memory.Bytes([]float32{t.Global}))
	}
}

// Decode dequantizes src.
func (w quantizedWire) Decode(dst []float32, src []byte) {
	if len(dst) == 0 {
		return
	}
	t, rest := w.view(src, len(dst))
	rest = rest[copy(memory.Bytes(t.Scales32), rest):]
	if w.quantizer.Format.Global {
		global := []float32{1}
		copy(memory.Bytes(global), rest)
		t.Global = global[0]
	}
	t.DequantizeRows(tensor.Of(t.Rows(), t.Cols(), dst), 0, 1)
}

// Values are quantized and dequantized as rows of at most rowElements elements, which stay in the
// caches, or as a single row where their number has no divisor for rows of minRowElements. The codes
// and scales are those of a single row.
const (
	rowElements    = 4096
	minRowElements = 256
)

// view returns a tensor of n values whose codes and 8-bit scales are memory of data, and the data behind
// them: the FP32 scales, if the format has them, and the global scale.
func (w quantizedWire) view(data []byte, n int) (t *quant.Tensor, rest []byte) {
	f := w.quantizer.Format
	cols := min(n&-n, rowElements) // a power of two
	if cols < minRowElements || cols%f.Block.Cols != 0 {
		cols = n
	}
	codes := f.PaddedCols(n) * f.Element.StoredBits() / 8
	_, scales := f.ScaleShape(1, n)
	t = &quant.Tensor{Format: f, Shape: []int{n / cols, cols}, Codes: data[:codes:codes], Global: 1}
	if f.Scale == format.F32 {
		t.Scales32 = make([]float32, scales)
		return t, data[codes:]
	}
	t.Scales, rest = data[codes:codes+scales:codes+scales], data[codes+scales:]
	return t, rest
}

// must panics on errors that checked arguments exclude.
func must(err error) {
	if err != nil {
		panic("comm: " + err.Error())
	}
}
