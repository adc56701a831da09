package checkpoint

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	"github.com/microscale-go/microscale/quant"
	"github.com/microscale-go/microscale/safetensors"
)

// mlx is the convention of Apple's MLX and mlx-lm: codes in words of 32 bits, the first element
// in the lowest bits, so that the bytes equal those of other conventions.
//
//	X.weight        U32 [out, in·bits/32]
//	X.scales        U8: E8M0, or the bits of E4M3
//	X.global_scale  F32 [1], of weights converted from a convention with a global scale
//
// MLX's modules (mlx.nn.QuantizedLinear) have no global scale, so mlx-lm rejects a file with one,
// and quantize writes none. MLX's operations take one as an argument, the amax of the tensor,
// which their kernels divide by 448·6 (mlx pull request 3022; fp_quantized.h and fp_quantize.cuh
// at 846d176). This number is written and read here. Ollama writes a tensor of the same name; of
// it is only known that it inverts compressed-tensors' number, which may be the scale itself.
var mlx = Convention{
	Name:        "mlx",
	Doc:         "Apple's MLX and mlx-lm (quantization in config.json)",
	marks:       []string{"group_size", "bits"},
	schemes:     mlxSchemes,
	also:        mlxStacked(),
	joined:      true,
	linearOnly:  true,
	wholeBlocks: true,
	hasIgnore:   true,
	fileFormat:  "mlx",
	keys:        []string{"quantization", configurationKey},
	configure:   func(s *scheme, o Settings) (config, sidecar any) { return mlxConfig{s, o.Ignore}, nil },
	recognize:   recognizeMLX,
}

// profileMLX is the profile of MLX's own quantizer, in which mlx_lm.convert ends.
const profileMLX = "mlx"

// mlxSchemes are the values of mode.
var mlxSchemes = []scheme{
	{name: "mxfp4", format: quant.MXFP4, scales: ".scales", words: safetensors.U32},
	{name: "mxfp8", format: quant.MXFP8, scales: ".scales", words: safetensors.U32},
	{name: "nvfp4", format: quant.NVFP4, scales: ".scales", words: safetensors.U32, scaleType: safetensors.U8,
		global: ".global_scale", direction: amax, bare: profileMLX, scalar: []int64{1}},
}

// mlxStacked returns the schemes for all experts of a layer, X.switch_mlp.gate_proj.weight of three
// dimensions.
func mlxStacked() (schemes []scheme) {
	for _, s := range mlxSchemes {
		s.blocks = leading
		schemes = append(schemes, s)
	}
	return schemes
}

// mlxMode describes all modules, or one.
type mlxMode struct {
	GroupSize int    `json:"group_size"`
	Bits      int    `json:"bits"`
	Mode      string `json:"mode"`
}

// mlxConfig has the members of mlxMode and one for every unquantized module.
type mlxConfig struct {
	scheme *scheme
	ignore []string
}

// MarshalJSON returns mlxMode with members for the unquantized modules.
func (c mlxConfig) MarshalJSON() ([]byte, error) {
	text, err := json.Marshal(mlxMode{c.scheme.format.Block.Cols, c.scheme.format.Element.Bits(), c.scheme.name})
	if err != nil {
		return nil, err
	}
	var out bytes.Buffer
	out.Write(bytes.TrimSuffix(text, []byte("}")))
	for _, module := range c.ignore {
		key, err := json.Marshal(module)
		if err != nil {
			return nil, err
		}
		fmt.Fprintf(&out, ",%s:false", key)
	}
	out.WriteByte('}')
	return out.Bytes(), nil
}

// mlxAffine is MLX's mode of integers with scales and biases, that of a configuration without a mode.
//
//	X.weight  U32 [out, in·bits/32]
//	X.scales  BF16, F16 or F32 [out, in/group]
//	X.biases  the same
const mlxAffine = "affine"

// addMLX adds the layout of a mode, which is that of a module or, with the name "", of all others.
func (d *description) addMLX(mode mlxMode, module string) error {
	if cmp.Or(mode.Mode, mlxAffine) == mlxAffine && 2 <= mode.Bits && mode.Bits <= 8 && mode.GroupSize > 0 && mode.GroupSize*mode.Bits%8 == 0 {
		c := coded{name: fmt.Sprintf("%s%d", mlxAffine, mode.Bits), bits: mode.Bits, block: mode.GroupSize, scales: ".scales", biases: ".biases"}
		if d.scheme = cmp.Or(d.scheme, mlxAffine); module != "" {
			d.modules[module] = c
		} else {
			d.coded = append(d.coded, c)
		}
		return nil
	}
	for _, s := range mlxSchemes {
		if s.name == mode.Mode && s.format.Block.Cols == mode.GroupSize && s.format.Element.Bits() == mode.Bits {
			if d.add(s.format, false, s.name); d.scheme == "" {
				d.scheme = s.name
			}
			return nil
		}
	}
	return fmt.Errorf("mode %q of %d bits in groups of %d is not supported", cmp.Or(mode.Mode, mlxAffine), mode.Bits, mode.GroupSize)
}

func recognizeMLX(raw json.RawMessage) (description, error) {
	var mode mlxMode
	var members map[string]json.RawMessage
	if err := json.Unmarshal(raw, &mode); err != nil {
		return description{}, readable(err)
	}
	if err := json.Unmarshal(raw, &members); err != nil {
		return description{}, readable(err)
	}
	d := description{noIgnore: true, modules: map[string]coded{}} // a module without scales is not quantized, named or not
	if err := d.addMLX(mode, ""); err != nil {
		return description{}, err
	}
	for _, key := range slices.Sorted(maps.Keys(members)) {
		switch value := members[key]; {
		case string(value) == "false":
			d.ignore = append(d.ignore, key)
		case value[0] == '{':
			var other mlxMode
			if err := json.Unmarshal(value, &other); err != nil {
				return description{}, fmt.Errorf("%s: %w", key, readable(err))
			}
			if err := d.addMLX(other, key); err != nil {
				return description{}, fmt.Errorf("%s: %w", key, err)
			}
		}
	}
	return d, nil
}
