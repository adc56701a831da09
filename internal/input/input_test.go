package input

import (
	"context"
	"errors"
	"io/fs"
	"path/filepath"
	"strings"
	"testing"
)

// TestOpen opens the sample, and reports what it cannot open.
func TestOpen(t *testing.T) {
	c, err := Open(t.Context(), "sample:")
	if err != nil {
		t.Fatal(err)
	}
	if len(c.Shards()) == 0 {
		t.Error("the sample has no files")
	}
	c.Close()
	missing := filepath.Join(t.TempDir(), "missing")
	for _, name := range []string{missing, missing + ".gguf", missing + ".safetensors"} {
		if _, err := Open(t.Context(), name); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s: %v", name, err)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := Open(ctx, "sample:"); err == nil || !strings.HasPrefix(err.Error(), "interrupted: ") {
		t.Errorf("interrupted: %v", err)
	}
}
