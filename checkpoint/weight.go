package checkpoint

import (
	"encoding/binary"
	"fmt"
	"math"
	"strings"

	"github.com/microscale-go/microscale/hf"
	"github.com/microscale-go/microscale/quant"
	"github.com/microscale-go/microscale/safetensors"
	"github.com/microscale-go/microscale/tensor"
)

// A Weight is a tensor as it was before quantization. An unquantized one is a
// tensor of the file.
type Weight struct {
	Name   string
	Shape  []int64
	Dtype  safetensors.Dtype // of the source, as far as is known
	Format quant.Format      // the zero Format where it is not quantized
	Global float32           // decode scale of the whole tensor; 1 where the format has none

	parts map[Part]hf.Tensor
}

// Quantized reports whether the weight is stored as codes and scales.
func (w *Weight) Quantized() bool { return w.Format.Element != nil }

// FormatName returns the name of the block format, or the dtype in lower case.
func (w *Weight) FormatName() string {
	if w.Quantized() {
		return w.Format.Name
	}
	return strings.ToLower(w.Dtype.String())
}

// Dense reports whether Read can give the weight's values: it is quantized, or
// of a floating-point dtype.
func (w *Weight) Dense() bool {
	_, ok := denseFormats[w.Dtype]
	return ok || w.Quantized()
}

// Matrix returns the weight's extent as a matrix, leading dimensions folded into
// the rows; a vector is one row.
func (w *Weight) Matrix() (rows, cols int) {
	if len(w.Shape) == 0 {
		return 1, 1
	}
	rows, cols = 1, int(w.Shape[len(w.Shape)-1])
	for _, d := range w.Shape[:len(w.Shape)-1] {
		rows *= int(d)
	}
	return rows, cols
}

// Part returns the tensor of the file that holds a part of the weight; an
// unquantized weight is its own Codes.
func (w *Weight) Part(p Part) (hf.Tensor, bool) {
	t, ok := w.parts[p]
	return t, ok
}

// StoredBytes returns the bytes that the weight takes in the files.
func (w *Weight) StoredBytes() int64 {
	var n int64
	for _, t := range w.parts {
		n += t.Bytes()
	}
	return n
}

// Read returns rows [from, to) as values. Of a quantized weight, from lies on
// the edge of a block. The weight must be Dense.
func (w *Weight) Read(from, to int) (tensor.Dense, error) {
	if w.Quantized() {
		q, err := w.ReadCodes(from, to)
		if err != nil {
			return tensor.Dense{}, err
		}
		return q.Dequantize(1), nil
	}
	_, cols := w.Matrix()
	x := tensor.New(to-from, cols)
	return x, readDense(x.Data, w.parts[Codes], from*cols)
}

// ReadCodes returns rows [from, to) of a quantized weight as they are stored.
// from lies on the edge of a block.
func (w *Weight) ReadCodes(from, to int) (*quant.Tensor, error) {
	_, cols := w.Matrix()
	if extent := w.Format.Block.Rows; extent > 0 && from%extent != 0 {
		return nil, fmt.Errorf("%s: row %d is within a block of %d rows; read from an edge", w.Name, from, extent)
	}
	q, err := quant.NewTensor(w.Format, to-from, cols)
	if err != nil {
		return nil, err
	}
	q.Global = w.Global
	if err := readAt(w.parts[Codes], q.Codes, int64(from*q.LineBytes())); err != nil {
		return nil, err
	}
	firstRow := 0
	if w.Format.Block.Rows > 0 {
		firstRow = from / w.Format.Block.Rows
	}
	_, scaleCols := q.ScaleShape()
	first := firstRow * scaleCols
	if q.Scales32 != nil {
		return q, readDense(q.Scales32, w.parts[Scales], first)
	}
	return q, readAt(w.parts[Scales], q.Scales, int64(first))
}

// readDense sets dst to the elements of a floating-point tensor from the given
// one on.
func readDense(dst []float32, t hf.Tensor, first int) error {
	dense, ok := denseFormats[t.Dtype]
	if !ok {
		return fmt.Errorf("%s: %s elements are not read as values", t.Name, t.Dtype)
	}
	size := dense.Bits() / 8
	raw := make([]byte, len(dst)*size)
	if err := readAt(t, raw, int64(first*size)); err != nil {
		return err
	}
	return tensor.FromBytes(dst, raw, dense)
}

// readAt fills p with the bytes of a tensor from off on.
func readAt(t hf.Tensor, p []byte, off int64) error {
	return t.Shard.File.ReadTensorAt(p, t.TensorInfo, off)
}

// GlobalBytes returns a global scale as its tensor holds it.
func GlobalBytes(value float32) []byte {
	return binary.LittleEndian.AppendUint32(nil, math.Float32bits(value))
}

// ReadBytes returns rows [from, to) of an unquantized weight as the file has
// them: the bytes of a share of the tensor.
func (w *Weight) ReadBytes(from, to int) ([]byte, error) {
	p := make([]byte, w.TileBytes(from, to))
	return p, readAt(w.parts[Codes], p, w.TileBytes(0, from))
}

// TileBytes returns the bytes of rows [from, to) of the tensor that holds the
// weight, or its codes.
func (w *Weight) TileBytes(from, to int) int64 {
	rows, _ := w.Matrix()
	if rows == 0 {
		return 0
	}
	n := w.parts[Codes].Bytes() / int64(rows)
	if to == rows { // rows of sub-byte dtypes may not fill bytes: the last tile takes what is left
		return w.parts[Codes].Bytes() - n*int64(from)
	}
	return n * int64(to-from)
}
