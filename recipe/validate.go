package recipe

import (
	"errors"
	"fmt"
	"math"

	"github.com/microscale-go/microscale/format"
	"github.com/microscale-go/microscale/gemm"
	"github.com/microscale-go/microscale/quant"
)

var errPureE5M2 = errors.New("pure E5M2 training is not supported: two mantissa bits are too few for weights and activations, and only " +
	"gradients need the range (hybrid)")

// Validate returns an error if r is inconsistent, or combines what Transformer Engine or cuBLAS does
// not support.
func (r *Recipe) Validate() error {
	for _, rule := range []func() error{r.checkQuantizers, r.checkE5M2, r.checkHadamard, r.checkBlocks, r.checkDelayed, r.checkAttention,
		r.checkAccumulate} {
		if err := rule(); err != nil {
			return fmt.Errorf("recipe %s: %w", r.Name, err)
		}
	}
	return nil
}

func (r *Recipe) checkQuantizers() error {
	if r.Activations.Element != format.BF16 && r.Activations.Element != format.F32 {
		return fmt.Errorf("activations: got %s, want bf16 or f32", r.Activations)
	}
	for _, q := range r.quantizers() {
		if err := q.Validate(); err != nil {
			return err
		}
	}
	return nil
}

// checkE5M2 implements the assertion of every recipe of Transformer Engine.
func (r *Recipe) checkE5M2() error {
	for _, q := range append(r.Input.quantizers(), r.Weight.quantizers()...) {
		if q.Format.Element == format.E5M2 {
			return errPureE5M2
		}
	}
	return nil
}

// checkHadamard checks that both operands of a product are transformed or neither, so that the
// transforms cancel.
func (r *Recipe) checkHadamard() error {
	for g := range gemmNames {
		if o := r.operands(GEMM(g)); o[0].Hadamard != o[1].Hadamard {
			return fmt.Errorf("one operand of %s has the Hadamard transform and the other does not: set both with random_hadamard_transform",
				GEMM(g))
		}
		for _, q := range r.operands(GEMM(g)) {
			if q.Hadamard && r.Activations.Element != format.BF16 {
				return errors.New("the Hadamard transform rounds to BF16: set activations to bf16")
			}
		}
	}
	return nil
}

// checkBlocks rejects products of two operands with 128×128 blocks, which cuBLAS does not
// support (Transformer Engine asserts the same). 1×128 by 1×128 and by 128×128 blocks are
// supported.
func (r *Recipe) checkBlocks() error {
	for g := range gemmNames {
		o := r.operands(GEMM(g))
		if is2D(o[0].Format) && is2D(o[1].Format) && o[0].Format.Scale == format.F32 && o[1].Format.Scale == format.F32 {
			return fmt.Errorf("both operands of %s have FP32 scales of %d×%d blocks: 2D by 2D block products are not supported", GEMM(g),
				o[0].Format.Block.Rows, o[0].Format.Block.Cols)
		}
	}
	return nil
}

// checkAccumulate checks that each model has a unit for the operands of its product. Products in the
// format of Activations may lack one (they accumulate in FP32), but not all products.
func (r *Recipe) checkAccumulate() error {
	products, missing := 0, error(nil)
	for g := range gemmNames {
		a := r.Accumulate[g]
		x, y := r.formats(GEMM(g))
		if a.Model == nil {
			products++
			continue
		}
		_, err := gemm.Unit(a, x, y)
		switch {
		case err == nil:
			products++
		case x == r.Activations && y == r.Activations:
			missing = fmt.Errorf("%s: %w", GEMM(g), err)
		default:
			return fmt.Errorf("%s: %w", GEMM(g), err)
		}
	}
	if products == 0 {
		return missing
	}
	return nil
}

func is2D(f quant.Format) bool { return f.Block.Rows > 1 && f.Block.Cols > 1 }

// maxHistory bounds the amax history of a quantizer: 64 times the default.
const maxHistory = 1 << 16

func (r *Recipe) checkDelayed() error {
	switch {
	case !r.Delayed.Enabled():
		return nil
	case r.Delayed.AmaxComputeAlgorithm > MostRecent:
		return fmt.Errorf("unknown amax_compute_algo %d", r.Delayed.AmaxComputeAlgorithm)
	case math.Abs(float64(r.Delayed.Margin)) > 64:
		return fmt.Errorf("margin: got %d, want -64 to 64", r.Delayed.Margin)
	case r.Delayed.AmaxHistoryLen > maxHistory:
		return fmt.Errorf("amax_history_len: got %d, want at most %d", r.Delayed.AmaxHistoryLen, maxHistory)
	}
	for _, q := range r.quantizers() {
		if !q.Format.PerTensor() {
			return fmt.Errorf("delayed scaling: got %s, want a format with one scale per tensor", q.Format)
		}
	}
	return nil
}

// checkAttention checks that FP8 attention uses FP8 with one scale per tensor, or MXFP8.
func (r *Recipe) checkAttention() error {
	if !r.Attention.DotProduct {
		if r.Attention.MultiHead {
			return errors.New("fp8_mha requires fp8_dpa")
		}
		return nil
	}
	for _, q := range []quant.Quantizer{r.Input.Rowwise, r.Grad.Rowwise} {
		if !isFP8(q.Format) || !q.Format.PerTensor() && q.Format.Scale != format.E8M0 {
			return fmt.Errorf("fp8_dpa: got %s, want FP8 with one scale per tensor, or MXFP8", q.Format)
		}
	}
	return nil
}

func isFP8(f quant.Format) bool {
	return f.Scaled() && (f.Element == format.E4M3 || f.Element == format.E5M2)
}
