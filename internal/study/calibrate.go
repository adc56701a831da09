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

// A calibrator computes the amax of the input of each linear module in the layers of a
// model, and of the keys and values of each attention layer.
type calibrator struct{ convert.Calibration }

// newCalibrator returns an empty calibrator. With cache, it observes keys and values
// too.
func newCalibrator(cache bool) *calibrator {
	c := &calibrator{convert.Calibration{Input: map[string]float64{}}}
	if cache {
		c.Key, c.Value = map[string]float64{}, map[string]float64{}
	}
	return c
}

// observe is an nn.Observer.Operand.
func (c *calibrator) observe(o nn.Observation) {
	if o.Operand != nn.Input {
		return
	}
	amax := amaxOf(o.Source)
	for _, module := range checkpointModules(o.Module) {
		c.Input[module] = max(c.Input[module], amax)
	}
}

// cached is an nn.Observer.KeysValues.
func (c *calibrator) cached(module string, keys, values tensor.Dense) {
	key, value := module+".k_proj", module+".v_proj"
	c.Key[key] = max(c.Key[key], amaxOf(keys))
	c.Value[value] = max(c.Value[value], amaxOf(values))
}

// amaxOf returns the largest magnitude of a matrix.
func amaxOf(x tensor.Dense) (amax float64) {
	for i := range x.Rows {
		for _, v := range x.Row(i) {
			amax = max(amax, math.Abs(float64(v)))
		}
	}
	return amax
}

// checkpointModules returns the modules of a checkpoint that make up a linear layer of
// a model, such as q, k and v, which share their input. It returns none for the output
// head, which is not quantized.
func checkpointModules(layer string) []string {
	if !strings.Contains(layer, ".layers.") {
		return nil
	}
	return checkpoint.JoinedParts(layer)
}

// write writes the amaxes to a file for quantize --calibration.
func (c *calibrator) write(path string) error {
	for what, amaxes := range map[string]map[string]float64{"inputs of": c.Input, "keys of": c.Key, "values of": c.Value} {
		for module, amax := range amaxes {
			if !(amax > 0) || math.IsInf(amax, 0) {
				return fmt.Errorf("calibrate %s: the amax of the %s %s is %g, want a positive finite number", path, what, module, amax)
			}
		}
	}
	return c.Calibration.Write(path)
}
