package checkpoint

import (
	"encoding/json"
	"fmt"
	"slices"

	"github.com/microscale-go/microscale/quant"
)

// deepSeek is the convention of DeepSeek-V3's FP8 checkpoints: blocks of 128×128, and scales that
// multiply, despite their name (inference/fp8_cast_bf16.py of its repository). The list of
// unquantized modules is that of transformers and vLLM; DeepSeek's own files have none.
var deepSeek = Convention{
	Name:        "deepseek",
	Doc:         "DeepSeek-V3's FP8 blocks (quant_method fp8, weight_scale_inv)",
	quantMethod: "fp8",
	schemes:     []scheme{{name: "FP8", format: quant.FP8Block, scales: "_scale_inv", activations: Dynamic, partial: true}},
	also: []scheme{
		{format: quant.FP8Block, scales: ".scale", partial: true}, // DeepSeek-V4
		{format: quant.FP8Vec128, scales: "_scale_inv", partial: true},
		{format: quant.MXFP8x32, scales: "_scale_inv"},
		{format: quant.MXFP8, scales: "_scale_inv"},
		{format: quant.FP8Tensor, scales: "_scale_inv", input: ".activation_scale"},
		{format: quant.FP8Tensor, scales: "_scale", input: ".input_scale"},
		{format: quant.FP8Row, scales: "_scale_inv"},
		{format: quant.FP8Row, scales: "_scale"},
	},
	linearOnly:  true,
	wholeBlocks: true,
	hasIgnore:   true,
	configure: func(s *scheme, o Settings) (config, sidecar any) {
		c := deepSeekConfig{ActivationScheme: "dynamic", Fmt: "e4m3", ModulesToNotConvert: &o.Ignore, QuantMethod: "fp8",
			WeightBlockSize: []int{s.format.Block.Rows, s.format.Block.Cols}}
		if o.PowerOfTwo {
			c.ScaleFmt = "ue8m0"
		}
		return c, nil
	},
	recognize: recognizeDeepSeek,
	patterns:  anyRun,
}

type deepSeekConfig struct {
	ActivationScheme    string    `json:"activation_scheme"`
	Fmt                 string    `json:"fmt,omitempty"`
	ModulesToNotConvert *[]string `json:"modules_to_not_convert,omitempty"`
	IgnoredLayers       *[]string `json:"ignored_layers,omitempty"` // the same, as vLLM and quant_method mxfp8 call it
	QuantMethod         string    `json:"quant_method"`
	ScaleFmt            string    `json:"scale_fmt,omitempty"`
	WeightBlockSize     []int     `json:"weight_block_size"`
}

// ignore returns the list of unquantized modules. none is true if there is no list.
func (c deepSeekConfig) ignore() (modules []string, none bool) {
	for _, list := range []*[]string{c.ModulesToNotConvert, c.IgnoredLayers} {
		if list != nil {
			modules = append(modules, *list...)
		}
	}
	return modules, c.ModulesToNotConvert == nil && c.IgnoredLayers == nil
}

// checkFmt returns an error if the codes are declared to be of another format than E4M3.
func (c deepSeekConfig) checkFmt() error {
	if c.Fmt != "" && c.Fmt != "e4m3" {
		return fmt.Errorf("fmt is %q, which is not supported, only \"e4m3\"", c.Fmt)
	}
	return nil
}

func recognizeDeepSeek(raw json.RawMessage) (description, error) {
	var config deepSeekConfig
	if err := json.Unmarshal(raw, &config); err != nil {
		return description{}, readable(err)
	}
	d := description{scheme: "FP8"}
	static := config.ActivationScheme == "static"
	for _, f := range []quant.Format{quant.FP8Block, quant.FP8Vec128, quant.MXFP8x32, quant.MXFP8} {
		if slices.Equal(config.WeightBlockSize, []int{f.Block.Rows, f.Block.Cols}) {
			d.add(f, static, "")
		}
	}
	if config.WeightBlockSize == nil { // per tensor, or per row as Quark writes it
		d.add(quant.FP8Tensor, static, "")
		d.add(quant.FP8Row, static, "")
	}
	if len(d.groups) == 0 {
		return description{}, fmt.Errorf("weight_block_size %v is not supported, only [128, 128], [1, 128], [32, 32] and [1, 32]",
			config.WeightBlockSize)
	}
	d.ignore, d.noIgnore = config.ignore()
	return d, config.checkFmt()
}
