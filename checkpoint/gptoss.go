package checkpoint

import (
	"encoding/json"

	"github.com/microscale-go/microscale/quant"
)

// gptOSS is the convention of OpenAI's gpt-oss in transformers: all experts of a layer in one
// tensor, and only experts.
//
//	X.experts.gate_up_proj_blocks  U8 [experts, 2·intermediate, hidden/32, 16]  rows of gate and up alternate
//	X.experts.gate_up_proj_scales  U8 [experts, 2·intermediate, hidden/32]
//	X.experts.down_proj_blocks     U8 [experts, hidden, intermediate/32, 16]
//
// The unquantized gate_up_proj is transposed, [experts, hidden, 2·intermediate] (see
// package family).
var gptOSS = Convention{
	Name:        "gpt-oss",
	Doc:         "OpenAI's gpt-oss in MXFP4 (quant_method mxfp4, _blocks and _scales)",
	quantMethod: "mxfp4",
	schemes:     []scheme{{name: "MXFP4", format: quant.MXFP4, codes: "_blocks", scales: "_scales", packed: 16, blocks: leading}},
	wholeBlocks: true,
	biased:      true,
	expertsOnly: true,
	configure: func(*scheme, Settings) (config, sidecar any) {
		return gptOSSConfig{gptOSSModules, "mxfp4"}, nil
	},
	recognize: func(raw json.RawMessage) (description, error) {
		var config gptOSSConfig
		if err := json.Unmarshal(raw, &config); err != nil {
			return description{}, readable(err)
		}
		return description{groups: []group{{format: quant.MXFP4}}, scheme: "MXFP4", ignore: config.ModulesToNotConvert}, nil
	},
}

type gptOSSConfig struct {
	ModulesToNotConvert []string `json:"modules_to_not_convert"`
	QuantMethod         string   `json:"quant_method"`
}

// gptOSSModules is the list of the published checkpoints.
var gptOSSModules = []string{"model.layers.*.self_attn", "model.layers.*.mlp.router", "model.embed_tokens", "lm_head"}
