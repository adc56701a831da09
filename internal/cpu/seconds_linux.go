package cpu

import "syscall"

// Seconds returns the processor time of the process, user and system; 0 if unknown.
func Seconds() float64 {
	var r syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &r); err != nil {
		return 0
	}
	return float64(r.Utime.Nano()+r.Stime.Nano()) / 1e9
}
