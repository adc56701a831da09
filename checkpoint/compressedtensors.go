package checkpoint

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/microscale-go/microscale/format"
	"github.com/microscale-go/microscale/quant"
	"github.com/microscale-go/microscale/safetensors"
)

// compressedTensors is the convention of llm-compressor, which vLLM, SGLang and transformers
// read. If a preset quantizes activations too, the client does so at run time, by their values or
// by a stored scale.
var compressedTensors = Convention{
	Name:        "compressed-tensors",
	Doc:         "llm-compressor's (quant_method compressed-tensors)",
	quantMethod: compressedTensorsMethod,
	schemes:     compressedTensorsSchemes(),
	linearOnly:  true,
	wholeBlocks: true,
	hasIgnore:   true,
	byPattern:   true,
	mixes:       true,
	mixed:       ctMixed,
	cache:       ptr(perAttention),
	configure:   configureCompressedTensors,
	recognize:   recognizeCompressedTensors,
}

// A ctScheme is a preset of quantization/quant_scheme.py, and the tensors of its weights.
type ctScheme struct {
	scheme
	layout      string // "format" in the configuration
	weights     ctArgs
	activations *ctArgs // nil: not quantized
}

// Arguments that several presets share.
var (
	ctE8M0x8   = ctArgs{NumBits: 8, Strategy: "group", GroupSize: ptr(32), ScaleDtype: ptr("torch.uint8")}
	ctE8M0x4   = ctArgs{NumBits: 4, Strategy: "group", GroupSize: ptr(32), ScaleDtype: ptr("torch.uint8")}
	ctE4M3x4   = ctArgs{NumBits: 4, Strategy: "tensor_group", GroupSize: ptr(16), ScaleDtype: ptr("torch.float8_e4m3fn")}
	ctTensor   = ctArgs{NumBits: 8, Strategy: "tensor"}
	ctToken    = ctArgs{NumBits: 8, Strategy: "token"}
	ctChannel  = ctArgs{NumBits: 8, Strategy: "channel"}
	ctBlock    = ctArgs{NumBits: 8, Strategy: "block", BlockStructure: []int{128, 128}}
	ctGroup128 = ctArgs{NumBits: 8, Strategy: "group", GroupSize: ptr(128)}
	ctInt8     = ctArgs{Type: "int", NumBits: 8, Strategy: "channel"}
	ctInt8s    = ctArgs{Type: "int", NumBits: 8, Strategy: "token"}
)

// Tensors that several presets share.
var (
	ctMXFP8 = scheme{format: quant.MXFP8, scales: "_scale"}
	ctMXFP4 = scheme{format: quant.MXFP4, codes: "_packed", scales: "_scale"}
	ctNVFP4 = scheme{format: quant.NVFP4, codes: "_packed", scales: "_scale", global: "_global_scale", direction: inverse,
		input: ".input_global_scale", inputScale: inverse, scalar: []int64{1}}
	ctFP8    = scheme{scales: "_scale", input: ".input_scale", scalar: []int64{1}}
	ctPacked = scheme{codes: "_packed", scales: "_scale", shape: "_shape", words: safetensors.I32, offset: true}
)

// as returns the scheme with another name and treatment of activations.
func (s scheme) as(name string, a Activations) scheme {
	s.name, s.activations = name, a
	return s
}

// with returns the scheme for activations in another format than the weights.
func (s scheme) with(inputs quant.Format) scheme {
	s.inputs = inputs
	return s
}

// unpadded returns the scheme for codes without zeros in the last block of a row.
func (s scheme) unpadded() scheme {
	s.partial = true
	return s
}

// inAnyColumns returns the scheme for clients that decode partial blocks at the end of a row.
func (s scheme) inAnyColumns() scheme {
	s.anyColumns = true
	return s
}

// of returns the scheme for another block format.
func (s scheme) of(f quant.Format) scheme {
	s.format = f
	return s
}

// ctSchemes has the schemes of integers for each block format of integers: presets W4A16 and W8A16 with any size of groups, W4AFP8,
// INT8_W8A8, and W8A16 with a scale for each row. Other integers are read as values (ctCoded), such as the INT4 codes in bytes that version
// 0.20 writes for the preset W4AFP8.
var ctSchemes = func() []ctScheme {
	schemes := slices.Clone(ctFloats)
	for _, f := range quant.Formats() {
		switch f.Element {
		case format.S4:
			args := ctArgs{Type: "int", NumBits: 4, Strategy: "group", GroupSize: &f.Block.Cols}
			schemes = append(schemes, ctScheme{ctPacked.of(f).as("W4A16", WeightOnly), "pack-quantized", args, nil})
			if f.Block.Cols == *ctGroup128.GroupSize {
				schemes = append(schemes, ctScheme{ctPacked.of(f).as("W4AFP8", Dynamic).with(quant.FP8Row), "pack-quantized", args, &ctToken})
			}
		case format.S8:
			if f.Block.Cols > 0 {
				args := ctArgs{Type: "int", NumBits: 8, Strategy: "group", GroupSize: &f.Block.Cols}
				schemes = append(schemes, ctScheme{ctPacked.of(f).as("W8A16", WeightOnly), "pack-quantized", args, nil})
				continue
			}
			schemes = append(schemes, ctScheme{ctFP8.of(f).as("W8A8", Dynamic), "int-quantized", ctInt8, &ctInt8s},
				ctScheme{ctPacked.of(f).as("W8A16", WeightOnly), "pack-quantized", ctInt8, nil})
		}
	}
	return schemes
}()

var ctFloats = []ctScheme{
	{ctMXFP8.as("MXFP8", Dynamic), "mxfp8-quantized", ctE8M0x8, &ctE8M0x8},
	{ctMXFP8.as("MXFP8A16", WeightOnly), "mxfp8-quantized", ctE8M0x8, nil},
	{ctMXFP4.as("MXFP4A16", WeightOnly), "mxfp4-pack-quantized", ctE8M0x4, nil},
	{ctMXFP4.as("MXFP4", Dynamic), "mxfp4-pack-quantized", ctE8M0x4, &ctE8M0x4},
	{ctNVFP4.as("NVFP4A16", WeightOnly), "nvfp4-pack-quantized", ctE4M3x4, nil},
	{ctNVFP4.as("NVFP4", Static), "nvfp4-pack-quantized", ctE4M3x4, &ctE4M3x4},
	{ctFP8.of(quant.FP8Tensor).as("FP8_TOKEN", Dynamic).with(quant.FP8Row), "float-quantized", ctTensor, &ctToken}, // FP8_DYNAMIC's inputs
	{ctFP8.of(quant.FP8Tensor).as("FP8", Static), "float-quantized", ctTensor, &ctTensor},
	{ctFP8.of(quant.FP8Row).as("FP8_DYNAMIC", Dynamic), "float-quantized", ctChannel, &ctToken},
	{ctFP8.of(quant.FP8Block).unpadded().as("FP8_BLOCK", Dynamic), "float-quantized", ctBlock, &ctGroup128},
	// FP8_BLOCK's weights
	{ctFP8.of(quant.FP8Block).unpadded().inAnyColumns().as("FP8_BLOCK_A16", WeightOnly), "naive-quantized", ctBlock, nil},
}

func compressedTensorsSchemes() []scheme {
	var schemes []scheme
	for _, s := range ctSchemes {
		schemes = append(schemes, s.scheme)
	}
	return schemes
}

// ctVersion is the version of compressed-tensors whose layout is written: the first that decodes every scheme.
const ctVersion = "0.20.0"

// ctConfig is quantization_config, with its keys in the order of the library.
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

// ctArgs is QuantizationArgs. The library rejects unknown keys.
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

// kind returns the type of a preset, "float" unless it has another.
func (a *ctArgs) kind() string { return cmp.Or(a.Type, "float") }

// ctGroupOf returns the group of a scheme.
func ctGroupOf(chosen *scheme, targets []string) ctGroup {
	i := slices.IndexFunc(ctSchemes, func(s ctScheme) bool { return s.name == chosen.name && s.format.Name == chosen.format.Name })
	s := ctSchemes[i] // chosen is one of them
	s.weights.Dynamic, s.weights.Observer, s.weights.Symmetric = false, ptr("memoryless_minmax"), true
	s.weights.Type = s.weights.kind()
	s.weights.ObserverKwargs = map[string]any{}
	group := ctGroup{Format: s.layout, Targets: targets, Weights: &s.weights}
	if s.activations != nil {
		activations := *s.activations
		activations.Dynamic, activations.Symmetric, activations.Type = true, true, activations.kind()
		if s.scheme.activations == Static {
			activations.Dynamic, activations.Observer = false, ptr("static_minmax")
			if s.format.Global {
				activations.Dynamic = "local" // the scales of blocks are, and the global one is stored
			}
		}
		activations.ObserverKwargs = map[string]any{}
		group.InputActivations = &activations
	}
	return group
}

// ctGroups returns the groups of a checkpoint, and its "format".
func ctGroups(chosen *scheme, o Settings) (groups map[string]ctGroup, layout string) {
	if len(o.Mixed) == 0 {
		group := ctGroupOf(chosen, []string{LinearClass})
		return map[string]ctGroup{"group_0": group}, group.Format
	}
	modules := make([][]string, len(o.Mixed))
	for i, m := range o.Mixed {
		modules[i] = m.Names
	}
	groups = map[string]ctGroup{}
	for i, targets := range targetPatterns(modules, o.Unquantized) {
		group := ctGroupOf(o.Mixed[i].scheme, targets)
		groups[fmt.Sprintf("group_%d", i)] = group // in the order of the names: there are fewer than 11 formats
		if layout != "" && layout != group.Format {
			layout = ctMixed
			continue
		}
		layout = group.Format
	}
	return groups, layout
}

func configureCompressedTensors(chosen *scheme, o Settings) (config, sidecar any) {
	groups, layout := ctGroups(chosen, o)
	c := ctConfig{
		ConfigGroups:       groups,
		Format:             layout,
		Ignore:             o.Ignore,
		QuantMethod:        compressedTensorsMethod,
		QuantizationStatus: "compressed",
		Version:            ctVersion,
	}
	if o.KVCache {
		c.KVCacheScheme = &ctArgs{Dynamic: false, NumBits: 8, Observer: ptr("memoryless_minmax"), ObserverKwargs: map[string]any{},
			Strategy: "tensor", Symmetric: true, Type: "float"}
	}
	return c, nil
}

const compressedTensorsMethod = "compressed-tensors"

func ptr[T any](v T) *T { return &v }

func equal[T comparable](a, b *T) bool {
	return a == nil && b == nil || a != nil && b != nil && *a == *b
}
