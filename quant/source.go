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

// A source is a matrix that is quantized: of float32, or of BF16 as checkpoints store it.
type source struct {
	data       []byte
	rows, cols int
	stride     int // bytes from one row to the next
	size       int // bytes of an element: 4, or 2 of BF16
}

func denseSource(x tensor.Dense) source {
	const size = 4
	return source{memory.Bytes(x.Data), x.Rows, x.Cols, size * x.Stride, size}
}

func bf16Source(x tensor.BF16) source {
	const size = 2
	return source{x.Data, x.Rows, x.Cols, size * x.Stride, size}
}

// sourceOf returns a matrix of either kind, and an error if it is not valid.
func sourceOf[M tensor.Dense | tensor.BF16](x M) (source, error) {
	switch x := any(x).(type) {
	case tensor.BF16:
		return bf16Source(x), x.Validate()
	default:
		dense := x.(tensor.Dense)
		return denseSource(dense), dense.Validate()
	}
}

func (s source) isBF16() bool { return s.size == 2 }

// isContiguous reports whether no bytes lie between rows.
func (s source) isContiguous() bool { return s.rows <= 1 || s.stride == s.cols*s.size }

// view returns rows [r0, r1) of columns [c0, c1).
func (s source) view(r0, r1, c0, c1 int) source {
	s.rows, s.cols = r1-r0, c1-c0
	if s.rows == 0 || s.cols == 0 {
		s.data = nil
		return s
	}
	from := r0*s.stride + c0*s.size
	s.data = s.data[from : from+(s.rows-1)*s.stride+s.cols*s.size]
	return s
}

// flat returns all elements of a contiguous matrix as one row.
func (s source) flat() source {
	s.rows, s.cols = min(1, s.rows), s.rows*s.cols
	s.stride = s.cols * s.size
	return s
}

// bytes returns the memory of rows [from, to), with the bytes between them.
func (s source) bytes(from, to int) []byte {
	if from == to || s.cols == 0 {
		return nil
	}
	return s.data[from*s.stride : (to-1)*s.stride+s.cols*s.size]
}

// row returns the values of columns [c0, c1) of a row, in the scratch buffer or shared
// with the source.
func (s source) row(i, c0, c1 int, scratch *[]float32) []float32 {
	row := s.bytes(i, i+1)[c0*s.size : c1*s.size]
	if !s.isBF16() {
		return floats(row)
	}
	values := grow(scratch, c1-c0)
	widen(values, row)
	return values
}

// maxBits returns the largest bits of a magnitude in rows [from, to). NaN is above Inf.
func (s source) maxBits(from, to int) (amax uint32) {
	if s.isContiguous() {
		return maxBits(s.bytes(from, to), s.isBF16())
	}
	for i := from; i < to; i++ {
		amax = max(amax, maxBits(s.bytes(i, i+1), s.isBF16()))
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
	for i := from; i < to; i++ {
		row := s.bytes(i, i+1)
		for j := range s.cols {
			if bits := magnitude(row, s.isBF16(), j); bits <= exponentMask {
				amax = max(amax, bits)
			}
		}
	}
	return amax, true
}

// Amax returns the largest magnitude of x; NaN is ignored, Inf is not. It panics if x
// is not valid.
func Amax[M tensor.Dense | tensor.BF16](x M, threads int) float32 {
	s, err := sourceOf(x)
	if err != nil {
		panic(err)
	}
	amax, _ := s.amax(threads)
	return amax
}

// amax returns the largest magnitude, NaN aside, and whether there is NaN.
func (s source) amax(threads int) (amax float32, hasNaN bool) {
	var seen, nan atomic.Uint32
	parallel.For(s.rows, max(1, grainElements/max(1, s.cols)), threads, func(from, to int) {
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

// wordBytes returns the memory of x.
func wordBytes(x []uint32) []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(x))), 4*len(x))
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
