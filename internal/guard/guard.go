// Package guard gives tests memory that faults on the first byte read or
// written beyond its end, or before its beginning:
//
//	│ no access │ …free… data │ no access │     End
//	│ no access │ data …free… │ no access │     Start
package guard

import "testing"

// A Side is the side of the memory that is guarded to the byte.
type Side int

const (
	End   Side = iota // the byte behind the last faults
	Start             // the byte before the first faults
)

// Bytes returns n bytes of zeros with the side guarded, until the test ends. It
// skips the test where the operating system does not offer guarded pages.
func Bytes(t testing.TB, n int, side Side) []byte {
	t.Helper()
	return pages(t, n, side)
}

// Copy returns a guarded copy of data.
func Copy(t testing.TB, data []byte, side Side) []byte {
	t.Helper()
	b := Bytes(t, len(data), side)
	copy(b, data)
	return b
}
