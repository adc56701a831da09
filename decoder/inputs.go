package decoder

import (
	"errors"
	"fmt"

	"github.com/microscale-go/microscale/gemm"
	"github.com/microscale-go/microscale/internal/memory"
	"github.com/microscale-go/microscale/quant"
)

// optimize prepares the frozen weights of a projection for products with few tokens, whose inputs
// are in a format: it merges modules into one matrix and interleaves its codes where kernels
// support that.
func (p *projection) optimize(inputs quant.Format, threads int) error {
	f := p.frozen
	if !f.quantized() {
		return nil
	}
	input := &activation{format: inputs}
	for i := range f.parts {
		if f.parts[i].input == nil && f.parts[i].weight.Format.Scaled() {
			f.parts[i].input = input
		}
	}
	f.parts = merge(f.parts)
	for i, part := range f.parts {
		if in := part.input; in == nil || in.format.Element != quant.BF16.Element && !in.format.Element.Integer {
			continue
		}
		inside, err := gemm.Interleave(part.weight, gemm.Options{Threads: threads})
		switch {
		case err == nil:
			f.parts[i].weight, f.parts[i].interleaved = nil, inside
		case !errors.Is(err, errors.ErrUnsupported):
			return fmt.Errorf("%s: %w", f.name, err)
		}
	}
	return nil
}

// merge joins consecutive parts that differ only in their rows.
func merge(parts []frozenPart) []frozenPart {
	var list []frozenPart
	for _, part := range parts {
		if n := len(list) - 1; n >= 0 && list[n].joins(part) {
			list[n].weight = stack(list[n].weight, part.weight)
			continue
		}
		list = append(list, part)
	}
	return list
}

// joins reports whether the rows of q can follow those of p in one tensor.
func (p frozenPart) joins(q frozenPart) bool {
	t, u := p.weight, q.weight
	return p.input == q.input && t.Format.Name == u.Format.Name && t.Format.Block.Rows == 1 && t.Scales32 == nil && u.Scales32 == nil &&
		t.Direction == quant.Rowwise && u.Direction == quant.Rowwise && t.Global == u.Global && t.Cols() == u.Cols()
}

// stack returns the rows of t, then those of u.
func stack(t, u *quant.Tensor) *quant.Tensor {
	s := *t
	s.Shape = []int{t.Rows() + u.Rows(), t.Cols()}
	s.Codes, s.Scales = join(t.Codes, u.Codes), join(t.Scales, u.Scales)
	s.Amax = max(t.Amax, u.Amax)
	return &s
}

// join returns the bytes of a, then those of b, or nil if both are nil.
func join(a, b []byte) []byte {
	if a == nil && b == nil {
		return nil
	}
	joined := make([]byte, len(a)+len(b))
	memory.Huge(joined)
	copy(joined[copy(joined, a):], b)
	return joined
}
