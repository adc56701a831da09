package gemm

import (
	"fmt"
	"math"

	"github.com/microscale-go/microscale/quant"
)

// Reference returns A·Bᵀ, M×N in row-major order, summed in float64 over the values that
// Dequantize returns. magnitude is Σ|a·b| of every element, the scale of rounding errors.
// Reference defines what the other functions of this package compute.
func Reference(a, b *quant.Tensor) (product, magnitude []float64, err error) {
	m, n := 0, 0
	if a != nil && b != nil && len(a.Shape) > 0 && len(b.Shape) > 0 {
		m, n = a.StoredRows(), b.StoredRows()
	}
	if err := check(m, n, a, b, Options{}); err != nil {
		return nil, nil, err
	}
	if m == 0 || n == 0 { // with any number of rows of the other
		return nil, nil, nil
	}
	if m > math.MaxInt/8/n {
		return nil, nil, fmt.Errorf("gemm: a product of %d×%d does not fit in memory: a is %s, b is %s", m, n, describe(a), describe(b))
	}
	product, magnitude = make([]float64, m*n), make([]float64, m*n)
	av, bv := storedRows(a), storedRows(b)
	for i := range m {
		for j := range n {
			var sum, mag float64
			for k, x := range av[i] {
				p := float64(x) * float64(bv[j][k])
				sum += p
				mag += math.Abs(p)
			}
			product[i*n+j], magnitude[i*n+j] = sum, mag
		}
	}
	return product, magnitude, nil
}

// storedRows returns the values of t, one slice per stored row.
func storedRows(t *quant.Tensor) [][]float32 {
	d := t.Dequantize(1)
	if t.Direction == quant.Columnwise {
		d = d.Transpose()
	}
	rows := make([][]float32, d.Rows)
	for i := range rows {
		rows[i] = d.Row(i)
	}
	return rows
}
