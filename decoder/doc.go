// Package decoder implements the Llama architecture (Touvron et al., 2023) with the modules of package
// nn: grouped-query attention, RMSNorm, rotary embedding as in Hugging Face's implementation,
// SwiGLU, and an output head that is separate or tied to the embedding.
//
//	tokens → embed_tokens → layers → norm → lm_head → logits
//
//	layer   x += o_proj(attention(qkv_proj(input_layernorm(x))))
//	        x += down_proj(swiglu(gate_up_proj(post_attention_layernorm(x))))
//
// Q, K and V are one linear layer, and so are gate and up, so that their input is quantized once
// (linear_qkv and linear_fc1 of Megatron-LM). Checkpoints store them separately, under Hugging
// Face's names.
//
// Embedding and head compute in BF16 under every recipe but f32, as in Megatron-LM, and so do the
// layers that Options exempts.
//
// A Model is not safe for concurrent use. It uses Scope.Threads goroutines; results do not depend on
// their number.
package decoder
