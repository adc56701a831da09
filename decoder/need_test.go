package decoder

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/microscale-go/microscale/checkpoint"
	"github.com/microscale-go/microscale/convert"
	"github.com/microscale-go/microscale/quant"
	"github.com/microscale-go/microscale/safetensors"
)

// TestCheckMemory checks the memory of weights as they are held: BF16 and block formats as they are
// stored, other types in F32.
func TestCheckMemory(t *testing.T) {
	m, err := New(Config{VocabSize: 256, HiddenSize: 64, IntermediateSize: 96, NumHiddenLayers: 1, NumAttentionHeads: 2}, Options{}, 1)
	if err != nil {
		t.Fatal(err)
	}
	const rest, linear = 2*256*64 + 3*64, 4*64*64 + 3*64*96
	dir := filepath.Join(t.TempDir(), "bf16")
	if err := m.Save(dir, safetensors.BF16); err != nil {
		t.Fatal(err)
	}
	wide := filepath.Join(t.TempDir(), "f32")
	if err := m.Save(wide, safetensors.F32); err != nil {
		t.Fatal(err)
	}
	half := filepath.Join(t.TempDir(), "f16")
	if err := m.Save(half, safetensors.BF16); err != nil {
		t.Fatal(err)
	}
	weights := filepath.Join(half, "model.safetensors")
	data, err := os.ReadFile(weights)
	if err == nil { // checkMemory does not read values
		err = os.WriteFile(weights, bytes.ReplaceAll(data, []byte(`"BF16"`), []byte(`"F16" `)), 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		path string
		want int64
	}{
		{dir, 2 * (rest + linear)}, {wide, 4 * (rest + linear)}, {half, 4 * (rest + linear)},
		{quantized(t, dir, "mxfp4", quant.Quantizer{Format: quant.MXFP4}, checkpoint.Plain()), 2*rest + linear/2 + linear/32},
	} {
		source, err := convert.Open(c.path)
		if err != nil {
			t.Fatal(err)
		}
		defer source.Close()
		if err := checkMemory(checkpoint.Read(source), c.want); err != nil {
			t.Errorf("%s: %v", c.path, err)
		}
		if err := checkMemory(checkpoint.Read(source), c.want-1); !errors.Is(err, ErrMemory) {
			t.Errorf("%s: one byte less: got %v", c.path, err)
		}
	}
}
