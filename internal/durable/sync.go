package durable

import (
	"os"
	"runtime"
)

// SyncDir makes the names in a directory durable.
func SyncDir(path string) error {
	if runtime.GOOS == "windows" { // which writes names through, and cannot sync a directory
		return nil
	}
	d, err := os.Open(path)
	if err != nil {
		return err
	}
	defer d.Close()
	return d.Sync()
}
