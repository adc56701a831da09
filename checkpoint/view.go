package checkpoint

import (
	"encoding/json"
	"fmt"

	"github.com/microscale-go/microscale/hf"
)

// A GGUFView describes the GGUF file behind a checkpoint that package llamacpp presents as a
// safetensors file. It is stored in the metadata of that file, so that other packages need only
// an hf.Checkpoint.
type GGUFView struct {
	Architecture string       `json:"architecture"` // general.architecture
	Bytes        int64        `json:"bytes"`        // of the file
	Unread       []UnreadType `json:"unread,omitempty"`

	// Decoded has the tensors that are quantized in the file and that the checkpoint has in F32.
	Decoded []DecodedType `json:"decoded,omitempty"`
}

// A DecodedType is a tensor of a GGUF file that is decoded as it is read.
type DecodedType struct {
	Tensor string `json:"tensor"`
	Type   string `json:"type"`
	Bytes  int64  `json:"bytes"` // in the file

	// Joined: it has rows of two tensors, whose blocks are not runs of its own rows.
	Joined bool `json:"joined,omitempty"`

	// Blocks is the name of the tensor with its bytes, for copying; "" if there is none.
	Blocks string `json:"blocks,omitempty"`

	blocks *hf.Tensor // of that name
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

// findView finds the description of the GGUF file that a model is read from.
func (m *Model) findView() {
	for _, shard := range m.Source.Shards() {
		var v GGUFView
		text, ok := shard.File.Metadata()[viewKey]
		if !ok || json.Unmarshal([]byte(text), &v) != nil {
			continue
		}
		m.viewed, m.Architecture, m.fileBytes = &v, v.Architecture, v.Bytes
	}
}

// view completes a model that was read from a GGUF file.
func (m *Model) view() {
	if m.viewed == nil {
		return
	}
	if m.Convention != nil {
		m.Convention = &ggufConvention
	}
	for _, t := range m.viewed.Decoded {
		if w, ok := m.Lookup(t.Tensor); ok {
			if blocks, ok := m.Source.Lookup(t.Blocks); ok {
				t.blocks = &blocks
			}
			w.decoded = &t
			m.Decoded = append(m.Decoded, t.Type)
		}
	}
	for _, t := range m.viewed.Unread {
		m.Unread = append(m.Unread, t.Type)
		m.report(Problem{Tensor: t.Tensor, Text: fmt.Sprintf("its type %s is not supported: its values are unknown", t.Type)})
	}
}

// Bytes returns the size of a file of weights. A GGUF file has another size than the view of it.
func (m *Model) Bytes(s hf.Shard) int64 {
	if m.fileBytes > 0 {
		return m.fileBytes
	}
	return s.File.Size()
}
