package checkpoint

import (
	"encoding/json"
	"fmt"
	"slices"

	"github.com/microscale-go/microscale/quant"
)

// mxfp8 is the convention of quant_method mxfp8 in transformers: DeepSeek's names
// with E8M0 scales of 32 elements, as bytes (quantizers/quantizer_finegrained_fp8.py).
var mxfp8 = Convention{
	Name:        "mxfp8",
	Doc:         "transformers' MXFP8 (quant_method mxfp8, weight_scale_inv)",
	quantMethod: "mxfp8",
	schemes:     []scheme{{name: "MXFP8", format: quant.MXFP8, scales: "_scale_inv", activations: Dynamic}},
	linearOnly:  true,
	wholeBlocks: true,
	hasIgnore:   true,
	configure: func(s *scheme, o Settings) (config, sidecar any) {
		return mxfp8Config{IgnoredLayers: o.Ignore, QuantMethod: "mxfp8", WeightBlockSize: []int{s.format.Block.Rows, s.format.Block.Cols}}, nil
	},
	recognize: recognizeMXFP8,
	patterns:  anyRun,
}

type mxfp8Config struct {
	IgnoredLayers   []string `json:"ignored_layers"`
	QuantMethod     string   `json:"quant_method"`
	WeightBlockSize []int    `json:"weight_block_size"`
}

func recognizeMXFP8(raw json.RawMessage) (description, error) {
	var config deepSeekConfig // the same members
	if err := json.Unmarshal(raw, &config); err != nil {
		return description{}, readable(err)
	}
	f := quant.MXFP8
	if size := []int{f.Block.Rows, f.Block.Cols}; config.WeightBlockSize != nil && !slices.Equal(config.WeightBlockSize, size) {
		return description{}, fmt.Errorf("weight_block_size %v is not supported, only %v", config.WeightBlockSize, size)
	}
	d := description{groups: []group{{format: f}}, scheme: "MXFP8"}
	d.ignore, d.noIgnore = config.ignore()
	return d, config.checkFmt()
}
