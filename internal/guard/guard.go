// Package guard gives tests memory that faults on an access after its end, or before its
// start:
//
//	│ no access │ …free… data │ no access │     End
//	│ no access │ data …free… │ no access │     Start
package guard

import "testing"

// A Side is the end of the memory that is guarded to the byte.
type Side int

const (
	End   Side = iota // the byte after the last faults
	Start             // the byte before the first faults
)

// Bytes returns n zero bytes with the given side guarded, until the test ends. It skips the
// test if the operating system does not support guarded pages.
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
