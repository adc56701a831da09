// Package recipe defines how a linear layer computes in low precision: the quantizer of each
// of its six operands, and which of its three products stay in high precision. A Recipe is a
// value without state; modules hold amax histories and scales (package nn).
//
// With X the input (tokens × in), W the weight (out × in) and dY the gradient of the output
// (tokens × out), a linear layer has three products. Each sums over the dimension along which
// the blocks of both operands lie:
//
//	fprop  Y  = X·Wᵀ    X rowwise      W rowwise       over in
//	dgrad  dX = dY·W    dY rowwise     W columnwise    over out
//	wgrad  dW = dYᵀ·X   dY columnwise  X columnwise    over tokens
//
// Sums are FP32 by default, as package gemm computes them. Accumulate makes them those of a matrix
// unit of a GPU. Weight gradients are FP32. All other results of products are rounded to the
// recipe's Activations.
//
// Names and defaults follow Transformer Engine's recipes and Megatron-LM's flags. If the two
// differ, the default is Transformer Engine's, and the field says so.
package recipe

import (
	"strings"

	"github.com/microscale-go/microscale/format"
	"github.com/microscale-go/microscale/gemm"
	"github.com/microscale-go/microscale/internal/naming"
	"github.com/microscale-go/microscale/mma"
	"github.com/microscale-go/microscale/quant"
)

// A Recipe is one way to train with low precision.
type Recipe struct {
	Name string
	Doc  string // one sentence

	Input, Weight, Grad Operand // X, W and dY

	// HighPrecision marks, by GEMM, the products whose operands are in Activations instead of
	// quantized by their quantizers.
	HighPrecision [3]bool

	// Accumulate says, by GEMM, how linear layers add products: in FP32 (the zero value) or as a
	// model of a matrix unit, with promotion to FP32 at an interval. Transformer Engine's
	// use_split_accumulator (MMParams) chooses promotion on Hopper; its FP8 recipes with one scale
	// per tensor use it for dgrad and wgrad, and not for fprop.
	//
	// Products whose operands both have the format of Activations accumulate in FP32 if the model
	// has no unit for that format. So do the products of attention.
	Accumulate [3]mma.Accumulator

	// Activations is the format of tensors between modules, of the sources of operands, and of
	// operands of high-precision products: quant.BF16, or quant.F32 for the recipe that rounds
	// nothing.
	Activations quant.Format

	// StoreQuantized saves in MXFP8 what modules other than linear layers keep for their
	// backward pass: the inputs of norms and of SwiGLU, and Q, K and V. Otherwise they
	// are saved in Activations. Linear layers save the columnwise operand of wgrad.
	StoreQuantized bool

	Delayed   Delayed
	Attention Attention
}

// An Operand is one tensor of a linear layer in its two roles: quantized rowwise for one
// product and columnwise for another.
type Operand struct{ Rowwise, Columnwise quant.Quantizer }

// Shared reports whether the columnwise operand is the transpose of the rowwise one, with the same
// codes and scales. Otherwise it is quantized separately. A shared operand has equal quantizers with
// square blocks and without a Hadamard transform.
func (o Operand) Shared() bool {
	return o.Rowwise.Format.Square() && !o.Rowwise.Hadamard && o.Rowwise == o.Columnwise
}

// quantizers returns both quantizers.
func (o *Operand) quantizers() []*quant.Quantizer {
	return []*quant.Quantizer{&o.Rowwise, &o.Columnwise}
}

// A GEMM is one of the three products of a linear layer.
type GEMM uint8

const (
	Fprop GEMM = iota
	Dgrad
	Wgrad
)

var gemmNames = [...]string{Fprop: "fprop", Dgrad: "dgrad", Wgrad: "wgrad"}

// String returns "fprop", "dgrad" or "wgrad".
func (g GEMM) String() string { return naming.String("GEMM", gemmNames[:], g) }

// MarshalText returns the name.
func (g GEMM) MarshalText() ([]byte, error) { return naming.Marshal("product", gemmNames[:], g) }

// UnmarshalText sets g to the product of the given name. Case is ignored.
func (g *GEMM) UnmarshalText(text []byte) error {
	return naming.Unmarshal("product", gemmNames[:], g, text)
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

// formats returns the formats of the operands of a product.
func (r *Recipe) formats(g GEMM) (x, y quant.Format) {
	if r.HighPrecision[g] {
		return r.Activations, r.Activations
	}
	o := r.operands(g)
	return o[0].Format, o[1].Format
}

// Accumulator returns how products of GEMM g accumulate for operands of the formats x and y.
func (r *Recipe) Accumulator(g GEMM, x, y quant.Format) mma.Accumulator {
	a := r.Accumulate[g]
	if a.Model != nil && x == r.Activations && y == r.Activations {
		if _, err := gemm.Unit(a, x, y); err != nil {
			return mma.Accumulator{}
		}
	}
	return a
}

// quantizers returns all six quantizers.
func (r *Recipe) quantizers() []*quant.Quantizer {
	return []*quant.Quantizer{
		&r.Input.Rowwise, &r.Input.Columnwise,
		&r.Weight.Rowwise, &r.Weight.Columnwise,
		&r.Grad.Rowwise, &r.Grad.Columnwise,
	}
}

// AmaxAlgorithm selects an amax from the history of delayed scaling.
type AmaxAlgorithm uint8

const (
	Max        AmaxAlgorithm = iota // the largest
	MostRecent                      // the most recent
)

var amaxAlgorithmNames = [...]string{Max: "max", MostRecent: "most_recent"}

// String returns Transformer Engine's name: "max" or "most_recent".
func (a AmaxAlgorithm) String() string {
	return naming.String("AmaxAlgorithm", amaxAlgorithmNames[:], a)
}

// MarshalText returns Transformer Engine's name.
func (a AmaxAlgorithm) MarshalText() ([]byte, error) {
	return naming.Marshal("amax algorithm", amaxAlgorithmNames[:], a)
}

// UnmarshalText sets a to the algorithm of the given name. Case is ignored.
func (a *AmaxAlgorithm) UnmarshalText(text []byte) error {
	return naming.Unmarshal("amax algorithm", amaxAlgorithmNames[:], a, text)
}

// Delayed configures delayed scaling, which computes scales from amaxes of earlier steps. The
// zero value disables it: scales come from the current tensor.
//
// Defaults are Transformer Engine's: the maximum of a history of 1024. Megatron-LM's flags
// default to a history of 1 and the most recent.
type Delayed struct {
	Margin               int // scales leave a headroom of 2^Margin
	AmaxHistoryLen       int // in steps; 0: disabled
	AmaxComputeAlgorithm AmaxAlgorithm
}

// Enabled reports whether delayed scaling is enabled.
func (d Delayed) Enabled() bool { return d.AmaxHistoryLen > 0 }

// Attention configures the precision of the products of attention.
type Attention struct {
	DotProduct bool // fp8_dpa: quantize Q, K, V, the probabilities and their gradients
	MultiHead  bool // fp8_mha: also keep the outputs of the projections quantized between the modules
}

// recipes lists all recipes.
var recipes = []Recipe{f32, bf16, delayed, tensorwise, blockwise, mxfp8, nvfp4, mxfp6, mxfp4, mxfp4RHTSR}

// Recipes returns all recipes in their order.
func Recipes() []Recipe { return append([]Recipe(nil), recipes...) }

// Lookup returns the recipe of the given name. Case is ignored.
func Lookup(name string) (Recipe, error) {
	names := make([]string, len(recipes))
	for i, r := range recipes {
		names[i] = r.Name
		if strings.EqualFold(r.Name, name) {
			return r, nil
		}
	}
	return Recipe{}, &naming.UnknownError{Kind: "recipe", Name: name, Choices: names, Or: "a TOML file"}
}

// both returns an operand with one quantizer in both directions.
func both(q quant.Quantizer) Operand { return Operand{q, q} }

// plain returns an operand with Transformer Engine's defaults for a format.
func plain(f quant.Format) Operand { return both(quant.Quantizer{Format: f}) }

// Divisor returns the divisors that Transformer Engine requires of the rows (the product of all
// dimensions but the last) and the columns of a tensor that it quantizes under r. They are 1 and 1 if
// no quantizer has scales.
func (r *Recipe) Divisor() (rows, cols int) {
	rows, cols = 1, 1
	for _, q := range r.quantizers() {
		n := requirementOf(q.Format)
		rows, cols = max(rows, n.rows), max(cols, n.cols)
	}
	return rows, cols
}

// Alignment returns the multiple to which tokens are padded on request: 32 for MX formats, 128
// for NVFP4, 16 for FP32 scales, 1 if no quantizer has scales (Megatron-LM's get_fp8_align_size;
// 128 is Transformer Engine's for NVFP4).
func (r *Recipe) Alignment() int {
	n := 1
	for _, q := range r.quantizers() {
		n = max(n, requirementOf(q.Format).padding)
	}
	return n
}

type requirement struct{ rows, cols, padding int }

// requirementOf returns the requirements of one format on shapes. All numbers are powers of
// two, so the maximum satisfies several requirements.
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

// HoldsWeights reports whether r quantizes weights to values that a layer can hold as its primary
// weights (nn.Linear.HoldWeight): to a scaled format, without the Hadamard transform.
func (r *Recipe) HoldsWeights() bool {
	q := r.Weight.Rowwise
	return q.Format.Scaled() && !q.Hadamard
}

// ShardRows returns a number of rows such that weights can be divided at its multiples: the quantized
// parts are then those of the quantized weight. ok is false if there is none, because a scale belongs
// to all rows of a column or depends on the amax of all rows after a Hadamard transform, or because r
// does not satisfy HoldsWeights.
func (r *Recipe) ShardRows() (rows int, ok bool) {
	w := &r.Weight
	rows = max(1, w.Rowwise.Format.Block.Rows)
	if f := w.Columnwise.Format; !w.Shared() && f.Scaled() {
		n := max(1, f.Block.Cols)
		if n == 1 && !f.PerTensor() || w.Columnwise.Hadamard && f.NeedsAmax() {
			return 0, false
		}
		if rows%n != 0 {
			rows *= n
		}
	}
	return rows, r.HoldsWeights()
}

// PartMultiple returns a number such that ranks can divide the rows and columns of operands at its
// multiples: parts are then whole blocks, and the quantized parts, with an amax over all of them, are
// those of the quantized operand. ok is false if there is none, because a scale belongs to a whole row
// or column, or because weights are rounded with random bits.
func (r *Recipe) PartMultiple() (n int, ok bool) {
	rows, cols := r.Divisor()
	n = max(rows, cols)
	for _, q := range r.quantizers() {
		b := q.Format.Block
		switch {
		case !q.Format.Scaled() || q.Format.PerTensor():
		case b.Rows == 0 || b.Cols == 0:
			return 0, false
		default:
			n = commonMultiple(commonMultiple(n, b.Rows), b.Cols)
		}
	}
	w := r.Weight
	return n, w.Rowwise.Rounding != format.Stochastic && w.Columnwise.Rounding != format.Stochastic
}

// commonMultiple returns the least common multiple of a and b.
func commonMultiple(a, b int) int {
	n := a
	for n%b != 0 {
		n += a
	}
	return n
}

// Disabled returns the recipe without low precision: bf16, or f32 if nothing is rounded.
func (r Recipe) Disabled() Recipe {
	if r.Activations.Element == format.F32 {
		return f32
	}
	return bf16
}
