//go:build unix

package limits

import (
	"errors"
	"path/filepath"
	"syscall"
	"testing"
)

// TestSpecialFiles checks that a pipe without a writer and a device without an end are errors.
func TestSpecialFiles(t *testing.T) {
	pipe := filepath.Join(t.TempDir(), "pipe")
	if err := syscall.Mkfifo(pipe, 0o666); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{pipe, "/dev/zero"} {
		if _, err := ReadFile(path, 1<<20); !errors.Is(err, ErrNotRegular) {
			t.Errorf("%s: got %v", path, err)
		}
	}
}
