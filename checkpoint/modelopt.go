package checkpoint

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/microscale-go/microscale/format"
	"github.com/microscale-go/microscale/quant"
)

// modelOpt is the convention of NVIDIA's Model Optimizer. The configuration is in config.json,
// which vLLM reads first, and in hf_quant_config.json, which TensorRT-LLM reads. Scales of whole
// tensors are scalars, those of rows have one dimension, those of 128×128 blocks four
// (modelopt/torch/export/quant_utils.py).
var modelOpt = Convention{
	Name:        "modelopt",
	Doc:         "NVIDIA Model Optimizer's (quant_method modelopt, hf_quant_config.json)",
	quantMethod: "modelopt",
	schemes:     modelOptSchemes,
	also:        modelOptAlso,
	linearOnly:  true,
	wholeBlocks: true,
	hasIgnore:   true,
	cache:       ptr(perProjection),
	sidecar:     "hf_quant_config.json",
	configure:   configureModelOpt,
	recognize:   recognizeModelOpt,
	patterns:    wildcards,
	mixes:       true,
	mixed:       moMixed,
}

// moFP8 has the tensors of FP8 weights.
var moFP8 = scheme{scales: "_scale", input: ".input_scale"}

// moNVFP4 has the tensors of NVFP4 weights.
var moNVFP4 = scheme{format: quant.NVFP4, scales: "_scale", global: "_scale_2", input: ".input_scale"}

// modelOptSchemes are the values of quant_algo, as Model Optimizer writes them
// (get_quantization_format in modelopt/torch/export/quant_utils.py). fp8_pb_wo is in lower case,
// which TensorRT-LLM requires; vLLM ignores case.
var modelOptSchemes = []scheme{
	{name: "MXFP8", format: quant.MXFP8, scales: "_scale", activations: Dynamic},
	moNVFP4.as("W4A16_NVFP4", WeightOnly),
	moNVFP4.as("NVFP4", Static),
	moFP8.of(quant.FP8Tensor).as("FP8", Static),
	moFP8.of(quant.FP8Row).as("FP8_PER_CHANNEL_PER_TOKEN", Dynamic).shaped(line),
	moFP8.of(quant.FP8Block).unpadded().as("fp8_pb_wo", WeightOnly).shaped(grid4),
}

// modelOptAlso are further ones, which no client but TensorRT-LLM reads.
var modelOptAlso = []scheme{
	{name: "W4A8_MXFP4_FP8", format: quant.MXFP4, scales: "_scale", activations: Dynamic, inputs: quant.FP8Tensor},
	{name: "MXFP4", format: quant.MXFP4, scales: "_scale"},
	moFP8.of(quant.FP8Block).as("fp8_pb_real", WeightOnly),
}

// modelOptCoded are those that no block format has: NVFP4 in blocks of 32.
var modelOptCoded = map[string]coded{"W4A8_NVFP4_FP8": {name: "nvfp4-32", element: format.E2M1, bits: 4, block: 32, scale: format.E4M3,
	scales: "_scale", global: "_scale_2", input: ".input_scale"}}

// shaped returns the scheme with another shape of scales.
func (s scheme) shaped(b blockShape) scheme {
	s.blocks = b
	return s
}

// moVersion is the version of Model Optimizer whose layout is written.
const moVersion = "0.46.0"

type moProducer struct {
	Name    string `json:"name"`
	Version string `json:"version"`
}

type moArgs struct {
	Dynamic   bool   `json:"dynamic"`
	NumBits   int    `json:"num_bits"`
	Type      string `json:"type"`
	GroupSize int    `json:"group_size,omitempty"`
}

type moGroup struct {
	InputActivations *moArgs  `json:"input_activations,omitempty"`
	Weights          *moArgs  `json:"weights"`
	Targets          []string `json:"targets"`
}

// moConfig is quantization_config of config.json.
type moConfig struct {
	ConfigGroups  map[string]moGroup `json:"config_groups,omitempty"`
	Ignore        []string           `json:"ignore"`
	KVCacheScheme *moArgs            `json:"kv_cache_scheme,omitempty"`
	QuantAlgo     string             `json:"quant_algo"`
	Producer      moProducer         `json:"producer"`
	QuantMethod   string             `json:"quant_method"`
	Layers        moLayers           `json:"quantized_layers,omitempty"`
}

// moSidecar is hf_quant_config.json.
type moSidecar struct {
	Producer     moProducer     `json:"producer"`
	Quantization moQuantization `json:"quantization"`
}

type moQuantization struct {
	QuantAlgo        string   `json:"quant_algo"`
	KVCacheQuantAlgo *string  `json:"kv_cache_quant_algo"`
	GroupSize        int      `json:"group_size,omitempty"`
	ExcludeModules   []string `json:"exclude_modules"`
	Layers           moLayers `json:"quantized_layers,omitempty"`
}

var moMaker = moProducer{"modelopt", moVersion}

func configureModelOpt(s *scheme, o Settings) (config, sidecar any) {
	if len(o.Mixed) > 0 {
		return configureMixed(o)
	}
	main := moConfig{Ignore: o.Ignore, QuantAlgo: s.name, Producer: moMaker, QuantMethod: "modelopt"}
	if s.format.Global || s.format.PerTensor() { // the other algorithms have no groups
		args := &moArgs{NumBits: s.format.Element.Bits(), Type: "float", GroupSize: s.format.Block.Cols}
		group := moGroup{Weights: args, Targets: []string{LinearClass}}
		if s.activations == Static {
			group.InputActivations = args
		}
		main.ConfigGroups = map[string]moGroup{"group_0": group}
	}
	q := moQuantization{QuantAlgo: s.name, ExcludeModules: o.Ignore}
	if s.format.ByteScales() {
		q.GroupSize = s.format.Block.Cols
	}
	return withCache(main, q, o)
}

// withCache returns the configuration and the content of the sidecar, with that of the KV cache.
func withCache(main moConfig, q moQuantization, o Settings) (config, sidecar any) {
	if o.KVCache {
		main.KVCacheScheme = &moArgs{NumBits: format.E4M3.Bits(), Type: "float"}
		q.KVCacheQuantAlgo = ptr("FP8")
	}
	return main, moSidecar{moMaker, q}
}

// configureMixed is configureModelOpt for a checkpoint whose modules have several algorithms.
func configureMixed(o Settings) (config, sidecar any) {
	layers := moLayers{}
	for _, m := range o.Mixed {
		layer := moLayer{QuantAlgo: m.scheme.name}
		if m.Format.ByteScales() {
			layer.GroupSize = m.Format.Block.Cols
		}
		for _, name := range m.Names {
			layers[name] = layer
		}
	}
	main := moConfig{Ignore: o.Ignore, QuantAlgo: moMixed, Producer: moMaker, QuantMethod: "modelopt", Layers: layers}
	return withCache(main, moQuantization{QuantAlgo: moMixed, ExcludeModules: o.Ignore, Layers: layers}, o)
}

// moMixed is the algorithm of a checkpoint whose modules have several.
const moMixed = "MIXED_PRECISION"

// moLayers has the algorithm of each quantized module; all others are unquantized.
type moLayers map[string]moLayer

type moLayer struct {
	QuantAlgo string `json:"quant_algo"`
	GroupSize int    `json:"group_size,omitempty"`
}

// recognizeMixed returns the description of a checkpoint whose modules have several algorithms.
func recognizeMixed(layers moLayers, ignore []string) (description, error) {
	d := description{scheme: moMixed, ignore: ignore, noIgnore: true}
	for _, module := range slices.Sorted(maps.Keys(layers)) {
		algo := layers[module].QuantAlgo
		if c, ok := modelOptCoded[strings.ToUpper(algo)]; ok {
			d.coded = append(d.coded, c)
			continue
		}
		all := slices.Concat(modelOptSchemes, modelOptAlso)
		i := slices.IndexFunc(all, func(s scheme) bool { return strings.EqualFold(s.name, algo) })
		if i < 0 {
			d.fault("quant_algo %q of %s is not supported", algo, module)
			continue
		}
		d.add(all[i].format, all[i].activations == Static, all[i].name)
	}
	if len(d.groups)+len(d.coded) == 0 && len(d.faults) > 0 {
		return description{}, errors.New(d.faults[0])
	}
	if len(d.groups)+len(d.coded) == 0 {
		return description{}, errors.New("quant_algo is MIXED_PRECISION, but quantized_layers names no module")
	}
	return d, nil
}

// recognizeModelOpt parses either configuration.
func recognizeModelOpt(raw json.RawMessage) (description, error) {
	var config struct {
		QuantAlgo    string   `json:"quant_algo"`
		Ignore       []string `json:"ignore"`
		Exclude      []string `json:"exclude_modules"` // as older writers call it here too
		Quantization *struct {
			QuantAlgo      string   `json:"quant_algo"`
			GroupSize      int      `json:"group_size"`
			ExcludeModules []string `json:"exclude_modules"`
			Layers         moLayers `json:"quantized_layers"`
			KVCache        any      `json:"kv_cache_quant_algo"`
		} `json:"quantization"`
		Layers    moLayers `json:"quantized_layers"`
		KVCache   any      `json:"kv_cache_scheme"`
		CacheAlgo any      `json:"kv_cache_quant_algo"`
	}
	if err := json.Unmarshal(raw, &config); err != nil {
		return description{}, readable(err)
	}
	if q := config.Quantization; q != nil {
		config.QuantAlgo, config.Ignore, config.Layers, config.KVCache = q.QuantAlgo, q.ExcludeModules, q.Layers, q.KVCache
	}
	// _write_hf_export_config in modelopt/torch/export/unified_export_hf.py
	if config.QuantAlgo == "" && (config.KVCache != nil || config.CacheAlgo != nil) {
		return description{}, errCacheOnly
	}
	if config.QuantAlgo == "" {
		return description{}, fmt.Errorf("quant_algo is missing")
	}
	if strings.EqualFold(config.QuantAlgo, moMixed) {
		return recognizeMixed(config.Layers, append(config.Ignore, config.Exclude...))
	}
	if c, ok := modelOptCoded[strings.ToUpper(config.QuantAlgo)]; ok {
		return description{coded: []coded{c}, scheme: config.QuantAlgo, ignore: append(config.Ignore, config.Exclude...)}, nil
	}
	for _, s := range slices.Concat(modelOptSchemes, modelOptAlso) {
		if strings.EqualFold(s.name, config.QuantAlgo) {
			d := description{groups: []group{{s.format, s.activations == Static, s.name}}, scheme: config.QuantAlgo,
				ignore: append(config.Ignore, config.Exclude...)}
			if q := config.Quantization; q != nil && s.format.Global && q.GroupSize != 0 && q.GroupSize != s.format.Block.Cols {
				return description{}, fmt.Errorf("quant_algo %s with group_size %d is not supported, only %d", s.name, q.GroupSize, s.format.Block.Cols)
			}
			return d, nil
		}
	}
	return description{}, fmt.Errorf("quant_algo %q is not supported", config.QuantAlgo)
}
