package checkpoint

import (
	"encoding/binary"
	"fmt"
	"slices"

	"github.com/microscale-go/microscale/format"
	"github.com/microscale-go/microscale/hf"
	"github.com/microscale-go/microscale/safetensors"
)

// Suffixes of tensors that compressed-tensors has beside integers of some groups only.
const (
	ctZeros = "_zero_point"
	ctOrder = "_g_idx"
)

// statedShape returns the shape of a weight that a tensor states (weight_shape), because the words of its codes, of some bits each, have
// padding at the end of a row. A problem is that it is missing, or that codes of this shape have other words, or none but zeros as padding
// (pack_to_int32 of compressed-tensors).
func (m *Model) statedShape(weight, suffix string, codes hf.Tensor, bits int) (shape []int64, problem *Problem) {
	name := partName(weight, suffix)
	t, ok := m.Source.Lookup(name)
	if !ok {
		return nil, problemOf(codes.Name, "%s is missing, which says how many columns are in %s %v: fetch the checkpoint again", suffixOf(suffix),
			codes.Dtype, codes.Shape)
	}
	last := len(codes.Shape) - 1
	size := int64(t.Dtype.Bits() / 8)
	if t.Dtype != safetensors.I64 && t.Dtype != safetensors.I32 || t.Elements() != int64(len(codes.Shape)) {
		return nil, problemOf(name, "it is %s %v, and the shape of codes %v is I64 [%d]: fetch it again", t.Dtype, t.Shape, codes.Shape, last+1)
	}
	raw := make([]byte, t.Bytes())
	if err := readAt(t, raw, 0); err != nil {
		return nil, problemOf(name, "%v", err)
	}
	for ; len(raw) > 0; raw = raw[size:] {
		n := int64(int32(binary.LittleEndian.Uint32(raw)))
		if size == 8 {
			n = int64(binary.LittleEndian.Uint64(raw))
		}
		shape = append(shape, n)
	}
	stored, each := codes.Shape[last]*int64(codes.Dtype.Bits()), int64(bits)
	holds := append(slices.Clone(codes.Shape[:last]), stored/each)
	differs := problemOf(name, "it says %v, and codes %s %v of %d bits hold %v: config.json or the file is damaged, fetch it again", shape,
		codes.Dtype, codes.Shape, bits, holds)
	cols := shape[last]
	if !slices.Equal(shape[:last], codes.Shape[:last]) || cols < 1 || cols > holds[last] || stored-cols*each >= int64(codes.Dtype.Bits()) {
		return nil, differs
	}
	if padding := stored - cols*each; padding > 0 && codes.Elements() > 0 {
		word := make([]byte, 8)
		n := int64(codes.Dtype.Bits() / 8)
		if err := readAt(codes, word[:n], codes.Shape[last]*n-n); err != nil {
			return nil, problemOf(codes.Name, "%v", err)
		}
		if binary.LittleEndian.Uint64(word)>>(n*8-padding) != 0 {
			return nil, problemOf(name, "it says %v, and the %d padding bits that this leaves in a row of codes %s %v are not zero: the "+
				"file is damaged, fetch it again", shape, padding, codes.Dtype, codes.Shape)
		}
	}
	return shape, nil
}

// suffixOf returns the last part of the name of a tensor with a suffix, for messages.
func suffixOf(suffix string) string { return partName(weightSuffix, suffix)[1:] }

// fitIntegers is fitsCoded for integers of compressed-tensors. It returns what contradicts their layout.
func (m *Model) fitIntegers(w *Weight) *Problem {
	c, codes, scales := w.coded, w.parts[Codes], w.parts[Scales]
	if codes.Dtype != c.words {
		return problemOf(codes.Name, "it is %s %v, and codes of %s are %s: fetch it again", codes.Dtype, codes.Shape, c.name, c.words)
	}
	w.Shape = codes.Shape
	if c.shape != "" {
		var problem *Problem
		if w.Shape, problem = m.statedShape(w.Name, c.shape, *codes, c.bits); problem != nil {
			return problem
		}
	}
	last := len(w.Shape) - 1
	if c.block == 0 {
		c.block = int(w.Shape[last])
	}
	if scales == nil || c.block == 0 {
		return problemOf(codes.Name, "%s is missing, the scales of %s: fetch the checkpoint again", suffixOf(c.scales), c.name)
	}
	w.Dtype = scales.Dtype
	blocks := append(slices.Clone(w.Shape[:last]), ceilDiv(w.Shape[last], int64(c.block)))
	if _, dense := w.Dtype.Dense(); !dense || !slices.Equal(scales.Shape, blocks) {
		return problemOf(scales.Name, "it is %s %v, and %s of shape %v needs scales %v: config.json or the file is damaged, fetch it again",
			scales.Dtype, scales.Shape, c.name, w.Shape, blocks)
	}
	if c.zeros != "" {
		want := []int64{ceilDiv(w.Shape[0]*int64(c.bits), int64(c.words.Bits())), blocks[last]}
		switch zeros := w.parts[Biases]; {
		case zeros == nil:
			return problemOf(codes.Name, "%s is missing, and its group is asymmetric: fetch the checkpoint again", suffixOf(c.zeros))
		case zeros.Dtype != c.words || !slices.Equal(zeros.Shape, want):
			return problemOf(zeros.Name, "it is %s %v, and %s of shape %v needs %s %v: fetch it again", zeros.Dtype, zeros.Shape, c.name, w.Shape,
				c.words, want)
		}
	}
	if c.groups != "" {
		switch of := w.parts[groups]; {
		case of == nil:
			return problemOf(codes.Name, "%s is missing, and its group has actorder: fetch the checkpoint again", suffixOf(c.groups))
		case of.Elements() != w.Shape[last]:
			return problemOf(of.Name, "it is %s %v, and there are %d columns: fetch it again", of.Dtype, of.Shape, w.Shape[last])
		default:
			return groupsIn(*of, blocks[last])
		}
	}
	return nil
}

// groupsIn returns a problem if a tensor has other groups of columns than the first n.
func groupsIn(t hf.Tensor, n int64) *Problem {
	if t.Dtype != safetensors.I32 {
		return problemOf(t.Name, "it is %s, and groups of columns are I32: fetch it again", t.Dtype)
	}
	raw := make([]byte, t.Bytes())
	if err := readAt(t, raw, 0); err != nil {
		return problemOf(t.Name, "%v", err)
	}
	for col := range len(raw) / 4 {
		if of := int32(binary.LittleEndian.Uint32(raw[4*col:])); of < 0 || int64(of) >= n {
			return problemOf(t.Name, "column %d is in group %d, and there are %d: fetch it again", col, of, n)
		}
	}
	return nil
}

// checkUnused reports zero points and groups of columns beside integers whose description has none.
func (m *Model) checkUnused(w *Weight) {
	zeros, order := true, true
	switch c := w.coded; {
	case m.Convention != &compressedTensors:
		return
	case c != nil:
		zeros, order = c.zeros == "", c.groups == ""
	case w.Format.Element != format.S4 && w.Format.Element != format.S8:
		return
	}
	if t, ok := m.Source.Lookup(partName(w.Name, ctZeros)); ok && zeros {
		w.parts[Biases] = &t
		m.misread("", t.Name, "its group is symmetric, so that these zero points are not used: other programs may differ, dequantize it, and "+
			"quantize the result")
	}
	if t, ok := m.Source.Lookup(partName(w.Name, ctOrder)); ok && order {
		w.parts[groups] = &t
		scales := w.parts[Scales].Shape
		if problem := groupsIn(t, max(1, scales[len(scales)-1])); problem != nil {
			m.report(*problem)
			return
		}
		m.misread("", t.Name, "its group does not have actorder group, so that these groups of columns are not used: other programs may "+
			"differ, dequantize it, and quantize the result")
	}
}

// reportIntegers adds the problem of a weight of integers with the codes t, once for all weights that have the same. Its parts are no
// further problems.
func (m *Model) reportIntegers(t *hf.Tensor, p Problem) {
	if m.causes == nil {
		m.causes = map[string]int{}
	}
	if m.causes[p.Text]++; m.causes[p.Text] == 1 {
		m.report(p)
	}
	weight := t.Name
	if name, ok := weightName(t.Name, ctPacked.codes); ok {
		weight = name
	}
	m.faults[weight] = true
	for _, suffix := range []string{ctPacked.codes, ctPacked.scales, ctPacked.shape, ctZeros, ctOrder} {
		m.faults[partName(weight, suffix)] = true
	}
}

// countCauses adds the number of further weights to the problems of integers.
func (m *Model) countCauses() {
	for i, p := range m.Problems {
		if n := m.causes[p.Text] - 1; n > 0 {
			m.Problems[i].Text += fmt.Sprintf(" (and %d more weights)", n)
		}
	}
}
