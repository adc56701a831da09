package decoder

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/microscale-go/microscale/checkpoint"
	"github.com/microscale-go/microscale/convert"
	"github.com/microscale-go/microscale/hf"
	"github.com/microscale-go/microscale/quant"
	"github.com/microscale-go/microscale/safetensors"
)

// trained returns a slightly trained model, which the tests share.
func trained(t testing.TB, c Config) *Model {
	t.Helper()
	if m := learned[c]; m != nil {
		return m
	}
	m, err := New(c, Options{}, 3)
	if err != nil {
		t.Fatal(err)
	}
	tokens, targets := text(2, 48)
	for range 4 {
		for _, p := range m.Params() {
			p.ZeroGrad()
		}
		if _, err := m.Train(scope(t, "bf16"), tokens, targets, 2, 1); err != nil {
			t.Fatal(err)
		}
		for _, p := range m.Params() {
			for i, g := range p.Grad.Data {
				p.Value.Data[i] -= 0.05 * g
			}
		}
	}
	learned[c] = m
	return m
}

var learned = map[Config]*Model{}

func logits(t testing.TB, m *Model, name string) []float32 {
	t.Helper()
	tokens, _ := text(2, 32)
	y, err := m.Infer(scope(t, name), tokens, 2)
	if err != nil {
		t.Fatal(err)
	}
	return y.Data
}

// TestSaveLoad checks that a model saved in F32 is loaded bit by bit, and that one saved in BF16 computes
// the same, except under the recipe that does not round.
func TestSaveLoad(t *testing.T) {
	for _, tied := range []bool{false, true} {
		c := small
		c.TieWordEmbeddings = tied
		m := trained(t, c)
		for _, dtype := range []safetensors.Dtype{safetensors.F32, safetensors.BF16} {
			dir := filepath.Join(t.TempDir(), "model")
			for range 2 { // the second time it replaces the first
				if err := m.Save(dir, dtype); err != nil {
					t.Fatal(err)
				}
			}
			back, err := Load(t.Context(), dir, LoadOptions{})
			if err != nil {
				t.Fatal(err)
			}
			if back.Config != m.Config {
				t.Errorf("the configuration came back as %+v", back.Config)
			}
			if !slices.Equal(logits(t, back, "mxfp8"), logits(t, m, "mxfp8")) {
				t.Errorf("%s: other logits", dtype)
			}
			if same := slices.Equal(logits(t, back, "f32"), logits(t, m, "f32")); same != (dtype == safetensors.F32) {
				t.Errorf("%s: the same bits without rounding: %v", dtype, same)
			}
			names, err := filepath.Glob(filepath.Join(dir, "*"))
			if err != nil || len(names) != 3 {
				t.Errorf("the directory has %v", names)
			}
		}
	}
	if err := trained(t, small).Save(t.TempDir(), safetensors.F16); err == nil {
		t.Error("Save in F16: got no error")
	}
}

// quantized quantizes a saved model as the command does.
func quantized(t testing.TB, source, name string, q quant.Quantizer, c *checkpoint.Convention) string {
	t.Helper()
	src, err := hf.Open(source)
	if err != nil {
		t.Fatal(err)
	}
	defer src.Close()
	o := convert.QuantizeOptions{Quantizer: q, Convention: c.Name}
	if c.Name == "modelopt" && q.Format.PerTensor() {
		o.Calibration = &convert.Calibration{ConstantInputs: true, ConstantCache: true} // its only scheme has scales of activations
	}
	plan, err := convert.PlanQuantize(t.Context(), src, o)
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(t.TempDir(), name)
	if _, err := plan.Run(context.Background(), dir, convert.RunOptions{}); err != nil {
		t.Fatal(err)
	}
	return dir
}

// TestLoadQuantized compares checkpoints of every convention and format with their decoded weights,
// within the error of accumulation, and with the source.
func TestLoadQuantized(t *testing.T) {
	m := trained(t, small)
	dir := t.TempDir()
	if err := m.Save(dir, safetensors.BF16); err != nil {
		t.Fatal(err)
	}
	tokens, targets := text(2, 64)
	loss := func(m *Model) float64 {
		l, err := m.Loss(scope(t, "bf16"), tokens, targets, 2)
		if err != nil {
			t.Fatal(err)
		}
		return l
	}
	want := loss(m)
	for _, c := range checkpoint.Conventions() {
		for _, f := range c.Formats() {
			if !f.Scaled() || c.Name == "gpt-oss" || c.OneFile() { // experts alone; no directory
				continue
			}
			if testing.Short() && (c != checkpoint.Plain() || f.Name != quant.MXFP8.Name && f.Name != quant.NVFP4.Name) {
				continue
			}
			t.Run(fmt.Sprintf("convention=%s/format=%s", c, f), func(t *testing.T) {
				low := quantized(t, dir, "low", quant.Quantizer{Format: f}, c)
				codes, err := Load(t.Context(), low, LoadOptions{})
				if err != nil {
					t.Fatal(err)
				}
				if !codes.Quantized() {
					t.Fatal("no weight is quantized")
				}
				if l := loss(codes); math.Abs(l-want) > 0.2 {
					t.Errorf("the loss is %.4f, that of the source %.4f", l, want)
				}
				both, err := Load(t.Context(), low, LoadOptions{Activations: true})
				if err != nil {
					t.Fatal(err)
				}
				if l := loss(both); math.Abs(l-want) > 0.3 || l == loss(codes) {
					t.Errorf("with activations quantized the loss is %.4f, that of the source %.4f", l, want)
				}
				if codes.WeightBytes() >= m.WeightBytes() {
					t.Errorf("weights take %d bytes, those of the source %d", codes.WeightBytes(), m.WeightBytes())
				}

				// The decoded weights, as weights of a model that rounds nothing.
				decoded, err := Load(t.Context(), dir, LoadOptions{})
				if err != nil {
					t.Fatal(err)
				}
				source, err := hf.Open(low)
				if err != nil {
					t.Fatal(err)
				}
				defer source.Close()
				read := checkpoint.Read(source)
				for _, p := range decoded.Params() {
					w, _ := read.Lookup(p.Name)
					d, err := w.Read(0, p.Value.Rows)
					if err != nil {
						t.Fatal(err)
					}
					copy(p.Value.Data, d.Data)
				}
				requireNear(t, logits(t, codes, "f32"), logits(t, decoded, "f32"), 1e-4)

				if _, err := codes.Train(scope(t, "bf16"), tokens, targets, 2, 1); err == nil {
					t.Error("Train of a quantized model: got no error")
				}
				if err := codes.Save(t.TempDir(), safetensors.BF16); err == nil {
					t.Error("Save of a quantized model: got no error")
				}
			})
		}
	}
}

func requireNear(t testing.TB, got, want []float32, tolerance float64) {
	t.Helper()
	for i, v := range want {
		if !(math.Abs(float64(got[i]-v)) <= tolerance) {
			t.Fatalf("logit %d: got %g, want %g", i, got[i], v)
		}
	}
}

// TestQuantize compares a model that is quantized in memory with its checkpoint.
func TestQuantize(t *testing.T) {
	m := trained(t, small)
	dir := t.TempDir()
	if err := m.Save(dir, safetensors.BF16); err != nil {
		t.Fatal(err)
	}
	before := logits(t, m, "bf16")
	for _, f := range []quant.Format{quant.MXFP8, quant.MXFP4, quant.NVFP4, quant.FP8Block, quant.FP8Tensor} {
		for _, activations := range []bool{false, true} {
			inMemory, err := m.Quantize(quant.Quantizer{Format: f}, activations, 2)
			if err != nil {
				t.Fatal(err)
			}
			loaded, err := Load(t.Context(), quantized(t, dir, "low", quant.Quantizer{Format: f}, checkpoint.Plain()),
				LoadOptions{Activations: activations})
			if err != nil {
				t.Fatal(err)
			}
			if got, want := logits(t, inMemory, "bf16"), logits(t, loaded, "bf16"); !slices.Equal(got, want) {
				t.Errorf("%s, activations %v: other logits in memory than from the checkpoint", f, activations)
			}
			if inMemory.WeightBytes() != loaded.WeightBytes() {
				t.Errorf("%s: %d bytes in memory, %d from the checkpoint", f, inMemory.WeightBytes(), loaded.WeightBytes())
			}
			if _, err := inMemory.Quantize(quant.Quantizer{Format: f}, false, 1); err == nil {
				t.Error("Quantize of a quantized model: got no error")
			}
			if scales := inMemory.layers[1].mlp.down.frozen.parts[0].weight.Scales; scales != nil {
				scales[0] = byte(f.Scale.Encode(float32(math.NaN())))
				tokens, _ := text(2, 32)
				if _, err := inMemory.Infer(scope(t, "bf16"), tokens, 2); err == nil || !strings.Contains(err.Error(),
					"model.layers.1.mlp.down_proj: gemm: row 0: the ") {
					t.Errorf("%s: a weight with a NaN scale: error %v", f, err)
				}
			}
		}
	}
	if m.Quantized() || !slices.Equal(before, logits(t, m, "bf16")) {
		t.Error("the source changed")
	}
}

// TestConfigJSON checks the keys that transformers reads, and that of the vocabulary.
func TestConfigJSON(t *testing.T) {
	dir := t.TempDir()
	if err := trained(t, small).Save(dir, safetensors.BF16); err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(filepath.Join(dir, hf.ConfigName))
	if err != nil {
		t.Fatal(err)
	}
	var got map[string]any
	if err := json.Unmarshal(data, &got); err != nil {
		t.Fatal(err)
	}
	for key, want := range map[string]any{
		"architectures": []any{"LlamaForCausalLM"}, "model_type": "llama", "torch_dtype": "bfloat16",
		"vocab_size": 256.0, "hidden_size": 128.0, "intermediate_size": 256.0, "num_hidden_layers": 2.0,
		"num_attention_heads": 4.0, "num_key_value_heads": 2.0, "head_dim": 32.0, "max_position_embeddings": 2048.0,
		"rope_theta": 10000.0, "rms_norm_eps": 1e-5, "tie_word_embeddings": false, "hidden_act": "silu",
		"attention_bias": false, "mlp_bias": false, "rope_scaling": nil, "bos_token_id": nil, "eos_token_id": nil,
		"microscale": map[string]any{"vocabulary": "bytes"},
	} {
		if value, ok := got[key]; !ok || fmt.Sprint(value) != fmt.Sprint(want) {
			t.Errorf("%s: got %v, want %v", key, value, want)
		}
		delete(got, key)
	}
	if len(got) > 0 {
		t.Errorf("config.json has %v besides", got)
	}
}

// TestLoadErrors checks the errors for checkpoints of other models.
func TestLoadErrors(t *testing.T) {
	m := trained(t, small)
	for _, tc := range []struct {
		name     string
		config   func(c map[string]any)
		file     func(dir string) error
		complain string
	}{
		{name: "model_type", config: func(c map[string]any) { c["model_type"] = "gpt2" }, complain: `model_type "gpt2" is not supported`},
		{name: "another", config: func(c map[string]any) { c["model_type"] = "qwen2" },
			complain: "LlamaForCausalLM is not supported: want Qwen2ForCausalLM"},
		{name: "key", config: func(c map[string]any) { c["secret_multiplier"] = 2 },
			complain: `the key "secret_multiplier", with the value 2, is not known for llama`},
		{name: "window", config: func(c map[string]any) { c["sliding_window"] = 16 }, complain: `"sliding_window"`},
		{name: "rope_key", config: func(c map[string]any) {
			c["rope_scaling"] = map[string]any{"rope_type": "linear", "factor": 2, "turn": 1}
		}, complain: `rope_scaling: unknown field "turn"`},
		{name: "null", config: func(c map[string]any) { c["secret_multiplier"], c["vocab_size"] = nil, "many" }, complain: "vocab_size"},
		{name: "architectures", config: func(c map[string]any) { c["architectures"] = []string{"LlamaForSequenceClassification"} },
			complain: "LlamaForSequenceClassification"},
		{name: "bias", config: func(c map[string]any) { c["attention_bias"] = true }, complain: "self_attn.q_proj.bias is missing"},
		{name: "rope object", config: func(c map[string]any) { c["rope_scaling"] = 0.5 },
			complain: "config.json: rope_scaling: unexpected number, want an object"},
		{name: "text object", config: func(c map[string]any) { c["text_config"] = []int{1} },
			complain: "config.json: text_config: unexpected array, want an object"},
		{name: "rope factor", config: func(c map[string]any) {
			c["rope_scaling"] = map[string]any{"rope_type": "yarn", "factor": "x"}
		}, complain: "config.json: rope_scaling: factor: unexpected string"},
		{name: "rope type", config: func(c map[string]any) { c["rope_scaling"] = map[string]any{"rope_type": "ntk"} },
			complain: "rope_type \"ntk\" is not supported"},
		{name: "rope", config: func(c map[string]any) { c["rope_scaling"] = map[string]any{"rope_type": "llama3"} }, complain: "rope_scaling"},
		{name: "activation", config: func(c map[string]any) { c["hidden_act"] = "gelu" }, complain: "gelu"},
		{name: "heads", config: func(c map[string]any) { c["num_key_value_heads"] = 3 }, complain: "num_key_value_heads"},
		{name: "type", config: func(c map[string]any) { c["hidden_size"] = "wide" }, complain: "config.json: hidden_size: unexpected string"},
		{name: "deeper", config: func(c map[string]any) { c["num_hidden_layers"] = 3 },
			complain: "1 of 3 layers are missing, the first model.layers.2: fetch the checkpoint again"},
		{name: "shallower", config: func(c map[string]any) { c["num_hidden_layers"] = 1 }, complain: "model.layers.1"},
		{name: "wider", config: func(c map[string]any) { c["intermediate_size"] = 384 },
			complain: "mlp.gate_proj.weight: got shape [256 128], want [384 128]"},
		{name: "vast", config: func(c map[string]any) { c["num_hidden_layers"] = 60000 }, complain: "59998 of 60000 layers are missing"},
		{name: "beyond", config: func(c map[string]any) { c["hidden_size"] = 1 << 40 }, complain: "hidden_size"},
		{name: "bytes", config: func(c map[string]any) { c["vocab_size"] = 300 }, complain: "256"},
		{name: "no-config", file: func(dir string) error { return os.Remove(filepath.Join(dir, hf.ConfigName)) }, complain: "config.json"},
		{name: "no-weights", file: func(dir string) error { return os.Remove(filepath.Join(dir, weightsName)) }, complain: "safetensors"},
		{name: "cut", file: func(dir string) error { return os.Truncate(filepath.Join(dir, weightsName), 100000) }, complain: weightsName},
	} {
		t.Run(tc.name, func(t *testing.T) {
			dir := t.TempDir()
			if err := m.Save(dir, safetensors.BF16); err != nil {
				t.Fatal(err)
			}
			if tc.config != nil {
				edit(t, filepath.Join(dir, hf.ConfigName), tc.config)
			}
			if tc.file != nil {
				if err := tc.file(dir); err != nil {
					t.Fatal(err)
				}
			}
			_, err := Load(t.Context(), dir, LoadOptions{})
			if err == nil || !strings.Contains(err.Error(), tc.complain) || strings.Contains(err.Error(), "\n") {
				t.Errorf("got %v, want %q", err, tc.complain)
			}
		})
	}
}

func edit(t testing.TB, path string, change func(map[string]any)) {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var c map[string]any
	if err := json.Unmarshal(data, &c); err != nil {
		t.Fatal(err)
	}
	change(c)
	if data, err = json.Marshal(c); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, data, 0o666); err != nil {
		t.Fatal(err)
	}
}

// TestVocabulary checks that a model with a tokenizer has a loss, but does not generate text.
func TestVocabulary(t *testing.T) {
	dir := t.TempDir()
	if err := trained(t, small).Save(dir, safetensors.BF16); err != nil {
		t.Fatal(err)
	}
	edit(t, filepath.Join(dir, hf.ConfigName), func(c map[string]any) {
		delete(c, "microscale")
		delete(c, "rope_theta")
		c["rope_parameters"] = map[string]any{"rope_theta": 500.0, "rope_type": "default"}
	})
	m, err := Load(t.Context(), dir, LoadOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if m.Config.RopeTheta != 500 {
		t.Errorf("θ is %g", m.Config.RopeTheta)
	}
	logits(t, m, "bf16")
	if err := m.Config.RequireBytes(); !errors.Is(err, errors.ErrUnsupported) {
		t.Errorf("vocabulary of 256 tokens without a name: %v", err)
	}
}

// TestLoadCanceled checks that Load returns the error of a context that has ended.
func TestLoadCanceled(t *testing.T) {
	dir := t.TempDir()
	if err := trained(t, small).Save(dir, safetensors.BF16); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if m, err := Load(ctx, dir, LoadOptions{}); m != nil || !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, %v, want context.Canceled", m, err)
	}
}
