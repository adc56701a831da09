package interop

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"
)

// TestSkips: tests are skipped by skipf only, so that -no-skip makes each skip a failure.
func TestSkips(t *testing.T) {
	names, err := filepath.Glob("*_test.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		data, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		allowed := 0
		if name == "python_test.go" {
			allowed = 1 // that of skipf
		}
		for _, call := range []string{"Skip", "Skipf", "SkipNow"} {
			allowed -= bytes.Count(data, []byte("."+call+"("))
		}
		if allowed < 0 {
			t.Errorf("%s skips a test without skipf", name)
		}
	}
}
