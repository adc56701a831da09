// Package nn implements the modules of a transformer with explicit backward passes, and the state
// that low-precision recipes keep for them.
//
// A module computes under a Scope, which selects the recipe. Its forward pass returns what its
// backward pass needs:
//
//	y, saved, err := m.Forward(&scope, x)
//	dx, err := m.Backward(&scope, saved, dy)
//
// Matrices between modules are float32, one row per token, with values rounded to the recipe's
// Activations (BF16 under every recipe but f32). Backward passes add the gradients of parameters
// to Param.Grad in float32.
//
// A module is not safe for concurrent use. It uses Scope.Threads goroutines; results do not
// depend on their number.
package nn

import (
	"math"

	"github.com/microscale-go/microscale/quant"
	"github.com/microscale-go/microscale/tensor"
)

// A Param is a trained tensor: its FP32 master values, and its gradient in FP32, to which
// backward passes add. A vector is a matrix of one row.
type Param struct {
	Name        string
	Value, Grad tensor.Dense
	Place       Place // of a part that a rank has; zero: Value is whole
}

// A Place locates a part of a tensor in the whole.
type Place struct {
	Rows, Cols int // of the whole
	Row, Col   int // of the first element of the part
}

// Located returns the place of the parameter; that of a whole one begins at 0.
func (p *Param) Located() Place {
	if p.Place == (Place{}) {
		return Place{Rows: p.Grad.Rows, Cols: p.Grad.Cols}
	}
	return p.Place
}

// newParam returns a parameter of zeros.
func newParam(name string, rows, cols int) *Param {
	return &Param{Name: name, Value: tensor.New(rows, cols), Grad: tensor.New(rows, cols)}
}

// ZeroGrad sets the gradient to zero.
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

// InitNormal draws the value from a normal distribution with mean 0. Each element depends only on
// the seed, the parameter's name and its index in the whole tensor.
func (p *Param) InitNormal(std float64, seed uint64) {
	stream := quant.Stream{Seed: seed, Tensor: streamTensor(p.Name)}
	place := p.Located()
	for i := range p.Value.Rows {
		row := p.Value.Row(i)
		for j := range row {
			at := 2 * (uint64(place.Row+i)*uint64(place.Cols) + uint64(place.Col+j))
			// Box–Muller transform, with u1 in (0, 1].
			u1 := (float64(stream.At(at)) + 1) / (1 << 32)
			u2 := float64(stream.At(at+1)) / (1 << 32)
			row[j] = float32(std * math.Sqrt(-2*math.Log(u1)) * math.Cos(2*math.Pi*u2))
		}
	}
}

// streamTensor returns the number of a named tensor in random streams: the lower 24 bits of the
// FNV-1a hash of its name, so that it does not depend on the order in which a model was built.
// Two tensors with the same number draw the same bits.
func streamTensor(name string) uint32 {
	h := uint32(2166136261)
	for i := range len(name) {
		h = (h ^ uint32(name[i])) * 16777619
	}
	return h & (1<<24 - 1)
}
