package recipe

import (
	"errors"
	"fmt"
	"math"

	"github.com/microscale-go/microscale/format"
	"github.com/microscale-go/microscale/quant"
)

var errPureE5M2 = errors.New("pure E5M2 training is not supported: two mantissa bits are too few for weights and activations, and only gradients need the range (hybrid)")

// Validate reports what makes r unusable, in the words of the switch that mends it.
func (r *Recipe) Validate() error {
	for _, rule := range []func() error{r.checkQuantizers, r.checkE5M2, r.checkHadamard, r.checkBlocks, r.checkDelayed, r.checkAttention} {
		if err := rule(); err != nil {
			return fmt.Errorf("recipe %s: %w", r.Name, err)
		}
	}
	return nil
}

func (r *Recipe) checkQuantizers() error {
	if r.Activations.Element != format.BF16 && r.Activations.Element != format.F32 {
		return fmt.Errorf("activations are bf16 or f32, not %s", r.Activations)
	}
	for _, q := range r.quantizers() {
		if err := q.Validate(); err != nil {
			return err
		}
	}
	return nil
}

// checkE5M2 is the assertion of every recipe of Transformer Engine.
func (r *Recipe) checkE5M2() error {
	for _, q := range append(r.Input.quantizers(), r.Weight.quantizers()...) {
		if q.Format.Element == format.E5M2 {
			return errPureE5M2
		}
	}
	return nil
}

// checkHadamard: a transform cancels in a product where both operands have it.
func (r *Recipe) checkHadamard() error {
	for g := range gemmNames {
		if o := r.operands(GEMM(g)); o[0].Hadamard != o[1].Hadamard {
			return fmt.Errorf("one operand of %s has the Hadamard transform and the other has not: the product would be another one (random_hadamard_transform sets both)", GEMM(g))
		}
		for _, q := range r.operands(GEMM(g)) {
			if q.Hadamard && r.Activations.Element != format.BF16 {
				return errors.New("the Hadamard transform rounds to BF16, and takes BF16 activations")
			}
		}
	}
	return nil
}

// checkBlocks: cuBLAS multiplies 1×128 by 1×128 and by 128×128 blocks, but not two
// operands of 128×128 (Transformer Engine asserts the same).
func (r *Recipe) checkBlocks() error {
	for g := range gemmNames {
		o := r.operands(GEMM(g))
		if is2D(o[0].Format) && is2D(o[1].Format) && o[0].Format.Scale == format.F32 && o[1].Format.Scale == format.F32 {
			return fmt.Errorf("both operands of %s have FP32 scales of %d×%d blocks: 2D by 2D block products are not supported", GEMM(g), o[0].Format.Block.Rows, o[0].Format.Block.Cols)
		}
	}
	return nil
}

func is2D(f quant.Format) bool { return f.Block.Rows > 1 && f.Block.Cols > 1 }

// maxHistory bounds what every quantizer of a model remembers: 64 times the
// default.
const maxHistory = 1 << 16

func (r *Recipe) checkDelayed() error {
	switch {
	case !r.Delayed.Enabled():
		return nil
	case r.Delayed.AmaxComputeAlgorithm > MostRecent:
		return fmt.Errorf("unknown amax_compute_algo %d", r.Delayed.AmaxComputeAlgorithm)
	case math.Abs(float64(r.Delayed.Margin)) > 64:
		return fmt.Errorf("a margin of %d leaves no range: use one from -64 to 64", r.Delayed.Margin)
	case r.Delayed.AmaxHistoryLen > maxHistory:
		return fmt.Errorf("an amax_history_len of %d takes memory for nothing: use one of at most %d", r.Delayed.AmaxHistoryLen, maxHistory)
	}
	for _, q := range r.quantizers() {
		if !q.Format.PerTensor() {
			return fmt.Errorf("delayed scaling has one scale per tensor, which %s has not", q.Format)
		}
	}
	return nil
}

// checkAttention: FP8 attention takes FP8 with one scale per tensor or MXFP8.
func (r *Recipe) checkAttention() error {
	if !r.Attention.DotProduct {
		if r.Attention.MultiHead {
			return errors.New("fp8_mha needs fp8_dpa")
		}
		return nil
	}
	for _, q := range []quant.Quantizer{r.Input.Rowwise, r.Grad.Rowwise} {
		if !isFP8(q.Format) || !q.Format.PerTensor() && q.Format.Scale != format.E8M0 {
			return fmt.Errorf("fp8_dpa takes FP8 with one scale per tensor, or MXFP8, and not %s", q.Format)
		}
	}
	return nil
}

func isFP8(f quant.Format) bool {
	return f.Scaled() && (f.Element == format.E4M3 || f.Element == format.E5M2)
}
