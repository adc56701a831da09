package client

import (
	"strings"
	"testing"

	"github.com/microscale-go/microscale/quant"
)

// TestStores: what is stored for a client is what it reads, and the formats that
// people ask for have a place.
func TestStores(t *testing.T) {
	for _, c := range All() {
		stored := 0
		var names []string
		for _, f := range append(quant.Formats(), quant.Q8_0) {
			if _, err := c.Stores(f); err == nil {
				names = append(names, f.Name)
			}
		}
		want, verb := ": use one of "+strings.Join(names, ", "), c.Name+" does not read "
		if c.imports {
			verb = "files for " + c.Name + " cannot hold "
		}
		for _, f := range quant.Formats() {
			storages, err := c.Stores(f)
			if err != nil {
				if f.Scaled() && err.Error() != verb+f.Name+want || !f.Scaled() && !strings.Contains(err.Error(),
					f.Name+" has no scales, and "+c.Name+" reads") {
					t.Errorf("%s, %s: %v", c, f, err)
				}
				continue
			}
			stored++
			for _, s := range storages {
				for _, scheme := range s.Schemes {
					if !c.Reads(s.Convention.Name, scheme) {
						t.Errorf("%s: %s is stored as %s %s, which it does not read", c, f, s.Convention, scheme)
					}
				}
			}
		}
		if stored == 0 {
			t.Errorf("%s reads no format", c)
		}
	}
	for _, tc := range []struct{ client, format, want string }{
		{"vllm", "nvfp4", "compressed-tensors NVFP4A16"},
		{"sglang", "mxfp8", "modelopt MXFP8"},
		{"sglang", "mxfp4", "quark fp4"}, // no dense MXFP4 of compressed-tensors
		{"trtllm", "nvfp4", "modelopt W4A16_NVFP4"},
		{"transformers", "mxfp8", "compressed-tensors MXFP8"},
		{"llama.cpp", "mxfp4", "gguf MXFP4"},
		{"mlx", "mxfp8", "mlx mxfp8"},
		{"Ollama", "nvfp4", "gguf NVFP4"},
		{"llamacpp", "bf16", "gguf"},
	} {
		c, err := Lookup(tc.client)
		if err != nil {
			t.Fatal(err)
		}
		f, err := quant.Lookup(tc.format)
		if err != nil {
			t.Fatal(err)
		}
		storages, err := c.Stores(f)
		if err != nil || storages[0].String() != tc.want {
			t.Errorf("%s, %s: got %v (%v), want %s", tc.client, tc.format, storages, err, tc.want)
		}
	}
}
