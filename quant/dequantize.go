package quant

import (
	"fmt"

	"github.com/microscale-go/microscale/internal/cpu"
	"github.com/microscale-go/microscale/internal/memory"
	"github.com/microscale-go/microscale/internal/parallel"
	"github.com/microscale-go/microscale/tensor"
)

// Dequantize returns the values of t as a matrix of Rows × Cols: float32(scale·global)·code,
// rounded once. A tensor that was quantized with the Hadamard transform gives transformed values.
// Dequantize panics if t is not valid (see Validate).
func (t *Tensor) Dequantize(threads int) tensor.Dense {
	t.mustBeValid()
	x := tensor.New(t.StoredRows(), t.StoredCols())
	t.DequantizeRows(x, 0, threads)
	if t.Direction == Columnwise {
		return x.Transpose()
	}
	return x
}

// DequantizeRows sets dst to the values of dst.Rows stored rows of t, from row first on. They are
// rows of the source, or of its transpose if t is columnwise. DequantizeRows panics if t or dst is not
// valid (see their Validate), if dst does not have StoredCols columns, or if t has fewer rows.
func (t *Tensor) DequantizeRows(dst tensor.Dense, first, threads int) {
	t.mustBeValid()
	if err := dst.Validate(); err != nil {
		panic("quant: " + err.Error())
	}
	if first < 0 || dst.Rows > t.StoredRows()-first || dst.Cols != t.StoredCols() {
		panic(fmt.Sprintf("quant: dequantize rows from %d on: got %d×%d, want rows of %d×%d", first, dst.Rows, dst.Cols, t.StoredRows(),
			t.StoredCols()))
	}
	stream := 4*dst.Rows*dst.Cols >= streamBytes
	parallel.For(dst.Rows, max(1, grainElements/max(1, dst.Cols)), threads, func(from, to int) {
		decode := t.rowDecoder()
		if stream {
			decode = streamed(decode, dst.Cols)
			defer fence()
		}
		for i := from; i < to; i++ {
			decode(dst.Row(i), first+i)
		}
	})
}

// mustBeValid panics with the error of Validate.
func (t *Tensor) mustBeValid() {
	if err := t.Validate(); err != nil {
		panic("quant: " + err.Error())
	}
}

// streamed returns decode with non-temporal stores of whole cache lines. It decodes to a buffer of
// one row, which stays in the caches, and copies that.
func streamed(decode func(dst []float32, i int), width int) func(dst []float32, i int) {
	const unit = cacheLine / 4
	if width < unit {
		return decode
	}
	row := make([]float32, width)
	from := memory.Bytes(row)
	return func(dst []float32, i int) {
		to := memory.Bytes(dst)
		if !isAligned(to) {
			decode(dst, i)
			return
		}
		decode(row, i)
		spread(to, from, width/unit*cacheLine, 1, 0)
		copy(dst[width/unit*unit:], row[width/unit*unit:])
	}
}

// decodeCodes divides the number of codes whose scales a kernel reads.
const decodeCodes = 64

// rowDecoder returns a function that sets dst to the values of stored row i.
func (t *Tensor) rowDecoder() func(dst []float32, i int) {
	element := t.Format.Element
	if !t.Format.Scaled() {
		return func(dst []float32, i int) {
			if err := tensor.FromBytes(dst, t.row(i), element); err != nil {
				panic(err) // Validate checked its size
			}
		}
	}
	for _, k := range decodeKernels {
		if cpu.Uses(k.needs) && k.supports.holds(element) && t.Format.Block.Cols%k.extent == 0 && t.StoredCols() > 0 {
			tables := decodeTablesOf[element]
			scales := make([]float32, ceilDiv(t.scaleCols()*t.extent(), decodeCodes)*decodeCodes/k.extent)
			return func(dst []float32, i int) {
				t.fillScales(scales, i, k.extent)
				k.decode(dst, t.row(i), scales, tables)
			}
		}
	}
	return t.plainRowDecoder()
}

// plainRowDecoder is rowDecoder without kernels.
func (t *Tensor) plainRowDecoder() func(dst []float32, i int) {
	const together = 1024 // codes in whole bytes, so that a long row needs no memory of its length
	element, extent, padded := t.Format.Element, t.extent(), t.paddedCols()
	scales, codes := make([]float32, t.scaleCols()), make([]byte, min(together, padded))
	return func(dst []float32, i int) {
		t.fillScales(scales, i, extent)
		row := t.row(i)
		for from := 0; from < len(dst); from += together {
			part := codes[:min(together, padded-from)]
			element.Split(part, row[from*element.StoredBits()/8:])
			for c, to := from, min(from+together, len(dst)); c < to; {
				end := min(c-c%extent+extent, to)
				element.DecodeSliceScaled(dst[c:end], part[c-from:end-from], scales[c/extent])
				c = end
			}
		}
	}
}

// extent returns the number of elements of a stored row that share a scale.
func (t *Tensor) extent() int {
	if t.Format.Block.Cols == 0 {
		return max(1, t.StoredCols())
	}
	return t.Format.Block.Cols
}

// fillScales sets scales[j] to the scale of the elements of a stored row from j·each on.
// each divides the extent of a block, or is that of the row.
func (t *Tensor) fillScales(scales []float32, row, each int) {
	n := t.scaleCols()
	first := blockIndex(row, t.Format.Block.Rows) * n
	if t.Scales32 != nil {
		copy(scales, t.Scales32[first:first+n])
	} else {
		t.Format.Scale.DecodeSliceScaled(scales, t.Scales[first:first+n], t.global())
	}
	repeat := ceilDiv(t.extent(), each)
	if repeat == 1 {
		return
	}
	for i := n - 1; i >= 0; i-- { // from the end, since they are written over later ones
		scale := scales[i]
		for j := i * repeat; j < (i+1)*repeat; j++ {
			scales[j] = scale
		}
	}
}
