package ramdisk

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestMain(m *testing.M) { os.Exit(Main(m)) }

// TestFolder: the folders of tests are where Main says, and can be written.
func TestFolder(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "file"), []byte("text"), 0o666); err != nil {
		t.Error(err)
	}
	if want := os.Getenv(variable); want != "" && !strings.HasPrefix(dir, want) {
		t.Errorf("the folder of the test is %s, not in %s", dir, want)
	}
	if folder() != "" && os.Getenv(variable) == "" {
		t.Error("the folder in memory is not used")
	}
}
