package checkpoint

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/microscale-go/microscale/format"
	"github.com/microscale-go/microscale/hf"
	"github.com/microscale-go/microscale/safetensors"
	"github.com/microscale-go/microscale/tensor"
)

// A quarkLayout is how Quark stores integers, as (code − zero point) · scale in F32 (quark/torch/utils/pack.py of version 0.13). Codes,
// scales and zero points are matrices:
//
//	groups of g columns   codes [in, out], scales and zero points [in/g, out]
//	rows                  codes [out, in], scales and zero points [out]
//	tensor                codes [out, in], one scale and one zero point
//
// Codes and zero points of 4 bits are in I32 words of eight adjacent elements of a row of these matrices, in an order of
// wordPlaces; those of 8 bits are I8 or U8.
type quarkLayout struct {
	scheme string // per_group, per_channel or per_tensor
	signed bool
	places [8]int // of codes of 4 bits
}

// wordPlaces are the places of eight adjacent elements in a word, from its lowest bits on, by export.pack_method.
var wordPlaces = map[string][8]int{"reorder": {0, 4, 1, 5, 2, 6, 3, 7}, "order": {0, 1, 2, 3, 4, 5, 6, 7}}

// quarkIntegers are the integers that Quark stores in a dtype of its name.
var quarkIntegers = map[string]coded{
	"int4":  {bits: 4, words: safetensors.I32, quark: &quarkLayout{signed: true}},
	"uint4": {bits: 4, words: safetensors.I32, quark: &quarkLayout{}},
	"int8":  {bits: 8, words: safetensors.I8, quark: &quarkLayout{signed: true}},
	"uint8": {bits: 8, words: safetensors.U8, quark: &quarkLayout{}},
}

// quarkCoded returns the layout of weights with the given specs that no block format has. Integers with two specs are those of FP8
// values, whose scale of the tensor multiplies them, too. ok is false if it is not supported.
func quarkCoded(specs []quarkSpec) (c coded, ok bool) {
	w := specs[len(specs)-1]
	scale, err := format.Lookup(w.ScaleFormat)
	if err == nil && scale == format.UE5M3 && w.Dtype == "fp4" && len(specs) == 1 && w.GroupSize > 0 {
		return codedFP4(fmt.Sprintf("fp4-%s-%d", scale, w.GroupSize), scale, w.GroupSize), true // amdfp4
	}
	if c, ok = quarkIntegers[w.Dtype]; !ok {
		return c, false
	}
	c.quark = &quarkLayout{scheme: w.QScheme, signed: c.quark.signed}
	c.name, c.scales, c.zeros, c.input = "quark-"+w.Dtype, "_scale", "_zero_point", ".input_scale"
	switch w.QScheme {
	case "per_group":
		c.block = w.GroupSize
		c.name += fmt.Sprintf("-g%d", c.block)
		ok = c.block > 0 && (w.ChAxis == 1 || w.ChAxis == -1) // the axis of the columns
	case "per_channel":
		c.name += "-row"
		ok = w.ChAxis == 0
	case "per_tensor":
		c.name += "-tensor"
	default:
		ok = false
	}
	if first := specs[0]; len(specs) == 2 {
		c.name += "-fp8"
		c.scales, c.zeros, c.global = "_scale_2", "_zero_point_2", "_scale"
		ok = ok && first.Dtype == "fp8_e4m3" && first.QScheme == "per_tensor"
	}
	return c, ok && len(specs) <= 2
}

// packQuark sets the places of codes in words, "" for the default of Quark. Tensors of int4 and uint4 look the same.
func (d *description) packQuark(method string) error {
	method = cmp.Or(method, "reorder")
	places, ok := wordPlaces[method]
	for i, c := range d.coded {
		switch {
		case c.quark == nil || c.bits != 4:
		case !ok:
			return fmt.Errorf("export.pack_method is %q, which is not supported, only reorder and order", method)
		case slices.ContainsFunc(d.coded[:i], func(o coded) bool {
			return o.quark != nil && o.words == c.words && o.block == c.block && o.scales == c.scales && o.quark.scheme == c.quark.scheme
		}):
			return fmt.Errorf("it has weights in int4 and in uint4, %s, and their tensors do not say which they have: quantize all in one "+
				"of them", c.quark.scheme)
		default:
			c.quark.places = places
		}
	}
	return nil
}

// grouped reports whether the matrices are of columns.
func (q *quarkLayout) grouped() bool { return q.scheme == "per_group" }

// quarkShapes returns the shapes of the scales and zero points of a weight.
func (c *coded) quarkShapes(rows, cols int64) (scales, zeros []int64) {
	each := int64(c.words.Bits() / c.bits)
	switch c.quark.scheme {
	case "per_group":
		groups := cols / int64(c.block)
		return []int64{groups, rows}, []int64{groups, rows / each}
	case "per_channel":
		return []int64{rows}, []int64{rows / each}
	}
	return nil, nil
}

// fitQuark is fitsCoded for integers of Quark. A zero point beside the scale of activations belongs to the weight, too. It returns what
// contradicts the layout.
func (m *Model) fitQuark(w *Weight) *Problem {
	c, codes, scales, zeros := w.coded, w.parts[Codes], w.parts[Scales], w.parts[Biases]
	switch {
	case scales == nil:
		return problemOf(codes.Name, "%s is missing, the scales of %s: fetch the checkpoint again", suffixOf(c.scales), c.name)
	case zeros == nil:
		return problemOf(codes.Name, "%s is missing, which Quark writes for symmetric integers too: fetch the checkpoint again",
			suffixOf(c.zeros))
	case len(codes.Shape) != 2:
		return problemOf(codes.Name, "it is %s %v, and codes of %s are a matrix: fetch it again", codes.Dtype, codes.Shape, c.name)
	}
	rows, cols := codes.Shape[0], codes.Shape[1]*int64(c.words.Bits()/c.bits)
	if c.quark.grouped() {
		rows, cols = cols, rows
	} else {
		c.block = int(cols)
	}
	w.Shape, w.Dtype = []int64{rows, cols}, scales.Dtype
	if c.block == 0 || cols%int64(c.block) != 0 || c.quark.scheme == "per_channel" && rows*int64(c.bits)%int64(c.words.Bits()) != 0 {
		return problemOf(codes.Name, "it is %s %v, and %s needs whole groups of columns and words of zero points: fetch it again", codes.Dtype,
			codes.Shape, c.name)
	}
	wantScales, wantZeros := c.quarkShapes(rows, cols)
	if t, ok := m.Source.Lookup(partName(w.Name, ".input_zero_point")); ok {
		w.parts[groups] = &t
	}
	if _, dense := w.Dtype.Dense(); !dense || !slices.Equal(scales.Shape, wantScales) {
		return problemOf(scales.Name, "it is %s %v, and %s of shape %v needs scales %v: config.json or the file is damaged, fetch it again",
			scales.Dtype, scales.Shape, c.name, w.Shape, wantScales)
	}
	if zeros.Dtype != c.words || !slices.Equal(zeros.Shape, wantZeros) {
		return problemOf(zeros.Name, "it is %s %v, and %s of shape %v needs %s %v: config.json or the file is damaged, fetch it again",
			zeros.Dtype, zeros.Shape, c.name, w.Shape, c.words, wantZeros)
	}
	return nil
}

// readQuark is readCoded for integers of Quark.
func (w *Weight) readQuark(t Tile) (tensor.Dense, error) {
	x, c := tensor.New(t.To-t.From, t.ToCol-t.FromCol), w.coded
	stored, of := t, Tile{To: 1, FromCol: t.From, ToCol: t.To} // of codes; of scales and zero points
	switch c.quark.scheme {
	case "per_group":
		stored = Tile{From: t.FromCol, To: t.ToCol, FromCol: t.From, ToCol: t.To}
		of.From, of.To = t.FromCol/c.block, int(ceilDiv(int64(t.ToCol), int64(c.block)))
	case "per_tensor":
		of.FromCol, of.ToCol = 0, 1
	}
	codes, err := w.quarkCodes(Codes, stored)
	if err != nil {
		return x, err
	}
	zeros, err := w.quarkCodes(Biases, of)
	if err != nil {
		return x, err
	}
	rows, _ := w.Matrix()
	scales := make([]float32, len(zeros))
	if err := readDense(scales, *w.parts[Scales], of.DenseSpans(rows)); err != nil {
		return x, err
	}
	height, width, wide := stored.To-stored.From, stored.ToCol-stored.FromCol, of.ToCol-of.FromCol
	for i := range height {
		for j := range width {
			row, col, k := i, j, min(i, wide-1)
			if c.quark.grouped() {
				row, col, k = j, i, ((t.FromCol+i)/c.block-of.From)*wide+j
			}
			x.Row(row)[col] = (codes[i*width+j] - zeros[k]) * scales[k] * w.Global
		}
	}
	return x, nil
}

// quarkCodes returns the integers of a tile of a matrix.
func (w *Weight) quarkCodes(p Part, t Tile) ([]float32, error) {
	c, of := w.coded, w.parts[p]
	each := c.words.Bits() / c.bits
	from, to := t.FromCol/each, (t.ToCol+each-1)/each
	size := c.words.Bits() / 8
	raw := make([]byte, (t.To-t.From)*(to-from)*size)
	if err := readWords(*of, raw, size, from, to, t); err != nil {
		return nil, err
	}
	values := make([]float32, 0, (t.To-t.From)*(t.ToCol-t.FromCol))
	for i := range t.To - t.From {
		row := raw[i*(to-from)*size:]
		for j := t.FromCol; j < t.ToCol; j++ {
			at := (j - from) * c.bits
			if each > 1 {
				at = (j/each-from)*size*8 + c.quark.places[j%each]*c.bits
			}
			code := int(row[at/8]) >> (at % 8) & (1<<c.bits - 1)
			if sign := 1 << (c.bits - 1); c.quark.signed && code >= sign {
				code -= 2 * sign
			}
			values = append(values, float32(code))
		}
	}
	return values, nil
}

// readWords reads the words [from, to) of the rows of a tile of a matrix. A vector is one row.
func readWords(of hf.Tensor, raw []byte, size, from, to int, t Tile) error {
	width := 1
	if n := len(of.Shape); n > 0 {
		width = int(of.Shape[n-1])
	}
	for s := range spans(width*size, t.From, t.To, from*size, to*size) {
		if err := readAt(of, raw[s.From:s.To], s.At); err != nil {
			return err
		}
	}
	return nil
}
