// Package training runs experiments on small language models and reports the results:
// training with one or several recipes, evaluation, calibration, and generation.
package training
