package train

import (
	"math"
	"slices"

	"github.com/microscale-go/microscale/format"
	"github.com/microscale-go/microscale/nn"
	"github.com/microscale-go/microscale/tensor"
)

// A factor trains positive numbers by the logarithms of their ratios to those of the start.
type factor struct {
	param    *nn.Param // the logarithms, and their gradients
	gradient func()    // completes the gradients
	// apply gives the student the numbers. moved counts the block scales that are not those of the start.
	apply func() (moved int)
}

func newFactor(name string, grad tensor.Dense) *factor {
	return &factor{param: &nn.Param{Name: name, Value: tensor.New(grad.Rows, grad.Cols), Grad: grad}}
}

// maxFactor bounds factors of scales, so that a block and a global scale together stay within the bound of the format (quant.Bound).
const maxFactor = 1.5

// ratio returns e^x within the bound.
func ratio(x float32) float64 {
	limit := math.Log(maxFactor)
	return math.Exp(max(-limit, min(float64(x), limit)))
}

// blockFactor returns the factors of the block scales of a layer.
func blockFactor(l *nn.ScaledLinear) *factor {
	w := l.Weight
	l.Grad = tensor.New(w.ScaleShape())
	start := slices.Clone(w.Scales)
	blocks := newFactor(l.Name+".scale", l.Grad)
	blocks.gradient = func() {}
	blocks.apply = func() (moved int) {
		for i, x := range blocks.param.Value.Data {
			if w.Scales[i] = scaled(w.Format.Scale, start[i], x); w.Scales[i] != start[i] {
				moved++
			}
		}
		return moved
	}
	return blocks
}

// globalFactor returns the factor of the global scale of a layer, whose gradients are those of its block scales.
func globalFactor(l *nn.ScaledLinear) *factor {
	w, global := l.Weight, l.Weight.Global
	whole := newFactor(l.Name+".global", tensor.New(1, 1))
	whole.gradient = func() {
		sum := 0.0
		for _, g := range l.Grad.Data {
			sum += float64(g)
		}
		whole.param.Grad.Data[0] = float32(sum)
	}
	whole.apply = func() int {
		w.Global = times(global, whole.param.Value.Data[0])
		return 0
	}
	return whole
}

// times returns v·e^x within the bound.
func times(v, x float32) float32 { return float32(float64(v) * ratio(x)) }

// scaled returns the code of a scale times e^x. A scale of zero, infinity or NaN stays, and others become none of these.
func scaled(f *format.Scalar, code byte, x float32) byte {
	v := f.Decode(uint32(code))
	if x == 0 || v == 0 || v-v != 0 {
		return code
	}
	next := min(float64(v)*ratio(x), float64(f.Max()))
	if to := byte(f.Encode(float32(next))); f.Decode(uint32(to)) > 0 {
		return to
	}
	return code
}

// normFactor returns the factors of the weights of a norm, which keep their signs.
func normFactor(p *nn.Param) *factor {
	start := slices.Clone(p.Value.Data)
	f := newFactor(p.Name, tensor.New(1, len(start)))
	f.gradient = func() {
		for j, g := range p.Grad.Data {
			f.param.Grad.Data[j] = float32(g * p.Value.Data[j])
		}
	}
	f.apply = func() int {
		for j, x := range f.param.Value.Data {
			p.Value.Data[j] = times(start[j], x)
		}
		return 0
	}
	return f
}
