package guard

import (
	"runtime/debug"
	"testing"
	"unsafe"
)

// TestFaults checks the contents of guarded memory, and that the byte beyond faults.
func TestFaults(t *testing.T) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	for _, n := range []int{1, 100, 4096, 5000} {
		for _, side := range []Side{End, Start} {
			data := make([]byte, n)
			data[0], data[n-1] = 1, 2
			b := Copy(t, data, side)
			if string(b) != string(data) {
				t.Errorf("n=%d: the copy differs", n)
			}
			beyond := unsafe.Add(unsafe.Pointer(&b[0]), -1)
			if side == End {
				beyond = unsafe.Add(unsafe.Pointer(&b[0]), n)
			}
			if !faults(beyond) {
				t.Errorf("n=%d side=%d: the byte beyond is readable", n, side)
			}
		}
	}
}

var sink byte

func faults(p unsafe.Pointer) (fault bool) {
	defer func() { fault = recover() != nil }()
	sink = *(*byte)(p)
	return false
}
