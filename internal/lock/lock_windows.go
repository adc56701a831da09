package lock

import (
	"os"

	"github.com/gofrs/flock"
)

// lockFile returns the file whose lock stands for a directory: one beside it, since
// Windows neither locks a directory nor renames one in which a file is open.
func lockFile(dir string) *flock.Flock { return flock.New(dir + ".lock") }

// names reports whether the directory still exists: the lock has a name of its own.
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
