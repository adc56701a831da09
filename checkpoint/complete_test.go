package checkpoint

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/microscale-go/microscale/hf"
	"github.com/microscale-go/microscale/safetensors"
)

// TestMissing checks what a checkpoint lacks: layers and tensors of a layer; and that layers of several kinds, and parts of models, lack nothing.
func TestMissing(t *testing.T) {
	dense := []string{"self_attn.q_proj", "self_attn.k_proj", "mlp.up_proj", "mlp.down_proj"}
	layers := func(n int, leave ...string) (names []string) {
		names = []string{"model.embed_tokens", "model.norm"}
		for i := range n {
			for _, module := range dense {
				if name := fmt.Sprintf("model.layers.%d.%s", i, module); !slices.Contains(leave, name) {
					names = append(names, name)
				}
			}
		}
		return names
	}
	moe := append(slices.DeleteFunc(layers(3), func(name string) bool { return strings.Contains(name, "layers.2.mlp") }), "model.layers.2.mlp.gate", "model.layers.2.mlp.experts.0.up_proj")
	for name, c := range map[string]struct {
		config string
		names  []string
		want   string
	}{
		"whole":       {`{"num_hidden_layers": 3}`, layers(3), ""},
		"last layers": {`{"num_hidden_layers": 5}`, layers(3), "2 of 5 layers are missing, the first model.layers.3"},
		"nested":      {`{"text_config": {"num_hidden_layers": 4}}`, layers(3), "1 of 4 layers are missing, the first model.layers.3"},
		"tensor": {`{"num_hidden_layers": 3}`, layers(3, "model.layers.1.self_attn.k_proj"),
			"uneven: model.layers.1 has no self_attn.k_proj.weight, which 2 other layers have: if it is not so in the original, fetch it again"},
		"two tensors": {`{"num_hidden_layers": 4}`, layers(4, "model.layers.1.self_attn.k_proj", "model.layers.2.mlp.up_proj"),
			"uneven: model.layers.1 has no self_attn.k_proj.weight, which 3 other layers have: if it is not so in the original, fetch it again; " +
				"uneven: model.layers.2 has no mlp.up_proj.weight, which 3 other layers have: if it is not so in the original, fetch it again"},
		"sequential":   {`{"num_hidden_layers": 3}`, append(layers(3), "projector.layers.0", "projector.layers.2"), ""},
		"GPT-2":        {`{"n_layer": 3}`, []string{"wte", "h.0.mlp.c_fc", "h.2.mlp.c_fc", "ln_f"}, "1 of 3 layers are missing, the first h.1"},
		"not counted":  {`{}`, []string{"wte", "h.0.mlp.c_fc", "h.2.mlp.c_fc", "ln_f"}, ""},
		"further":      {`{"num_hidden_layers": 2}`, layers(3), ""},
		"shared cache": {`{"num_hidden_layers": 3, "num_kv_shared_layers": 1}`, layers(3, "model.layers.2.self_attn.k_proj"), ""},
		"experts":      {`{"num_hidden_layers": 3}`, moe, ""},
		"layers alone": {`{"num_hidden_layers": 9}`, layers(3)[2:], ""},
	} {
		var specs []safetensors.Spec
		for _, module := range c.names {
			specs = append(specs, safetensors.Spec{Name: module + ".weight", Dtype: safetensors.BF16, Shape: []int64{1}})
		}
		layout, err := safetensors.NewLayout(specs, nil)
		if err != nil {
			t.Fatal(err)
		}
		dir := t.TempDir()
		data := append(layout.HeaderBytes(), make([]byte, 2*len(specs))...)
		if err := os.WriteFile(filepath.Join(dir, "model.safetensors"), data, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, hf.ConfigName), []byte(c.config), 0o600); err != nil {
			t.Fatal(err)
		}
		source, err := hf.Open(dir)
		if err != nil {
			t.Fatal(err)
		}
		m := Read(source)
		got := slices.Clone(m.Missing)
		for _, text := range m.Uneven {
			got = append(got, "uneven: "+text)
		}
		if strings.Join(got, "; ") != c.want || len(m.Problems) != len(m.Missing) {
			t.Errorf("%s: got %q and problems %v, want %q", name, got, m.Problems, c.want)
		}
		source.Close()
	}
}
