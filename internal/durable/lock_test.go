package durable

import (
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/gofrs/flock"
)

func TestMain(m *testing.M) {
	patience = 5 * interval
	os.Exit(m.Run())
}

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

// TestPatience checks that Dir tries again while another run ends, and gives up in the end.
func TestPatience(t *testing.T) {
	dir := t.TempDir()
	held, err := Dir(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer func(f func(*flock.Flock) (bool, error)) { tryLock = f }(tryLock)
	attempts := 0
	tryLock = func(f *flock.Flock) (bool, error) {
		if attempts++; attempts == 3 {
			if err := held.Close(); err != nil {
				t.Error(err)
			}
		}
		return f.TryLock()
	}
	second, err := Dir(dir)
	if err != nil || attempts != 3 {
		t.Fatalf("got %v after %d attempts, want the lock at the third", err, attempts)
	}
	defer func() { _ = second.Close() }()
	attempts = 3
	if _, err := Dir(dir); !errors.Is(err, ErrHeld) || time.Duration(attempts-4)*interval != patience {
		t.Errorf("got %v after %d attempts", err, attempts-3)
	}
}

// TestError checks that an error is not taken for a filesystem without locks.
func TestError(t *testing.T) {
	defer func(f func(*flock.Flock) (bool, error)) { tryLock = f }(tryLock)
	for _, err := range []error{syscall.EIO, syscall.EMFILE, syscall.EINTR} {
		tryLock = func(*flock.Flock) (bool, error) { return false, err }
		if l, got := Dir(t.TempDir()); l != nil || !errors.Is(got, err) {
			t.Errorf("%v: got %v, %v", err, l, got)
		}
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
