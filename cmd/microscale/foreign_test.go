package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/microscale-go/microscale/safetensors"
)

// TestOtherSource: the profile of compressed-tensors warns that its bits are the library's for BF16 sources only.
func TestOtherSource(t *testing.T) {
	dir := t.TempDir()
	bf16 := filepath.Join(dir, "bf16")
	directory(t, bf16, twoWeights()...)
	f32 := filepath.Join(dir, "f32")
	if err := os.Mkdir(f32, 0o777); err != nil {
		t.Fatal(err)
	}
	writeFile(t, filepath.Join(f32, "config.json"), []byte(`{"torch_dtype": "float32"}`))
	l, err := safetensors.NewLayout([]safetensors.Spec{{Name: "l.0.proj.weight", Dtype: safetensors.F32, Shape: []int64{64, 128}}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	file := make([]byte, l.FileSize())
	copy(file, l.HeaderBytes())
	writeFile(t, filepath.Join(f32, "model.safetensors"), file)
	for src, warns := range map[string]bool{bf16: false, f32: true} {
		status, _, stderr := execute("", "quantize", src, src+"-q", "--format", "nvfp4", "--profile", "compressed-tensors")
		if status != exitDone || strings.Contains(stderr, "has the bits of its library for BF16 sources only") != warns {
			t.Errorf("%s: exit status %d, %q", src, status, stderr)
		}
	}
}
