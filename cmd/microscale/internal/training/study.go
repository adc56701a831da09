// Package training runs experiments on small language models and reports the results: training with one or
// several recipes.
package training
