package calibration

import (
	"fmt"

	"github.com/microscale-go/microscale/gemm"
	"github.com/microscale-go/microscale/internal/parallel"
	"github.com/microscale-go/microscale/quant"
	"github.com/microscale-go/microscale/tensor"
)

// Aim makes GPTQ fit the outputs of the original model to the inputs X̂ that the quantized layers before give, of which H is. In place of
// a weight W it then quantizes
//
//	W̃ = W + W·D·(H+λI)⁻¹,   D = (X−X̂)ᵀ·X̂ / tokens, inputs × inputs
//
// which minimizes ‖X·Wᵀ − X̂·W̃ᵀ‖²/tokens + λ·‖W̃−W‖², with λ the damping of f. It is the weight itself where X̂ is X.
//
// What X̂ explains of the drift of a column over few tokens is partly chance: of n columns, n/tokens of what it does not explain. So
// row i of D·(H+λI)⁻¹ is multiplied by what is left without it, as in the adjusted R²:
//
//	1 − (1−R²)/R² · n/(tokens−n), at least 0,   R² = (D·(H+λI)⁻¹·Dᵀ)ᵢᵢ / the mean square of the column of X−X̂
//
// Sources: Zhang et al., Qronos (arXiv 2505.11695); Li et al., GPTAQ (arXiv 2504.02692). Both keep W̃ near zero, not near W.
func (f *Factor) Aim(d Drift, threads int) error {
	n := len(f.Order)
	if len(d.Products) != n*n || len(d.Square) != n {
		return fmt.Errorf("calibration: got %d products and %d squares of the drift, want %d×%d and %d", len(d.Products), len(d.Square), n, n, n)
	}
	permuted, u := tensor.New(n, n), tensor.Dense{Rows: n, Cols: n, Stride: n, Data: f.u}
	for i := range n {
		for j, col := range f.Order {
			permuted.Row(i)[j] = d.Products[i*n+col]
		}
	}
	spread, err := product(permuted, u, false, threads)
	if err == nil {
		spread, err = product(spread, u, true, threads) // D·Uᵀ·U, as H⁻¹ = Uᵀ·U
	}
	if err != nil {
		return err
	}
	for i := range n {
		explained := 0.0
		for j, v := range spread.Row(i) {
			explained += float64(v) * float64(permuted.Row(i)[j])
		}
		share := float32(d.share(explained, i))
		for j, col := range f.Order { // the columns as they were
			permuted.Row(i)[col] = share * spread.Row(i)[j]
		}
	}
	return f.setAim(permuted, threads)
}

// setAim sets the aim to D·H⁻¹.
func (f *Factor) setAim(moves tensor.Dense, threads int) (err error) {
	f.aim, err = quant.Quantizer{Format: quant.F32}.Columnwise(moves, quant.With{Threads: threads})
	return err
}

// A Drift is what the inputs of the original have beside those that quantized layers give: X − X̂.
type Drift struct {
	Products []float32 // (X−X̂)ᵀ·X̂ / tokens, inputs × inputs
	Square   []float32 // mean square of each column of X−X̂
	Tokens   int64
}

// share returns the factor of row i, of whose mean square X̂ explains a part.
func (d Drift) share(explained float64, i int) float64 {
	n, all := float64(len(d.Square)), float64(d.Square[i])
	if !(explained > 0) || float64(d.Tokens) <= n {
		return 0
	}
	return max(0, 1-max(0, all-explained)/explained*n/(float64(d.Tokens)-n))
}

// product returns a·bᵀ, or a·b if b is transposed.
func product(a, b tensor.Dense, transposed bool, threads int) (c tensor.Dense, err error) {
	q, with := quant.Quantizer{Format: quant.F32}, quant.With{Threads: threads}
	left, err := q.Rowwise(a, with)
	if err != nil {
		return c, err
	}
	quantize, cols := q.Rowwise, b.Rows
	if transposed {
		quantize, cols = q.Columnwise, b.Cols
	}
	right, err := quantize(b, with)
	if err != nil {
		return c, err
	}
	c = tensor.New(a.Rows, cols)
	return c, gemm.Mul(c, left, right, gemm.Options{Threads: threads})
}

// aimed returns W̃ of rows of W. A row that is not finite stays as it is. Always rowTile rows are multiplied, because kernels depend on
// their number, and a row must not depend on those beside it.
func (f *Factor) aimed(w tensor.Dense, threads int) (tensor.Dense, error) {
	out := tensor.New(w.Rows, w.Cols)
	failed := make([]error, (w.Rows+rowTile-1)/rowTile)
	parallel.For(len(failed), 1, threads, func(from, to int) {
		rows, change := tensor.New(rowTile, w.Cols), tensor.New(rowTile, w.Cols)
		for tile := from; tile < to; tile++ {
			first, last := tile*rowTile, min((tile+1)*rowTile, w.Rows)
			clear(rows.Data)
			for i := first; i < last; i++ {
				copy(rows.Row(i-first), w.Row(i))
			}
			left, err := quant.Quantizer{Format: quant.F32}.Rowwise(rows, quant.With{Threads: 1})
			if err == nil {
				err = gemm.Mul(change, left, f.aim, gemm.Options{Threads: 1})
			}
			if failed[tile] = err; err != nil {
				continue
			}
			for i := first; i < last; i++ {
				move(out.Row(i), w.Row(i), change.Row(i-first))
			}
		}
	})
	for _, err := range failed {
		if err != nil {
			return out, err
		}
	}
	return out, nil
}

// move sets to to w + by, or to w if that is not finite.
func move(to, w, by []float32) {
	for j, v := range by {
		if to[j] = w[j] + v; to[j]-to[j] != 0 {
			copy(to, w)
			return
		}
	}
}
