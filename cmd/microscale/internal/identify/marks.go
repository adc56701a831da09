package identify

import (
	"encoding/json"
	"fmt"
	"slices"

	"github.com/microscale-go/microscale/checkpoint"
	"github.com/microscale-go/microscale/safetensors/checksum"
)

// Marks returns what the configuration and the metadata of a checkpoint say about its writer: "PLACE: KEY = VALUE". Converters copy some of
// them, and this program writes those that clients expect.
func Marks(m *checkpoint.Model) (marks []string) {
	if raw, ok := m.Source.QuantizationConfig(); ok {
		marks = append(marks, marksOf("quantization_config", raw)...)
	}
	if raw, ok := m.Source.Companion("hf_quant_config.json"); ok {
		marks = append(marks, marksOf("hf_quant_config.json", raw)...)
	}
	for _, shard := range m.Source.Shards()[:1] { // the others say the same
		metadata := shard.File.Metadata()
		if _, ok := metadata[checksum.RecordKey]; ok {
			marks = append(marks, shard.Name+": checksums of microscale")
		}
		for _, key := range []string{checkpoint.ScaleSearchKey, checkpoint.MethodKey} {
			if value, ok := metadata[key]; ok {
				marks = append(marks, fmt.Sprintf("%s: %s = %s", shard.Name, key, value))
			}
		}
	}
	return marks
}

// markKeys are the members of a configuration that name a writer.
var markKeys = []string{"quant_method", "quant_algo", "producer", "version", "format", "packing_format", "quantization_status", "mode",
	"autoround_version"}

// marksOf returns the marks of a configuration.
func marksOf(place string, raw []byte) (marks []string) {
	var members map[string]json.RawMessage
	if json.Unmarshal(raw, &members) != nil {
		return nil
	}
	for _, key := range markKeys {
		value, ok := members[key]
		if !ok || string(value) == "null" {
			continue
		}
		var text string
		if json.Unmarshal(value, &text) != nil {
			var producer struct{ Name, Version string }
			if json.Unmarshal(value, &producer) != nil || producer.Name == "" {
				continue
			}
			text = producer.Name + " " + producer.Version
		}
		marks = append(marks, fmt.Sprintf("%s: %s = %s", place, key, text))
	}
	return slices.Compact(marks)
}
