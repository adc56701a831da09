//go:build !linux

package host

func ResetResident() {}

func PeakResident() int64 { return Resident("self") }

// Resident returns the peak resident memory in bytes of a process, by its number; 0 if
// unknown.
func Resident(string) int64 { return 0 }
