package llamacpp

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math"
	"strings"

	"github.com/microscale-go/microscale/internal/gguf"
)

// configured maps metadata keys of an architecture to keys of config.json.
var configured = [][2]string{
	{"embedding_length", "hidden_size"},
	{"feed_forward_length", "intermediate_size"},
	{"block_count", "num_hidden_layers"},
	{"context_length", "max_position_embeddings"},
	{"attention.head_count", "num_attention_heads"},
	{"attention.head_count_kv", "num_key_value_heads"},
	{"attention.key_length", "head_dim"},
	{"attention.layer_norm_rms_epsilon", "rms_norm_eps"},
	{"rope.freq_base", "rope_theta"},
	{"expert_count", "num_local_experts"},
	{"expert_used_count", "num_experts_per_tok"},
	{"expert_feed_forward_length", "moe_intermediate_size"},
	{"expert_shared_feed_forward_length", "shared_expert_intermediate_size"},
}

// configuration returns the config.json that follows from the metadata, nil for an unknown
// architecture.
func configuration(f *gguf.File, a architecture) (json.RawMessage, error) {
	if a.name == "" {
		return nil, nil
	}
	embedding, ok := f.Lookup("token_embd.weight")
	if !ok || len(embedding.Shape) != 2 {
		return nil, nil // no model
	}
	c := map[string]any{"model_type": a.modelType, "vocab_size": embedding.Shape[0]}
	for _, row := range configured {
		if n := f.Value(a.name + "." + row[0]); n != nil {
			c[row[1]] = number(n)
		}
	}
	for _, k := range a.keys {
		if n := f.Value(a.name + "." + k.metadata); n != nil {
			c[k.config] = number(n)
		}
	}
	count := func(key string) int { return f.Count(a.name + "." + key) }
	headDim, rotated := a.headDim(f), count("rope.dimension_count")
	if a.partial && headDim > 0 && rotated > 0 {
		c["partial_rotary_factor"] = float64(rotated) / float64(headDim)
	}
	if a.scaled > 0 {
		c["query_pre_attn_scalar"] = a.queryScalar(count("block_count"), headDim, count("embedding_length"), count("attention.head_count"))
	}
	_, separate := f.Lookup("output.weight")
	c["tie_word_embeddings"] = !separate
	if _, biased := f.Lookup("blk.0.attn_q.bias"); biased && a.biasKey != "" {
		c[a.biasKey] = true
	}
	if e := a.experts; e != nil && e.configured {
		c["norm_topk_prob"] = e.normalized
	}
	if err := ropeParameters(f, a, c); err != nil {
		return nil, err
	}
	return json.Marshal(c)
}

// headDim returns the elements of an attention head; 0 if the metadata lacks them.
func (a architecture) headDim(f *gguf.File) int {
	d, heads := f.Count(a.name+".attention.key_length"), f.Count(a.name+".attention.head_count")
	if d == 0 && heads > 0 {
		d = f.Count(a.name+".embedding_length") / heads
	}
	return d
}

// number returns a value of the metadata for config.json. A float32 becomes the shortest decimal that
// is the same float32, so that 1e-5 does not become 9.999999747e-06.
func number(value any) any {
	if x, ok := value.(float32); ok {
		return json.Number(fmt.Sprint(x))
	}
	return value
}

// ropeParameters sets rope_scaling. The divisors of Llama 3 are a tensor, which has the effect of a
// LongRoPE with the same divisors for all lengths.
func ropeParameters(f *gguf.File, a architecture, c map[string]any) error {
	key := func(name string) any { return f.Value(a.name + ".rope." + name) }
	if t, ok := f.Lookup(ropeFactors); ok {
		divisors, err := readFloats(f, t)
		if err != nil {
			return err
		}
		c["rope_scaling"] = map[string]any{"rope_type": "longrope", "short_factor": divisors, "long_factor": divisors, "attention_factor": 1}
		return nil
	}
	kind, _ := key("scaling.type").(string)
	if kind == "" || kind == "none" {
		return nil
	}
	r := map[string]any{"rope_type": kind}
	for _, row := range [][2]string{
		{"scaling.factor", "factor"}, {"scaling.original_context_length", "original_max_position_embeddings"}, {"scaling.attn_factor", "attention_factor"},
		{"scaling.yarn_attn_factor", "attention_factor"}, {"scaling.yarn_beta_fast", "beta_fast"}, {"scaling.yarn_beta_slow", "beta_slow"},
	} {
		if n := key(row[0]); n != nil {
			r[row[1]] = number(n)
		}
	}
	c["rope_scaling"] = r
	return nil
}

// maxFloats limits the tensors that become part of the configuration.
const maxFloats = 1 << 16

// readFloats reads a small tensor of F32.
func readFloats(f *gguf.File, t gguf.TensorInfo) ([]float32, error) {
	if t.Type != gguf.F32 || t.Bytes() > 4*maxFloats {
		return nil, fmt.Errorf("tensor %s: got %s %v, want at most %d F32 values: fetch it again", t.Name, strings.ToLower(t.Type.String()), t.Shape, maxFloats)
	}
	data := make([]byte, t.Bytes())
	if err := f.ReadTensorAt(data, t, 0); err != nil {
		return nil, err
	}
	values := make([]float32, len(data)/4)
	for i := range values {
		values[i] = math.Float32frombits(binary.LittleEndian.Uint32(data[4*i:]))
	}
	return values, nil
}
