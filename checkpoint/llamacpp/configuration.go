package llamacpp

import (
	"cmp"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/microscale-go/microscale/family"
	"github.com/microscale-go/microscale/gguf"
)

// A parameter is a number that the metadata of an architecture and config.json have under different
// keys.
type parameter struct {
	metadata string
	config   string // "": config.json has no key for it, or another one
	value    func(m *Model) any
}

// count returns the value of a parameter that is a positive number. 0 is none.
func count(of func(c *config) int) func(m *Model) any {
	return func(m *Model) any {
		if n := of(&m.config); n != 0 {
			return uint32(n)
		}
		return nil
	}
}

// parameters has what all architectures have. A file is written in this order.
var parameters = []parameter{
	{"block_count", "num_hidden_layers", count(func(c *config) int { return c.NumHiddenLayers })},
	{"context_length", "max_position_embeddings", count(func(c *config) int { return c.MaxPositionEmbeddings })},
	{"embedding_length", "hidden_size", count(func(c *config) int { return c.HiddenSize })},
	{"feed_forward_length", "intermediate_size", count(func(c *config) int { return c.IntermediateSize })},
	{"attention.head_count", "num_attention_heads", count(func(c *config) int { return c.NumAttentionHeads })},
	{"attention.head_count_kv", "num_key_value_heads", count(func(c *config) int { return c.NumKeyValueHeads })},
	{"attention.key_length", "head_dim", count(func(c *config) int { return c.HeadDim })},
	{"attention.value_length", "", count(func(c *config) int { return cmp.Or(c.ValueDim, c.HeadDim) })},
	{"attention.layer_norm_rms_epsilon", "rms_norm_eps", func(m *Model) any { return float32(m.config.RMSNormEps) }},
	{"vocab_size", "", count(func(c *config) int { return c.VocabSize })}, // a reader counts the rows of the embeddings
}

// rows returns the parameters of the architecture.
func (a architecture) rows() []parameter {
	if a.Experts == nil {
		return parameters
	}
	return slices.Concat(parameters, expertParameters(a.Experts))
}

// hyperparameters adds the metadata keys of config.json.
func (m *Model) hyperparameters() error {
	for _, p := range m.architecture.rows() {
		if value := p.value(m); value != nil {
			m.set(p.metadata, value)
		}
	}
	if err := m.describeKeys(); err != nil {
		return err
	}
	return errors.Join(m.describeWindows(), m.describeLatent(), m.rotary())
}

// configuration returns the config.json that follows from the metadata, nil for an unknown
// architecture. It has unknown metadata under their own keys, which decoder rejects.
func configuration(f *gguf.File) (json.RawMessage, error) {
	class, a := architectureOf(f)
	embedding, ok := f.Lookup("token_embd.weight")
	if a.Name == "" || !ok || len(embedding.Shape) != 2 {
		return nil, nil // no model
	}
	c := map[string]any{"architectures": []string{class}, "model_type": a.family.Types[0], "vocab_size": embedding.Shape[0],
		"torch_dtype": torchDtype(f)}
	for _, p := range a.rows() {
		if n := f.Value(a.Name + "." + p.metadata); n != nil && p.config != "" {
			c[p.config] = number(n)
		}
	}
	for _, k := range a.Keys {
		if n := f.Value(a.Name + "." + k.Metadata); n != nil {
			c[k.Config] = number(n)
		}
	}
	a.complete(f, c)
	_, separate := f.Lookup("output.weight")
	c["tie_word_embeddings"] = !separate
	if _, biased := f.Lookup("blk.0.attn_q.bias"); a.family.BiasByKey() && biased != a.family.Default().AttentionBias {
		c["attention_bias"] = biased
	}
	if _, biased := f.Lookup("blk.0.ffn_down.bias"); biased {
		c["mlp_bias"] = true
	}
	for key, metadata := range tokenKeys {
		c[key] = f.Value("tokenizer.ggml." + metadata) // null: transformers' default may be beyond the vocabulary
	}
	if err := ropeParameters(f, a, c); err != nil {
		return nil, err
	}
	if a.family.Latent {
		a.completeLatent(f, c)
	}
	for _, p := range a.unknown(f) {
		c[p.Key] = number(p.Value)
	}
	return json.MarshalIndent(c, "", "  ")
}

// tokenKeys maps keys of config.json to those of the metadata after "tokenizer.ggml.".
var tokenKeys = map[string]string{"bos_token_id": "bos_token_id", "eos_token_id": "eos_token_id", "pad_token_id": "padding_token_id"}

// complete sets what follows from several values of the metadata, and what llama.cpp has by default.
func (a architecture) complete(f *gguf.File, c map[string]any) {
	count := func(key string) int { return f.Count(a.Name + "." + key) }
	headDim, rotated := a.headDim(f), count("rope.dimension_count")
	if headDim > 0 {
		c["head_dim"] = headDim
	}
	if a.Partial && headDim > 0 && rotated > 0 {
		c["partial_rotary_factor"] = number(float64(rotated) / float64(headDim))
	}
	if heads := count("attention.head_count"); c["num_key_value_heads"] == nil && heads > 0 {
		c["num_key_value_heads"] = heads
	}
	c["rope_theta"] = number(float64(defaultTheta)) // that of llama.cpp for every architecture
	if theta := f.Value(a.Name + ".rope.freq_base"); theta != nil {
		c["rope_theta"] = number(theta)
	}
	if list, ok := f.Value(a.Name + "." + windowList).([]bool); ok && a.family.WindowPeriod() > 0 {
		c["layer_types"] = layerTypes(list)
	}
	if a.Scaled > 0 {
		c["query_pre_attn_scalar"] = a.queryScalar(count("block_count"), headDim, count("embedding_length"), count("attention.head_count"))
	}
	if e := a.Experts; e != nil && e.Configured {
		c["norm_topk_prob"] = e.Normalized
	}
	c["hidden_act"] = a.activation()
	if a.family.GELU() {
		c["hidden_activation"] = a.activation()
	}
}

// layerTypes returns layer_types for a list of layers with windows.
func layerTypes(windowed []bool) []string {
	types := make([]string, len(windowed))
	for i, w := range windowed {
		if types[i] = family.FullLayer; w {
			types[i] = family.SlidingLayer
		}
	}
	return types
}

// torchDtype returns the dtype in which clients compute: that of the unquantized matrices.
func torchDtype(f *gguf.File) string {
	types := map[gguf.Type]bool{}
	for _, t := range f.Tensors {
		if len(t.Shape) > 1 {
			types[t.Type] = true
		}
	}
	switch {
	case types[gguf.F16] && !types[gguf.BF16]:
		return "float16"
	case len(types) == 1 && types[gguf.F32]:
		return "float32"
	}
	return "bfloat16"
}

// headDim returns the elements of an attention head; 0 if the metadata lacks them.
func (a architecture) headDim(f *gguf.File) int {
	d, heads := f.Count(a.Name+".attention.key_length"), f.Count(a.Name+".attention.head_count")
	if d == 0 && heads > 0 {
		d = f.Count(a.Name+".embedding_length") / heads
	}
	return d
}

// number returns a value of the metadata for config.json. A float becomes the shortest decimal that is
// the same, so that 1e-5 does not become 9.999999747e-06, and has a point or an exponent: transformers
// rejects integers in their place.
func number(value any) any {
	switch value.(type) {
	case float32, float64:
		text := fmt.Sprint(value)
		if !strings.ContainsAny(text, ".eNI") { // nor NaN, nor Inf
			text += ".0"
		}
		return json.Number(text)
	}
	return value
}

// ropeParameters sets rope_scaling. The divisors of Llama 3 are a tensor. Without parameters of
// Llama 3 that give them, they are a LongRoPE with the same divisors for all lengths.
func ropeParameters(f *gguf.File, a architecture, c map[string]any) error {
	key := func(name string) any { return f.Value(a.Name + ".rope." + name) }
	if ok, err := longOf(f, a, c); ok || err != nil {
		return err
	}
	if t, ok := f.Lookup(ropeFactors); ok {
		divisors, err := readFloats(f, t)
		if err != nil {
			return err
		}
		theta, given := key("freq_base").(float32)
		if !given {
			theta = defaultTheta
		}
		if r := llama3Of(divisors, theta); r != nil {
			c["rope_scaling"] = r
			return nil
		}
		r := map[string]any{"rope_type": "longrope", "short_factor": divisors, "long_factor": divisors, "attention_factor": number(1.0)}
		if n := c["max_position_embeddings"]; n != nil { // transformers reads it, although one length is as good as another
			r["original_max_position_embeddings"] = n
		}
		c["rope_scaling"] = r
		return nil
	}
	kind, _ := key("scaling.type").(string)
	linear, _ := key("scaling.factor").(float32)
	if linear == 0 {
		linear, _ = key("scale_linear").(float32) // its former name
	}
	if kind == "" && linear > 0 { // as in llama.cpp
		kind = "linear"
	}
	if kind == "" || kind == "none" {
		return nil
	}
	r := map[string]any{"rope_type": kind}
	if x, ok := f.Value(a.Name + "." + attentionFactor).(float32); ok && kind == "yarn" {
		factor, _ := key("scaling.factor").(float32)
		r["attention_factor"] = number(float64(x) * family.Rope{Factor: float64(factor)}.YaRNMagnitude(1))
	}
	if kind == "yarn" && a.Unrounded {
		r["truncate"] = false
	}
	for _, row := range scalingKeys {
		if n := key("scaling." + row.metadata); n != nil && row.config != "" {
			r[row.config] = number(n)
		}
	}
	if r["factor"] == nil && linear > 0 {
		r["factor"] = number(linear)
	}
	c["rope_scaling"] = r
	return nil
}

// maxFloats limits the tensors that become part of the configuration.
const maxFloats = 1 << 16

// readFloats reads a small tensor of F32.
func readFloats(f *gguf.File, t gguf.TensorInfo) ([]float32, error) {
	if t.Type != gguf.F32 || t.Bytes() > 4*maxFloats {
		return nil, fmt.Errorf("tensor %s: got %s %v, want at most %d F32 values: fetch it again", t.Name, strings.ToLower(t.Type.String()),
			t.Shape, maxFloats)
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
