package cli

import (
	"errors"
	"os"
	"path/filepath"
)

// ReplaceReport atomically replaces the file at path with a page, which all users may read. On error the
// old file is unchanged.
func ReplaceReport(path string, page []byte) error {
	f, err := os.CreateTemp(filepath.Dir(path), ".report-*")
	if err != nil {
		return err
	}
	_, err = f.Write(page)
	err = errors.Join(err, f.Close())
	if err == nil {
		err = os.Chmod(f.Name(), 0o644)
	}
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		_ = os.Remove(f.Name()) // err is more informative
	}
	return err
}
