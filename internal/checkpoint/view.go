package checkpoint

import (
	"encoding/json"
	"fmt"
)

// A GGUFView describes the GGUF file behind a checkpoint that package llamacpp presents as a
// safetensors file. It is stored in the metadata of that file, so that other packages need only
// an hf.Checkpoint.
type GGUFView struct {
	Architecture string       `json:"architecture"` // general.architecture
	Unread       []UnreadType `json:"unread,omitempty"`
}

// An UnreadType is a tensor of a GGUF file whose type is not supported. Its values are unknown.
type UnreadType struct {
	Tensor string `json:"tensor"`
	Type   string `json:"type"`
}

// viewKey is the metadata key of a GGUFView.
const viewKey = "microscale-gguf"

// Metadata returns the key and the value by which [Read] recognizes the view.
func (v GGUFView) Metadata() (key, value string) {
	text, err := json.Marshal(v)
	if err != nil {
		panic(err) // strings always marshal
	}
	return viewKey, string(text)
}

// view completes a model that was read from a GGUF file.
func (m *Model) view() {
	for _, shard := range m.Source.Shards() {
		var v GGUFView
		text, ok := shard.File.Metadata()[viewKey]
		if !ok || json.Unmarshal([]byte(text), &v) != nil {
			continue
		}
		m.Architecture = v.Architecture
		if m.Convention != nil {
			m.Convention = &ggufConvention
		}
		for _, t := range v.Unread {
			m.Unread = append(m.Unread, t.Type)
			m.Problems = append(m.Problems, Problem{Tensor: t.Tensor, Text: fmt.Sprintf("its type %s is not supported: its values are unknown", t.Type)})
		}
	}
}
