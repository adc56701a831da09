package llamacpp

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/microscale-go/microscale/internal/checkpoint"
	"github.com/microscale-go/microscale/internal/gguf"
	"github.com/microscale-go/microscale/safetensors"
)

// file writes a GGUF file whose tensors hold consecutive byte values.
func file(t *testing.T, specs []gguf.Spec, metadata ...gguf.Pair) string {
	t.Helper()
	l, err := gguf.NewLayout(specs, metadata)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "m.gguf")
	layout, err := FileLayout(l)
	if err != nil {
		t.Fatal(err)
	}
	w, err := safetensors.Create(path, layout)
	if err != nil {
		t.Fatal(err)
	}
	for _, info := range l.Tensors() {
		data := make([]byte, info.Bytes())
		for i := range data {
			data[i] = byte(i)
		}
		if err := w.WriteTensorAt(info.Name, data, 0); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return path
}

// TestForeignFiles: unsupported types are problems, and so is NVFP4 without a global scale.
// Unknown names are unchanged.
func TestForeignFiles(t *testing.T) {
	const q4K = 12
	c, err := Open(file(t, []gguf.Spec{
		{Name: "blk.0.attn_v.weight", Type: q4K, Shape: []int64{2, 256}}, {Name: "blk.0.something.weight", Type: gguf.F16, Shape: []int64{3, 4}},
		{Name: "blk.0.ffn_up.weight", Type: gguf.NVFP4, Shape: []int64{2, 64}}, {Name: "token_embd.weight", Type: gguf.F32, Shape: []int64{2, 2}},
	}, gguf.Pair{Key: "general.architecture", Value: "llama"}))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	m := checkpoint.Read(c)
	if len(m.Problems) == 0 || !strings.Contains(m.Problems[len(m.Problems)-1].String(), "model.layers.0.self_attn.v_proj.weight: its type Q4_K is not supported") {
		t.Errorf("problems %v", m.Problems)
	}
	for name, format := range map[string]string{"model.layers.0.self_attn.v_proj.weight": "u8", "blk.0.something.weight": "f16", "model.layers.0.mlp.up_proj.weight": "nvfp4", "model.embed_tokens.weight": "f32"} {
		w, ok := m.Lookup(name)
		if !ok || w.FormatName() != format {
			t.Errorf("%s is %v", name, w)
		}
	}
	w, _ := m.Lookup("model.layers.0.mlp.up_proj.weight")
	q, err := w.ReadCodes(checkpoint.Tile{From: 1, To: 2, ToCol: 64})
	if err != nil || q.Global != 1 || string(q.Scales) != "\x24\x25\x26\x27" { // of the second struct of 36 bytes
		t.Errorf("scales %x, global %g (%v)", q.Scales, q.Global, err)
	}
}

// TestOtherArchitecture: names of an unknown architecture are not translated.
func TestOtherArchitecture(t *testing.T) {
	c, err := Open(file(t, []gguf.Spec{{Name: "blk.0.attn_q.weight", Type: gguf.BF16, Shape: []int64{4, 4}}}, gguf.Pair{Key: "general.architecture", Value: "gemma"}))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	m := checkpoint.Read(c)
	if _, ok := m.Lookup("blk.0.attn_q.weight"); !ok || m.Convention != nil || len(m.Problems) > 0 {
		t.Errorf("%v, %v", m.Convention, m.Problems)
	}
}

// TestFileChanges: reading detects a file that is modified meanwhile.
func TestFileChanges(t *testing.T) {
	path := file(t, []gguf.Spec{{Name: "a", Type: gguf.F32, Shape: []int64{2}}})
	c, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	m := checkpoint.Read(c)
	if err := m.Source.Shards()[0].File.Changed(); err != nil {
		t.Error(err)
	}
	if err := os.WriteFile(path, []byte("x"), 0o666); err != nil {
		t.Fatal(err)
	}
	if err := m.Source.Shards()[0].File.Changed(); err == nil || !strings.Contains(err.Error(), "changed or was replaced") {
		t.Errorf("says %v", err)
	}
	if _, err := Open(path); err == nil || !strings.Contains(err.Error(), "ends within the header") {
		t.Errorf("says %v", err)
	}
}
