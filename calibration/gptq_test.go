package calibration

import (
	"bytes"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/microscale-go/microscale/quant"
	"github.com/microscale-go/microscale/tensor"
)

// A problem is a weight and H of its input, whole and as its upper triangle.
type problem struct {
	weight tensor.Dense
	h      [][]float64
	upper  []float32
}

// random returns a weight of rows × cols whose input has correlated columns of very different sizes, over a
// number of tokens. Columns in dead are zero.
func random(seed uint64, rows, cols, tokens int, dead ...int) problem {
	r := rand.New(rand.NewPCG(seed, 0))
	p := problem{weight: tensor.New(rows, cols), h: make([][]float64, cols)}
	for i := range p.weight.Data {
		p.weight.Data[i] = float32(r.NormFloat64())
	}
	size := make([]float64, cols)
	for i := range size {
		size[i] = math.Exp(1.5 * r.NormFloat64())
	}
	for _, i := range dead {
		size[i] = 0
	}
	for i := range p.h {
		p.h[i] = make([]float64, cols)
	}
	x := make([]float64, cols)
	for range tokens {
		common := r.NormFloat64()
		for i := range x {
			x[i] = size[i] * (0.7*common + r.NormFloat64())
		}
		for i := range x {
			for j := range x {
				p.h[i][j] += x[i] * x[j] / float64(tokens)
			}
		}
	}
	for i := range p.h {
		for j := i; j < cols; j++ {
			p.upper = append(p.upper, float32(p.h[i][j]))
		}
	}
	for i := range p.h { // as it is stored
		for j := range p.h {
			p.h[i][j] = float64(float32(p.h[i][j]))
		}
	}
	return p
}

// diagonal returns the importance of the columns.
func (p problem) diagonal() []float32 {
	d := make([]float32, len(p.h))
	for i := range d {
		d[i] = float32(p.h[i][i])
	}
	return d
}

// loss returns the error of the outputs.
func (p problem) loss(q *quant.Tensor) (sum float64) {
	values := q.Dequantize(1)
	for row := range values.Rows {
		d := make([]float64, len(p.h))
		for i := range d {
			d[i] = float64(p.weight.At(row, i)) - float64(values.At(row, i))
		}
		for i := range d {
			for j := range d {
				sum += d[i] * p.h[i][j] * d[j]
			}
		}
	}
	return sum
}

func factorOf(t *testing.T, p problem) *Factor {
	t.Helper()
	f, err := NewFactor(p.upper, len(p.h))
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func quantized(t *testing.T, q quant.Quantizer, p problem, with quant.With) *quant.Tensor {
	t.Helper()
	got, err := GPTQ(q, p.weight, with, factorOf(t, p))
	if err != nil {
		t.Fatal(err)
	}
	return got
}

// TestFactor compares U with the textbook's: the upper Cholesky factor of the inverse of the damped H.
func TestFactor(t *testing.T) {
	const n = 24
	p := random(1, 1, n, 100)
	f := factorOf(t, p)
	a := make([][]float64, n) // [H | I], which elimination turns into [I | H⁻¹]
	mean := 0.0
	for i := range n {
		mean += p.h[i][i] / n
	}
	for i := range a {
		a[i] = make([]float64, 2*n)
		for j := range n {
			a[i][j] = p.h[f.Order[i]][f.Order[j]]
		}
		a[i][i] += DefaultDamping * mean
		a[i][n+i] = 1
	}
	for c := range n {
		for r := range n {
			if r != c {
				times := a[r][c] / a[c][c]
				for k := range a[r] {
					a[r][k] -= times * a[c][k]
				}
			}
		}
	}
	inverse := func(i, j int) float64 { return a[i][n+j] / a[i][i] }
	u := make([][]float64, n) // H⁻¹ = Uᵀ·U, row after row
	for i := range u {
		u[i] = make([]float64, n)
		for j := i; j < n; j++ {
			sum := inverse(i, j)
			for k := range i {
				sum -= u[k][i] * u[k][j]
			}
			if j == i {
				u[i][i] = math.Sqrt(sum)
			} else {
				u[i][j] = sum / u[i][i]
			}
			if got := float64(f.u[i*n+j]); math.Abs(got-u[i][j]) > 1e-5*u[i][i] {
				t.Fatalf("row %d, column %d: got %g, want %g", i, j, got, u[i][j])
			}
		}
	}
	for i := 1; i < n; i++ {
		if p.h[f.Order[i]][f.Order[i]] > p.h[f.Order[i-1]][f.Order[i-1]] {
			t.Errorf("column %d comes after %d", f.Order[i], f.Order[i-1])
		}
	}
}

// TestGPTQ: GPTQ loses less than the search of scales, which loses less than the nearest codes, in every
// format; and the result does not depend on threads, nor on how rows are divided.
func TestGPTQ(t *testing.T) {
	p := random(2, 70, 96, 400)
	for _, f := range []quant.Format{quant.NVFP4, quant.MXFP4, quant.MXFP8, quant.MXINT8} {
		nearest := quant.Quantizer{Format: f}
		q, err := Solve.Quantizer(nearest)
		if err != nil {
			t.Fatal(err)
		}
		amax := quant.Amax(p.weight, 1)
		with := quant.With{Importance: p.diagonal(), Amax: &amax}
		plain, err := nearest.Rowwise(p.weight, quant.With{})
		if err != nil {
			t.Fatal(err)
		}
		searched, err := q.Rowwise(p.weight, with)
		if err != nil {
			t.Fatal(err)
		}
		got := quantized(t, q, p, with)
		if a, b, c := p.loss(plain), p.loss(searched), p.loss(got); !(c < 0.8*b && b <= a) {
			t.Errorf("%s: losses %g of the nearest, %g of the search, %g of GPTQ", f, a, b, c)
		}
		if !bytes.Equal(got.Scales, searched.Scales) {
			t.Errorf("%s: GPTQ changes scales", f)
		}
		with.Threads = 3
		if again := quantized(t, q, p, with); !bytes.Equal(again.Codes, got.Codes) {
			t.Errorf("%s: threads change codes", f)
		}
		part := problem{p.weight.View(40, 70, 0, 96), p.h, p.upper}
		if rest := quantized(t, q, part, with); !bytes.Equal(rest.Codes, got.Codes[40*len(got.Codes)/70:]) {
			t.Errorf("%s: rows depend on each other", f)
		}
	}
}

// TestIdentity: where H is the identity, GPTQ gives the nearest codes.
func TestIdentity(t *testing.T) {
	p := random(3, 20, 64, 1)
	k := 0
	for i := range p.h {
		for j := i; j < len(p.h); j++ {
			p.upper[k], p.h[i][j] = 0, 0
			if i == j {
				p.upper[k], p.h[i][i] = 1, 1
			}
			k++
		}
	}
	for _, q := range []quant.Quantizer{{Format: quant.NVFP4}, {Format: quant.MXFP4, Search: quant.LeastSquares}, {Format: quant.MXFP8}} {
		want, err := q.Rowwise(p.weight, quant.With{})
		if err != nil {
			t.Fatal(err)
		}
		if got := quantized(t, q, p, quant.With{}); !bytes.Equal(got.Codes, want.Codes) || !bytes.Equal(got.Scales, want.Scales) {
			t.Errorf("%s: codes are not the nearest", q.Format)
		}
	}
}

// TestPermuted: blocks of columns in another order have the same codes, in that order.
func TestPermuted(t *testing.T) {
	const rows, cols, block = 9, 96, 16
	p := random(4, rows, cols, 300)
	moved := func(col int) int { return (col + 3*block) % cols }
	m := problem{weight: tensor.New(rows, cols), h: p.h}
	for i := range cols {
		for j := i; j < cols; j++ {
			m.upper = append(m.upper, float32(p.h[moved(i)][moved(j)]))
		}
		for row := range rows {
			m.weight.Row(row)[i] = p.weight.At(row, moved(i))
		}
	}
	q := quant.Quantizer{Format: quant.NVFP4}
	want, got := quantized(t, q, p, quant.With{}).Dequantize(1), quantized(t, q, m, quant.With{}).Dequantize(1)
	for row := range rows {
		for i := range cols {
			if got.At(row, i) != want.At(row, moved(i)) {
				t.Fatalf("row %d, column %d: got %g, want %g", row, i, got.At(row, i), want.At(row, moved(i)))
			}
		}
	}
}

// TestDead: a column that no token reaches has the nearest codes and changes no other; fewer tokens than
// columns need no more than the damping.
func TestDead(t *testing.T) {
	p := random(5, 12, 64, 20, 3, 40)
	f := factorOf(t, p)
	if f.Dead != 2 || f.Damping != DefaultDamping {
		t.Errorf("got %d dead columns and damping %g, want 2 and %g", f.Dead, f.Damping, DefaultDamping)
	}
	q := quant.Quantizer{Format: quant.MXFP8}
	got := quantized(t, q, p, quant.With{}).Dequantize(1)
	nearest, err := q.Rowwise(p.weight, quant.With{})
	if err != nil {
		t.Fatal(err)
	}
	want := nearest.Dequantize(1)
	for row := range got.Rows {
		for _, col := range []int{3, 40} {
			if got.At(row, col) != want.At(row, col) {
				t.Errorf("row %d, column %d: got %g, want %g", row, col, got.At(row, col), want.At(row, col))
			}
		}
	}
	if none := make([]float32, 3); func() error { _, err := NewFactor(none, 2); return err }() == nil {
		t.Error("no error for an H of zeros")
	}
	if _, err := NewFactor([]float32{1, 5, 1}, 2); err == nil {
		t.Error("no error for an H that is not positive semidefinite")
	}
	if _, err := GPTQ(q, tensor.New(2, 32), quant.With{}, f); err == nil {
		t.Error("no error for another number of columns")
	}
}

// TestNotFinite: NaN in one row leaves the others as they are.
func TestNotFinite(t *testing.T) {
	p := random(6, 4, 32, 100)
	q := quant.Quantizer{Format: quant.MXFP8}
	want := quantized(t, q, p, quant.With{})
	p.weight.Row(2)[5] = float32(math.NaN())
	got := quantized(t, q, p, quant.With{})
	if !bytes.Equal(got.Codes[:2*32], want.Codes[:2*32]) || !bytes.Equal(got.Codes[3*32:], want.Codes[3*32:]) {
		t.Error("a NaN changes other rows")
	}
}
