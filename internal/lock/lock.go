// Package lock prevents two processes from writing to the same directory, and writes files durably.
package lock

import (
	"errors"
	"io/fs"
	"os"

	"github.com/gofrs/flock"
)

// ErrHeld is the error of Dir if another process holds the lock, or renamed or removed the directory
// meanwhile.
var ErrHeld = errors.New("locked by another run")

// tryLock is a variable so that a test can simulate a filesystem without locks.
var tryLock = (*flock.Flock).TryLock

// A Lock is the lock of a directory, held by this process.
type Lock struct{ file *flock.Flock }

// Dir locks a directory until Close. The operating system also releases the lock when the process ends.
// Dir returns ErrHeld if another process holds the lock. On network filesystems without locks, Dir
// succeeds, and two runs may write to the same directory.
func Dir(path string) (*Lock, error) {
	if _, err := os.Stat(path); err != nil {
		return nil, err
	}
	l := &Lock{lockFile(path)}
	ok, err := tryLock(l.file)
	switch {
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, fs.ErrPermission):
		return nil, err
	case err == nil && (!ok || !l.names(path)):
		return nil, errors.Join(ErrHeld, l.Close())
	}
	return l, nil
}
