package durable

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestTemp checks which temporary directories the next process removes: old ones that no process holds.
func TestTemp(t *testing.T) {
	folder := t.TempDir()
	for _, name := range []string{"TMPDIR", "TMP", "TEMP"} {
		t.Setenv(name, folder)
	}
	const plain = "microscale-test-"
	first, removeFirst, err := Temp(plain)
	if err != nil {
		t.Fatal(err)
	}
	prefix := first[len(folder)+1 : strings.LastIndex(first, "-")+1] // with the host
	if err := removeFirst(); err != nil {
		t.Fatal(err)
	}
	old := time.Now().Add(-2 * young)
	for name, stays := range map[string]bool{prefix + "left": false, prefix + "held": true, prefix + "young": true,
		plain + "unlocked": true, plain + "0123456789abcdef-other": true} {
		dir := filepath.Join(folder, name)
		if err := os.MkdirAll(filepath.Join(dir, "inside"), 0o700); err != nil {
			t.Fatal(err)
		}
		if name == prefix+"held" {
			held, err := Dir(dir)
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = held.Close() }() // nothing is written through it
		}
		if name != prefix+"young" {
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
	dir, remove, err := Temp(plain)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Chtimes(dir, old, old); err != nil {
		t.Fatal(err)
	}
	second, removeSecond, err := Temp(plain) // of another run meanwhile
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
