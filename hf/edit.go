package hf

import (
	"bytes"
	"encoding/json"
	"fmt"
)

// quantizationKey is the member of config.json that says how weights are stored.
const quantizationKey = "quantization_config"

// WithQuantizationConfig returns config, the bytes of a config.json, with the
// given value as its quantization_config, or without one where value is nil.
// The other members keep their order and their bytes.
func WithQuantizationConfig(config []byte, value any) ([]byte, error) {
	members, err := splitObject(config)
	if err != nil {
		return nil, err
	}
	var kept [][]byte
	for _, m := range members {
		if m.key != quantizationKey {
			kept = append(kept, m.text)
		}
	}
	if value != nil {
		text, err := json.MarshalIndent(value, "  ", "  ")
		if err != nil {
			return nil, err
		}
		kept = append(kept, fmt.Appendf(nil, "%q: %s", quantizationKey, text))
	}
	var out bytes.Buffer
	out.WriteString("{")
	for i, text := range kept {
		if i > 0 {
			out.WriteString(",")
		}
		out.WriteString("\n  ")
		out.Write(text)
	}
	out.WriteString("\n}\n")
	return out.Bytes(), nil
}

// A member is one member of an object: its key, and its text from the key's
// quote to the end of its value.
type member struct {
	key  string
	text []byte
}

// splitObject returns the members of the object that data is.
func splitObject(data []byte) ([]member, error) {
	standard := standardJSON(data) // the same offsets
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
