package memory

import (
	"unsafe"

	"golang.org/x/sys/windows"
)

var globalMemoryStatusEx = windows.NewLazySystemDLL("kernel32.dll").NewProc("GlobalMemoryStatusEx")

// Available returns the number of bytes that processes can still allocate, including the
// paging file.
func Available() int64 {
	var status struct { // MEMORYSTATUSEX of sysinfoapi.h
		length, load                                       uint32
		totalPhys, availPhys, totalPageFile, availPageFile uint64
		totalVirtual, availVirtual, availExtendedVirtual   uint64
	}
	status.length = uint32(unsafe.Sizeof(status))
	if ok, _, _ := globalMemoryStatusEx.Call(uintptr(unsafe.Pointer(&status))); ok == 0 || status.availPageFile > unknown {
		return unknown
	}
	return int64(status.availPageFile)
}
