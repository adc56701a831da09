package checkpoint

import (
	"github.com/microscale-go/microscale/format"
	"github.com/microscale-go/microscale/quant"
)

// quark is the convention of AMD's Quark, the only one whose clients run MXFP6. Its clients match exclude with exact names and "re:"
// patterns (is_equal_or_regex_match of vLLM 0.32 without use_fnmatch, quark/utils.py of SGLang 0.5.23). Quark 0.13 itself, by
// which transformers loads, matches it with fnmatch and has no "re:" (torch/export/main_export/quant_config_parser.py).
var quark = Convention{
	Name:        "quark",
	Doc:         "AMD Quark's (quant_method quark)",
	quantMethod: "quark",
	schemes:     quarkSchemes,
	also:        quarkAlso,
	linearOnly:  true,
	wholeBlocks: true,
	hasIgnore:   true,
	configure:   configureQuark,
	recognize:   recognizeQuark,
}

// quarkSchemes are Quark's names of dtypes of weights.
var quarkSchemes = []scheme{
	{name: "fp4", format: quant.MXFP4, scales: "_scale", input: ".input_scale", activations: Dynamic}, // with FP8 activations it may have one
	{name: "fp6_e3m2", format: quant.MXFP6E3M2, scales: "_scale", activations: Dynamic},
	{name: "fp6_e2m3", format: quant.MXFP6E2M3, scales: "_scale", activations: Dynamic},
}

// quarkAlso are further ones, which are only read.
var quarkAlso = []scheme{
	{name: "fp8_e4m3", format: quant.FP8Tensor, scales: "_scale", input: ".input_scale"},
	{name: "fp8_e4m3", format: quant.FP8Row, scales: "_scale", input: ".input_scale"},
	{name: "fp8_e4m3", format: quant.MXFP8, scales: "_scale"},
	{name: "nvfp4", format: quant.NVFP4, scales: "_scale", global: "_scale_2", input: ".input_scale_2"},
}

// quarkSpec describes the quantization of one operand, with its keys in the order of the library.
type quarkSpec struct {
	ChAxis               int     `json:"ch_axis"`
	Dtype                string  `json:"dtype"`
	GroupSize            int     `json:"group_size"`
	IsDynamic            bool    `json:"is_dynamic"`
	IsScaleQuant         bool    `json:"is_scale_quant"`
	MXElementDtype       *string `json:"mx_element_dtype"`
	ObserverCls          string  `json:"observer_cls"`
	QScheme              string  `json:"qscheme"`
	RoundMethod          string  `json:"round_method"`
	ScaleCalculationMode string  `json:"scale_calculation_mode"`
	ScaleFormat          string  `json:"scale_format"`
	ScaleType            string  `json:"scale_type"`
	Symmetric            *bool   `json:"symmetric"`
}

type quarkLayer struct {
	Bias          *quarkSpec `json:"bias"`
	InputTensors  *quarkSpec `json:"input_tensors"`
	OutputTensors *quarkSpec `json:"output_tensors"`
	TargetDevice  *string    `json:"target_device"`
	Weight        *quarkSpec `json:"weight"`
}

type quarkExport struct {
	KVCacheGroup      []string `json:"kv_cache_group"`
	MinKVScale        float64  `json:"min_kv_scale"`
	PackMethod        string   `json:"pack_method"`
	WeightFormat      string   `json:"weight_format"`
	WeightMergeGroups *string  `json:"weight_merge_groups"`
}

type quarkConfig struct {
	AlgoConfig           *string      `json:"algo_config"`
	Exclude              []string     `json:"exclude"`
	Export               *quarkExport `json:"export"` // vLLM rejects a configuration without it
	GlobalQuantConfig    quarkLayer   `json:"global_quant_config"`
	KVCachePostRope      bool         `json:"kv_cache_post_rope"`
	KVCacheQuantConfig   struct{}     `json:"kv_cache_quant_config"`
	LayerQuantConfig     struct{}     `json:"layer_quant_config"`
	LayerTypeQuantConfig struct{}     `json:"layer_type_quant_config"`
	QuantMethod          string       `json:"quant_method"`
	QuantMode            string       `json:"quant_mode"`
	SoftmaxQuantSpec     *string      `json:"softmax_quant_spec"`
	Version              string       `json:"version"`
}

// quarkVersion is the version of Quark whose layout is written.
const quarkVersion = "0.12"

func configureQuark(s *scheme, o Settings) (config, sidecar any) {
	weight := quarkSpec{ChAxis: -1, Dtype: s.name, GroupSize: s.format.Block.Cols, ObserverCls: "PerBlockMXObserver", QScheme: "per_group",
		RoundMethod: "half_even", ScaleCalculationMode: "even", ScaleFormat: format.E8M0.Name, ScaleType: "float"}
	input := weight
	input.IsDynamic = true
	return quarkConfig{
		Exclude:           o.Ignore,
		Export:            &quarkExport{KVCacheGroup: []string{}, PackMethod: "reorder", WeightFormat: "real_quantized"},
		GlobalQuantConfig: quarkLayer{InputTensors: &input, Weight: &weight},
		QuantMethod:       "quark",
		QuantMode:         "eager_mode",
		Version:           quarkVersion,
	}, nil
}
