package quant

import (
	"math"
	"sync/atomic"
	"unsafe"

	"github.com/microscale-go/microscale/format"
	"github.com/microscale-go/microscale/internal/memory"
	"github.com/microscale-go/microscale/internal/parallel"
	"github.com/microscale-go/microscale/tensor"
)

// A source is a matrix that is quantized: float32, or BF16 as checkpoints store it.
type source struct {
	dense tensor.Dense
	raw   tensor.BF16
	isRaw bool
}

func denseSource(x tensor.Dense) source { return source{dense: x} }

func rawSource(x tensor.BF16) source { return source{raw: x, isRaw: true} }

// sourceOf returns a matrix of either kind.
func sourceOf[M tensor.Dense | tensor.BF16](x M) source {
	if raw, ok := any(x).(tensor.BF16); ok {
		return rawSource(raw)
	}
	return denseSource(any(x).(tensor.Dense))
}

// validate reports a matrix whose data does not hold it.
func (s source) validate() error {
	if s.isRaw {
		return s.raw.Validate()
	}
	return s.dense.Validate()
}

// shape returns the rows and columns.
func (s source) shape() (rows, cols int) {
	if s.isRaw {
		return s.raw.Rows, s.raw.Cols
	}
	return s.dense.Rows, s.dense.Cols
}

// elementBytes returns the bytes of an element.
func (s source) elementBytes() int {
	if s.isRaw {
		return 2
	}
	return 4
}

// strideBytes returns the distance of rows in bytes.
func (s source) strideBytes() int {
	if s.isRaw {
		return s.raw.Stride * s.elementBytes()
	}
	return s.dense.Stride * s.elementBytes()
}

// isContiguous reports whether no bytes lie between rows.
func (s source) isContiguous() bool {
	rows, cols := s.shape()
	return rows <= 1 || s.strideBytes() == cols*s.elementBytes()
}

// view returns rows [r0, r1) of columns [c0, c1).
func (s source) view(r0, r1, c0, c1 int) source {
	if !s.isRaw {
		return denseSource(s.dense.View(r0, r1, c0, c1))
	}
	s.raw.Data = s.raw.Data[2*(r0*s.raw.Stride+c0):]
	s.raw.Rows, s.raw.Cols = r1-r0, c1-c0
	return s
}

// flat returns all elements of a contiguous matrix as one row.
func (s source) flat() source {
	s.dense.Rows, s.dense.Cols, s.dense.Stride = min(1, s.dense.Rows), s.dense.Rows*s.dense.Cols, s.dense.Rows*s.dense.Cols
	s.raw.Rows, s.raw.Cols, s.raw.Stride = min(1, s.raw.Rows), s.raw.Rows*s.raw.Cols, s.raw.Rows*s.raw.Cols
	return s
}

// bytes returns the memory of rows [from, to), with the bytes between them.
func (s source) bytes(from, to int) []byte {
	rows, cols := s.shape()
	if from == to || rows == 0 || cols == 0 {
		return nil
	}
	if s.isRaw {
		return s.raw.Data[2*from*s.raw.Stride : 2*((to-1)*s.raw.Stride+cols)]
	}
	return memory.Bytes(s.dense.Data[from*s.dense.Stride : (to-1)*s.dense.Stride+cols])
}

// row returns the values of columns [c0, c1) of a row, in the scratch buffer or shared
// with the source.
func (s source) row(i, c0, c1 int, scratch *[]float32) []float32 {
	if !s.isRaw {
		return s.dense.Row(i)[c0:c1]
	}
	values := grow(scratch, c1-c0)
	widen(values, s.raw.Row(i)[2*c0:2*c1])
	return values
}

// maxBits returns the largest bits of a magnitude in rows [from, to). NaN is above Inf.
func (s source) maxBits(from, to int) (amax uint32) {
	_, cols := s.shape()
	if from == to || cols == 0 {
		return 0
	}
	if s.isContiguous() {
		return maxBits(s.bytes(from, to), s.isRaw)
	}
	for i := from; i < to; i++ {
		amax = max(amax, maxBits(s.bytes(i, i+1), s.isRaw))
	}
	return amax
}

// amaxBits returns the bits of the largest magnitude in rows [from, to), NaN aside, and
// whether there is NaN.
func (s source) amaxBits(from, to int) (amax uint32, hasNaN bool) {
	if amax = s.maxBits(from, to); amax <= exponentMask {
		return amax, false
	}
	amax = 0
	_, cols := s.shape()
	for i := from; i < to; i++ {
		for j := range cols {
			var bits uint32
			if s.isRaw {
				bits = (uint32(s.raw.Row(i)[2*j])<<16 | uint32(s.raw.Row(i)[2*j+1])<<24) & absMask
			} else {
				bits = math.Float32bits(s.dense.Row(i)[j]) & absMask
			}
			if bits <= exponentMask {
				amax = max(amax, bits)
			}
		}
	}
	return amax, true
}

// Amax returns the largest magnitude of x; NaN is ignored, Inf is not. It panics if x
// is not valid.
func Amax[M tensor.Dense | tensor.BF16](x M, threads int) float32 {
	return sourceOf(x).mustAmax(threads)
}

func (s source) mustAmax(threads int) float32 {
	if err := s.validate(); err != nil {
		panic(err)
	}
	amax, _ := s.amax(threads)
	return amax
}

// amax returns the largest magnitude, NaN aside, and whether there is NaN.
func (s source) amax(threads int) (amax float32, hasNaN bool) {
	var seen, nan atomic.Uint32
	rows, cols := s.shape()
	parallel.For(rows, max(1, grainElements/max(1, cols)), threads, func(from, to int) {
		a, isNaN := s.amaxBits(from, to)
		atomicMax(&seen, a)
		atomicMax(&nan, uint32(index(isNaN)))
	})
	return math.Float32frombits(seen.Load()), nan.Load() > 0
}

// floats returns the memory of float32 values.
func floats(b []byte) []float32 {
	return unsafe.Slice((*float32)(unsafe.Pointer(unsafe.SliceData(b))), len(b)/4)
}

// widen sets dst to the BF16 values of src.
func widen(dst []float32, src []byte) {
	if err := tensor.FromBytes(dst, src, format.BF16); err != nil {
		panic(err) // callers size both
	}
}

func atomicMax(m *atomic.Uint32, v uint32) {
	for {
		old := m.Load()
		if old >= v || m.CompareAndSwap(old, v) {
			return
		}
	}
}

// grow returns n elements of a scratch buffer, which it enlarges where they do not fit.
func grow[T any](s *[]T, n int) []T {
	if len(*s) < n {
		*s = make([]T, n)
	}
	return (*s)[:n]
}

// index returns 1 for true.
func index(b bool) int {
	if b {
		return 1
	}
	return 0
}
