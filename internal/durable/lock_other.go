//go:build !windows

package durable

import (
	"os"

	"github.com/gofrs/flock"
)

// lockFile returns the file to lock for a directory: the directory itself.
func lockFile(dir string) *flock.Flock { return flock.New(dir, flock.SetFlag(os.O_RDONLY)) }

// names reports whether path is still the locked directory.
func (l *Lock) names(path string) bool {
	locked, err := l.file.Stat()
	named, namedErr := os.Stat(path)
	return err == nil && namedErr == nil && os.SameFile(locked, named)
}

// Close releases the lock.
func (l *Lock) Close() error { return l.file.Close() }
