//go:build unix && !solaris && !aix

package lock

import (
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"
)

func TestDir(t *testing.T) {
	dir := t.TempDir()
	for range 2 { // the second time after the first was closed
		held, err := Dir(dir)
		if err != nil {
			t.Fatal(err)
		}
		if second, err := Dir(dir); second != nil || !errors.Is(err, ErrHeld) {
			t.Errorf("a second lock: %v, %v", second, err)
		}
		if err := held.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := Dir(filepath.Join(dir, "none")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("of no directory: %v", err)
	}
}

// TestNoLocks: on a filesystem without locks a run goes on without one, and only
// a lock that is held is another run's.
func TestNoLocks(t *testing.T) {
	defer func() { flock = syscall.Flock }()
	for _, tc := range []struct{ err, want error }{
		{syscall.ENOTSUP, nil}, {syscall.ENOSYS, nil}, {syscall.ENOLCK, nil}, {syscall.EBADF, nil},
		{syscall.EWOULDBLOCK, ErrHeld},
	} {
		t.Run(tc.err.Error(), func(t *testing.T) {
			flock = func(int, int) error { return tc.err }
			d, err := Dir(t.TempDir())
			if !errors.Is(err, tc.want) || (d == nil) != (err != nil) {
				t.Errorf("%v, %v, want %v", d, err, tc.want)
			}
			if d != nil {
				d.Close()
			}
		})
	}
}
