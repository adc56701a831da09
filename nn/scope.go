package nn

import (
	"errors"

	"github.com/microscale-go/microscale/format"
	"github.com/microscale-go/microscale/gemm"
	"github.com/microscale-go/microscale/internal/parallel"
	"github.com/microscale-go/microscale/quant"
	"github.com/microscale-go/microscale/recipe"
	"github.com/microscale-go/microscale/tensor"
)

// A Scope is what modules compute under: Transformer Engine's autocast as a value.
// To nest, copy it and change the copy.
type Scope struct {
	Recipe recipe.Recipe

	// Calibrating computes in high precision and collects the amaxes that delayed
	// scaling takes its scales from.
	Calibrating bool

	Seed uint64 // of stochastic rounding, with Step and Microbatch
	Step uint32

	// Microbatch counts the microbatches of a step. At 0 weights are quantized, and
	// kept until the next forward pass at 0.
	Microbatch int

	// Recompute marks a forward pass that repeats the last one of the same
	// microbatch for its backward pass: weights and delayed scales are those of then,
	// and amaxes are not collected again.
	Recompute bool

	// Inference marks a forward pass without a backward pass: nothing is saved, and
	// no amax is collected.
	Inference bool

	// SaveOriginalInput keeps a linear layer's input in BF16 for its backward pass,
	// which quantizes it then, in place of its quantized columnwise copy. Delayed
	// scaling does not have it.
	SaveOriginalInput bool

	Threads int // goroutines; 0: one per processor

	// Memory is what operands of linear layers, and what modules keep for their backward
	// pass, are written into; nil: each into new memory.
	Memory *Memory

	// Pad fills up tokens with rows of zeros to the recipe's alignment, where
	// otherwise a number that does not divide is refused.
	Pad bool

	Observe  func(Observation) // called with every operand as it is quantized; nil: not
	Products func(Product)     // called before every product of quantized operands; nil: not
	Cached   func(KeysValues)  // called with what a cache of attention would hold; nil: not
}

// KeysValues are the keys, after their rotation, and the values of one attention, a row
// for each token.
type KeysValues struct {
	Module       string
	Keys, Values tensor.Dense
}

// Disabled returns the scope with low precision switched off: recipe bf16, or f32
// where that is the recipe.
func (s Scope) Disabled() Scope {
	s.Recipe = s.Recipe.Disabled()
	return s
}

// An Operand is the role of a tensor in a product.
type Operand uint8

const (
	Input  Operand = iota // X of a linear layer
	Weight                // W
	Grad                  // dY

	Query // operands of attention
	Key
	Value
	Probability
	GradOutput      // of attention's output
	GradProbability // of the scores, after the backward pass of softmax
)

var operandNames = [...]string{"input", "weight", "grad", "query", "key", "value", "probability", "grad_output", "grad_probability"}

// String returns the operand's name: input, weight, grad, query, …
func (o Operand) String() string { return operandNames[o] }

// An Observation is one operand as it was quantized.
type Observation struct {
	Module    string
	Operand   Operand
	Direction quant.Direction
	Product   recipe.GEMM   // of linear layers
	Source    tensor.Dense  // what was quantized; valid during the call
	Quantized *quant.Tensor // the operand; valid during the call
}

// A Product is one matrix product about to be computed, C = A·Bᵀ.
type Product struct {
	Module string
	GEMM   recipe.GEMM   // of linear layers
	A, B   *quant.Tensor // valid during the call
}

// Round rounds x, in place, to the values that tensors between modules have.
func (s *Scope) Round(x tensor.Dense) { roundTo(x, s.Recipe.Activations, s.Threads) }

// mul sets c to A·Bᵀ. All products of linear layers pass here. Scales are NaN where the
// source had NaN: no error, but NaN that goes on to the loss, as in high precision.
func (s *Scope) mul(c tensor.Dense, p Product, o gemm.Options) error {
	if s.Products != nil {
		s.Products(p)
	}
	o.Threads = s.Threads
	err := gemm.Mul(c, p.A, p.B, o)
	if nan := new(gemm.NaNScale); errors.As(err, &nan) {
		return nil
	}
	return err
}

// random returns the stream of random bits of one operand.
func (s *Scope) random(module string, operand Operand, d quant.Direction) *quant.Stream {
	const spread = 0x9e3779b97f4a7c15 // 2^64 over the golden ratio: seeds of microbatches far apart
	return &quant.Stream{
		Seed:      s.Seed ^ uint64(s.Microbatch)*spread,
		Step:      s.Step,
		Tensor:    streamTensor(module),
		Operand:   uint8(operand),
		Direction: d,
	}
}

// roundGrain is the least number of elements handed to a goroutine at a time.
const roundGrain = 1 << 14

// roundTo rounds x in place to the values of f, which is BF16 or F32.
func roundTo(x tensor.Dense, f quant.Format, threads int) {
	if f.Element == format.F32 {
		return
	}
	parallel.For(x.Rows, max(1, roundGrain/max(1, x.Cols)), threads, func(from, to int) {
		for i := from; i < to; i++ {
			roundBF16(x.Row(i))
		}
	})
}
