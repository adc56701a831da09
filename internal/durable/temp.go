package durable

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"
)

// young is the age up to which a temporary directory is left alone: its process may not have locked it yet.
const young = time.Hour

// Temp creates a directory for temporary files, which this process holds locked until remove removes it. It also removes
// those with the same prefix that killed processes of this host left. The name has the host: other hosts may share the folder without
// its locks, and names without one are of versions that lock nothing.
func Temp(prefix string) (dir string, remove func() error, err error) {
	host, err := os.Hostname()
	if err != nil {
		return "", nil, err
	}
	sum := sha256.Sum256([]byte(host))
	prefix = fmt.Sprintf("%s%x-", prefix, sum[:8])
	sweep(prefix)
	if dir, err = os.MkdirTemp("", prefix); err != nil {
		return "", nil, err
	}
	held, err := Dir(dir)
	if err != nil {
		return "", nil, errors.Join(err, os.RemoveAll(dir))
	}
	return dir, func() error { return errors.Join(os.RemoveAll(dir), held.Close()) }, nil
}

// sweep removes old temporary directories that no process holds. Those on filesystems without locks, and those of other
// users, stay.
func sweep(prefix string) {
	paths, _ := filepath.Glob(filepath.Join(os.TempDir(), prefix+"*")) // a malformed pattern matches nothing
	for _, path := range paths {
		info, err := os.Lstat(path)
		if err != nil || !info.IsDir() || time.Since(info.ModTime()) < young {
			continue
		}
		l := &Lock{lockFile(path)}
		if held, err := tryLock(l.file); err == nil && held {
			_ = os.RemoveAll(path) // what is left is tried again
		}
		_ = l.Close() // nothing was written through it
	}
}
