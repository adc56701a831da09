package convert

import (
	"cmp"
	"path/filepath"
	"strings"
	"testing"

	"github.com/microscale-go/microscale/checkpoint"
	"github.com/microscale-go/microscale/checkpoint/client"
	"github.com/microscale-go/microscale/quant"
	"github.com/microscale-go/microscale/safetensors"
)

// structures are models with a structure that some clients do not read.
var structures = []struct {
	name    string
	dtype   safetensors.Dtype
	config  string
	weights map[string][]int64
}{
	{"tied", safetensors.F32, `{"model_type": "llama", "torch_dtype": "float32", "tie_word_embeddings": true, "hidden_size": 128}`,
		map[string][]int64{
			"model.embed_tokens.weight": {256, 128}, "model.layers.0.self_attn.q_proj.weight": {128, 128},
			"model.layers.0.self_attn.k_proj.weight": {64, 128},
			"model.layers.0.self_attn.v_proj.weight": {64, 128}, "model.layers.0.mlp.up_proj.weight": {256, 128},
			"model.layers.0.mlp.gate_proj.weight": {256, 128},
			"model.norm.weight":                   {128}}},
	{"half", safetensors.F16, `{"model_type": "qwen3", "dtype": "float16", "hidden_size": 128}`, map[string][]int64{
		"lm_head.weight": {256, 128}, "model.layers.0.mlp.down_proj.weight": {128, 256}}},
	{"mixture", safetensors.BF16, `{"model_type": "qwen3_moe", "torch_dtype": "bfloat16", "hidden_size": 128}`, map[string][]int64{
		"lm_head.weight": {256, 128}, "model.layers.0.self_attn.o_proj.weight": {128, 128}, "model.layers.0.mlp.gate.weight": {4, 128},
		"model.layers.0.mlp.experts.0.up_proj.weight": {256, 128}, "model.layers.0.mlp.experts.0.gate_proj.weight": {256, 128},
		"model.layers.0.mlp.experts.0.down_proj.weight": {128, 256}}},
	{"latent", safetensors.BF16, `{"model_type": "deepseek_v3", "torch_dtype": "bfloat16", "hidden_size": 128}`, map[string][]int64{
		"lm_head.weight": {256, 128}, "model.layers.0.self_attn.q_a_proj.weight": {256, 128},
		"model.layers.0.self_attn.kv_a_proj_with_mqa.weight": {192, 128},
		"model.layers.0.self_attn.kv_b_proj.weight":          {128, 128}, "model.layers.0.mlp.down_proj.weight": {128, 256}}},
	{"mamba", safetensors.BF16, `{"model_type": "mamba", "torch_dtype": "bfloat16", "hidden_size": 128}`, map[string][]int64{
		"backbone.embeddings.weight": {256, 128}, "backbone.layers.0.mixer.in_proj.weight": {512, 128},
		"backbone.layers.0.mixer.out_proj.weight": {128, 256}}},
	{"t5", safetensors.BF16, `{"model_type": "t5", "torch_dtype": "bfloat16", "d_model": 128}`, map[string][]int64{
		"shared.weight": {256, 128}, "encoder.block.0.layer.0.SelfAttention.q.weight": {128, 128},
		"encoder.block.0.layer.1.DenseReluDense.wo.weight": {128, 256}}},
	{"biased", safetensors.BF16, `{"model_type": "gpt_oss", "torch_dtype": "bfloat16", "hidden_size": 128, "num_local_experts": 4}`,
		map[string][]int64{
			"lm_head.weight": {256, 128}, "model.layers.0.self_attn.o_proj.weight": {128, 128}, "model.layers.0.mlp.router.weight": {4, 128},
			"model.layers.0.mlp.experts.gate_up_proj": {4, 128, 256}, "model.layers.0.mlp.experts.gate_up_proj_bias": {4, 256},
			"model.layers.0.mlp.experts.down_proj": {4, 128, 128}, "model.layers.0.mlp.experts.down_proj_bias": {4, 128}}},
	{"adapter", safetensors.BF16, `{"model_type": "llava", "torch_dtype": "bfloat16", "text_config": {"model_type": "llama", ` +
		`"hidden_size": 128}}`, map[string][]int64{
		"language_model.lm_head.weight": {256, 128}, "language_model.model.layers.0.mlp.up_proj.weight": {256, 128},
		"multi_modal_projector.linear_1.weight":                     {128, 128},
		"vision_tower.vision_model.encoder.layers.0.mlp.fc1.weight": {256, 128}}},
}

// TestForClients: what is written for a client has nothing that it rejects or misreads. Where that is
// impossible, there is an error.
func TestForClients(t *testing.T) {
	refusals := map[string]string{ // the only ones, by client, structure and format
		"transformers mixture nvfp4": "the client omits the global scales of experts",
		"transformers t5 mxfp4":      "a packed module has none: choose mxfp8 or fp8-row",
		"transformers t5 nvfp4":      "a packed module has none: choose mxfp8 or fp8-row",
		"transformers t5 int4-g32":   "a packed module has none: choose mxfp8 or fp8-row",
		"transformers t5 int4-g64":   "a packed module has none: choose mxfp8 or fp8-row",
		"transformers t5 int4-g128":  "a packed module has none: choose mxfp8 or fp8-row",
		"transformers t5 int8-g128":  "a packed module has none: choose mxfp8 or fp8-row",
		"vllm mixture fp8-tensor":    "only with stored scales of activations",
		"vllm mamba":                 "the client loads the projections of Mamba-1 unquantized only", // in every format
	}
	for _, s := range structures {
		var tensors []made
		for name, shape := range s.weights {
			tensors = append(tensors, made{name, s.dtype, 0.1, shape})
		}
		src := openModel(t, writeModel(t, map[string][]made{"model.safetensors": tensors}, s.config))
		for _, c := range client.All() {
			for _, f := range quant.Formats() {
				storages, err := c.Stores(f)
				if err != nil || storages[0].Convention.OneFile() { // of complete models only
					continue
				}
				name := c.Name + " " + s.name + " " + f.Name
				t.Run(name, func(t *testing.T) {
					o := QuantizeOptions{Quantizer: quant.Quantizer{Format: f}, Client: c.Name}
					if c.Name == "trtllm" && f.Name == quant.FP8Tensor.Name { // its only scheme stores scales of activations
						o.Calibration = &Calibration{ConstantInputs: true}
					}
					plan, err := PlanQuantize(t.Context(), src.Source, o)
					want := cmp.Or(refusals[name], refusals[c.Name+" "+s.name])
					if s.name == "biased" && f.Name != quant.MXFP4.Name {
						want = cmp.Or(want, "most of the model would stay unquantized for "+c.Name+": fused experts with biases")
					}
					if err != nil || want != "" {
						if err == nil || want == "" || !strings.Contains(err.Error(), want) {
							t.Errorf("error %v, want %q", err, want)
						}
						return
					}
					dst := filepath.Join(t.TempDir(), "out")
					if _, err := plan.Run(t.Context(), dst, RunOptions{}); err != nil {
						t.Fatal(err)
					}
					got := openModel(t, dst)
					if problems := c.Rejects(got); len(problems) > 0 || len(got.Problems) > 0 {
						t.Errorf("the client rejects %v; problems %v; notes %q", problems, got.Problems, plan.Notes)
					}
				})
			}
		}
	}
}

// inputsOfTied returns the amaxes of the inputs of a "tied" model.
func inputsOfTied() *Calibration {
	c := &Calibration{Input: map[string]float64{}}
	for _, module := range []string{"self_attn.q_proj", "self_attn.k_proj", "mlp.up_proj", "mlp.gate_proj"} {
		c.Input["model.layers.0."+module] = 1
	}
	return c
}

// TestForClient: the convention that is chosen, and the weights that are left.
func TestForClient(t *testing.T) {
	for _, tc := range []struct {
		structure  string
		client     string
		format     quant.Format
		options    QuantizeOptions
		convention string
		left       string // names of weights
		want       string // of the error or the notes
	}{
		{"mixture", "transformers", quant.MXFP8, QuantizeOptions{}, "mxfp8", "", ""},
		{"mixture", "transformers", quant.FP8Block, QuantizeOptions{}, "deepseek", "", ""},
		{"mixture", "transformers", quant.MXFP8, QuantizeOptions{Exclude: patterns("experts")}, "compressed-tensors", "", ""},
		{"mixture", "transformers", quant.NVFP4, QuantizeOptions{Exclude: patterns("experts")}, "", "",
			"the client does not load unquantized experts beside other weights in nvfp4"},
		{"mixture", "transformers", quant.MXFP8, QuantizeOptions{Scheme: "MXFP8A16"}, "", "", "the client does not load experts in mxfp8"},
		{"mixture", "vllm", quant.NVFP4, QuantizeOptions{Calibration: &Calibration{ConstantInputs: true}}, "compressed-tensors", "", ""},
		{"latent", "mlx", quant.MXFP4, QuantizeOptions{}, "mlx", "model.layers.0.self_attn.kv_b_proj.weight",
			"1 weights stay unquantized: model.layers.0.self_attn.kv_b_proj.weight: mlx: the client reads kv_b_proj unquantized"},
		{"tied", "vllm", quant.FP8Block, QuantizeOptions{Exclude: patterns("v_proj")}, "compressed-tensors",
			"model.layers.0.self_attn.k_proj.weight model.layers.0.self_attn.q_proj.weight",
			"2 weights stay unquantized: model.layers.0.self_attn.v_proj.weight: vllm: it is f32 and model.layers.0.self_attn.q_proj.weight is " +
				"fp8-block128, and the client fuses them"},
		{"biased", "vllm", quant.MXFP4, QuantizeOptions{}, "gpt-oss", "", ""},
		{"biased", "sglang", quant.NVFP4, QuantizeOptions{}, "", "", "convention gpt-oss supports them in mxfp4"},
		{"latent", "mlx", quant.MXFP4, QuantizeOptions{Convention: "mlx"}, "", "",
			"client mlx chooses the convention: omit the client, or convention mlx"},
		{"tied", "vllm", quant.FP8Tensor, QuantizeOptions{Calibration: inputsOfTied(), Exclude: patterns("v_proj")}, "", "",
			"it is f32 and model.layers.0.self_attn.q_proj.weight is fp8-tensor, and the client fuses them into one module; without it, " +
				"calibration: model.layers.0."},
		{"mixture", "none", quant.MXFP4, QuantizeOptions{}, "", "", `unknown client "none"`},
		{"mixture", "mlx", quant.FP8Row, QuantizeOptions{}, "", "", "mlx does not read fp8-row: use one of"},
	} {
		var src *checkpoint.Model
		for _, s := range structures {
			if s.name == tc.structure {
				var tensors []made
				for name, shape := range s.weights {
					tensors = append(tensors, made{name, s.dtype, 0.1, shape})
				}
				src = openModel(t, writeModel(t, map[string][]made{"model.safetensors": tensors}, s.config))
			}
		}
		o := tc.options
		o.Quantizer, o.Client = quant.Quantizer{Format: tc.format}, tc.client
		plan, err := PlanQuantize(t.Context(), src.Source, o)
		if tc.convention == "" {
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("%s for %s in %s: error %v, want %q", tc.structure, tc.client, tc.format, err, tc.want)
			}
			continue
		}
		if err != nil {
			t.Errorf("%s for %s in %s: %v", tc.structure, tc.client, tc.format, err)
			continue
		}
		left := map[string]bool{}
		for _, d := range plan.decisions {
			if d.reason.cause == causeClient {
				left[d.Name] = true
			}
		}
		for name := range strings.FieldsSeq(tc.left) {
			if !left[name] {
				t.Errorf("%s for %s in %s: %s is quantized", tc.structure, tc.client, tc.format, name)
			}
			delete(left, name)
		}
		if plan.Convention != tc.convention || len(left) > 0 || !strings.Contains(strings.Join(plan.Notes, "\n"), tc.want) {
			t.Errorf("%s for %s in %s: convention %s, %v stay too, notes %q", tc.structure, tc.client, tc.format, plan.Convention, left, plan.Notes)
		}
	}
}
