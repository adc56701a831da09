package verify_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/microscale-go/microscale/checkpoint"
	"github.com/microscale-go/microscale/checkpoint/client"
	"github.com/microscale-go/microscale/quant"
	"github.com/microscale-go/microscale/safetensors"
)

// modelOf is a checkpoint of a model type with one weight of 256×256 and a head.
func modelOf(t *testing.T, modelType, module string) *checkpoint.Model {
	t.Helper()
	d := &directory{tensors: map[string]entry{}, config: map[string]any{"model_type": modelType, "torch_dtype": "bfloat16"}}
	for i, name := range []string{module, "lm_head"} {
		d.set(name+".weight", safetensors.BF16, []int64{256, 256}, values(t, uint64(i), 256*256))
	}
	dir := t.TempDir()
	d.write(t, dir)
	return open(t, dir)
}

// TestModelRules: the combinations of architecture and format that a client cannot run.
func TestModelRules(t *testing.T) {
	const (
		expert  = "model.layers.0.mlp.experts.0.up_proj"
		shared  = "model.layers.0.mlp.shared_expert.up_proj"
		omitted = "the client omits the global scales of experts"
		kvB     = "model.layers.0.self_attn.kv_b_proj"
		mamba   = "model.layers.0.mamba.in_proj"
		down    = "model.layers.0.mlp.down_proj"
	)
	for _, tc := range []struct {
		client, modelType, module string
		format                    quant.Format
		convention, scheme        string
		want                      string // "": nothing
	}{
		{"transformers", "qwen3_moe", expert, quant.NVFP4, "compressed-tensors", "NVFP4A16", omitted},
		{"transformers", "mixtral", "model.layers.0.block_sparse_moe.experts.0.w1", quant.NVFP4, "compressed-tensors", "NVFP4", omitted},
		{"transformers", "jamba", "model.layers.0.feed_forward.experts.0.up_proj", quant.NVFP4, "compressed-tensors", "NVFP4A16", omitted},
		{"transformers", "qwen3_moe", expert, quant.MXFP8, "compressed-tensors", "MXFP8", "the client does not load experts in mxfp8"},
		{"transformers", "qwen3_moe", expert, quant.FP8Block, "compressed-tensors", "FP8_BLOCK",
			"the client does not load experts with scales of 128×128 blocks"},
		{"transformers", "qwen3_moe", expert, quant.FP8Block, "deepseek", "FP8", ""},
		{"transformers", "qwen3_moe", expert, quant.MXFP4, "compressed-tensors", "MXFP4A16", ""},
		{"transformers", "qwen3_moe", expert, quant.FP8Row, "compressed-tensors", "FP8_DYNAMIC", ""},
		{"transformers", "qwen3_moe", expert, quant.FP8Tensor, "compressed-tensors", "FP8_TOKEN", ""},
		{"transformers", "granitemoe", "model.layers.0.block_sparse_moe.experts.0.gate_proj", quant.FP8Row, "compressed-tensors", "FP8_DYNAMIC",
			"the client holds the experts of this model as one tensor"},
		{"transformers", "qwen2_moe", shared, quant.NVFP4, "compressed-tensors", "NVFP4A16", ""},
		{"transformers", "qwen3", down, quant.NVFP4, "compressed-tensors", "NVFP4A16", ""},
		{"vllm", "qwen3_moe", expert, quant.NVFP4, "compressed-tensors", "NVFP4A16", ""},
		{"vllm", "jamba", mamba, quant.MXFP8, "compressed-tensors", "MXFP8", "the client loads the projections of Mamba-1 unquantized only: " +
			"exclude them"},
		{"vllm", "falcon_mamba", "backbone.layers.0.mixer.out_proj", quant.FP8Block, "deepseek", "FP8", "the projections of Mamba-1"},
		{"vllm", "gpt_oss", expert, quant.MXFP8, "compressed-tensors", "MXFP8", "the client does not load gpt-oss in compressed-tensors"},
		{"vllm", "gpt_oss", down, quant.MXFP8, "compressed-tensors", "MXFP8", ""},
		{"vllm", "qwen3_moe", expert, quant.FP8Tensor, "compressed-tensors", "FP8_TOKEN", "only with stored scales of activations"},
		{"vllm", "qwen3_moe", expert, quant.FP8Tensor, "compressed-tensors", "FP8", ""},
		{"vllm", "qwen3_moe", expert, quant.FP8Row, "compressed-tensors", "FP8_DYNAMIC", ""},
		{"vllm", "qwen3_moe", expert, quant.FP8Row, "modelopt", "FP8_PER_CHANNEL_PER_TOKEN",
			"the client does not load experts in fp8-row"},
		{"vllm", "mamba2", "backbone.layers.0.mixer.out_proj", quant.MXFP8, "compressed-tensors", "MXFP8", ""},
		{"vllm", "jamba", "model.layers.0.feed_forward.up_proj", quant.MXFP8, "compressed-tensors", "MXFP8", ""},
		{"mlx", "deepseek_v3", kvB, quant.MXFP4, "mlx", "mxfp4", "the client reads kv_b_proj unquantized or in affine formats only"},
		{"mlx", "deepseek_v3", kvB, quant.NVFP4, "mlx", "nvfp4", "the client reads kv_b_proj"},
		{"mlx", "qwen3_moe", expert, quant.MXFP4, "mlx", "mxfp4", ""}, // all experts of a layer are in one tensor
		{"mlx", "qwen3_5_moe", expert, quant.MXFP4, "mlx", "mxfp4", "the client does not join the scales of single experts of this model"},
		{"mlx", "qwen2_moe", expert, quant.MXFP4, "mlx", "mxfp4", ""},
		{"mlx", "mixtral", "model.layers.0.block_sparse_moe.experts.0.w1", quant.MXFP4, "mlx", "mxfp4", ""},
		{"mlx", "deepseek_v3", "model.layers.0.self_attn.o_proj", quant.MXFP4, "mlx", "mxfp4", ""},
		{"mlx", "minicpm3", kvB, quant.MXFP4, "mlx", "mxfp4", ""},
		{"llamacpp", "qwen2", down, quant.NVFP4, "compressed-tensors", "NVFP4A16", "the graph of qwen2 ignores global scales"},
		{"llamacpp", "deepseek_v3", down, quant.NVFP4, "modelopt", "W4A16_NVFP4", "the graph of deepseek2 ignores global scales"},
		{"llamacpp", "qwen3", down, quant.NVFP4, "compressed-tensors", "NVFP4A16", ""},
		{"llamacpp", "qwen2", down, quant.FP8Block, "compressed-tensors", "FP8_BLOCK", ""},
	} {
		t.Run(tc.client+" "+tc.modelType+" "+tc.convention+" "+tc.scheme, func(t *testing.T) {
			m := open(t, stored(t, modelOf(t, tc.modelType, tc.module), tc.format, tc.convention, tc.scheme))
			if len(m.Problems) > 0 || m.Quantized() != 1 {
				t.Fatalf("%d weights are quantized; problems %v", m.Quantized(), m.Problems)
			}
			c, err := client.Lookup(tc.client)
			if err != nil {
				t.Fatal(err)
			}
			problems := c.Rejects(m)
			named := func(p checkpoint.Problem) bool {
				return (p.Tensor == tc.module+".weight" || p.Tensor == "") && strings.Contains(p.Text, tc.want)
			}
			if tc.want == "" && len(problems) > 0 || tc.want != "" && (len(problems) != 1 || !slices.ContainsFunc(problems, named)) {
				t.Errorf("problems are %v, want %q", problems, tc.want)
			}
		})
	}
}
