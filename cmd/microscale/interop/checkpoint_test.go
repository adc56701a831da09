package interop

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/microscale-go/microscale/checkpoint"
	"github.com/microscale-go/microscale/checkpoint/client"
	"github.com/microscale-go/microscale/convert"
	"github.com/microscale-go/microscale/decoder"
	"github.com/microscale-go/microscale/format"
	"github.com/microscale-go/microscale/hf"
	"github.com/microscale-go/microscale/nn"
	"github.com/microscale-go/microscale/profile"
	"github.com/microscale-go/microscale/quant"
	"github.com/microscale-go/microscale/recipe"
	"github.com/microscale-go/microscale/safetensors"
	"github.com/microscale-go/microscale/tensor"
)

// A reading is a scheme that transformers reads, decoding weights on the CPU.
type reading struct {
	convention string
	format     quant.Format
	scheme     string
	values     safetensors.Dtype // to which it rounds what it decodes
	rejected4  string            // why version 4 rejects it; "" if it does not
	rejected5  string
	model      decoder.Config // the model of the checkpoint; zero for gpt-oss
}

const (
	misread = "other values" // without an error
	noGPU   = "No GPU or XPU found"
	noMXFP8 = "Unable to find mxfp8-quantized"
	noMXFP4 = "MXFP4 Decompression is currently not supported"
)

var readings = []reading{
	{"compressed-tensors", quant.MXFP8, "MXFP8", safetensors.F32, noMXFP8, "", wide},
	{"compressed-tensors", quant.MXFP8, "MXFP8A16", safetensors.F32, noMXFP8, "", wide},
	{"compressed-tensors", quant.MXFP4, "MXFP4A16", safetensors.F32, noMXFP4, "", wide},
	{"compressed-tensors", quant.MXFP4, "MXFP4", safetensors.F32, noMXFP4, "", wide},
	{"compressed-tensors", quant.NVFP4, "NVFP4A16", safetensors.BF16, "", "", wide},
	{"compressed-tensors", quant.NVFP4, "NVFP4", safetensors.BF16, "", "", wide},
	{"compressed-tensors", quant.FP8Tensor, "FP8_TOKEN", safetensors.F32, "", "", wide},
	{"compressed-tensors", quant.FP8Tensor, "FP8", safetensors.F32, "", "", wide},
	{"compressed-tensors", quant.FP8Row, "FP8_DYNAMIC", safetensors.F32, "", "", wide},
	{"compressed-tensors", quant.FP8Block, "FP8_BLOCK", safetensors.F32, "", "", wide},
	{"compressed-tensors", ints("int4-g128"), "W4A16", safetensors.BF16, "", "", wide},
	{"compressed-tensors", ints("int4-g32"), "W4A16", safetensors.BF16, "", "", wide},
	{"compressed-tensors", ints("int8-g128"), "W8A16", safetensors.BF16, "", "", wide},
	{"compressed-tensors", ints("int8-row"), "W8A8", safetensors.BF16, "", "", wide},
	{"compressed-tensors", ints("int8-row"), "W8A16", safetensors.BF16, "", "", wide},
	{"compressed-tensors", ints("int4-g128"), "W4AFP8", safetensors.BF16, "", "", wide},
	{"compressed-tensors", quant.FP8Block, "FP8_BLOCK", safetensors.F32, misread, "", uneven},
	{"compressed-tensors", quant.FP8Block, "FP8_BLOCK_A16", safetensors.F32, "must match the size of tensor b", "", partial},
	{"deepseek", quant.FP8Block, "FP8", safetensors.F32, noGPU, "", wide},
	{"deepseek", quant.FP8Block, "FP8", safetensors.F32, noGPU, misread, uneven}, // package verify has a rule for it
	// version 4 does not know the method, and takes codes for values
	{"mxfp8", quant.MXFP8, "MXFP8", safetensors.F32, "unexpected_keys", "", wide},
	{"gpt-oss", quant.MXFP4, "MXFP4", safetensors.F32, "", "", decoder.Config{}},
}

var (
	// wide is a byte-level Llama whose weights have several blocks of 128×128; those of keys
	// and values have half a block.
	wide = decoder.Config{HiddenSize: 256, IntermediateSize: 384, NumHiddenLayers: 2, NumAttentionHeads: 4, NumKeyValueHeads: 1}
	// uneven has queries of one block and a half.
	uneven = decoder.Config{HiddenSize: 384, IntermediateSize: 384, NumHiddenLayers: 1, NumAttentionHeads: 3, NumKeyValueHeads: 1, HeadDim: 64}
)

// partial has rows of one block and a half.
var partial = decoder.Config{HiddenSize: 192, IntermediateSize: 320, NumHiddenLayers: 1, NumAttentionHeads: 3, NumKeyValueHeads: 1,
	HeadDim: 64}

// A loaded checkpoint is the report of checkpoint.py on it.
type loaded struct {
	Rejected    string   `json:"rejected"`
	Weights     int      `json:"weights"`   // that were compared
	Different   []string `json:"different"` // those with other values
	OfValues    float64  `json:"of values"` // largest difference of logits, as a part of the largest, from transformers' with our values
	OfOurs      float64  `json:"of ours"`   // from our forward pass with them
	Activations any      `json:"activations"`
}

// TestTorchCheckpoints: transformers decodes a quantized checkpoint to the values of
// dequantize, bit for bit, and computes our logits.
func TestTorchCheckpoints(t *testing.T) {
	client, err := client.Lookup("transformers")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range checkpoint.Conventions() {
		for _, f := range c.Formats() {
			for _, scheme := range c.Schemes(f) {
				there := slices.ContainsFunc(readings, func(r reading) bool { return r.convention == c.Name && r.scheme == scheme })
				if there != client.Reads(c.Name, scheme) {
					t.Errorf("%s %s is read by transformers: %v here, and otherwise in package client", c, scheme, there)
				}
			}
		}
	}
	const why = "transformers 4 and 5 with compressed-tensors are not started"
	four := withTorch(t, why, transformers4...)
	five := withTorch(t, why, transformers5...)
	newer := files(t, "compressed-tensors==0.20.0")

	root := t.TempDir()
	var dirs []string
	for i, r := range readings {
		source, isLlama := filepath.Join(root, fmt.Sprint(i)), r.model != decoder.Config{}
		if !isLlama {
			writeGPTOSS(t, source)
		} else if err := initialLlama(t, r.model.WithDefaults()).Save(source, safetensors.BF16); err != nil {
			t.Fatal(err)
		}
		dir := filepath.Join(root, r.convention+" "+r.scheme+" "+r.format.Name) // formats may share a scheme
		if r.model == uneven {
			dir += " uneven"
		}
		makeReading(t, r, source, dir)
		if isLlama {
			writeLogits(t, filepath.Join(dir, "values"), filepath.Join(dir, "expected.safetensors"))
		}
		dirs = append(dirs, dir)
	}
	for _, environment := range []struct {
		name, interpreter, packages string
	}{{"transformers=4", four, "-"}, {"transformers=5", five, newer}} {
		t.Run(environment.name, func(t *testing.T) {
			result := filepath.Join(t.TempDir(), "result.json")
			t.Logf("%s", lastLine(scriptOutput(t, environment.interpreter, "checkpoint.py", append([]string{environment.packages, result},
				dirs...)...), nil))
			raw, err := os.ReadFile(result)
			if err != nil {
				t.Fatal(err)
			}
			var all map[string]loaded
			if err := json.Unmarshal(raw, &all); err != nil {
				t.Fatal(err)
			}
			for i, r := range readings {
				t.Run(filepath.Base(dirs[i]), func(t *testing.T) {
					rejected := r.rejected5
					if environment.interpreter == four {
						rejected = r.rejected4
					}
					checkReading(t, all[filepath.Base(dirs[i])], rejected)
				})
			}
		})
	}
}

// checkReading compares the results of a client with those expected.
func checkReading(t *testing.T, got loaded, rejected string) {
	if rejected == misread {
		t.Logf("misread: %q", got.Different)
		if len(got.Different) == 0 {
			t.Errorf("it reads the values, or says %q, and was expected to misread them", got.Rejected)
		}
		return
	}
	if got.Rejected != "" || rejected != "" {
		t.Logf("rejected: %.200s", got.Rejected)
		if rejected == "" || !strings.Contains(got.Rejected, rejected) {
			t.Errorf("it says %q, and was expected to say %q", got.Rejected, rejected)
		}
		return
	}
	t.Logf("%d weights, logits off by %.1e of values, %.1e of ours, with quantized activations %v", got.Weights, got.OfValues, got.OfOurs,
		got.Activations)
	if got.Weights == 0 || len(got.Different) > 0 {
		t.Errorf("of %d weights these have other values: %q", got.Weights, got.Different)
	}
	if got.OfValues != 0 || got.OfOurs > 1e-5 {
		t.Errorf("logits are %g off from those of our values, %g from ours", got.OfValues, got.OfOurs)
	}
}

// makeReading writes the input of a client, and its values as decoded by this module.
func makeReading(t *testing.T, r reading, source, dir string) {
	t.Helper()
	c, err := checkpoint.LookupConvention(r.convention)
	if err != nil {
		t.Fatal(err)
	}
	c, err = c.With(r.format, r.scheme)
	if err != nil {
		t.Fatal(err)
	}
	q, err := profile.For(r.format).Quantizer(r.format)
	if err != nil {
		t.Fatal(err)
	}
	o := convert.QuantizeOptions{Quantizer: q, Convention: r.convention, Scheme: r.scheme}
	if _, a := c.Scheme(r.format); a == checkpoint.Static {
		o.Calibration = &convert.Calibration{ConstantInputs: true}
	}
	if err := os.Mkdir(dir, 0o777); err != nil {
		t.Fatal(err)
	}
	model := filepath.Join(dir, "model")
	converted(t, source, model, func(m *hf.Checkpoint) (*convert.Plan, error) { return convert.PlanQuantize(t.Context(), m, o) })
	converted(t, model, filepath.Join(dir, "values"), func(m *hf.Checkpoint) (*convert.Plan, error) {
		return convert.PlanDequantize(t.Context(), m, r.values)
	})
}

func converted(t *testing.T, source, dst string, plan func(*hf.Checkpoint) (*convert.Plan, error)) {
	t.Helper()
	src, err := convert.Open(source)
	if err != nil {
		t.Fatal(err)
	}
	defer src.Close()
	p, err := plan(src)
	if err == nil {
		_, err = p.Run(context.Background(), dst, convert.RunOptions{})
	}
	if err != nil {
		t.Fatal(err)
	}
}

// writeLogits writes tokens and the logits of our forward pass in float32.
func writeLogits(t *testing.T, dir, path string) {
	t.Helper()
	const batch, length = 2, 100
	m, err := decoder.Load(t.Context(), dir, decoder.LoadOptions{})
	if err != nil {
		t.Fatal(err)
	}
	f32, err := recipe.Lookup("f32")
	if err != nil {
		t.Fatal(err)
	}
	r := rand.New(rand.NewPCG(7, 7))
	tokens := make([]int32, batch*length)
	for i := range tokens {
		tokens[i] = r.Int32N(256)
	}
	logits, err := m.Infer(&nn.Scope{Recipe: f32, Inference: true}, tokens, batch)
	if err != nil {
		t.Fatal(err)
	}
	writeTensors(t, path, []namedTensor{
		{safetensors.Spec{Name: "tokens", Dtype: safetensors.I32, Shape: []int64{batch, length}}, int32Bytes(tokens)},
		{safetensors.Spec{Name: "logits", Dtype: safetensors.F32, Shape: []int64{batch, length, int64(logits.Cols)}}, floatBytes(t, logits)},
	})
}

// writeGPTOSS writes a small BF16 model of the architecture of gpt-oss.
func writeGPTOSS(t *testing.T, dir string) {
	t.Helper()
	const config = `{"architectures": ["GptOssForCausalLM"], "model_type": "gpt_oss", "torch_dtype": "bfloat16", "vocab_size": 256,
		"hidden_size": 64,
		"intermediate_size": 96, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16,
		"num_local_experts": 3,
		"num_experts_per_tok": 2, "max_position_embeddings": 256, "rms_norm_eps": 1e-5, "sliding_window": 128,
		"layer_types": ["sliding_attention", "full_attention"], "pad_token_id": 0, "eos_token_id": 0}`
	if err := os.Mkdir(dir, 0o777); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, hf.ConfigName), []byte(config), 0o666); err != nil {
		t.Fatal(err)
	}
	shapes := map[string][]int64{"model.embed_tokens.weight": {256, 64}, "lm_head.weight": {256, 64}, "model.norm.weight": {64}}
	for _, layer := range []string{"model.layers.0.", "model.layers.1."} {
		for name, shape := range map[string][]int64{
			"input_layernorm.weight": {64}, "post_attention_layernorm.weight": {64}, "self_attn.sinks": {4},
			"self_attn.q_proj.weight": {64, 64}, "self_attn.k_proj.weight": {32, 64}, "self_attn.v_proj.weight": {32, 64},
			"self_attn.o_proj.weight": {64, 64},
			"self_attn.q_proj.bias":   {64}, "self_attn.k_proj.bias": {32}, "self_attn.v_proj.bias": {32}, "self_attn.o_proj.bias": {64},
			"mlp.router.weight": {3, 64}, "mlp.router.bias": {3},
			"mlp.experts.gate_up_proj": {3, 64, 192}, "mlp.experts.gate_up_proj_bias": {3, 192},
			"mlp.experts.down_proj": {3, 96, 64}, "mlp.experts.down_proj_bias": {3, 64},
		} {
			shapes[layer+name] = shape
		}
	}
	var tensors []namedTensor
	r := rand.New(rand.NewPCG(8, 8))
	for name, shape := range shapes {
		n := int64(1)
		for _, dim := range shape {
			n *= dim
		}
		tensors = append(tensors, namedTensor{safetensors.Spec{Name: name, Dtype: safetensors.BF16, Shape: shape}, make([]byte, 2*n)})
	}
	slices.SortFunc(tensors, func(a, b namedTensor) int { return cmp.Compare(a.Name, b.Name) })
	for _, x := range tensors {
		values := make([]float32, len(x.data)/2)
		for i := range values {
			values[i] = float32(r.NormFloat64()) / 4
		}
		if err := tensor.ToBytes(x.data, values, format.BF16); err != nil {
			t.Fatal(err)
		}
	}
	writeTensors(t, filepath.Join(dir, "model.safetensors"), tensors)
}

type namedTensor struct {
	safetensors.Spec
	data []byte
}

func writeTensors(t *testing.T, path string, tensors []namedTensor) {
	t.Helper()
	var specs []safetensors.Spec
	for _, x := range tensors {
		specs = append(specs, x.Spec)
	}
	layout, err := safetensors.NewLayout(specs, nil)
	if err != nil {
		t.Fatal(err)
	}
	w, err := safetensors.Create(path, layout)
	if err != nil {
		t.Fatal(err)
	}
	for _, x := range tensors {
		if err := w.WriteTensorAt(x.Name, x.data, 0); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
}
