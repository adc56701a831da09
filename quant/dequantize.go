package quant

import (
	"fmt"

	"github.com/microscale-go/microscale/internal/cpu"
	"github.com/microscale-go/microscale/internal/memory"
	"github.com/microscale-go/microscale/internal/parallel"
	"github.com/microscale-go/microscale/tensor"
)

// Dequantize returns the values of t in the shape of its source, leading
// dimensions folded into rows: float32(scale·global)·code, rounded once. A
// tensor that was quantized with the Hadamard transform gives transformed values. It panics
// if t is not valid (see Validate).
func (t *Tensor) Dequantize(threads int) tensor.Dense {
	t.mustBeValid()
	x := tensor.New(t.StoredRows(), t.StoredCols())
	t.DequantizeRows(x, 0, threads)
	if t.Direction == Columnwise {
		return x.Transpose()
	}
	return x
}

// DequantizeRows sets the rows of dst to the values of stored rows of t, from the first
// on: rows of its source, or of the transpose of its source if t is columnwise. It panics if
// t or dst is not valid (see their Validate), or if dst is not part of that matrix.
func (t *Tensor) DequantizeRows(dst tensor.Dense, first, threads int) {
	t.mustBeValid()
	if err := dst.Validate(); err != nil {
		panic("quant: " + err.Error())
	}
	if first < 0 || dst.Rows > t.StoredRows()-first || dst.Cols != t.StoredCols() {
		panic(fmt.Sprintf("quant: dequantize rows from %d on: got %d×%d, want rows of %d×%d", first, dst.Rows, dst.Cols, t.StoredRows(), t.StoredCols()))
	}
	stream := 4*dst.Rows*dst.Cols >= streamBytes
	parallel.For(dst.Rows, max(1, grainElements/max(1, dst.Cols)), threads, func(from, to int) {
		decode := t.rowDecoder()
		if stream {
			decode = streamed(decode, dst.Cols)
			defer fence()
		}
		for l := from; l < to; l++ {
			decode(dst.Row(l), first+l)
		}
	})
}

// mustBeValid panics with the error of Validate.
func (t *Tensor) mustBeValid() {
	if err := t.Validate(); err != nil {
		panic("quant: " + err.Error())
	}
}

// streamed returns decode with non-temporal stores of whole cache lines, by way of a row
// that stays in the caches.
func streamed(decode func(dst []float32, l int), width int) func(dst []float32, l int) {
	const unit = cacheLine / 4
	if width < unit {
		return decode
	}
	line := make([]float32, width)
	from := memory.Bytes(line)
	return func(dst []float32, l int) {
		to := memory.Bytes(dst)
		if !isAligned(to) {
			decode(dst, l)
			return
		}
		decode(line, l)
		spread(to, from, width/unit*cacheLine, 1, 0)
		copy(dst[width/unit*unit:], line[width/unit*unit:])
	}
}

// decodeCodes divides the number of codes whose scales a kernel reads.
const decodeCodes = 64

// rowDecoder returns a function that sets dst to the values of stored row l.
func (t *Tensor) rowDecoder() func(dst []float32, l int) {
	element := t.Format.Element
	if !t.Format.Scaled() {
		return func(dst []float32, l int) {
			if err := tensor.FromBytes(dst, t.row(l), element); err != nil {
				panic(err) // Validate checked its size
			}
		}
	}
	for _, k := range decodeKernels {
		if k.tier <= cpu.Best() && k.supports(element) && t.Format.Block.Cols%k.extent == 0 && t.StoredCols() > 0 {
			tables := decodeTablesOf[element]
			scales := make([]float32, ceilDiv(t.scaleCols()*t.extent(), decodeCodes)*decodeCodes/k.extent)
			return func(dst []float32, l int) {
				t.fillScales(scales, l, k.extent)
				k.decode(dst, t.row(l), scales, tables)
			}
		}
	}
	return t.plainRowDecoder()
}

// plainRowDecoder is rowDecoder without kernels.
func (t *Tensor) plainRowDecoder() func(dst []float32, l int) {
	const together = 1024 // codes in whole bytes, so that a long row needs no memory of its length
	element, extent, padded := t.Format.Element, t.extent(), t.paddedCols()
	scales, codes := make([]float32, t.scaleCols()), make([]byte, min(together, padded))
	return func(dst []float32, l int) {
		t.fillScales(scales, l, extent)
		row := t.row(l)
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

// fillScales sets scales[i] to the scale of the elements of stored row l from i·each on.
// each divides the extent of a block, or is that of the row.
func (t *Tensor) fillScales(scales []float32, l, each int) {
	n := t.scaleCols()
	first := blockIndex(l, t.Format.Block.Rows) * n
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
