package durable

import (
	"os"
	"path/filepath"
	"testing"
	"time"
)

// TestTemp checks which temporary directories the next process removes: old ones that no process holds.
func TestTemp(t *testing.T) {
	folder := t.TempDir()
	for _, name := range []string{"TMPDIR", "TMP", "TEMP"} {
		t.Setenv(name, folder)
	}
	const prefix = "microscale-test-"
	old := time.Now().Add(-2 * young)
	for name, stays := range map[string]bool{"left": false, "held": true, "young": true} {
		dir := filepath.Join(folder, prefix+name)
		if err := os.MkdirAll(filepath.Join(dir, "inside"), 0o700); err != nil {
			t.Fatal(err)
		}
		if name == "held" {
			held, err := Dir(dir)
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = held.Close() }() // nothing is written through it
		}
		if name != "young" {
			if err := os.Chtimes(dir, old, old); err != nil {
				t.Fatal(err)
			}
		}
		defer func() {
			if _, err := os.Stat(dir); (err == nil) != stays {
				t.Errorf("%s: stays: %v, want %v", name, err == nil, stays)
			}
		}()
	}
	dir, remove, err := Temp(prefix)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Chtimes(dir, old, old); err != nil {
		t.Fatal(err)
	}
	second, removeSecond, err := Temp(prefix) // of another run meanwhile
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(dir); err != nil {
		t.Error(err)
	}
	for path, f := range map[string]func() error{dir: remove, second: removeSecond} {
		if err := f(); err != nil {
			t.Error(err)
		}
		if _, err := os.Stat(path); err == nil {
			t.Errorf("%s stays", path)
		}
	}
}
