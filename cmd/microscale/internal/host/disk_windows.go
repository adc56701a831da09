package host

import (
	"math"

	"golang.org/x/sys/windows"
)

// FreeBytes returns the free bytes of the filesystem of a directory; +Inf if unknown.
func FreeBytes(dir string) float64 {
	name, err := windows.UTF16PtrFromString(dir)
	if err != nil {
		return math.Inf(1)
	}
	var free uint64
	if err := windows.GetDiskFreeSpaceEx(name, &free, nil, nil); err != nil {
		return math.Inf(1)
	}
	return float64(free)
}
