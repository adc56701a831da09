package checkpoint

import (
	"encoding/json"
	"fmt"
	"maps"
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
	schemes: []scheme{
		{format: quant.MXFP8, scales: "_scale"},
		{format: quant.MXFP4, codes: "_packed", scales: "_scale"},
		{format: quant.NVFP4, codes: "_packed", scales: "_scale", global: "_global_scale", inverseGlobal: true},
		{format: quant.FP8Tensor, scales: "_scale"},
		{format: quant.FP8Row, scales: "_scale"},
		{format: quant.FP8Block, scales: "_scale"},
	},
	linearOnly:  true,
	wholeBlocks: true,
	hasIgnore:   true,
	configure:   configureCompressedTensors,
	recognize:   recognizeCompressedTensors,
}

// A ctPreset is a preset of quantization/quant_scheme.py.
type ctPreset struct {
	format      quant.Format
	name        string // the library's
	layout      string // "format" in the configuration
	weights     ctArgs
	activations *ctArgs
}

// ctPresets are those that a conversion can fill without data.
var ctPresets = []ctPreset{
	{quant.MXFP8, "MXFP8", "mxfp8-quantized",
		ctArgs{NumBits: 8, Strategy: "group", GroupSize: ptr(32), ScaleDtype: ptr("torch.uint8")},
		&ctArgs{NumBits: 8, Strategy: "group", GroupSize: ptr(32), ScaleDtype: ptr("torch.uint8")}},
	{quant.MXFP4, "MXFP4A16", "mxfp4-pack-quantized",
		ctArgs{NumBits: 4, Strategy: "group", GroupSize: ptr(32), ScaleDtype: ptr("torch.uint8")}, nil},
	{quant.NVFP4, "NVFP4A16", "nvfp4-pack-quantized",
		ctArgs{NumBits: 4, Strategy: "tensor_group", GroupSize: ptr(16), ScaleDtype: ptr("torch.float8_e4m3fn")}, nil},
	{quant.FP8Tensor, "FP8 with dynamic activations", "float-quantized",
		ctArgs{NumBits: 8, Strategy: "tensor"},
		&ctArgs{NumBits: 8, Strategy: "token"}},
	{quant.FP8Row, "FP8_DYNAMIC", "float-quantized",
		ctArgs{NumBits: 8, Strategy: "channel"},
		&ctArgs{NumBits: 8, Strategy: "token"}},
	{quant.FP8Block, "FP8_BLOCK", "float-quantized",
		ctArgs{NumBits: 8, Strategy: "block", BlockStructure: []int{128, 128}},
		&ctArgs{NumBits: 8, Strategy: "group", GroupSize: ptr(128)}},
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
	ActOrder       *string  `json:"actorder"`
	BlockStructure []int    `json:"block_structure"`
	Dynamic        any      `json:"dynamic"` // false, true or "local"
	GroupSize      *int     `json:"group_size"`
	NumBits        int      `json:"num_bits"`
	Observer       *string  `json:"observer"`
	ObserverKwargs struct{} `json:"observer_kwargs"`
	ScaleDtype     *string  `json:"scale_dtype"`
	Strategy       string   `json:"strategy"`
	Symmetric      bool     `json:"symmetric"`
	Type           string   `json:"type"`
	ZPDtype        *string  `json:"zp_dtype"`
}

func configureCompressedTensors(f quant.Format, ignore []string) any {
	for _, p := range ctPresets {
		if p.format.Name != f.Name {
			continue
		}
		weights := p.weights
		weights.Dynamic, weights.Observer, weights.Symmetric, weights.Type = false, ptr("memoryless_minmax"), true, "float"
		group := ctGroup{Format: p.layout, Targets: []string{"Linear"}, Weights: &weights}
		if p.activations != nil {
			activations := *p.activations
			activations.Dynamic, activations.Symmetric, activations.Type = true, true, "float"
			group.InputActivations = &activations
		}
		return ctConfig{
			ConfigGroups:       map[string]ctGroup{"group_0": group},
			Format:             p.layout,
			Ignore:             ignore,
			QuantMethod:        compressedTensorsMethod,
			QuantizationStatus: "compressed",
			Version:            ctVersion,
		}
	}
	panic("checkpoint: compressed-tensors holds " + f.Name + " but has no preset for it")
}

const compressedTensorsMethod = "compressed-tensors"

func recognizeCompressedTensors(raw json.RawMessage) (quant.Format, []string, error) {
	var config struct {
		ConfigGroups map[string]struct {
			Weights *struct {
				BlockStructure []int   `json:"block_structure"`
				GroupSize      *int    `json:"group_size"`
				NumBits        int     `json:"num_bits"`
				ScaleDtype     *string `json:"scale_dtype"`
				Strategy       string  `json:"strategy"`
				Type           string  `json:"type"`
			} `json:"weights"`
		} `json:"config_groups"`
		Ignore []string `json:"ignore"`
	}
	if err := json.Unmarshal(raw, &config); err != nil {
		return quant.Format{}, nil, err
	}
	var found *quant.Format
	for _, name := range slices.Sorted(maps.Keys(config.ConfigGroups)) {
		w := config.ConfigGroups[name].Weights
		if w == nil {
			continue
		}
		i := slices.IndexFunc(ctPresets, func(p ctPreset) bool {
			return w.Type == "float" && w.NumBits == p.weights.NumBits && w.Strategy == p.weights.Strategy &&
				equal(w.GroupSize, p.weights.GroupSize) && slices.Equal(w.BlockStructure, p.weights.BlockStructure)
		})
		if i < 0 {
			return quant.Format{}, nil, fmt.Errorf("%s stores weights of type %s, %d bits, strategy %s, which no block format here has", name, w.Type, w.NumBits, w.Strategy)
		}
		if found != nil && found.Name != ctPresets[i].format.Name {
			return quant.Format{}, nil, fmt.Errorf("it mixes %s and %s, and only one block format is read", *found, ctPresets[i].format)
		}
		found = &ctPresets[i].format
	}
	if found == nil {
		return quant.Format{}, nil, fmt.Errorf("config_groups quantizes no weights")
	}
	return *found, config.Ignore, nil
}

func ptr[T any](v T) *T { return &v }

func equal[T comparable](a, b *T) bool {
	return a == nil && b == nil || a != nil && b != nil && *a == *b
}
