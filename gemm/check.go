package gemm

import (
	"fmt"
	"unsafe"

	"github.com/microscale-go/microscale/format"
	"github.com/microscale-go/microscale/quant"
	"github.com/microscale-go/microscale/tensor"
)

func planDense(c tensor.Dense, a, b *quant.Tensor, packed bool, o Options) (plan, error) {
	if err := c.Validate(); err != nil {
		return plan{}, fmt.Errorf("gemm: c: %w", err)
	}
	if err := check(c.Rows, c.Cols, a, b, o); err != nil {
		return plan{}, err
	}
	const float = 4
	if err := checkApart(rows{memory(c.Data), c.Rows, float * c.Cols, float * c.Stride}, a, b, o); err != nil {
		return plan{}, err
	}
	return newPlan(a, b, packed, o)
}

func planBF16(c, a, b *quant.Tensor, packed bool, o Options) (plan, error) {
	if err := checkOperand("c", c); err != nil {
		return plan{}, err
	}
	if c.Format.Element != format.BF16 || c.Direction != quant.Rowwise {
		return plan{}, fmt.Errorf("gemm: c is to be a rowwise bf16 tensor, not a %s %s one", c.Direction, c.Format)
	}
	if err := check(c.Rows(), c.Cols(), a, b, o); err != nil {
		return plan{}, err
	}
	if err := checkApart(rows{c.Codes, c.Rows(), c.LineBytes(), c.LineBytes()}, a, b, o); err != nil {
		return plan{}, err
	}
	return newPlan(a, b, packed, o)
}

// check reports what keeps a and b from giving an m×n product.
func check(m, n int, a, b *quant.Tensor, o Options) error {
	if err := checkOperand("a", a); err != nil {
		return err
	}
	if err := checkOperand("b", b); err != nil {
		return err
	}
	if a.Width() != b.Width() {
		err := fmt.Errorf("gemm: a has lines of %d elements (%s), b of %d (%s): both are summed over their lines", a.Width(), describe(a), b.Width(), describe(b))
		switch {
		case a.Lines() == b.Width():
			err = fmt.Errorf("%w; a has the wrong direction: quantize it %s", err, other(a.Direction))
		case b.Lines() == a.Width():
			err = fmt.Errorf("%w; b has the wrong direction: quantize it %s", err, other(b.Direction))
		}
		return err
	}
	if m != a.Lines() || n != b.Lines() {
		return fmt.Errorf("gemm: c is %d×%d, but a (%s) times b (%s) is %d×%d", m, n, describe(a), describe(b), a.Lines(), b.Lines())
	}
	if o.Bias != nil && len(o.Bias) != n {
		return fmt.Errorf("gemm: a bias of %d elements for %d columns of c", len(o.Bias), n)
	}
	return checkThreads(o)
}

func checkThreads(o Options) error {
	if o.Threads < 0 {
		return fmt.Errorf("gemm: %d threads", o.Threads)
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

// checkOperand reports codes or scales that do not fill the tensor's shape.
func checkOperand(name string, t *quant.Tensor) error {
	if t == nil {
		return fmt.Errorf("gemm: %s is nil", name)
	}
	if err := t.Validate(); err != nil {
		return fmt.Errorf("gemm: %s: %w", name, err)
	}
	return nil
}

// checkApart reports what of the operands lies where c is written.
func checkApart(c rows, a, b *quant.Tensor, o Options) error {
	for _, x := range [...]struct {
		name   string
		memory []byte
	}{
		{"a's codes", a.Codes}, {"a's scales", a.Scales}, {"a's scales", memory(a.Scales32)},
		{"b's codes", b.Codes}, {"b's scales", b.Scales}, {"b's scales", memory(b.Scales32)},
		{"the bias", memory(o.Bias)},
	} {
		if c.meet(x.memory) {
			return fmt.Errorf("gemm: c shares memory with %s: a is %s, b is %s", x.name, describe(a), describe(b))
		}
	}
	return nil
}

// rows are n parts of memory, so many bytes long and so many from one to the next.
type rows struct {
	memory         []byte
	n, bytes, next int
}

// meet reports whether one of them shares bytes with x.
func (r rows) meet(x []byte) bool {
	if r.n == 0 || r.bytes == 0 || len(x) == 0 {
		return false
	}
	start, from := uintptr(unsafe.Pointer(&r.memory[0])), uintptr(unsafe.Pointer(&x[0]))
	if from < start {
		return from+uintptr(len(x)) > start
	}
	at := from - start
	i := 0
	if r.n > 1 { // one alone may tell any distance to a next
		i = min(int(at/uintptr(r.next)), r.n-1)
	}
	within := at - uintptr(i*r.next)
	return within < uintptr(r.bytes) || i+1 < r.n && within+uintptr(len(x)) > uintptr(r.next)
}

// memory returns the bytes of float32 numbers.
func memory(x []float32) []byte {
	const float = 4
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(x))), float*len(x))
}
