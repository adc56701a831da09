//go:build !purego

package cpu

import (
	"os"
	"os/exec"
	"runtime"
	"strings"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"
)

// TestNoPermission checks that a process without permission for the AMX registers uses the
// other tiers.
func TestNoPermission(t *testing.T) {
	if !Has(AMX.Set()) {
		t.Skip("this processor has no AMX")
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	var out []byte
	var unfiltered error
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread() // and never unlock: the thread ends with its filter
		if unfiltered = denyTiles(); unfiltered == nil {
			out, err = exec.Command(self, "-test.run=^TestTiers$", "-test.v").CombinedOutput()
		}
	}()
	<-done
	if unfiltered != nil {
		t.Skipf("cannot filter system calls: %v", unfiltered)
	}
	if want := "tiers: [avx512 avx512vbmi avx512vnni avx512f "; err != nil || !strings.Contains(string(out), want) {
		t.Errorf("without permission: got %v, want %q in\n%s", err, want, out)
	}
}

// denyTiles makes the request for the registers fail in processes that this thread starts.
func denyTiles() error {
	const number, firstArgument = 0, 16 // offsets in the seccomp data of a system call
	filter := []unix.SockFilter{
		{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: number},
		{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: unix.SYS_ARCH_PRCTL, Jf: 3},
		{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: firstArgument},
		{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: requestPermission, Jf: 1},
		{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ERRNO | uint32(unix.EPERM)},
		{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ALLOW},
	}
	program := unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return err
	}
	return unix.Prctl(unix.PR_SET_SECCOMP, unix.SECCOMP_MODE_FILTER, uintptr(unsafe.Pointer(&program)), 0, 0)
}
