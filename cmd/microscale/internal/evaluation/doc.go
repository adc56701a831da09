// Package evaluation evaluates checkpoints on text: it opens models, tokenizers and texts, quantizes on
// the fly, runs package windows, and prints the results as text, JSON or an HTML page. Byte-level models,
// which training writes, have an evaluation without a tokenizer.
package evaluation
