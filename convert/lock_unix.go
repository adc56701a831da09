//go:build unix && !solaris && !aix

package convert

import (
	"os"
	"syscall"
)

// lockDir opens a directory and locks it against other runs. The lock ends with
// the process, however it ends.
func lockDir(path string) (*os.File, error) {
	d, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(d.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		d.Close()
		return nil, err
	}
	return d, nil
}
