package family

import (
	"errors"
	"fmt"

	"github.com/microscale-go/microscale/internal/configjson"
)

// Config is the architecture of a model, with the names of Hugging Face's LlamaConfig. Zero fields
// have the defaults of WithDefaults.
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

	// Microscale holds what Hugging Face's configuration has no name for. Other readers ignore it.
	Microscale struct {
		// "bytes": a token for each byte value; or the name of a vocabulary that this package cannot tokenize
		Vocabulary string `json:"vocabulary"`
	} `json:"microscale"`
}

// Values of Microscale.Vocabulary.
const (
	byteVocabulary = "bytes"
	tokenizer      = "tokenizer" // of a checkpoint that does not name its vocabulary
)

// HasBytes reports whether the vocabulary has 256 tokens, one per byte value.
func (c Config) HasBytes() bool { return c.Microscale.Vocabulary == byteVocabulary }

// unsupported is an error that matches errors.ErrUnsupported.
type unsupported struct{ error }

// Is reports whether target is errors.ErrUnsupported.
func (unsupported) Is(target error) bool { return target == errors.ErrUnsupported }

// Unsupported returns err as an error that matches errors.ErrUnsupported: a valid model that is not
// computed.
func Unsupported(err error) error { return unsupported{err} }

// WithDefaults returns c with defaults in place of zeros: a vocabulary of bytes, as many KV heads as
// query heads, a head size of the hidden size divided by the heads, 2048 positions, and Llama 2's
// θ = 10000 and ε = 1e-5. Keys that a config.json lacks have the defaults of its class before, such as
// ε = 1e-6 for Llama.
func (c Config) WithDefaults() Config {
	if c.VocabSize == 0 {
		c.VocabSize, c.Microscale.Vocabulary = 256, byteVocabulary
	}
	if c.VocabSize == 256 && c.Microscale.Vocabulary == "" {
		c.Microscale.Vocabulary = byteVocabulary
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

// Keys of config.json that errors name more than once.
const (
	keyVocabulary   configjson.Key = "vocab_size"
	keyIntermediate configjson.Key = "intermediate_size"
	keyHeads        configjson.Key = "num_attention_heads"
	keyKVHeads      configjson.Key = "num_key_value_heads"
	keyHeadDim      configjson.Key = "head_dim"
)

// invalid returns an error that wraps a *configjson.KeyError.
func invalid(format string, args ...any) error {
	return fmt.Errorf("model: %w", configjson.Invalid(format, args...))
}

// Validate returns an error if c does not describe a model.
func (c Config) Validate() error {
	const wide, deep = 1 << 20, 1 << 16 // products of these do not overflow
	for _, n := range []struct {
		key        configjson.Key
		value, max int
	}{
		{keyVocabulary, c.VocabSize, 1 << 24}, {"hidden_size", c.HiddenSize, wide}, {keyIntermediate, c.IntermediateSize, wide},
		{"num_hidden_layers", c.NumHiddenLayers, deep}, {keyHeads, c.NumAttentionHeads, wide},
		{keyKVHeads, c.NumKeyValueHeads, wide}, {keyHeadDim, c.HeadDim, wide / max(1, c.NumAttentionHeads)},
		{"max_position_embeddings", c.MaxPositionEmbeddings, 1 << 30},
	} {
		if n.value < 1 || n.value > n.max {
			return invalid("%s is %d, want 1 to %d", n.key, n.value, n.max)
		}
	}
	switch {
	case c.NumAttentionHeads%c.NumKeyValueHeads != 0:
		return invalid("%s is %d, want a divisor of %s, %d", keyKVHeads, c.NumKeyValueHeads, keyHeads, c.NumAttentionHeads)
	case c.HeadDim%2 != 0:
		return invalid("%s is %d, want an even number: rotary embedding rotates pairs", keyHeadDim, c.HeadDim)
	case !(c.RopeTheta > 0):
		return invalid("rope_theta is %g, want a positive number", c.RopeTheta)
	case !(c.RMSNormEps >= 0):
		return invalid("rms_norm_eps is %g, want at least 0", c.RMSNormEps)
	case c.HasBytes() && c.VocabSize != 256:
		return invalid("vocab_size is %d, want 256 for the vocabulary of bytes", c.VocabSize)
	}
	return nil
}

// RequireBytes returns an error that matches errors.ErrUnsupported unless the vocabulary is that of bytes.
func (c Config) RequireBytes() error {
	if !c.HasBytes() {
		return Unsupported(fmt.Errorf("the vocabulary has %d tokens, want the 256 bytes of byte-level models, which config.json names as "+
			"\"microscale\": {\"vocabulary\": \"bytes\"}", c.VocabSize))
	}
	return nil
}

// Parameters returns the number of weights of a model. A tied head counts once.
func (c Config) Parameters() int {
	q, kv := c.NumAttentionHeads*c.HeadDim, c.NumKeyValueHeads*c.HeadDim
	layer := c.HiddenSize*(2*q+2*kv) + 3*c.HiddenSize*c.IntermediateSize + 2*c.HiddenSize
	n := c.NumHiddenLayers*layer + c.HiddenSize + c.VocabSize*c.HiddenSize
	if !c.TieWordEmbeddings {
		n += c.VocabSize * c.HiddenSize
	}
	return n
}

// CheckRanks returns an error unless n ranks can share the layers of a model: each has equal parts of
// the heads, of the width of the feed-forward layers and of the vocabulary. A part of a projection has
// a multiple of the given number of rows or columns, in layers that are not exempt from the recipe.
func (c Config) CheckRanks(n, multiple int) error {
	c = c.WithDefaults()
	if n < 1 {
		return invalid("got %d ranks, want at least 1", n)
	}
	for _, w := range []struct {
		key         configjson.Key
		value, unit int // of a rank: value/n heads or columns, of unit columns each
		multiple    int
	}{
		{keyHeads, c.NumAttentionHeads, c.HeadDim, multiple},
		{keyKVHeads, c.NumKeyValueHeads, c.HeadDim, multiple},
		{keyIntermediate, c.IntermediateSize, 1, multiple},
		{keyVocabulary, c.VocabSize, 1, 1},
	} {
		if w.value%n != 0 {
			return invalid("%s is %d, want a multiple of the %d ranks that share a layer", w.key, w.value, n)
		}
		if width := w.value / n * w.unit; width%w.multiple != 0 {
			return invalid("%s is %d, which gives each of %d ranks %d columns, want a multiple of %d: blocks of scales do not extend over ranks",
				w.key, w.value, n, width, w.multiple)
		}
	}
	return nil
}
