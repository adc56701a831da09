package convert

import (
	"testing"

	"github.com/microscale-go/microscale/checkpoint"
	"github.com/microscale-go/microscale/quant"
	"github.com/microscale-go/microscale/safetensors"
)

// TestLeft: names of weights as the models of Hugging Face have them, and the reasons why they
// are not quantized.
func TestLeft(t *testing.T) {
	for name, want := range map[string]string{
		"model.layers.0.self_attn.q_proj.weight":                               "",
		"model.layers.0.mlp.gate_proj.weight":                                  "",
		"model.layers.3.mlp.experts.17.down_proj.weight":                       "",
		"model.layers.3.block_sparse_moe.experts.2.w1.weight":                  "",
		"encoder.layer.0.output.dense.weight":                                  "",
		"pooler.dense.weight":                                                  "",
		"transformer.h.0.mlp.dense_4h_to_h.weight":                             "",
		"model.layers.0.input_layernorm.weight":                                "norm",
		"transformer.h.0.ln_1.weight":                                          "norm",
		"model.embed_tokens.weight":                                            "embedding",
		"bert.embeddings.word_embeddings.weight":                               "embedding",
		"transformer.wte.weight":                                               "embedding",
		"transformer.wpe.weight":                                               "embedding",
		"shared.weight":                                                        "embedding",
		"rwkv.pos_emb.weight":                                                  "embedding",
		"emb.weight":                                                           "embedding",
		"encoder.block.0.layer.0.SelfAttention.relative_attention_bias.weight": "embedding",
		"lm_head.weight":                                                       "output head",
		"output.weight":                                                        "output head",
		"head.weight":                                                          "output head",
		"cls.predictions.decoder.weight":                                       "output head",
		"qa_outputs.weight":                                                    "output head",
		"model.layers.3.mlp.gate.weight":                                       "router",
		"model.layers.3.mlp.shared_expert_gate.weight":                         "router",
		"model.layers.3.block_sparse_moe.router.weight":                        "router",
		"transformer.h.0.attn.c_attn.weight":                                   "transposed, as GPT-2 has it",
		"model.layers.0.mamba.in_proj.weight":                                  "",
		"model.layers.0.mamba.x_proj.weight":                                   "step sizes of Mamba",
		"backbone.layers.0.mixer.dt_proj.weight":                               "step sizes of Mamba",
		"model.layers.0.conv.in_proj.weight":                                   "",
		"single_transformer_blocks.0.proj_out.weight":                          "",
		"proj_out.weight":                                                      "output head",
		"model.mtp_linear_proj.0.weight":                                       "multi-token prediction",
		"model.mtp_layers.0.input_proj.weight":                                 "multi-token prediction",
		"model.vision_tower.encoder.layers.0.self_attn.q_proj.weight":          "vision or audio",
		"visual.blocks.0.attn.qkv.weight":                                      "vision or audio",
		"multi_modal_projector.linear_1.weight":                                "vision or audio",
		"mtp.layers.0.mlp.up_proj.weight":                                      "multi-token prediction",
		"model.layers.61.eh_proj.weight":                                       "multi-token prediction",
	} {
		w := &checkpoint.Weight{Name: name, Shape: []int64{128, 128}, Dtype: safetensors.BF16}
		if _, got := (selection{treatments: []quant.Quantizer{{Format: quant.MXFP8}}}).decide(w, checkpoint.Plain()); got.Detail != want ||
			(want != "") != (got.cause == causeRole) {
			t.Errorf("%s stays because of %q, want %q", name, got, want)
		}
	}
}
