// Package llamacpp translates Hugging Face checkpoints of the Llama family to GGUF files that
// llama.cpp runs, and back: names of tensors, order of rows, metadata, and tokenizer.
//
//	model.layers.0.self_attn.q_proj.weight   blk.0.attn_q.weight, with reordered rows
//	config.json                              llama.block_count, llama.rope.freq_base, …
//	tokenizer.json                           tokenizer.ggml.tokens, tokenizer.ggml.merges, …
//
// An unknown configuration is an error, because a wrong translation would generate nonsense
// without one. Names and keys are those of llama.cpp's loader (src/llama-arch.cpp,
// src/llama-vocab.cpp). The order of the rows of queries and keys is that of its converter.
package llamacpp

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"strings"

	"github.com/microscale-go/microscale/checkpoint"
	"github.com/microscale-go/microscale/gguf"
	"github.com/microscale-go/microscale/hf"
	"github.com/microscale-go/microscale/internal/configjson"
	"github.com/microscale-go/microscale/internal/limits"
	"github.com/microscale-go/microscale/quant"
)

// A Model is the content of a GGUF file except its weights.
type Model struct {
	Metadata []gguf.Pair // in the order in which it is written
	Extra    []Constant  // tensors that the checkpoint lacks
	Notes    []string    // what the user should know

	architecture architecture
	config       config
	members      map[string]json.RawMessage // of config.json
}

// A Constant is an F32 tensor that follows from the configuration.
type Constant struct {
	gguf.Spec
	Values []float32
}

// embeddings is the tensor with one row per token.
const embeddings = "model.embed_tokens.weight"

// Describe returns the content of the GGUF file for a checkpoint. It returns an error if
// llama.cpp could not run the result, or the translation is unknown.
func Describe(c *hf.Checkpoint) (*Model, error) {
	if c.Config == nil || c.Single && !isGGUF(c) {
		return nil, fmt.Errorf("%s: a GGUF file describes the model, but %s is missing: name a checkpoint's directory", c.Path, hf.ConfigName)
	}
	m := &Model{}
	if err := m.readConfig(configjson.Standard(c.Config)); err != nil {
		return nil, fmt.Errorf("%s: %s: %w", c.Path, hf.ConfigName, err)
	}
	m.add("general.architecture", m.architecture.name)
	m.add("general.type", "model")
	m.add("general.quantization_version", uint32(2))
	if err := m.hyperparameters(); err != nil {
		return nil, fmt.Errorf("%s: %s: %w", c.Path, hf.ConfigName, err)
	}
	if t, ok := c.Lookup(embeddings); ok && len(t.Shape) == 2 && t.Shape[0] != int64(m.config.VocabSize) {
		return nil, fmt.Errorf("%s: vocab_size is %d in %s, and %s has %d rows: fetch it again", c.Path, m.config.VocabSize, hf.ConfigName, embeddings, t.Shape[0])
	}
	if err := m.vocabulary(c); err != nil {
		return nil, fmt.Errorf("%s: %w", c.Path, err)
	}
	return m, nil
}

// Rejects returns why llama.cpp cannot run the model in format f with global scales other than 1,
// or "".
func (m *Model) Rejects(f quant.Format) string {
	if f.Global && checkpoint.UnscaledGraph(m.architecture.name) {
		return fmt.Sprintf("llama.cpp ignores global scales of %s in %s: choose mxfp4 or q8_0, or profile ggml, which has scales of blocks alone", f, m.architecture.name)
	}
	return ""
}

func (m *Model) add(key string, value any) {
	m.Metadata = append(m.Metadata, gguf.Pair{Key: key, Value: value})
}

// set adds a key of the architecture.
func (m *Model) set(key string, value any) { m.add(m.architecture.name+"."+key, value) }

// maxOther is the maximum size of an auxiliary file in bytes. The largest tokenizers have about
// 40 MB.
const maxOther = 256 << 20

// isGGUF reports whether a checkpoint is a GGUF file.
func isGGUF(c *hf.Checkpoint) bool { return c.Single && strings.HasSuffix(c.Path, Suffix) }

// readOther returns the content of an auxiliary file, nil if there is none. Those of a GGUF file follow
// from its metadata.
func readOther(c *hf.Checkpoint, name string) ([]byte, error) {
	if isGGUF(c) {
		text, err := ReadText(c.Path)
		if err != nil {
			return nil, err
		}
		for _, file := range text.Files {
			if file.Name == name {
				return file.Data, nil
			}
		}
		return nil, nil
	}
	for _, other := range c.Others() {
		if other.Name == name {
			return limits.ReadFile(other.Path, maxOther)
		}
	}
	return nil, nil
}

// config has the members of config.json that are read.
type config struct {
	Architectures []string `json:"architectures"`

	VocabSize        int      `json:"vocab_size"`
	HiddenSize       int      `json:"hidden_size"`
	IntermediateSize int      `json:"intermediate_size"`
	Layers           int      `json:"num_hidden_layers"`
	Heads            int      `json:"num_attention_heads"`
	KeyValueHeads    int      `json:"num_key_value_heads"`
	HeadDim          int      `json:"head_dim"`
	ContextLength    int      `json:"max_position_embeddings"`
	RMSNormEps       *float64 `json:"rms_norm_eps"`
	HiddenAct        string   `json:"hidden_act"`
	HiddenActivation string   `json:"hidden_activation"` // Gemma's name
	PartialRotary    *float64 `json:"partial_rotary_factor"`
	LayerTypes       []string `json:"layer_types"`
	RotatedLayers    []int    `json:"no_rope_layers"` // 1: the layer has rotary embeddings
	UnrotatedEach    int      `json:"no_rope_layer_interval"`
	Window           *int     `json:"sliding_window"`
	UseWindow        *bool    `json:"use_sliding_window"`
	QueryScalar      *float64 `json:"query_pre_attn_scalar"`
	LocalExperts     int      `json:"num_local_experts"` // Mixtral's name
	Experts          int      `json:"num_experts"`       // Qwen's
	RoutedExperts    int      `json:"n_routed_experts"`  // DeepSeek's
	ExpertsUsed      int      `json:"num_experts_per_tok"`
	ExpertSize       int      `json:"moe_intermediate_size"`
	SharedExpertSize int      `json:"shared_expert_intermediate_size"`
	Normalize        bool     `json:"norm_topk_prob"`
	SparseStep       int      `json:"decoder_sparse_step"`
	DenseLayers      []int    `json:"mlp_only_layers"`
	PlainDim         int      `json:"qk_nope_head_dim"` // of a head with latent attention
	RotatedDim       int      `json:"qk_rope_head_dim"`
	ValueDim         int      `json:"v_head_dim"`
	LatentRank       int      `json:"kv_lora_rank"`
	NextLayers       int      `json:"num_nextn_predict_layers"` // after the last, for further tokens
	RopeTheta        *float64 `json:"rope_theta"`
	OriginalLength   *float64 `json:"original_max_position_embeddings"` // of LongRoPE
	LocalTheta       *float64 `json:"rope_local_base_freq"`             // Gemma's name of rope_theta in layers with windows
	RopeScaling      *rope    `json:"rope_scaling"`
	RopeParameters   *rope    `json:"rope_parameters"` // newer configurations, in place of the two above
	BOS              tokenIDs `json:"bos_token_id"`
	EOS              tokenIDs `json:"eos_token_id"`
	Pad              tokenIDs `json:"pad_token_id"`
	Microscale       struct {
		Vocabulary string `json:"vocabulary"`
	} `json:"microscale"`
}

// tokenIDs is a token id, a list of ids, or null.
type tokenIDs []uint32

// UnmarshalJSON parses an id, a list or null.
func (t *tokenIDs) UnmarshalJSON(data []byte) error {
	if string(data) == "null" {
		return nil
	}
	var one uint32
	if json.Unmarshal(data, &one) == nil {
		*t = tokenIDs{one}
		return nil
	}
	return json.Unmarshal(data, (*[]uint32)(t))
}

// maxHeadDim limits head_dim, above that of any model. A tensor of that length may be
// allocated.
const maxHeadDim = 1 << 16

// readConfig parses config.json, sets defaults, and checks that the model is supported.
func (m *Model) readConfig(text []byte) error {
	c := &m.config
	if err := errors.Join(json.Unmarshal(text, c), json.Unmarshal(text, &m.members)); err != nil {
		return fmt.Errorf("parse it: %w", err)
	}
	if len(c.Architectures) == 0 {
		return fmt.Errorf("architectures is missing: only %s can become GGUF", architectureNames())
	}
	a, ok := architectures[c.Architectures[0]]
	if !ok {
		return fmt.Errorf("architecture %q is not supported in GGUF, only %s", c.Architectures[0], architectureNames())
	}
	m.architecture = a
	if err := m.setSizes(); err != nil {
		return err
	}
	if c.KeyValueHeads == 0 {
		c.KeyValueHeads = c.Heads
	}
	if c.HeadDim == 0 && c.Heads > 0 {
		c.HeadDim = c.HiddenSize / c.Heads
	}
	if a.latent {
		if err := c.latentHeads(); err != nil {
			return err
		}
	}
	sliding := c.setRope()
	if err := c.checkSizes(); err != nil {
		return err
	}
	return errors.Join(m.checkGraph(), m.checkExperts(), m.checkSliding(sliding))
}

// setRope sets the parameters of rotary embedding, from whichever keys the configuration has. It returns
// those of layers with a window, nil if they have no separate ones.
func (c *config) setRope() (sliding *rope) {
	if c.RopeParameters == nil {
		c.RopeParameters = c.RopeScaling
	}
	if c.RopeParameters == nil {
		c.RopeParameters = &rope{}
	}
	sliding = c.RopeParameters.Sliding
	if r := c.RopeParameters.Full; r != nil {
		c.RopeParameters = r
	}
	if c.RopeParameters.Theta == nil {
		c.RopeParameters.Theta = c.RopeTheta
	}
	if c.PartialRotary == nil {
		c.PartialRotary = c.RopeParameters.PartialRotary
	}
	return sliding
}

// checkSizes returns an error for a missing or impossible size.
func (c *config) checkSizes() error {
	for _, n := range []struct {
		key   string
		value int
	}{
		{"vocab_size", c.VocabSize}, {"hidden_size", c.HiddenSize}, {"intermediate_size", c.IntermediateSize}, {"num_hidden_layers", c.Layers},
		{"num_attention_heads", c.Heads}, {"num_key_value_heads", c.KeyValueHeads}, {"max_position_embeddings", c.ContextLength},
	} {
		if n.value <= 0 || n.value > 1<<31-1 {
			return fmt.Errorf("%s is missing or not a positive number: fetch it again", n.key)
		}
	}
	switch {
	case c.RMSNormEps == nil:
		return fmt.Errorf("rms_norm_eps is missing: fetch it again")
	case c.HeadDim <= 0 || c.HeadDim%2 != 0 || c.HeadDim > maxHeadDim:
		return fmt.Errorf("heads of %d elements cannot be rotated: fetch it again", c.HeadDim)
	}
	return nil
}

// setSizes sets the sizes of heads that config.json leaves to the defaults of its class.
func (m *Model) setSizes() error {
	if m.architecture.sizes == "" {
		return nil
	}
	missing := map[string]json.RawMessage{}
	if err := json.Unmarshal([]byte(m.architecture.sizes), &missing); err != nil {
		return fmt.Errorf("defaults of %s: %w", m.architecture.name, err)
	}
	maps.DeleteFunc(missing, func(key string, _ json.RawMessage) bool { _, ok := m.members[key]; return ok })
	text, err := json.Marshal(missing)
	if err == nil {
		err = json.Unmarshal(text, &m.config)
	}
	return err
}
