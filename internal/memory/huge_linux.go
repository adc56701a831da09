package memory

import (
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"
)

// hugePage is the size of a huge page where pages have 4 KiB.
const hugePage = 2 << 20

// adviseHuge asks for huge pages in the memory of b and in the rest of the huge pages at its ends. It
// ignores errors: the system may have none.
func adviseHuge(b []byte) {
	start := uintptr(unsafe.Pointer(unsafe.SliceData(b)))
	from, to := start&^(hugePage-1), (start+uintptr(len(b))+hugePage-1)&^(hugePage-1)
	_, _, _ = unix.Syscall(unix.SYS_MADVISE, from, to-from, unix.MADV_HUGEPAGE)
	runtime.KeepAlive(b)
}
