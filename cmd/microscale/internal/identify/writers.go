package identify

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/microscale-go/microscale/format"
	"github.com/microscale-go/microscale/profile"
	"github.com/microscale-go/microscale/quant"
	"github.com/microscale-go/microscale/tensor"
)

// A writer is a profile of a block format, with what its quantizer makes of a few blocks.
type writer struct {
	profile.Profile
	q    quant.Quantizer
	rule string // that several writers may share

	low          float64 // of E8M0 scales: the smallest quotient of amax and scale, in multiples of the largest power of two of the elements
	zero         byte    // the scale of a block of zeros, of those of one byte
	least        byte    // that of a block whose amax is next to nothing
	lowest       byte    // that of a block whose amax asks for the smallest scale
	writesMinus0 bool    // -0 stays -0
	roundsMinus0 bool    // negative values that round to zero become -0
}

// writersOf returns the writers of a format.
func writersOf(f quant.Format) (all []writer, err error) {
	for _, p := range profiles(f) {
		w := writer{Profile: p}
		if w.q, err = p.Quantizer(f); err == nil {
			err = w.examine()
		}
		if err != nil {
			return nil, fmt.Errorf("profile %s: %w", p.Name, err)
		}
		switch e := f.Element; {
		case f.Scale == format.E8M0:
			w.rule = w.q.Rule.String()
		case f.Global && w.q.Arithmetic.FixesGlobal():
			w.rule = fmt.Sprintf("amax/%g without a global scale", e.Max())
		case f.Global:
			w.rule = fmt.Sprintf("amax/%g with a global scale of amax/%g", e.Max(), e.Max()*f.Scale.Max())
		default:
			w.rule = fmt.Sprintf("amax/%g", e.HalfRange())
		}
		all = append(all, w)
	}
	for i := range all {
		joinRules(all, all[i].low)
	}
	return all, nil
}

// sameLow is how near the smallest quotients of rules are that are not told apart: they give other scales to less than 1 % of blocks. Those
// are rceil and even in MXFP8, which differ in blocks whose amax is 448 times a power of two, and rceil and floor in MXINT8.
const sameLow = 0.01

// joinRules gives writers of about the same smallest quotient the names of all their rules.
func joinRules(all []writer, low float64) {
	var names []string
	alike := func(w *writer) bool { return low > 0 && math.Abs(w.low/low-1) < sameLow }
	for i := range all {
		if name := all[i].q.Rule.String(); alike(&all[i]) && !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	for i := range all {
		if alike(&all[i]) {
			all[i].rule = strings.Join(names, " or ")
		}
	}
}

// probeWidth is the number of elements of the blocks of probes, which fill whole bytes in every format.
const probeWidth = 4

// probe quantizes blocks of at most probeWidth values, of a tensor with an amax.
func (w *writer) probe(amax float32, blocks ...[]float32) (*quant.Tensor, error) {
	q := w.q
	q.Format.Block = quant.Shape{Rows: 1, Cols: probeWidth}
	x := tensor.New(1, probeWidth*len(blocks))
	for i, values := range blocks {
		copy(x.Data[probeWidth*i:], values)
	}
	with := quant.With{Threads: 1}
	if q.Format.NeedsAmax() {
		with.Amax = &amax
	}
	return q.Rowwise(x, with)
}

// examine fills in what the quantizer makes of a few blocks.
func (w *writer) examine() error {
	e := w.q.Format.Element
	if w.q.Format.ByteScales() {
		smallest := float32(0)
		if !w.q.Format.Scale.NoZero {
			smallest = w.q.Format.Scale.Smallest() * e.Max()
		}
		t, err := w.probe(w.q.Format.Scale.Max()*e.Max(), []float32{0}, []float32{math.SmallestNonzeroFloat32}, []float32{smallest})
		if err != nil {
			return err
		}
		w.zero, w.least, w.lowest = t.Scales[0], t.Scales[1], t.Scales[2]
	}
	t, err := w.probe(1, []float32{1, float32(math.Copysign(0, -1)), -e.Smallest() / (16 * e.Max()), 0})
	if err != nil {
		return err
	}
	all := make([]byte, probeWidth)
	e.Split(all, t.Codes)
	if !e.Integer {
		_, w.writesMinus0 = magnitude(e, all[1])
		_, w.roundsMinus0 = magnitude(e, all[2])
	}
	if w.q.Format.Scale == format.E8M0 {
		return w.findLow()
	}
	return nil
}

// findLow finds the smallest amax from 1 on whose scale is not that of 1, by bisection: a float32 whose bits are below those of 2.
func (w *writer) findLow() error {
	scaleOf := func(amax float32) (float64, error) {
		t, err := w.probe(amax, []float32{amax})
		if err != nil {
			return 0, err
		}
		return float64(t.Scale(0, 0)), nil
	}
	first, err := scaleOf(1)
	if err != nil {
		return err
	}
	below, from := math.Float32bits(1), math.Float32bits(2)
	for from-below > 1 {
		mid := below + (from-below)/2
		scale, err := scaleOf(math.Float32frombits(mid))
		if err != nil {
			return err
		}
		if scale > first {
			from = mid
		} else {
			below = mid
		}
	}
	scale, err := scaleOf(math.Float32frombits(from))
	w.low = float64(math.Float32frombits(from)) / (scale * math.Ldexp(1, w.q.Format.Element.MaxExponent()))
	return err
}

// made returns the scales of blocks with these amaxes, or, of a format with a global scale, the global scales of tensors with them.
func (w *writer) made(amaxes []float32) (scales []float32, err error) {
	if !w.q.Format.Global {
		blocks := make([][]float32, len(amaxes))
		for i := range amaxes {
			blocks[i] = amaxes[i : i+1]
		}
		t, err := w.probe(0, blocks...)
		if err != nil {
			return nil, err
		}
		return t.Scales32, nil
	}
	for _, amax := range amaxes {
		t, err := w.probe(amax, []float32{0})
		if err != nil {
			return nil, err
		}
		scales = append(scales, t.Global)
	}
	return scales, nil
}
