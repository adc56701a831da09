"""Writes small random checkpoints of many architectures with transformers' own classes,
for architectures_test.go: python architectures.py DIRECTORY

DIRECTORY/NAME is in BF16, with two layers (four where layers alternate), a hidden size of 128 and a
vocabulary of bytes. Matrices have entries of standard deviation 1/sqrt(columns), so that
layers change the logits. The width of Gemma has a square root that BF16 holds. DIRECTORY/NAME-reversed has the layers in reverse order, where they
are alike.
"""

import json
import os
import sys

import torch
import transformers

dense = dict(
    vocab_size=256, hidden_size=128, intermediate_size=256, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
    max_position_embeddings=512, bos_token_id=None, eos_token_id=None, pad_token_id=None, tie_word_embeddings=False,
)
moe = dict(moe_intermediate_size=128, num_experts=4, num_experts_per_tok=2, norm_topk_prob=True)
clip = dict(hidden_size=64, intermediate_size=128, num_hidden_layers=2, num_attention_heads=2, image_size=32, patch_size=16, projection_dim=64)
qwen2_vision = dict(depth=2, embed_dim=64, hidden_size=128, num_heads=2, mlp_ratio=2, patch_size=14)


def longrope(original):
    factors = dict(short_factor=[1.0 + 0.05 * i for i in range(12)], long_factor=[1.5 + 0.25 * i for i in range(12)])
    return dict(
        original_max_position_embeddings=original,
        rope_parameters=dict(rope_type="longrope", rope_theta=10000.0, partial_rotary_factor=0.75, original_max_position_embeddings=original, **factors))


sizes = {
    "llama": ("LlamaForCausalLM", {}),
    "mistral": ("MistralForCausalLM", dict(head_dim=32)),
    "qwen2": ("Qwen2ForCausalLM", {}),
    "qwen3": ("Qwen3ForCausalLM", dict(head_dim=32)),
    "qwen2_moe": ("Qwen2MoeForCausalLM", moe | dict(shared_expert_intermediate_size=256, norm_topk_prob=False)),
    "qwen3_moe": ("Qwen3MoeForCausalLM", moe | dict(head_dim=32)),
    "mixtral": ("MixtralForCausalLM", dict(num_local_experts=4, num_experts_per_tok=2, head_dim=32)),
    "gpt_oss": ("GptOssForCausalLM", dict(num_local_experts=4, num_experts_per_tok=2, head_dim=32, intermediate_size=128)),
    "deepseek_v3": ("DeepseekV3ForCausalLM", dict(
        num_hidden_layers=3, moe_intermediate_size=128, n_routed_experts=4, n_shared_experts=1, num_experts_per_tok=2, n_group=2, topk_group=1, first_k_dense_replace=1,
        q_lora_rank=64, kv_lora_rank=64, qk_nope_head_dim=32, qk_rope_head_dim=32, v_head_dim=32, num_key_value_heads=4,
        rope_parameters=dict(rope_type="yarn", rope_theta=10000.0, factor=4.0, original_max_position_embeddings=128, mscale=1.0, mscale_all_dim=1.0))),
    "gemma2": ("Gemma2ForCausalLM", dict(
        hidden_size=256, head_dim=32, tie_word_embeddings=True, query_pre_attn_scalar=32, sliding_window=64, attn_logit_softcapping=5.0, final_logit_softcapping=3.0)),
    "gemma3_text": ("Gemma3ForCausalLM", dict(
        hidden_size=256, head_dim=32, tie_word_embeddings=True, query_pre_attn_scalar=32, sliding_window=64, num_hidden_layers=6)),
    "phi3": ("Phi3ForCausalLM", {}),
    "phi3_long": ("Phi3ForCausalLM", longrope(128)),
    "phi3_short": ("Phi3ForCausalLM", longrope(256)),
    "smollm3": ("SmolLM3ForCausalLM", dict(tie_word_embeddings=True, num_hidden_layers=4)),
    "granite": ("GraniteForCausalLM", dict(embedding_multiplier=2.0, residual_multiplier=0.7, attention_multiplier=0.25, logits_scaling=1.5)),
    "olmo2": ("Olmo2ForCausalLM", {}),
    "olmo3": ("Olmo3ForCausalLM", dict(
        num_hidden_layers=4, sliding_window=64, layer_types=["sliding_attention", "full_attention"] * 2,
        rope_parameters=dict(
            sliding_attention=dict(rope_type="default", rope_theta=10000.0),
            full_attention=dict(rope_type="yarn", rope_theta=10000.0, factor=4.0, original_max_position_embeddings=128, attention_factor=1.3)))),
    "glm4": ("Glm4ForCausalLM", dict(head_dim=32)),
    "jamba": ("JambaForCausalLM", dict(
        num_hidden_layers=4, attn_layer_period=4, attn_layer_offset=2, expert_layer_period=2, expert_layer_offset=1, num_experts=4, num_experts_per_tok=2,
        mamba_d_state=16, mamba_dt_rank=32, use_mamba_kernels=False)),
    "qwen3_next": ("Qwen3NextForCausalLM", moe | dict(
        num_hidden_layers=4, head_dim=32, shared_expert_intermediate_size=128, linear_num_key_heads=2, linear_num_value_heads=4,
        linear_key_head_dim=32, linear_value_head_dim=32)),
    "mamba": ("MambaForCausalLM", dict(state_size=16, time_step_rank=32)),
    "llava": ("LlavaForConditionalGeneration", dict(
        text_config=dict(dense, model_type="llama"), vision_config=dict(clip, model_type="clip_vision_model"), image_token_index=255, tie_word_embeddings=False)),
    "qwen2_vl": ("Qwen2VLForConditionalGeneration", dict(
        text_config=dict(dense, rope_parameters=dict(rope_type="default", rope_theta=10000.0, mrope_section=[4, 6, 6])), vision_config=qwen2_vision, tie_word_embeddings=False,
        image_token_id=250, video_token_id=251, vision_start_token_id=252, vision_end_token_id=253)),
    "whisper": ("WhisperForConditionalGeneration", dict(
        vocab_size=256, d_model=128, encoder_layers=2, decoder_layers=2, encoder_attention_heads=4, decoder_attention_heads=4, encoder_ffn_dim=256,
        decoder_ffn_dim=256, num_mel_bins=32, max_source_positions=64, max_target_positions=64, pad_token_id=0, bos_token_id=1, eos_token_id=2,
        decoder_start_token_id=1, suppress_tokens=[], begin_suppress_tokens=[])),
    "t5": ("T5ForConditionalGeneration", dict(
        vocab_size=256, d_model=128, d_kv=32, d_ff=256, num_layers=2, num_heads=4, feed_forward_proj="gated-gelu", tie_word_embeddings=False, decoder_start_token_id=0)),
    "bert": ("BertForMaskedLM", dict(
        vocab_size=256, hidden_size=128, intermediate_size=256, num_hidden_layers=2, num_attention_heads=4, max_position_embeddings=512)),
}
whole = {"llava", "qwen2_vl", "whisper", "t5", "bert"}  # have no members of dense at the top



def as_published(config):
    """Adds the keys that earlier versions of transformers wrote, and that other clients read."""
    rope = config.get("rope_parameters") or {}
    if "full_attention" in rope:
        if config["model_type"] == "gemma3_text":
            config["rope_local_base_freq"] = rope["sliding_attention"]["rope_theta"]
            config["sliding_window_pattern"] = config["num_hidden_layers"]
        rope = rope["full_attention"]
    for key in ("rope_theta", "partial_rotary_factor"):
        if key in rope:
            config[key] = rope[key]
    if config["model_type"] == "gpt_oss" or rope.get("rope_type") == "longrope":
        config["rope_scaling"] = rope
    if config["model_type"] == "qwen3_moe":
        config["num_experts"] = config["num_local_experts"]
    if config["model_type"] == "deepseek_v3":
        config.update(topk_method="noaux_tc", scoring_func="sigmoid")


def save(model, directory):
    model.to(torch.bfloat16).save_pretrained(directory)
    path = os.path.join(directory, "config.json")
    with open(path) as f:
        config = json.load(f)
    for part in (config, config.get("text_config")):
        if part:
            as_published(part)
    config["microscale"] = {"vocabulary": "bytes"}
    with open(path, "w") as f:
        json.dump(config, f, indent=2)


for name, (cls, members) in sizes.items():
    torch.manual_seed(1)
    cls = getattr(transformers, cls)
    model = cls(cls.config_class(**(members if name in whole else dense | members)))
    with torch.no_grad():
        for key, p in model.named_parameters():
            if p.dim() >= 2 and "conv" not in key and not key.endswith("A_log"):
                p.normal_(0, p.shape[-1] ** -0.5)
            elif key.endswith("sinks"):
                p.normal_(0, 1)
            elif key.endswith("bias") and "dt_proj" not in key:
                p.normal_(0, 0.1)
        for key, b in model.named_buffers():
            if key.endswith("e_score_correction_bias"):
                b.normal_(0, 0.2)
    save(model, os.path.join(sys.argv[1], name))
    if layers := getattr(model.get_decoder() if name not in whole else None, "layers", None):
        shapes = [{k: v.shape for k, v in layer.state_dict().items()} for layer in layers]
        alike = [layer for layer, of in zip(layers, shapes) if of == shapes[-1]]  # the first of DeepSeek-V3 has no experts
        if len(alike) > 1:
            states = [{k: v.clone() for k, v in layer.state_dict().items()} for layer in alike]
            for layer, state in zip(alike, reversed(states)):
                layer.load_state_dict(state)
            save(model, os.path.join(sys.argv[1], name + "-reversed"))
