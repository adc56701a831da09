// Package configjson reads and edits config.json files of Hugging Face checkpoints as text. Members
// that it does not change keep their order and their bytes.
package configjson

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
)

// TextKey is the member that describes the language model of a multimodal model. Some writers put
// the quantization there.
const TextKey = "text_config"

// DtypeKeys are the members that name the dtype of the weights: the first in older configurations,
// the second in newer ones.
var DtypeKeys = []string{"torch_dtype", "dtype"}

// QuantizationKeys are the members that describe how weights are quantized, in any convention.
var QuantizationKeys = []string{"quantization_config", "quantization", "compression_config"}

// pythonWords are the numbers that Python's json module writes although JSON does not have them.
// Configurations of state-space models have "Infinity".
var pythonWords = [][]byte{[]byte("-Infinity"), []byte("Infinity"), []byte("NaN")}

// Standard returns a copy of data, JSON as Python writes it, with NaN and infinities replaced by
// zeros of the same length, so that offsets do not change.
func Standard(data []byte) []byte {
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

// WithMember returns config with value as its last member, of the name key. It removes an earlier
// member of that name. It returns an error if config is not a JSON object.
func WithMember(config []byte, key string, value any) ([]byte, error) {
	members, err := splitObject(config)
	if err != nil {
		return nil, err
	}
	members = slices.DeleteFunc(members, func(m member) bool { return m.key == key })
	text, err := json.MarshalIndent(value, "  ", "  ")
	if err != nil {
		return nil, err
	}
	return joinObject(append(members, member{key, fmt.Appendf(nil, "%q: %s", key, text)})), nil
}

// WithoutMembers returns config without the members of the given names, at the top level and in
// text_config. It returns an error if config is not a JSON object.
func WithoutMembers(config []byte, keys ...string) ([]byte, error) {
	members, err := splitObject(config)
	if err != nil {
		return nil, err
	}
	drop := func(m member) bool { return slices.Contains(keys, m.key) }
	members = slices.DeleteFunc(members, drop)
	for i, m := range members {
		if nested := m.members(); m.key == TextKey && slices.ContainsFunc(nested, drop) {
			members[i] = object(m.key, slices.DeleteFunc(nested, drop))
		}
	}
	return joinObject(members), nil
}

// WithTorchDtype returns config with name as the value of each member of [DtypeKeys] that it or an
// object in it has, and of one more if it has none at the top level. It returns an error if config is
// not a JSON object.
func WithTorchDtype(config []byte, name string) ([]byte, error) {
	members, err := splitObject(config)
	if err != nil {
		return nil, err
	}
	setDtype(members, name, dtypeDepth)
	if !slices.ContainsFunc(members, func(m member) bool { return slices.Contains(DtypeKeys, m.key) }) {
		members = append(members, member{DtypeKeys[0], fmt.Appendf(nil, "%q: %q", DtypeKeys[0], name)})
	}
	return joinObject(members), nil
}

// dtypeDepth is the number of levels below the top that have dtypes of models, such as
// thinker_config.text_config.
const dtypeDepth = 2

// setDtype sets the dtypes of members and of objects in them, depth levels below. It reports whether
// there are any.
func setDtype(members []member, name string, depth int) (found bool) {
	for i, m := range members {
		if slices.Contains(DtypeKeys, m.key) {
			members[i].text, found = fmt.Appendf(nil, "%q: %q", m.key, name), true
		} else if depth > 0 && m.key != "quantization_config" {
			if nested := m.members(); setDtype(nested, name, depth-1) {
				members[i], found = object(m.key, nested), true
			}
		}
	}
	return found
}

// A member is a member of an object: its key, and its text from the key's quote to the end of the
// value.
type member struct {
	key  string
	text []byte
}

// members returns the members of an object that is the value of m; nil for another value.
func (m member) members() []member {
	members, err := splitObject(bytes.TrimLeft(m.text[bytes.IndexByte(m.text, ':')+1:], " \t\r\n"))
	if err != nil {
		return nil
	}
	return members
}

// object returns a member whose value is an object.
func object(key string, members []member) member {
	inner := bytes.ReplaceAll(bytes.TrimRight(joinObject(members), "\n"), []byte("\n"), []byte("\n  "))
	return member{key, fmt.Appendf(nil, "%q: %s", key, inner)}
}

// splitObject returns the members of the object data.
func splitObject(data []byte) ([]member, error) {
	standard := Standard(data) // has the same offsets
	decoder := json.NewDecoder(bytes.NewReader(standard))
	if token, err := decoder.Token(); err != nil || token != json.Delim('{') {
		return nil, errors.New("config.json is not a JSON object")
	}
	var members []member
	for decoder.More() {
		before := decoder.InputOffset()
		start := before + int64(bytes.IndexByte(standard[before:], '"'))
		token, err := decoder.Token()
		if err != nil {
			return nil, fmt.Errorf("config.json: %w", err)
		}
		var value json.RawMessage
		if err := decoder.Decode(&value); err != nil {
			return nil, fmt.Errorf("config.json: %w", err)
		}
		key, _ := token.(string) // keys of an object are strings
		members = append(members, member{key, data[start:decoder.InputOffset()]})
	}
	return members, nil
}

// joinObject returns the object of the members, each on a new line.
func joinObject(members []member) []byte {
	var out bytes.Buffer
	out.WriteString("{")
	for i, m := range members {
		if i > 0 {
			out.WriteString(",")
		}
		out.WriteString("\n  ")
		out.Write(m.text)
	}
	out.WriteString("\n}\n")
	return out.Bytes()
}
