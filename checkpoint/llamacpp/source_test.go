package llamacpp

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/microscale-go/microscale/checkpoint"
	"github.com/microscale-go/microscale/family"
	"github.com/microscale-go/microscale/gguf"
	"github.com/microscale-go/microscale/gguf/ggml"
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
	const q8K = 15
	c, err := Open(file(t, []gguf.Spec{
		{Name: "blk.0.attn_v.weight", Type: q8K, Shape: []int64{2, 256}}, {Name: "blk.0.something.weight", Type: gguf.F16, Shape: []int64{3, 4}},
		{Name: "blk.0.ffn_up.weight", Type: gguf.NVFP4, Shape: []int64{2, 64}}, {Name: "token_embd.weight", Type: gguf.F32, Shape: []int64{2, 2}},
	}, gguf.Pair{Key: "general.architecture", Value: "llama"}))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	m := checkpoint.Read(c)
	if len(m.Problems) == 0 || !strings.Contains(m.Problems[len(m.Problems)-1].String(),
		"model.layers.0.self_attn.v_proj.weight: its type Q8_K is not supported") {
		t.Errorf("problems %v", m.Problems)
	}
	for name, format := range map[string]string{"model.layers.0.self_attn.v_proj.weight": "u8", "blk.0.something.weight": "f16",
		"model.layers.0.mlp.up_proj.weight": "nvfp4", "model.embed_tokens.weight": "f32"} {
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

// TestDecodedTypes: types that package ggml decodes have its values, in the row order of the checkpoint,
// from any offset on.
func TestDecodedTypes(t *testing.T) {
	const q4K, rows, cols = 12, 64, 512
	c, err := Open(file(t, []gguf.Spec{
		{Name: "blk.0.attn_q.weight", Type: q4K, Shape: []int64{rows, cols}}, {Name: "blk.0.attn_v.weight", Type: q4K,
			Shape: []int64{rows, cols}},
		{Name: "blk.0.attn_norm.weight", Type: q4K, Shape: []int64{cols}},
	}, gguf.Pair{Key: "general.architecture", Value: "llama"}, gguf.Pair{Key: "llama.attention.key_length", Value: uint32(32)}))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	q, err := ggml.LookupQuant("Q4_K")
	if err != nil {
		t.Fatal(err)
	}
	raw, values := make([]byte, rows*cols/q.Elements*q.Bytes), make([]float32, rows*cols)
	for i := range raw {
		raw[i] = byte(i)
	}
	q.Decode(values, raw)
	m := checkpoint.Read(c)
	if len(m.Problems) > 0 || len(m.Decoded) != 3 || m.Decoded[0] != "Q4_K" {
		t.Errorf("problems %v, decoded %v", m.Problems, m.Decoded)
	}
	for name, row := range map[string]func(int) int{
		"model.layers.0.self_attn.v_proj.weight": func(r int) int { return r },
		"model.layers.0.self_attn.q_proj.weight": func(r int) int { return r/32*32 + r%32%16*2 + r%32/16 },
	} {
		w, ok := m.Lookup(name)
		if !ok || w.FormatName() != "q4_k" || w.StoredBytes() != int64(len(raw)) {
			t.Fatalf("%s is %v", name, w)
		}
		x, err := w.ReadTile(checkpoint.Tile{From: 3, To: 40, FromCol: 250, ToCol: 300})
		if err != nil {
			t.Fatal(err)
		}
		for i := range x.Rows {
			from := row(i+3)*cols + 250
			if !slices.Equal(x.Row(i), values[from:from+50]) {
				t.Fatalf("%s: row %d differs", name, i+3)
			}
		}
	}
}

// TestConfiguration: the metadata of a file becomes the configuration of its model.
func TestConfiguration(t *testing.T) {
	specs := []gguf.Spec{
		{Name: "token_embd.weight", Type: gguf.F32, Shape: []int64{7, 4}}, {Name: "blk.0.attn_q.bias", Type: gguf.F32, Shape: []int64{4}},
		{Name: ropeFactors, Type: gguf.F32, Shape: []int64{1}},
	}
	pairs := []gguf.Pair{
		{Key: "general.architecture", Value: "llama"}, {Key: "llama.embedding_length", Value: uint32(4)},
		{Key: "llama.block_count", Value: uint32(3)},
		{Key: "llama.attention.layer_norm_rms_epsilon", Value: float32(1e-5)}, {Key: "llama.rope.freq_base", Value: float32(5e5)},
	}
	for name, c := range map[string]struct {
		specs []gguf.Spec
		pairs []gguf.Pair
		want  string
	}{
		"llama": {specs[:2], pairs,
			`{"architectures":["LlamaForCausalLM"],"attention_bias":true,"hidden_act":"silu","hidden_size":4,"model_type":"llama",
				"num_hidden_layers":3,
			"rms_norm_eps":1e-05,"rope_theta":500000,"tie_word_embeddings":true,"torch_dtype":"float32","vocab_size":7,"bos_token_id":null,
			"eos_token_id":null,"pad_token_id":null}`},
		"defaults": {specs[:1], append(pairs[:2:2], gguf.Pair{Key: "llama.attention.head_count", Value: uint32(2)}),
			`{"hidden_size":4,"num_attention_heads":2,"num_key_value_heads":2,"head_dim":2,"rope_theta":10000}`},
		"tokens": {specs[:1], append(pairs[:1:1], gguf.Pair{Key: "tokenizer.ggml.bos_token_id", Value: uint32(1)},
			gguf.Pair{Key: "tokenizer.ggml.eos_token_id", Value: uint32(2)}),
			`{"bos_token_id":1,"eos_token_id":2,"pad_token_id":null}`},
		"head": {[]gguf.Spec{specs[0], {Name: "output.weight", Type: gguf.F32, Shape: []int64{7, 4}}}, pairs[:1],
			`{"tie_word_embeddings":false}`},
		"float16": {[]gguf.Spec{{Name: "token_embd.weight", Type: gguf.F16, Shape: []int64{7, 4}}, {Name: "blk.0.ffn_down.bias", Type: gguf.F32,
			Shape: []int64{4}}}, pairs[:1], `{"torch_dtype":"float16","mlp_bias":true}`},
		"longrope": {[]gguf.Spec{specs[0], specs[2]}, pairs[:1],
			`{"rope_scaling":{"attention_factor":1,"long_factor":[3.8204714e-37],"rope_type":"longrope","short_factor":[3.8204714e-37]}}`},
		"yarn": {specs[:1], append(pairs[:1:1], gguf.Pair{Key: "llama.rope.scaling.type", Value: "yarn"},
			gguf.Pair{Key: "llama.rope.scaling.factor", Value: float32(4)},
			gguf.Pair{Key: "llama.rope.scaling.original_context_length", Value: uint32(64)}),
			`{"rope_scaling":{"factor":4,"original_max_position_embeddings":64,"rope_type":"yarn"}}`},
		"magnitude": {specs[:1], append(pairs[:1:1], gguf.Pair{Key: "llama.rope.scaling.type", Value: "yarn"},
			gguf.Pair{Key: "llama.rope.scaling.factor", Value: float32(8)},
			gguf.Pair{Key: "llama.rope.scaling.original_context_length", Value: uint32(64)}, gguf.Pair{Key: "llama.rope.scaling.attn_factor",
				Value: float32(2)}),
			`{"rope_scaling":{"attention_factor":2.4158883083359673,"factor":8,"original_max_position_embeddings":64,"rope_type":"yarn"}}`},
		"mixtral": {specs[:1], append(pairs[:1:1], gguf.Pair{Key: "llama.expert_count", Value: uint32(2)}),
			`{"architectures":["MixtralForCausalLM"],"model_type":"mixtral","num_local_experts":2}`},
		"qwen": {specs[:1], []gguf.Pair{{Key: "general.architecture", Value: "qwen3moe"}, {Key: "qwen3moe.expert_count", Value: uint32(2)}},
			`{"model_type":"qwen3_moe","num_experts":2,"norm_topk_prob":true}`},
		"qwen2":    {specs[:2], []gguf.Pair{{Key: "general.architecture", Value: "qwen2"}}, `{"model_type":"qwen2"}`},
		"gemma":    {specs[:1], []gguf.Pair{{Key: "general.architecture", Value: "gemma2"}}, `{"hidden_activation":"gelu_pytorch_tanh"}`},
		"unknown":  {specs[:1], []gguf.Pair{{Key: "general.architecture", Value: "t5"}}, ""},
		"no model": {specs[1:2], pairs, ""},
	} {
		source, err := Open(file(t, c.specs, c.pairs...))
		if err != nil {
			t.Fatal(err)
		}
		defer source.Close()
		if source.Config == nil || c.want == "" {
			if c.want != "" || source.Config != nil {
				t.Errorf("%s: got %s, want %q", name, source.Config, c.want)
			}
			continue
		}
		var got, want map[string]any
		if err := errors.Join(json.Unmarshal(source.Config, &got), json.Unmarshal([]byte(c.want), &want)); err != nil {
			t.Fatal(err)
		}
		if name == "llama" && len(got) != len(want) {
			t.Errorf("%s: got %s", name, source.Config)
		}
		if name == "llama" && !strings.Contains(string(source.Config), `"rope_theta": 500000.0`) {
			t.Errorf("transformers rejects integers in place of floats: %s", source.Config)
		}
		for key, value := range want {
			if g, ok := got[key]; !ok || !reflect.DeepEqual(g, value) {
				t.Errorf("%s: %s: got %v, want %v", name, key, g, value)
			}
		}
	}
}

// TestLlama3Of finds the parameters of Llama 3 that give the divisors of a file, and none for others.
func TestLlama3Of(t *testing.T) {
	for _, c := range []struct {
		headDim                     int
		theta, factor, high, length float64
	}{{128, 5e5, 8, 4, 8192}, {64, 5e5, 32, 4, 8192}, {16, 1e4, 8, 4, 16}, {96, 1e6, 2.5, 4, 4096}, {4, 1e4, 8, 4, 64}, {64, 5e5, 8, 2, 8192},
		{64, 5e5, 1, 4, 8192}} {
		m := &Model{config: config{Settings: &family.Settings{Config: family.Config{HeadDim: c.headDim}}, rope: family.Rope{Theta: c.theta}}}
		of := func(length float64) []float32 {
			return m.llama3(family.Rope{Factor: c.factor, LowFrequency: 1, HighFrequency: c.high, OriginalLength: length}).Values
		}
		got := llama3Of(of(c.length), float32(c.theta))
		if c.high != 4 || c.factor == 1 {
			if got != nil {
				t.Errorf("%v: got %v", c, got)
			}
			continue
		}
		if got == nil {
			t.Errorf("%v: nothing was found", c)
			continue
		}
		length, _ := got["original_max_position_embeddings"].(float64)
		if got["factor"] != number(c.factor) || !slices.Equal(of(length), of(c.length)) || c.headDim > 4 && length != c.length {
			t.Errorf("%v: got %v", c, got)
		}
	}
	if got := llama3Of([]float32{1, 3, 2}, 1e4); got != nil {
		t.Errorf("divisors of no Llama 3: got %v", got)
	}
	if got := llama3Of(nil, 1e4); got != nil {
		t.Errorf("no divisors: got %v", got)
	}
}

// TestOtherArchitecture: names of an unknown architecture are not translated.
func TestOtherArchitecture(t *testing.T) {
	c, err := Open(file(t, []gguf.Spec{{Name: "blk.0.attn_q.weight", Type: gguf.BF16, Shape: []int64{4, 4}}},
		gguf.Pair{Key: "general.architecture", Value: "gemma"}))
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

// TestPartialRotary checks the share of a head that is rotated, in a file that does not give the length
// of heads.
func TestPartialRotary(t *testing.T) {
	c, err := Open(file(t, []gguf.Spec{{Name: "token_embd.weight", Type: gguf.F32, Shape: []int64{2, 64}}},
		gguf.Pair{Key: "general.architecture", Value: "phi3"}, gguf.Pair{Key: "phi3.embedding_length", Value: uint32(64)},
		gguf.Pair{Key: "phi3.attention.head_count", Value: uint32(2)}, gguf.Pair{Key: "phi3.rope.dimension_count", Value: uint32(24)}))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if text := string(c.Config); !strings.Contains(text, `"partial_rotary_factor": 0.75`) {
		t.Errorf("got %s", text)
	}
}
