package checkpoint

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/microscale-go/microscale/format"
	"github.com/microscale-go/microscale/quant"
	"github.com/microscale-go/microscale/safetensors"
)

// foreign are the conventions that are read, and never written: that of other tools, whose clients
// also read a convention of [Conventions], to which their files can be converted.
var foreign = []*Convention{&fbgemm, &autoRound, &torchAO, &comfyUI, &mistral, &fpQuant}

// readable are the conventions that Read recognizes.
func readableConventions() []*Convention { return slices.Concat(conventions, foreign) }

// fbgemm is the convention of Llama 3.1's FP8 checkpoints: one scale per row.
var fbgemm = Convention{
	Name:        "fbgemm",
	Doc:         "FBGEMM's FP8 rows (quant_method fbgemm_fp8)",
	quantMethod: "fbgemm_fp8",
	schemes:     []scheme{{name: "FP8", format: quant.FP8Row, scales: "_scale", activations: Dynamic}},
	linearOnly:  true,
	wholeBlocks: true,
	hasIgnore:   true,
	patterns:    anyRun,
	recognize: func(raw json.RawMessage) (description, error) {
		var config deepSeekConfig // of which it has the list
		if err := json.Unmarshal(raw, &config); err != nil {
			return description{}, readable(err)
		}
		d := description{groups: []group{{format: quant.FP8Row}}, scheme: "FP8"}
		d.ignore, d.noIgnore = config.ignore()
		return d, nil
	},
}

// autoRound is the convention of Intel's AutoRound for block-scaled formats: compressed-tensors' tensors, another
// configuration. A global scale of 0 belongs to a weight of zeros.
var autoRound = Convention{
	Name:        "auto-round",
	Doc:         "Intel AutoRound's (quant_method auto-round)",
	quantMethod: "auto-round",
	schemes: []scheme{
		ctMXFP8.as("mx_fp8", Dynamic), ctMXFP4.as("mx_fp4", Dynamic), ctNVFP4.as("nv_fp4", Dynamic),
		ctFP8.of(quant.FP8Row).as("fp8", Dynamic), ctFP8.of(quant.FP8Tensor).as("fp8", Dynamic), ctFP8.of(quant.FP8Block).as("fp8", Dynamic),
	},
	also:        []scheme{ctFP8.of(quant.FP8Block).inverted(), {format: quant.MXFP4, scales: "_scale"}},
	linearOnly:  true,
	wholeBlocks: true,
	recognize:   recognizeAutoRound,
}

// inverted returns the scheme with DeepSeek's name of scales.
func (s scheme) inverted() scheme {
	s.scales = "_scale_inv"
	return s
}

// autoRoundArgs are the members that describe all weights, or those of one entry of extra_config.
type autoRoundArgs struct {
	Bits      int             `json:"bits"`
	DataType  string          `json:"data_type"`
	GroupSize json.RawMessage `json:"group_size"` // a number, or the two of a block
}

// autoRoundTypes are the block formats of data_type, bits and group_size (auto_round/schemes.py). 0 is the
// whole tensor, −1 a row.
var autoRoundTypes = []struct {
	dataType string // or what it begins with
	group    string
	format   quant.Format
}{
	{"mx_fp", "32", quant.MXFP4},
	{"mx_fp", "32", quant.MXFP8},
	{"nv_fp", "16", quant.NVFP4},
	{"fp", "0", quant.FP8Tensor},
	{"fp", "-1", quant.FP8Row},
	{"fp", "[128,128]", quant.FP8Block},
}

// format returns the block format of the arguments. ok is false if it is not supported.
func (a autoRoundArgs) format() (f quant.Format, ok bool) {
	group := strings.Join(strings.Fields(string(a.GroupSize)), "")
	for _, row := range autoRoundTypes {
		if strings.HasPrefix(a.DataType, row.dataType) && !strings.Contains(a.DataType, "e5m2") && a.Bits == row.format.Element.Bits() &&
			group == row.group {
			return row.format, true
		}
	}
	return quant.Format{}, false
}

// coded returns the layout of NVFP4_E5M3, AutoRound's preset of FP4 with UE5M3 scales. ok is false if the arguments
// are others.
func (a autoRoundArgs) coded() (c coded, ok bool) {
	var group int
	if a.DataType != "nvfp4_v2" || a.Bits != format.E2M1.Bits() || json.Unmarshal(a.GroupSize, &group) != nil || group != 16 && group != 32 {
		return coded{}, false
	}
	c = codedFP4(fmt.Sprintf("fp4-ue5m3-%d", group), format.UE5M3, group)
	c.codes = "_packed"
	return c, true
}

func recognizeAutoRound(raw json.RawMessage) (description, error) {
	var config struct {
		autoRoundArgs
		Extra map[string]json.RawMessage `json:"extra_config"`
	}
	if err := json.Unmarshal(raw, &config); err != nil {
		return description{}, readable(err)
	}
	d := description{scheme: fmt.Sprintf("%s%d", config.DataType, config.Bits), noIgnore: true}
	entries := []autoRoundArgs{config.autoRoundArgs}
	for _, name := range slices.Sorted(maps.Keys(config.Extra)) {
		entry := config.autoRoundArgs
		if err := json.Unmarshal(config.Extra[name], &entry); err != nil {
			return description{}, fmt.Errorf("extra_config: %w", readable(err))
		}
		if entry.Bits < 16 {
			entries = append(entries, entry)
		}
	}
	for _, entry := range entries {
		f, ok := entry.format()
		if c, is := entry.coded(); is {
			d.coded = append(d.coded, c)
			continue
		}
		if !ok {
			return description{}, fmt.Errorf("it stores weights of data_type %s in %d bits and groups of %s, which is not supported",
				entry.DataType, entry.Bits, cmp.Or(string(entry.GroupSize), "unknown size"))
		}
		d.add(f, false, "")
	}
	return d, nil
}

// torchAO is the convention of torchao's tensors, each of which the metadata of its file describes.
//
//	X._weight_qdata             F8_E4M3, or U8 with two codes
//	X._weight_scale             F32, F8_E8M0 or F8_E4M3
//	X._weight_per_tensor_scale  F32
var torchAO = Convention{
	Name:        "torchao",
	Doc:         "torchao's tensors (quant_method torchao)",
	quantMethod: "torchao",
	schemes: []scheme{
		aoScheme(quant.FP8Row), aoScheme(quant.FP8Tensor), aoScheme(quant.MXFP8), aoScheme(quant.MXFP4), aoScheme(quant.NVFP4),
	},
	linearOnly:  true,
	wholeBlocks: true,
	metadata:    true,
	recognize: func(json.RawMessage) (description, error) {
		return description{noIgnore: true}, nil // the metadata has the formats
	},
}

func aoScheme(f quant.Format) scheme {
	s := scheme{name: f.Name, format: f, codes: "._weight_qdata", scales: "._weight_scale"}
	if f.PerTensor() {
		s.scalar = []int64{1, 1}
	}
	if f.Global {
		s.global, s.input, s.bare = "._weight_per_tensor_scale", "._weight_act_per_tensor_scale", "torchao" // it is optional
	}
	return s
}

// aoTensor is the metadata of a tensor of torchao.
type aoTensor struct {
	Type string `json:"_type"`
	Data struct {
		Swizzled bool `json:"is_swizzled_scales"`
	} `json:"_data"`
}

// findTorchAO adds the weights that the metadata of the files describes.
func (m *Model) findTorchAO(k *known) {
	for _, shard := range m.Source.Shards() {
		metadata := shard.File.Metadata()
		for _, key := range slices.Sorted(maps.Keys(metadata)) {
			module, ok := strings.CutSuffix(key, weightSuffix)
			var t aoTensor
			if !ok || json.Unmarshal([]byte(metadata[key]), &t) != nil || t.Type == "" {
				continue
			}
			codes, ok := m.Source.Lookup(module + "._weight_qdata")
			if !ok {
				continue
			}
			q := quantized{swizzled: t.Data.Swizzled}
			packed := codes.Dtype == safetensors.U8 || codes.Dtype == safetensors.F4
			switch {
			case t.Type == "Float8Tensor":
				q.format = quant.FP8Row
				if scale, ok := m.Source.Lookup(module + "._weight_scale"); ok && scale.Elements() == 1 {
					q.format = quant.FP8Tensor
				}
			case t.Type == "MXTensor" && packed:
				q.format = quant.MXFP4
			case t.Type == "MXTensor":
				q.format = quant.MXFP8
			case t.Type == "NVFP4Tensor":
				q.format = quant.NVFP4
			default:
				m.fault(key, "it is a %s of torchao, which is not supported", t.Type)
				continue
			}
			k.weights[key] = q
		}
	}
}

// comfyUI is the convention of FP8 and NVFP4 files of image models, which ComfyUI and its tools exchange: the metadata
// of the file, or a tensor X.comfy_quant, names the format of each module.
//
//	X.weight          U8 [out, in/2]: of two codes, the first is in the high half
//	X.weight_scale    F8_E4M3, in tiles of 128×4 as cuBLAS reads them
//	X.weight_scale_2  F32: the decode scale of the tensor
var comfyUI = Convention{
	Name: "comfyui",
	Doc:  "ComfyUI's quantized files (_quantization_metadata, comfy_quant or scaled_fp8)",
	schemes: []scheme{
		{name: "float8_e4m3fn", format: quant.FP8Tensor, scales: "_scale", input: ".input_scale"},
		{name: "nvfp4", format: quant.NVFP4, scales: "_scale", global: "_scale_2", input: ".input_scale", highFirst: true, swizzled: true},
		{name: "mxfp8", format: quant.MXFP8, scales: "_scale", swizzled: true},
	},
	also:       []scheme{{format: quant.FP8Tensor, scales: ".scale_weight", input: ".scale_input"}},
	linearOnly: true,
	metadata:   true,
}

// mistral is the convention of Mistral's own FP8 files (params.json).
var mistral = Convention{
	Name:       "mistral",
	Doc:        "Mistral's own FP8 files (qscale_weight)",
	schemes:    []scheme{{name: "fp8_e4m3", format: quant.FP8Tensor, scales: ".qscale_weight", input: ".qscale_act"}},
	linearOnly: true,
}

// comfyLayers is the metadata that describes the modules of a file.
const comfyLayers = "_quantization_metadata"

// findUnconfigured finds the convention of files that are recognized by their tensors and metadata, without a
// quantization_config.
func (m *Model) findUnconfigured(k *known) {
	for _, shard := range m.Source.Shards() {
		var layers struct {
			Layers map[string]struct {
				Format string `json:"format"`
			} `json:"layers"`
		}
		if text, ok := shard.File.Metadata()[comfyLayers]; ok && json.Unmarshal([]byte(text), &layers) == nil {
			for _, module := range slices.Sorted(maps.Keys(layers.Layers)) {
				m.addComfy(module, layers.Layers[module].Format, k)
			}
		}
	}
	for _, t := range m.Source.Tensors() {
		if module, ok := strings.CutSuffix(t.Name, ".comfy_quant"); ok {
			m.addComfy(module, m.comfyFormat(t.Name), k)
		} else if module, ok := strings.CutSuffix(t.Name, ".scale_weight"); ok {
			m.addComfy(module, comfyUI.schemes[0].name, k)
		} else if strings.HasSuffix(t.Name, mistral.schemes[0].scales) && m.Convention == nil {
			m.Convention, k.description = &mistral, description{groups: []group{{format: quant.FP8Tensor}}, noIgnore: true}
			m.Scheme = mistral.schemes[0].name
		}
	}
}

// comfyFormat returns the format in a tensor of JSON text.
func (m *Model) comfyFormat(name string) string {
	var layer struct {
		Format string `json:"format"`
	}
	text := make([]byte, 4096)
	t, _ := m.Source.Lookup(name)
	text = text[:min(int64(len(text)), t.Bytes())]
	if err := readAt(t, text, 0); err != nil || json.Unmarshal(text, &layer) != nil {
		return ""
	}
	return layer.Format
}

// addComfy adds a module of ComfyUI's convention.
func (m *Model) addComfy(module, format string, k *known) {
	i := slices.IndexFunc(comfyUI.schemes, func(s scheme) bool { return s.name == format })
	if i < 0 {
		m.fault(module+weightSuffix, "it is quantized for ComfyUI as %q, which is not supported", format)
		return
	}
	s := &comfyUI.schemes[i]
	k.weights[module+weightSuffix] = quantized{format: s.format, swizzled: s.swizzled}
	if m.Convention = &comfyUI; m.Scheme == "" {
		m.Scheme = s.name
	} else if m.Scheme != s.name {
		m.Scheme = ctMixed
	}
}
