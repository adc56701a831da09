// Package recipe says how a linear layer computes in low precision: which
// quantizer each of its six operands takes, and which of its three products stay
// in high precision. A Recipe is a value without state; amax histories and scales
// live with the modules (package nn).
//
// With X the input (tokens × in), W the weight (out × in) and dY the gradient of
// the output (tokens × out), a linear layer is three products, each summed over
// the dimension that the blocks of its two operands lie along:
//
//	fprop  Y  = X·Wᵀ    X rowwise      W rowwise       over in
//	dgrad  dX = dY·W    dY rowwise     W columnwise    over out
//	wgrad  dW = dYᵀ·X   dY columnwise  X columnwise    over tokens
//
// Sums are in FP32 under every recipe, which is what package gemm has; Transformer
// Engine's use_split_accumulator (MMParams), which chooses between that and the
// shorter sums of Hopper's tensor cores, has nothing to choose here. Gradients of
// weights are accumulated in FP32 over microbatches. All other results of products
// are rounded to the recipe's Activations.
//
// Names and defaults follow Transformer Engine's recipes and Megatron-LM's flags.
// Where these two differ, the default is Transformer Engine's, and the field says so.
package recipe

import (
	"fmt"
	"reflect"
	"strings"

	"github.com/microscale-go/microscale/format"
	"github.com/microscale-go/microscale/quant"
)

// A Recipe is one way to train.
type Recipe struct {
	Name string
	Doc  string // one line

	Input, Weight, Grad Operand // X, W and dY

	Fprop, Dgrad, Wgrad Precision

	// Activations is what tensors between modules, sources of operands and operands
	// of high-precision products are rounded to: quant.BF16, or quant.F32 for the
	// recipe that rounds nothing.
	Activations quant.Format

	// StoreQuantized saves in MXFP8 what modules other than linear layers keep for their
	// backward pass: the inputs of norms and of SwiGLU, and Q, K and V. Otherwise they
	// are saved in Activations. Linear layers save the columnwise operand of wgrad.
	StoreQuantized bool

	Delayed   Delayed
	Attention Attention
}

// An Operand is one tensor of a linear layer in its two roles: quantized along
// its rows for one product, and down its columns for another.
type Operand struct{ Rowwise, Columnwise quant.Quantizer }

// Shared reports whether the columnwise operand is the transpose of the rowwise
// one, the same codes and scales, and not quantized for itself: one quantizer
// whose blocks serve both directions.
func (o Operand) Shared() bool {
	return o.Rowwise.Format.Square() && !o.Rowwise.Hadamard && reflect.DeepEqual(o.Rowwise, o.Columnwise)
}

// quantizers returns both.
func (o *Operand) quantizers() []*quant.Quantizer {
	return []*quant.Quantizer{&o.Rowwise, &o.Columnwise}
}

// A GEMM is one of the three products.
type GEMM uint8

const (
	Fprop GEMM = iota
	Dgrad
	Wgrad
)

var gemmNames = [...]string{Fprop: "fprop", Dgrad: "dgrad", Wgrad: "wgrad"}

// String returns "fprop", "dgrad" or "wgrad".
func (g GEMM) String() string { return gemmNames[g] }

// Precision says what the two operands of a product are.
type Precision uint8

const (
	Quantized     Precision = iota // what the operands' quantizers make of them
	HighPrecision                  // Recipe.Activations: BF16
)

// Precision returns the precision of a product.
func (r *Recipe) Precision(g GEMM) Precision { return *r.precision(g) }

func (r *Recipe) precision(g GEMM) *Precision {
	return [...]*Precision{Fprop: &r.Fprop, Dgrad: &r.Dgrad, Wgrad: &r.Wgrad}[g]
}

// operands returns the quantizers of the two operands of a product.
func (r *Recipe) operands(g GEMM) [2]*quant.Quantizer {
	switch g {
	case Fprop:
		return [2]*quant.Quantizer{&r.Input.Rowwise, &r.Weight.Rowwise}
	case Dgrad:
		return [2]*quant.Quantizer{&r.Grad.Rowwise, &r.Weight.Columnwise}
	}
	return [2]*quant.Quantizer{&r.Grad.Columnwise, &r.Input.Columnwise}
}

// quantizers returns all six.
func (r *Recipe) quantizers() []*quant.Quantizer {
	return []*quant.Quantizer{
		&r.Input.Rowwise, &r.Input.Columnwise,
		&r.Weight.Rowwise, &r.Weight.Columnwise,
		&r.Grad.Rowwise, &r.Grad.Columnwise,
	}
}

// AmaxAlgorithm says what delayed scaling takes from the history of an amax.
type AmaxAlgorithm uint8

const (
	Max        AmaxAlgorithm = iota // the largest
	MostRecent                      // the last
)

var amaxAlgorithmNames = [...]string{Max: "max", MostRecent: "most_recent"}

// String returns Transformer Engine's name.
func (a AmaxAlgorithm) String() string { return amaxAlgorithmNames[a] }

// Delayed is delayed scaling: scales come from amaxes of earlier steps. The zero
// value is off: scales come from the tensor at hand.
//
// Defaults are Transformer Engine's, a history of 1024 and the largest of it;
// Megatron-LM's flags default to a history of 1 and the most recent.
type Delayed struct {
	Margin               int // scales leave a factor of 2^Margin
	AmaxHistoryLen       int // steps; 0: off
	AmaxComputeAlgorithm AmaxAlgorithm
}

// Enabled reports whether scales are delayed.
func (d Delayed) Enabled() bool { return d.AmaxHistoryLen > 0 }

// Attention is how the products of attention are computed.
type Attention struct {
	DotProduct bool // fp8_dpa: Q, K, V, the probabilities and their gradients are quantized
	MultiHead  bool // fp8_mha: with that, the outputs of the projections stay quantized between the modules
}

// recipes are the rows of the table.
var recipes = []Recipe{f32, bf16, delayed, tensorwise, blockwise, mxfp8, nvfp4, mxfp6, mxfp4, mxfp4RHTSR}

// Recipes returns the rows of the table in their order.
func Recipes() []Recipe { return append([]Recipe(nil), recipes...) }

// Lookup finds a recipe by its name. Case is ignored.
func Lookup(name string) (Recipe, error) {
	names := make([]string, len(recipes))
	for i, r := range recipes {
		names[i] = r.Name
		if strings.EqualFold(r.Name, name) {
			return r, nil
		}
	}
	return Recipe{}, fmt.Errorf("unknown recipe %q: use one of %s, or a TOML file", name, strings.Join(names, ", "))
}

// both is the operand of one quantizer in both directions.
func both(q quant.Quantizer) Operand { return Operand{q, q} }

// plain is the operand of Transformer Engine's behavior for a format.
func plain(f quant.Format) Operand { return both(quant.Quantizer{Format: f}) }

// Divisor returns what Transformer Engine requires of a tensor before it
// quantizes it under r: that its rows (all dimensions but the last) and its
// columns are multiples of these. 1 and 1 where nothing has a scale.
func (r *Recipe) Divisor() (rows, cols int) {
	rows, cols = 1, 1
	for _, q := range r.quantizers() {
		n := requirementOf(q.Format)
		rows, cols = max(rows, n.rows), max(cols, n.cols)
	}
	return rows, cols
}

// Alignment returns the multiple that tokens are padded to where padding is asked
// for: 32 for MX formats, 128 for NVFP4, 16 for FP32 scales, 1 where nothing has a
// scale (Megatron-LM's get_fp8_align_size; 128 is Transformer Engine's for NVFP4).
func (r *Recipe) Alignment() int {
	n := 1
	for _, q := range r.quantizers() {
		n = max(n, requirementOf(q.Format).padding)
	}
	return n
}

type requirement struct{ rows, cols, padding int }

// requirementOf returns what one format asks of shapes. All numbers are powers of
// two, so the largest of several serves all.
func requirementOf(f quant.Format) requirement {
	switch f.Scale {
	case nil:
		return requirement{1, 1, 1}
	case format.E8M0:
		return requirement{32, 32, 32}
	case format.E4M3:
		return requirement{16, 16, 128}
	}
	return requirement{8, 16, 16}
}

// Disabled returns the recipe with low precision switched off: bf16, or f32 where
// nothing is rounded.
func (r Recipe) Disabled() Recipe {
	if r.Activations.Element == format.F32 {
		return f32
	}
	return bf16
}
