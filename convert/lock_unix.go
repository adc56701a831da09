//go:build unix && !solaris && !aix

package convert

import (
	"errors"
	"os"
	"syscall"
)

// flock is replaced in a test by that of a filesystem without locks.
var flock = syscall.Flock

// lockDir opens a directory and locks it against other runs. The lock ends with
// the process, however it ends. On a filesystem that cannot lock a directory
// (some network ones), two runs to one destination are not kept apart.
func lockDir(path string) (*os.File, error) {
	d, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	if err := flock(int(d.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); errors.Is(err, syscall.EWOULDBLOCK) {
		d.Close()
		return nil, errLocked
	}
	return d, nil
}
