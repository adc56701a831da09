package checkpoint

import (
	"encoding/json"
	"fmt"
	"math"
	"math/bits"
	"strings"

	"github.com/microscale-go/microscale/quant"
	"github.com/microscale-go/microscale/safetensors"
)

// plain is this project's own convention, for every block format and for files without a
// configuration:
//
//	X.weight          the codes: F8_E4M3, F8_E5M2, I8, or joined codes as U8; the last block of a row is padded with zeros
//	X.weight_scale    the scales: U8 (E8M0), F8_E4M3 or F32, [scale rows, scale columns], [1] for the whole tensor
//	X.weight_scale_2  the global decode scale, F32 [1]
//	__metadata__      "microscale.X.weight": {"format":"mxfp6-e2m3","shape":[384,100],"dtype":"BF16"}
//
// shape and dtype are those of the source.
var plain = Convention{
	Name:        "plain",
	Doc:         "Microscale's own: every block format, described in the file's metadata",
	quantMethod: "microscale",
	schemes:     plainSchemes(),
	hasIgnore:   true,
	metadata:    true,
	mixes:       true,
	configure: func(s *scheme, o Settings) (config, sidecar any) {
		names := []string{s.format.Name}
		if len(o.Mixed) > 0 {
			names = nil
		}
		for _, m := range o.Mixed {
			names = append(names, m.Format.Name)
		}
		return plainConfig{Format: strings.Join(names, ", "), Ignore: o.Ignore, QuantMethod: "microscale"}, nil
	},
	recognize: func(raw json.RawMessage) (description, error) {
		var config plainConfig
		if err := json.Unmarshal(raw, &config); err != nil {
			return description{}, readable(err)
		}
		return description{ignore: config.Ignore}, nil
	},
}

type plainConfig struct {
	Format      string   `json:"format"`
	Ignore      []string `json:"ignore"`
	QuantMethod string   `json:"quant_method"`
}

func plainSchemes() []scheme {
	var schemes []scheme
	for _, f := range append(quant.Formats(), quant.Q8_0) {
		if f.Scaled() {
			schemes = append(schemes, scheme{format: f, scales: "_scale", global: "_scale_2", scalar: []int64{1}})
		}
	}
	return schemes
}

// metadataPrefix precedes the name of a weight in the metadata of a plain file.
const metadataPrefix = "microscale."

// plainEntry is the metadata of a weight in a plain file.
type plainEntry struct {
	Format string  `json:"format"`
	Shape  []int64 `json:"shape"`
	Dtype  string  `json:"dtype"`
}

func plainMetadata(f quant.Format, weight string, shape []int64, dtype safetensors.Dtype) (key, value string, ok bool) {
	text, err := json.Marshal(plainEntry{Format: f.Name, Shape: shape, Dtype: dtype.String()})
	if err != nil {
		panic(err) // strings and integers always marshal
	}
	return metadataPrefix + weight, string(text), true
}

// parsePlainMetadata returns the weights in the metadata of a file.
func parsePlainMetadata(metadata map[string]string) (map[string]quantized, error) {
	found := map[string]quantized{}
	for key, value := range metadata {
		weight, ok := strings.CutPrefix(key, metadataPrefix)
		if !ok {
			continue
		}
		var entry plainEntry
		if err := json.Unmarshal([]byte(value), &entry); err != nil {
			return nil, fmt.Errorf("metadata %q is not valid in convention plain: %w", key, err)
		}
		f, err := quant.Lookup(entry.Format)
		if err != nil {
			return nil, fmt.Errorf("metadata %q: %w", key, err)
		}
		var dtype safetensors.Dtype
		if err := dtype.UnmarshalText([]byte(entry.Dtype)); err != nil {
			return nil, fmt.Errorf("metadata %q: %w", key, err)
		}
		if !sized(entry.Shape) {
			return nil, fmt.Errorf("metadata %q: no tensor has the shape %v", key, entry.Shape)
		}
		if why := plain.Rejects(f, weight, entry.Shape); why != "" {
			return nil, fmt.Errorf("metadata %q: a %s weight of shape %v: %s", key, f, entry.Shape, why)
		}
		found[weight] = quantized{format: f, shape: entry.Shape, dtype: dtype}
	}
	return found, nil
}

// sized reports whether no dimension is negative and the product of all fits in an int64, after
// padding to whole blocks.
func sized(shape []int64) bool {
	n := uint64(1)
	for _, d := range shape {
		hi, lo := bits.Mul64(n, uint64(max(d, 1)))
		if n = lo; d < 0 || hi != 0 || n > math.MaxInt64/2 {
			return false
		}
	}
	return true
}

// quantized is the description of a quantized weight, before its tensors are read.
type quantized struct {
	format quant.Format
	shape  []int64
	dtype  safetensors.Dtype // of the source

	swizzled bool // its scales are in tiles of 128×4
}

// ScaleSearchKey is the metadata key of the search of package quant, by name, that found the
// scales.
const ScaleSearchKey = "microscale_scale_search"

// ScaleSearch returns the search in the metadata; "" if there is none.
func (m *Model) ScaleSearch() string {
	for _, shard := range m.Source.Shards() {
		if name := shard.File.Metadata()[ScaleSearchKey]; name != "" {
			return name
		}
	}
	return ""
}

// MethodKey is the metadata key of the method of package calibration, by name, that chose scales and codes.
const MethodKey = "microscale_method"

// Method returns the method in the metadata; "" if there is none: codes are the nearest.
func (m *Model) Method() string {
	for _, shard := range m.Source.Shards() {
		if name := shard.File.Metadata()[MethodKey]; name != "" {
			return name
		}
	}
	return ""
}

// IsOwnMetadata reports whether this package wrote a metadata key.
func IsOwnMetadata(key string) bool {
	return key == ScaleSearchKey || key == MethodKey || strings.HasPrefix(key, metadataPrefix) || strings.HasPrefix(key, keptPrefix) ||
		key == configurationKey || key == viewKey
}

// Plain returns the convention that supports every block format.
func Plain() *Convention { return &plain }
