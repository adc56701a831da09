//go:build !linux

package cpu

// Seconds returns the processor time of the process, user and system; 0 if unknown.
func Seconds() float64 { return 0 }
