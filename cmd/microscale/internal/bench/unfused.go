package bench

import (
	"errors"
	"fmt"
	"math"
	"time"
	"unsafe"

	"github.com/microscale-go/microscale/format"
	"github.com/microscale-go/microscale/internal/cpu"
	"github.com/microscale-go/microscale/quant"
	"github.com/microscale-go/microscale/tensor"
)

// unfusedBlock is the block size that Unfused supports.
const unfusedBlock = 32

// A separator holds the first two passes of quantizing as separate functions over n blocks,
// for one tier.
type separator struct {
	needs cpu.Set
	amax  func(dst, src *float32, n int)
	scale func(dst, src, factors *float32, n int)
}

var plainSeparator = separator{0, blockAmaxPlain, scaleBlocksPlain}

// blockAmaxPlain sets dst to the amax of each of n blocks.
func blockAmaxPlain(dst, src *float32, n int) {
	amaxes, x := unsafe.Slice(dst, n), unsafe.Slice(src, n*unfusedBlock)
	for i := range amaxes {
		var largest float32
		for _, v := range x[i*unfusedBlock : (i+1)*unfusedBlock] {
			largest = max(largest, v, -v)
		}
		amaxes[i] = largest
	}
}

// scaleBlocksPlain sets dst to the elements of n blocks of src, each block times its factor.
func scaleBlocksPlain(dst, src, factors *float32, n int) {
	y, x, f := unsafe.Slice(dst, n*unfusedBlock), unsafe.Slice(src, n*unfusedBlock), unsafe.Slice(factors, n)
	for i, v := range x {
		y[i] = v * f[i/unfusedBlock]
	}
}

// Unfused measures quantizing as three passes over memory, as programs do that have one
// operation for each, and then as a single pass:
//
//	amax   x → amax of each block
//	scale  x, amax → scale of each block, and x divided by it
//	cast   scaled x → codes
//
// The first result is the total of the three passes. Their separate results follow, then
// those of Quantize. The cast is the quantizer on values of scale 1. Unfused returns an
// error if the conversion is not Separable.
func (t *Team) Unfused(mem *Memory, c Conversion, budget time.Duration) ([]Result, error) {
	if err := c.Separable(); err != nil {
		return nil, err
	}
	u, err := newUnfused(mem.matrix(c.Rows, c.Cols), c.Format)
	if err != nil {
		return nil, err
	}
	errs := make([]error, t.Threads())
	r := c.result(t, "quantize")
	r.Kernel += ", three passes"
	results := []Result{r}
	for _, p := range []struct {
		name string
		run  func(from, to int) error
	}{{"amax", u.amax}, {"scale", u.scale}, {"cast", u.cast}} {
		if err := p.run(0, c.Rows); err != nil { // faults in the pages that it writes
			return nil, err
		}
		pass := c.measure(t, p.name, budget/6, func(worker, from, to int) func() {
			return func() {
				if err := p.run(from, to); err != nil {
					errs[worker] = err
				}
			}
		})
		results = append(results, pass)
		results[0].Time = results[0].Time.plus(pass.Time)
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	fused, err := t.Quantize(mem, c, budget/2)
	if err != nil {
		return nil, err
	}
	for i := range results {
		results[i].Limit, results[i].LimitBy = fused[0].Limit, fused[0].LimitBy
	}
	return append(results, fused...), nil
}

// Separable returns an error if a conversion cannot be measured in separate passes. These
// support whole blocks of 32 elements along a row with E8M0 scales, from float32.
func (c Conversion) Separable() error {
	switch {
	case c.Format.Scale != format.E8M0 || c.Format.Block != (quant.Shape{Rows: 1, Cols: unfusedBlock}):
		return fmt.Errorf("separate passes support %s scales of %d elements along a row: got %s", format.E8M0, unfusedBlock, c.Format)
	case c.Source != format.F32:
		return fmt.Errorf("separate passes support sources of %s: got %s", format.F32, c.Source)
	case c.Cols%unfusedBlock != 0:
		return fmt.Errorf("separate passes support rows of a multiple of %d elements: got %d", unfusedBlock, c.Cols)
	}
	return nil
}

// plus returns the sample of two works done in sequence.
func (s Sample) plus(o Sample) Sample {
	runs := o.Runs
	if s.Runs > 0 {
		runs = min(s.Runs, o.Runs)
	}
	return Sample{s.Median + o.Median, s.Deviation + o.Deviation, s.Min + o.Min, s.Max + o.Max, runs, s.Disturbed + o.Disturbed,
		s.Busy || o.Busy, o.Parts}
}

// unfused holds the buffers of the separate passes.
type unfused struct {
	quantizer quant.Quantizer
	x, scaled tensor.Dense
	amaxes    []float32
	factors   []float32
	scales    []byte
	codes     *quant.Tensor
	passes    separator
}

func newUnfused(x tensor.Dense, f quant.Format) (*unfused, error) {
	codes, err := quant.NewTensor(f, x.Rows, x.Cols)
	if err != nil {
		return nil, err
	}
	n := x.Rows * x.Cols / unfusedBlock
	u := &unfused{
		quantizer: quant.Quantizer{Format: f}, x: x, scaled: tensor.New(x.Rows, x.Cols),
		amaxes: make([]float32, n), factors: make([]float32, n), scales: make([]byte, n), codes: codes,
	}
	for _, p := range separators {
		if cpu.Uses(p.needs) {
			u.passes = p
			break
		}
	}
	return u, nil
}

// blocks returns the first block and the number of blocks of rows [from, to).
func (u *unfused) blocks(from, to int) (first, n int) {
	perRow := u.x.Cols / unfusedBlock
	return from * perRow, (to - from) * perRow
}

func (u *unfused) amax(from, to int) error {
	first, n := u.blocks(from, to)
	u.passes.amax(&u.amaxes[first], &u.x.Data[first*unfusedBlock], n)
	return nil
}

func (u *unfused) scale(from, to int) error {
	first, n := u.blocks(from, to)
	inverse := 1 / u.quantizer.Format.Element.Max()
	for i := first; i < first+n; i++ {
		// The exponent of amax/max, rounded up: the rule RatioCeil.
		code := (math.Float32bits(u.amaxes[i]*inverse) + 1<<23 - 1) >> 23
		u.scales[i] = byte(code)
		u.factors[i] = math.Float32frombits((254 - code) << 23)
	}
	u.passes.scale(&u.scaled.Data[first*unfusedBlock], &u.x.Data[first*unfusedBlock], &u.factors[first], n)
	return nil
}

func (u *unfused) cast(from, to int) error {
	_, err := u.quantizer.Rowwise(u.scaled.View(from, to, 0, u.scaled.Cols), quant.With{Threads: 1, Into: view(u.codes, from, to)})
	return err
}
