package quant

import (
	"math"
	"sync"
	"sync/atomic"
	"unsafe"

	"github.com/microscale-go/microscale/format"
	"github.com/microscale-go/microscale/internal/cpu"
	"github.com/microscale-go/microscale/internal/memory"
	"github.com/microscale-go/microscale/internal/parallel"
	"github.com/microscale-go/microscale/tensor"
)

// A source is the matrix that is quantized, its rows the lines of the result:
// float32, or BF16 as checkpoints store it. A matrix whose columns are the lines is
// turned, by prepare, before these are read.
type source struct {
	dense   tensor.Dense
	raw     tensor.BF16
	isRaw   bool
	columns bool // of the matrix are the lines

	transform bool // by Hadamard16, before anything else
}

func denseSource(x tensor.Dense) source { return source{dense: x} }

func rawSource(x tensor.BF16) source { return source{raw: x, isRaw: true} }

func columnSource(x tensor.Dense) source { return source{dense: x, columns: true} }

func rawColumnSource(x tensor.BF16) source { return source{raw: x, isRaw: true, columns: true} }

// validate reports a matrix whose data does not hold it.
func (s source) validate() error {
	if s.isRaw {
		return s.raw.Validate()
	}
	return s.dense.Validate()
}

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

// turn sets dst to columns of the matrix, which begin with the given row and column.
func (s source) turn(dst tensor.Dense, row, col int) {
	if !s.isRaw {
		transpose(dst, s.dense.View(row, row+dst.Cols, col, col+dst.Rows))
		return
	}
	wide := newRoomy(dst.Cols, dst.Rows)
	defer wide.giveBack()
	for i := range wide.Rows {
		widen(wide.Row(i), s.raw.Row(row + i)[2*col:2*(col+wide.Cols)])
	}
	transpose(dst, wide.Dense)
}

// part returns rows [r0, r1) of columns [c0, c1) of the matrix, to be quantized as rows.
func (s source) part(r0, r1, c0, c1 int) source {
	if !s.isRaw {
		return denseSource(s.dense.View(r0, r1, c0, c1))
	}
	s.raw.Data = s.raw.Data[2*(r0*s.raw.Stride+c0):]
	s.raw.Rows, s.raw.Cols = r1-r0, c1-c0
	return rawSource(s.raw)
}

// fetch brings a part of a matrix to the second-level cache.
func (s source) fetch() {
	for _, k := range fetchKernels {
		if k.tier <= cpu.Best() {
			rows, cols := s.shape()
			k.fetch(s.bytes(0, rows), ceilDiv(cols*s.elementBytes(), 64), rows, s.strideBytes())
			return
		}
	}
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
	return s.roomIn(new([]float32))
}

// roomIn is room in memory that is borrowed.
func (s source) roomIn(borrowed *[]float32) []float32 {
	if !s.isRaw {
		return nil
	}
	grow(borrowed, s.raw.Cols)
	return *borrowed
}

// row returns the values of row l, in room or shared with the source.
func (s source) row(l int, room []float32) []float32 {
	_, cols := s.shape()
	return s.elements(l, 0, cols, room)
}

// elements returns columns [c0, c1) of row l, in room or shared with the source.
func (s source) elements(l, c0, c1 int, room []float32) []float32 {
	if !s.isRaw {
		return s.dense.Row(l)[c0:c1]
	}
	room = room[:c1-c0]
	widen(room, s.raw.Row(l)[s.elementBytes()*c0:s.elementBytes()*c1])
	return room
}

// bytes returns the memory of rows [from, to), with what lies between them.
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
	return memory.Bytes(s.dense.Data[from*s.dense.Stride : (to-1)*s.dense.Stride+s.dense.Cols])
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

// prepare sets dst to lines, transformed where it is asked for, from the given line and
// position on.
func (s source) prepare(dst tensor.Dense, line, position int) {
	if s.columns {
		s.turn(dst, position, line)
	}
	size := s.elementBytes()
	for i := range dst.Rows {
		row := dst.Row(i)
		if !s.columns {
			s.copyValues(row, s.bytes(line+i, line+i+1)[size*position:])
		}
		if s.transform {
			hadamardLine(row)
		}
	}
}

// copyValues sets dst to the values of memory that bytes returned.
func (s source) copyValues(dst []float32, b []byte) {
	if s.isRaw {
		widen(dst, b[:2*len(dst)])
		return
	}
	copy(dst, unsafe.Slice((*float32)(unsafe.Pointer(unsafe.SliceData(b))), len(dst)))
}

// prepared returns all lines.
func (s source) prepared(threads int) roomy {
	x := newRoomy(s.rows(), s.cols())
	grain := ceilDiv(max(1, grainElements/max(1, x.Cols)), transposeSize) * transposeSize
	parallel.For(x.Rows, grain, threads, func(from, to int) {
		s.prepare(x.View(from, to, 0, x.Cols), from, 0)
	})
	return x
}

// lineBits returns the bits of the largest magnitude of line l, NaN aside.
func (s source) lineBits(l int) uint32 {
	line := newRoomy(1, s.cols())
	defer line.giveBack()
	s.prepare(line.Dense, l, 0)
	a, _ := amaxBits(line.Data)
	return a
}

// Amax returns the largest magnitude of x; NaN is ignored, Inf is not. It panics where x
// is not valid.
func Amax(x tensor.Dense, threads int) float32 { return denseSource(x).mustAmax(threads) }

// AmaxBF16 is Amax of a matrix in BF16.
func AmaxBF16(x tensor.BF16, threads int) float32 { return rawSource(x).mustAmax(threads) }

func (s source) mustAmax(threads int) float32 {
	if err := s.validate(); err != nil {
		panic(err)
	}
	return s.amax(threads)
}

// amax is Amax of the lines.
func (s source) amax(threads int) float32 {
	var seen atomic.Uint32
	if s.transform {
		s.transformed(threads, func(x []float32) {
			a, _ := amaxBits(x)
			atomicMax(&seen, a)
		})
		return math.Float32frombits(seen.Load())
	}
	s.columns = false // the order does not matter
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

// transformed calls seen with the elements of all parts of the lines.
func (s source) transformed(threads int, seen func(x []float32)) {
	const lines, width = 4 * transposeSize, 1 << 10 // multiples of what is transformed together
	parallel.For(ceilDiv(s.cols(), width), 1, threads, func(from, to int) {
		room := newRoomy(lines, width)
		defer room.giveBack()
		for p := from * width; p < min(to*width, s.cols()); p += width {
			for l := 0; l < s.rows(); l += lines {
				m, n := min(lines, s.rows()-l), min(width, s.cols()-p)
				x := tensor.Of(m, n, room.Data[:m*n])
				s.prepare(x, l, p)
				seen(x.Data)
			}
		}
	})
}

// hasNaN reports whether an element is NaN.
func (s source) hasNaN() bool {
	if s.transform {
		lines := s.prepared(1)
		defer lines.giveBack()
		s = denseSource(lines.Dense)
	}
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
	if err := tensor.FromBytes(dst, src, format.BF16); err != nil {
		panic(err) // callers size both
	}
}
