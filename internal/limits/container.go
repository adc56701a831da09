package limits

import (
	"errors"
	"fmt"
	"strings"
	"syscall"
)

// CheckRange returns an error unless the n bytes at off are inside a tensor of size bytes of the file at path.
func CheckRange(path, tensor string, size int64, n int, off int64) error {
	if off < 0 || off > size || int64(n) > size-off {
		return fmt.Errorf("%s: tensor %s: %d bytes at %d are not inside its %d bytes", path, Quote(tensor), n, off, size)
	}
	return nil
}

// FileError describes a failed read or write of the file at path. It wraps the cause, or returns one that begins with the path.
func FileError(path, where string, cause error) error {
	if strings.HasPrefix(cause.Error(), path+": ") {
		return cause
	}
	cause = Cause(cause) // without a second path on the line
	if errors.Is(cause, syscall.ENOSPC) {
		return fmt.Errorf("%s: %s: %w: free space on that filesystem and run again", path, where, cause)
	}
	return fmt.Errorf("%s: %s: %w", path, where, cause)
}
