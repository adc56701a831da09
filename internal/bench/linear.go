package bench

import (
	"time"

	"github.com/microscale-go/microscale/format"
	"github.com/microscale-go/microscale/gemm"
	"github.com/microscale-go/microscale/internal/nn"
	"github.com/microscale-go/microscale/recipe"
	"github.com/microscale-go/microscale/tensor"
)

// A Layer is a linear layer to measure, with the number of tokens of its input.
type Layer struct{ Tokens, In, Out int }

// Training is the result for a linear layer's forward and backward pass under one recipe.
type Training struct {
	Recipe   string
	Step     Result // both passes
	Forward  Sample
	Backward Sample
	Products Sample // the three products only, of quantized operands
	Other    Sample // the rest of the step: quantizing six operands, rounding, memory
}

// Linear measures the forward and the backward pass of a layer under a recipe. The weight is
// quantized once for both. The rate counts 6·Tokens·In·Out operations. The limit is the peak
// of the instruction that bounds the kernel of the forward product. Linear times the products
// alone after each step, so that disturbances affect both alike.
func (t *Team) Linear(l Layer, r recipe.Recipe, budget time.Duration) (Training, error) {
	o := gemm.Options{Threads: t.Threads()}
	layer := nn.NewLinear("linear", l.In, l.Out, false)
	layer.Weight.InitNormal(0.02, 1)
	x, dy := tensor.New(l.Tokens, l.In), tensor.New(l.Tokens, l.Out)
	for _, m := range []tensor.Dense{x, dy} {
		fill(m.Data)
		for i, v := range m.Data {
			m.Data[i] = format.BF16.Decode(format.BF16.Encode(v))
		}
	}
	var products []nn.Product
	s := &nn.Scope{Recipe: r, Threads: t.Threads()}
	s.Observer.Product = func(p nn.Product) { products = append(products, p) }
	var forward, backward, both, alone, other []float64
	step := func() error {
		layer.Weight.ZeroGrad()
		products = products[:0]
		start := time.Now()
		_, saved, err := layer.Forward(s, x)
		if err != nil {
			return err
		}
		layer.EndForward(s)
		middle := time.Now()
		if _, err := layer.Backward(s, saved, dy); err != nil {
			return err
		}
		layer.EndBackward(s)
		end := time.Now()
		c := make([]tensor.Dense, len(products))
		for i, p := range products {
			c[i] = tensor.New(p.A.StoredRows(), p.B.StoredRows())
		}
		again := time.Now()
		for i, p := range products {
			if err := gemm.Mul(c[i], p.A, p.B, o); err != nil {
				return err
			}
		}
		multiplied := time.Since(again).Seconds()
		forward, backward = append(forward, middle.Sub(start).Seconds()), append(backward, end.Sub(middle).Seconds())
		both, alone = append(both, end.Sub(start).Seconds()), append(alone, multiplied)
		other = append(other, end.Sub(start).Seconds()-multiplied)
		return nil
	}
	var err error
	whole := t.MeasureAlone(budget, func(int) {
		if e := step(); e != nil {
			err = e
		}
	})
	if err != nil {
		return Training{}, err
	}
	kernel, err := gemm.Choose(products[0].A, products[0].B, o)
	if err != nil {
		return Training{}, err
	}
	limit, err := t.Peak(kernel.Tier, kernel.Peak, budget/8)
	if err != nil {
		return Training{}, err
	}
	steady := func(seconds []float64) Sample { // drop the first time if it only warmed the caches
		if whole.Runs+whole.Disturbed < len(seconds) {
			seconds = seconds[1:]
		}
		return Summarize(seconds)
	}
	result := Training{
		Recipe: r.Name, Forward: steady(forward), Backward: steady(backward), Products: steady(alone), Other: steady(other),
		Step: Result{
			Op: "linear", Format: r.Weight.Rowwise.Format.Name, Source: r.Activations.Name, M: l.Tokens, N: l.Out, K: l.In,
			Threads: t.Threads(), Kernel: kernel.Name, Time: steady(both), Work: 6 * float64(l.Tokens) * float64(l.In) * float64(l.Out), Unit: limit.Unit,
		},
	}
	result.Step.Time.Busy = whole.Busy
	result.Step.bound(limit, limit.Work)
	return result, nil
}
