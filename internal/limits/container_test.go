package limits

import (
	"errors"
	"io/fs"
	"math"
	"syscall"
	"testing"
)

// TestCheckRange accepts the ranges inside a tensor of 10 bytes, and no others.
func TestCheckRange(t *testing.T) {
	for _, tc := range []struct {
		n   int
		off int64
		ok  bool
	}{{0, 0, true}, {10, 0, true}, {4, 6, true}, {0, 10, true}, {11, 0, false}, {1, 10, false}, {1, -1, false}, {0, 11, false},
		{1, math.MaxInt64, false}, {math.MaxInt, 1, false}} {
		if err := CheckRange("file", "w", 10, tc.n, tc.off); (err == nil) != tc.ok {
			t.Errorf("%d bytes at %d: got %v", tc.n, tc.off, err)
		}
	}
}

func TestFileError(t *testing.T) {
	full := &fs.PathError{Op: "write", Path: "other", Err: syscall.ENOSPC}
	for want, cause := range map[string]error{
		"a: byte 3: " + syscall.ENOSPC.Error() + ": free space on that filesystem and run again": full,
		"a: byte 3: broken": errors.New("broken"),
	} {
		if err := FileError("a", "byte 3", cause); err.Error() != want || !errors.Is(err, Cause(cause)) {
			t.Errorf("got %v, want %s", err, want)
		}
	}
}
