package main

import (
	"fmt"
	"math"
	"strings"

	"github.com/microscale-go/microscale/checkpoint"
	"github.com/microscale-go/microscale/convert"
	"github.com/microscale-go/microscale/nn"
)

// A calibrator finds the largest magnitude that enters each linear module of the
// layers of a model while it reads text.
type calibrator struct{ amaxes map[string]float64 }

// observe takes an operand, as nn.Scope.Observe has it.
func (c *calibrator) observe(o nn.Observation) {
	if o.Operand != nn.Input {
		return
	}
	amax := 0.0
	for i := range o.Source.Rows {
		for _, v := range o.Source.Row(i) {
			amax = max(amax, math.Abs(float64(v)))
		}
	}
	for _, module := range checkpointModules(o.Module) {
		c.amaxes[module] = max(c.amaxes[module], amax)
	}
}

// checkpointModules returns the modules of a checkpoint that a linear layer of a
// model is: those that the model computes as one have the same input. The output
// head is left out, which is not quantized.
func checkpointModules(layer string) []string {
	if !strings.Contains(layer, ".layers.") {
		return nil
	}
	return checkpoint.JoinedParts(layer)
}

// write writes what was found, as quantize --calibration reads it.
func (c *calibrator) write(path string) error {
	for module, amax := range c.amaxes {
		if !(amax > 0) || math.IsInf(amax, 0) {
			return fmt.Errorf("the inputs of %s have the largest magnitude %g, which makes no scale: nothing was written to %s", module, amax, path)
		}
	}
	return (&convert.Calibration{Input: c.amaxes}).Write(path)
}
