// Package difference compares two quantized checkpoints of one model: which codes, scales and values differ, and why.
package difference

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"

	"github.com/microscale-go/microscale/checkpoint"
	"github.com/microscale-go/microscale/format"
	"github.com/microscale-go/microscale/measure"
	"github.com/microscale-go/microscale/quant"
)

// A Cause is why a weight of two checkpoints differs.
type Cause uint8

const (
	Nothing  Cause = iota // nothing differs
	Layout                // the same codes and scales are stored in another convention
	Product               // as Layout, and its clients multiply in another order, so that the last bit of values differs
	Recoded               // other codes, scales or formats, and the same values: a cast
	Format                // other formats, and other values
	Global                // block scales and codes are equal, the global scale is not
	Rule                  // blocks of about the same amax have other scales
	Rounding              // blocks with the same decode scale have other codes, neighbors of each other
	Values                // the values before quantization differ, or the codes were calibrated
	Alone                 // one checkpoint lacks it
	Shape                 // shapes differ
)

var causeNames = [...]string{"equal", "layout only", "layout only, last bit", "other codes, same values", "format", "global scale",
	"scale rule", "rounding", "values", "missing", "shape"}

// String returns the name.
func (c Cause) String() string { return causeNames[c] }

// Different reports whether values differ by more than the order in which clients multiply.
func (c Cause) Different() bool { return c > Recoded }

// A Weight is the difference of one weight.
type Weight struct {
	Name     string
	A, B     string // formats; "" where it is missing
	Cause    Cause
	Elements int64
	Codes    int64 // elements with other codes, if they were compared
	Scales   int64 // blocks with other scales, if they were compared
	Blocks   int64 // whose codes and scales were compared; 0 if the formats differ, or there are none
	Values   int64 // elements with other values
	Global   bool  // the global scales differ
	Result   measure.Result

	rule, rounding, other int64 // blocks by cause, if the formats are the same
}

// A Report is the difference of two checkpoints.
type Report struct {
	Weights []Weight // in the order of the first checkpoint, then those that it lacks
}

// Different returns the number of weights whose values differ.
func (r *Report) Different() (n int) {
	for _, w := range r.Weights {
		if w.Cause.Different() {
			n++
		}
	}
	return n
}

// Compare compares all weights, a few tiles at a time. progress gets the bytes of the first checkpoint that are compared; it may
// be nil.
func Compare(ctx context.Context, a, b *checkpoint.Model, threads int, progress func(done, total int64)) (*Report, error) {
	r, pairs := &Report{}, []pair{}
	total := int64(0)
	for _, w := range a.Weights {
		if a.ScalesOfValues(w) {
			continue
		}
		one := Weight{Name: w.Name, A: w.FormatName(), Elements: elements(w.Shape)}
		v, ok := b.Lookup(w.Name)
		switch {
		case !ok:
			one.Cause = Alone
		case !slices.Equal(v.Shape, w.Shape):
			one.B, one.Cause = v.FormatName(), Shape
		default:
			one.B = v.FormatName()
			pairs = append(pairs, pair{a: w, b: v, at: len(r.Weights), layout: layoutOf(a, w) != layoutOf(b, v)})
			total += w.StoredBytes()
		}
		r.Weights = append(r.Weights, one)
	}
	for _, w := range b.Weights {
		if _, ok := a.Lookup(w.Name); !ok && !b.ScalesOfValues(w) {
			r.Weights = append(r.Weights, Weight{Name: w.Name, B: w.FormatName(), Cause: Alone, Elements: elements(w.Shape)})
		}
	}
	sums := make([]tileSums, len(pairs))
	done := int64(0)
	tiling := func(i int) checkpoint.Tiling {
		if !pairs[i].dense() {
			return pairs[i].a.Flat()
		}
		return pairs[i].a.Tiling(formats(pairs[i])...)
	}
	job := checkpoint.Job[tileSums]{
		Weights: len(pairs),
		Tiling:  tiling,
		Work:    func(t checkpoint.Tile) (tileSums, error) { return pairs[t.Weight].tile(t) },
		Done: func(t checkpoint.Tile, s tileSums) {
			sums[t.Weight].merge(s)
			if done += tiling(t.Weight).Share(t, pairs[t.Weight].a.StoredBytes()); progress != nil {
				progress(done, total)
			}
		},
		Threads: threads,
	}
	if err := job.Run(ctx); err != nil {
		return nil, err
	}
	for i, p := range pairs {
		sums[i].report(p, &r.Weights[p.at])
	}
	return r, nil
}

func elements(shape []int64) int64 {
	n := int64(1)
	for _, d := range shape {
		n *= d
	}
	return n
}

// layoutOf describes how a checkpoint stores a weight.
func layoutOf(m *checkpoint.Model, w *checkpoint.Weight) string {
	if !w.Quantized() || m.Convention == nil {
		return w.Dtype.String()
	}
	return m.Convention.Name
}

// formats returns the block formats of a pair.
func formats(p pair) (all []quant.Format) {
	for _, w := range []*checkpoint.Weight{p.a, p.b} {
		if w.Quantized() {
			all = append(all, w.Format)
		}
	}
	return all
}

// A pair is a weight of both checkpoints.
type pair struct {
	a, b   *checkpoint.Weight
	at     int // index in Report.Weights
	layout bool
}

// same reports whether both have codes of the same block format.
func (p pair) same() bool {
	return p.a.Quantized() && p.b.Quantized() && p.a.Format.Name == p.b.Format.Name
}

// dense reports whether both have values. Other tensors are compared as bytes.
func (p pair) dense() bool { return p.a.Dense() && p.b.Dense() }

// sameGlobal reports whether the global scales are equal, or as near as two roundings of an inverse leave them where the layouts
// differ.
func (p pair) sameGlobal() bool {
	const twoRoundings = 2.4e-7
	a, b := float64(p.a.Global), float64(p.b.Global)
	return !p.a.Format.Global || a == b || p.layout && math.Abs(a-b) <= twoRoundings*math.Abs(a)
}

// tileSums are the differences of tiles.
type tileSums struct {
	values, codes, scales, blocks int64
	rule, rounding, other         int64
	errors                        *measure.Accumulator
}

func (s *tileSums) merge(o tileSums) {
	s.values, s.codes, s.scales, s.blocks = s.values+o.values, s.codes+o.codes, s.scales+o.scales, s.blocks+o.blocks
	s.rule, s.rounding, s.other = s.rule+o.rule, s.rounding+o.rounding, s.other+o.other
	if s.errors == nil {
		s.errors = o.errors
	} else if o.errors != nil {
		s.errors.Merge(o.errors)
	}
}

// report fills in the difference of a weight.
func (s *tileSums) report(p pair, w *Weight) {
	w.Values, w.Codes, w.Scales, w.Blocks = s.values, s.codes, s.scales, s.blocks
	w.rule, w.rounding, w.other = s.rule, s.rounding, s.other
	w.Global = p.same() && !p.sameGlobal()
	if s.errors != nil {
		w.Result = s.errors.Result()
	}
	unchanged := s.codes == 0 && s.scales == 0 && !w.Global
	switch {
	case p.same() && unchanged && p.layout && s.values == 0:
		w.Cause = Layout
	case p.same() && unchanged && p.layout:
		w.Cause = Product
	case s.values == 0 && (p.same() && unchanged || p.a.FormatName() == p.b.FormatName() && !p.a.Quantized()):
		w.Cause = Nothing
	case s.values == 0:
		w.Cause = Recoded
	case !p.same() && p.a.FormatName() != p.b.FormatName():
		w.Cause = Format
	case !p.same():
		w.Cause = Values
	case unchanged:
		w.Cause = Values
	case s.codes == 0 && s.scales == 0:
		w.Cause = Global
	case s.other > 0 && s.other >= s.rule && s.other >= s.rounding:
		w.Cause = Values
	case w.Global && s.rule >= s.rounding:
		w.Cause = Global // the block scales follow it
	case s.rule >= s.rounding:
		w.Cause = Rule
	default:
		w.Cause = Rounding
	}
}

// tile compares a tile.
func (p pair) tile(t checkpoint.Tile) (s tileSums, err error) {
	if !p.dense() {
		return p.bytes(t)
	}
	x, err := p.a.ReadTile(t)
	if err != nil {
		return s, fmt.Errorf("%s: %w", p.a.Name, err)
	}
	y, err := p.b.ReadTile(t)
	if err != nil {
		return s, fmt.Errorf("%s: %w", p.b.Name, err)
	}
	s.errors = measure.New(checkpoint.BlockLength)
	for i := range x.Rows {
		a, b := x.Row(i), y.Row(i)
		s.errors.Add(a, b)
		for j := range a {
			if math.Float32bits(a[j]) != math.Float32bits(b[j]) && (a[j] == a[j] || b[j] == b[j]) {
				s.values++
			}
		}
	}
	if !p.same() {
		return s, nil
	}
	q, err := p.a.ReadCodes(t)
	if err != nil {
		return s, err
	}
	r, err := p.b.ReadCodes(t)
	if err != nil {
		return s, err
	}
	compareBlocks(&s, q, r, p.sameGlobal())
	return s, nil
}

// bytes compares a tile of tensors without values.
func (p pair) bytes(t checkpoint.Tile) (s tileSums, err error) {
	if p.a.Dtype != p.b.Dtype {
		return tileSums{values: int64(t.ToCol - t.FromCol)}, nil
	}
	x, err := p.a.ReadBytes(t, nil)
	if err != nil {
		return s, err
	}
	y, err := p.b.ReadBytes(t, nil)
	if err != nil {
		return s, err
	}
	s.values = differentElements(x, y, p.a.Dtype.Bits()/8)
	return s, nil
}

// differentElements counts the elements of equally many bytes that differ; 0 bytes for those of less than one, which are counted as bytes.
func differentElements(x, y []byte, size int) (n int64) {
	size = max(1, size)
	for i := 0; i+size <= min(len(x), len(y)); i += size {
		if !bytes.Equal(x[i:i+size], y[i:i+size]) {
			n++
		}
	}
	return n
}

// compareBlocks compares the codes and scales of two tiles of the same format.
func compareBlocks(s *tileSums, q, r *quant.Tensor, sameGlobal bool) {
	f := q.Format
	rows, cols := q.ScaleShape()
	high, wide := cmp.Or(f.Block.Rows, q.Rows()), cmp.Or(f.Block.Cols, q.Cols())
	a, b := unpacked(q), unpacked(r)
	width := f.PaddedCols(q.Cols())
	for i := range rows {
		for j := range cols {
			s.blocks++
			differ, far, amax := 0, 0, [2]float64{}
			stored := !sameStored(q, r, i*cols+j)
			rescaled := stored || !sameGlobal
			for row := i * high; row < min((i+1)*high, q.Rows()); row++ {
				from, to := row*width+j*wide, row*width+min((j+1)*wide, q.Cols())
				if !rescaled && bytes.Equal(a[from:to], b[from:to]) {
					continue
				}
				for at := from; at < to; at++ {
					x, y := a[at], b[at]
					if rescaled {
						amax[0] = max(amax[0], math.Abs(float64(f.Element.Decode(uint32(x)))))
						amax[1] = max(amax[1], math.Abs(float64(f.Element.Decode(uint32(y)))))
					}
					if x != y {
						differ++
						if !neighbors(f.Element, x, y) {
							far++
						}
					}
				}
			}
			if differ == 0 && !stored {
				continue
			}
			scales := [2]float64{float64(q.Scale(i*high, j*wide)), float64(r.Scale(i*high, j*wide))}
			s.codes += int64(differ)
			if stored {
				s.scales++
			}
			switch same := scales[0] == scales[1] || sameGlobal && !stored; {
			case same && far == 0:
				s.rounding++
			case same:
				s.other++
			case near(amax[0]*scales[0], amax[1]*scales[1]):
				s.rule++
			default:
				s.other++
			}
		}
	}
}

// sameStored reports whether the stored scales of a block are equal.
func sameStored(q, r *quant.Tensor, block int) bool {
	if q.Scales32 != nil {
		return math.Float32bits(q.Scales32[block]) == math.Float32bits(r.Scales32[block])
	}
	return q.Scales[block] == r.Scales[block]
}

// near reports whether two maxima of blocks can be those of the same values under two rules: one may round up and the other
// saturate or round down, by at most half a step of the coarsest format each.
func near(a, b float64) bool { return max(a, b) <= 1.5*min(a, b) }

// neighbors reports whether two codes are those of adjacent values, or of zeros.
func neighbors(f *format.Scalar, x, y byte) bool {
	order := func(code byte) int { // of the values
		if f.Integer {
			return int(int8(code<<(8-f.Bits()))) >> (8 - f.Bits())
		}
		sign := byte(1) << (f.Bits() - 1)
		if code&sign != 0 {
			return -int(code &^ sign)
		}
		return int(code)
	}
	d := order(x) - order(y)
	return -1 <= d && d <= 1
}

// unpacked returns the codes of a tensor, a byte each.
func unpacked(q *quant.Tensor) []byte {
	f := q.Format.Element
	if f.StoredBits() == 8 {
		return q.Codes
	}
	codes := make([]byte, q.Rows()*q.Format.PaddedCols(q.Cols()))
	f.Split(codes, q.Codes)
	return codes
}
