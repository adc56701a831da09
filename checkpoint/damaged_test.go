package checkpoint

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/microscale-go/microscale/hf"
	"github.com/microscale-go/microscale/quant"
	"github.com/microscale-go/microscale/safetensors"
)

// TestUnfit checks that codes whose scales have another shape or dtype are no weight: readers would
// read past the scales. The problem names both shapes.
func TestUnfit(t *testing.T) {
	weight := []safetensors.Spec{{Name: "l.weight", Dtype: safetensors.F8E4M3, Shape: []int64{32, 64}}}
	for _, tc := range []struct {
		scales safetensors.Spec
		want   string // of the problem
	}{
		{safetensors.Spec{Name: "l.weight_scale", Dtype: safetensors.U8, Shape: []int64{32, 2}}, ""},
		{safetensors.Spec{Name: "l.weight_scale", Dtype: safetensors.U8, Shape: []int64{32, 1}},
			"it is U8 [32 1], and a mxfp8 weight of shape [32 64] needs U8 [32 2]"},
		{safetensors.Spec{Name: "l.weight_scale", Dtype: safetensors.U8, Shape: []int64{64}}, "it is U8 [64]"},
		{safetensors.Spec{Name: "l.weight_scale", Dtype: safetensors.F32, Shape: []int64{32, 2}}, "it is F32 [32 2]"},
	} {
		m := readMade(t, append(weight, tc.scales), quant.MXFP8)
		problems := ""
		for _, p := range m.Problems {
			problems += p.Text + "\n"
		}
		if (m.Quantized() == 1) != (tc.want == "") || !strings.Contains(problems, tc.want) || tc.want == "" && problems != "" {
			t.Errorf("%v: %d quantized weights, problems %q, want %q", tc.scales, m.Quantized(), problems, tc.want)
		}
	}
}

// readMade reads a checkpoint of zeros in compressed-tensors.
func readMade(t *testing.T, specs []safetensors.Spec, f quant.Format) *Model {
	t.Helper()
	return readFilled(t, specs, f, func(string, []byte) {})
}

// readFilled reads a checkpoint in compressed-tensors whose tensors fill sets.
func readFilled(t *testing.T, specs []safetensors.Spec, f quant.Format, fill func(name string, data []byte)) *Model {
	t.Helper()
	config, err := compressedTensors.Configure([]byte(`{"model_type": "llama"}`), f, Settings{})
	if err != nil {
		t.Fatal(err)
	}
	return readConfigured(t, config, specs, fill)
}

// readConfigured is readFilled with a configuration; nil for none.
func readConfigured(t *testing.T, config []byte, specs []safetensors.Spec, fill func(name string, data []byte)) *Model {
	t.Helper()
	dir := t.TempDir()
	if config != nil {
		if err := os.WriteFile(filepath.Join(dir, hf.ConfigName), config, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	l, err := safetensors.NewLayout(specs, nil)
	if err != nil {
		t.Fatal(err)
	}
	w, err := safetensors.Create(filepath.Join(dir, safetensors.ShardName(1, 1)), l)
	if err != nil {
		t.Fatal(err)
	}
	for _, info := range l.Tensors() {
		data := make([]byte, info.Bytes())
		fill(info.Name, data)
		if err := w.WriteTensorAt(info.Name, data, 0); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	source, err := hf.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { source.Close() })
	m, err := ReadContext(t.Context(), source)
	if err != nil {
		t.Fatal(err)
	}
	return m
}
