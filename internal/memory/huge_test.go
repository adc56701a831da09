//go:build linux && amd64

package memory

import (
	"bufio"
	"fmt"
	"os"
	"runtime"
	"strings"
	"testing"
	"unsafe"
)

// TestHuge finds the advice to use huge pages in the flags of memory.
func TestHuge(t *testing.T) {
	if _, err := os.Stat("/sys/kernel/mm/transparent_hugepage"); err != nil {
		t.Skipf("this system has no transparent huge pages: %v", err)
	}
	for _, n := range []int{hugeBytes, 3<<20 + 5} {
		b := make([]byte, n)
		Huge(b)
		at := uintptr(unsafe.Pointer(&b[0]))
		advised, end := uintptr(0), at+uintptr(n)
		for _, m := range mappings(t) {
			if m.advised && m.from < end && m.to > at {
				advised += min(m.to, end) - max(m.from, at)
			}
		}
		runtime.KeepAlive(b)
		if advised != uintptr(n) {
			t.Errorf("%d of %d bytes are advised", advised, n)
		}
	}
}

type mapping struct {
	from, to uintptr
	advised  bool
}

// mappings returns the parts of the address space with the same flags, in order. The heap may grow
// meanwhile: the kernel then lists memory again, as the beginning of a longer mapping.
func mappings(t *testing.T) (all []mapping) {
	t.Helper()
	f, err := os.Open("/proc/self/smaps")
	if err != nil {
		t.Skipf("flags of memory are unknown: %v", err)
	}
	defer f.Close()
	var m mapping
	listed := uintptr(0) // the end of the previous mapping
	for lines := bufio.NewScanner(f); lines.Scan(); {
		line := lines.Text()
		if _, err := fmt.Sscanf(line, "%x-%x ", &m.from, &m.to); err == nil {
			continue
		}
		if flags, ok := strings.CutPrefix(line, "VmFlags:"); ok {
			m.advised = strings.Contains(flags+" ", " hg ")
			m.from = max(m.from, listed)
			listed = m.to
			all = append(all, m)
		}
	}
	return all
}
