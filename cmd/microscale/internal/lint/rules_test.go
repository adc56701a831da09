package lint

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/microscale-go/microscale/checkpoint/client"
	"github.com/microscale-go/microscale/convert"
	"github.com/microscale-go/microscale/internal/slow"
	"github.com/microscale-go/microscale/quant"
	"github.com/microscale-go/microscale/safetensors"
)

// Ways to store that several cases share.
var (
	ctNVFP4  = stored{format: quant.NVFP4, convention: "compressed-tensors", scheme: "NVFP4A16"}
	ctW4A4   = stored{format: quant.NVFP4, convention: "compressed-tensors", scheme: "NVFP4"}
	ctMXFP8  = stored{format: quant.MXFP8, convention: "compressed-tensors", scheme: "MXFP8"}
	ctFP8    = stored{format: quant.FP8Row, convention: "compressed-tensors", scheme: "FP8_DYNAMIC"}
	moNVFP4  = stored{format: quant.NVFP4, convention: "modelopt", scheme: "NVFP4"}
	moA16    = stored{format: quant.NVFP4, convention: "modelopt", scheme: "W4A16_NVFP4"}
	moFP8    = stored{format: quant.FP8Block, convention: "modelopt", scheme: "fp8_pb_wo"}
	ctBlocks = stored{format: quant.FP8Block, convention: "compressed-tensors"}
	deepseek = stored{format: quant.FP8Block, convention: "deepseek"}
)

// mixture is the way to store self_attn in FP8 rows, and the rest in another format.
func (s stored) mixture(t *testing.T, pattern, to string) stored {
	t.Helper()
	r, err := convert.ParseRule(pattern, to)
	if err != nil {
		t.Fatal(err)
	}
	s.rules, s.scheme = []convert.Rule{r}, ""
	return s
}

func float(v float32) []byte { return binary.LittleEndian.AppendUint32(nil, math.Float32bits(v)) }

// A damaged is a case of a rule: a checkpoint, and one damage that the rule alone finds.
type damaged struct {
	rule    string
	clients string // "": all that read it
	source  source
	stored  stored
	damage  func(d *directory)
	tensor  string // of the finding
	text    string // in it
}

func damages(t *testing.T) []damaged {
	const (
		attn, mlp = layer0 + "self_attn.", layer0 + "mlp."
		mtp       = "mtp.fc"
	)
	llama, moe := dense(128, 128), experts("qwen3_moe")
	padded := dense(64, 128)
	next := llama.with(map[string]any{"model_type": "new", "num_hidden_layers": 1, "num_nextn_predict_layers": 1}, mtp)
	mixed := ctNVFP4.mixture(t, "self_attn", "fp8-row")
	static := stored{format: quant.FP8Tensor, convention: "modelopt"}.mixture(t, "self_attn", "mxfp8")
	static.scheme = "FP8"
	return []damaged{
		{"set-global", "vllm", llama, ctNVFP4, func(d *directory) {
			d.tensors[attn+"k_proj.weight_global_scale"].put(4096)
		}, attn + "k_proj.weight", "its global scale is 0.00024414063"},
		{"set-format", "sglang", llama, stored{format: quant.MXFP8, convention: "modelopt"}, func(d *directory) {
			d.unquantize(mlp+"up_proj", 128, 128)
			d.ignore(mlp + "up_proj")
			d.sidecarIgnore(mlp + "up_proj")
		}, mlp + "up_proj.weight", "it is bf16"},
		{"expert-format", "vllm", moe, ctNVFP4, func(d *directory) {
			d.unquantize(mlp+"experts.1.down_proj", 128, 128)
			d.ignore(mlp + "experts.1.down_proj")
		}, mlp + "experts.1.down_proj.weight", "one format for the experts"},
		{"expert-gate-up", "vllm", moe, ctNVFP4, func(d *directory) {
			d.tensors[mlp+"experts.1.gate_proj.weight_global_scale"].put(4096)
		}, mlp + "experts.1.up_proj.weight", "its global scale is"},
		{"input-scale-missing", "vllm", moe, ctW4A4, func(d *directory) {
			delete(d.tensors, mlp+"experts.1.down_proj.input_global_scale")
		}, mlp + "experts.1.down_proj.weight", "there is no"},
		{"input-scale-bad", "vllm", llama, moNVFP4, func(d *directory) {
			for _, name := range []string{"q_proj", "k_proj", "v_proj"} {
				d.tensors[attn+name+".input_scale"].put(0)
			}
		}, attn + "k_proj.input_scale", "is 0, and must be"},
		{"input-set", "vllm", llama, moNVFP4, func(d *directory) {
			d.tensors[attn+"v_proj.input_scale"].put(0.5)
		}, attn + "v_proj.input_scale", "uses one for both"},
		{"ignored-quantized", "vllm", llama, moA16, func(d *directory) {
			for _, name := range []string{"q_proj", "k_proj", "v_proj"} {
				d.ignore(attn + name)
				d.sidecarIgnore(attn + name)
			}
		}, attn + "q_proj.weight", "it is quantized, but the ignore list"},
		{"unquantized-unlisted", "vllm", llama, ctMXFP8, func(d *directory) {
			for _, name := range []string{"q_proj", "k_proj", "v_proj"} {
				d.unquantize(attn+name, 128, 128)
			}
		}, attn + "q_proj.weight", "not on the ignore list"},
		{"ignore-parent", "sglang", llama, ctFP8, func(d *directory) {
			d.ignore(layer0 + "mlp")
		}, mlp + "gate_proj", "is a substring"},
		{"ignore-substring", "vllm", llama, moA16, func(d *directory) {
			d.ignore(mlp + "gate")
			d.sidecarIgnore(mlp + "gate")
		}, mlp + "gate_proj", "is a substring"},
		{"ignore-expert-names", "vllm", moe.with(map[string]any{"hidden_size": 128}), ctFP8, func(d *directory) {
			for name := range d.tensors {
				if strings.Contains(name, ".experts.") {
					delete(d.tensors, name)
				}
			}
			d.set(mlp+"experts.down_proj", safetensors.BF16, []int64{2, 128, 256}, values(1, 2*128*256))
			d.set(mlp+"experts.gate_up_proj", safetensors.BF16, []int64{2, 512, 128}, values(2, 2*512*128))
			d.ignore(mlp + "experts")
		}, mlp + "experts.down_proj", "and the client looks for " + mlp + "experts.0.down_proj"},
		{"ignore-one-expert", "vllm", moe, deepseek, func(d *directory) {
			list, _ := d.quantization()["modules_to_not_convert"].([]any)
			d.quantization()["modules_to_not_convert"] = append(list, mlp+"experts.7.down_proj") // of another model
		}, mlp + "experts.0.down_proj.weight", "for all experts of the layer"},
		{"ignore-class", "transformers", llama, ctFP8, func(d *directory) {
			d.ignore("Linear")
		}, "", `"Linear" is on the ignore list, and the client loads the 5 quantized weights`},
		{"ignore-fused-partial", "vllm", llama, ctMXFP8, func(d *directory) {
			for _, name := range []string{"q_proj", "k_proj", "v_proj"} {
				d.unquantize(attn+name, 128, 128)
			}
			d.ignore(attn+"q_proj", attn+"k_proj")
		}, attn + "v_proj.weight", "others that the client fuses with it are"},
		{"ignore-wrapper", "vllm", llama, ctMXFP8, func(d *directory) {
			for _, name := range []string{"q_proj", "k_proj", "v_proj"} {
				d.unquantize(attn+name, 128, 128)
				d.ignore(attn + name + ".linear")
			}
		}, attn + "q_proj.weight", "the ignore list has it as " + attn + "q_proj.linear"},
		{"target-overlap", "vllm", llama, mixed, func(d *directory) {
			groups := d.quantization()["config_groups"].(map[string]any)
			for _, g := range groups {
				targets := g.(map[string]any)["targets"].([]any)
				g.(map[string]any)["targets"] = append(targets, "re:.*proj$")
			}
		}, mlp + "gate_proj.weight", "of the groups whose targets match it"},
		{"target-order", "vllm", llama, ctFP8, func(d *directory) {
			group, err := json.Marshal(d.group())
			if err != nil {
				t.Fatal(err)
			}
			group = bytes.Replace(group, []byte(`"Linear"`), []byte(`"re:.*proj$"`), 1)
			d.quantization()["config_groups"] = json.RawMessage(fmt.Sprintf(`{"group_9":%s,"group_10":%s}`, group, group))
		}, mlp + "gate_proj.weight", "another one is the first"},
		{"target-class-mixed", "trtllm", llama, ctBlocks.mixture(t, "self_attn", "fp8-row"), func(d *directory) {
			d.group()["targets"] = append(d.group()["targets"].([]any), "Linear")
		}, "", "is a class of modules"},
		{"target-unmatched", "vllm", llama, mixed, func(d *directory) {
			d.group()["targets"] = append(d.group()["targets"].([]any), "re:.*experts.*")
		}, "", "matches no module"},
		{"group-format-missing", "vllm", llama, mixed, func(d *directory) {
			delete(d.group(), "format")
		}, "", "group_0 has no format"},
		{"config-file-contradiction", "vllm", llama, moA16, func(d *directory) {
			d.sidecarIgnore(mlp + "up_proj")
		}, mlp + "up_proj.weight", "in hf_quant_config.json and not in config.json"},
		{"algo-unknown", "vllm", llama, moA16.mixture(t, "self_attn", "fp8-row"), func(d *directory) {
			for _, config := range []map[string]any{d.quantization(), d.sidecar["quantization"].(map[string]any)} {
				for _, name := range []string{"gate_proj", "up_proj"} {
					config["quantized_layers"].(map[string]any)[mlp+name].(map[string]any)["quant_algo"] = "NVFP4_SVD"
				}
			}
		}, mlp + "up_proj", "which the client does not know"},
		{"algo-case", "trtllm", llama, moFP8, func(d *directory) {
			d.quantization()["quant_algo"] = "FP8_PB_WO"
		}, "", "recognizes \"fp8_pb_wo\" only"},
		{"block-scale-shape", "vllm", llama, moFP8, func(d *directory) {
			for name, e := range d.tensors {
				if strings.HasSuffix(name, "_scale") {
					d.set(name, safetensors.F32, []int64{e.Shape[0], e.Shape[2]}, e.data)
				}
			}
		}, attn + "q_proj.weight_scale", "needs four dimensions"},
		{"mtp-missing", "vllm", next, ctMXFP8, func(d *directory) {
			delete(d.tensors, mtp+weightSuffix)
		}, "", "declares 1 layers"},
		{"mtp-partial", "vllm", next, ctMXFP8, func(d *directory) {
			d.quantization()["ignore"] = []any{"lm_head"}
		}, mtp + weightSuffix, "it is not on the ignore list"},
		{"kv-names", "vllm", llama, ctFP8, func(d *directory) {
			d.set(attn+"key_cache_scale", safetensors.F32, []int64{1}, float(1))
		}, attn + "key_cache_scale", "no client looks for that name"},
		{"kv-scheme", "vllm", llama, ctFP8, func(d *directory) {
			d.set(attn+"k_scale", safetensors.F32, []int64{1}, float(1))
		}, "", "declares no quantized cache"},
		{"e8m0-as-number", "vllm", llama, deepseek, func(d *directory) {
			for _, name := range []string{"q_proj", "k_proj", "v_proj"} {
				name := attn + name + ".weight_scale_inv"
				d.set(name, safetensors.U8, d.tensors[name].Shape, []byte{127})
			}
		}, attn + "q_proj.weight", "its scales are U8"},
		{"scale-dtype", "vllm", llama, ctMXFP8, func(d *directory) {
			delete(d.group()["weights"].(map[string]any), "scale_dtype")
		}, "", "no scale_dtype"},
		{"kv_b-tile", "trtllm", llama.with(map[string]any{"qk_nope_head_dim": 128, "v_head_dim": 128}, attn+"kv_b_proj"), deepseek,
			func(d *directory) { d.config["qk_nope_head_dim"] = 64 }, attn + "kv_b_proj.weight", "a head has 64 rows of keys"},
		{"global-direction", "vllm", llama, ctNVFP4, func(d *directory) {
			for name, e := range d.tensors {
				if strings.HasSuffix(name, "_global_scale") {
					e.put(1 / math.Float32frombits(binary.LittleEndian.Uint32(e.data)))
				}
			}
		}, mlp + "up_proj.weight", "were its inverse"},
		{"scale-nonfinite", "vllm", llama, ctNVFP4, func(d *directory) {
			d.tensors[mlp+"up_proj.weight_scale"].data[7] = 0x7f
		}, mlp + "up_proj.weight", "1 of 1024 scales"},
		{"scale-subnormal", "mlx", llama, stored{format: quant.NVFP4, convention: "mlx"}, func(d *directory) {
			e := d.tensors[mlp+"up_proj.scales"]
			for i := range e.data[:600] {
				e.data[i] = 3
			}
		}, mlp + "up_proj.weight", "600 of 1024 scales"},
		{"swizzled", "vllm", padded, ctNVFP4, func(d *directory) {
			for name := range d.tensors {
				if strings.HasSuffix(name, "_scale") && !strings.HasSuffix(name, "_global_scale") {
					d.set(name, safetensors.F8E4M3, []int64{128, 8}, bytes.Repeat([]byte{0x38}, 1024))
				}
			}
		}, mlp + "up_proj", "1024 scales for 512 blocks"},
		{"expert-axis", "vllm", llama.with(map[string]any{"num_experts": 2}, mlp+"experts.gate_proj.0"), ctMXFP8, nil,
			mlp + "experts.gate_proj.0.weight", "before its projection"},
		{"fused-3d-scales", "vllm", moe, moNVFP4, func(d *directory) {
			d.set(mlp+"experts.gate_up_proj", safetensors.U8, []int64{2, 64, 256}, make([]byte, 2*64*256))
			d.set(mlp+"experts.gate_up_proj_weight_scale", safetensors.F8E4M3, []int64{2, 8, 256}, make([]byte, 2*8*256))
		}, mlp + "experts.gate_up_proj", "which the client drops"},
		{"pre-quant-scale", "vllm", llama, moNVFP4, func(d *directory) {
			d.set(mlp+"up_proj.pre_quant_scale", safetensors.BF16, []int64{128}, values(1, 128))
		}, mlp + "up_proj.weight", "are to be multiplied"},
		{"transform-online", "sglang", llama, ctNVFP4, func(d *directory) {
			d.quantization()["transform_config"] = map[string]any{"config_groups": map[string]any{"R4": map[string]any{"type": "hadamard",
				"apply": []any{map[string]any{"location": "input", "targets": []any{"Linear"}},
					map[string]any{"location": "weight_input", "targets": []any{"Linear"}}}}}}
		}, "", "transforms input at run time"},
		{"mixed-sglang", "sglang", llama, static, nil,
			"", "reads one without nvfp4 as W4AFP8"},
		{foreignNames, "vllm", llama, ctW4A4, func(d *directory) {
			for _, name := range []string{"q_proj", "k_proj", "v_proj"} {
				d.asModelOpt(attn + name)
			}
		}, attn + "q_proj", "weight_scale_2 is weight_global_scale with the number"},
		{"model-dtype", "transformers", llama, ctMXFP8, func(d *directory) {
			d.config["torch_dtype"] = "float16"
		}, "", "decodes mxfp8 to bfloat16"},
		{"initialized-weight", "transformers", llama.with(nil, attn+"o_proj"), ctNVFP4, func(d *directory) {
			d.config["model_type"] = "nanochat"
		}, attn + "o_proj.weight", "initializes its weight before it loads"},
	}
}

// asModelOpt gives the tensors of an NVFP4 module of compressed-tensors the names of modelopt, which stores scales, not divisors.
func (d *directory) asModelOpt(module string) {
	d.move(module+".weight_packed", module+".weight")
	for from, to := range map[string]string{".weight_global_scale": ".weight_scale_2", ".input_global_scale": ".input_scale"} {
		if e, ok := d.tensors[module+from]; ok {
			d.set(module+to, safetensors.F32, nil, float(1/math.Float32frombits(binary.LittleEndian.Uint32(e.data))))
			delete(d.tensors, module+from)
		}
	}
}

// move gives tensors other names: from each of a list to the next one, in pairs.
func (d *directory) move(pairs ...string) {
	moved := map[string]entry{}
	for i := 0; i < len(pairs); i += 2 {
		moved[pairs[i+1]] = d.tensors[pairs[i]]
		delete(d.tensors, pairs[i])
	}
	for name, e := range moved {
		d.set(name, e.Dtype, e.Shape, e.data)
	}
}

// put sets a number of four bytes.
func (e entry) put(v float32) { copy(e.data, float(v)) }

// sidecarIgnore adds entries to the list of hf_quant_config.json.
func (d *directory) sidecarIgnore(entries ...any) {
	q := d.sidecar["quantization"].(map[string]any)
	list, _ := q["exclude_modules"].([]any)
	q["exclude_modules"] = append(list, entries...)
}

// chosenClients returns clients by their names; nil for "".
func chosenClients(t *testing.T, names string) (chosen []client.Client) {
	t.Helper()
	for _, name := range strings.Fields(names) {
		c, err := client.Lookup(name)
		if err != nil {
			t.Fatal(err)
		}
		chosen = append(chosen, c)
	}
	return chosen
}

// check applies the rules to a directory.
func check(t *testing.T, dir, clients string) *Report {
	t.Helper()
	return run(t, dir, Options{Clients: chosenClients(t, clients), Scales: true})
}

func run(t *testing.T, dir string, o Options) *Report {
	t.Helper()
	r, err := Run(t.Context(), open(t, dir), o)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// TestRules: each rule alone finds the damage of its case, and nothing in the checkpoint without it. The corpus has both.
func TestRules(t *testing.T) {
	c := &corpus{files: map[string]map[string][]byte{}}
	all := true // cases ran
	for _, tc := range damages(t) {
		ran := false
		t.Run(tc.rule, func(t *testing.T) {
			ran = true
			dir := tc.source.quantize(t, tc.stored)
			d := readDirectory(t, dir)
			d.write(t, dir) // as the damaged one, without checksums
			if tc.damage != nil {
				c.add(t, tc.rule, "good", dir)
				if r := check(t, dir, tc.clients); len(r.Findings) > 0 {
					t.Errorf("without damage: %s", texts(r))
				}
				tc.damage(d)
				d.write(t, dir)
			}
			c.add(t, tc.rule, "broken", dir)
			r := check(t, dir, tc.clients)
			if len(r.Findings) == 0 || slices.ContainsFunc(r.Findings, func(f Finding) bool { return f.Rule.Name != tc.rule }) {
				t.Errorf("findings are %s", texts(r))
			}
			if !slices.ContainsFunc(r.Findings, func(f Finding) bool {
				return f.Tensor == tc.tensor && strings.Contains(f.Text, tc.text) && f.File != ""
			}) {
				t.Errorf("findings are %s, want %q: %q", texts(r), tc.tensor, tc.text)
			}
			rule := lookup(tc.rule)
			c.cases = append(c.cases, corpusCase{tc.rule + ".zip", rule.Name, rule.ID, rule.Severity.String(), strings.Fields(tc.clients),
				tc.tensor, rule.What, tc.damage != nil})
		})
		all = all && ran
	}
	if all {
		c.check(t)
	}
}

// texts describes findings.
func texts(r *Report) string {
	var b strings.Builder
	for _, f := range r.Findings {
		fmt.Fprintf(&b, "\n%s %s %v %s: %s", f.Rule.ID, f.Rule.Name, f.Clients, f.Tensor, f.Text)
	}
	return b.String()
}

// elsewhere are the rules whose cases are in other tests than TestRules.
var elsewhere = map[string]string{
	structure:              "TestDamage of verify",
	"none-quantized":       "TestDamage of verify",
	"quantized-untargeted": "TestDamage of verify",
	unread:                 "TestClientRules of verify",
	"partial-tile":         "TestClientRules of verify",
	"ignore-wildcard":      "TestClientRules of verify",
	"tied-head":            "TestClientRules of verify",
	"moved-names":          "TestClientRules of verify",
	"sidecar-missing":      "TestClientRules of verify, TestRepairFiles",
	"partial-columns":      "TestClientRules of verify",
	"mlx-global":           "TestClientRules of verify",
	"hf-moe-global":        "TestModelRules of verify",
	"gguf-scale-unused":    "TestModelRules of verify",
	"mlx-kv_b":             "TestModelRules of verify",
	"mamba1":               "TestModelRules of verify",
	"experts-layout":       "TestModelRules of verify",
	"gpt-oss-experts":      "TestModelRules of verify",
	"config-number":        "TestConfigNumbers",
	"rotation-set":         "TestRotations",
	"rotation-matrix":      "TestRotated",
	"rotation-size":        "TestRotated",
	"scales-zero":          "TestRotated",
	"padded-scales":        "TestPaddedScales",
	"unsupported":          "TestBrokenConfigs",
	unreadable:             "TestBrokenConfigs",
	"index":                "TestRepairFiles",
}

// TestTable: ids and names are unique and in order, every text is there, and every rule has a case.
func TestTable(t *testing.T) {
	slow.Race(t, slow.Repeats)
	cases := damages(t)
	for i, r := range rules {
		if i > 0 && rules[i-1].ID >= r.ID {
			t.Errorf("%s comes after %s", r.ID, rules[i-1].ID)
		}
		for _, text := range []string{r.What, r.Why, r.Remedy, r.Source} {
			if text == "" || strings.ContainsAny(text, "|\n") || strings.HasSuffix(text, ".") {
				t.Errorf("%s: text %q", r.ID, text)
			}
		}
		for _, name := range append(r.explains, r.Name) {
			if lookup(name).Name != name {
				t.Errorf("%s names %q, which is no rule", r.ID, name)
			}
		}
		has := slices.ContainsFunc(cases, func(d damaged) bool { return d.rule == r.Name })
		if _, ok := elsewhere[r.Name]; ok == has {
			t.Errorf("%s %s has a case: %v, and one elsewhere: %v", r.ID, r.Name, has, ok)
		}
	}
	var named []string
	for _, row := range repairs {
		named = append(named, row.rules...)
	}
	for _, name := range slices.Concat(named, repairable, slices.Collect(maps.Keys(elsewhere))) {
		if lookup(name).Name != name {
			t.Errorf("%q is no rule", name)
		}
	}
	// Other packages name rules by their text.
	inCode := regexp.MustCompile(`(?:Rule: |Rule = |broken :?= |misread\(\s*|eachQuantized\(m, )"([a-z0-9_-]+)"`)
	for _, dir := range []string{"checkpoint", "checkpoint/client"} {
		names, err := os.ReadDir("../../../../" + dir)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range names {
			if e.IsDir() || strings.HasSuffix(e.Name(), "_test.go") {
				continue
			}
			code, err := os.ReadFile("../../../../" + dir + "/" + e.Name())
			if err != nil {
				t.Fatal(err)
			}
			for _, found := range inCode.FindAllSubmatch(code, -1) {
				if name := string(found[1]); lookup(name).Name != name {
					t.Errorf("%s/%s names %q, which is no rule", dir, e.Name(), name)
				}
			}
		}
	}
}
