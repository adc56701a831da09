package bench

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"time"
	"unsafe"

	"github.com/microscale-go/microscale/format"
	"github.com/microscale-go/microscale/internal/cpu"
	"github.com/microscale-go/microscale/quant"
	"github.com/microscale-go/microscale/tensor"
)

// A Conversion is a matrix to quantize, or to get back.
type Conversion struct {
	Format     quant.Format
	Source     *format.Scalar // elements of the side that is not quantized: F32
	Rows, Cols int
}

// sourceBytes returns the bytes of the side that is not quantized.
func (c Conversion) sourceBytes() int { return c.Rows * c.Cols * c.Source.Bits() / 8 }

// formatBytes returns the bytes of the codes and scales.
func (c Conversion) formatBytes() int {
	bytes := c.Rows * c.Format.StoredCols(c.Cols) * c.Format.Element.StoredBits() / 8
	if c.Format.Scaled() {
		rows, cols := c.Format.ScaleShape(c.Rows, c.Cols)
		bytes += rows * cols * c.Format.Scale.StoredBits() / 8
	}
	return bytes
}

// reads returns how often the source has to be read: twice where the scale of
// the whole tensor must be known before the first element is encoded. A global
// scale is given to those that have one.
func (c Conversion) reads() int {
	if c.Format.PerTensor() {
		return 2
	}
	return 1
}

// grain returns the rows that must be quantized together.
func (c Conversion) grain() int { return max(1, c.Format.Block.Rows) }

// measure times a pass over some rows of the conversion after the other.
func (c Conversion) measure(t *Team, op string, budget time.Duration, pass func(worker, from, to int)) Result {
	passes := min(t.passes(c.sourceBytes()), (c.Rows+c.grain()-1)/c.grain())
	s := t.Measure(budget, func(worker, i int) {
		from, to := t.piece(worker, i, passes, c.Rows, c.grain())
		pass(worker, from, to)
	})
	r := c.result(t, op)
	r.Time = s.times(passes)
	return r
}

// result returns a result without its time.
func (c Conversion) result(t *Team, op string) Result {
	return Result{
		Op: op, Format: c.Format.Name, Source: c.Source.Name, M: c.Rows, K: c.Cols, Threads: t.Threads(), Kernel: cpu.Best().String(),
		Work: float64(c.sourceBytes()), Unit: Bytes,
	}
}

// Quantize measures quantizing a matrix from memory to memory, each thread its
// share of the rows, and the stream that bounds it. The rate counts the bytes of
// the source, once; the limit streams as many bytes in and out, the source twice
// where it has to be read twice. Formats with a global scale are given the amax
// of the tensor.
func (t *Team) Quantize(mem *Memory, c Conversion, budget time.Duration) ([]Result, error) {
	x := mem.matrix(c.Rows, c.Cols)
	q := quant.Quantizer{Format: c.Format}
	amax := quant.Amax(x, t.Threads())
	errs := make([]error, t.Threads())
	r := c.measure(t, "quantize", budget/2, func(worker, from, to int) {
		rows := x.View(from, to, 0, x.Cols)
		with := quant.With{Threads: 1}
		if c.Format.NeedsAmax() {
			with.Amax = &amax
		}
		if c.Format.PerTensor() { // the first read is that far ahead of the second
			first := (from + c.Rows/2) % c.Rows
			last := min(first+rows.Rows, c.Rows)
			quant.Amax(x.View(first, last, 0, x.Cols), 1)
			quant.Amax(x.View(0, rows.Rows-(last-first), 0, x.Cols), 1)
		}
		if rows.Rows > 0 {
			if _, err := q.Rowwise(rows, with); err != nil {
				errs[worker] = err
			}
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

// Dequantize measures the way back: codes and scales are read, values written,
// whose bytes the rate counts.
func (t *Team) Dequantize(mem *Memory, c Conversion, budget time.Duration) ([]Result, error) {
	whole, err := quant.Quantizer{Format: c.Format}.Rowwise(mem.matrix(c.Rows, c.Cols), quant.With{Threads: t.Threads()})
	if err != nil {
		return nil, err
	}
	r := c.measure(t, "dequantize", budget/2, func(_, from, to int) {
		if from < to {
			view(whole, from, to).Dequantize(1)
		}
	})
	limit := t.Stream(mem, c.formatBytes(), c.sourceBytes(), AnyStores, budget/2)
	r.bound(limit, float64(c.sourceBytes()))
	return []Result{r, limit}, nil
}

// bound sets the limit to that of work bytes or operations in the time of
// another result, which takes over what r is about.
func (r *Result) bound(by Result, work float64) {
	r.Limit = work / by.Time.Median / 1e9
	r.LimitBy = by.Op + ", " + by.Kernel
}

// view returns rows [from, to) of a rowwise tensor, which share its codes and
// scales. They begin and end with blocks.
func view(t *quant.Tensor, from, to int) *quant.Tensor {
	v := *t
	v.Shape = []int{to - from, t.Cols()}
	v.Codes = t.Codes[from*t.LineBytes() : to*t.LineBytes()]
	if extent := t.Format.Block.Rows; extent > 0 {
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

// matrix returns a matrix of normally distributed values in the memory that
// streams read, of its size alone.
func (m *Memory) matrix(rows, cols int) tensor.Dense {
	n := rows * cols
	m.reserve(roundUp(max(n, 1)*4, pieceBytes), 0)
	values := unsafe.Slice((*float32)(unsafe.Pointer(&m.in[0])), n)
	fill(values)
	return tensor.Of(rows, cols, values)
}

// fill sets values to normally distributed ones, a long pattern repeated.
func fill(values []float32) {
	const pattern = 65521 // prime, so that rows differ
	random := rand.New(rand.NewPCG(3, 4))
	for i := range values[:min(pattern, len(values))] {
		values[i] = float32(random.NormFloat64())
	}
	for done := pattern; done < len(values); done *= 2 {
		copy(values[done:], values[:done])
	}
}
