// Package decoder implements decoder-only language models: Llama (Touvron et al., 2023) and the families
// that differ from it in data.
//
//	tokens → embed_tokens → layers → norm → lm_head → logits
//
//	layer   x += o_proj(attention(qkv_proj(input_layernorm(x))))
//	        x += down_proj(glu(gate_up_proj(post_attention_layernorm(x))))
//
// A family is a row of a table: configuration keys, names of tensors, and what differs from the
// formulas above, such as norms of outputs, windows of attention or experts. A row and a configuration
// compile into a Plan, which is all that the model computes from.
//
// Q, K and V are one linear layer, and so are gate and up, so that their input is quantized once
// (linear_qkv and linear_fc1 of Megatron-LM). Checkpoints store them separately or together.
//
// Only plain Llama is created and saved. Families without norms of outputs, experts, softcaps and
// sinks can be trained, too; Train returns an error for the others.
//
// Embedding and head compute in BF16 under every recipe but f32, as in Megatron-LM, and so do the
// layers that Options exempts.
//
// A Model is not safe for concurrent use. It uses Scope.Threads goroutines; results do not depend on
// their number.
package decoder
