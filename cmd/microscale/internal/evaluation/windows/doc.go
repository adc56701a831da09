// Package windows measures language models on text: cross-entropy by the conventions that are
// compared (Method), and the divergence of a model from the original that it was quantized from,
// at the output (Divergence) and at every layer.
//
// Conventions and their sources:
//
//	llama.cpp   tools/perplexity of llama.cpp: disjoint windows, second halves scored
//	gptq        the GPTQ and AWQ papers: disjoint windows, everything but the first token scored
//	strided     the guide of Hugging Face: overlapping windows, the new half of each scored
//	all         the windows of llama.cpp, everything but the first token scored
//
// Both models read the same windows in lock-step. Logits are reduced block by block of the
// vocabulary and never stored: each token keeps a running maximum and sums of exponentials.
// All sums are in float64, in the order of the text, so that results do not depend on threads.
package windows
