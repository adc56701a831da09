package gemm

import (
	"fmt"
	"slices"

	"github.com/microscale-go/microscale/format"
	"github.com/microscale-go/microscale/internal/parallel"
	"github.com/microscale-go/microscale/mma"
	"github.com/microscale-go/microscale/quant"
	"github.com/microscale-go/microscale/tensor"
)

// A unitPlan is a product as a matrix unit of a GPU computes it (Options.Accumulator):
//
//	for each interval of K
//	    part = the instructions of the unit over the interval, from an accumulator of zero
//	    sum += part · (scale of A · scale of B)
//	C = alpha · sum
//
// The intervals end where the sum is promoted, and at the blocks of scales that the unit does not
// apply. Scales that are constant along K multiply the sum, not each part. Outside of the unit,
// every operation is FP32, rounded to nearest. Zeros extend K to a multiple of the instruction's.
type unitPlan struct {
	unit     *mma.Unit
	interval int // elements between promotions
	lengths  []int
	a, b     unitSide
	m, n     int
	alpha    float32 // includes global scales of operands whose block scales the unit applies
	perBlock bool    // FP32 multiplies each part, not the sum, by scales
}

// A unitSide is one operand of a unitPlan.
type unitSide struct {
	t        *quant.Tensor
	typ      *mma.Type
	hardware bool // the unit applies the block scales

	codes, scales []byte    // interval by interval, row by row, as the unit reads them
	factors       []float32 // the other scales: interval by interval, row by row, or one for each row
}

// Unit returns the unit of a's model that multiplies operands of formats x and y. FP32 elements are
// TF32 for models without FP32. The error lists what the model supports, or says why the promotion
// interval or the blocks do not fit the instruction.
func Unit(a mma.Accumulator, x, y quant.Format) (*mma.Unit, error) {
	u, _, err := unitOf(a, x, y)
	return u, err
}

// unitOf returns the unit, and the interval after which its sum is promoted; 0: at the end of K.
func unitOf(a mma.Accumulator, x, y quant.Format) (u *mma.Unit, interval int, err error) {
	if u, err = unitFor(a.Model, x, y); err == nil {
		interval, err = promotion(u, a.Promote, x, y)
	}
	if err != nil {
		return nil, 0, fmt.Errorf("accumulate with %s: %s × %s: %w", a, x, y, err)
	}
	return u, interval, nil
}

// promotion returns the elements between promotions: promote, or fewer if the unit does not apply
// the scales of a block.
func promotion(u *mma.Unit, promote int, x, y quant.Format) (interval int, err error) {
	if promote%u.K != 0 {
		return 0, fmt.Errorf("got a promotion interval of %d elements, want a multiple of %d, the K of the instruction", promote, u.K)
	}
	interval = promote
	for _, f := range []quant.Format{x, y} {
		block := f.Block.Cols
		switch {
		case !f.Scaled() || block == 0:
		case appliesScales(u, f):
			if block%u.Block != 0 {
				return 0, fmt.Errorf("got blocks of %d elements, want a multiple of %d, the block of the unit's scales", block, u.Block)
			}
		case block%u.K != 0:
			return 0, fmt.Errorf("the unit does not apply the scales: got blocks of %d elements, want a multiple of %d, the K of the instruction",
				block, u.K)
		case interval == 0 || block%interval != 0 && interval%block == 0:
			interval = block
		case block%interval != 0:
			return 0, fmt.Errorf("got blocks of %d elements and a promotion interval of %d: want one a multiple of the other", block, interval)
		}
	}
	return interval, nil
}

// unitFor returns a unit for elements of x and y: one that applies the scales of x or y, if there is
// one.
func unitFor(m *mma.Model, x, y quant.Format) (*mma.Unit, error) {
	a, err := mma.LookupType(x.Element.Name)
	if err != nil {
		return nil, err
	}
	b, err := mma.LookupType(y.Element.Name)
	if err != nil {
		return nil, err
	}
	o := mma.Options{A: a, B: b}
	if x.Element == format.F32 && y.Element == format.F32 {
		if u, err := m.Unit(o); err == nil {
			return u, nil
		}
		tf32, err := mma.LookupType("tf32")
		must(err)
		return m.Unit(mma.Options{A: tf32, B: tf32})
	}
	for _, f := range []quant.Format{x, y} {
		if !f.ByteScales() {
			continue
		}
		if o.Scale, err = mma.LookupType(scaleType(f)); err != nil {
			continue
		}
		if u, err := m.Unit(o); err == nil {
			return u, nil
		}
	}
	o.Scale = nil
	return m.Unit(o)
}

// scaleType returns the name of the type of f's scales in a unit, whose E4M3 scales have no sign.
func scaleType(f quant.Format) string {
	if f.Scale == format.E4M3 {
		return format.UE4M3.Name
	}
	return f.Scale.Name
}

// appliesScales reports whether u applies block scales of the format f.
func appliesScales(u *mma.Unit, f quant.Format) bool {
	return u.Scale != nil && f.ByteScales() && f.Block.Cols > 0 && u.Scale.Scalar.Name == scaleType(f)
}

// planUnit returns the plan of a product by the unit of o.Accumulator.
func planUnit(a, b *quant.Tensor, o Options) (plan, error) {
	if o.Kernel != "" {
		return plan{}, fmt.Errorf("gemm: kernel %s: accumulates in FP32: omit the kernel, or the accumulator %s", o.Kernel, o.Accumulator)
	}
	u, interval, err := unitOf(o.Accumulator, a.Format, b.Format)
	if err != nil {
		return plan{}, fmt.Errorf("gemm: %w", err)
	}
	p := &unitPlan{unit: u, interval: interval, m: a.StoredRows(), n: b.StoredRows()}
	p.a, p.b = unitSide{t: a, typ: u.A, hardware: appliesScales(u, a.Format)}, unitSide{t: b, typ: u.B, hardware: appliesScales(u, b.Format)}
	alpha := float64(o.Alpha)
	if alpha == 0 {
		alpha = 1
	}
	for _, s := range []*unitSide{&p.a, &p.b} {
		if f := s.t.Format; s.hardware && f.Global {
			alpha *= float64(s.t.Global)
		} else if f.Scaled() && !s.hardware && f.Block.Cols > 0 {
			p.perBlock = true
		}
	}
	p.alpha = float32(alpha)
	k := a.StoredCols()
	if p.interval == 0 {
		p.interval = max(k, 1)
	}
	for from := 0; from < k; from += p.interval {
		p.lengths = append(p.lengths, ceilDiv(min(p.interval, k-from), u.K)*u.K)
	}
	return plan{unit: p, a: side{t: a}, b: side{t: b}, m: p.m, n: p.n, k: k}, nil
}

// prepare stores the operand in the order in which run reads it.
func (s *unitSide) prepare(p *unitPlan, threads int) {
	rows, width, u := s.t.StoredRows(), s.typ.Bytes, p.unit
	elements := 0
	for _, n := range p.lengths {
		elements += n
	}
	s.codes, s.scales = make([]byte, rows*elements*width), make([]byte, rows*u.Scales(elements))
	if software := s.t.Format.Scaled() && !s.hardware; software && p.perBlock {
		s.factors = make([]float32, rows*len(p.lengths))
	} else if software {
		s.factors = make([]float32, rows)
	}
	parallel.For(rows, 16, threads, func(from, to int) {
		row := make([]byte, ceilDiv(s.t.RowBytes()*8, s.t.Format.Element.StoredBits())*width)
		for l := from; l < to; l++ {
			s.prepareRow(p, row, l)
		}
	})
}

// prepareRow stores row l. row is a buffer for its codes.
func (s *unitSide) prepareRow(p *unitPlan, row []byte, l int) {
	t, width, u := s.t, s.typ.Bytes, p.unit
	stored := t.Codes[l*t.RowBytes():][:t.RowBytes()]
	if t.Format.Element.StoredBits() <= 8 {
		t.Format.Element.Split(row, stored)
	} else {
		copy(row, stored)
	}
	rows, k := t.StoredRows(), t.StoredCols()
	codes, scales := 0, 0 // before this interval
	for i, n := range p.lengths {
		from := i * p.interval
		copy(s.codes[(codes+l*n)*width:][:n*width], row[from*width:min(from+p.interval, k)*width])
		codes += rows * n
		for b := range u.Scales(n) {
			s.scales[scales+l*u.Scales(n)+b] = s.unitScale(u, l, from+b*u.Block)
		}
		scales += rows * u.Scales(n)
		if s.factors != nil && p.perBlock {
			s.factors[i*rows+l] = t.Scale(l, from)
		}
	}
	if s.factors != nil && !p.perBlock {
		s.factors[l] = t.Scale(l, 0)
	}
}

// unitScale returns the code of the scale that the unit applies to row l from position k on: 1 for
// operands and positions without one.
func (s *unitSide) unitScale(u *mma.Unit, l, k int) byte {
	if !s.hardware || k >= s.t.StoredCols() {
		return byte(u.Scale.Scalar.Encode(1))
	}
	return s.t.Scales[(&side{t: s.t}).scaleIndex(l, k)]
}

// matrix returns rows from to to of interval i, before which the operand has the given elements of
// each row.
func (s *unitSide) matrix(p *unitPlan, i, before int, rows extent) mma.Matrix {
	n, all, width, u := p.lengths[i], s.t.StoredRows(), s.typ.Bytes, p.unit
	codes := s.codes[(all*before+rows.from*n)*width:]
	scales := s.scales[all*u.Scales(before)+rows.from*u.Scales(n):]
	count := rows.to - rows.from
	return mma.Matrix{Rows: count, K: n, Codes: codes[:count*n*width], Scales: scales[:count*u.Scales(n)]}
}

// Tiles of a product, each computed by one goroutine.
const unitRows, unitCols = 256, 512

// run computes the part rows × cols of the product into c. The first call prepares the operands.
// Calls for parts of one product must not overlap.
func (p *unitPlan) run(c tensor.Dense, rows, cols extent, o Options) {
	if p.a.codes == nil {
		p.a.prepare(p, o.Threads)
		p.b.prepare(p, o.Threads)
	}
	height, width := ceilDiv(rows.to-rows.from, unitRows), ceilDiv(cols.to-cols.from, unitCols)
	parallel.For(height*width, 1, o.Threads, func(from, to int) {
		for t := from; t < to; t++ {
			i, j := rows.from+t/width*unitRows, cols.from+t%width*unitCols
			r, l := extent{i, min(i+unitRows, rows.to)}, extent{j, min(j+unitCols, cols.to)}
			part := c.View(r.from-rows.from, r.to-rows.from, l.from-cols.from, l.to-cols.from)
			p.tile(part, r, l, o)
		}
	})
}

// tile computes the part rows × cols of the product, which is c.
func (p *unitPlan) tile(c tensor.Dense, rows, cols extent, o Options) {
	part, sums := tensor.New(c.Rows, c.Cols), tensor.New(c.Rows, c.Cols)
	before := 0
	for i, n := range p.lengths {
		clear(part.Data)
		must(p.unit.Mul(part.Data, p.a.matrix(p, i, before, rows), p.b.matrix(p, i, before, cols)))
		before += n
		if p.perBlock {
			p.scale(part, i, rows, cols)
		}
		for at, v := range part.Data {
			sums.Data[at] += v
		}
	}
	if !p.perBlock {
		p.scale(sums, 0, rows, cols)
	}
	for i := range c.Rows {
		to := c.Row(i)
		for j, v := range sums.Row(i) {
			v *= p.alpha
			if o.Accumulate {
				v += to[j]
			}
			if o.Bias != nil {
				v += o.Bias[cols.from+j]
			}
			to[j] = v
		}
	}
}

// scale multiplies the part rows × cols of the product by the scales of interval i that the unit
// does not apply.
func (p *unitPlan) scale(part tensor.Dense, i int, rows, cols extent) {
	if p.a.factors == nil && p.b.factors == nil {
		return
	}
	left, right := p.a.factorsOf(i, rows), p.b.factorsOf(i, cols)
	for l, x := range left {
		row := part.Row(l)
		for j, y := range right {
			f := x * y
			row[j] *= f
		}
	}
}

// factorsOf returns the scales of rows in interval i, or ones.
func (s *unitSide) factorsOf(i int, rows extent) []float32 {
	if s.factors == nil {
		return slices.Repeat([]float32{1}, rows.to-rows.from)
	}
	return s.factors[i*s.t.StoredRows():][rows.from:rows.to]
}
