package windows

import (
	"math"

	"github.com/microscale-go/microscale/tensor"
)

// Amaxes are the largest magnitudes of the inputs of linear layers, and of keys and values, over
// all windows, by the name of the module.
type Amaxes struct {
	Input map[string]float64 `json:"input"`
	Key   map[string]float64 `json:"key"`
	Value map[string]float64 `json:"value"`
}

// NewAmaxes returns empty ones.
func NewAmaxes() *Amaxes {
	return &Amaxes{Input: map[string]float64{}, Key: map[string]float64{}, Value: map[string]float64{}}
}

func (a *Amaxes) input(linear string, in tensor.Dense) {
	a.Input[linear] = max(a.Input[linear], amaxOf(in))
}

func (a *Amaxes) cache(module string, keys, values tensor.Dense) {
	a.Key[module] = max(a.Key[module], amaxOf(keys))
	a.Value[module] = max(a.Value[module], amaxOf(values))
}

// amaxOf returns the largest magnitude of a matrix: NaN if it has one.
func amaxOf(x tensor.Dense) (amax float64) {
	for i := range x.Rows {
		for _, v := range x.Row(i) {
			amax = max(amax, math.Abs(float64(v)))
		}
	}
	return amax
}
