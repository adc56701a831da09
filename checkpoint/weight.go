package checkpoint

import (
	"encoding/binary"
	"fmt"
	"iter"
	"math"
	"math/bits"
	"slices"
	"strings"

	"github.com/microscale-go/microscale/family"
	"github.com/microscale-go/microscale/format"
	"github.com/microscale-go/microscale/gguf/ggml"
	"github.com/microscale-go/microscale/hf"
	"github.com/microscale-go/microscale/layout"
	"github.com/microscale-go/microscale/quant"
	"github.com/microscale-go/microscale/safetensors"
	"github.com/microscale-go/microscale/tensor"
)

// A Weight is a tensor as it was before quantization. An unquantized weight is a tensor of the
// file.
type Weight struct {
	Name   string
	Shape  []int64
	Format quant.Format      // the zero Format if it is not quantized
	Dtype  safetensors.Dtype // of the source, if known
	Global float32           // decode scale of the whole tensor; 1 if the format has none
	Joined bool              // one expert, which the file of its convention has in one tensor with others (Convention.Joined)

	// untransposed: the file holds experts as [experts, out, in], whatever those of their layout have.
	untransposed bool
	// transposedCodes: the file holds the codes as [experts, in, out].
	transposedCodes bool
	swizzled        bool    // its scales are in tiles of 128×4
	stored          float32 // the number that the file has for Global

	scheme *scheme       // of a quantized weight
	stack  *family.Stack // of a weight that holds all experts of a layer
	guess  string        // ExpertsGuess of the weight that it is a part of
	view   *view         // of a weight that is a part of another
	parts  parts

	decoded *DecodedType // of a tensor that is quantized in a GGUF file; nil for others
	coded   *coded       // of a tensor whose codes are decoded as they are read; nil for others
}

// parts are the tensors that hold a weight, or nil. A checkpoint may have a million weights, so
// they are not a map.
type parts [rotation + 1]*hf.Tensor

// dtypeNames has the names of dtypes in lower case.
var dtypeNames = func() map[safetensors.Dtype]string {
	names := map[safetensors.Dtype]string{}
	for _, d := range safetensors.Dtypes() {
		names[d] = strings.ToLower(d.String())
	}
	return names
}()

// Quantized reports whether the weight is stored as codes and scales.
func (w *Weight) Quantized() bool { return w.Format.Element != nil }

// Decoded reports whether the weight is quantized in a type that no block format has, so that only its values are
// read: in a GGUF file, whose values the checkpoint has in F32, or in a layout of another tool.
func (w *Weight) Decoded() bool { return w.decoded != nil || w.coded != nil }

// hasCodes reports whether the file has codes and scales of the weight.
func (w *Weight) hasCodes() bool { return w.Quantized() || w.coded != nil }

// Blocks returns the elements of the blocks of a weight that is Decoded, which are runs of its rows, and a bound on
// the error of the elements of one whose largest magnitude in the source is amax. ok is false if no bound is known.
func (w *Weight) Blocks() (elements int, bound func(amax float32) float32, ok bool) {
	switch {
	case w.coded != nil:
		return w.coded.block, w.errorBound, w.coded.rotation == "" && (w.coded.quark == nil || w.coded.quark.scheme != "per_tensor")
	case w.decoded == nil || w.decoded.Joined:
		return 0, nil, false
	}
	q, err := ggml.LookupQuant(w.decoded.Type)
	return q.Elements, q.Bound, err == nil
}

// FormatName returns the name of the block format, or the dtype in lower case. A tensor that is decoded
// as it is read has the name of its type in the file.
func (w *Weight) FormatName() string {
	if w.Quantized() {
		return w.Format.Name
	}
	if w.decoded != nil {
		return strings.ToLower(w.decoded.Type)
	}
	if w.coded != nil {
		return w.coded.name
	}
	return dtypeNames[w.Dtype]
}

// Dense reports whether Read can return the values of the weight: it is quantized or of a
// floating-point dtype.
func (w *Weight) Dense() bool {
	_, ok := w.Dtype.Dense()
	return ok || w.Quantized()
}

// Matrix returns the size of the weight as a matrix, with leading dimensions folded into the
// rows. A vector is one row.
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

// Part returns the tensor that holds a part of the weight. An unquantized weight is its own
// Codes.
func (w *Weight) Part(p Part) (hf.Tensor, bool) {
	if int(p) >= len(w.parts) || w.parts[p] == nil {
		return hf.Tensor{}, false
	}
	return *w.parts[p], true
}

// StoredBytes returns the bytes of the weight in the files; for a view, its share.
func (w *Weight) StoredBytes() int64 {
	var n int64
	if w.view != nil {
		hi, lo := bits.Mul64(uint64(w.view.of.StoredBytes()), uint64(product(w.Shape)))
		share, _ := bits.Div64(hi, lo, uint64(max(1, product(w.view.of.Shape))))
		return int64(share)
	}
	if w.decoded != nil {
		return w.decoded.Bytes
	}
	for _, t := range w.parts {
		if t != nil {
			n += t.Bytes()
		}
	}
	return n
}

// Read returns the values of rows [from, to). A block of a quantized weight must begin at from.
// The weight must be Dense.
func (w *Weight) Read(from, to int) (tensor.Dense, error) {
	_, cols := w.Matrix()
	return w.ReadTile(Tile{From: from, To: to, ToCol: cols})
}

// ReadTile returns the values of a tile. For a quantized weight they are bit-identical to what
// the clients of its convention compute, and a block must begin at the tile. The weight must be
// Dense.
func (w *Weight) ReadTile(t Tile) (tensor.Dense, error) {
	if w.Quantized() {
		q, err := w.ReadCodes(t)
		if err != nil {
			return tensor.Dense{}, err
		}
		return w.scheme.decoded(q, w.stored).Dequantize(1), nil
	}
	if w.view != nil {
		return w.view.read(t)
	}
	if w.coded != nil {
		return w.readCoded(t)
	}
	if w.transposedFile() {
		return w.readTransposed(t)
	}
	_, cols := w.Matrix()
	x := tensor.New(t.To-t.From, t.ToCol-t.FromCol)
	return x, readDense(x.Data, *w.parts[Codes], t.DenseSpans(cols))
}

// ReadDecoded returns a tile of a quantized weight with the decode scales of Convention.Decoded, negative ones
// too.
func (w *Weight) ReadDecoded(t Tile) (*quant.Tensor, error) {
	q, err := quant.NewTensor(w.Format, t.To-t.From, t.ToCol-t.FromCol)
	if err != nil {
		return nil, err
	}
	if err := w.readInto(q, t); err != nil {
		return nil, err
	}
	return w.scheme.decoded(q, w.stored), nil
}

// Divided reports whether clients divide scales by the stored inverse of the global scale. The values of
// ReadTile then differ in the last bit from those of the codes, the scales and Global.
func (w *Weight) Divided() bool {
	return w.Format.Global && w.scheme.direction == inverse
}

// ReadCodes returns a tile of a quantized weight as stored: its codes, its scales and Global. A
// block must begin at the tile. A negative scale is an error.
func (w *Weight) ReadCodes(t Tile) (*quant.Tensor, error) {
	q, err := quant.NewTensor(w.Format, t.To-t.From, t.ToCol-t.FromCol)
	if err != nil {
		return nil, err
	}
	if err := w.ReadInto(q, t); err != nil {
		return nil, err
	}
	return q, nil
}

// ReadInto is ReadCodes into a tensor of the weight's format and the tile's shape.
func (w *Weight) ReadInto(q *quant.Tensor, t Tile) error {
	if err := w.readInto(q, t); err != nil {
		return err
	}
	return w.checkScales(q, t)
}

// readInto is ReadInto with negative scales.
func (w *Weight) readInto(q *quant.Tensor, t Tile) error {
	if block := w.Format.Block; block.Rows > 0 && t.From%block.Rows != 0 || block.Cols > 0 && t.FromCol%block.Cols != 0 {
		return fmt.Errorf("%s: row %d, column %d is within a block of %d×%d; read from an edge", w.Name, t.From, t.FromCol, block.Rows,
			block.Cols)
	}
	if w.view != nil {
		return w.view.readInto(q, t)
	}
	q.Global = w.Global
	_, cols := w.Matrix()
	if t.FromCol == 0 && t.ToCol == cols && !w.transposedCodes && !w.swizzled && !w.scheme.highFirst && !w.cropped() {
		return w.readRows(q, t)
	}
	if err := w.readCodes(q, t); err != nil {
		return err
	}
	if w.swizzled {
		return w.readSwizzled(q, t)
	}
	if q.Scales32 != nil {
		return readScales(q.Scales32, *w.parts[Scales], t.Spans(w.Format, Scales, cols))
	}
	for s := range t.Spans(w.Format, Scales, cols) {
		if err := readAt(*w.parts[Scales], q.Scales[s.From:s.To], s.At); err != nil {
			return err
		}
	}
	return nil
}

// checkScales returns an error if a scale of a tile is negative. No library writes such scales, and clients
// disagree about them: some multiply by them, others ignore the sign of E4M3 (ggml's UE4M3).
func (w *Weight) checkScales(q *quant.Tensor, t Tile) error {
	i := slices.IndexFunc(q.Scales32, func(scale float32) bool { return scale < 0 })
	if f := q.Format.Scale; q.Scales32 == nil && f != nil && !f.Unsigned {
		i = slices.IndexFunc(q.Scales, func(code byte) bool { return f.Decode(uint32(code)) < 0 })
	}
	if i < 0 {
		return nil
	}
	_, width := q.ScaleShape()
	block := w.Format.Block
	return fmt.Errorf("%s: the scale at row %d, column %d is negative, which clients read differently: the file is damaged, fetch it again",
		w.Name, t.From+i/width*max(1, block.Rows), t.FromCol+i%width*block.Cols)
}

// readCodes reads the codes of a tile.
func (w *Weight) readCodes(q *quant.Tensor, t Tile) error {
	_, cols := w.Matrix()
	if !w.transposedCodes {
		defer w.scheme.flip(q)
		spans := t.Spans(w.Format, Codes, cols)
		if w.cropped() {
			spans = croppedSpans(w.Format, cols, t)
		}
		for s := range spans {
			if err := readAt(*w.parts[Codes], q.Codes[s.From:s.To], s.At); err != nil {
				return err
			}
		}
		if w.scheme.highFirst {
			for i, pair := range q.Codes {
				q.Codes[i] = pair<<4 | pair>>4
			}
		}
		return nil
	}
	column, width := make([]byte, t.To-t.From), q.RowBytes()
	return w.columnRuns(t, func(r columnRun) error { // codes of one byte
		if err := readAt(*w.parts[Codes], column[:r.rows], r.at); err != nil {
			return err
		}
		for i, code := range column[:r.rows] {
			q.Codes[(r.row+i)*width+r.col] = code
		}
		return nil
	})
}

// cropped reports whether the file has no zeros in the partial last blocks of rows.
func (w *Weight) cropped() bool {
	_, cols := w.Matrix()
	return w.scheme.partial && !w.transposedCodes && w.Format.PaddedCols(cols) != cols
}

// readSwizzled reads the scales of a tile from the rows of 128×4 tiles that hold them.
func (w *Weight) readSwizzled(q *quant.Tensor, t Tile) error {
	const high = 128
	rows, cols := w.Matrix()
	rows, blocks := w.Format.ScaleShape(rows, cols)
	first, end := t.From/high*high, min((t.To+high-1)/high*high, rows)
	begin := layout.Swizzled.Offset(first, 0, rows, blocks)
	raw := make([]byte, layout.Swizzled.Size(end-first, blocks))
	if err := readAt(*w.parts[Scales], raw, int64(begin)); err != nil {
		return err
	}
	height, width := q.ScaleShape()
	for i := range height {
		for j := range width {
			q.Scales[i*width+j] = raw[layout.Swizzled.Offset(t.From+i-first, t.FromCol/w.Format.Block.Cols+j, end-first, blocks)]
		}
	}
	return nil
}

// readScales is readDense for FP32 scales, which files may also hold as powers of two.
func readScales(dst []float32, t hf.Tensor, at iter.Seq[Span]) error {
	if t.Dtype != safetensors.F8E8M0 {
		return readDense(dst, t, at)
	}
	for s := range at {
		raw := make([]byte, s.To-s.From)
		if err := readAt(t, raw, s.At); err != nil {
			return err
		}
		format.E8M0.DecodeSlice(dst[s.From:s.To], raw)
	}
	return nil
}

// readRows reads whole rows: codes and scales together, because a GGUF file interleaves them.
func (w *Weight) readRows(q *quant.Tensor, t Tile) error {
	codes, scales := w.parts[Codes], w.parts[Scales]
	_, cols := w.Matrix()
	at := func(p Part) (first int64) {
		for s := range t.Spans(w.Format, p, cols) {
			first = s.At // the only one
		}
		return first
	}
	raw, size := q.Scales, int64(1)
	if q.Scales32 != nil {
		size = int64(scales.Dtype.Bits() / 8)
		raw = make([]byte, size*int64(len(q.Scales32)))
	}
	if err := readPair(*codes, q.Codes, at(Codes), *scales, raw, size*at(Scales)); err != nil {
		return err
	}
	if w.scheme.flip(q); q.Scales32 == nil {
		return nil
	}
	if scales.Dtype == safetensors.F8E8M0 {
		format.E8M0.DecodeSlice(q.Scales32, raw)
		return nil
	}
	dense, ok := scales.Dtype.Dense()
	if !ok {
		return notValues(*scales)
	}
	return tensor.FromBytes(q.Scales32, raw, dense)
}

// ReadBytes returns the bytes of a tile of [Weight.Flat]. It uses buf if that is large enough.
// The weight must not be quantized. For one with hasBlocks they are those of its blocks.
func (w *Weight) ReadBytes(t Tile, buf []byte) ([]byte, error) {
	from, to := w.FlatBytes(t.FromCol), w.FlatBytes(t.ToCol)
	n := int(to - from)
	buf = slices.Grow(buf[:0], n)[:n]
	if w.hasBlocks() {
		return buf, readAt(*w.decoded.blocks, buf, from)
	}
	return buf, readAt(*w.parts[Codes], buf, from)
}

// hasBlocks reports whether the weight is decoded as it is read, and ReadBytes returns the bytes that its GGUF file has.
func (w *Weight) hasBlocks() bool { return w.decoded != nil && w.decoded.blocks != nil }

// FlatBytes returns the bytes of the first n elements of an unquantized weight. At the edges of
// the tiles of Flat it is exact for sub-byte elements and for blocks, too.
func (w *Weight) FlatBytes(n int) int64 {
	if w.hasBlocks() {
		elements, _, _ := w.Blocks()
		return int64(n/elements) * (w.decoded.Bytes / max(1, product(w.Shape)/int64(elements)))
	}
	return int64(n) * int64(w.Dtype.Bits()) / 8
}

// readDense sets dst to elements of a floating-point tensor.
func readDense(dst []float32, t hf.Tensor, at iter.Seq[Span]) error {
	dense, ok := t.Dtype.Dense()
	if !ok {
		return notValues(t)
	}
	size := dense.Bits() / 8
	for s := range at {
		raw := make([]byte, (s.To-s.From)*size)
		if err := readAt(t, raw, s.At*int64(size)); err != nil {
			return err
		}
		if err := tensor.FromBytes(dst[s.From:s.To], raw, dense); err != nil {
			return err
		}
	}
	return nil
}

func notValues(t hf.Tensor) error {
	return fmt.Errorf("%s: %s elements are not supported as values", t.Name, t.Dtype)
}

// readAt fills p with the bytes of a tensor from off on.
func readAt(t hf.Tensor, p []byte, off int64) error {
	return t.Shard.File.ReadTensorAt(p, t.TensorInfo, off)
}

// GlobalBytes returns a global scale as the bytes of its tensor.
func GlobalBytes(value float32) []byte {
	return binary.LittleEndian.AppendUint32(nil, math.Float32bits(value))
}

// readPair is readAt for two tensors: a single read if they are in one file.
func readPair(a hf.Tensor, p []byte, offA int64, b hf.Tensor, q []byte, offB int64) error {
	if f := a.Shard.File; f == b.Shard.File {
		return f.ReadTensorsAt([][]byte{p, q}, []safetensors.TensorInfo{a.TensorInfo, b.TensorInfo}, []int64{offA, offB})
	}
	if err := readAt(a, p, offA); err != nil {
		return err
	}
	return readAt(b, q, offB)
}
