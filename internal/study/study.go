// Package study runs experiments on small language models and reports them:
// training under several recipes, the loss of a model, and its calibration.
package study
