package bench

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"time"
	"unsafe"

	"github.com/microscale-go/microscale/format"
	"github.com/microscale-go/microscale/internal/cpu"
	"github.com/microscale-go/microscale/quant"
	"github.com/microscale-go/microscale/tensor"
)

// A separator holds the first two passes of quantizing as separate functions over n blocks of a size,
// for one tier.
type separator struct {
	needs cpu.Set
	block int
	amax  func(dst, src *float32, n int)
	scale func(dst, src, factors *float32, n int)
}

// plainSeparator returns the passes in Go.
func plainSeparator(block int) separator {
	amax := func(dst, src *float32, n int) { // the amax of each of n blocks
		amaxes, x := unsafe.Slice(dst, n), unsafe.Slice(src, n*block)
		for i := range amaxes {
			var largest float32
			for _, v := range x[i*block : (i+1)*block] {
				largest = max(largest, v, -v)
			}
			amaxes[i] = largest
		}
	}
	scale := func(dst, src, factors *float32, n int) { // the elements of n blocks, each block times its factor
		y, x, f := unsafe.Slice(dst, n*block), unsafe.Slice(src, n*block), unsafe.Slice(factors, n)
		for i, v := range x {
			y[i] = v * f[i/block]
		}
	}
	return separator{0, block, amax, scale}
}

// Unfused measures quantizing as three passes over memory, as programs do that have one
// operation for each, and then as a single pass:
//
//	amax   x → amax of each block
//	scale  x, amax → scale of each block, and x divided by it
//	cast   scaled x → codes
//
// The first result is the total of the three passes. Their separate results follow, then
// those of Quantize. The cast is a quantizer on values of scale 1. The amax of the tensor, which the global scale of
// NVFP4 needs, is known to Quantize, and comes from the first pass here. Unfused returns an error if the conversion is not Separable.
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
// support whole blocks along a row, of 32 elements with E8M0 scales and of NVFP4, from float32.
func (c Conversion) Separable() error {
	block := c.Format.Block.Cols
	switch {
	case c.Format.Name == quant.NVFP4.Name:
	case c.Format.Scale != format.E8M0 || c.Format.Block != (quant.Shape{Rows: 1, Cols: 32}):
		return fmt.Errorf("separate passes support %s, and %s scales of 32 elements along a row: got %s", quant.NVFP4, format.E8M0, c.Format)
	}
	switch {
	case c.Source != format.F32:
		return fmt.Errorf("separate passes support sources of %s: got %s", format.F32, c.Source)
	case c.Cols%block != 0:
		return fmt.Errorf("separate passes support rows of a multiple of %d elements: got %d", block, c.Cols)
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
	format    quant.Format
	caster    quant.Quantizer // of values of scale 1
	x, scaled tensor.Dense
	amaxes    []float32
	factors   []float32
	scales    []byte
	encode    float32 // inverse of the global scale; 0: unknown yet
	codes     *quant.Tensor
	passes    separator
}

func newUnfused(x tensor.Dense, f quant.Format) (*unfused, error) {
	u := &unfused{format: f, caster: quant.Quantizer{Format: f}, x: x, scaled: tensor.New(x.Rows, x.Cols)}
	if f.Global { // elements of up to 8 have the scale 1 under the rule Floor, and saturate
		u.caster.Format = quant.MXFP4
		u.caster.Format.Block, u.caster.Rule = f.Block, quant.Floor
	}
	var err error
	if u.codes, err = quant.NewTensor(u.caster.Format, x.Rows, x.Cols); err != nil {
		return nil, err
	}
	n := x.Rows * x.Cols / f.Block.Cols
	u.amaxes, u.factors, u.scales = make([]float32, n), make([]float32, n), make([]byte, n)
	for _, p := range separators {
		if p.block == f.Block.Cols && cpu.Uses(p.needs) {
			u.passes = p
			break
		}
	}
	return u, nil
}

// blocks returns the first block and the number of blocks of rows [from, to).
func (u *unfused) blocks(from, to int) (first, n int) {
	perRow := u.x.Cols / u.passes.block
	return from * perRow, (to - from) * perRow
}

func (u *unfused) amax(from, to int) error {
	first, n := u.blocks(from, to)
	u.passes.amax(&u.amaxes[first], &u.x.Data[first*u.passes.block], n)
	return nil
}

func (u *unfused) scale(from, to int) error {
	first, n := u.blocks(from, to)
	if inverse := 1 / u.format.Element.Max(); u.format.Global {
		if u.encode == 0 { // as the default quantizer: the scale of the largest block is 448
			u.encode = u.format.Scale.Max() * u.format.Element.Max() / slices.Max(u.amaxes)
		}
		encode := u.encode
		for i := first; i < first+n; i++ {
			code := u.format.Scale.Encode(u.amaxes[i] * float32(encode*inverse))
			u.scales[i] = byte(code)
			u.factors[i] = min(1/float32(u.format.Scale.Decode(code)*(1/encode)), math.MaxFloat32)
		}
	} else {
		for i := first; i < first+n; i++ {
			// The exponent of amax/max, rounded up: the rule RatioCeil.
			code := (math.Float32bits(u.amaxes[i]*inverse) + 1<<23 - 1) >> 23
			u.scales[i] = byte(code)
			u.factors[i] = math.Float32frombits((254 - code) << 23)
		}
	}
	u.passes.scale(&u.scaled.Data[first*u.passes.block], &u.x.Data[first*u.passes.block], &u.factors[first], n)
	return nil
}

func (u *unfused) cast(from, to int) error {
	_, err := u.caster.Rowwise(u.scaled.View(from, to, 0, u.scaled.Cols), quant.With{Threads: 1, Into: view(u.codes, from, to)})
	return err
}
