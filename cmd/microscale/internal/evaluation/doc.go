// Package evaluation evaluates checkpoints on text: it opens models, tokenizers and texts, quantizes on
// the fly, runs package evaluate, and prints the results as text, JSON or an HTML page.
package evaluation
