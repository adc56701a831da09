package checkpoint

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/microscale-go/microscale/family"
	"github.com/microscale-go/microscale/hf"
	"github.com/microscale-go/microscale/internal/limits"
	"github.com/microscale-go/microscale/layout"
	"github.com/microscale-go/microscale/quant"
	"github.com/microscale-go/microscale/safetensors"
)

// candidates returns the ways in which a file of the convention may store a weight whose codes are
// in a tensor: those of the described block formats, in the order of the description.
func (m *Model) candidates(name string, k known) (schemes []*scheme, q quantized) {
	if m.Convention == nil {
		return nil, q
	}
	if m.Convention.metadata {
		for i := range m.Convention.schemes {
			weight, _ := m.Convention.schemes[i].weightOf(name)
			if q, ok := k.weights[weight]; ok {
				return m.Convention.layouts(q.format, ""), q
			}
		}
		return nil, q
	}
	for _, g := range k.groups {
		schemes = append(schemes, m.Convention.layouts(g.format, g.scheme)...)
	}
	return schemes, q
}

// layouts returns the different ways to store a block format: that of the first scheme, or of a named one whose codes have another name,
// and those that are only read.
func (c *Convention) layouts(f quant.Format, named string) (schemes []*scheme) {
	if s := c.scheme(f); s != nil {
		schemes = append(schemes, s)
	}
	for i := range c.schemes {
		if s := &c.schemes[i]; s.format.Name == f.Name && s.name == named && s.codes != schemes[0].codes {
			schemes[0] = s
		}
	}
	for i := range c.also {
		if c.also[i].format.Name == f.Name {
			schemes = append(schemes, &c.also[i])
		}
	}
	return schemes
}

// assemble returns the quantized weight with the codes t, or nil. The tensors decide between the
// described block formats: clients disagree which of two targets that select a module applies.
func (m *Model) assemble(ctx context.Context, t *hf.Tensor, k known) *Weight {
	var first *Problem
	schemes, q := m.candidates(t.Name, k)
	for _, s := range schemes {
		w, problem := m.assembleAs(ctx, t, s, q)
		if w != nil {
			if w.Format.Global && w.stored == 0 && s.direction == inverse { // as AutoRound writes it for a weight of zeros
				m.misread("", w.parts[Global].Name, "it is 0, and clients divide by it, so that they decode NaN; the weight is read as zeros")
			}
			m.checkUnused(w)
			return w
		}
		if first == nil {
			first = problem
		}
	}
	w, problem := m.assembleCoded(t, k)
	switch {
	case w != nil:
		m.checkUnused(w)
	case problem != nil:
		m.reportIntegers(t, *problem)
	case first != nil:
		m.report(*first)
	}
	return w
}

// assembleAs returns the weight with the codes t if a scheme stores it so. Otherwise it returns
// what contradicts the scheme; nil if t cannot be the codes of a weight.
func (m *Model) assembleAs(ctx context.Context, t *hf.Tensor, s *scheme, q quantized) (*Weight, *Problem) {
	name, ok := s.weightOf(t.Name)
	if !ok {
		return nil, nil
	}
	scales, ok := m.Source.Lookup(partName(name, s.scales))
	if _, dense := t.Dtype.Dense(); !ok || dense {
		return nil, nil // check reports it
	}
	w := &Weight{Name: name, Shape: q.shape, Dtype: q.dtype, Format: s.format, Global: 1, scheme: s, swizzled: q.swizzled,
		parts: parts{Codes: t, Scales: &scales}}
	switch {
	case m.Convention.linearOnly && family.IsFused(name):
		if problem := m.fitExperts(w); problem != nil {
			return nil, problem
		}
	case m.Convention.linearOnly && !strings.HasSuffix(name, weightSuffix):
		return nil, nil
	default:
		if problem := m.fit(w); problem != nil {
			return nil, problem
		}
		m.setStack(w, false)
	}
	if problem := m.findGlobal(ctx, w); problem != nil {
		return nil, problem
	}
	for part, suffix := range map[Part]string{Input: s.input, Dimensions: s.shape} {
		if of, ok := m.Source.Lookup(partName(name, suffix)); ok && suffix != "" {
			w.parts[part] = &of
		}
	}
	return w, nil
}

// weightOf returns the name of the weight with codes of a name.
func (s *scheme) weightOf(codes string) (weight string, ok bool) { return weightName(codes, s.codes) }

// weightName returns the name of the weight whose codes have a name with a suffix. It is the inverse of partName.
func weightName(codes, suffix string) (weight string, ok bool) {
	name, ok := strings.CutSuffix(codes, suffix)
	if strings.HasPrefix(suffix, ".") {
		name += weightSuffix
	}
	return name, ok
}

// fit sets the shape of a weight and returns what contradicts it; nil if its codes and scales
// have the dtypes and shapes that follow from its format and shape.
func (m *Model) fit(w *Weight) *Problem {
	t := w.parts[Codes]
	if w.Shape == nil {
		var ok bool
		if w.Shape, ok = w.scheme.weightShape(t.Shape, t.Dtype); !ok {
			return problemOf(t.Name, "codes of a %s weight have %s dimensions, not %d", w.Format, w.scheme.dimensions(), len(t.Shape))
		}
		w.Dtype = parseTorchDtype(m.Source.TorchDtype())
		if w.scheme.shape != "" {
			var problem *Problem
			if w.Shape, problem = m.statedShape(w.Name, w.scheme.shape, *t, w.Format.Element.StoredBits()); problem != nil {
				return problem
			}
		}
	}
	for _, want := range w.scheme.tensors(w.Name, w.Shape) {
		have, ok := w.Part(want.Part)
		if !ok {
			continue
		}
		if !w.accepts(have, want) {
			return problemOf(have.Name, "it is %s %v, and a %s weight of shape %v needs %s %v; the file is damaged or of another convention",
				have.Dtype, have.Shape, w.Format, w.Shape, want.Dtype, want.Shape)
		}
	}
	return nil
}

// accepts reports whether a tensor has the dtype and the shape of a part of a weight.
func (w *Weight) accepts(have hf.Tensor, want Stored) bool {
	dtype, shape := have.Dtype == want.Dtype, slices.Equal(have.Shape, want.Shape)
	if want.Part == Scales {
		dtype = dtype || acceptable(have.Dtype, want.Dtype)
		shape = shape || sameScales(w.Format, have.Shape, want.Shape) || w.swizzled && have.Elements() == swizzledScales(w.Format, w.Shape)
	}
	return dtype && shape
}

// swizzledScales returns the number of scales in tiles of 128×4, with padding.
func swizzledScales(f quant.Format, shape []int64) int64 {
	rows, blocks := f.ScaleShape(int(product(shape[:len(shape)-1])), int(shape[len(shape)-1]))
	return int64(layout.Swizzled.Size(rows, blocks))
}

// fitExperts is fit for all experts of a layer in one tensor of FP8 codes, X.experts.gate_up_proj with
// X.experts.gate_up_proj_scale. The scales tell how the file orients the experts: [experts, 1, out]
// belongs to codes [experts, in, out], as Llama 4 was published.
func (m *Model) fitExperts(w *Weight) *Problem {
	t, scales := w.parts[Codes], w.parts[Scales]
	if len(t.Shape) != 3 || len(scales.Shape) < 2 {
		return problemOf(t.Name, "codes of all experts of a layer have 3 dimensions and their scales 2 or 3, not %d and %d",
			len(t.Shape), len(scales.Shape))
	}
	count, from, to := t.Shape[0], t.Shape[1], t.Shape[2]
	w.Shape, w.Dtype = t.Shape, parseTorchDtype(m.Source.TorchDtype())
	perRow := w.Format.Block.Rows == 1 && w.Format.Block.Cols == 0
	cols := to * int64(t.Dtype.Bits()) / int64(w.Format.Element.StoredBits())
	rows, block := int64(1), w.Format.Block
	if block.Rows > 0 {
		rows = int64(block.Rows)
	}
	switch want := w.scheme.scalesDtype(); {
	case t.Dtype != w.scheme.codesDtype() || !acceptable(scales.Dtype, want) && scales.Dtype != want:
		return problemOf(t.Name, "it is %s with %s scales, and a %s weight needs %s with %s scales",
			t.Dtype, scales.Dtype, w.Format, w.scheme.codesDtype(), want)
	case perRow && slices.Equal(scales.Shape, []int64{count, 1, to}):
		w.Shape, w.transposedCodes = swapped(t.Shape), true
	case perRow && slices.Equal(trimOnes(scales.Shape), trimOnes([]int64{count, from})):
	case block.Cols > 0 && from%rows == 0 && slices.Equal(scales.Shape, []int64{count, from / rows, ceilDiv(cols, int64(block.Cols))}):
		w.Shape = []int64{count, from, cols}
	default:
		return problemOf(scales.Name, "it is %s %v, and does not fit %s codes of all experts of a layer of shape %v: store each expert "+
			"separately",
			scales.Dtype, scales.Shape, w.Format, t.Shape)
	}
	stored := w.Shape
	if w.transposedCodes {
		stored = t.Shape
	}
	of := &Weight{Name: w.Name, Shape: stored}
	m.setStack(of, w.transposedCodes)
	if w.stack = of.stack; w.transposedCodes && (w.stack == nil || !w.stack.Transposed || w.stack.Unknown != "") {
		w.stack = &family.Stack{Transposed: true, Module: strings.TrimSuffix(strings.TrimSuffix(w.Name, ".gate_up_proj"), ".down_proj")}
	}
	return nil
}

// trimOnes returns a shape without trailing dimensions of one element.
func trimOnes(shape []int64) []int64 {
	for len(shape) > 0 && shape[len(shape)-1] == 1 {
		shape = shape[:len(shape)-1]
	}
	return shape
}

func ceilDiv(n, by int64) int64 { return (n + by - 1) / by }

// problemOf returns a Problem.
func problemOf(tensor, text string, args ...any) *Problem {
	return &Problem{Tensor: tensor, Text: limits.Text(fmt.Sprintf(text, args...))}
}

// sameScales reports whether two shapes hold the same scales if clients differ in dimensions:
// [] and [1, 1] for a single scale, [n] and [n, 1] for one per row.
func sameScales(f quant.Format, a, b []int64) bool {
	dims := 2
	switch {
	case product(a) == 1 && product(b) == 1:
		return true
	case f.PerTensor():
		dims = 1
	case f.Block.Cols != 0:
		return false
	}
	fits := func(shape []int64) bool {
		return len(shape) <= dims && (len(shape) < 2 || shape[1] == 1) && (len(shape) > 0 || dims == 1)
	}
	return fits(a) && fits(b) && product(a) == product(b)
}

// acceptable reports whether scales may have dtype have instead of want: clients also store FP32 and BF16
// scales in the dtype of the model, or FP32 scales as powers of two.
func acceptable(have, want safetensors.Dtype) bool {
	return want == safetensors.F32 && (have == safetensors.BF16 || have == safetensors.F16 || have == safetensors.F8E8M0) ||
		want == safetensors.BF16 && (have == safetensors.F16 || have == safetensors.F32) ||
		want == safetensors.U8 && have == safetensors.F8E8M0
}

// findGlobal finds the global scale of w and reads it.
func (m *Model) findGlobal(ctx context.Context, w *Weight) *Problem {
	s := w.scheme
	if !w.Format.Global {
		return nil
	}
	global, ok := m.Source.Lookup(partName(w.Name, s.global))
	switch {
	case ok:
		w.parts[Global] = &global
		if err := w.readGlobal(ctx); err != nil {
			return problemOf(global.Name, "%v", err)
		}
	case s.bare != "": // it is 1
		w.stored = s.direction.stored(w.Global)
	default:
		return problemOf(w.Name, "its global scale %s is missing; the file is incomplete, quantize it again", partName(w.Name, s.global))
	}
	return nil
}

// readGlobal reads the global scale of w. That of a weight of zeros may be 0, or its inverse 0 or Inf.
func (w *Weight) readGlobal(ctx context.Context) error {
	t := w.parts[Global]
	if t.Dtype != safetensors.F32 || t.Elements() != 1 {
		return fmt.Errorf("a global scale is one F32 value, not %s %v", t.Dtype, t.Shape)
	}
	var value [1]float32
	if err := readDense(value[:], *t, Tile{To: 1, ToCol: 1}.DenseSpans(1)); err != nil {
		return err
	}
	w.stored = value[0]
	w.Global = w.scheme.direction.global(w.stored)
	if w.stored == 0 || w.scheme.direction == inverse && math.IsInf(float64(w.stored), 1) {
		w.Global = 0
		if zeros, err := w.zeros(ctx); zeros || err != nil {
			return err
		}
	}
	if !(w.Global > 0) || math.IsInf(float64(w.Global), 0) {
		return fmt.Errorf("a global scale must be positive and finite, not %g", w.stored)
	}
	return nil
}

// zeros reports whether all values of a weight are zeros whatever its global scale: every code or
// its scale is.
func (w *Weight) zeros(ctx context.Context) (bool, error) {
	for t := range w.Tiling(w.Format).Tiles(0) {
		if err := ctx.Err(); err != nil {
			return false, err
		}
		q, err := w.ReadCodes(t)
		if err != nil {
			return false, err
		}
		q.Global = 1
		if slices.ContainsFunc(q.Dequantize(1).Data, func(v float32) bool { return v != 0 }) {
			return false, nil
		}
	}
	return true, nil
}
