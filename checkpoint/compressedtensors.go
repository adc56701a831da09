package checkpoint

import (
	"slices"

	"github.com/microscale-go/microscale/quant"
)

// compressedTensors is the convention of llm-compressor, read by vLLM, SGLang and
// transformers. Only weights are quantized in the file; where a preset quantizes
// activations too, the client does so as it runs.
var compressedTensors = Convention{
	Name:        "compressed-tensors",
	Doc:         "vLLM, SGLang and transformers (quant_method compressed-tensors)",
	quantMethod: compressedTensorsMethod,
	schemes:     compressedTensorsSchemes(),
	linearOnly:  true,
	wholeBlocks: true,
	hasIgnore:   true,
	configure:   configureCompressedTensors,
	recognize:   recognizeCompressedTensors,
}

// A ctScheme is a preset of quantization/quant_scheme.py that a conversion can
// fill without data, and the tensors that hold its weights.
type ctScheme struct {
	scheme
	layout      string // "format" in the configuration
	weights     ctArgs
	activations *ctArgs // nil: not quantized
}

var ctSchemes = []ctScheme{
	{ // MXFP8
		scheme{format: quant.MXFP8, scales: "_scale"}, "mxfp8-quantized",
		ctArgs{NumBits: 8, Strategy: "group", GroupSize: ptr(32), ScaleDtype: ptr("torch.uint8")},
		&ctArgs{NumBits: 8, Strategy: "group", GroupSize: ptr(32), ScaleDtype: ptr("torch.uint8")},
	},
	{ // MXFP4A16
		scheme{format: quant.MXFP4, codes: "_packed", scales: "_scale"}, "mxfp4-pack-quantized",
		ctArgs{NumBits: 4, Strategy: "group", GroupSize: ptr(32), ScaleDtype: ptr("torch.uint8")}, nil,
	},
	{ // NVFP4A16
		scheme{format: quant.NVFP4, codes: "_packed", scales: "_scale", global: "_global_scale", divides: true, input: ".input_global_scale"}, "nvfp4-pack-quantized",
		ctArgs{NumBits: 4, Strategy: "tensor_group", GroupSize: ptr(16), ScaleDtype: ptr("torch.float8_e4m3fn")}, nil,
	},
	{ // FP8, with dynamic activations
		scheme{format: quant.FP8Tensor, scales: "_scale", input: ".input_scale"}, "float-quantized",
		ctArgs{NumBits: 8, Strategy: "tensor"},
		&ctArgs{NumBits: 8, Strategy: "token"},
	},
	{ // FP8_DYNAMIC
		scheme{format: quant.FP8Row, scales: "_scale", input: ".input_scale"}, "float-quantized",
		ctArgs{NumBits: 8, Strategy: "channel"},
		&ctArgs{NumBits: 8, Strategy: "token"},
	},
	{ // FP8_BLOCK
		scheme{format: quant.FP8Block, scales: "_scale", input: ".input_scale"}, "float-quantized",
		ctArgs{NumBits: 8, Strategy: "block", BlockStructure: []int{128, 128}},
		&ctArgs{NumBits: 8, Strategy: "group", GroupSize: ptr(128)},
	},
}

func compressedTensorsSchemes() []scheme {
	var schemes []scheme
	for _, s := range ctSchemes {
		schemes = append(schemes, s.scheme)
	}
	return schemes
}

// ctVersion is the version of compressed-tensors whose layout is written.
const ctVersion = "0.14.0"

// ctConfig is quantization_config, its keys in the order of the library's writer.
type ctConfig struct {
	ConfigGroups           map[string]ctGroup `json:"config_groups"`
	Format                 string             `json:"format"`
	GlobalCompressionRatio *float64           `json:"global_compression_ratio"`
	Ignore                 []string           `json:"ignore"`
	KVCacheScheme          *ctArgs            `json:"kv_cache_scheme"`
	QuantMethod            string             `json:"quant_method"`
	QuantizationStatus     string             `json:"quantization_status"`
	SparsityConfig         struct{}           `json:"sparsity_config"`
	TransformConfig        struct{}           `json:"transform_config"`
	Version                string             `json:"version"`
}

type ctGroup struct {
	Format            string   `json:"format"`
	InputActivations  *ctArgs  `json:"input_activations"`
	OutputActivations *ctArgs  `json:"output_activations"`
	Targets           []string `json:"targets"`
	Weights           *ctArgs  `json:"weights"`
}

// ctArgs is QuantizationArgs. The library refuses keys that it does not know.
type ctArgs struct {
	ActOrder       any            `json:"actorder"`
	BlockStructure []int          `json:"block_structure"`
	Dynamic        any            `json:"dynamic"` // false, true or "local"
	GroupSize      *int           `json:"group_size"`
	NumBits        int            `json:"num_bits"`
	Observer       *string        `json:"observer"`
	ObserverKwargs map[string]any `json:"observer_kwargs"`
	ScaleDtype     *string        `json:"scale_dtype"`
	Strategy       string         `json:"strategy"`
	Symmetric      bool           `json:"symmetric"`
	Type           string         `json:"type"`
	ZPDtype        *string        `json:"zp_dtype"`
}

func configureCompressedTensors(f quant.Format, ignore []string) any {
	i := slices.IndexFunc(ctSchemes, func(s ctScheme) bool { return s.format.Name == f.Name })
	s := ctSchemes[i] // the convention holds f
	s.weights.Dynamic, s.weights.Observer, s.weights.Symmetric, s.weights.Type = false, ptr("memoryless_minmax"), true, "float"
	s.weights.ObserverKwargs = map[string]any{}
	group := ctGroup{Format: s.layout, Targets: []string{linear}, Weights: &s.weights}
	if s.activations != nil {
		activations := *s.activations
		activations.Dynamic, activations.Symmetric, activations.Type = true, true, "float"
		activations.ObserverKwargs = map[string]any{}
		group.InputActivations = &activations
	}
	return ctConfig{
		ConfigGroups:       map[string]ctGroup{"group_0": group},
		Format:             s.layout,
		Ignore:             ignore,
		QuantMethod:        compressedTensorsMethod,
		QuantizationStatus: "compressed",
		Version:            ctVersion,
	}
}

const compressedTensorsMethod = "compressed-tensors"

func ptr[T any](v T) *T { return &v }

func equal[T comparable](a, b *T) bool {
	return a == nil && b == nil || a != nil && b != nil && *a == *b
}
