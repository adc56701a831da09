package blocksize

import (
	"fmt"
	"math"
	"slices"

	"github.com/microscale-go/microscale/format"
	"github.com/microscale-go/microscale/measure"
	"github.com/microscale-go/microscale/quant"
	"github.com/microscale-go/microscale/tensor"
)

// A Case is a quantizer with a name for tables.
type Case struct {
	Format    string // of the table of formats; "e4m3" and so on for a direct cast
	Rule      string // scale rule; "-" without E8M0 scales
	Block     int    // elements of a block; 0: the tensor or none
	Quantizer quant.Quantizer
	Cast      *format.Scalar // a cast without scale, in place of the quantizer
}

// A Result is the error of one case on one distribution: the mean over seeds.
type Result struct {
	Case
	Distribution string

	SQNR, BlockSQNR    float64 // dB; BlockSQNR is the mean over blocks of 32
	MaxError           float64 // largest |x − x̂|
	Bias               float64 // Σ(x̂ − x) / Σ|x|
	Saturated, Flushed float64 // shares of the elements
}

// metricBlock is the number of elements of a block of BlockSQNR, whatever the format's.
const metricBlock = 32

// A Config is what to measure.
type Config struct {
	Formats       []quant.Format
	Blocks        []int // sizes for formats with blocks of one row; those of FP32 scales keep their own
	Rules         []quant.ScaleRule
	Distributions []Distribution
	Rows          int // of 4096 elements
	Seeds         int // 1, 2, …
}

// Cases returns the quantizers of c: each format with E8M0 scales at each block size under each
// rule, those with E4M3 scales at each block size, and the others once. It returns an error for
// a block size at which codes do not fill whole bytes.
func (c *Config) Cases() ([]Case, error) {
	for i, n := range c.Blocks {
		switch {
		case n < 1:
			return nil, fmt.Errorf("blocks: got %d, want 1 or more", n)
		case slices.Contains(c.Blocks[:i], n):
			return nil, fmt.Errorf("blocks: %d is given twice: omit one", n)
		}
	}
	var cases []Case
	for _, f := range c.Formats {
		sizes := c.Blocks
		if !f.ByteScales() || f.Block.Rows != 1 {
			sizes = []int{f.Block.Cols}
		}
		rules := c.Rules
		if f.Scale != format.E8M0 {
			rules = []quant.ScaleRule{0}
		}
		for _, n := range sizes {
			g := f
			g.Block.Cols = n
			if err := g.Validate(); err != nil {
				return nil, err
			}
			for _, rule := range rules {
				x := Case{Format: f.Name, Rule: "-", Block: n, Quantizer: quant.Quantizer{Format: g, Rule: rule}}
				if f.Scale == format.E8M0 {
					x.Rule = rule.String()
				}
				cases = append(cases, x)
			}
		}
	}
	return cases, nil
}

// maxRows limits the rows of one distribution: they take 1 GiB.
const maxRows = 1 << 16

// Run measures every case on every distribution.
func (c *Config) Run() ([]Result, error) {
	cases, err := c.Cases()
	switch {
	case err != nil:
		return nil, err
	case c.Rows < 1 || c.Rows > maxRows:
		return nil, fmt.Errorf("rows: got %d, want 1 to %d", c.Rows, maxRows)
	case c.Seeds < 1:
		return nil, fmt.Errorf("seeds: got %d, want 1 or more", c.Seeds)
	}
	var results []Result
	for _, d := range c.Distributions {
		list := make([]Result, len(cases))
		for seed := range c.Seeds {
			x := d.Sample(c.Rows, uint64(seed)+1)
			for k, q := range cases {
				r, err := q.measure(x)
				if err != nil {
					return nil, err
				}
				list[k].Case, list[k].Distribution = q, d.Name
				list[k].add(r, float64(c.Seeds))
			}
		}
		results = append(results, list...)
	}
	return results, nil
}

// New runs c, and both scenes on as many values.
func New(c Config) (*Study, error) {
	results, err := c.Run()
	if err != nil {
		return nil, err
	}
	cast, err := DirectCast(c.Rows)
	if err != nil {
		return nil, err
	}
	outlier, err := OneOutlier(c.Rows)
	if err != nil {
		return nil, err
	}
	return &Study{results, cast, outlier}, nil
}

// add adds one of n results to their mean, and to the maximum of errors.
func (s *Result) add(r Result, n float64) {
	s.SQNR += r.SQNR / n
	s.BlockSQNR += r.BlockSQNR / n
	s.Bias += r.Bias / n
	s.Saturated += r.Saturated / n
	s.Flushed += r.Flushed / n
	s.MaxError = max(s.MaxError, r.MaxError)
}

// measure quantizes x and compares the decoded values with it.
func (c *Case) measure(x tensor.Dense) (Result, error) {
	got, limits, err := c.apply(x)
	if err != nil {
		return Result{}, err
	}
	a := measure.New(metricBlock)
	extent := c.Block
	if extent == 0 {
		extent = x.Cols
	}
	largest := 0.0
	for i := range x.Rows {
		row := measure.Row{Want: x.Row(i), Got: got.Row(i), Extent: extent}
		if limits != nil {
			row.Limits = limits(i)
		}
		a.AddRow(row)
		for j, v := range x.Row(i) {
			largest = max(largest, math.Abs(float64(v)-float64(got.Row(i)[j])))
		}
	}
	r := a.Result()
	n := float64(r.Elements)
	return Result{SQNR: r.SQNR, BlockSQNR: r.MeanBlockSQNR, MaxError: largest, Bias: r.Bias, Saturated: float64(r.Saturated) / n,
		Flushed: float64(r.Flushed) / n}, nil
}

// apply returns the values after the case, and the limits of the blocks of a row.
func (c *Case) apply(x tensor.Dense) (tensor.Dense, func(row int) []float32, error) {
	if c.Cast != nil {
		got := tensor.New(x.Rows, x.Cols)
		for i, v := range x.Data {
			got.Data[i] = c.Cast.Decode(c.Cast.Encode(v))
		}
		return got, func(int) []float32 { return []float32{c.Cast.Max()} }, nil
	}
	t, err := c.Quantizer.Rowwise(x, quant.With{})
	if err != nil {
		return tensor.Dense{}, nil, err
	}
	if !c.Quantizer.Format.Scaled() {
		return t.Dequantize(0), nil, nil
	}
	largest := c.Quantizer.Format.Element.Max()
	_, blocks := t.ScaleShape()
	return t.Dequantize(0), func(row int) []float32 {
		limits := make([]float32, blocks)
		t.RowScales(limits, row)
		for i := range limits {
			limits[i] *= largest
		}
		return limits
	}, nil
}
