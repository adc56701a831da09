//go:build unix

package windows

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// TestStreamPipe replaces the state and the files of an interrupted run by pipes. The next run does not wait
// for their writers: it returns an error, or replaces a file that it would write.
func TestStreamPipe(t *testing.T) {
	for name, want := range map[string]string{streamState: "not a regular file", "1-1.f32": "not a regular file", "1-2.f32": ""} {
		again := interrupted(t, t.TempDir(), len(testWindows(t))+1)
		path := filepath.Join(again.Stream.Dir, name)
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
		if err := syscall.Mkfifo(path, 0o600); err != nil {
			t.Skip(err)
		}
		_, err := again.Do(t.Context())
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %q", name, err, want)
		}
	}
}
