package llama

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// Config is the architecture of a model, under the names of Hugging Face's
// LlamaConfig. Fields that are zero take the defaults that WithDefaults says.
type Config struct {
	VocabSize             int     `json:"vocab_size"`
	HiddenSize            int     `json:"hidden_size"`
	IntermediateSize      int     `json:"intermediate_size"`
	NumHiddenLayers       int     `json:"num_hidden_layers"`
	NumAttentionHeads     int     `json:"num_attention_heads"`
	NumKeyValueHeads      int     `json:"num_key_value_heads"`
	HeadDim               int     `json:"head_dim"`
	MaxPositionEmbeddings int     `json:"max_position_embeddings"`
	RopeTheta             float64 `json:"rope_theta"`
	RMSNormEps            float64 `json:"rms_norm_eps"`
	TieWordEmbeddings     bool    `json:"tie_word_embeddings"`

	// Microscale is what other readers of the configuration pass over.
	Microscale Extension `json:"microscale"`
}

// An Extension is what Hugging Face's configuration has no name for.
type Extension struct {
	Vocabulary string `json:"vocabulary"` // Bytes, or what text cannot be turned into here
}

const (
	// Bytes is the vocabulary of 256 tokens, each the byte of its number.
	Bytes = "bytes"

	tokenizer = "tokenizer" // what a checkpoint has that does not say
)

// WithDefaults returns c with what is zero filled in: a vocabulary of bytes, as
// many heads of keys as of queries, heads that share the hidden size, 2048
// positions, and Llama's θ = 10000 and ε = 1e-5.
func (c Config) WithDefaults() Config {
	if c.VocabSize == 0 {
		c.VocabSize, c.Microscale.Vocabulary = 256, Bytes
	}
	if c.VocabSize == 256 && c.Microscale.Vocabulary == "" {
		c.Microscale.Vocabulary = Bytes
	}
	if c.NumKeyValueHeads == 0 {
		c.NumKeyValueHeads = c.NumAttentionHeads
	}
	if c.HeadDim == 0 && c.NumAttentionHeads > 0 {
		c.HeadDim = c.HiddenSize / c.NumAttentionHeads
	}
	if c.MaxPositionEmbeddings == 0 {
		c.MaxPositionEmbeddings = 2048
	}
	if c.RopeTheta == 0 {
		c.RopeTheta = 10000
	}
	if c.RMSNormEps == 0 {
		c.RMSNormEps = 1e-5
	}
	return c
}

// Validate reports what makes c no model.
func (c Config) Validate() error {
	const wide, deep = 1 << 20, 1 << 16 // no product of these overflows
	for _, n := range []struct {
		name        string
		value, most int
	}{
		{"vocab_size", c.VocabSize, 1 << 24}, {"hidden_size", c.HiddenSize, wide}, {"intermediate_size", c.IntermediateSize, wide},
		{"num_hidden_layers", c.NumHiddenLayers, deep}, {"num_attention_heads", c.NumAttentionHeads, wide},
		{"num_key_value_heads", c.NumKeyValueHeads, wide}, {"head_dim", c.HeadDim, wide / max(1, c.NumAttentionHeads)},
		{"max_position_embeddings", c.MaxPositionEmbeddings, 1 << 30},
	} {
		if n.value < 1 || n.value > n.most {
			return fmt.Errorf("model: %s is %d: it is to be from 1 to %d", n.name, n.value, n.most)
		}
	}
	switch {
	case c.NumAttentionHeads%c.NumKeyValueHeads != 0:
		return fmt.Errorf("model: num_key_value_heads, %d, does not divide num_attention_heads, %d", c.NumKeyValueHeads, c.NumAttentionHeads)
	case c.HeadDim%2 != 0:
		return fmt.Errorf("model: head_dim is %d: rotary embedding turns pairs, so it is to be even", c.HeadDim)
	case !(c.RopeTheta > 0):
		return fmt.Errorf("model: rope_theta is %g: it is to be positive", c.RopeTheta)
	case !(c.RMSNormEps >= 0):
		return fmt.Errorf("model: rms_norm_eps is %g: it is not to be negative", c.RMSNormEps)
	case c.Microscale.Vocabulary == Bytes && c.VocabSize != 256:
		return fmt.Errorf("model: vocab_size is %d: a vocabulary of bytes has 256", c.VocabSize)
	}
	return nil
}

// RequireBytes reports a vocabulary that text cannot be turned into.
func (c Config) RequireBytes() error {
	if c.Microscale.Vocabulary != Bytes {
		return fmt.Errorf("the model has a vocabulary of %d tokens of a tokenizer: text can be read and written with the vocabulary of 256 bytes alone, which config.json names as \"microscale\": {\"vocabulary\": \"bytes\"}", c.VocabSize)
	}
	return nil
}

// Parameters returns the number of weights of a model, those of a tied head once.
func (c Config) Parameters() int {
	q, kv := c.NumAttentionHeads*c.HeadDim, c.NumKeyValueHeads*c.HeadDim
	layer := c.HiddenSize*(2*q+2*kv) + 3*c.HiddenSize*c.IntermediateSize + 2*c.HiddenSize
	n := c.NumHiddenLayers*layer + c.HiddenSize + c.VocabSize*c.HiddenSize
	if !c.TieWordEmbeddings {
		n += c.VocabSize * c.HiddenSize
	}
	return n
}

// published is the whole of a config.json: what transformers' LlamaConfig needs
// beside Config.
type published struct {
	Architectures []string `json:"architectures"`
	ModelType     string   `json:"model_type"`
	Config
	HiddenAct     string          `json:"hidden_act"`
	AttentionBias bool            `json:"attention_bias"`
	MLPBias       bool            `json:"mlp_bias"`
	RopeScaling   json.RawMessage `json:"rope_scaling"`
	// RopeParameters is where transformers 5 has rope_theta and rope_scaling.
	RopeParameters *ropeParameters `json:"rope_parameters,omitempty"`
	BOS            *int            `json:"bos_token_id"`
	EOS            *int            `json:"eos_token_id"`
	TorchDtype     string          `json:"torch_dtype,omitempty"`
}

type ropeParameters struct {
	RopeTheta float64 `json:"rope_theta"`
	RopeType  string  `json:"rope_type"`
}

const (
	modelType    = "llama"
	architecture = "LlamaForCausalLM"
)

// marshal returns the config.json of a model whose weights are stored in a dtype
// of the given name.
func (c Config) marshal(torchDtype string) ([]byte, error) {
	data, err := json.MarshalIndent(published{
		Architectures: []string{architecture}, ModelType: modelType, Config: c, HiddenAct: "silu",
		RopeScaling: json.RawMessage("null"), TorchDtype: torchDtype,
	}, "", "  ")
	return append(data, '\n'), err
}

// parseConfig reads a config.json, and refuses what this package does not compute.
func parseConfig(data []byte) (Config, error) {
	p := published{HiddenAct: "silu"}
	if err := json.Unmarshal(data, &p); err != nil {
		return Config{}, fmt.Errorf("config.json: %w", err)
	}
	if p.ModelType != modelType {
		return Config{}, fmt.Errorf("config.json: model_type is %q, not %q: this is another architecture", p.ModelType, modelType)
	}
	if len(p.Architectures) > 0 && !slices.Contains(p.Architectures, architecture) {
		return Config{}, fmt.Errorf("config.json: architectures are %s, not %s: this is another architecture", strings.Join(p.Architectures, ", "), architecture)
	}
	if r := p.RopeParameters; r != nil {
		p.RopeTheta = r.RopeTheta
		if r.RopeType != "" && r.RopeType != "default" {
			return Config{}, fmt.Errorf("config.json: rope_type is %q: only the default one is computed here", r.RopeType)
		}
	}
	switch {
	case p.HiddenAct != "silu":
		return Config{}, fmt.Errorf("config.json: hidden_act is %q: only silu is computed here", p.HiddenAct)
	case p.AttentionBias || p.MLPBias:
		return Config{}, errors.New("config.json: linear layers have biases (attention_bias, mlp_bias): only layers without are computed here")
	case len(p.RopeScaling) > 0 && string(p.RopeScaling) != "null":
		return Config{}, errors.New("config.json: rope_scaling is set: only rotary embedding without scaling is computed here")
	}
	if p.Microscale.Vocabulary == "" {
		p.Microscale.Vocabulary = tokenizer
	}
	c := p.Config.WithDefaults()
	if err := c.Validate(); err != nil {
		return Config{}, fmt.Errorf("config.json: %w", err)
	}
	return c, nil
}
