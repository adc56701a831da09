//go:build !windows

package durable

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
)

// TestRenameNew: both ways to rename a file or a folder fail if the new name exists, and leave it unchanged.
func TestRenameNew(t *testing.T) {
	write := func(path string) error { return os.WriteFile(path, []byte("new"), 0o666) }
	folder := func(path string) error { return os.Mkdir(path, 0o777) }
	for name, rename := range map[string]func(from, to string) error{"RenameNew": RenameNew, "renameReserved": renameReserved} {
		for kind, create := range map[string]func(path string) error{"file": write, "folder": folder} {
			t.Run(name+"/"+kind, func(t *testing.T) {
				dir := t.TempDir()
				from, to := filepath.Join(dir, "from"), filepath.Join(dir, "to")
				if err := create(from); err != nil {
					t.Fatal(err)
				}
				moved, err := os.Lstat(from)
				if err != nil {
					t.Fatal(err)
				}
				for there, create := range map[string]func(path string) error{
					"file": write, "folder": folder, "link": func(path string) error { return os.Symlink("nowhere", path) },
				} {
					if err := create(to); err != nil {
						t.Fatal(err)
					}
					before, err := os.Lstat(to)
					if err != nil {
						t.Fatal(err)
					}
					if err := rename(from, to); !errors.Is(err, os.ErrExist) {
						t.Errorf("onto a %s: %v", there, err)
					}
					if after, err := os.Lstat(to); err != nil || !os.SameFile(before, after) {
						t.Errorf("the %s was replaced (%v)", there, err)
					}
					if err := os.Remove(to); err != nil {
						t.Fatal(err)
					}
				}
				if err := rename(from, to); err != nil {
					t.Fatal(err)
				}
				after, err := os.Lstat(to)
				if err != nil || !os.SameFile(moved, after) {
					t.Errorf("another %s is at the new name (%v)", kind, err)
				}
				if entries, err := os.ReadDir(dir); err != nil || len(entries) != 1 {
					t.Errorf("%v are left (%v)", entries, err)
				}
			})
		}
	}
}
