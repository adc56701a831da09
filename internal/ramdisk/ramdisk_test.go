package ramdisk

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestMain(m *testing.M) { os.Exit(Main(m)) }

// TestFolder checks that the folders of tests are where Main puts them, and are writable.
func TestFolder(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "file"), []byte("text"), 0o666); err != nil {
		t.Error(err)
	}
	if want := os.Getenv(variable); want != "" && !strings.HasPrefix(dir, want) {
		t.Errorf("folder of the test: got %s, want one in %s", dir, want)
	}
	if folder() != "" && os.Getenv(variable) == "" {
		t.Error("got a folder that is not in memory")
	}
}
