package study

import (
	"fmt"
	"math"
	"strings"

	"github.com/microscale-go/microscale/convert"
	"github.com/microscale-go/microscale/internal/checkpoint"
	"github.com/microscale-go/microscale/nn"
	"github.com/microscale-go/microscale/tensor"
)

// A Calibrator finds the largest magnitude that enters each linear module of the
// layers of a model while it reads text, and of the keys and values of each attention
// where they are asked for.
type Calibrator struct{ convert.Calibration }

// NewCalibrator returns an empty calibrator. With cache, it observes keys and values
// too.
func NewCalibrator(cache bool) *Calibrator {
	c := &Calibrator{convert.Calibration{Input: map[string]float64{}}}
	if cache {
		c.Key, c.Value = map[string]float64{}, map[string]float64{}
	}
	return c
}

// Observe takes an operand, as nn.Observer.Operand.
func (c *Calibrator) Observe(o nn.Observation) {
	if o.Operand != nn.Input {
		return
	}
	amax := largest(o.Source)
	for _, module := range checkpointModules(o.Module) {
		c.Input[module] = max(c.Input[module], amax)
	}
}

// Cached takes keys and values, as nn.Observer.KeysValues.
func (c *Calibrator) Cached(module string, keys, values tensor.Dense) {
	key, value := module+".k_proj", module+".v_proj"
	c.Key[key] = max(c.Key[key], largest(keys))
	c.Value[value] = max(c.Value[value], largest(values))
}

// largest returns the largest magnitude of a matrix.
func largest(x tensor.Dense) (amax float64) {
	for i := range x.Rows {
		for _, v := range x.Row(i) {
			amax = max(amax, math.Abs(float64(v)))
		}
	}
	return amax
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

// Write writes what was found, as quantize --calibration reads it.
func (c *Calibrator) Write(path string) error {
	for what, amaxes := range map[string]map[string]float64{"inputs of": c.Input, "keys of": c.Key, "values of": c.Value} {
		for module, amax := range amaxes {
			if !(amax > 0) || math.IsInf(amax, 0) {
				return fmt.Errorf("the %s %s have the largest magnitude %g, which makes no scale: nothing was written to %s", what, module, amax, path)
			}
		}
	}
	return c.Calibration.Write(path)
}
