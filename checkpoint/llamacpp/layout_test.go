package llamacpp

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/microscale-go/microscale/gguf"
	"github.com/microscale-go/microscale/safetensors"
)

// TestCreate: the writer of GGUF files checks that every byte is written.
func TestCreate(t *testing.T) {
	g, err := gguf.NewLayout([]gguf.Spec{{Name: "t", Type: gguf.F32, Shape: []int64{4}}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	l, err := FileLayout(g)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "m.gguf")
	w, err := safetensors.Create(path, l)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := safetensors.Create(path, l); !errors.Is(err, os.ErrExist) {
		t.Errorf("a second writer: %v", err)
	}
	if w.WriteTensorAt("t", make([]byte, 17), 0) == nil || w.WriteTensorAt("u", nil, 0) == nil {
		t.Error("a write outside of the tensors succeeds")
	}
	if err := w.WriteTensorAt("t", make([]byte, 15), 0); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err == nil || !strings.Contains(err.Error(), "15 of its 16 bytes") {
		t.Errorf("Close says %v", err)
	}
	if err := w.Abort(); err != nil {
		t.Error(err)
	}
}
