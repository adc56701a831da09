package bench

import (
	"math"
	"slices"
	"time"

	"github.com/microscale-go/microscale/format"
	"github.com/microscale-go/microscale/quant"
	"github.com/microscale-go/microscale/tensor"
)

// A Point is one format at one size of a sweep.
type Point struct {
	Gemm     Result // product of two square matrices, quantized beforehand
	Quantize Result // quantization of both matrices from BF16; zero for a format without scales
}

// A Sweep holds products of square matrices in several formats over sizes, and what bounds
// them.
type Sweep struct {
	Formats []quant.Format
	Sizes   []int
	Points  [][]Point  // by size and format
	Few     [][]Result // products of each of fewRows with weights from memory, by format
	Peaks   []Result   // instructions that bound the kernels that ran
	Memory  Result     // reading memory

	peaks map[string]Result // by tier and instruction
}

// fewRows are the numbers of rows of A in products with weights from memory, whose size is at
// most fewSize in both dimensions.
var fewRows = []int{1, 8, 64}

const fewSize = 4096

// Sweep measures every format at every size. The budget is for one point. If progress is not
// nil, Sweep calls it after each size.
func (t *Team) Sweep(mem *Memory, formats []quant.Format, sizes []int, budget time.Duration, progress func(size int)) (*Sweep, error) {
	s := &Sweep{Formats: formats, Sizes: sizes, peaks: map[string]Result{}}
	for _, n := range sizes {
		x := make([]byte, 2*2*n*n)
		fillBF16(x)
		c := tensor.New(n, n)
		points := make([]Point, len(formats))
		for i, f := range formats {
			p, err := s.point(t, x, c, f, budget)
			if err != nil {
				return nil, err
			}
			points[i] = p
		}
		s.Points = append(s.Points, points)
		if progress != nil {
			progress(n)
		}
	}
	s.Memory = t.Read(mem, weightBytes, budget/2)
	for _, f := range formats {
		few, err := t.fewRows(f, min(fewSize, sizes[len(sizes)-1]), budget)
		if err != nil {
			return nil, err
		}
		s.Few = append(s.Few, few)
	}
	return s, nil
}

// Results returns everything that was measured: for each size the product and the
// quantization of each format, then the products of few rows, then the limits.
func (s *Sweep) Results() []Result {
	var list []Result
	for _, points := range s.Points {
		for _, p := range points {
			list = append(list, p.Gemm)
			if p.Quantize.Op != "" {
				list = append(list, p.Quantize)
			}
		}
	}
	for _, few := range s.Few {
		list = append(list, few...)
	}
	return append(append(list, s.Peaks...), s.Memory)
}

// point measures one format: the product C = A·Bᵀ where x holds A and then B in BF16, and
// quantizing both.
func (s *Sweep) point(t *Team, x []byte, c tensor.Dense, f quant.Format, budget time.Duration) (p Point, err error) {
	n := c.Rows
	var operands [2]*quant.Tensor
	quantize := func() error {
		for i := range operands {
			half := tensor.OfBF16(n, n, x[2*n*n*i:2*n*n*(i+1)])
			q, err := quant.Quantizer{Format: f}.RowwiseBF16(half, quant.With{Threads: t.Threads(), Into: operands[i]})
			if err != nil {
				return err
			}
			operands[i] = q
		}
		return nil
	}
	if err := quantize(); err != nil {
		return p, err
	}
	if f.Scaled() {
		p.Quantize = Conversion{Format: f, Source: format.BF16, Rows: 2 * n, Cols: n}.result(t, "quantize")
		p.Quantize.Limit = math.NaN()
		p.Quantize.Time = t.MeasureAlone(budget/4, func(int) {
			if e := quantize(); e != nil {
				err = e
			}
		})
		if err != nil {
			return p, err
		}
	}
	product, kernel, err := t.multiply(c, operands[0], operands[1], false, budget*3/4)
	if err != nil {
		return p, err
	}
	limit, ok := s.peaks[kernel.Peak]
	if !ok {
		if limit, err = t.Peak(kernel.Peak, budget/4); err != nil {
			return p, err
		}
		s.peaks[kernel.Peak] = limit
		if !slices.ContainsFunc(s.Peaks, func(r Result) bool { return r.Kernel == limit.Kernel }) { // one loop may stand in for several
			s.Peaks = append(s.Peaks, limit)
		}
	}
	product.Unit = limit.Unit
	product.bound(limit, limit.Work)
	p.Gemm = product
	return p, nil
}

// fewRows measures products of few rows in BF16 with n×n weights in a block format, which come
// from memory. The rate counts operations.
func (t *Team) fewRows(f quant.Format, n int, budget time.Duration) ([]Result, error) {
	first, err := t.quantized(f, n, n)
	if err != nil {
		return nil, err
	}
	b := weights(first)
	var list []Result
	for _, m := range fewRows {
		a, err := t.quantized(quant.BF16, m, n)
		if err != nil {
			return nil, err
		}
		r, err := t.gemv(a, b, budget/time.Duration(len(fewRows)))
		if err != nil {
			return nil, err
		}
		r.Work, r.Unit = 2*float64(m)*float64(n)*float64(n), Floats
		list = append(list, r)
	}
	return list, nil
}
