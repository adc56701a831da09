package main

import (
	"fmt"
	"math"
	"os"
	"strings"
	"syscall"
)

// resetResident begins a new measurement of resident.
func resetResident() {
	const peak = "5" // proc(5), clear_refs: reset the high water mark
	_ = os.WriteFile("/proc/self/clear_refs", []byte(peak), 0)
}

// resident returns the most bytes of memory that the process had since, 0 where
// the system does not say.
func resident() int64 { return residentOf("self") }

// residentOf is resident of a process, by its number.
func residentOf(process string) int64 {
	status, err := os.ReadFile("/proc/" + process + "/status")
	if err != nil {
		return 0
	}
	_, after, _ := strings.Cut(string(status), "VmHWM:")
	var kilobytes int64
	if _, err := fmt.Sscan(after, &kilobytes); err != nil {
		return 0
	}
	return kilobytes << 10
}

// processorSeconds returns the time of processors that the process has taken, its own
// and the system's for it; 0 where the system does not say.
func processorSeconds() float64 {
	var r syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &r); err != nil {
		return 0
	}
	return float64(r.Utime.Nano()+r.Stime.Nano()) / 1e9
}

// freeBytes returns how many more bytes a folder has room for, +Inf where the system does
// not say.
func freeBytes(folder string) float64 {
	var s syscall.Statfs_t
	if err := syscall.Statfs(folder, &s); err != nil || s.Blocks == 0 {
		return math.Inf(1)
	}
	return float64(s.Bavail) * float64(s.Bsize)
}
