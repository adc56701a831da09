package lock

import (
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/gofrs/flock"
)

func TestDir(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "dir")
	if err := os.Mkdir(dir, 0o777); err != nil {
		t.Fatal(err)
	}
	for range 2 { // again after Close
		held, err := Dir(dir)
		if err != nil {
			t.Fatal(err)
		}
		if second, err := Dir(dir); second != nil || !errors.Is(err, ErrHeld) {
			t.Errorf("second lock: got %v, %v", second, err)
		}
		if err := held.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if entries, err := os.ReadDir(filepath.Dir(dir)); err != nil || len(entries) != 1 {
		t.Errorf("entries beside the directory: got %v, %v", entries, err)
	}
	if _, err := Dir(filepath.Join(dir, "none")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("no directory: got %v", err)
	}
}

// TestPatience checks that Dir waits for a run that is ending.
func TestPatience(t *testing.T) {
	dir := t.TempDir()
	held, err := Dir(dir)
	if err != nil {
		t.Fatal(err)
	}
	closed := make(chan error)
	go func() {
		time.Sleep(patience / 20)
		closed <- held.Close()
	}()
	second, err := Dir(dir)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(<-closed, second.Close()); err != nil {
		t.Fatal(err)
	}
}

// TestReplaced checks that Dir fails if the directory is replaced between opening and locking.
func TestReplaced(t *testing.T) {
	defer func(f func(*flock.Flock) (bool, error)) { tryLock = f }(tryLock)
	dir := filepath.Join(t.TempDir(), "dir")
	if err := os.Mkdir(dir, 0o777); err != nil {
		t.Fatal(err)
	}
	tryLock = func(f *flock.Flock) (bool, error) {
		ok, err := f.TryLock()
		return ok, errors.Join(err, os.Rename(dir, dir+"2"))
	}
	if l, err := Dir(dir); l != nil || !errors.Is(err, ErrHeld) {
		t.Errorf("got %v, %v", l, err)
	}
}

// TestNoLocks checks that Dir succeeds on a filesystem without locks.
func TestNoLocks(t *testing.T) {
	defer func(f func(*flock.Flock) (bool, error)) { tryLock = f }(tryLock)
	for _, err := range []error{syscall.ENOTSUP, syscall.ENOSYS, syscall.ENOLCK, syscall.EBADF} {
		t.Run(err.Error(), func(t *testing.T) {
			tryLock = func(*flock.Flock) (bool, error) { return false, err }
			l, err := Dir(t.TempDir())
			if err != nil {
				t.Fatal(err)
			}
			if err := l.Close(); err != nil {
				t.Error(err)
			}
		})
	}
}
