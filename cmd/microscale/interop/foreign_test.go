package interop

import (
	"context"
	"encoding/binary"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/microscale-go/microscale/checkpoint"
	"github.com/microscale-go/microscale/convert"
	"github.com/microscale-go/microscale/decoder"
	"github.com/microscale-go/microscale/hf"
	"github.com/microscale-go/microscale/nn"
	"github.com/microscale-go/microscale/quant"
	"github.com/microscale-go/microscale/recipe"
	"github.com/microscale-go/microscale/tensor"
	"github.com/microscale-go/microscale/verify"
)

// A tool quantizes models and saves them, by a script foreign_*.py.
type tool struct {
	name        string
	script      string
	interpreter func(packages ...string) func(t *testing.T) string
	packages    []string // the first is the tool's
	arguments   func(t *testing.T) []string
	cannot      map[string]string // schemes that the tool cannot write on a CPU, and its reason
	misread     map[string]string // schemes that verify rejects, because their clients do
	whole       map[string]bool   // schemes whose experts are in one tensor, which the decoder does not load
	noMinusZero map[string]bool   // schemes in which the tool decodes the code of −0 as 0
	reader      string            // the client for which lint finds nothing in the files; "": none reads all schemes, or it was not tried
	alarms      map[string]string // schemes in which lint finds what the reader fails with
	reordered   map[string]bool   // schemes in which the tool multiplies in another order, with other roundings to F32
}

var tools = []tool{
	{
		name: "compressed-tensors", script: "foreign_compressedtensors.py", interpreter: bitsTorch,
		packages: []string{"compressed-tensors==0.20.0", "transformers==5.23.0", "accelerate==1.15.0"}, reader: "transformers",
		alarms: map[string]string{"FP8_BLOCK odd": "L56 partial-columns"},
	},
	{
		name: "llm-compressor", script: "foreign_llmcompressor.py", interpreter: olderTorch, packages: []string{"llmcompressor==0.14.0.1"},
		reader:  "vllm",
		alarms:  map[string]string{"FP8_BLOCK": "L28 partial-tile"},
		misread: map[string]string{"NVFP4 by GPTQ": "further from the source than any rounding to nvfp4 allows"}, // it moves weights
	},
	{
		name: "Model Optimizer", script: "foreign_modelopt.py", interpreter: bitsTorch, reader: "trtllm",
		alarms:   map[string]string{"MXFP4": "L45 unread", "MXFP8": "L45 unread", "MXFP8 experts": "L45 unread"},
		packages: []string{"nvidia-modelopt==0.47.0", "transformers==5.24.0", "accelerate==1.15.0", "requests==2.34.2"},
		cannot: map[string]string{
			"MXFP6":               "Unsupported quantizer with num_bits: (3, 2)",
			"MXINT8":              "'NoneType' object is not subscriptable",
			"NVFP4_AWQ_LITE":      "amax must be a CUDA tensor for dynamic block quantization",
			"NVFP4_FOUR_OVER_SIX": "static_blockwise_fp4_fake_quant requires triton",
		},
		noMinusZero: map[string]bool{"NVFP4": true, "NVFP4 experts": true, "NVFP4_MLP_ONLY": true, "W4A16_NVFP4": true, "W4A8_NVFP4_FP8": true},
	},
	{
		name: "AutoRound", script: "foreign_autoround.py", interpreter: bitsTorch, reader: "vllm",
		alarms:   map[string]string{"NVFP4": "L45 unread", "NVFP4 experts": "L45 unread", "NVFP4_E5M3": "L45 unread"},
		packages: []string{"auto-round==0.16.1", "transformers==5.24.0", "accelerate==1.15.0", "compressed-tensors==0.20.0"},
		cannot: map[string]string{
			"FP8_BLOCK": "'<=' not supported between instances of 'tuple' and 'int'",
			"MXFP6":     "Only 4,8 bits are supported",
		},
		misread:   map[string]string{"FP8_STATIC for compressed-tensors": "lm_head.weight: it is not quantized and not on the ignore list"},
		reordered: map[string]bool{"NVFP4": true, "NVFP4 experts": true, "NVFP4 for compressed-tensors": true}, // (code · 1/global) · scale
	},
	{
		name: "Quark", script: "foreign_quark.py", interpreter: compilingTorch, packages: quarkPackages, reader: "vllm",
		cannot: map[string]string{
			"amdfp4_global16": "dequantize_float8_e5m3_v2 expected uint8 input",
			"bfp16":           "The qmin and qmax of Dtype.bfp16 are not defined",
			"mxfp8":           "Unsupported QuantSchema: per_group for quant_dtype: fp8_e4m3",
			"mxint8":          "Unsupported MX element dtype: int8",
		},
		alarms:  map[string]string{"mxfp4_fp8": "L00 structure"},
		misread: map[string]string{"mxfp4_fp8": "its activations have stored scales, and vLLM reads microscaling formats with dynamic ones only"},
	},
	{
		name: "FP-Quant", script: "foreign_fpquant.py", interpreter: bitsTorch, reader: "vllm",
		packages: []string{"fp-quant==0.3.2", "scipy==1.17.1", "transformers==5.24.0", "accelerate==1.15.0"},
	},
	{
		name: "torchao", script: "foreign_torchao.py", interpreter: bitsTorch, packages: torchaoPackages, reader: "transformers",
		cannot: map[string]string{
			"FP8 rows, activations":    "Float8 dynamic quantization requires CUDA compute capability",
			"FP8 tensors, activations": "Float8 dynamic quantization requires CUDA compute capability",
			"NVFP4":                    "NVFP4 DYNAMIC mode is only supported on sm100+ machines",
		},
	},
	{
		name: "transformers", script: "foreign_transformers.py", interpreter: bitsTorch, packages: torchaoPackages,
		cannot: map[string]string{
			"FbgemmFP8":      "Using fbgemm fp8 quantization requires a GPU or XPU",
			"FineGrainedFP8": "A GPU or XPU is needed for FP8 quantization",
			"MXFP4":          "MXFP4 quantization is only supported on GPUs with compute capability >= 7.5",
			"NVFP4":          "NVFP4 quantization requires the `kernels` package",
		},
	},
	{
		name: "mlx-lm", script: "foreign_mlx.py", interpreter: bitsTorch,
		packages: []string{"mlx-lm==0.32.2", "mlx[cpu]==0.32.4", "transformers==5.24.0"}, reader: "mlx",
	},
	{
		name: "llama.cpp", script: "foreign_llamacpp.py", interpreter: bitsTorch, packages: []string{"gguf==0.19.0", "transformers==5.24.0"},
		reader: "llamacpp",
		arguments: func(t *testing.T) []string {
			t.Helper()
			return []string{filepath.Join(npmPackage(t, llamaLibraries), "bins", "linux-x64")}
		},
		cannot: map[string]string{"NVFP4": "llama_model_quantize failed"}, // invalid output file type 39
	},
}

// torchaoPackages are torchao and transformers, which writes its files.
var torchaoPackages = []string{"torchao==0.18.0", "transformers==5.24.0", "accelerate==1.15.0"}

// olderTorch is withTorch for a tool that needs it.
func olderTorch(packages ...string) func(t *testing.T) string {
	return func(t *testing.T) string {
		t.Helper()
		return withTorch(t, "the tool does not run", packages...)
	}
}

// TestForeign reads what other tools wrote: the values are those of the tool, in every command that needs them, and
// the result of requantizing loads. docs/interop.md has the outcomes.
func TestForeign(t *testing.T) {
	for _, tool := range tools {
		t.Run("tool="+tool.name, func(t *testing.T) {
			out := t.TempDir()
			interpreter, program, arguments := tool.interpreter(tool.packages...)(t), build(t), []string{out}
			if tool.arguments != nil {
				arguments = append(arguments, tool.arguments(t)...)
			}
			script(t, interpreter, tool.script, arguments...)
			schemes, err := filepath.Glob(filepath.Join(out, "*"))
			if err != nil || len(schemes) == 0 {
				t.Fatalf("the tool wrote nothing: %v", err)
			}
			var table strings.Builder
			ran := 0
			for _, dir := range schemes {
				name := filepath.Base(dir)
				t.Run("scheme="+name, func(t *testing.T) {
					ran++
					fmt.Fprintf(&table, "| %s | %s |\n", name, tool.check(t, program, name, dir))
				})
			}
			if !t.Failed() && ran == len(schemes) { // not with -run of some
				head := fmt.Sprintf("| %s | values here |\n|---|---|\n", strings.Join(tool.packages, ", "))
				sameGenerated(t, filepath.Join("docs", "interop.md"), "files of "+tool.name, head+table.String(), same)
			}
		})
	}
}

// check reads a checkpoint, compares it with the tool's values, and returns the outcome.
func (o tool) check(t *testing.T, program, scheme, dir string) string {
	t.Helper()
	if text, err := os.ReadFile(filepath.Join(dir, "rejected")); err == nil {
		want := o.cannot[scheme]
		if want == "" || !strings.Contains(string(text), want) {
			t.Errorf("the tool says %s", text)
		}
		return "not written: " + want
	}
	source := filepath.Join(dir, "model")
	if _, err := os.Stat(source); err != nil {
		source += ".gguf"
	}
	values, err := hf.Open(filepath.Join(dir, "values.safetensors"))
	if err != nil {
		t.Fatal(err)
	}
	defer values.Close()
	dtype := values.Tensors()[0].Dtype

	decoded := filepath.Join(dir, "decoded")
	converted(t, source, decoded, func(m *hf.Checkpoint) (*convert.Plan, error) { return convert.PlanDequantize(t.Context(), m, dtype) })
	sameValues(t, decoded, values, o.noMinusZero[scheme], o.reordered[scheme])

	if openForeign(t, source).Quantized() > 0 { // else in types of GGUF that are read as F32
		plain, into := filepath.Join(dir, "plain"), checkpoint.Plain().Name
		if strings.Contains(scheme, "KV cache") { // which plain does not hold
			into = "compressed-tensors"
		}
		converted(t, source, plain, func(m *hf.Checkpoint) (*convert.Plan, error) {
			return convert.PlanRelabel(t.Context(), m, into, "", nil)
		})
		sameCodeValues(t, source, plain)
	}

	again := filepath.Join(dir, "again")
	converted(t, source, again, func(m *hf.Checkpoint) (*convert.Plan, error) {
		return convert.PlanQuantize(t.Context(), m, convert.QuantizeOptions{Quantizer: quant.Quantizer{Format: quant.MXFP8}, Requantize: true})
	})
	for _, path := range []string{source, again} {
		if !o.whole[scheme] {
			infer(t, path)
		}
	}
	o.lint(t, program, scheme, source)
	misread := o.misread[scheme]
	verifyForeign(t, filepath.Join(dir, "source"), source, misread)
	if misread != "" {
		return "equal; `verify`: " + misread
	}
	// GGUF files have no tokenizer here
	runCommands(t, program, filepath.Join(dir, "source"), source, !o.whole[scheme] && filepath.Ext(source) == "")
	switch {
	case o.noMinusZero[scheme]:
		return "equal, with 0 for −0"
	case o.reordered[scheme]:
		return "equal but for the order of products"
	}
	return "equal"
}

// lint checks that lint finds nothing for the reader of the tool's files, or what the reader fails with.
func (o tool) lint(t *testing.T, program, scheme, model string) {
	t.Helper()
	if o.reader == "" {
		return
	}
	text, err := command(time.Minute, program, "lint", model, "--for", o.reader)
	out := string(text)
	if want := o.alarms[scheme]; (err != nil) != (want != "") || !strings.Contains(out, want) || want == "" && !strings.Contains(out,
		": 0 errors, 0 warnings, 0 notes;") {
		t.Errorf("lint: %s (%v)", out, err)
	}
}

// runCommands runs the commands that read a checkpoint.
func runCommands(t *testing.T, program, source, model string, evaluates bool) {
	t.Helper()
	text := filepath.Join(t.TempDir(), "text")
	if err := os.WriteFile(text, []byte(strings.Repeat("the quick brown fox ", 20)), 0o600); err != nil {
		t.Fatal(err)
	}
	commands := [][]string{{"inspect", model}, {"verify", source, model}}
	if evaluates {
		commands = append(commands, []string{"eval", model, "--text", text, "--context", "64"})
	}
	for _, arguments := range commands {
		if out, err := command(time.Minute, program, arguments...); err != nil {
			t.Errorf("%s: %s", arguments[0], lastLine(out, err))
		}
	}
}

// sameValues compares decoded weights with the values of the tool, bit by bit.
func sameValues(t *testing.T, dir string, values *hf.Checkpoint, noMinusZero, reordered bool) {
	t.Helper()
	got, err := hf.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer got.Close()
	for _, want := range values.Tensors() {
		have, ok := got.Lookup(want.Name)
		if !ok || have.Dtype != want.Dtype || !slices.Equal(have.Shape, want.Shape) {
			t.Errorf("dequantize: %s is %s %v, want %s %v", want.Name, have.Dtype, have.Shape, want.Dtype, want.Shape)
			continue
		}
		a, b := make([]byte, want.Bytes()), make([]byte, want.Bytes())
		if err := got.ReadTensorAt(want.Name, a, 0); err != nil {
			t.Fatal(err)
		}
		if err := values.ReadTensorAt(want.Name, b, 0); err != nil {
			t.Fatal(err)
		}
		size, different := want.Dtype.Bits()/8, 0
		minus := append(make([]byte, size-1), 0x80) // little-endian −0
		for i := 0; i < len(a); i += size {
			x := a[i : i+size]
			if noMinusZero && slices.Equal(x, minus) {
				x = make([]byte, size)
			}
			if !slices.Equal(x, b[i:i+size]) && !(reordered && near(x, b[i:])) {
				different++
			}
		}
		if different > 0 {
			t.Errorf("dequantize: %s: %d of %d values differ", want.Name, different, len(a)/size)
		}
	}
	t.Logf("%d weights have the values of the tool", len(values.Tensors()))
}

// near reports whether two F32 values differ by no more than five roundings.
func near(a, b []byte) bool {
	x := float64(math.Float32frombits(binary.LittleEndian.Uint32(a)))
	y := float64(math.Float32frombits(binary.LittleEndian.Uint32(b)))
	return math.Abs(x-y) <= 5*0x1p-24*max(math.Abs(x), math.Abs(y))
}

// sameCodeValues compares the values of codes in two checkpoints. Clients that divide by the inverse of a global scale have
// other last bits, so those of the codes are compared.
func sameCodeValues(t *testing.T, source, dst string) {
	t.Helper()
	a, b := openForeign(t, source), openForeign(t, dst)
	for _, want := range a.Weights {
		if _, isCache := checkpoint.CacheOwner(want.Name); isCache {
			continue // each convention has another name
		}
		got, ok := b.Lookup(want.Name)
		if ok && want.Decoded() {
			continue // to values
		}
		if !ok || got.FormatName() != want.FormatName() {
			t.Errorf("convert: %s is missing, or in another format", want.Name)
			continue
		}
		if !want.Quantized() {
			continue
		}
		rows, cols := want.Matrix()
		tile := checkpoint.Tile{To: rows, ToCol: cols}
		x, err := want.ReadCodes(tile)
		if err != nil {
			t.Fatal(err)
		}
		y, err := got.ReadCodes(tile)
		if err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(x.Dequantize(1).Data, y.Dequantize(1).Data) {
			t.Errorf("convert: %s has other values", want.Name)
		}
	}
}

func openForeign(t *testing.T, dir string) *checkpoint.Model {
	t.Helper()
	source, err := convert.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { source.Close() })
	return checkpoint.Read(source)
}

// infer computes logits, as eval and run do.
func infer(t *testing.T, dir string) {
	t.Helper()
	m, err := decoder.Load(t.Context(), dir, decoder.LoadOptions{Inference: true})
	if err != nil {
		t.Errorf("load: %v", err)
		return
	}
	f32, err := recipe.Lookup("f32")
	if err != nil {
		t.Fatal(err)
	}
	var logits tensor.Dense
	if logits, err = m.Infer(&nn.Scope{Recipe: f32, Inference: true}, []int32{1, 2, 3, 4}, 1); err != nil {
		t.Errorf("infer: %v", err)
		return
	}
	if slices.ContainsFunc(logits.Data, func(v float32) bool { return v-v != 0 }) {
		t.Errorf("%s: logits are not finite", filepath.Base(dir))
	}
}

// verifyForeign compares a checkpoint with its source.
func verifyForeign(t *testing.T, source, dst, misread string) {
	t.Helper()
	a, err := hf.Open(source)
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	b, err := convert.Open(dst)
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	report, err := verify.Compare(context.Background(), a, b, verify.Options{})
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range report.Problems {
		if misread == "" || !strings.Contains(p.String(), misread) {
			t.Errorf("verify: %s", p)
		}
	}
}
