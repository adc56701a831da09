package hf

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
)

// quantizationKey is the member of config.json that says how weights are stored.
const quantizationKey = "quantization_config"

// textKey is the member of config.json that describes the language model of one
// that sees or hears too. Some writers put there what says how weights are stored.
const textKey = "text_config"

// WithMember returns config, the bytes of a config.json, with the given value as
// its member of that name, at the end. The other members keep their order and
// their bytes.
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

// WithoutMembers returns config, the bytes of a config.json, without the members
// of those names, at the top and in text_config. The other members keep their
// order and their bytes.
func WithoutMembers(config []byte, keys ...string) ([]byte, error) {
	members, err := splitObject(config)
	if err != nil {
		return nil, err
	}
	drop := func(m member) bool { return slices.Contains(keys, m.key) }
	members = slices.DeleteFunc(members, drop)
	for i, m := range members {
		if m.key != textKey {
			continue
		}
		value := bytes.TrimLeft(m.text[bytes.IndexByte(m.text, ':')+1:], " \t\r\n")
		if nested, err := splitObject(value); err == nil && slices.ContainsFunc(nested, drop) {
			nested = slices.DeleteFunc(nested, drop)
			inner := bytes.ReplaceAll(bytes.TrimRight(joinObject(nested), "\n"), []byte("\n"), []byte("\n  "))
			members[i].text = fmt.Appendf(nil, "%q: %s", textKey, inner)
		}
	}
	return joinObject(members), nil
}

// WithTorchDtype returns config, the bytes of a config.json, with another name of
// the dtype that a loader gives the weights, under the key or keys that it has
// for it (see Checkpoint.TorchDtype). A configuration that names none is left
// without one. The other members keep their order and their bytes.
func WithTorchDtype(config []byte, name string) ([]byte, error) {
	members, err := splitObject(config)
	if err != nil {
		return nil, err
	}
	for i, m := range members {
		if slices.Contains(dtypeKeys, m.key) {
			members[i].text = fmt.Appendf(nil, "%q: %q", m.key, name)
		}
	}
	return joinObject(members), nil
}

// A member is one member of an object: its key, and its text from the key's
// quote to the end of its value.
type member struct {
	key  string
	text []byte
}

// splitObject returns the members of the object that data is.
func splitObject(data []byte) ([]member, error) {
	standard := StandardJSON(data) // the same offsets
	decoder := json.NewDecoder(bytes.NewReader(standard))
	if token, err := decoder.Token(); err != nil || token != json.Delim('{') {
		return nil, fmt.Errorf("%s is not a JSON object", ConfigName)
	}
	var members []member
	for decoder.More() {
		before := decoder.InputOffset()
		start := before + int64(bytes.IndexByte(standard[before:], '"'))
		token, err := decoder.Token()
		if err != nil {
			return nil, fmt.Errorf("%s: %w", ConfigName, err)
		}
		var value json.RawMessage
		if err := decoder.Decode(&value); err != nil {
			return nil, fmt.Errorf("%s: %w", ConfigName, err)
		}
		key, _ := token.(string) // keys of an object are strings
		members = append(members, member{key, data[start:decoder.InputOffset()]})
	}
	return members, nil
}

// joinObject returns the object of the members, a line each at the least.
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
