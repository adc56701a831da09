// Package lock prevents two processes from writing to the same directory, and writes files durably.
package lock

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"time"

	"github.com/gofrs/flock"
)

// ErrHeld is the error of Dir if another process holds the lock, or renamed or removed the directory
// meanwhile.
var ErrHeld = errors.New("locked by another run")

// patience is how long Dir waits for another process: the system releases the lock of a killed process
// only after it has freed the memory of the process, and the launcher of a job does not wait for that.
const patience = 2 * time.Second

// tryLock is a variable so that a test can simulate a filesystem without locks.
var tryLock = func(f *flock.Flock) (ok bool, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	ok, err = f.TryLockContext(ctx, patience/100)
	if errors.Is(err, context.DeadlineExceeded) {
		return false, nil
	}
	return ok, err
}

// A Lock is the lock of a directory, held by this process.
type Lock struct{ file *flock.Flock }

// Dir locks a directory until Close. The operating system also releases the lock when the process ends.
// Dir returns ErrHeld if another process holds the lock and does not release it within two seconds. On
// network filesystems without locks, Dir succeeds, and two runs may write to the same directory.
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
