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
	"strings"

	"github.com/microscale-go/microscale/family"
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
	raw          map[string]Place // of a file that OpenRaw opened; nil for others
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
	if c.Config == nil || c.Single && c.GGUF == nil {
		return nil, fmt.Errorf("%s: a GGUF file describes the model, but %s is missing: name a checkpoint's directory", c.Path, hf.ConfigName)
	}
	m := &Model{}
	if err := m.readConfig(configjson.Standard(c.Config)); err != nil {
		return nil, fmt.Errorf("%s: %s: %w", c.Path, hf.ConfigName, err)
	}
	m.add("general.architecture", m.architecture.Name)
	m.add("general.type", "model")
	m.add(versionKey, quantizationVersion)
	if err := m.hyperparameters(); err != nil {
		return nil, fmt.Errorf("%s: %s: %w", c.Path, hf.ConfigName, err)
	}
	t, ok := c.Lookup(embeddings)
	if ok = ok && len(t.Shape) == 2; ok && t.Shape[1] != int64(m.config.HiddenSize) {
		return nil, fmt.Errorf("%s: hidden_size is %d in %s, and %s has %d columns: fetch it again", c.Path, m.config.HiddenSize, hf.ConfigName,
			embeddings, t.Shape[1])
	}
	if ok && t.Shape[0] != int64(m.config.VocabSize) {
		return nil, fmt.Errorf("%s: vocab_size is %d in %s, and %s has %d rows: fetch it again", c.Path, m.config.VocabSize, hf.ConfigName,
			embeddings, t.Shape[0])
	}
	if err := m.vocabulary(c); err != nil {
		return nil, fmt.Errorf("%s: %w", c.Path, err)
	}
	return m, nil
}

// Rejects returns why llama.cpp cannot run the model in format f with global scales other than 1,
// or "".
func (m *Model) Rejects(f quant.Format) string {
	if f.Global && family.UnscaledGraph(m.architecture.Name) {
		return fmt.Sprintf("llama.cpp ignores global scales of %s in %s, as far as is known: choose mxfp4 or q8_0, or profile ggml, which "+
			"has scales of blocks alone", f, m.architecture.Name)
	}
	return ""
}

func (m *Model) add(key string, value any) {
	m.Metadata = append(m.Metadata, gguf.Pair{Key: key, Value: value})
}

// set adds a key of the architecture.
func (m *Model) set(key string, value any) { m.add(m.architecture.Name+"."+key, value) }

// maxOther is the maximum size of an auxiliary file in bytes. The largest tokenizers have about
// 40 MB.
const maxOther = 256 << 20

// readOther returns the content of an auxiliary file, nil if there is none. Those of a GGUF file follow
// from its metadata.
func readOther(c *hf.Checkpoint, name string) ([]byte, error) {
	if c.GGUF != nil {
		text, err := ReadText(c.GGUF)
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
	*family.Settings
	rope family.Rope // of layers without a window
	head
}

// A head has the members that say nothing of the decoder.
type head struct {
	Architectures []string `json:"architectures"`
	BOS           tokenIDs `json:"bos_token_id"`
	EOS           tokenIDs `json:"eos_token_id"`
	Pad           tokenIDs `json:"pad_token_id"`
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

// readConfig parses config.json, and checks that the model is supported.
func (m *Model) readConfig(text []byte) error {
	var own config
	if err := errors.Join(json.Unmarshal(text, &own.head), json.Unmarshal(text, &m.members)); err != nil {
		return fmt.Errorf("parse it: %w", err)
	}
	if len(own.Architectures) == 0 {
		return fmt.Errorf("architectures is missing: only %s can become GGUF", architectureNames())
	}
	a, ok := architectures[own.Architectures[0]]
	if !ok {
		return fmt.Errorf("architecture %q is not supported in GGUF, only %s", own.Architectures[0], architectureNames())
	}
	var err error
	if own.Settings, err = a.family.Read(text); err == nil {
		own.rope, err = own.Rope(a.family, family.FullLayer)
	}
	if err != nil {
		return errors.New(strings.TrimPrefix(err.Error(), hf.ConfigName+": "))
	}
	m.architecture, m.config = a, own
	return errors.Join(m.checkGraph(), m.checkExperts(), m.checkSliding())
}
