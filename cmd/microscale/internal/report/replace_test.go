package report

import (
	"os"
	"path/filepath"
	"testing"
)

// TestReplaceReport checks that a link to a report stays a link, and that its file is replaced.
func TestReplaceReport(t *testing.T) {
	dir := t.TempDir()
	file, link := filepath.Join(dir, "html"), filepath.Join(dir, "link.html")
	if err := os.WriteFile(file, []byte("old"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(file, link); err != nil {
		t.Skipf("a link cannot be created: %v", err)
	}
	if err := ReplaceReport(link, []byte("new")); err != nil {
		t.Fatal(err)
	}
	if info, err := os.Lstat(link); err != nil || info.Mode()&os.ModeSymlink == 0 {
		t.Errorf("the link is %v, %v", info, err)
	}
	if text, err := os.ReadFile(file); err != nil || string(text) != "new" {
		t.Errorf("got %q, %v", text, err)
	}
	other := filepath.Join(dir, "other.html")
	if err := ReplaceReport(other, []byte("new")); err != nil {
		t.Fatal(err)
	}
	if text, err := os.ReadFile(other); err != nil || string(text) != "new" {
		t.Errorf("a new file: got %q, %v", text, err)
	}
}
