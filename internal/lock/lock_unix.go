//go:build unix && !solaris && !aix

package lock

import (
	"errors"
	"os"
	"syscall"
)

// flock is replaced in a test by that of a filesystem without locks.
var flock = syscall.Flock

// Dir opens a directory and locks it against other runs until it is closed. The
// lock ends with the process, however it ends. It is ErrHeld where another run has
// it. On a filesystem that cannot lock a directory (some network ones), two runs to
// one directory are not kept apart.
func Dir(path string) (*os.File, error) {
	d, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	if err := flock(int(d.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); errors.Is(err, syscall.EWOULDBLOCK) {
		d.Close()
		return nil, ErrHeld
	}
	return d, nil
}
