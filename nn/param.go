// Package nn holds the modules of a transformer, each with its backward pass
// written out, and the state that low-precision recipes keep for them.
//
// A module computes under a Scope, a value that says which recipe is in force. Its
// forward pass returns what its backward pass needs:
//
//	y, saved, err := m.Forward(&scope, x)
//	dx, err := m.Backward(&scope, saved, dy)
//
// Matrices between modules are float32 in memory, one row per token, with values
// rounded to the recipe's Activations (BF16 under every recipe but f32). Gradients
// of parameters are added to Param.Grad in float32.
//
// Modules are not for use by several goroutines at a time; they use Scope.Threads
// goroutines themselves, and results do not depend on how many.
package nn

import (
	"math"

	"github.com/microscale-go/microscale/quant"
	"github.com/microscale-go/microscale/tensor"
)

// A Param is a trained tensor: its FP32 master value, and its gradient, summed in
// FP32 over the microbatches of a step. Vectors are matrices of one row.
type Param struct {
	Name        string
	Value, Grad tensor.Dense
}

// NewParam returns a parameter of zeros.
func NewParam(name string, rows, cols int) *Param {
	return &Param{Name: name, Value: tensor.New(rows, cols), Grad: tensor.New(rows, cols)}
}

// ZeroGrad clears the gradient.
func (p *Param) ZeroGrad() {
	for i := range p.Grad.Rows {
		clear(p.Grad.Row(i))
	}
}

// Fill sets every element of the value to v.
func (p *Param) Fill(v float32) {
	for i := range p.Value.Rows {
		row := p.Value.Row(i)
		for j := range row {
			row[j] = v
		}
	}
}

// InitNormal draws the value from a normal distribution of mean 0. The draw of an
// element depends on the seed, the parameter's name and the element's place alone.
func (p *Param) InitNormal(std float64, seed uint64) {
	stream := quant.Stream{Seed: seed, Tensor: streamTensor(p.Name)}
	for i := range p.Value.Rows {
		row := p.Value.Row(i)
		for j := range row {
			at := 2 * (uint64(i)*uint64(p.Value.Cols) + uint64(j))
			// Box and Muller, with u1 in (0, 1].
			u1 := (float64(stream.At(at)) + 1) / (1 << 32)
			u2 := float64(stream.At(at+1)) / (1 << 32)
			row[j] = float32(std * math.Sqrt(-2*math.Log(u1)) * math.Cos(2*math.Pi*u2))
		}
	}
}

// streamTensor returns the number of a named tensor in random streams: the lower
// 24 bits of the FNV-1a hash of its name. It does not depend on the order in which
// a model was built. Two tensors of one number would draw the same bits, no more.
func streamTensor(name string) uint32 {
	h := uint32(2166136261)
	for i := range len(name) {
		h = (h ^ uint32(name[i])) * 16777619
	}
	return h & (1<<24 - 1)
}
