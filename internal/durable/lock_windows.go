package durable

import (
	"os"

	"github.com/gofrs/flock"
)

// lockFile returns the file to lock for a directory: a file beside it, since Windows neither locks a
// directory nor renames one that contains an open file.
func lockFile(dir string) *flock.Flock { return flock.New(dir + ".lock") }

// names reports whether the directory still exists. The lock file has another name.
func (l *Lock) names(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// Close releases the lock and removes its file, unless another process has opened it.
func (l *Lock) Close() error {
	err := l.file.Close()
	_ = os.Remove(l.file.Path())
	return err
}
