// Package durable prevents two processes from writing to the same directory, and writes files durably.
package durable

import (
	"errors"
	"os"
	"syscall"
	"time"

	"github.com/gofrs/flock"
)

// ErrHeld is the error of Dir if another process holds the lock, or renamed or removed the directory
// meanwhile.
var ErrHeld = errors.New("locked by another run")

// Dir tries for patience to get the lock, in intervals. The system releases the lock of a killed
// process only after it has freed the memory of the process, and the launcher of a job does not wait
// for that. Tests set patience.
var patience = 2 * time.Second

const interval = 20 * time.Millisecond

// tryLock is a variable so that a test can simulate a filesystem without locks.
var tryLock = (*flock.Flock).TryLock

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
	for waited := time.Duration(0); err == nil && !ok && waited < patience; waited += interval {
		time.Sleep(interval)
		ok, err = tryLock(l.file)
	}
	switch {
	case unsupported(err):
		return l, nil
	case err != nil:
		return nil, errors.Join(err, l.Close())
	case !ok || !l.names(path):
		return nil, errors.Join(ErrHeld, l.Close())
	}
	return l, nil
}

// unsupported reports whether an error says that a filesystem has no locks. NFS locks only files that
// are open for writing, which a directory cannot be: EBADF.
func unsupported(err error) bool {
	return errors.Is(err, errors.ErrUnsupported) || errors.Is(err, syscall.ENOLCK) || errors.Is(err, syscall.EBADF)
}
