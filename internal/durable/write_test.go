package durable

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
)

// TestWriteWhole checks that a file is complete before it gets its name, that the old file exists until
// then, and that a failed rename changes nothing.
func TestWriteWhole(t *testing.T) {
	dir := t.TempDir()
	path, failed := filepath.Join(dir, "file"), errors.New("failed")
	if err := WriteNew(path, []byte("old")); err != nil {
		t.Fatal(err)
	}
	if err := WriteNew(path, []byte("new")); !errors.Is(err, os.ErrExist) {
		t.Errorf("WriteNew of an existing file: got %v", err)
	}
	check := func(path, want string) {
		t.Helper()
		if got, err := os.ReadFile(path); err != nil || string(got) != want {
			t.Errorf("%s: got %q, %v, want %q", filepath.Base(path), got, err, want)
		}
	}
	for _, tc := range []struct {
		err  error
		want string
	}{{failed, "old"}, {nil, "new"}} {
		err := WriteWhole(path, []byte("new"), func(from, to string) error {
			check(from, "new")
			check(to, "old")
			if filepath.Dir(from) != dir || to != path {
				t.Errorf("rename %s to %s", from, to)
			}
			if tc.err != nil {
				return tc.err
			}
			return os.Rename(from, to)
		})
		if !errors.Is(err, tc.err) {
			t.Errorf("got %v, want %v", err, tc.err)
		}
		check(path, tc.want)
		if entries, err := os.ReadDir(dir); err != nil || len(entries) != 1 {
			t.Errorf("got files %v, %v", entries, err)
		}
	}
}
