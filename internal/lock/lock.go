// Package lock keeps two processes from writing to one directory.
package lock

import (
	"errors"
	"io/fs"
	"os"

	"github.com/gofrs/flock"
)

// ErrHeld is the error of Dir for a directory that another process has locked, or
// has renamed or removed since.
var ErrHeld = errors.New("locked by another run")

// tryLock is replaced in a test by that of a filesystem without locks.
var tryLock = (*flock.Flock).TryLock

// A Lock is a directory that this process has locked.
type Lock struct{ file *flock.Flock }

// Dir locks a directory until Close. The operating system releases the lock when
// the process ends, however it ends. The error is ErrHeld where another process has
// the lock. Some network filesystems have no locks: there Dir succeeds, and two runs
// to one directory are not kept apart.
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
