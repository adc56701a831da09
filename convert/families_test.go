package convert

import (
	"bytes"
	"context"
	"fmt"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/microscale-go/microscale/checkpoint"
	"github.com/microscale-go/microscale/family"
	"github.com/microscale-go/microscale/quant"
	"github.com/microscale-go/microscale/safetensors"
	"github.com/microscale-go/microscale/tensor"
)

// A family is a kind of model: its configuration and the names of its weights, those that are
// quantized by default and those that are not, by reason. ".weight" is appended to names that
// neither end in it nor are fused experts.
var families = []struct {
	name, config string
	quantized    string
	left         map[string]string
	groups       []string // modules that share a global scale, by the ends of their names
}{
	{
		name: "llama", config: `{"model_type": "llama", "hidden_size": 64}`,
		quantized: `model.layers.0.self_attn.{q_proj,k_proj,v_proj,o_proj} model.layers.1.mlp.{gate_proj,up_proj,down_proj}`,
		left: map[string]string{
			"embedding": "model.embed_tokens", "output head": "lm_head",
			"norm": "model.norm2d model.layers.0.input_layernorm2d",
		},
		groups: []string{"q_proj k_proj v_proj", "gate_proj up_proj"},
	},
	{
		name: "qwen3-next", config: `{"model_type": "qwen3_next", "hidden_size": 64, "num_hidden_layers": 2}`,
		quantized: `model.layers.0.linear_attn.{in_proj_qkvz,out_proj} model.layers.1.self_attn.q_proj model.layers.0.mlp.experts.{0,` +
			`1}.{gate_proj,up_proj,down_proj} model.layers.0.mlp.shared_expert.{gate_proj,up_proj}`,
		left: map[string]string{
			"router":                    "model.layers.0.mlp.gate model.layers.0.mlp.shared_expert_gate",
			"decay of linear attention": "model.layers.0.linear_attn.in_proj_ba",
			"multi-token prediction":    "mtp.fc mtp.layers.0.mlp.experts.0.up_proj",
			"embedding":                 "model.embed_tokens",
		},
		groups: []string{"experts.0.gate_proj experts.0.up_proj", "experts.1.gate_proj experts.1.up_proj"},
	},
	{
		name: "mistral", config: `{"model_type": "mistral3", "text_config": {"model_type": "mistral", "hidden_size": 64}}`,
		quantized: `language_model.model.layers.0.self_attn.{q_proj,k_proj,v_proj} language_model.model.layers.0.mlp.{gate_proj,up_proj,` +
			`down_proj}`,
		left: map[string]string{
			"vision or audio": "vision_tower.transformer.layers.0.attention.q_proj multi_modal_projector.linear_1 " +
				"multi_modal_projector.patch_merger.merging_layer",
			"embedding": "language_model.model.embed_tokens", "output head": "language_model.lm_head",
		},
	},
	{
		name: "gemma", config: `{"model_type": "gemma3n", "text_config": {"model_type": "gemma3n_text", "hidden_size": 64, ` +
			`"num_hidden_layers": 2}}`,
		quantized: `model.language_model.layers.0.self_attn.{q_proj,k_proj,v_proj,o_proj} model.language_model.layers.0.mlp.{gate_proj,` +
			`up_proj,down_proj}`,
		left: map[string]string{
			"side path of Gemma 3n": "model.language_model.layers.0.altup.prediction_coefs model.language_model.layers.0.laurel.linear_left " +
				"model.language_model.per_layer_model_projection model.language_model.altup_projections.0 " +
				"model.language_model.layers.0.per_layer_input_gate",
			"vision or audio": "model.vision_tower.timm_model.blocks.0.attn.qkv model.audio_tower.conformer.0.attention.attn.q_proj",
			"embedding":       "model.language_model.embed_tokens_per_layer",
		},
	},
	{
		name: "phi", config: `{"model_type": "phimoe", "hidden_size": 64, "num_hidden_layers": 2}`,
		quantized: `model.layers.0.self_attn.{qkv_proj,o_proj} model.layers.0.mlp.{gate_up_proj,down_proj} ` +
			`model.layers.0.block_sparse_moe.experts.0.{w1,w2,w3}`,
		left: map[string]string{"router": "model.layers.0.block_sparse_moe.gate",
			"vision or audio": "model.vision_embed_tokens.img_processor.vision_model.encoder.layers.0.mlp.fc1"},
		groups: []string{"experts.0.w1 experts.0.w3"},
	},
	{
		name: "deepseek", config: `{"model_type": "deepseek_v3", "hidden_size": 64, "num_hidden_layers": 61, "num_nextn_predict_layers": 1}`,
		quantized: `model.layers.3.self_attn.{q_a_proj,kv_a_proj_with_mqa,q_b_proj,kv_b_proj,o_proj} ` +
			`model.layers.3.mlp.experts.255.{gate_proj,up_proj,down_proj} model.layers.3.mlp.shared_experts.{gate_proj,up_proj}`,
		left: map[string]string{
			"router":                      "model.layers.3.mlp.gate",
			"multi-token prediction":      "model.layers.61.eh_proj model.layers.61.self_attn.q_a_proj model.layers.61.mlp.experts.0.up_proj",
			"indexer of sparse attention": "model.layers.3.self_attn.indexer.wq_b",
			"embedding":                   "model.layers.61.embed_tokens",
			"output head":                 "model.layers.61.shared_head.head",
		},
		groups: []string{"layers.3.self_attn.q_a_proj layers.3.self_attn.kv_a_proj_with_mqa", "shared_experts.gate_proj shared_experts.up_proj"},
	},
	{
		name: "mixtral", config: `{"model_type": "mixtral", "hidden_size": 64, "num_hidden_layers": 2}`,
		quantized: `model.layers.0.block_sparse_moe.experts.{0,7}.{w1,w2,w3} model.layers.0.self_attn.q_proj`,
		left:      map[string]string{"router": "model.layers.0.block_sparse_moe.gate"},
		groups:    []string{"experts.0.w1 experts.0.w3", "experts.7.w1 experts.7.w3"},
	},
	{
		name: "unknown experts", config: `{"model_type": "unheard_of", "hidden_size": 64, "num_hidden_layers": 2}`,
		quantized: `model.layers.0.self_attn.q_proj`,
		left: map[string]string{"experts in one tensor, whose name does not say which modules " +
			"it holds": "model.layers.0.mlp.experts.mystery"},
	},
	{
		name: "experts of another width", config: `{"model_type": "llama4", "text_config": {"model_type": "llama4_text", "hidden_size": 128}}`,
		quantized: `language_model.model.layers.0.self_attn.q_proj`,
		left: map[string]string{"experts in one tensor, no dimension of which is as wide as " +
			"the model": "language_model.model.layers.0.feed_forward.experts.gate_up_proj"},
	},
}

// expand returns the weights of a list where {a,b} stands for a and for b.
func expand(list string) (names []string) {
	for _, item := range strings.Fields(list) {
		alternatives := []string{item}
		for strings.Contains(alternatives[0], "{") {
			var next []string
			for _, a := range alternatives {
				before, rest, _ := strings.Cut(a, "{")
				inner, after, _ := strings.Cut(rest, "}")
				for choice := range strings.SplitSeq(inner, ",") {
					next = append(next, before+choice+after)
				}
			}
			alternatives = next
		}
		names = append(names, alternatives...)
	}
	for i, name := range names {
		if !family.IsFused(name) && !strings.HasSuffix(name, ".mystery") {
			names[i] += ".weight"
		}
	}
	return names
}

// TestFamilies: which weights of a family are quantized, and which share a global scale.
func TestFamilies(t *testing.T) {
	for _, family := range families {
		t.Run(family.name, func(t *testing.T) {
			want := map[string]string{}
			for _, name := range expand(family.quantized) {
				want[name] = ""
			}
			for reason, list := range family.left {
				for _, name := range expand(list) {
					want[name] = reason
				}
			}
			var tensors []made
			for name := range want {
				shape := []int64{32, 64}
				if !strings.HasSuffix(name, ".weight") {
					shape = []int64{2, 64, 32}
				}
				tensors = append(tensors, made{name, safetensors.BF16, 1, shape})
			}
			src := openModel(t, writeModel(t, map[string][]made{"model.safetensors": tensors}, family.config))
			plan, err := PlanQuantize(t.Context(), src.Source, QuantizeOptions{Quantizer: quant.Quantizer{Format: quant.NVFP4}})
			if err != nil {
				t.Fatal(err)
			}
			for _, d := range plan.decisions {
				if reason, ok := want[d.Weight.Name]; !ok || d.reason.Detail != reason || (d.action == Quantize) != (reason == "") {
					t.Errorf("%s stays because of %q, want %q", d.Weight.Name, d.reason, reason)
				}
				delete(want, d.Weight.Name)
				if module, ok := strings.CutSuffix(d.Weight.Name, ".weight"); ok &&
					plan.convention.Ignored(plan.Ignore)(module) != (d.reason.cause != noCause) {
					t.Errorf("that %s is on the ignore list is %v", module, d.reason.cause == noCause)
				}
			}
			for name := range want {
				t.Errorf("%s is not in the plan", name)
			}
			for _, group := range family.groups {
				shared := map[string]bool{}
				for end := range strings.FieldsSeq(group) {
					i := slices.IndexFunc(plan.decisions, func(d decision) bool {
						return strings.HasSuffix(d.Weight.Name, "."+end+".weight") && d.action == Quantize
					})
					if i < 0 {
						t.Fatalf("%s is not quantized", end)
					}
					matrix, _ := plan.source.Family().Joined(plan.decisions[i].Weight.Name)
					shared[matrix] = true
				}
				if len(shared) != 1 {
					t.Errorf("%s have %d global scales, want one", group, len(shared))
				}
			}
		})
	}
}

// TestFusedExperts: fused experts become linear modules, in either layout of their file, with
// the same codes as the separate matrices.
func TestFusedExperts(t *testing.T) {
	const experts, hidden, inter = 3, 64, 32
	for _, tc := range []struct {
		modelType  string
		transposed bool
	}{{"llama4", true}, {"qwen3_vl_moe", true}, {"qwen3_5_moe", false}} {
		t.Run(tc.modelType, func(t *testing.T) {
			const parent = "model.layers.0.mlp.experts."
			gateUp, down := []int64{experts, 2 * inter, hidden}, []int64{experts, hidden, inter}
			if tc.transposed {
				gateUp, down = []int64{experts, hidden, 2 * inter}, []int64{experts, inter, hidden}
			}
			config := fmt.Sprintf(`{"model_type": %q, "text_config": {"hidden_size": %d}}`, tc.modelType, hidden)
			dir := writeModel(t, map[string][]made{"model.safetensors": {
				{parent + "gate_up_proj", safetensors.BF16, 0.1, gateUp}, {parent + "down_proj", safetensors.BF16, 0.1, down},
				{"lm_head.weight", safetensors.BF16, 1, []int64{32, hidden}},
			}}, config)
			src := openModel(t, dir)
			raw := openModel(t, filepath.Join(dir, "model.safetensors")) // without config.json, as it lies
			for _, name := range []string{"compressed-tensors", "modelopt", "mlx", "plain"} {
				dst := filepath.Join(t.TempDir(), "out")
				q, _, err := convention(t, name).Quantizer(quant.Quantizer{Format: quant.NVFP4})
				if err != nil {
					t.Fatal(err)
				}
				plan, err := PlanQuantize(t.Context(), src.Source, QuantizeOptions{Quantizer: q, Convention: name})
				if err != nil {
					t.Fatal(err)
				}
				if _, err := plan.Run(context.Background(), dst, RunOptions{}); err != nil {
					t.Fatal(err)
				}
				got := openModel(t, dst)
				compare(t, src, got)
				if name == "plain" {
					if w, ok := got.Lookup(parent + "gate_up_proj"); !ok || !w.Quantized() || !slices.Equal(w.Shape, []int64{experts, 2 * inter, hidden}) {
						t.Errorf("plain has %+v", w)
					}
					continue
				}
				for e := range experts {
					gate := matrix(t, raw, parent+"gate_up_proj", e, 0, inter, tc.transposed)
					up := matrix(t, raw, parent+"gate_up_proj", e, inter, inter, tc.transposed)
					shared := max(quant.Amax(gate, 1), quant.Amax(up, 1))
					sameAs(t, q, got, fmt.Sprintf("%s%d.gate_proj.weight", parent, e), gate, &shared)
					sameAs(t, q, got, fmt.Sprintf("%s%d.up_proj.weight", parent, e), up, &shared)
					sameAs(t, q, got, fmt.Sprintf("%s%d.down_proj.weight", parent, e), matrix(t, raw, parent+"down_proj", e, 0, hidden, tc.transposed),
						nil)
				}
			}
			if _, err := PlanQuantize(t.Context(), src.Source, QuantizeOptions{Quantizer: quant.Quantizer{Format: quant.MXFP4},
				Convention: "gpt-oss"}); err == nil || !strings.Contains(err.Error(), "fused experts without biases: clients read only experts of "+
				"gpt-oss in gpt-oss (2)") {
				t.Errorf("to gpt-oss: error %v", err)
			}
			// One expert alone is left unquantized; even then the tensors are split.
			dst := filepath.Join(t.TempDir(), "out")
			quantize(t, src, dst, QuantizeOptions{Quantizer: quant.Quantizer{Format: quant.MXFP4}, Convention: "compressed-tensors",
				Exclude: patterns(`experts\.1\.`)}, RunOptions{})
			got := openModel(t, dst)
			compare(t, src, got)
			if w, ok := got.Lookup(parent + "1.up_proj.weight"); !ok || w.Quantized() || w.Dtype != safetensors.BF16 ||
				got.Quantized() != 3*(experts-1) {
				t.Errorf("the excluded expert is %+v, and %d weights are quantized", w, got.Quantized())
			}
		})
	}
}

// TestExpertsLeft: a run that leaves the experts of a layer unquantized, because their layout
// is unknown or they have biases, reports this in a note and in the configuration. Other runs
// do not.
func TestExpertsLeft(t *testing.T) {
	const parent = "model.layers.0.mlp.experts."
	for modelType, want := range map[string][]string{
		"other_width": {"2 of 3 weights, with 36864 of 45056 bytes, are not quantized, the first model.layers.0.mlp.experts.down_proj: " +
			"experts in one tensor, no dimension of which is as wide as the model; store each expert in separate tensors to quantize them"},
		"mystery_moe": nil, // shapes say that it is [experts, in, out]
		"gpt_oss": {"2 of 3 weights, with 36864 of 45056 bytes, are not quantized, the first model.layers.0.mlp.experts.down_proj: fused " +
			"experts with biases: compressed-tensors supports single experts without biases; convention gpt-oss supports them in mxfp4, " +
			"convention plain in every format"},
		"llama4": nil,
	} {
		src := openModel(t, writeModel(t, map[string][]made{"model.safetensors": {
			{parent + "gate_up_proj", safetensors.BF16, 0.1, []int64{3, 64, 64}},
			{parent + "down_proj", safetensors.BF16, 0.1, []int64{3, 32, 64}},
			{"model.layers.0.self_attn.q_proj.weight", safetensors.BF16, 0.1, []int64{64, 64}},
		}}, fmt.Sprintf(`{"model_type": %q, "hidden_size": %d, "num_hidden_layers": 1}`, modelType,
			map[bool]int{true: 128, false: 64}[modelType == "other_width"])))
		plan, err := PlanQuantize(t.Context(), src.Source, QuantizeOptions{Quantizer: quant.Quantizer{Format: quant.NVFP4}})
		if err != nil {
			t.Fatal(err)
		}
		dst := filepath.Join(t.TempDir(), "out")
		result, err := plan.Run(context.Background(), dst, RunOptions{})
		if err != nil {
			t.Fatal(err)
		}
		warnings := withoutLimits(result.Warnings)
		if !slices.Equal(warnings, want) {
			t.Errorf("%s: the warnings are %q, want %q", modelType, warnings, want)
		}
		var ignore []string
		if want != nil {
			ignore = []string{"model.layers.0.mlp.experts", parent + "0.down_proj", parent + "0.gate_proj", parent + "0.up_proj"}
		}
		got := openModel(t, dst)
		ignored := got.Convention.Ignored(got.Ignore)
		if missing := slices.DeleteFunc(ignore, ignored); len(missing) > 0 || ignored(parent+"0.up_proj") != (want != nil) ||
			len(got.Problems) > 0 {
			t.Errorf("%s: the ignore list %q lacks %q; problems %v", modelType, got.Ignore, missing, got.Problems)
		}
	}
}

// matrix returns the rows of one expert, in the layout of a linear module, from a tensor in the
// layout of its file.
func matrix(t *testing.T, raw *checkpoint.Model, name string, expert, first, rows int, transposed bool) tensor.Dense {
	t.Helper()
	w, ok := raw.Lookup(name)
	if !ok {
		t.Fatalf("no tensor %s", name)
	}
	each := int(w.Shape[1])
	x, err := w.Read(expert*each, (expert+1)*each)
	if err != nil {
		t.Fatal(err)
	}
	if transposed {
		x = x.Transpose()
	}
	return x.View(first, first+rows, 0, x.Cols)
}

// sameAs compares a quantized weight with a matrix quantized by itself.
func sameAs(t *testing.T, q quant.Quantizer, m *checkpoint.Model, name string, x tensor.Dense, amax *float32) {
	t.Helper()
	w, ok := m.Lookup(name)
	if !ok || !w.Quantized() {
		t.Fatalf("%s is not quantized", name)
	}
	want, err := q.Rowwise(x, quant.With{Amax: amax})
	if err != nil {
		t.Fatal(err)
	}
	got, err := w.ReadCodes(checkpoint.Tile{To: x.Rows, ToCol: x.Cols})
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got.Codes, want.Codes) || !bytes.Equal(got.Scales, want.Scales) {
		t.Errorf("%s has other codes or scales than its matrix by itself", name)
	}
}

// TestGPTOSS converts the experts of gpt-oss, transposed and interleaved with biases, to MXFP4
// in the layout of the published checkpoints, and back.
func TestGPTOSS(t *testing.T) {
	const experts, hidden, inter = 3, 64, 32
	const parent = "model.layers.0.mlp.experts."
	dir := writeModel(t, map[string][]made{"model.safetensors": {
		{parent + "gate_up_proj", safetensors.BF16, 0.1, []int64{experts, hidden, 2 * inter}},
		{parent + "gate_up_proj_bias", safetensors.BF16, 0.1, []int64{experts, 2 * inter}},
		{parent + "down_proj", safetensors.BF16, 0.1, []int64{experts, inter, hidden}},
		{parent + "down_proj_bias", safetensors.BF16, 0.1, []int64{experts, hidden}},
		{"model.layers.0.self_attn.q_proj.weight", safetensors.BF16, 0.1, []int64{64, hidden}},
		{"model.layers.0.mlp.router.weight", safetensors.BF16, 0.1, []int64{experts, hidden}},
	}}, `{"model_type": "gpt_oss", "hidden_size": 64, "num_hidden_layers": 1, "torch_dtype": "bfloat16"}`)
	src := openModel(t, dir)
	raw := openModel(t, filepath.Join(dir, "model.safetensors"))
	q := quant.Quantizer{Format: quant.MXFP4}
	dst := filepath.Join(t.TempDir(), "out")
	plan, _ := quantize(t, src, dst, QuantizeOptions{Quantizer: q}, RunOptions{})
	if plan.convention.Name != "gpt-oss" || plan.Count(Quantize) != 2 {
		t.Fatalf("%d weights are quantized in %s", plan.Count(Quantize), plan.convention)
	}
	got := openModel(t, dst)
	compare(t, src, got)
	var listed []string
	for _, info := range got.Source.Tensors() {
		listed = append(listed, fmt.Sprintf("%s %s %v", strings.TrimPrefix(info.Name, parent), info.Dtype, info.Shape))
	}
	slices.Sort(listed)
	want := []string{
		"down_proj_bias BF16 [3 64]", "down_proj_blocks U8 [3 64 1 16]", "down_proj_scales U8 [3 64 1]",
		"gate_up_proj_bias BF16 [3 64]", "gate_up_proj_blocks U8 [3 64 2 16]", "gate_up_proj_scales U8 [3 64 2]",
		"model.layers.0.mlp.router.weight BF16 [3 64]", "model.layers.0.self_attn.q_proj.weight BF16 [64 64]",
	}
	if !slices.Equal(listed, want) {
		t.Errorf("the tensors are\n%s\nwant\n%s", strings.Join(listed, "\n"), strings.Join(want, "\n"))
	}
	for name, rows := range map[string]int{"gate_up_proj": 2 * inter, "down_proj": hidden} {
		w, _ := got.Lookup(parent + name)
		for e := range experts {
			x := matrix(t, raw, parent+name, e, 0, rows, true)
			one, err := q.Rowwise(x, quant.With{})
			if err != nil {
				t.Fatal(err)
			}
			part, err := w.ReadCodes(checkpoint.Tile{From: e * rows, To: (e + 1) * rows, ToCol: x.Cols})
			if err != nil {
				t.Fatal(err)
			}
			if !bytes.Equal(part.Codes, one.Codes) || !bytes.Equal(part.Scales, one.Scales) {
				t.Errorf("%s, expert %d: other codes or scales than its matrix by itself", name, e)
			}
		}
	}
	plain := filepath.Join(t.TempDir(), "plain")
	relabel(t, got, plain, relabeling{Convention: "plain"})
	again := filepath.Join(t.TempDir(), "again")
	middle := openModel(t, plain)
	sameCodes(t, got, middle)
	relabel(t, middle, again, relabeling{Convention: "gpt-oss"})
	sameFiles(t, again, dst)
	for _, name := range []string{"compressed-tensors", "quark", "mlx"} {
		_, err := planRelabel(got, relabeling{Convention: name})
		if err == nil || !strings.Contains(err.Error(), "_proj: convention "+name+" does not support it: fused experts with biases: "+name+
			" supports single experts without biases; nothing was written") {
			t.Errorf("to %s: error %v", name, err)
		}
	}
	for _, m := range []*checkpoint.Model{got, middle} {
		back := filepath.Join(t.TempDir(), "back")
		plan, err := PlanDequantize(t.Context(), m.Source, safetensors.BF16)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := plan.Run(context.Background(), back, RunOptions{}); err != nil {
			t.Fatal(err)
		}
		decoded := openModel(t, back)
		compare(t, m, decoded)
		w, _ := decoded.Source.Lookup(parent + "gate_up_proj")
		if !slices.Equal(w.Shape, []int64{experts, hidden, 2 * inter}) {
			t.Errorf("the decoded experts are %v, and were [experts, hidden, 2·intermediate]", w.Shape)
		}
		for e := range experts {
			x := matrix(t, openModel(t, filepath.Join(back, "model.safetensors")), parent+"gate_up_proj", e, 0, 2*inter, true)
			w, _ := got.Lookup(parent + "gate_up_proj")
			y, err := w.Read(e*2*inter, (e+1)*2*inter)
			if err != nil || !slices.Equal(x.Data, y.Data) {
				t.Errorf("expert %d is decoded to other values: %v", e, err)
			}
		}
	}
	if _, err := PlanQuantize(t.Context(), src.Source, QuantizeOptions{Quantizer: quant.Quantizer{Format: quant.NVFP4},
		Exclude: patterns("q_proj")}); err == nil || !strings.Contains(err.Error(),
		"fused experts with biases: compressed-tensors supports single experts without biases (2)") {
		t.Errorf("in NVFP4: error %v", err)
	}
}

// patterns compiles regular expressions.
func patterns(texts ...string) (all []*regexp.Regexp) {
	for _, text := range texts {
		all = append(all, regexp.MustCompile(text))
	}
	return all
}
