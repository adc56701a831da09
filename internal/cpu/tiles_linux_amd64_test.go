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

// TestRefused: a process whose system refuses the registers of AMX has the other tiers.
func TestRefused(t *testing.T) {
	if !Has(AMX) {
		t.Skip("there is no AMX here that could be refused")
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
		runtime.LockOSThread() // and never unlocked: the thread ends with its filter
		if unfiltered = refuseTiles(); unfiltered == nil {
			out, err = exec.Command(self, "-test.run=^TestTiers$", "-test.v").CombinedOutput()
		}
	}()
	<-done
	if unfiltered != nil {
		t.Skipf("system calls cannot be filtered here: %v", unfiltered)
	}
	if want := "tiers: [avx512 avx2 plain]"; err != nil || !strings.Contains(string(out), want) {
		t.Errorf("without permission: %v, want %q in\n%s", err, want, out)
	}
}

// refuseTiles makes the request for the registers fail in processes that this thread
// starts.
func refuseTiles() error {
	const number, firstArgument = 0, 16 // in what a filter sees of a call
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
