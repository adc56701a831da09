//go:build unix

package hub

import (
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"testing"
)

// TestUmask checks that no file of the cache has permissions that the umask takes away. The umask is that of the
// process: this test runs alone.
func TestUmask(t *testing.T) {
	c := newServer(t).client()
	before := syscall.Umask(0o077)
	defer syscall.Umask(before)
	for _, o := range open(t, c).Others() {
		if o.Outside != "" {
			t.Errorf("%s leads out of the cache to %s", o.Name, o.Outside)
		}
	}
	files := 0
	err := filepath.WalkDir(c.Cache, func(path string, _ fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := os.Lstat(path)
		if err != nil {
			return err
		}
		if info.Mode().IsRegular() {
			files++
		}
		if mode := info.Mode(); mode&fs.ModeSymlink == 0 && mode.Perm()&0o077 != 0 && path != c.Cache {
			t.Errorf("%s has permissions %v", path, mode)
		}
		return nil
	})
	if err != nil || files == 0 {
		t.Errorf("%d files (%v)", files, err)
	}
}
