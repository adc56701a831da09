package bench

import (
	"time"

	"github.com/microscale-go/microscale/format"
	"github.com/microscale-go/microscale/gemm"
	"github.com/microscale-go/microscale/nn"
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
	b := newTrainingBench(l, r, t.Threads())
	var err error
	whole := t.MeasureAlone(budget, func(int) {
		if e := b.step(); e != nil {
			err = e
		}
	})
	if err != nil {
		return Training{}, err
	}
	kernel, err := gemm.Choose(b.products[0].A, b.products[0].B, b.options)
	if err != nil {
		return Training{}, err
	}
	limit, err := t.Peak(kernel.Peak, budget/8)
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
		Recipe: r.Name, Forward: steady(b.forward), Backward: steady(b.backward), Products: steady(b.alone), Other: steady(b.other),
		Step: Result{
			Op: "linear", Format: r.Weight.Rowwise.Format.Name, Source: r.Activations.Name, M: l.Tokens, N: l.Out, K: l.In,
			Threads: t.Threads(), Kernel: kernel.Name, Time: steady(b.both), Work: 6 * float64(l.Tokens) * float64(l.In) * float64(l.Out),
			Unit: limit.Unit,
		},
	}
	result.Step.Time.Busy = whole.Busy
	result.Step.bound(limit, limit.Work)
	return result, nil
}

// A trainingBench is a layer whose steps are measured, with their times in seconds.
type trainingBench struct {
	layer    *nn.Linear
	scope    *nn.Scope
	options  gemm.Options
	x, dy    tensor.Dense
	products []nn.Product // of the last step

	forward, backward, both []float64
	alone                   []float64 // the products
	other                   []float64 // both without the products
}

func newTrainingBench(l Layer, r recipe.Recipe, threads int) *trainingBench {
	b := &trainingBench{
		layer: nn.NewLinear("linear", l.In, l.Out, false), scope: &nn.Scope{Recipe: r, Threads: threads}, options: gemm.Options{Threads: threads},
		x: tensor.New(l.Tokens, l.In), dy: tensor.New(l.Tokens, l.Out),
	}
	b.layer.Weight.InitNormal(0.02, 1)
	for _, m := range []tensor.Dense{b.x, b.dy} {
		fill(m.Data)
		for i, v := range m.Data {
			m.Data[i] = format.BF16.Decode(format.BF16.Encode(v))
		}
	}
	b.scope.Observer.Product = func(p nn.Product) { b.products = append(b.products, p) }
	return b
}

// step measures both passes, and then the products alone.
func (b *trainingBench) step() error {
	forward, backward, err := b.passes()
	if err != nil {
		return err
	}
	products, err := b.multiply()
	if err != nil {
		return err
	}
	both := (forward + backward).Seconds()
	b.forward, b.backward = append(b.forward, forward.Seconds()), append(b.backward, backward.Seconds())
	b.both, b.alone = append(b.both, both), append(b.alone, products.Seconds())
	b.other = append(b.other, both-products.Seconds())
	return nil
}

// passes computes the forward and the backward pass, and records their products.
func (b *trainingBench) passes() (forward, backward time.Duration, err error) {
	b.layer.Weight.ZeroGrad()
	b.products = b.products[:0]
	start := time.Now()
	_, saved, err := b.layer.Forward(b.scope, b.x)
	if err != nil {
		return 0, 0, err
	}
	b.layer.EndForward(b.scope)
	middle := time.Now()
	if _, err := b.layer.Backward(b.scope, saved, b.dy); err != nil {
		return 0, 0, err
	}
	b.layer.EndBackward(b.scope)
	return middle.Sub(start), time.Since(middle), nil
}

// multiply repeats the products of the last step.
func (b *trainingBench) multiply() (time.Duration, error) {
	c := make([]tensor.Dense, len(b.products))
	for i, p := range b.products {
		c[i] = tensor.New(p.A.StoredRows(), p.B.StoredRows())
	}
	start := time.Now()
	for i, p := range b.products {
		if err := gemm.Mul(c[i], p.A, p.B, b.options); err != nil {
			return 0, err
		}
	}
	return time.Since(start), nil
}
