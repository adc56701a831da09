package nn

import (
	"errors"

	"github.com/microscale-go/microscale/format"
	"github.com/microscale-go/microscale/gemm"
	"github.com/microscale-go/microscale/internal/parallel"
	"github.com/microscale-go/microscale/mma"
	"github.com/microscale-go/microscale/quant"
	"github.com/microscale-go/microscale/recipe"
	"github.com/microscale-go/microscale/tensor"
)

// A Scope is the context of one pass through modules, like Transformer Engine's autocast. It is
// a value: to change a setting for some modules, copy the scope and change the copy.
type Scope struct {
	Recipe recipe.Recipe

	// Calibrating computes in high precision and collects the amaxes of delayed scaling.
	Calibrating bool

	// Pad extends the tokens with rows of zeros to the recipe's alignment. Without it, a number
	// of tokens that the recipe cannot quantize is an error.
	Pad bool

	// Lengths are the numbers of tokens of the sequences of the pass. The further rows of a sequence
	// are padding: modules return zeros there, and neither outputs nor gradients of the other rows
	// depend on them. nil: no sequence is padded.
	Lengths []int

	// Inference marks a forward pass without a backward pass: it saves no activations and
	// collects no amaxes.
	Inference bool

	// Cache is the format of keys and values under Inference, with scales for each head of a token
	// (CheckCacheFormat). It overrides Attention.CacheScales. The zero format does not quantize them.
	// If its elements have 4 bits, heads are multiplied by a Hadamard matrix.
	Cache quant.Format

	// Recompute marks a forward pass that repeats the last one of the same microbatch for its
	// backward pass. It uses the quantized weights and the delayed scales of that pass, and
	// collects no amaxes.
	Recompute bool

	// ReuseWeights uses the quantized weights of the pass before, if the recipe quantizes them
	// in the same way. Set it for all microbatches of a step but the first: weights do not
	// change within a step.
	ReuseWeights bool

	// ReduceAmax replaces the amaxes of delayed scaling with their maxima over the ranks of a job,
	// before scales are computed from them (ReduceAmaxes). nil: there is one rank.
	ReduceAmax func(amaxes []float32) error

	Ranks    Ranks    // that share the layers
	Random   Random   // keys of stochastic rounding
	Observer Observer // callbacks; the zero value observes nothing

	Threads int    // goroutines; 0: one per processor
	Arena   *Arena // memory of matrices between modules; nil: allocate
	Pool    *Pool  // buffers of quantized operands and saved activations; nil: allocate
}

// Random identifies the random bits of stochastic rounding. Together with the module's name, the
// operand and the index of an element, it determines them: they do not depend on threads,
// shapes of batches or earlier calls.
type Random struct {
	Seed       uint64
	Step       uint32
	Microbatch int // index within the step, over all workers
}

// stream returns the random stream of one operand. Weights do not belong to a microbatch.
func (r Random) stream(module string, o Operand, d quant.Direction) *quant.Stream {
	const spread = 0x9e3779b97f4a7c15 // 2^64 over the golden ratio, to separate the seeds of microbatches
	if o == Weight {
		r.Microbatch = 0
	}
	return &quant.Stream{
		Seed:      r.Seed ^ uint64(r.Microbatch)*spread,
		Step:      r.Step,
		Tensor:    streamTensor(module),
		Operand:   uint8(o),
		Direction: d,
	}
}

// An Observer has callbacks from within a pass. Nil callbacks are not called. Modules call them
// from one goroutine at a time. Tensors are valid during the call.
type Observer struct {
	Operand func(Observation) // after an operand is quantized
	Product func(Product)     // before a product of quantized operands

	// Gradients is called in a backward pass when it has added the gradients of these parameters.
	Gradients func(params []*Param)

	// Linear is called after a linear layer of an inference pass, with its input and its output,
	// one row per token.
	Linear func(module string, in, out tensor.Dense)

	// KeysValues receives what a KV cache would hold of an attention module: the rotated keys
	// and the values, one row per token.
	KeysValues func(module string, keys, values tensor.Dense)
}

// An Observation is a quantized operand and its source.
type Observation struct {
	Module    string
	Operand   Operand
	Direction quant.Direction
	Product   recipe.GEMM // of linear layers
	Source    tensor.Dense
	Quantized *quant.Tensor
}

// A Product is a matrix product C = A·Bᵀ.
type Product struct {
	Module string
	GEMM   recipe.GEMM // of linear layers
	A, B   *quant.Tensor
}

// codesCache reports whether keys and values are in the format Cache.
func (s *Scope) codesCache() bool { return s.Cache.Element != nil }

// Disabled returns the scope without low precision: the recipe bf16, or f32 if that is the
// recipe.
func (s Scope) Disabled() Scope {
	s.Recipe = s.Recipe.Disabled()
	return s
}

// Round rounds x in place to the recipe's Activations, the format of tensors between modules.
func (s *Scope) Round(x tensor.Dense) {
	if s.Recipe.Activations.Element == format.F32 {
		return
	}
	parallel.ForState(x.Rows, parallel.RowGrain(x.Cols), s.Threads, x, func(x tensor.Dense, from, to int) {
		for i := from; i < to; i++ {
			roundBF16(x.Row(i))
		}
	})
}

// round rounds x in place to the recipe's Activations, on the calling goroutine.
func (s *Scope) round(x []float32) {
	if s.Recipe.Activations.Element != format.F32 {
		roundBF16(x)
	}
}

// accumulator returns how a product of a linear layer accumulates.
func (s *Scope) accumulator(g recipe.GEMM, a, b *quant.Tensor) mma.Accumulator {
	if s.Calibrating {
		return mma.Accumulator{}
	}
	return s.Recipe.Accumulator(g, a.Format, b.Format)
}

// mul sets c to A·Bᵀ. A NaN scale is not an error here: the product is NaN and so is the loss,
// as in high precision.
func (s *Scope) mul(c tensor.Dense, p Product, o gemm.Options) error {
	if s.Observer.Product != nil {
		s.Observer.Product(p)
	}
	o.Threads = s.Threads
	err := gemm.Mul(c, p.A, p.B, o)
	if nan := new(gemm.NaNScale); errors.As(err, &nan) {
		return nil
	}
	return err
}
