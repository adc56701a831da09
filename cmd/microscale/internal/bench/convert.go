package bench

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"
	"unsafe"

	"github.com/microscale-go/microscale/format"
	"github.com/microscale-go/microscale/internal/cpu"
	"github.com/microscale-go/microscale/quant"
	"github.com/microscale-go/microscale/tensor"
)

// A Conversion is a matrix to quantize or dequantize.
type Conversion struct {
	Format     quant.Format
	Source     *format.Scalar // elements of the unquantized side: F32, or BF16 to quantize
	Rows, Cols int
}

// A source is a matrix to quantize. Its functions work on rows [from, to).
type source struct {
	amax     func(from, to, threads int) float32
	quantize func(from, to int, with quant.With) (*quant.Tensor, error)
	both     func(from, to int, row, col quant.Copy) (rows, columns *quant.Tensor, err error)
}

// source returns the matrix of a conversion, with normally distributed values, in the memory
// that streams read.
func (m *Memory) source(c Conversion) source {
	q := quant.Quantizer{Format: c.Format}
	if c.Source == format.BF16 {
		m.reserve(roundUp(c.sourceBytes(), chunkBytes), 0)
		x := m.in[:c.sourceBytes()]
		fillBF16(x)
		rows := func(from, to int) tensor.BF16 { return tensor.OfBF16(to-from, c.Cols, x[2*from*c.Cols:2*to*c.Cols]) }
		return source{
			func(from, to, threads int) float32 { return quant.Amax(rows(from, to), threads) },
			func(from, to int, with quant.With) (*quant.Tensor, error) { return q.RowwiseBF16(rows(from, to), with) },
			func(from, to int, row, col quant.Copy) (*quant.Tensor, *quant.Tensor, error) {
				return quant.RowwiseColumnwise(rows(from, to), row, col)
			},
		}
	}
	x := m.matrix(c.Rows, c.Cols)
	return source{
		func(from, to, threads int) float32 { return quant.Amax(x.View(from, to, 0, c.Cols), threads) },
		func(from, to int, with quant.With) (*quant.Tensor, error) {
			return q.Rowwise(x.View(from, to, 0, c.Cols), with)
		},
		func(from, to int, row, col quant.Copy) (*quant.Tensor, *quant.Tensor, error) {
			return quant.RowwiseColumnwise(x.View(from, to, 0, c.Cols), row, col)
		},
	}
}

// sourceBytes returns the bytes of the unquantized side.
func (c Conversion) sourceBytes() int { return c.Rows * c.Cols * c.Source.Bits() / 8 }

// formatBytes returns the bytes of the codes and scales.
func (c Conversion) formatBytes() int {
	bytes := c.Rows * c.Format.PaddedCols(c.Cols) * c.Format.Element.StoredBits() / 8
	if c.Format.Scaled() {
		rows, cols := c.Format.ScaleShape(c.Rows, c.Cols)
		bytes += rows * cols * c.Format.Scale.StoredBits() / 8
	}
	return bytes
}

// reads returns the number of times that the source is read: two if the first element needs
// the scale of the whole tensor. The amax is given to formats with a global scale.
func (c Conversion) reads() int {
	if c.Format.PerTensor() {
		return 2
	}
	return 1
}

// grain returns the number of rows that must be quantized together.
func (c Conversion) grain() int { return max(1, c.Format.Block.Rows) }

// measure times passes, each over a share of the rows. For each worker and pass, prepare
// returns the function to time.
func (c Conversion) measure(t *Team, op string, budget time.Duration, prepare func(worker, from, to int) func()) Result {
	passes := min(t.passes(c.sourceBytes()), (c.Rows+c.grain()-1)/c.grain())
	var runs []func()
	for i := range passes {
		for worker := range t.Threads() {
			run := func() {}
			if from, to := t.chunk(worker, i, passes, c.Rows, c.grain()); from < to {
				run = prepare(worker, from, to)
			}
			runs = append(runs, run)
		}
	}
	s := t.Measure(budget, func(worker, i int) { runs[i%passes*t.Threads()+worker]() })
	r := c.result(t, op)
	r.Time = s.times(passes)
	return r
}

// result returns a Result without its time.
func (c Conversion) result(t *Team, op string) Result {
	return Result{
		Op: op, Format: c.Format.Name, Source: c.Source.Name, M: c.Rows, K: c.Cols, Threads: t.Threads(), Kernel: cpu.Best().Vectors().String(),
		Work: float64(c.sourceBytes()), Unit: Bytes,
	}
}

// Quantize measures quantizing a matrix from memory to memory, each thread its share of the
// rows, and the stream that bounds it. The rate counts the bytes of the source once. The limit
// streams the same bytes in and out, the source twice if it is read twice. The amax is given
// to formats with a global scale.
func (t *Team) Quantize(mem *Memory, c Conversion, budget time.Duration) ([]Result, error) {
	x := mem.source(c)
	amax := x.amax(0, c.Rows, t.Threads())
	with := quant.With{Threads: t.Threads()}
	if c.Format.NeedsAmax() {
		with.Amax = &amax
	}
	dst, err := x.quantize(0, c.Rows, with) // also faults in the pages of dst
	if err != nil {
		return nil, err
	}
	errs := make([]error, t.Threads())
	r := c.measure(t, "quantize", budget/2, func(worker, from, to int) func() {
		with := with
		with.Threads, with.Into = 1, view(dst, from, to)
		encode := func() {
			if _, err := x.quantize(from, to, with); err != nil {
				errs[worker] = err
			}
		}
		if !c.Format.PerTensor() {
			return encode
		}
		first := (from + c.Rows/2) % c.Rows // the first read is that far ahead of the second
		last := min(first+to-from, c.Rows)
		return func() {
			x.amax(first, last, 1)
			x.amax(0, to-from-(last-first), 1)
			encode()
		}
	})
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	reads := c.reads()
	limit := t.Stream(mem, c.sourceBytes(), c.formatBytes()/reads, AnyStores, budget/2)
	r.bound(limit, float64(c.sourceBytes())/float64(reads))
	if reads > 1 {
		r.LimitBy += fmt.Sprintf(", %d reads of the source", reads)
	}
	return []Result{r, limit}, nil
}

// Dequantize measures reading codes and scales and writing values. The rate counts the bytes
// of the values.
func (t *Team) Dequantize(mem *Memory, c Conversion, budget time.Duration) ([]Result, error) {
	whole, err := quant.Quantizer{Format: c.Format}.Rowwise(mem.matrix(c.Rows, c.Cols), quant.With{Threads: t.Threads()})
	if err != nil {
		return nil, err
	}
	mem.reserve(0, c.sourceBytes())
	values := tensor.Of(c.Rows, c.Cols, floats(mem.out, c.Rows*c.Cols))
	r := c.measure(t, "dequantize", budget/2, func(_, from, to int) func() {
		codes, rows := view(whole, from, to), values.View(from, to, 0, c.Cols)
		return func() { codes.DequantizeRows(rows, 0, 1) }
	})
	limit := t.Stream(mem, c.formatBytes(), c.sourceBytes(), AnyStores, budget/2)
	r.bound(limit, float64(c.sourceBytes()))
	return []Result{r, limit}, nil
}

// bound sets the limit of r to work bytes or operations in the time of another result. That
// result takes over the description of r.
func (r *Result) bound(by Result, work float64) {
	r.Limit = work / by.Time.Median / 1e9
	r.LimitBy = by.Op + ", " + by.Kernel
}

// view returns rows [from, to) of a rowwise tensor, from block to block. The view shares codes
// and scales with t, except for a scale that all rows share, which each thread copies because
// it writes it.
func view(t *quant.Tensor, from, to int) *quant.Tensor {
	v := *t
	v.Shape = []int{to - from, t.Cols()}
	v.Codes = t.Codes[from*t.RowBytes() : to*t.RowBytes()]
	extent := t.Format.Block.Rows
	if extent == 0 {
		v.Scales, v.Scales32 = slices.Clone(t.Scales), slices.Clone(t.Scales32)
	} else {
		_, n := t.ScaleShape()
		first, last := from/extent*n, (to+extent-1)/extent*n
		if t.Scales32 != nil {
			v.Scales32 = t.Scales32[first:last]
		} else if t.Scales != nil {
			v.Scales = t.Scales[first:last]
		}
	}
	return &v
}

// matrix returns a matrix of normally distributed values in the memory that streams read.
func (m *Memory) matrix(rows, cols int) tensor.Dense {
	n := rows * cols
	m.reserve(roundUp(max(n, 1)*4, chunkBytes), 0)
	values := floats(m.in, n)
	fill(values)
	return tensor.Of(rows, cols, values)
}

// floats returns the first n float32 values of a buffer.
func floats(buffer []byte, n int) []float32 {
	return unsafe.Slice((*float32)(unsafe.Pointer(&buffer[0])), n)
}

// pattern is the period of the values: a prime, so that rows differ.
const pattern = 65521

// fill sets values to normally distributed numbers.
func fill(values []float32) {
	random := rand.New(rand.NewPCG(3, 4))
	first := values[:min(pattern, len(values))]
	for i := range first {
		first[i] = float32(random.NormFloat64())
	}
	repeat(values, len(first))
}

// fillBF16 sets x to the BF16 bytes of normally distributed numbers.
func fillBF16(x []byte) {
	values := make([]float32, min(pattern, len(x)/2))
	fill(values)
	if err := tensor.ToBytes(x[:2*len(values)], values, format.BF16); err != nil {
		panic(err) // the lengths match
	}
	repeat(x, 2*len(values))
}

// repeat fills x with copies of its first n elements.
func repeat[T any](x []T, n int) {
	for done := n; 0 < done && done < len(x); done *= 2 {
		copy(x[done:], x[:done])
	}
}
