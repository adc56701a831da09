package recipe

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/microscale-go/microscale/format"
	"github.com/microscale-go/microscale/internal/naming"
	"github.com/microscale-go/microscale/mma"
	"github.com/microscale-go/microscale/quant"
)

// A Switch changes one setting of a recipe. Recipe files use the names as keys, command lines
// use them as flags with hyphens.
//
// Names are Transformer Engine's if it has the setting (the fields of its recipes or of
// QParams).
type Switch struct {
	Name   string
	Values string // accepted values, for help texts
	Doc    string // one sentence

	set func(r *Recipe, value string) error
}

const (
	boolean    = "true | false"
	listOfGEMM = "none | all | a list of fprop, dgrad, wgrad"
)

// switches is in the order in which a recipe file applies them, independent of the order in
// the file: formats first, then their options.
var switches = []Switch{
	{"input_format", "a block format", "the format of X, in both directions", setFormat(func(r *Recipe) *Operand { return &r.Input })},
	{"weight_format", "a block format", "the format of W, in both directions", setFormat(func(r *Recipe) *Operand { return &r.Weight })},
	{"grad_format", "a block format", "the format of dY, in both directions", setFormat(func(r *Recipe) *Operand { return &r.Grad })},
	{"fp8_format", "e4m3 | hybrid", "FP8 elements: E4M3 everywhere, or E5M2 for gradients", setFP8Format},
	{"2d_quantization", boolean, "weights in square blocks, with the same codes in both directions", set2D},
	{"scale_rule", "rceil | floor | ceil | even | round", "rule from the amax of a block to its E8M0 scale", setScaleRule},
	{"power_2_scale", boolean, "FP32 scales are powers of two", setPowerOfTwo},
	{"random_hadamard_transform", listOfGEMM, "products with both operands transformed before quantization", setHadamard},
	{"stochastic_rounding", boolean, "round gradients stochastically", setStochastic},
	{"high_precision", listOfGEMM, "products with BF16 operands", setHighPrecision},
	{"accumulate", "fp32, a model of a matrix unit, or MODEL:N", "how linear layers add products: in FP32, or as the matrix unit of a " +
		"GPU, promoted to FP32 every N elements", setAccumulate},
	{"use_split_accumulator", listOfGEMM, "products that a matrix unit promotes to FP32 every 128 elements", setSplit},
	{"margin", "an integer", "delayed scaling: scales leave a headroom of 2^margin", setMargin},
	{"amax_history_len", "an integer of at least 1", "delayed scaling: length of the amax history", setHistory},
	{"amax_compute_algo", "max | most_recent", "delayed scaling: the amax of the history that sets the scale", setAlgorithm},
	{"store_quantized_activations", boolean, "save the inputs of norms and SwiGLU, and Q, K and V, in MXFP8 for the backward pass",
		setStoreQuantized},
	{"fp8_dpa", boolean, "FP8 attention: quantize Q, K, V and the probabilities", setDotProduct},
	{"fp8_mha", boolean, "FP8 attention with the outputs of the projections kept quantized; includes fp8_dpa", setMultiHead},
}

// Switches returns the switches of a recipe, which Set changes.
func (*Recipe) Switches() []Switch { return slices.Clone(switches) }

// Flag returns the name with hyphens, for a command line.
func (s Switch) Flag() string { return strings.ReplaceAll(s.Name, "_", "-") }

// Set sets the switch of the given name, with underscores or hyphens. It returns an error, and
// leaves r unchanged, if there is no such switch, if the value is invalid, or if the setting
// does not apply to r. Call Validate after the last Set.
func (r *Recipe) Set(name, value string) error {
	want := strings.ReplaceAll(name, "-", "_")
	for _, s := range switches {
		if s.Name != want {
			continue
		}
		changed := *r
		if err := s.set(&changed, strings.TrimSpace(value)); err != nil {
			return fmt.Errorf("recipe %s: %s: %w", r.Name, s.Name, err)
		}
		*r = changed
		return nil
	}
	names := make([]string, len(switches))
	for i, s := range switches {
		names[i] = s.Name
	}
	return fmt.Errorf("recipe %s: %w", r.Name, naming.Unknown("switch", name, names))
}

func setFormat(operand func(*Recipe) *Operand) func(*Recipe, string) error {
	return func(r *Recipe, value string) error {
		f, err := lookupFormat(value)
		if err != nil {
			return err
		}
		o := operand(r)
		for _, q := range []*quant.Quantizer{&o.Rowwise, &o.Columnwise} {
			*q = refit(*q, f)
		}
		return nil
	}
}

// refit returns q with another format, without the options that the format does not support.
func refit(q quant.Quantizer, f quant.Format) quant.Quantizer {
	q.Format = f
	q.PowerOfTwo = q.PowerOfTwo && f.Scale == format.F32
	q.Hadamard = q.Hadamard && f.Scaled() && f.Block.Cols > 0
	if !f.Scaled() {
		q.Rounding = format.NearestEven
	}
	return q
}

func setFP8Format(r *Recipe, value string) error {
	elements := map[string]*format.Scalar{"e4m3": format.E4M3, "hybrid": format.E5M2}
	element, ok := elements[strings.ToLower(value)]
	switch {
	case strings.EqualFold(value, "e5m2"):
		return fmt.Errorf("%w; use e4m3 or hybrid", errPureE5M2)
	case !ok:
		return fmt.Errorf("unknown value %q: use e4m3 or hybrid", value)
	}
	return change("FP8 elements", r.Grad.quantizers(), func(q *quant.Quantizer) bool {
		if !isFP8(q.Format) {
			return false
		}
		q.Format = withElement(q.Format, element)
		return true
	})
}

func set2D(r *Recipe, value string) error {
	on, err := parseBool(value)
	if err != nil {
		return err
	}
	return change("weights in blocks", r.Weight.quantizers(), func(q *quant.Quantizer) bool {
		n := q.Format.Block.Cols
		if !q.Format.Scaled() || n == 0 {
			return false
		}
		rows := 1
		if on {
			rows = n
		}
		q.Format = withBlock(q.Format, quant.Shape{Rows: rows, Cols: n})
		return true
	})
}

func setScaleRule(r *Recipe, value string) error {
	var rule quant.ScaleRule
	if err := rule.UnmarshalText([]byte(value)); err != nil {
		return err
	}
	return change("E8M0 scales", r.quantizers(), func(q *quant.Quantizer) bool {
		if q.Format.Scale != format.E8M0 {
			return false
		}
		q.Rule = rule
		return true
	})
}

func setPowerOfTwo(r *Recipe, value string) error {
	on, err := parseBool(value)
	if err != nil {
		return err
	}
	return change("FP32 scales", r.quantizers(), func(q *quant.Quantizer) bool {
		if q.Format.Scale != format.F32 {
			return false
		}
		q.PowerOfTwo = on
		return true
	})
}

func setHadamard(r *Recipe, value string) error {
	on, err := parseGEMMs(value)
	if err != nil {
		return err
	}
	for g := range gemmNames {
		for _, q := range r.operands(GEMM(g)) {
			if q.Hadamard = on[g]; on[g] && (!q.Format.Scaled() || q.Format.Block.Cols == 0) {
				return fmt.Errorf("the transform spreads outliers over a block: got %s, want a format with blocks", q.Format)
			}
		}
	}
	return nil
}

func setStochastic(r *Recipe, value string) error {
	on, err := parseBool(value)
	if err != nil {
		return err
	}
	return change("quantized gradients", r.Grad.quantizers(), func(q *quant.Quantizer) bool {
		if !q.Format.Scaled() {
			return false
		}
		q.Rounding = format.NearestEven
		if on {
			q.Rounding = format.Stochastic
		}
		return true
	})
}

func setHighPrecision(r *Recipe, value string) error {
	on, err := parseGEMMs(value)
	if err != nil {
		return err
	}
	r.HighPrecision = on
	return nil
}

func setAccumulate(r *Recipe, value string) error {
	var a mma.Accumulator
	err := a.UnmarshalText([]byte(value))
	for g := range r.Accumulate {
		r.Accumulate[g] = a
	}
	return err
}

// splitInterval is the promotion interval that Transformer Engine's use_split_accumulator stands
// for: four instructions of K = 32, the default of CUTLASS.
const splitInterval = 128

func setSplit(r *Recipe, value string) error {
	on, err := parseGEMMs(value)
	if err != nil {
		return err
	}
	for g := range r.Accumulate {
		a := &r.Accumulate[g]
		if a.Model == nil {
			return errors.New("the recipe accumulates in FP32: set accumulate to a model, such as hopper-wgmma")
		}
		a.Promote = 0
		if on[g] {
			a.Promote = splitInterval
		}
	}
	return nil
}

// ErrNotDelayed is the error of settings of delayed scaling for other recipes.
var ErrNotDelayed = errors.New("only the recipe delayed has this setting")

func setMargin(r *Recipe, value string) error {
	n, err := strconv.Atoi(value)
	switch {
	case err != nil:
		return fmt.Errorf("got %q, want an integer", value)
	case !r.Delayed.Enabled():
		return ErrNotDelayed
	}
	r.Delayed.Margin = n
	return nil
}

func setHistory(r *Recipe, value string) error {
	n, err := strconv.Atoi(value)
	switch {
	case err != nil || n < 1:
		return fmt.Errorf("got %q, want an integer of at least 1", value)
	case !r.Delayed.Enabled():
		return ErrNotDelayed
	}
	r.Delayed.AmaxHistoryLen = n
	return nil
}

func setAlgorithm(r *Recipe, value string) error {
	algorithm := r.Delayed.AmaxComputeAlgorithm
	if err := algorithm.UnmarshalText([]byte(value)); err != nil {
		return err
	}
	if !r.Delayed.Enabled() {
		return ErrNotDelayed
	}
	r.Delayed.AmaxComputeAlgorithm = algorithm
	return nil
}

func setStoreQuantized(r *Recipe, value string) (err error) {
	r.StoreQuantized, err = parseBool(value)
	return err
}

func setDotProduct(r *Recipe, value string) (err error) {
	r.Attention.DotProduct, err = parseBool(value)
	return err
}

func setMultiHead(r *Recipe, value string) (err error) {
	r.Attention.MultiHead, err = parseBool(value)
	r.Attention.DotProduct = r.Attention.DotProduct || r.Attention.MultiHead
	return err
}

// change calls set for each quantizer. set reports whether the switch applies to it. change
// returns an error if it applies to none.
func change(what string, quantizers []*quant.Quantizer, set func(*quant.Quantizer) bool) error {
	found := false
	for _, q := range quantizers {
		found = set(q) || found
	}
	if !found {
		return fmt.Errorf("the recipe has no %s", what)
	}
	return nil
}

func parseBool(value string) (bool, error) {
	switch strings.ToLower(value) {
	case "true":
		return true, nil
	case "false":
		return false, nil
	}
	return false, fmt.Errorf("unknown value %q: use true or false", value)
}

// parseGEMMs returns the products that a list names.
func parseGEMMs(value string) (on [len(gemmNames)]bool, err error) {
	switch strings.ToLower(value) {
	case "none", "":
		return on, nil
	case "all":
		return [...]bool{true, true, true}, nil
	}
	for name := range strings.SplitSeq(value, ",") {
		var g GEMM
		if err := g.UnmarshalText([]byte(strings.TrimSpace(name))); err != nil {
			return on, fmt.Errorf("%w, none, or all", err)
		}
		on[g] = true
	}
	return on, nil
}
