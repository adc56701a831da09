package decoder

import (
	"flag"
	"fmt"
	"hash/fnv"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/microscale-go/microscale/family"
	"github.com/microscale-go/microscale/format"
	"github.com/microscale-go/microscale/hf"
	"github.com/microscale-go/microscale/safetensors"
	"github.com/microscale-go/microscale/tensor"
)

var update = flag.Bool("update", false, "rewrite testdata/families.txt")

// familyConfigs are small models. Every row of the table has one at least.
var familyConfigs = map[string]string{
	"llama": `"model_type": "llama", "mlp_bias": true, "attention_bias": true, "rope_scaling": {"rope_type": "linear", "factor": 2}`,
	"llama-3": `"model_type": "llama", "tie_word_embeddings": true, "rope_scaling": {"rope_type": "llama3", "factor": 8, ` +
		`"low_freq_factor": 1, "high_freq_factor": 4, "original_max_position_embeddings": 16}`,
	"mistral": `"model_type": "mistral", "sliding_window": 8, "head_dim": 24`,
	"smollm3": `"model_type": "smollm3", "no_rope_layers": [1, 0]`,
	"qwen2":   `"model_type": "qwen2", "use_sliding_window": true, "sliding_window": 8, "max_window_layers": 1`,
	"qwen3":   `"model_type": "qwen3", "head_dim": 16`,
	"qwen2moe": `"model_type": "qwen2_moe", "num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 24, ` +
		`"shared_expert_intermediate_size": 16`,
	"qwen3moe": `"model_type": "qwen3_moe", "num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 24, "norm_topk_prob": ` +
		`true, "mlp_only_layers": [0]`,
	"mixtral": `"model_type": "mixtral", "num_local_experts": 4, "num_experts_per_tok": 2`,
	"gemma2":  `"model_type": "gemma2", "head_dim": 16, "sliding_window": 8, "attn_logit_softcapping": 4, "final_logit_softcapping": 3`,
	"gemma3": `"model_type": "gemma3_text", "head_dim": 16, "sliding_window": 8, "sliding_window_pattern": 2, "rope_scaling": ` +
		`{"rope_type": "linear", "factor": 8}`,
	"phi3": `"model_type": "phi3", "original_max_position_embeddings": 16, "partial_rotary_factor": 0.5,
		"rope_scaling": {"type": "longrope", "short_factor": [1, 1, 1, 2], "long_factor": [2, 3, 4, 5]}`,
	"granite": `"model_type": "granite", "embedding_multiplier": 6, "residual_multiplier": 0.3, "attention_multiplier": 0.2, ` +
		`"logits_scaling": 4`,
	"olmo2": `"model_type": "olmo2"`,
	"olmo3": `"model_type": "olmo3", "sliding_window": 8, "layer_types": ["sliding_attention", "full_attention"]`,
	"gpt-oss": `"model_type": "gpt_oss", "head_dim": 16, "num_local_experts": 4, "num_experts_per_tok": 2, "sliding_window": 8,
		"rope_scaling": {"rope_type": "yarn", "factor": 4, "original_max_position_embeddings": 16, "truncate": false}`,
	"glm4": `"model_type": "glm4", "head_dim": 16, "attention_bias": true`,
	"deepseek-v3": `"model_type": "deepseek_v3", "n_routed_experts": 8, "n_shared_experts": 1, "num_experts_per_tok": 3,
		"moe_intermediate_size": 24, "n_group": 4, "topk_group": 2,
		"first_k_dense_replace": 1, "q_lora_rank": 16, "kv_lora_rank": 12, "qk_nope_head_dim": 10, "qk_rope_head_dim": 6, "v_head_dim": 8,
		"num_nextn_predict_layers": 1,
		"rope_scaling": {"type": "yarn", "factor": 4, "original_max_position_embeddings": 16, "mscale": 1, "mscale_all_dim": 0.5}`,
}

func familyConfig(name string) string {
	return `{"vocab_size": 48, "hidden_size": 32, "intermediate_size": 40, "num_hidden_layers": 2, "num_attention_heads": 2,
		"num_key_value_heads": 1,
		"max_position_embeddings": 64, ` + familyConfigs[name] + "}"
}

// A stored tensor has values that depend only on its name.
func storedTensor(name string, shape []int64) (safetensors.Spec, []float32) {
	h := fnv.New64a()
	h.Write([]byte(name))
	r := rand.New(rand.NewPCG(h.Sum64(), 1))
	n, std := 1, 0.3
	for _, d := range shape {
		n *= int(d)
	}
	if len(shape) > 1 {
		std = 1 / math.Sqrt(float64(shape[len(shape)-1]))
	}
	values := make([]float32, n)
	for i := range values {
		values[i] = float32(r.NormFloat64() * std)
		if len(shape) == 1 && strings.HasSuffix(name, "norm.weight") {
			values[i]++
		}
	}
	return safetensors.Spec{Name: name, Dtype: safetensors.F32, Shape: shape}, values
}

// writeFamily writes a model. change may rename or remove tensors (by returning ""), and add others.
func writeFamily(t *testing.T, configuration string, change func(name string) string, extra ...want) string {
	t.Helper()
	plan := planFor(t, configuration)
	m, err := newModel(Config{}, plan, Options{}, plan.newEmbedding())
	if err != nil {
		t.Fatal(err)
	}
	var specs []safetensors.Spec
	data := map[string][]byte{}
	for _, w := range append(m.wants(), extra...) {
		shape := w.shape
		if len(shape) == 3 { // experts of gpt-oss
			shape = []int64{shape[0], shape[2], shape[1]}
		}
		spec, values := storedTensor(w.name, shape)
		if spec.Name = change(w.name); spec.Name == "" {
			continue
		}
		raw := make([]byte, 4*len(values))
		if err := tensor.ToBytes(raw, values, format.F32); err != nil {
			t.Fatal(err)
		}
		specs, data[spec.Name] = append(specs, spec), raw
	}
	layout, err := safetensors.NewLayout(specs, nil)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	f, err := safetensors.Create(filepath.Join(dir, weightsName), layout)
	if err != nil {
		t.Fatal(err)
	}
	for name, raw := range data {
		if err := f.WriteTensorAt(name, raw, 0); err != nil {
			t.Fatal(err)
		}
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, hf.ConfigName), []byte(configuration), 0o666); err != nil {
		t.Fatal(err)
	}
	return dir
}

func same(name string) string { return name }

func loadFamily(t *testing.T, dir string, inference bool) *Model {
	t.Helper()
	m, err := Load(t.Context(), dir, LoadOptions{Inference: inference})
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// familyTokens returns 32 tokens, half of the positions of the configurations.
func familyTokens() []int32 {
	tokens := make([]int32, 32)
	for i := range tokens {
		tokens[i] = int32(i*i+3*i) % 48
	}
	return tokens
}

// TestFamilies compares the last logits of a model of each family with testdata/families.txt. They were
// recorded when interop's TestTorchFamilies held for the same code. Logits of a session, and of weights
// as they are stored, are those of the whole sequence.
func TestFamilies(t *testing.T) {
	const path = "testdata/families.txt"
	recorded := map[string]string{}
	if !*update {
		data, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(data)) {
			if name, rest, ok := strings.Cut(strings.TrimSpace(line), ": "); ok {
				recorded[name] = rest
			}
		}
	}
	rows := map[string]bool{}
	names := make([]string, 0, len(familyConfigs))
	for name := range familyConfigs {
		names = append(names, name)
	}
	slices.Sort(names)
	var lines strings.Builder
	lines.WriteString("# The first four logits after 32 tokens of small models: go test ./decoder -run TestFamilies -update\n")
	for _, name := range names {
		configuration, tokens := familyConfig(name), familyTokens()
		rows[planFor(t, configuration).Family] = true
		dir := writeFamily(t, configuration, same)
		m := loadFamily(t, dir, false)
		y, err := m.Logits(t.Context(), tokens, 1)
		if err != nil {
			t.Fatal(err)
		}
		last := y.Row(y.Rows - 1)
		fmt.Fprintf(&lines, "%s: %.5f %.5f %.5f %.5f\n", name, last[0], last[1], last[2], last[3])
		if !*update {
			requireRecorded(t, name, last[:4], recorded[name])
		}
		stored, err := loadFamily(t, dir, true).Logits(t.Context(), tokens, 1)
		if err != nil {
			t.Fatal(err)
		}
		requireNear(t, stored.Data, y.Data, 1e-5)
		s, err := m.NewSession(32)
		if err != nil {
			t.Fatal(err)
		}
		for _, part := range [][]int32{tokens[:9], tokens[9:10], tokens[10:]} {
			got, err := s.Append(t.Context(), part)
			if err != nil {
				t.Fatal(err)
			}
			y, err := m.Logits(t.Context(), tokens[:s.Position()], 1) // LongRoPE depends on the length of the text
			if err != nil {
				t.Fatal(err)
			}
			requireNear(t, got, y.Row(y.Rows-1), 1e-5)
		}
		if missing := m.plan.forwardOnly(); missing != "" {
			if _, err := m.Train(scope(t, "bf16"), tokens, tokens, 1, 1); err == nil || !strings.Contains(err.Error(),
				missing+" has no backward pass") {
				t.Errorf("%s: train: got %v", name, err)
			}
		} else if _, err := m.Train(scope(t, "bf16"), tokens, tokens, 1, 1); err != nil {
			t.Errorf("%s: train: %v", name, err)
		}
	}
	for _, f := range family.All() {
		if !rows[f.Name] {
			t.Errorf("no model of the family %s", f.Name)
		}
	}
	if *update {
		if err := os.WriteFile(path, []byte(lines.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

func requireRecorded(t *testing.T, name string, got []float32, recorded string) {
	t.Helper()
	var want [4]float32
	if _, err := fmt.Sscanf(recorded, "%f %f %f %f", &want[0], &want[1], &want[2], &want[3]); err != nil {
		t.Errorf("%s: %v in %q", name, err, recorded)
		return
	}
	for i, w := range want {
		if !(math.Abs(float64(got[i]-w)) <= 1e-4) {
			t.Errorf("%s: got logits %v, want %v", name, got, want)
			return
		}
	}
}

// TestTensorNames checks the errors for a missing tensor and for one that the model does not use, the
// tensors of multimodal models, and those that decoders ignore.
func TestTensorNames(t *testing.T) {
	without := func(missing string) func(string) string {
		return func(name string) string {
			if name == missing {
				return ""
			}
			return name
		}
	}
	for name, c := range map[string]struct {
		change func(string) string
		extra  []want
		want   string
	}{
		"gpt-oss":     {without("model.layers.1.self_attn.sinks"), nil, "model.layers.1.self_attn.sinks is missing"},
		"deepseek-v3": {without("model.layers.1.mlp.gate.e_score_correction_bias"), nil, "e_score_correction_bias is missing"},
		"qwen3moe":    {without("model.layers.1.mlp.experts.3.up_proj.weight"), nil, "mlp.experts.3.up_proj.weight is missing"},
		"phi3":        {without("model.layers.0.self_attn.qkv_proj.weight"), nil, "self_attn.qkv_proj.weight is missing"},
		"qwen2": {same, []want{{"model.layers.0.self_attn.q_norm.weight", []int64{16}}},
			"unexpected tensor model.layers.0.self_attn.q_norm.weight: a model of the family qwen2"},
		"llama": {same, []want{{"model.layers.2.input_layernorm.weight", []int64{32}}},
			"unexpected tensor model.layers.2.input_layernorm.weight"},
		"gemma2": {same, []want{{"vision_tower.weight", []int64{32}}}, "unexpected tensor vision_tower.weight"},
	} {
		_, err := Load(t.Context(), writeFamily(t, familyConfig(name), c.change, c.extra...), LoadOptions{})
		if err == nil || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: got %v, want %q", name, err, c.want)
		}
	}
	loadFamily(t, writeFamily(t, familyConfig("deepseek-v3"), same, want{"model.layers.2.enorm.weight", []int64{32}}), true)
	separate := loadFamily(t, writeFamily(t, familyConfig("llama-3"), same, want{"lm_head.weight", []int64{48, 32}},
		want{"model.layers.0.self_attn.rotary_emb.inv_freq", []int64{8}}), true)
	if plan := separate.Plan(); plan.Tied || !planFor(t, familyConfig("llama-3")).Tied {
		t.Error("a head that differs from the embedding is tied")
	}
	for _, prefix := range []string{"language_model.model.", "model.language_model."} {
		wrapped := func(name string) string {
			if rest, ok := strings.CutPrefix(name, "model."); ok {
				return prefix + rest
			}
			return name
		}
		dir := writeFamily(t, familyConfig("gemma3"), wrapped, want{"vision_tower.weight", []int64{32}})
		configuration := `{"model_type": "gemma3", "architectures": ["Gemma3ForConditionalGeneration"], "text_config": ` +
			familyConfig("gemma3") + "}"
		if err := os.WriteFile(filepath.Join(dir, hf.ConfigName), []byte(configuration), 0o666); err != nil {
			t.Fatal(err)
		}
		got, err := loadFamily(t, dir, false).Logits(t.Context(), familyTokens(), 1)
		if err != nil {
			t.Fatal(err)
		}
		plain, err := loadFamily(t, writeFamily(t, familyConfig("gemma3"), same), false).Logits(t.Context(), familyTokens(), 1)
		if err != nil || !slices.Equal(got.Data, plain.Data) {
			t.Errorf("%s: logits of the wrapped model differ (%v)", prefix, err)
		}
	}
}

// TestNaNScore checks that a router whose scores are NaN is an error, and chooses no experts.
func TestNaNScore(t *testing.T) {
	m := loadFamily(t, writeFamily(t, familyConfig("mixtral"), same), false)
	m.layers[1].experts.router.linear.Weight.Value.Data[0] = float32(math.NaN())
	if _, err := m.Logits(t.Context(), familyTokens(), 1); err == nil || !strings.Contains(err.Error(),
		"layers.1.block_sparse_moe.gate: the score of an expert for token 0 is NaN") {
		t.Errorf("got %v", err)
	}
}

// TestChoose compares the choice of experts with sorted scores.
func TestChoose(t *testing.T) {
	logits := []float32{2, -1, 0.5, 3, 1, 0, -2, 2.5}
	second, last := []float32{0, 5, 0, 0, 0, 0, 0, 0}, []float32{0, 0, 0, 0, 0, 0, 0, 0.1}
	for name, c := range map[string]struct {
		plan       ExpertsPlan
		correction []float32
		chosen     []int
		sum        float64 // of weights
		first      float64 // weight
	}{
		"softmax":    {ExpertsPlan{Count: 8, Chosen: 2, Score: family.ScoreSoftmax, Scale: 1}, nil, []int{3, 7}, 0.708762, 0.441176},
		"normalized": {ExpertsPlan{Count: 8, Chosen: 2, Score: family.ScoreSoftmax, Normalize: true, Scale: 1}, nil, []int{3, 7}, 1, 0.622459},
		"chosen":     {ExpertsPlan{Count: 8, Chosen: 2, Score: family.ScoreChosen, Scale: 1}, nil, []int{3, 7}, 1, 0.622459},
		"sigmoid": {ExpertsPlan{Count: 8, Chosen: 2, Score: family.ScoreSigmoid, Normalize: true, Scale: 2.5}, second, []int{1, 3}, 2.5,
			0.550422},
		"groups": {ExpertsPlan{Count: 8, Chosen: 3, Score: family.ScoreSigmoid, Groups: 4, FromGroups: 1, Scale: 1}, second, []int{1, 0, 2},
			0, 0.268941},
		"sums": {ExpertsPlan{Count: 8, Chosen: 2, Score: family.ScoreSigmoid, Groups: 2, FromGroups: 1, Scale: 1}, last, []int{3, 0}, 0,
			0.952574},
	} {
		x := experts{plan: &c.plan}
		if c.correction != nil {
			x.correction = newVector("correction", 8)
			copy(x.correction.Value.Data, c.correction)
		}
		chosen, weights := x.choose(logits)
		if !slices.Equal(chosen, c.chosen) || math.Abs(float64(weights[0])-c.first) > 1e-5 {
			t.Errorf("%s: chose %v with %v, want %v with %g", name, chosen, weights, c.chosen, c.first)
		}
		sum := 0.0
		for _, w := range weights {
			sum += float64(w)
		}
		if c.sum > 0 && math.Abs(sum-c.sum) > 1e-5 {
			t.Errorf("%s: weights sum to %g, want %g", name, sum, c.sum)
		}
	}
}
