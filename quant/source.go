package quant

import (
	"math"
	"sync"
	"sync/atomic"
	"unsafe"

	"github.com/microscale-go/microscale/format"
	"github.com/microscale-go/microscale/internal/cpu"
	"github.com/microscale-go/microscale/internal/parallel"
	"github.com/microscale-go/microscale/tensor"
)

// A source is the matrix that is quantized, its rows the lines of the result:
// float32, or BF16 as checkpoints store it. Of a matrix whose columns are the
// lines, only the shape is asked here; strips turn it.
type source struct {
	dense   tensor.Dense
	raw     tensor.BF16
	isRaw   bool
	columns bool // of the matrix are the lines
	first   int  // number of the first row of dense: it may be a part of the matrix
}

func denseSource(x tensor.Dense) source { return source{dense: x} }

func rawSource(x tensor.BF16) source { return source{raw: x, isRaw: true} }

func columnSource(x tensor.Dense) source { return source{dense: x, columns: true} }

func rawColumnSource(x tensor.BF16) source { return source{raw: x, isRaw: true, columns: true} }

// rows returns the number of lines.
func (s source) rows() int {
	rows, cols := s.shape()
	if s.columns {
		return cols
	}
	return rows
}

// cols returns the elements of a line.
func (s source) cols() int {
	rows, cols := s.shape()
	if s.columns {
		return rows
	}
	return cols
}

// shape returns the rows and columns of the matrix.
func (s source) shape() (rows, cols int) {
	if s.isRaw {
		return s.raw.Rows, s.raw.Cols
	}
	return s.dense.Rows, s.dense.Cols
}

// turn sets dst to the lines from first on, which are columns of the matrix.
func (s source) turn(dst tensor.Dense, first int) {
	if !s.isRaw {
		transpose(dst, s.dense.View(0, s.dense.Rows, first, first+dst.Rows))
		return
	}
	wide := newRoomy(dst.Cols, dst.Rows)
	defer wide.giveBack()
	for i := range wide.Rows {
		widen(wide.Row(i), s.raw.Row(i)[2*first:2*(first+wide.Cols)])
	}
	transpose(dst, wide.Dense)
}

// elementBytes returns the bytes of an element in memory.
func (s source) elementBytes() int {
	if s.isRaw {
		return 2
	}
	return 4
}

// strideBytes returns the distance of rows in memory.
func (s source) strideBytes() int {
	if s.isRaw {
		return s.raw.Stride * s.elementBytes()
	}
	return s.dense.Stride * s.elementBytes()
}

// room returns space for row, nil where it needs none.
func (s source) room() []float32 {
	if s.isRaw {
		return make([]float32, s.raw.Cols)
	}
	return nil
}

// row returns the values of row l, in room or shared with the source.
func (s source) row(l int, room []float32) []float32 {
	if !s.isRaw {
		return s.dense.Row(l - s.first)
	}
	widen(room, s.raw.Row(l))
	return room
}

// bytes returns the memory of rows [from, to), which must not have gaps.
func (s source) bytes(from, to int) []byte {
	if s.isRaw {
		if from == to || s.raw.Cols == 0 {
			return nil
		}
		return s.raw.Data[2*from*s.raw.Stride : 2*((to-1)*s.raw.Stride+s.raw.Cols)]
	}
	if from == to || s.dense.Cols == 0 {
		return nil
	}
	from, to = from-s.first, to-s.first
	x := s.dense.Data[from*s.dense.Stride : (to-1)*s.dense.Stride+s.dense.Cols]
	return unsafe.Slice((*byte)(unsafe.Pointer(&x[0])), 4*len(x))
}

// hasGaps reports whether there is anything between rows.
func (s source) hasGaps() bool {
	if s.isRaw {
		return s.raw.Stride != s.raw.Cols
	}
	return s.dense.Stride != s.dense.Cols
}

// values returns the values of memory that bytes returned.
func (s source) values(b []byte) []float32 {
	if s.isRaw {
		x := make([]float32, len(b)/2)
		widen(x, b)
		return x
	}
	return unsafe.Slice((*float32)(unsafe.Pointer(&b[0])), len(b)/4)
}

// A roomy matrix is one in borrowed memory, to be given back.
type roomy struct {
	tensor.Dense
	memory *[]float32
}

var rooms = sync.Pool{New: func() any { return new([]float32) }}

func newRoomy(rows, cols int) roomy {
	memory := rooms.Get().(*[]float32)
	grow(memory, rows*cols)
	return roomy{tensor.Of(rows, cols, (*memory)[:rows*cols]), memory}
}

func (r roomy) giveBack() { rooms.Put(r.memory) }

// lines returns a copy of the lines, transformed where it is asked for.
func (s source) lines(hadamard bool, threads int) roomy {
	x := newRoomy(s.rows(), s.cols())
	grain := max(1, grainElements/max(1, x.Cols))
	if s.columns {
		grain = ceilDiv(grain, transposeSize) * transposeSize
	}
	parallel.For(x.Rows, grain, threads, func(from, to int) {
		if s.columns {
			s.turn(x.View(from, to, 0, x.Cols), from)
		}
		for i := from; i < to; i++ {
			if !s.columns {
				copy(x.Row(i), s.row(i, x.Row(i)))
			}
			if hadamard {
				hadamardLine(x.Row(i))
			}
		}
	})
	return x
}

// Amax returns the largest magnitude of x; NaN is ignored, Inf is not.
func Amax(x tensor.Dense, threads int) float32 { return denseSource(x).amax(threads) }

// AmaxBF16 is Amax of a matrix in BF16.
func AmaxBF16(x tensor.BF16, threads int) float32 { return rawSource(x).amax(threads) }

// amax is Amax.
func (s source) amax(threads int) float32 {
	s.columns = false // the order does not matter
	var seen atomic.Uint32
	parallel.For(s.rows(), max(1, grainElements/max(1, s.cols())), threads, func(from, to int) {
		var amax uint32
		step := to - from
		if s.hasGaps() {
			step = 1
		}
		for i := from; i < to; i += step {
			rows := s.bytes(i, i+step)
			a := s.maxBits(rows)
			if a > exponentMask {
				a, _ = amaxBits(s.values(rows))
			}
			amax = max(amax, a)
		}
		atomicMax(&seen, amax)
	})
	return math.Float32frombits(seen.Load())
}

// hasNaN reports whether an element is NaN.
func (s source) hasNaN() bool {
	s.columns = false
	for l := range s.rows() {
		if s.maxBits(s.bytes(l, l+1)) > exponentMask {
			return true
		}
	}
	return false
}

// widen sets dst to the BF16 values of src.
func widen(dst []float32, src []byte) {
	if len(dst) > 0 {
		for _, k := range widenKernels {
			if k.tier <= cpu.Best() {
				k.widen(dst, src)
				return
			}
		}
	}
	if err := tensor.FromBytes(dst, src, format.BF16); err != nil {
		panic(err) // callers size both
	}
}

// narrow sets dst to the BF16 of src; false where there is no kernel for it.
func narrow(dst []byte, src []float32) bool {
	for _, k := range narrowKernels {
		if k.tier <= cpu.Best() && len(src) > 0 {
			k.narrow(dst, src)
			return true
		}
	}
	return false
}
