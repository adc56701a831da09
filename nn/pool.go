package nn

import (
	"slices"

	"github.com/microscale-go/microscale/quant"
	"github.com/microscale-go/microscale/tensor"
)

// A Pool holds unused quantized operands, so that later operands of the same format and shape
// reuse their memory. The modules of a model share one. The zero value is an empty pool; a nil
// *Pool holds nothing.
type Pool struct {
	free     []*quant.Tensor
	rounded  []float32 // buffer of scratch
	products []float32 // buffer of product
}

// Bytes returns the bytes that the pool holds.
func (p *Pool) Bytes() int {
	n := 4 * (cap(p.rounded) + cap(p.products))
	for _, t := range p.free {
		n += tensorBytes(t)
	}
	return n
}

// scratch returns a matrix that is valid until the next call.
func (p *Pool) scratch(rows, cols int) tensor.Dense {
	if p == nil {
		return tensor.New(rows, cols)
	}
	return buffered(&p.rounded, rows, cols)
}

// product returns a matrix that is valid until the next call.
func (p *Pool) product(rows, cols int) tensor.Dense {
	if p == nil {
		return tensor.New(rows, cols)
	}
	return buffered(&p.products, rows, cols)
}

// buffered returns a matrix in a buffer, which grows if it is too small.
func buffered(buffer *[]float32, rows, cols int) tensor.Dense {
	if cap(*buffer) < rows*cols {
		*buffer = make([]float32, rows*cols)
	}
	return tensor.Of(rows, cols, (*buffer)[:rows*cols])
}

// take removes a tensor of the format, direction and shape of a quantized copy of x from the pool. It
// returns nil if there is none.
func (p *Pool) take(f quant.Format, d quant.Direction, x tensor.Dense) *quant.Tensor {
	if p == nil {
		return nil
	}
	i := slices.IndexFunc(p.free, func(t *quant.Tensor) bool {
		return t.Direction == d && t.Rows() == x.Rows && t.Cols() == x.Cols && t.Format == f
	})
	if i < 0 {
		return nil
	}
	t := p.free[i]
	p.free = slices.Delete(p.free, i, i+1)
	return t
}

// maxPooled is the maximum number of tensors in a pool. The oldest are dropped first, so that shapes
// that do not recur leave the pool.
const maxPooled = 64

// put adds tensors that are no longer read. It ignores nil.
func (p *Pool) put(tensors ...*quant.Tensor) {
	if p == nil {
		return
	}
	for _, t := range tensors {
		if t != nil {
			p.free = append(p.free, t)
		}
	}
	if n := len(p.free) - maxPooled; n > 0 {
		p.free = slices.Delete(p.free, 0, n)
	}
}
