package hf

import (
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"

	"github.com/microscale-go/microscale/internal/configjson"
	"github.com/microscale-go/microscale/internal/limits"
	"github.com/microscale-go/microscale/safetensors"
)

// quantizationKey is the member of config.json that describes how weights are quantized.
const quantizationKey = "quantization_config"

// ConfigName is the name of a checkpoint's configuration.
const ConfigName = "config.json"

// maxConfig is the largest configuration that is read, in bytes. Most have a few thousand; those that
// list the ignored layers of a large quantized model have a few million.
const maxConfig = 64 << 20

// readConfig reads config.json and checks that it is a JSON object.
func (c *Checkpoint) readConfig() error {
	path := filepath.Join(c.Path, ConfigName)
	data, err := limits.ReadFile(path, maxConfig)
	if _, large := errors.AsType[limits.TooLarge](err); large || errors.Is(err, limits.ErrNotRegular) {
		return fault(path, limits.Cause(err).Error(), fixFetch)
	}
	if err != nil {
		return openError(path, err)
	}
	c.Config = data
	return c.parseConfig(path)
}

func (c *Checkpoint) parseConfig(path string) error {
	err := json.Unmarshal(configjson.Standard(c.Config), &c.members)
	if syntax, ok := errors.AsType[*json.SyntaxError](err); ok {
		return &safetensors.ContainerError{Path: path, Offset: max(syntax.Offset-1, 0),
			Problem: "invalid JSON: " + syntax.Error(), Fix: fixFetch}
	}
	if err != nil || c.members == nil { // null gives no error and no map
		return fault(path, "the configuration is not a JSON object", fixFetch)
	}
	for _, member := range []struct {
		key  string
		want string
		dst  any
	}{{"architectures", "a list of names", new([]string)}, {"model_type", "a name", new(string)}} {
		if value, ok := c.members[member.key]; ok && json.Unmarshal(value, member.dst) != nil {
			return fault(path, fmt.Sprintf("%s is not %s", member.key, member.want), fixFetch)
		}
	}
	return nil
}

// QuantizationConfig returns the description of how the weights are quantized: the first of the
// configuration's quantization_config, that of its text_config, and its compression_config. ok is
// false if there is none.
func (c *Checkpoint) QuantizationConfig() (description json.RawMessage, ok bool) {
	for _, raw := range []json.RawMessage{c.members[quantizationKey], c.textMember(quantizationKey), c.members["compression_config"]} {
		if len(raw) > 0 && string(raw) != "null" {
			return raw, true
		}
	}
	return nil, false
}

// ModelType returns the model_type of the configuration and of its text_config, each "" if absent.
func (c *Checkpoint) ModelType() (whole, text string) {
	_ = json.Unmarshal(c.members["model_type"], &whole) // a value that is not a string counts as absent
	_ = json.Unmarshal(c.textMember("model_type"), &text)
	return whole, text
}

// Integer returns a member of the configuration's text_config, or else of the configuration itself,
// that is a whole number, or 0 if there is none.
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
	_ = json.Unmarshal(c.members[configjson.TextKey], &text) // a value that is not an object has no members
	return text[key]
}

// Companion returns the content of a file of Others, such as a second configuration. ok is false if
// the file does not exist or cannot be read.
func (c *Checkpoint) Companion(name string) (content []byte, ok bool) {
	for _, other := range c.others {
		if other.Name != name {
			continue
		}
		data, err := limits.ReadFile(other.Path, maxConfig)
		return data, err == nil
	}
	return nil, false
}

// TorchDtype returns the dtype of the configuration, such as "bfloat16", or "" if it has none. The key
// is torch_dtype, or dtype in newer configurations.
func (c *Checkpoint) TorchDtype() string {
	for _, key := range configjson.DtypeKeys {
		var name string
		if json.Unmarshal(c.members[key], &name) == nil && name != "" {
			return name
		}
	}
	return ""
}
