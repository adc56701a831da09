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
	t.Setenv("HF_ENDPOINT", "")
	for name, want := range map[string]string{
		"no-owner/no-model":                        "; for the model on the hub use hf://no-owner/no-model",
		"no-owner/no-model@v1":                     "; for the model on the hub use hf://no-owner/no-model@v1",
		"https://huggingface.co/no-owner/no-model": "; for the model on the hub use hf://no-owner/no-model",
		"no-model":            "name a checkpoint directory or file",
		"./no-owner/no-model": "name a checkpoint directory or file",
	} {
		if _, err := Open(t.Context(), name); !errors.Is(err, fs.ErrNotExist) || !strings.HasSuffix(err.Error(), want) {
			t.Errorf("%s: %v, want an error that ends in %q", name, err, want)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := Open(ctx, "sample:"); err == nil || !strings.HasPrefix(err.Error(), "interrupted: ") {
		t.Errorf("interrupted: %v", err)
	}
}
