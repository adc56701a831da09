package bench

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/microscale-go/microscale/convert"
	"github.com/microscale-go/microscale/hf"
	"github.com/microscale-go/microscale/quant"
	"github.com/microscale-go/microscale/safetensors"
)

// A Shape is the shape of a published Llama model.
type Shape struct {
	Name                                              string
	hidden, intermediate, layers, heads, kvHeads, dim int64
	vocabulary                                        int64
}

// Shapes lists the shapes of random models, smallest first.
var Shapes = []Shape{
	{"135M", 576, 1536, 30, 9, 3, 64, 49152},    // SmolLM2-135M
	{"1B", 2048, 8192, 16, 32, 8, 64, 128256},   // Llama-3.2-1B
	{"3B", 3072, 8192, 28, 24, 8, 128, 128256},  // Llama-3.2-3B
	{"8B", 4096, 14336, 32, 32, 8, 128, 128256}, // Llama-3.1-8B
}

// ParseShape returns the shape of the given name.
func ParseShape(name string) (Shape, error) {
	var names []string
	for _, s := range Shapes {
		if s.Name == name {
			return s, nil
		}
		names = append(names, s.Name)
	}
	return Shape{}, fmt.Errorf("unknown shape %q: want %s", name, strings.Join(names, ", "))
}

// Bytes returns the bytes of a model in BF16, head included.
func (s Shape) Bytes() float64 {
	n := int64(0)
	for _, t := range s.tensors() {
		n += bf16Bytes(t)
	}
	return float64(n)
}

// tensors returns the tensors of the model. Head and embedding are separate, so that the head can be
// quantized.
func (s Shape) tensors() (list []safetensors.Spec) {
	add := func(name string, shape ...int64) {
		list = append(list, safetensors.Spec{Name: name + ".weight", Dtype: safetensors.BF16, Shape: shape})
	}
	add("model.embed_tokens", s.vocabulary, s.hidden)
	for l := range s.layers {
		p := fmt.Sprintf("model.layers.%d.", l)
		add(p+"input_layernorm", s.hidden)
		add(p+"self_attn.q_proj", s.heads*s.dim, s.hidden)
		add(p+"self_attn.k_proj", s.kvHeads*s.dim, s.hidden)
		add(p+"self_attn.v_proj", s.kvHeads*s.dim, s.hidden)
		add(p+"self_attn.o_proj", s.hidden, s.heads*s.dim)
		add(p+"post_attention_layernorm", s.hidden)
		add(p+"mlp.gate_proj", s.intermediate, s.hidden)
		add(p+"mlp.up_proj", s.intermediate, s.hidden)
		add(p+"mlp.down_proj", s.hidden, s.intermediate)
	}
	add("model.norm", s.hidden)
	add("lm_head", s.vocabulary, s.hidden)
	return list
}

// WriteRandom writes a model of a shape with random weights into dir, which must be empty, and
// returns its directory. Layers and head are quantized to f, if that has scales.
func WriteRandom(ctx context.Context, dir string, s Shape, f quant.Format, threads int) (model string, err error) {
	source, model := filepath.Join(dir, "bf16"), filepath.Join(dir, s.Name+"-"+f.Name)
	if err := os.Mkdir(source, 0o777); err != nil {
		return "", err
	}
	config := fmt.Sprintf(
		`{"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_act": "silu", "torch_dtype": "bfloat16",
			"tie_word_embeddings": false,
 "vocab_size": %d, "hidden_size": %d, "intermediate_size": %d, "num_hidden_layers": %d, "num_attention_heads": %d,
 "num_key_value_heads": %d, "head_dim": %d,
 "max_position_embeddings": 131072, "rope_theta": 500000.0, "rms_norm_eps": 1e-5}
`, s.vocabulary, s.hidden, s.intermediate, s.layers, s.heads, s.kvHeads, s.dim)
	if err := os.WriteFile(filepath.Join(source, hf.ConfigName), []byte(config), 0o666); err != nil {
		return "", err
	}
	data, err := weightPattern()
	if err != nil {
		return "", err
	}
	if err := writeWeights(ctx, filepath.Join(source, "model.safetensors"), s.tensors(), data); err != nil || !f.Scaled() {
		return source, err
	}
	src, err := hf.Open(source)
	if err != nil {
		return "", err
	}
	defer src.Close()
	plan, err := convert.PlanQuantize(ctx, src, convert.QuantizeOptions{Quantizer: quant.Quantizer{Format: f},
		Include: []*regexp.Regexp{regexp.MustCompile("^lm_head")}})
	if err != nil {
		return "", err
	}
	if _, err := plan.Run(ctx, model, convert.RunOptions{Threads: threads}); err != nil {
		return "", err
	}
	return model, os.RemoveAll(source)
}
