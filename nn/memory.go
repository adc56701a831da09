package nn

import (
	"reflect"
	"slices"

	"github.com/microscale-go/microscale/quant"
	"github.com/microscale-go/microscale/tensor"
)

// A Memory holds quantized operands that are out of use, for later ones of the same
// format and shape to be written into. Modules that share one, as those of a model
// do, quantize from one step to the next into the same memory. The zero value is
// empty, and nil holds nothing.
type Memory struct {
	spare   []*quant.Tensor
	rounded []float32 // of the largest weight that was rounded
}

// Bytes returns the memory that is held for later operands.
func (m *Memory) Bytes() int {
	n := 4 * cap(m.rounded)
	for _, t := range m.spare {
		n += tensorBytes(t)
	}
	return n
}

// dense returns a matrix for one use: the next call returns the same memory.
func (m *Memory) dense(rows, cols int) tensor.Dense {
	if m == nil {
		return tensor.New(rows, cols)
	}
	if cap(m.rounded) < rows*cols {
		m.rounded = make([]float32, rows*cols)
	}
	return tensor.Of(rows, cols, m.rounded[:rows*cols])
}

// take returns an operand to write a copy of x into, nil where none fits.
func (m *Memory) take(f quant.Format, d quant.Direction, x tensor.Dense) *quant.Tensor {
	if m == nil {
		return nil
	}
	i := slices.IndexFunc(m.spare, func(t *quant.Tensor) bool {
		return t.Direction == d && t.Rows() == x.Rows && t.Cols() == x.Cols && t.Format.Name == f.Name && reflect.DeepEqual(t.Format, f)
	})
	if i < 0 {
		return nil
	}
	t := m.spare[i]
	m.spare = slices.Delete(m.spare, i, i+1)
	return t
}

// memoryMost is how many operands a Memory holds. Those of shapes that do not come
// again are the first to go.
const memoryMost = 64

// give takes operands back that nobody will read again; nil ones are passed over.
func (m *Memory) give(operands ...*quant.Tensor) {
	if m == nil {
		return
	}
	for _, t := range operands {
		if t != nil {
			m.spare = append(m.spare, t)
		}
	}
	if n := len(m.spare) - memoryMost; n > 0 {
		m.spare = slices.Delete(m.spare, 0, n)
	}
}
