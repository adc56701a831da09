// Package memory asks for huge pages, tests whether slices overlap, and reports the available memory.
package memory

import "unsafe"

// Rows are N ranges of Memory, each Bytes long, that start Next bytes apart.
type Rows struct {
	Memory         []byte
	N, Bytes, Next int
}

// All returns the single range that covers x.
func All(x []byte) Rows { return Rows{x, 1, len(x), len(x)} }

// Meet reports whether a range shares bytes with x.
func (r Rows) Meet(x []byte) bool {
	if r.N == 0 || r.Bytes == 0 || len(x) == 0 {
		return false
	}
	start, from := uintptr(unsafe.Pointer(&r.Memory[0])), uintptr(unsafe.Pointer(&x[0]))
	if from < start {
		return from+uintptr(len(x)) > start
	}
	at := from - start
	i := 0
	if r.N > 1 { // a single range may have any Next
		i = min(int(at/uintptr(r.Next)), r.N-1)
	}
	within := at - uintptr(i*r.Next)
	return within < uintptr(r.Bytes) || i+1 < r.N && within+uintptr(len(x)) > uintptr(r.Next)
}

// Bytes returns the memory of x.
func Bytes[T float32 | float64](x []T) []byte {
	var zero T
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(x))), len(x)*int(unsafe.Sizeof(zero)))
}
