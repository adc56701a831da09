package gemm

import (
	"fmt"

	"github.com/microscale-go/microscale/format"
	"github.com/microscale-go/microscale/internal/memory"
	"github.com/microscale-go/microscale/quant"
	"github.com/microscale-go/microscale/tensor"
)

func planDense(c tensor.Dense, a, b *quant.Tensor, stored form, o Options) (plan, error) {
	if err := c.Validate(); err != nil {
		return plan{}, fmt.Errorf("gemm: c: %w", err)
	}
	if err := check(c.Rows, c.Cols, a, b, o); err != nil {
		return plan{}, err
	}
	const float = 4
	if err := checkApart(memory.Rows{Memory: memory.Bytes(c.Data), N: c.Rows, Bytes: float * c.Cols, Next: float * c.Stride}, a, b,
		o); err != nil {
		return plan{}, err
	}
	return newPlan(a, b, stored, o)
}

func planBF16(c, a, b *quant.Tensor, stored form, o Options) (plan, error) {
	if err := checkOperand("c", c); err != nil {
		return plan{}, err
	}
	if c.Format.Element != format.BF16 || c.Direction != quant.Rowwise {
		return plan{}, fmt.Errorf("gemm: c: got a %s %s tensor, want rowwise bf16", c.Direction, c.Format)
	}
	if err := check(c.Rows(), c.Cols(), a, b, o); err != nil {
		return plan{}, err
	}
	if err := checkApart(memory.All(c.Codes), a, b, o); err != nil {
		return plan{}, err
	}
	return newPlan(a, b, stored, o)
}

// check returns an error unless a and b have an m×n product.
func check(m, n int, a, b *quant.Tensor, o Options) error {
	if err := checkOperand("a", a); err != nil {
		return err
	}
	if err := checkOperand("b", b); err != nil {
		return err
	}
	if a.StoredCols() != b.StoredCols() {
		err := fmt.Errorf("gemm: a has K = %d (%s), b has K = %d (%s): want equal K", a.StoredCols(), describe(a), b.StoredCols(), describe(b))
		switch {
		case a.StoredRows() == b.StoredCols():
			err = fmt.Errorf("%w; a has the wrong direction: quantize it %s", err, other(a.Direction))
		case b.StoredRows() == a.StoredCols():
			err = fmt.Errorf("%w; b has the wrong direction: quantize it %s", err, other(b.Direction))
		}
		return err
	}
	if m != a.StoredRows() || n != b.StoredRows() {
		return fmt.Errorf("gemm: c: got %d×%d, but a (%s) times b (%s) is %d×%d", m, n, describe(a), describe(b), a.StoredRows(), b.StoredRows())
	}
	if o.Bias != nil && len(o.Bias) != n {
		return fmt.Errorf("gemm: bias: got %d elements, want %d, the columns of c", len(o.Bias), n)
	}
	return checkThreads(o)
}

func checkThreads(o Options) error {
	if o.Threads < 0 {
		return fmt.Errorf("gemm: Threads: got %d, want 0 (one per processor) or more", o.Threads)
	}
	return nil
}

// describe names an operand's matrix: rowwise mxfp8 16×64.
func describe(t *quant.Tensor) string {
	return fmt.Sprintf("%s %s %d×%d", t.Direction, t.Format, t.Rows(), t.Cols())
}

func other(d quant.Direction) quant.Direction {
	if d == quant.Rowwise {
		return quant.Columnwise
	}
	return quant.Rowwise
}

// checkOperand returns an error for a nil or damaged operand.
func checkOperand(name string, t *quant.Tensor) error {
	if t == nil {
		return fmt.Errorf("gemm: %s is nil", name)
	}
	if err := t.Validate(); err != nil {
		return fmt.Errorf("gemm: %s: %w", name, err)
	}
	return nil
}

// checkApart returns an error if c shares memory with an operand or the bias.
func checkApart(c memory.Rows, a, b *quant.Tensor, o Options) error {
	for _, x := range [...]struct {
		name  string
		bytes []byte
	}{
		{"a's codes", a.Codes}, {"a's scales", a.Scales}, {"a's scales", memory.Bytes(a.Scales32)},
		{"b's codes", b.Codes}, {"b's scales", b.Scales}, {"b's scales", memory.Bytes(b.Scales32)},
		{"the bias", memory.Bytes(o.Bias)},
	} {
		if c.Meet(x.bytes) {
			return fmt.Errorf("gemm: c shares memory with %s: a is %s, b is %s", x.name, describe(a), describe(b))
		}
	}
	return nil
}
