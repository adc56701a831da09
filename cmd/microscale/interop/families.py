"""Writes small random decoders of each family with transformers' own classes, and their logits, for
families_test.go: python families.py DIRECTORY

DIRECTORY/NAME/model is a checkpoint in F32 whose weights have a standard deviation of 1/sqrt(columns).
DIRECTORY/NAME/expected.safetensors has the tokens of one sequence and the logits, computed in F32 with the
eager implementation of attention.
"""

import os
import sys

import torch
import transformers
from safetensors.torch import save_file

LENGTH = 200  # several times the windows below

base = dict(
    vocab_size=256, hidden_size=128, intermediate_size=192, num_hidden_layers=4, num_attention_heads=4, num_key_value_heads=2,
    max_position_embeddings=512, bos_token_id=None, eos_token_id=None, pad_token_id=None, tie_word_embeddings=False,
)
moe = dict(moe_intermediate_size=96, num_experts=4, num_experts_per_tok=2)
yarn = dict(rope_type="yarn", rope_theta=10000.0, factor=4.0, original_max_position_embeddings=128)
alternating = ["sliding_attention", "full_attention"] * 2
longrope = dict(
    rope_type="longrope", rope_theta=10000.0, factor=4.0, original_max_position_embeddings=128, partial_rotary_factor=0.75,
    short_factor=[1.0 + 0.05 * i for i in range(12)], long_factor=[1.5 + 0.25 * i for i in range(12)])

models = {
    "llama": ("LlamaForCausalLM", {}),
    "llama-3": ("LlamaForCausalLM", dict(tie_word_embeddings=True, rope_parameters=dict(
        rope_type="llama3", rope_theta=10000.0, factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0, original_max_position_embeddings=64))),
    "llama-linear": ("LlamaForCausalLM", dict(attention_bias=True, mlp_bias=True, rope_parameters=dict(rope_type="linear", rope_theta=10000.0, factor=4.0))),
    "mistral": ("MistralForCausalLM", dict(head_dim=48, sliding_window=32)),
    "ministral": ("MistralForCausalLM", dict(head_dim=32, sliding_window=None, rope_parameters=yarn)),
    "smollm3": ("SmolLM3ForCausalLM", dict(tie_word_embeddings=True, pad_token_id=0)),
    "qwen2": ("Qwen2ForCausalLM", dict(sliding_window=32)),
    "qwen2-window": ("Qwen2ForCausalLM", dict(use_sliding_window=True, sliding_window=32, max_window_layers=2, rope_parameters=yarn)),
    "qwen3": ("Qwen3ForCausalLM", dict(head_dim=48)),
    "qwen3-moe": ("Qwen3MoeForCausalLM", moe | dict(head_dim=32, norm_topk_prob=True, mlp_only_layers=[1])),
    "qwen2-moe": ("Qwen2MoeForCausalLM", moe | dict(shared_expert_intermediate_size=64, norm_topk_prob=False)),
    "mixtral": ("MixtralForCausalLM", dict(num_local_experts=4, num_experts_per_tok=2)),
    "gemma2": ("Gemma2ForCausalLM", dict(head_dim=32, sliding_window=32, query_pre_attn_scalar=48, tie_word_embeddings=True, attn_logit_softcapping=5.0, final_logit_softcapping=3.0)),
    "gemma3": ("Gemma3ForCausalLM", dict(
        head_dim=32, sliding_window=32, query_pre_attn_scalar=48, tie_word_embeddings=True, layer_types=["sliding_attention"] * 3 + ["full_attention"],
        rope_parameters=dict(sliding_attention=dict(rope_type="default", rope_theta=10000.0), full_attention=dict(rope_type="linear", rope_theta=1e6, factor=8.0)))),
    "gemma2-heads": ("Gemma2ForCausalLM", dict(head_dim=48, sliding_window=32, query_pre_attn_scalar=48, tie_word_embeddings=True, attn_logit_softcapping=5.0, final_logit_softcapping=3.0)),
    "gemma3-heads": ("Gemma3ForCausalLM", dict(
        head_dim=48, sliding_window=32, query_pre_attn_scalar=48, tie_word_embeddings=True, num_hidden_layers=6,
        rope_parameters=dict(sliding_attention=dict(rope_type="default", rope_theta=10000.0), full_attention=dict(rope_type="linear", rope_theta=1e6, factor=8.0)))),
    "phi3": ("Phi3ForCausalLM", dict(sliding_window=32)),
    "phi3-partial": ("Phi3ForCausalLM", dict(rope_parameters=dict(rope_type="default", rope_theta=10000.0, partial_rotary_factor=0.75))),
    "phi3-long": ("Phi3ForCausalLM", dict(original_max_position_embeddings=128, rope_parameters=longrope)),
    "phi3-short": ("Phi3ForCausalLM", dict(original_max_position_embeddings=256, rope_parameters=longrope | dict(original_max_position_embeddings=256))),
    "granite": ("GraniteForCausalLM", dict(embedding_multiplier=6.0, residual_multiplier=0.3, attention_multiplier=0.1, logits_scaling=4.0)),
    "olmo2": ("Olmo2ForCausalLM", {}),
    "olmo3": ("Olmo3ForCausalLM", dict(sliding_window=32, layer_types=["sliding_attention"] * 3 + ["full_attention"])),
    "gpt-oss": ("GptOssForCausalLM", dict(
        num_local_experts=4, num_experts_per_tok=2, head_dim=32, intermediate_size=96, sliding_window=32, layer_types=alternating,
        rope_parameters=yarn | dict(beta_fast=32.0, beta_slow=1.0, truncate=False))),
    "glm4": ("Glm4ForCausalLM", dict(head_dim=32, attention_bias=True)),
    "deepseek-v3": ("DeepseekV3ForCausalLM", dict(
        moe_intermediate_size=96, n_routed_experts=8, n_shared_experts=2, num_experts_per_tok=3, n_group=4, topk_group=2, first_k_dense_replace=1,
        routed_scaling_factor=2.5, norm_topk_prob=True, q_lora_rank=48, kv_lora_rank=32, qk_nope_head_dim=24, qk_rope_head_dim=16, v_head_dim=20, num_key_value_heads=4,
        rope_parameters=yarn | dict(mscale=1.0, mscale_all_dim=1.0))),
}


def randomize(model):
    for key, p in model.named_parameters():
        if p.dim() >= 2:
            p.normal_(0, p.shape[-1] ** -0.5)
        elif key.endswith("norm.weight") or "layernorm" in key:
            p.add_(torch.randn_like(p), alpha=0.1)
        else:
            p.normal_(0, 0.5)
    for key, b in model.named_buffers():
        if key.endswith("e_score_correction_bias"):
            b.normal_(0, 0.2)


for name, (cls, members) in models.items():
    torch.manual_seed(1)
    cls = getattr(transformers, cls)
    model = cls(cls.config_class(**(base | members), attn_implementation="eager")).float().eval()
    directory = os.path.join(sys.argv[1], name)
    with torch.no_grad():
        randomize(model)
        tokens = torch.randint(0, 256, (1, LENGTH))
        logits = model(tokens).logits
    model.save_pretrained(os.path.join(directory, "model"))
    save_file({"tokens": tokens.int(), "logits": logits.contiguous()}, os.path.join(directory, "expected.safetensors"))
