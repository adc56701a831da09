package verify_test

import (
	"encoding/json"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/microscale-go/microscale/checkpoint"
	"github.com/microscale-go/microscale/quant"
	"github.com/microscale-go/microscale/safetensors"
	"github.com/microscale-go/microscale/verify"
)

// groupOf returns the only group of quantization_config.
func groupOf(d *directory) map[string]any {
	return d.quantization()["config_groups"].(map[string]any)["group_0"].(map[string]any)
}

// weightsOf returns the arguments of weights in quantization_config.
func weightsOf(d *directory) map[string]any { return groupOf(d)["weights"].(map[string]any) }

// inputOf returns the arguments of activations in quantization_config.
func inputOf(d *directory) map[string]any { return groupOf(d)["input_activations"].(map[string]any) }

// static returns a damage that declares static activations but stores scales for some modules
// only.
func static(dynamic any, suffix string, modules ...string) func(*directory) {
	return func(d *directory) {
		groupOf(d)["input_activations"] = map[string]any{"num_bits": 8, "type": "float", "dynamic": dynamic}
		for _, m := range modules {
			d.set(m+suffix, safetensors.F32, []int64{1}, []byte{0, 0, 128, 63})
		}
	}
}

// remove returns a damage that removes a tensor.
func remove(name string) func(*directory) {
	return func(d *directory) { delete(d.tensors, name) }
}

// edit returns a damage that edits the entry of a tensor.
func edit(name string, change func(*entry)) func(*directory) {
	return func(d *directory) {
		e := d.tensors[name]
		e.data = slices.Clone(e.data)
		e.Shape = slices.Clone(e.Shape)
		change(&e)
		delete(d.tensors, name)
		d.tensors[e.Name] = e
	}
}

// ignore returns a damage that replaces the ignore list.
func ignore(modules ...any) func(*directory) {
	return func(d *directory) { d.quantization()["ignore"] = modules }
}

const ct, plain = "compressed-tensors", "plain"

// damages are structural faults, with the problems that verify must report.
var damages = []struct {
	name, format, convention string
	damage                   func(*directory)
	want                     string
}{
	{"scales removed", "mxfp8", ct, remove("l.0.a.weight_scale"),
		"l.0.a.weight: it holds F8_E4M3 codes, but its scales (l.0.a.weight_scale) are missing: its values are unknown"},
	{"scales removed", "mxfp4", ct, remove("l.0.a.weight_scale"), "l.0.a.weight_packed: it belongs to a quantized weight, but l.0.a is not"},
	{"scales removed", "fp8-row", plain, remove("l.0.a.weight_scale"), "l.0.a.weight: the metadata describes it as fp8-row, but its " +
		"scales are missing"},
	{"scales renamed", "mxfp4", ct, edit("l.0.a.weight_scale", func(e *entry) { e.Name = "l.0.a.weight_scales" }),
		"l.0.a.weight_packed: it belongs to"},
	{"codes removed", "mxfp4", ct, remove("l.0.a.weight_packed"), "l.0.a.weight: it is missing"},
	{"codes removed", "mxfp6-e2m3", plain, remove("l.0.a.weight"), "l.0.a.weight: the metadata describes it as mxfp6-e2m3, but it is not " +
		"in the file"},
	{"weight removed", "mxfp8", ct, func(d *directory) { remove("l.0.a.weight")(d); remove("l.0.a.weight_scale")(d) },
		"l.0.a.weight: it is missing"},
	{"norm removed", "mxfp8", ct, remove("norm.weight"), "norm.weight: it is missing"},
	{"global scale removed", "nvfp4", ct, remove("l.0.a.weight_global_scale"), "l.0.a.weight: its global scale l.0.a.weight_global_scale " +
		"is missing"},
	{"global scale removed", "nvfp4", plain, remove("l.0.a.weight_scale_2"), "l.0.a.weight: its global scale l.0.a.weight_scale_2 is missing"},
	{"global scale zero", "nvfp4", ct, edit("l.0.a.weight_global_scale", func(e *entry) { clear(e.data) }),
		"l.0.a.weight_global_scale: a global scale must be positive and finite, not 0"},
	{"global scale zero", "nvfp4", plain, edit("l.0.a.weight_scale_2", func(e *entry) { clear(e.data) }),
		"l.0.a.weight_scale_2: a global scale must be positive and finite, not 0"},
	{"global scale negative", "nvfp4", ct, edit("l.0.a.weight_global_scale", func(e *entry) { e.data[3] |= 0x80 }),
		"must be positive and finite, not -"},
	{"global scale NaN", "nvfp4", plain, edit("l.0.a.weight_scale_2", func(e *entry) { copy(e.data, "\x00\x00\xc0\x7f") }),
		"must be positive and finite, not NaN"},
	{"global scale infinite", "nvfp4", ct, edit("l.0.a.weight_global_scale", func(e *entry) { copy(e.data, "\x00\x00\x80\x7f") }),
		"must be positive and finite, not +Inf"},
	{"global scale of two values", "nvfp4", ct,
		edit("l.0.a.weight_global_scale", func(e *entry) { e.Shape[0] = 2; e.data = append(e.data, e.data...) }),
		"a global scale is one F32 value, not F32 [2]"},
	{"scales of fewer rows", "mxfp8", ct, edit("l.0.a.weight_scale", func(e *entry) { e.Shape[0]--; e.data = e.data[:len(e.data)-4] }),
		"l.0.a.weight_scale: it is U8 [39 4], and a mxfp8 weight of shape [40 128] needs U8 [40 4]"},
	{"scales transposed", "fp8-row", ct, edit("l.0.a.weight_scale", func(e *entry) { slices.Reverse(e.Shape) }),
		"l.0.a.weight_scale: it is F32 [1 40], and a fp8-row weight of shape [40 128] needs F32 [40 1]"},
	{"scales of another dtype", "nvfp4", ct, edit("l.0.a.weight_scale", func(e *entry) { e.Dtype = safetensors.U8 }),
		"l.0.a.weight_scale: it is U8 [40 8], and a nvfp4 weight of shape [40 128] needs F8_E4M3 [40 8]"},
	{"codes of another width", "mxfp8", ct, edit("l.0.a.weight", func(e *entry) { e.Shape = []int64{80, 64} }), "needs U8 [80 2]"},
	{"codes of another rank", "mxfp8", ct, edit("l.0.a.weight", func(e *entry) { e.Shape = []int64{40, 2, 64} }),
		"l.0.a.weight: codes of a mxfp8 weight have 2 dimensions, not 3"},
	{"codes of another dtype", "mxfp8", ct, edit("l.0.a.weight", func(e *entry) { e.Dtype = safetensors.F8E5M2 }),
		"l.0.a.weight: it is F8_E5M2 [40 128]"},
	{"ignore entry missing", "mxfp8", ct, ignore(), "lm_head.weight: it is not quantized and not on the ignore list"},
	{"ignore entry of a parent", "mxfp8", ct, ignore("lm_head", "l.0"), ""},
	{"ignore entry of a quantized module", "mxfp8", ct, ignore("lm_head", "l.0.b"),
		"l.0.b.weight: it is quantized, but the ignore list says that it is not"},
	{"ignore pattern of a quantized module", "nvfp4", ct, ignore("lm_head", "re:.*b$"),
		"l.0.b.weight: it is quantized, but the ignore list says that it is not"},
	{"ignore pattern that is none", "mxfp8", ct, ignore("re:.*(lm_head"), `"re:.*(lm_head" on the ignore list is not a supported regular ` +
		`expression (missing closing ): ^(?:.*(lm_head)): name the modules`},
	{"ignore pattern of Python", "nvfp4", ct, ignore("re:(?!l).*"), `"re:(?!l).*" on the ignore list is not a supported regular ` +
		`expression (invalid or unsupported Perl syntax: (?!): name the modules`},
	{"target that is no pattern", "nvfp4", ct, func(d *directory) { groupOf(d)["targets"] = []any{"Linear", "re:["} },
		`"re:[" on the list of targets is not a supported regular expression`},
	{"ignore entry missing", "mxint8", plain, ignore(), "lm_head.weight: it is not quantized and not on the ignore list"},
	{"configuration of another format", "mxfp8", ct, configured("fp8-row"), "l.0.a.weight_scale: it is U8 [40 4], and a fp8-row weight of " +
		"shape [40 128] needs F32 [40 1]"},
	{"configuration of another format", "mxfp4", ct, configured("mxfp8"), "quantization_config names the convention compressed-tensors, " +
		"but no weight is quantized: fetch the checkpoint again, or remove quantization_config if its weights are values"},
	{"configuration of another format", "nvfp4", ct, configured("mxfp4"), "l.0.a.weight_scale: it is F8_E4M3 [40 8], and a mxfp4 weight " +
		"of shape [40 128] needs U8 [40 4]"},
	{"configuration of another format with the same values", "fp8-block128", ct, configured("fp8-tensor"), ""}, // its one block is the tensor
	{"configuration gone", "mxfp8", ct, func(d *directory) { delete(d.config, "quantization_config") },
		"l.0.a.weight: it holds F8_E4M3 codes and has scales (l.0.a.weight_scale), but nothing says how it is quantized: config.json has no " +
			"quantization_config"},
	{"configuration gone", "mxfp4", ct, func(d *directory) { delete(d.config, "quantization_config") },
		"l.0.a.weight_packed: it belongs to a quantized weight, but l.0.a is not quantized in a supported way: config.json has no " +
			"quantization_config"},
	{"configuration gone", "mxfp8", "mlx", func(d *directory) { delete(d.config, "quantization_config"); delete(d.config, "quantization") },
		"l.0.a.scales: it belongs to a quantized weight, but l.0.a is not quantized in a supported way: config.json has no quantization_config"},
	{"codes of experts without scales", "mxfp8", ct, func(d *directory) {
		d.set("l.0.experts.down_proj_blocks", safetensors.U8, []int64{1, 8, 1, 16}, make([]byte, 128))
	}, "l.0.experts.down_proj_blocks: it belongs to a quantized weight, but l.0.experts.down_proj is not quantized in a supported way"},
	{"scales of experts without codes", "mxfp8", ct, func(d *directory) {
		d.set("l.0.experts.down_proj_scales", safetensors.U8, []int64{1, 8, 1}, make([]byte, 8))
	}, "l.0.experts.down_proj_scales: it belongs to a quantized weight"},
	{"config.json gone", "mxfp8", ct, func(d *directory) { d.config = nil },
		"l.0.a.weight: it holds F8_E4M3 codes and has scales (l.0.a.weight_scale), but nothing says how it is quantized: config.json with " +
			"its quantization_config is missing"},
	{"config.json gone", "nvfp4", ct, func(d *directory) { d.config = nil }, "l.0.a.weight_packed: it belongs to a quantized weight, but " +
		"l.0.a is not quantized in a supported way: config.json with its quantization_config is missing"},
	{"scales of another dtype in the configuration", "mxfp8", ct, func(d *directory) { weightsOf(d)["scale_dtype"] = nil },
		"group_0 stores weights of type float, 8 bits, strategy group, group size 32, no scale dtype, which is not a supported block format"},
	{"no dtype of scales in the configuration", "nvfp4", ct, func(d *directory) { delete(weightsOf(d), "scale_dtype") }, ""},
	{"another dtype of scales in the configuration", "nvfp4", ct, func(d *directory) { weightsOf(d)["scale_dtype"] = "torch.uint8" },
		"group size 16, scale dtype torch.uint8, which is not"},
	{"configuration of another method", "mxfp8", ct, func(d *directory) { d.quantization()["quant_method"] = "gptq" },
		`quantization_config names quant_method "gptq"`},
	{"configuration without groups", "mxfp8", ct, func(d *directory) { delete(d.quantization(), "config_groups") },
		"config_groups quantizes no weights"},
	{"configuration that is no object", "mxfp8", ct, func(d *directory) { d.config["quantization_config"] = "x" },
		"quantization_config is not a JSON object; fetch"},
	{"key of a group", "mxfp8", ct, func(d *directory) { groupOf(d)["color"] = 1 },
		`quantization_config: group_0 has the key "color", which clients reject`},
	{"key of the weights", "nvfp4", ct, func(d *directory) { weightsOf(d)["bits"] = 4 }, `group_0 has the key "bits", which clients reject`},
	{"key of the activations", "mxfp8", ct, func(d *directory) { inputOf(d)["bits"] = 8 }, `group_0 has the key "bits", which clients reject`},
	{"keys of an observer", "mxfp8", ct, func(d *directory) { weightsOf(d)["observer_kwargs"] = map[string]any{"averaging_constant": 0.01} },
		""},
	{"type of a key", "mxfp8", ct, func(d *directory) { weightsOf(d)["num_bits"] = "8" },
		"quantization_config: group_0: weights: num_bits is a JSON string"},
	{"format", "mxfp8", ct, func(d *directory) { d.quantization()["format"] = "float-quantized" },
		`quantization_config: format is "float-quantized", and clients read mxfp8 weights only as "mxfp8-quantized"`},
	{"format of the group", "nvfp4", ct, func(d *directory) { groupOf(d)["format"] = "mxfp4-pack-quantized" },
		`quantization_config: the format of group_0 is "mxfp4-pack-quantized", and clients read nvfp4 weights only as "nvfp4-pack-quantized"`},
	{"no formats", "fp8-row", ct, func(d *directory) { delete(d.quantization(), "format"); delete(groupOf(d), "format") }, ""},
	{"keys with defaults", "mxfp8", ct, func(d *directory) {
		for _, args := range []map[string]any{weightsOf(d), inputOf(d)} {
			for _, key := range []string{"actorder", "block_structure", "observer", "observer_kwargs", "strategy", "symmetric", "zp_dtype",
				"num_bits"} {
				delete(args, key)
			}
		}
		delete(weightsOf(d), "dynamic")
		delete(groupOf(d), "output_activations")
		delete(d.quantization(), "version")
	}, ""},
	{"strategy by default", "fp8-tensor", ct, func(d *directory) { delete(weightsOf(d), "strategy") }, ""},
	{"strategy by the size of groups", "fp8-row", ct, func(d *directory) { delete(weightsOf(d), "strategy"); weightsOf(d)["group_size"] = -1 },
		""},
	{"asymmetric weights", "mxfp4", ct, func(d *directory) { weightsOf(d)["symmetric"] = false },
		"group_0: weights are symmetric and not dynamic"},
	{"dynamic weights", "mxfp4", ct, func(d *directory) { weightsOf(d)["dynamic"] = true }, "group_0: weights are symmetric and not dynamic"},
	{"dtype of scales where there is none", "fp8-row", ct, func(d *directory) { weightsOf(d)["scale_dtype"] = "torch.uint8" },
		"strategy channel, scale dtype torch.uint8, which is not a supported block format"},
	{"no targets", "mxfp8", ct, func(d *directory) { delete(groupOf(d), "targets") },
		"l.0.a.weight: it is quantized, but no target of quantization_config selects it"},
	{"targets of another class", "mxfp8", ct, func(d *directory) { groupOf(d)["targets"] = []any{"Embedding"} },
		"l.0.a.weight: it is quantized, but no target of quantization_config selects it"},
	{"targets by name", "mxfp8", ct, func(d *directory) { groupOf(d)["targets"] = []any{"l.0.a", "l.0.b"} }, ""},
	{"targets without those that stay", "mxfp8", ct, func(d *directory) { ignore()(d); groupOf(d)["targets"] = []any{"re:l" + `\.`} }, ""},
	{"targets by pattern", "nvfp4", ct, func(d *directory) { groupOf(d)["targets"] = []any{`re:l\.\d`} }, ""},
	{"targets of some", "nvfp4", ct, func(d *directory) { groupOf(d)["targets"] = []any{"re:.*a$"} },
		"l.0.b.weight: it is quantized, but no target of quantization_config selects it"},
	{"no activations", "mxfp8", ct, func(d *directory) { groupOf(d)["input_activations"] = nil }, ""},
	{"no activations", "fp8-row", ct, func(d *directory) {
		groupOf(d)["input_activations"], groupOf(d)["format"], d.quantization()["format"] = nil, "naive-quantized", "naive-quantized"
	}, ""},
	{"activations as the weights", "mxfp4", ct, func(d *directory) {
		groupOf(d)["input_activations"] = maps.Clone(weightsOf(d))
		inputOf(d)["dynamic"] = true
	}, ""},
	{"activations as the weights", "nvfp4", ct, func(d *directory) {
		groupOf(d)["input_activations"] = maps.Clone(weightsOf(d))
		inputOf(d)["dynamic"] = true
	}, "dynamic true, which no client supports with nvfp4 weights"},
	{"activations of other groups", "mxfp8", ct, func(d *directory) { inputOf(d)["group_size"] = 64 },
		"group_0 quantizes activations as type float, 8 bits, strategy group, group size 64, scale dtype torch.uint8, dynamic true, which no " +
			"client supports with mxfp8 weights"},
	{"activations of integers", "fp8-row", ct, func(d *directory) { inputOf(d)["type"] = "int" }, "group_0 quantizes activations as type int"},
	{"activations in another way", "fp8-row", ct, func(d *directory) { inputOf(d)["dynamic"] = "sometimes" },
		"dynamic sometimes, which no client supports"},
	{"static activations", "fp8-tensor", ct, static(false, ".input_scale", "l.0.a", "l.0.b"), ""},
	{"static activations", "nvfp4", ct, static("local", ".input_global_scale", "l.0.a", "l.0.b"), ""},
	{"static activations of some", "fp8-tensor", ct, static(false, ".input_scale", "l.0.a"),
		"l.0.b.weight: quantization_config says that the scale of its activations is stored, but there is no l.0.b.input_scale"},
	{"static activations of none", "nvfp4", ct, static("local", ""), "l.0.a.weight: quantization_config says that the scale of its " +
		"activations is stored, but there is no l.0.a.input_global_scale"},
	{"metadata gone", "mxfp8-32x32", plain, func(d *directory) { d.metadata = nil },
		"l.0.a.weight: it holds F8_E4M3 codes and has scales (l.0.a.weight_scale), but nothing says how it is quantized: the metadata of its " +
			"file does not describe it"},
	{"scales of activations", "fp8-tensor", ct,
		func(d *directory) { d.set("l.0.a.input_scale", safetensors.BF16, []int64{1}, make([]byte, 2)) }, ""},
	{"scales of activations", "nvfp4", ct, func(d *directory) {
		d.set("l.0.b.input_global_scale", safetensors.F32, []int64{1}, make([]byte, 4))
	}, ""},
	{"scales of activations of nothing quantized", "fp8-row", ct,
		func(d *directory) { d.set("lm_head.input_scale", safetensors.F32, []int64{1}, make([]byte, 4)) },
		"lm_head.input_scale: the source has no such tensor"},
	{"metadata of another shape", "mxfp6-e3m2", plain, described(`{"format":"mxfp6-e3m2","shape":[40,160],"dtype":"BF16"}`),
		"l.0.a.weight: it is U8 [40 96], and a mxfp6-e3m2 weight of shape [40 160] needs U8 [40 120]"},
	{"metadata of a wild shape", "mxfp6-e3m2", plain,
		described(`{"format":"mxfp6-e3m2","shape":[9223372036854775807,9223372036854775807],"dtype":"BF16"}`),
		"no tensor has the shape [9223372036854775807 9223372036854775807]"},
	{"metadata of a shape that wraps around", "mxfp6-e3m2", plain,
		described(`{"format":"mxfp6-e3m2","shape":[2305843009213693957,8,128],"dtype":"BF16"}`),
		"no tensor has the shape [2305843009213693957 8 128]"},
	{"metadata of a negative shape", "mxfp6-e3m2", plain, described(`{"format":"mxfp6-e3m2","shape":[-40,128],"dtype":"BF16"}`),
		"no tensor has the shape [-40 128]"},
	{"metadata of two negative dimensions", "mxfp6-e3m2", plain, described(`{"format":"mxfp6-e3m2","shape":[-2,-20,128],"dtype":"BF16"}`),
		"no tensor has the shape [-2 -20 128]"},
	{"metadata of an unknown format", "mxfp6-e3m2", plain, described(`{"format":"mxfp7","shape":[40,128],"dtype":"BF16"}`),
		`unknown block format "mxfp7"`},
	{"metadata that is no JSON", "mxfp6-e3m2", plain, described(`mxfp6`), "is not valid in convention plain"},
	{"tensor added", "mxfp8", ct, func(d *directory) { d.set("l.0.c.bias", safetensors.F32, []int64{1}, make([]byte, 4)) },
		"l.0.c.bias: the source has no such tensor"},
	{"scales added", "mxfp8", ct, func(d *directory) { d.set("lm_head.weight_scale", safetensors.U8, []int64{8, 4}, make([]byte, 32)) },
		"lm_head.weight: it holds BF16 values and has scales (lm_head.weight_scale): simulated quantization"},
	{"shape of a copy", "mxfp8", ct, edit("norm.weight", func(e *entry) { e.Shape = []int64{2, 64} }),
		"norm.weight: its shape is [2 64], the source's [128]"},
	{"shape of a quantized weight", "fp8-tensor", ct, edit("l.0.a.weight", func(e *entry) { e.Shape = []int64{80, 64} }),
		"l.0.a.weight: its shape is [80 64], the source's [40 128]"},
	{"integers changed", "mxfp8", ct, edit("ids", func(e *entry) { e.data[9] = 1 }), "ids: its i64 elements differ from the source"},
	{"integers of another dtype", "mxfp8", ct, edit("ids", func(e *entry) { e.Dtype = safetensors.F64 }),
		"ids: its elements are f64, those of the source i64"},
	{"values as integers", "mxfp8", ct, edit("norm.weight", func(e *entry) { e.Dtype = safetensors.I16 }),
		"norm.weight: its elements are i16, those of the source bf16"},
	{"scale NaN", "mxfp8", ct, edit("l.0.b.weight_scale", func(e *entry) { e.data[5] = 0xff }),
		"l.0.b.weight: 32 of its values are NaN or Inf but finite in the source"},
	{"scale NaN", "nvfp4", plain, edit("l.0.b.weight_scale", func(e *entry) { e.data[5] = 0x7f }),
		"l.0.b.weight: 16 of its values are NaN or Inf"},
	{"scale NaN", "fp8-row", ct, edit("l.0.b.weight_scale", func(e *entry) { copy(e.data[8:], "\x00\x00\xc0\x7f") }),
		"l.0.b.weight: 128 of its values are NaN or Inf"},
	{"code NaN", "mxfp8", ct, edit("l.0.b.weight", func(e *entry) { e.data[7] = 0x7f }), "l.0.b.weight: 1 of its values are NaN or Inf"},
	{"copy NaN", "mxfp8", ct, edit("lm_head.weight", func(e *entry) { copy(e.data[4:], "\xc0\x7f\x80\xff") }),
		"lm_head.weight: 2 of its values are NaN or Inf"},
	{"copy changed", "mxfp8", ct, edit("lm_head.weight", func(e *entry) { e.data[0] ^= 1 }),
		"lm_head.weight: 1 of its bf16 elements differ from the source"},
	{"codes changed", "mxfp8", ct, edit("l.0.b.weight", func(e *entry) { clear(e.data) }),
		"l.0.b.weight: 2048 of its elements are further from the source than any rounding to mxfp8"},
	{"copy of zeros", "mxfp8", ct, edit("norm.weight", func(e *entry) { clear(e.data) }),
		"norm.weight: 128 of its bf16 elements differ from the source"},
	{"copy with another sign of zero", "mxfp8", ct, edit("lm_head.weight", func(e *entry) { e.data[1] ^= 0x80 }),
		"lm_head.weight: 1 of its bf16 elements differ"},
}

// configured returns a damage that replaces quantization_config by that of another format.
func configured(name string) func(*directory) {
	return func(d *directory) {
		f, err := quant.Lookup(name)
		if err != nil {
			panic(err)
		}
		c, err := checkpoint.LookupConvention(ct)
		if err != nil {
			panic(err)
		}
		text, err := json.Marshal(c.Configuration(f, checkpoint.Settings{Ignore: []string{"lm_head"}}))
		if err != nil {
			panic(err)
		}
		var value map[string]any
		if err := json.Unmarshal(text, &value); err != nil {
			panic(err)
		}
		d.config["quantization_config"] = value
	}
}

// described returns a damage of the metadata of a weight in a plain file.
func described(text string) func(*directory) {
	return func(d *directory) {
		d.metadata = maps.Clone(d.metadata)
		d.metadata["microscale.l.0.a.weight"] = text
	}
}

// TestDamage damages a sound checkpoint in every way that verify checks, and in some that it
// ignores, with an empty want.
func TestDamage(t *testing.T) {
	src := open(t, source(t))
	good := map[[2]string]string{}
	for _, tc := range damages {
		key := [2]string{tc.format, tc.convention}
		if good[key] == "" {
			good[key] = quantized(t, src, tc.format, tc.convention)
		}
		t.Run(tc.name+"/format="+tc.format+"/convention="+tc.convention, func(t *testing.T) {
			d := readDirectory(t, good[key])
			dir := t.TempDir()
			d.write(t, dir)
			if r := compare(t, src, open(t, dir), verify.Options{}); !r.OK() {
				t.Fatalf("before the damage there are problems: %v", r.Problems)
			}
			tc.damage(d)
			d.write(t, dir)
			r := compare(t, src, open(t, dir), verify.Options{})
			if tc.want == "" {
				if !r.OK() {
					t.Errorf("problems: %v", r.Problems)
				}
				return
			}
			found := false
			for _, p := range r.Problems {
				found = found || strings.Contains(p.String(), tc.want)
				if strings.Contains(p.String(), "\n") {
					t.Errorf("not one line: %q", p)
				}
			}
			if r.OK() || !found {
				t.Errorf("problems are\n%v\nwant %q", r.Problems, tc.want)
			}
		})
	}
}

// TestTwice: the problems of a damaged checkpoint have the same words and order in every run,
// without duplicates.
func TestTwice(t *testing.T) {
	src := open(t, source(t))
	d := readDirectory(t, quantized(t, src, "nvfp4", ct))
	for _, name := range []string{"l.0.a.weight_scale", "l.0.b.weight_global_scale", "norm.weight"} {
		delete(d.tensors, name)
	}
	ignore()(d)
	dir := t.TempDir()
	d.write(t, dir)
	first := compare(t, src, open(t, dir), verify.Options{})
	for range 5 {
		if again := compare(t, src, open(t, dir), verify.Options{}); !reflect.DeepEqual(again.Problems, first.Problems) {
			t.Fatalf("%v, then %v", first.Problems, again.Problems)
		}
	}
	seen := map[string]bool{}
	for _, p := range first.Problems {
		if seen[p.String()] {
			t.Errorf("twice: %s", p)
		}
		seen[p.String()] = true
	}
}
