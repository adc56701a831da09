package calibration

import (
	"errors"
	"math"

	"github.com/microscale-go/microscale/gemm"
	"github.com/microscale-go/microscale/internal/parallel"
	"github.com/microscale-go/microscale/quant"
	"github.com/microscale-go/microscale/tensor"
)

// blockTokens is the number of tokens whose products are added in float32.
const blockTokens = 2048

// sums are those of an input.
type sums struct {
	tokens       int64
	amax         float64
	square, mean []float64
	peak         []float64 // the largest magnitude of each column; nil: of all experts
	hessian      []float64 // in×in, of which the upper triangle is summed
	drift        []float64 // in×in
	driftSquare  []float64
}

// roundAmax returns the smallest number ≥ amax for which the global scale of f is a power of two; amax itself if f has none. Such scales
// change no code, unless a block saturates or is tiny: rows may have others than the file, and larger inputs than those of the text, up to
// twice as large, do not saturate.
func roundAmax(f quant.Format, amax float64) float64 {
	if !f.Global || amax == 0 {
		return amax
	}
	top := float64(f.Element.Max()) * float64(f.Scale.Max())
	fraction, exponent := math.Frexp(amax / top)
	if fraction == 0.5 {
		exponent--
	}
	return math.Ldexp(top, exponent)
}

// quantizedRows returns the values of x in a format, with a global scale for each row.
func quantizedRows(f quant.Format, x tensor.Dense, threads int) (tensor.Dense, error) {
	q, low, failed := quant.Quantizer{Format: f}, tensor.New(x.Rows, x.Cols), make([]error, x.Rows)
	parallel.For(x.Rows, 16, threads, func(from, to int) {
		for i := from; i < to; i++ {
			one, with := x.View(i, i+1, 0, x.Cols), quant.With{Threads: 1}
			if f.Global {
				with.Amax = new(float32(roundAmax(f, float64(quant.Amax(one, 1)))))
			}
			row, err := q.Rowwise(one, with)
			if failed[i] = err; err == nil {
				copy(low.Row(i), row.Dequantize(1).Row(0))
			}
		}
	})
	return low, errors.Join(failed...)
}

// add adds a block of rows x, which are those of unquantized before they were quantized.
func (s *sums) add(original, unquantized, x tensor.Dense, threads int) error {
	for i := range x.Rows {
		for j, v := range unquantized.Row(i) {
			a := math.Abs(float64(v))
			s.peak[j], s.amax = max(s.peak[j], a), max(s.amax, a) // NaN if v is
		}
		for j, v := range x.Row(i) {
			s.square[j] += float64(v) * float64(v)
			s.mean[j] += float64(v)
		}
	}
	s.tokens += int64(x.Rows)
	if math.IsNaN(s.amax) || math.IsInf(s.amax, 0) {
		return errors.New("it is NaN or infinite for this text: the model overflows, and cannot be calibrated")
	}
	if s.hessian == nil {
		return nil
	}
	panels, err := columnPanels(x, threads)
	if err != nil {
		return err
	}
	if err := addProducts(s.hessian, panels, panels, x.Cols, true, threads); err != nil || s.drift == nil {
		return err
	}
	less := tensor.New(x.Rows, x.Cols)
	for i := range x.Rows {
		for j, v := range x.Row(i) {
			d := original.Row(i)[j] - v
			less.Row(i)[j] = d
			s.driftSquare[j] += float64(d) * float64(d)
		}
	}
	differences, err := columnPanels(less, threads)
	if err != nil {
		return err
	}
	return addProducts(s.drift, differences, panels, x.Cols, false, threads)
}

// panelColumns is the number of columns whose products are computed at a time.
const panelColumns = 512

// columnPanels returns the columns of x, transposed.
func columnPanels(x tensor.Dense, threads int) (panels []*quant.Tensor, err error) {
	for from := 0; from < x.Cols; from += panelColumns {
		columns := x.View(0, x.Rows, from, min(from+panelColumns, x.Cols))
		p, err := quant.Quantizer{Format: quant.F32}.Columnwise(columns, quant.With{Threads: threads})
		if err != nil {
			return nil, err
		}
		panels = append(panels, p)
	}
	return panels, nil
}

// addProducts adds the products of columns with other columns to sum, of a number of columns: all, or those of the upper triangle.
func addProducts(sum []float64, left, right []*quant.Tensor, cols int, triangular bool, threads int) error {
	rows := tensor.New(min(panelColumns, cols), cols) // of a row of panels
	for i, a := range left {
		first, begin := i*panelColumns, 0
		if triangular {
			begin = i
		}
		n := min(panelColumns, cols-first)
		for j, b := range right[begin:] {
			at := (begin + j) * panelColumns
			if err := gemm.Mul(rows.View(0, n, at, min(at+panelColumns, cols)), a, b, gemm.Options{Threads: threads}); err != nil {
				return err
			}
		}
		parallel.For(n, 64, threads, func(from, to int) {
			for row := from; row < to; row++ {
				j := 0
				if triangular {
					j = first + row
				}
				to := sum[(first+row)*cols+j : (first+row+1)*cols]
				for k, v := range rows.Row(row)[j:] {
					to[k] += float64(v)
				}
			}
		})
	}
	return nil
}

// flatten makes all columns equal: those of experts whose columns differ are in no order.
func (s *sums) flatten() {
	for _, v := range [][]float64{s.square, s.mean} {
		sum := 0.0
		for _, x := range v {
			sum += x
		}
		for i := range v {
			v[i] = sum / float64(len(v))
		}
	}
}

func addTo(dst, src []float64) {
	for i, v := range src {
		dst[i] += v
	}
}
