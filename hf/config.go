package hf

import (
	"bytes"
	"encoding/json"
	"errors"
	"path/filepath"

	"github.com/microscale-go/microscale/internal/bounded"
	"github.com/microscale-go/microscale/safetensors"
)

// ConfigName is the name of a checkpoint's configuration.
const ConfigName = "config.json"

// maxConfig bounds the bytes of a configuration that is read. Real ones have a
// few thousand, and those that list the ignored layers of a large quantized
// model a few million.
const maxConfig = 64 << 20

// readConfig reads config.json and checks that it is a JSON object.
func (c *Checkpoint) readConfig() error {
	path := filepath.Join(c.Path, ConfigName)
	data, err := bounded.ReadFile(path, maxConfig)
	if _, large := errors.AsType[bounded.TooLarge](err); large || errors.Is(err, bounded.ErrNotRegular) {
		return fault(path, bounded.Cause(err).Error(), fixFetch)
	}
	if err != nil {
		return openError(path, err)
	}
	c.Config = data
	return c.parseConfig(path)
}

func (c *Checkpoint) parseConfig(path string) error {
	err := json.Unmarshal(StandardJSON(c.Config), &c.members)
	if syntax, ok := errors.AsType[*json.SyntaxError](err); ok {
		return &safetensors.ContainerError{Path: path, Offset: max(syntax.Offset-1, 0),
			Problem: "invalid JSON: " + syntax.Error(), Fix: fixFetch}
	}
	if err != nil || c.members == nil { // null gives no error and no map
		return fault(path, "the configuration is not a JSON object", fixFetch)
	}
	return nil
}

// pythonWords are the numbers that Python's json module writes though JSON has
// none of them: configurations of state-space models have "Infinity".
var pythonWords = [][]byte{[]byte("-Infinity"), []byte("Infinity"), []byte("NaN")}

// StandardJSON returns a copy of data, JSON as Python writes it, where NaN and
// infinities are replaced by zeros of the same length, so that offsets stay what they
// were.
func StandardJSON(data []byte) []byte {
	out := bytes.Clone(data)
	inString := false
	for i := 0; i < len(out); i++ {
		switch {
		case inString && out[i] == '\\':
			i++
		case out[i] == '"':
			inString = !inString
		case !inString:
			for _, word := range pythonWords {
				if bytes.HasPrefix(out[i:], word) {
					copy(out[i:], bytes.Repeat([]byte(" "), len(word)))
					out[i+len(word)-1] = '0'
					break
				}
			}
		}
	}
	return out
}

// QuantizationConfig returns what the configuration says of how weights are
// quantized, and whether it says anything: its quantization_config, that of its
// text_config, or its compression_config, whichever is there first.
func (c *Checkpoint) QuantizationConfig() (json.RawMessage, bool) {
	for _, raw := range []json.RawMessage{c.members[quantizationKey], c.textMember(quantizationKey), c.members["compression_config"]} {
		if len(raw) > 0 && string(raw) != "null" {
			return raw, true
		}
	}
	return nil, false
}

// ModelType returns the model_type of the configuration and of its text_config,
// each "" where it is absent.
func (c *Checkpoint) ModelType() (whole, text string) {
	_ = json.Unmarshal(c.members["model_type"], &whole) // what is no string is as good as absent
	_ = json.Unmarshal(c.textMember("model_type"), &text)
	return whole, text
}

// Integer returns a member of the configuration's text_config, or of the
// configuration itself, that is a whole number; 0 where there is none.
func (c *Checkpoint) Integer(key string) int64 {
	var n int64
	for _, raw := range []json.RawMessage{c.textMember(key), c.members[key]} {
		if json.Unmarshal(raw, &n) == nil && n != 0 {
			return n
		}
	}
	return 0
}

func (c *Checkpoint) textMember(key string) json.RawMessage {
	var text map[string]json.RawMessage
	_ = json.Unmarshal(c.members[textKey], &text) // what is no object has no members
	return text[key]
}

// Companion returns the content of one of Others, such as a second configuration,
// and whether it is there and can be read.
func (c *Checkpoint) Companion(name string) ([]byte, bool) {
	for _, other := range c.others {
		if other.Name != name {
			continue
		}
		data, err := bounded.ReadFile(other.Path, maxConfig)
		return data, err == nil
	}
	return nil, false
}

// dtypeKeys are the members of a configuration that name the dtype of the
// weights: the first in older ones, the second in newer.
var dtypeKeys = []string{"torch_dtype", "dtype"}

// TorchDtype returns the dtype that the configuration names, such as
// "bfloat16", and "" where it names none. The key is torch_dtype, and dtype
// in newer configurations.
func (c *Checkpoint) TorchDtype() string {
	for _, key := range dtypeKeys {
		var name string
		if json.Unmarshal(c.members[key], &name) == nil && name != "" {
			return name
		}
	}
	return ""
}
