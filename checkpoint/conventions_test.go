package checkpoint

import (
	"encoding/json"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/microscale-go/microscale/quant"
)

// TestStored checks the tensors of every scheme except those of compressed-tensors and plain
// (which have separate tests), for a weight of 256×384 or of two experts.
func TestStored(t *testing.T) {
	want := map[string]string{
		"modelopt MXFP8":       "x.weight F8_E4M3 [256 384], x.weight_scale U8 [256 12]",
		"modelopt W4A16_NVFP4": "x.weight U8 [256 192], x.weight_scale F8_E4M3 [256 24], x.weight_scale_2 F32 []",
		"modelopt NVFP4": "x.weight U8 [256 192], x.weight_scale F8_E4M3 [256 24], x.weight_scale_2 F32 [], " +
			"x.input_scale F32 []",
		"modelopt FP8":                       "x.weight F8_E4M3 [256 384], x.weight_scale F32 [], x.input_scale F32 []",
		"modelopt FP8_PER_CHANNEL_PER_TOKEN": "x.weight F8_E4M3 [256 384], x.weight_scale F32 [256]",
		"modelopt fp8_pb_wo":                 "x.weight F8_E4M3 [256 384], x.weight_scale F32 [2 1 3 1]",
		"deepseek FP8":                       "x.weight F8_E4M3 [256 384], x.weight_scale_inv F32 [2 3]",
		"mxfp8 MXFP8":                        "x.weight F8_E4M3 [256 384], x.weight_scale_inv U8 [256 12]",
		"gpt-oss MXFP4":                      "x.experts.down_proj_blocks U8 [2 256 12 16], x.experts.down_proj_scales U8 [2 256 12]",
		"quark fp4":                          "x.weight U8 [256 192], x.weight_scale U8 [256 12]",
		"quark fp6_e3m2":                     "x.weight U8 [256 288], x.weight_scale U8 [256 12]",
		"quark fp6_e2m3":                     "x.weight U8 [256 288], x.weight_scale U8 [256 12]",
		"mlx mxfp4":                          "x.weight U32 [256 48], x.scales U8 [256 12]",
		"mlx mxfp8":                          "x.weight U32 [256 96], x.scales U8 [256 12]",
		"mlx nvfp4":                          "x.weight U32 [256 48], x.scales U8 [256 24]",
		"gguf MXFP4":                         "x.weight U8 [256 204]",
		"gguf NVFP4":                         "x.weight U8 [256 216], x.scale F32 [1]",
		"gguf Q8_0":                          "x.weight U8 [256 408]",
	}
	for _, c := range conventions {
		if c == &compressedTensors || c == &plain {
			continue
		}
		for _, s := range c.schemes {
			only, err := c.With(s.format, s.name)
			if err != nil {
				t.Fatal(err)
			}
			weight, shape := "x.weight", []int64{256, 384}
			if c == &gptOSS {
				weight, shape = "x.experts.down_proj", []int64{2, 256, 384}
			}
			if why := only.Rejects(s.format, weight, shape); why != "" {
				t.Errorf("%s %s rejects %v: %s", c, s.name, shape, why)
			}
			stored := only.Stored(s.format, weight, shape)
			if s.activations == Static {
				stored = append(stored, only.StoredInput(s.format, weight, 1))
			}
			name := c.Name + " " + s.name
			if got := specsText(stored); got != want[name] {
				t.Errorf("%s: %s, want %s", name, got, want[name])
			}
			delete(want, name)
			if s.interleaved != nil {
				continue // llamacpp reads them
			}
			back, ok := only.schemes[0].weightShape(stored[0].Shape, stored[0].Dtype)
			if !ok || !slices.Equal(back, shape) {
				t.Errorf("%s: codes of %v are of a weight of %v, %v", name, stored[0].Shape, back, ok)
			}
		}
	}
	for name := range want {
		t.Errorf("%s is no scheme", name)
	}
}

// TestConfigurations checks quantization_config against checkpoints of each tool.
func TestConfigurations(t *testing.T) {
	const nvfp4Args = `{"dynamic": false, "num_bits": 4, "type": "float", "group_size": 16}`
	const producer = `"producer": {"name": "modelopt", "version": "0.46.0"}`
	const quarkArgs = `"ch_axis": -1, "dtype": "fp6_e2m3", "group_size": 32, "is_scale_quant": false, "mx_element_dtype": null,
		"observer_cls": "PerBlockMXObserver", "qscheme": "per_group", "round_method": "half_even", "scale_calculation_mode": "even",
		"scale_format": "e8m0", "scale_type": "float", "symmetric": null`
	for _, tc := range []struct {
		convention, scheme string
		format             quant.Format
		kv                 bool
		want               string
	}{
		{"modelopt", "NVFP4", quant.NVFP4, true, `{"config_groups": {"group_0": {"input_activations": ` + nvfp4Args + `, "weights": ` +
			nvfp4Args + `, "targets": ["Linear"]}},
			"ignore": ["lm_head"], "kv_cache_scheme": {"dynamic": false, "num_bits": 8, "type": "float"}, "quant_algo": "NVFP4", ` + producer +
			`, "quant_method": "modelopt"}`},
		{"modelopt", "W4A16_NVFP4", quant.NVFP4, false, `{"config_groups": {"group_0": {"weights": ` + nvfp4Args + `, "targets": ["Linear"]}},
			"ignore": ["lm_head"], "quant_algo": "W4A16_NVFP4", ` + producer + `, "quant_method": "modelopt"}`},
		{"modelopt", "FP8", quant.FP8Tensor, false,
			`{"config_groups": {"group_0": {"input_activations": {"dynamic": false, "num_bits": 8, "type": "float"},
			"weights": {"dynamic": false, "num_bits": 8, "type": "float"}, "targets": ["Linear"]}}, "ignore": ["lm_head"], "quant_algo": "FP8", ` +
				producer + `, "quant_method": "modelopt"}`},
		{"modelopt", "MXFP8", quant.MXFP8, false, `{"ignore": ["lm_head"], "quant_algo": "MXFP8", ` + producer + `, "quant_method": "modelopt"}`},
		{"modelopt", "fp8_pb_wo", quant.FP8Block, false, `{"ignore": ["lm_head"], "quant_algo": "fp8_pb_wo", ` + producer +
			`, "quant_method": "modelopt"}`},
		{"deepseek", "FP8", quant.FP8Block, false, `{"activation_scheme": "dynamic", "fmt": "e4m3", "quant_method": "fp8", ` +
			`"weight_block_size": [128, 128], "modules_to_not_convert": ["lm_head"]}`},
		{"mxfp8", "MXFP8", quant.MXFP8, false, `{"quant_method": "mxfp8", "weight_block_size": [1, 32], "ignored_layers": ["lm_head"]}`},
		{"gpt-oss", "MXFP4", quant.MXFP4, false, `{"modules_to_not_convert": ["model.layers.*.self_attn", "model.layers.*.mlp.router", ` +
			`"model.embed_tokens", "lm_head"], "quant_method": "mxfp4"}`},
		{"mlx", "nvfp4", quant.NVFP4, false, `{"group_size": 16, "bits": 4, "mode": "nvfp4", "lm_head": false}`},
		{"mlx", "mxfp8", quant.MXFP8, false, `{"group_size": 32, "bits": 8, "mode": "mxfp8", "lm_head": false}`},
		{"quark", "fp6_e2m3", quant.MXFP6E2M3, false, `{"algo_config": null, "exclude": ["lm_head"],
			"export": {"kv_cache_group": [], "min_kv_scale": 0.0, "pack_method": "reorder", "weight_format": "real_quantized",
			"weight_merge_groups": null},
			"global_quant_config": {"bias": null, "input_tensors": {"is_dynamic": true, ` + quarkArgs +
			`}, "output_tensors": null, "target_device": null,
			"weight": {"is_dynamic": false, ` + quarkArgs + `}}, "kv_cache_post_rope": false, "kv_cache_quant_config": {}, "layer_quant_config": {},
			"layer_type_quant_config": {}, "quant_method": "quark", "quant_mode": "eager_mode", "softmax_quant_spec": null, "version": "0.12"}`},
	} {
		t.Run(tc.convention+" "+tc.scheme, func(t *testing.T) {
			c, err := LookupConvention(tc.convention)
			if err != nil {
				t.Fatal(err)
			}
			if c, err = c.With(tc.format, tc.scheme); err != nil {
				t.Fatal(err)
			}
			sameJSON(t, c.Configuration(tc.format, Settings{Ignore: []string{"lm_head"}, KVCache: tc.kv}), tc.want)
		})
	}
}

// TestModelOptSidecar checks hf_quant_config.json.
func TestModelOptSidecar(t *testing.T) {
	c, err := modelOpt.With(quant.NVFP4, "NVFP4")
	if err != nil {
		t.Fatal(err)
	}
	files := c.Files(quant.NVFP4, Settings{Ignore: []string{"lm_head"}, KVCache: true})
	if len(files) != 1 || files[0].Name != "hf_quant_config.json" || !IsSidecar(files[0].Name) {
		t.Fatalf("the files are %v", files)
	}
	sameJSON(t, json.RawMessage(files[0].Data),
		`{"producer": {"name": "modelopt", "version": "0.46.0"}, "quantization": {"quant_algo": "NVFP4",
		"kv_cache_quant_algo": "FP8", "group_size": 16, "exclude_modules": ["lm_head"]}}`)
	d, err := modelOpt.recognize(files[0].Data)
	if err != nil || d.scheme != "NVFP4" || !d.static(quant.NVFP4) || !slices.Equal(d.ignore, []string{"lm_head"}) {
		t.Errorf("it is recognized as %+v, %v", d, err)
	}
}

// TestRecognized: every convention recognizes its own configuration and no other.
func TestRecognized(t *testing.T) {
	for _, c := range conventions {
		if c == &ggufConvention {
			continue // it has no config.json
		}
		for _, s := range c.schemes {
			only, err := c.With(s.format, s.name)
			if err != nil {
				t.Fatal(err)
			}
			text, err := json.Marshal(only.Configuration(s.format, Settings{Ignore: []string{"a.b"}}))
			if err != nil {
				t.Fatal(err)
			}
			d, err := c.recognize(text)
			if err != nil || len(d.faults) > 0 {
				t.Errorf("%s %s: %v, faults %q", c, s.name, err, d.faults)
			}
			if c != &plain && (len(d.groups) != 1 || d.groups[0].format != s.format || d.groups[0].static != (s.activations == Static) ||
				d.scheme != s.name) {
				t.Errorf("%s %s is recognized as %+v", c, s.name, d)
			}
			if c != &gptOSS && !slices.Equal(d.ignore, []string{"a.b"}) {
				t.Errorf("%s %s: the ignore list is %q", c, s.name, d.ignore)
			}
			var method struct {
				QuantMethod *string `json:"quant_method"`
			}
			if err := json.Unmarshal(text, &method); err != nil {
				t.Fatal(err)
			}
			for _, other := range conventions {
				claims := method.QuantMethod != nil && *method.QuantMethod == other.quantMethod || method.QuantMethod == nil && other.claims(text)
				if claims != (other == c) {
					t.Errorf("%s %s: that it is of %s is %v", c, s.name, other, claims)
				}
			}
		}
	}
}

// TestModelOptCase: names of ModelOpt's algorithms are read in either case, and their case is
// preserved.
func TestModelOptCase(t *testing.T) {
	for text, want := range map[string]quant.Format{
		`{"quant_algo": "FP8_PB_WO"}`:                 quant.FP8Block,
		`{"quant_algo": "nvfp4"}`:                     quant.NVFP4,
		`{"quantization": {"quant_algo": "mxfp8"}}`:   quant.MXFP8,
		`{"quantization": {"quant_algo": "Fp8"}}`:     quant.FP8Tensor,
		`{"quantization": {"quant_algo": "NVFP4_X"}}`: {},
	} {
		d, err := modelOpt.recognize([]byte(text))
		var got quant.Format
		if len(d.groups) > 0 {
			got = d.groups[0].format
		}
		if got != want || (err == nil) != (want.Name != "") || err == nil && !strings.Contains(text, d.scheme) {
			t.Errorf("%s is recognized as %s %q (%v)", text, got.Name, d.scheme, err)
		}
	}
}

// TestUnrecognized: the error for an unsupported configuration names the cause.
func TestUnrecognized(t *testing.T) {
	for _, tc := range []struct {
		c            *Convention
		config, want string
	}{
		{&modelOpt, `{"quant_algo": "W4A8_AWQ"}`, `quant_algo "W4A8_AWQ" is not supported`},
		{&modelOpt, `{"quant_method": "modelopt"}`, "quant_algo is missing"},
		{&modelOpt, `{"quant_method": "modelopt", "kv_cache_scheme": {"num_bits": 8}}`, errCacheOnly.Error()},
		{&modelOpt, `{"quantization": {"quant_algo": null, "kv_cache_quant_algo": "FP8"}}`, errCacheOnly.Error()},
		{&modelOpt, `{"quant_method": "modelopt", "quant_algo": null, "kv_cache_quant_algo": "FP8"}`, errCacheOnly.Error()},
		{&compressedTensors, `{"config_groups": {}, "kv_cache_scheme": {"num_bits": 8}}`, errCacheOnly.Error()},
		{&modelOpt, `{"quantization": {"quant_algo": null, "kv_cache_quant_algo": null}}`, "quant_algo is missing"},
		{&modelOpt, `{"quantization": {"quant_algo": "NVFP4", "group_size": 32}}`,
			"quant_algo NVFP4 with group_size 32 is not supported, only 16"},
		{&modelOpt, `{"ignore": 1}`, "ignore is a JSON number, but clients read another type"},
		{&deepSeek, `{"weight_block_size": [64, 64]}`, "weight_block_size [64 64] is not supported, only [128, 128], [1, 128], [32, 32] and " +
			"[1, 32]"},
		{&deepSeek, `{"fmt": "e5m2", "weight_block_size": [128, 128]}`, `fmt is "e5m2", which is not supported, only "e4m3"`},
		{&mxfp8, `{"fmt": "e5m2"}`, `fmt is "e5m2", which is not supported, only "e4m3"`},
		{&autoRound, `{"bits": 8, "data_type": "fp8_e5m2", "packing_format": "auto_round:fp8"}`,
			"it stores weights of data_type fp8_e5m2 in 8 bits and groups of unknown size, which is not supported"},
		{&mxfp8, `{"weight_block_size": [32, 32]}`, "weight_block_size [32 32] is not supported, only [1 32]"},
		{&quark, `{"global_quant_config": {"weight": {"dtype": "int8", "group_size": 32, "scale_format": "e8m0"}}}`,
			"global_quant_config.weight: it stores weights as int8 by scheme \"\" in groups of 32 with \"e8m0\" scales, which is not supported"},
		{&quark, `{"layer_quant_config": {"a": {"weight": {"dtype": "int4"}}}, "global_quant_config": {}}`,
			"layer_quant_config: a: weight: it stores weights as int4 by scheme \"\" in groups of 0 with \"\" scales, which is not supported"},
		{&quark, `{"export": {"pack_method": "twice"}, "global_quant_config": {"weight": {"dtype": "int4", "qscheme": "per_channel"}}}`,
			`export.pack_method is "twice", which is not supported, only reorder and order`},
		{&quark, `{"layer_quant_config": {"a": {"weight": {"dtype": "int4", "qscheme": "per_channel", "group_size": 8}},
			"b": {"weight": {"dtype": "uint4", "qscheme": "per_channel"}}}}`, "it has weights in int4 and in uint4, per_channel, and " +
			"their tensors do not say which they have: quantize all in one of them"},
		{&quark, `{"layer_quant_config": {"a": {"weight": {"dtype": "int8", "qscheme": "per_channel", "ch_axis": 1}}}}`,
			"layer_quant_config: a: weight: it stores weights as int8 by scheme \"per_channel\" in groups of 0 with \"\" scales, which is not " +
				"supported"},
		{&quark, `{"global_quant_config": {"weight": {"dtype": "int8", "qscheme": "per_group", "group_size": 32, "ch_axis": 0}}}`,
			"global_quant_config.weight: it stores weights as int8 by scheme \"per_group\" in groups of 32 with \"\" scales, which is " +
				"not supported"},
		{&mlx, `{"bits": 4, "group_size": 64, "mode": "nf4"}`, `mode "nf4" of 4 bits in groups of 64 is not supported`},
	} {
		if _, err := tc.c.recognize([]byte(tc.config)); err == nil || err.Error() != tc.want {
			t.Errorf("%s %s: error %v, want %q", tc.c, tc.config, err, tc.want)
		}
	}
}

// TestMatchers checks the ignore lists of other tools.
func TestMatchers(t *testing.T) {
	for _, tc := range []struct {
		c      *Convention
		ignore string
		module string
		want   bool
	}{
		{&modelOpt, "model.visual*", "model.visual.blocks.0.attn.qkv", true},
		{&modelOpt, "model.layers.0.mlp.gate", "model.layers.0.mlp.gate_proj", false},
		{&modelOpt, "model.layers.?.mlp.gate", "model.layers.3.mlp.gate", true},
		{&modelOpt, "*lm_head*", "language_model.lm_head", true},
		{&modelOpt, "model.layers.[!0-3].*", "model.layers.4.mlp.gate", true}, // as fnmatch spells it
		{&modelOpt, "model.layers.[!0-3].*", "model.layers.3.mlp.gate", false},
		{&modelOpt, "model.layers.[^4].*", "model.layers.3.mlp.gate", false}, // ^ is itself
		{&modelOpt, "model.layers.[^4].*", "model.layers.4.mlp.gate", true},
		{&modelOpt, "model.layers.[04].*", "model.layers.4.mlp.gate", true},
		{&modelOpt, "a[]b]c", "a]c", true}, // a set may begin with ], and one without end is none
		{&modelOpt, "a[!]b]c", "axc", true},
		{&modelOpt, "a[!]b]c", "a]c", false},
		{&modelOpt, "[a-]x", "-x", true},
		{&modelOpt, "[-a]x", "-x", true},
		{&modelOpt, "*[b", "a[b", true},
		{&modelOpt, "a[", "a[", true},
		{&modelOpt, "a[]*", "a[]b", true},
		{&modelOpt, "a[z-a]*", "az", false}, // an empty range
		{&modelOpt, "a[!z-a]", "az", true},
		{&modelOpt, "a[z-ab]", "ab", true},
		{&modelOpt, `a[\]*`, `a\b`, true},
		{&modelOpt, "a.?", "axb", false},
		{&fpQuant, "head", "lm_head", true}, // ends are compared
		{&fpQuant, "model.layers.3", "model.layers.3.mlp.gate", false},
		{&fpQuant, "layers.3.mlp.gate", "model.layers.3.mlp.gate", true},
		{&deepSeek, "lm_head", "lm_head", true},
		{&deepSeek, "head", "lm_head", false}, // words are compared whole
		{&deepSeek, "head", "model.head.dense", true},
		{&mxfp8, "proj", "model.layers.3.mlp.gate_proj", false},
		{&deepSeek, "mlp.gate", "model.layers.3.mlp.gate", true},
		{&deepSeek, "mlp.gate", "model.layers.3.mlp.gate_proj", false},
		{&quark, "re:.*gate$", "model.layers.3.mlp.gate", true},
		{&quark, "re:model.layers.3", "model.layers.3.mlp.gate", true}, // the beginning is enough, as re.match has it
		{&quark, "re:mlp.gate", "model.layers.3.mlp.gate", false},
		{&quark, "lm_head", "lm_head", true},
		{&quark, "lm_head", "model.lm_head", false},
		{&quark, "model.layers.3", "model.layers.3.mlp.gate", false},
		{&quark, "LM_HEAD", "lm_head", false},
		{&quark, "*.mlp.gate", "model.layers.3.mlp.gate", false}, // Quark's own wildcards, which the clients do not have
		{&quark, "model.layers.[0-3].mlp.gate", "model.layers.3.mlp.gate", false},
	} {
		if got := tc.c.Ignored([]string{tc.ignore})(tc.module); got != tc.want {
			t.Errorf("%s: that %q ignores %s is %v", tc.c, tc.ignore, tc.module, got)
		}
	}
}

// sameJSON compares a value with JSON, ignoring the order of members.
func sameJSON(t *testing.T, got any, want string) {
	t.Helper()
	text, err := json.Marshal(got)
	if err != nil {
		t.Fatal(err)
	}
	var g, w any
	if err := json.Unmarshal(text, &g); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal([]byte(want), &w); err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(g, w) {
		t.Errorf("the configuration is\n%s\nwant\n%s", text, want)
	}
}

// TestInputFormat: clients quantize activations to the format of the weight, but for those of the named schemes and 128×128 blocks.
func TestInputFormat(t *testing.T) {
	others := map[string]string{"W4AFP8": "fp8-row", "FP8_TOKEN": "fp8-row"}
	seen := 0
	for _, c := range conventions {
		for _, s := range c.schemes {
			want := s.format.Name
			if other, ok := others[s.name]; ok {
				want, seen = other, seen+1
			} else if s.format.Name == quant.FP8Block.Name {
				want = quant.FP8Vec128.Name
			}
			if s.activations == WeightOnly {
				want = ""
			}
			only, err := c.With(s.format, s.name)
			if err != nil {
				t.Fatal(err)
			}
			if got := only.InputFormat(s.format).Name; got != want {
				t.Errorf("%s %s: got activations in %q, want %q", c, s.name, got, want)
			}
			m := Model{Convention: c, Scheme: s.name} // as read
			if got := m.InputFormat(s.format).Name; got != want {
				t.Errorf("%s %s, read: got activations in %q, want %q", c, s.name, got, want)
			}
		}
	}
	if seen != len(others) {
		t.Errorf("%d of %d schemes with other activations", seen, len(others))
	}
}
