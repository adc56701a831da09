package durable

import (
	"errors"
	"os"
	"path/filepath"
	"syscall"
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

// TestCannotWrite: the error names the part of the path that is the reason, and keeps the cause.
func TestCannotWrite(t *testing.T) {
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	if err := errors.Join(WriteNew(at("file"), nil), os.Symlink("loop", at("loop"))); err != nil {
		t.Skip(err)
	}
	const elsewhere = ": choose a destination elsewhere"
	for _, tc := range []struct {
		dir  string
		err  syscall.Errno
		want string
	}{
		{dir, syscall.EROFS, dir + ": this directory is not writable (read-only file system)" + elsewhere},
		{at("new/a"), syscall.EACCES, dir + ": this directory is not writable (permission denied)" + elsewhere},
		{at("file/a"), syscall.ENOTDIR, at("file") + ": it is not a directory, and the destination would be inside (not a directory)" +
			elsewhere},
		{at("loop/a"), syscall.ELOOP, at("loop") + ": it is not a directory, and the destination would be inside (" + syscall.ELOOP.Error() +
			")" + elsewhere},
		{dir, syscall.ENAMETOOLONG, dir + ": a name of the destination there is too long (file name too long): choose a shorter one"},
	} {
		err := CannotWrite(tc.dir, &os.PathError{Op: "mkdir", Path: filepath.Join(tc.dir, "x.microscale-partial"), Err: tc.err})
		if err.Error() != tc.want || !errors.Is(err, tc.err) {
			t.Errorf("%v, want %s", err, tc.want)
		}
	}
}
