// Package llama is the Llama architecture (Touvron et al., 2023) over the modules
// of package nn: grouped-query attention, RMSNorm, rotary embedding in Hugging
// Face's arrangement, SwiGLU, a head of its own or tied to the embedding.
//
//	tokens → embed_tokens → layers → norm → lm_head → logits
//
//	layer   x += o_proj(attention(qkv_proj(input_layernorm(x))))
//	        x += down_proj(swiglu(gate_up_proj(post_attention_layernorm(x))))
//
// Q, K and V are the rows of one linear layer, as the gate and the other branch of
// SwiGLU are, so that the input is quantized once for them; Megatron-LM has them so
// (linear_qkv, linear_fc1). Checkpoints have them apart, under Hugging Face's names.
//
// The embedding and the head are in BF16 under every recipe but f32, as in
// Megatron-LM, and so are the layers that Options exempts.
//
// A model is for one goroutine at a time; it uses Scope.Threads goroutines itself,
// and results do not depend on how many.
package llama
