// Package generation writes text with a language model: it combines a decoder with the tokenizer,
// the chat template and the stop tokens that its files define.
//
//	prompt → tokens → Context (KV cache) → logits → package sampling → token → Stream → text
//
// An Answer is one generated text. It advances by one forward pass at a time, so that a caller can
// interleave answers of one model.
package generation
