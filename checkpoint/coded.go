package checkpoint

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/microscale-go/microscale/format"
	"github.com/microscale-go/microscale/hf"
	"github.com/microscale-go/microscale/safetensors"
	"github.com/microscale-go/microscale/tensor"
)

// A coded is a layout of codes and scales that no block format of package quant has. Its weights are read as values,
// and never written:
//
//	code · scale            FP4 with a scale format of other tools
//	code · (scale · global)  the same with a global scale
//	code · scale + bias      integers
//	(code − zero) · scale    the same with zero points; of columns in any order, a tensor has the group of each
//
// Codes of a row follow each other without gaps, each from its lowest bit on.
type coded struct {
	name    string         // of the type, in lower case
	element *format.Scalar // of the codes; nil: unsigned integers
	bits    int            // of a code
	block   int            // elements of a row that share a scale; 0: all of them
	scale   *format.Scalar // of a byte of scales; nil: they are values of a floating-point dtype

	depth int     // bits of the grid of the values; 0: bits
	zero  float32 // zero point of all codes, if no tensor has others

	codes, scales, global, biases, input string // suffixes, as in scheme
	zeros, groups, shape                 string
	words                                safetensors.Dtype // of the codes; 0: U8 or U32

	quark    *quarkLayout // of integers of Quark; nil for others
	rotation string       // suffix of the matrix that rows are multiplied by
	divisor  float64      // of the values of such a weight
}

// codedFP4 returns the layout of FP4 codes with one-byte scales.
func codedFP4(name string, scale *format.Scalar, block int) coded {
	return coded{name: name, element: format.E2M1, bits: format.E2M1.Bits(), block: block, scale: scale, scales: "_scale"}
}

// coders returns the layouts of the module of a tensor.
func (d *description) coders(name string) []coded {
	if c, ok := d.modules[strings.TrimSuffix(name, weightSuffix)]; ok {
		return []coded{c}
	}
	return d.coded
}

// assembleCoded returns the weight with the codes t if it is in a layout that is decoded as it is read; otherwise nil, and what contradicts
// the first layout of integers that has codes of this name.
func (m *Model) assembleCoded(t *hf.Tensor, k known) (_ *Weight, first *Problem) {
	for _, c := range k.coders(t.Name) {
		name, ok := weightName(t.Name, c.codes)
		if !ok || !strings.HasSuffix(name, weightSuffix) || len(t.Shape) < 2 || !c.codesIn(t.Dtype) && (c.shape == "" || len(k.groups) > 0) {
			continue
		}
		w := &Weight{Name: name, Dtype: parseTorchDtype(m.Source.TorchDtype()), Global: 1, coded: &c, untransposed: true, parts: parts{Codes: t}}
		for part, suffix := range map[Part]string{Scales: c.scales, Global: c.global, Biases: c.biases + c.zeros, Input: c.input,
			groups: c.groups, Dimensions: c.shape} {
			if of, ok := m.Source.Lookup(partName(name, suffix)); ok && suffix != "" {
				w.parts[part] = &of
			}
		}
		if c.rotation != "" {
			if problem := m.fitRotated(w); problem != nil {
				first = cmp.Or(first, problem)
				continue
			}
			m.setStack(w, false)
			m.Decoded = append(m.Decoded, c.name)
			return w, nil
		}
		if c.quark != nil {
			if problem := m.fitQuark(w); problem != nil {
				first = cmp.Or(first, problem)
				continue
			}
		} else if c.words != 0 {
			if problem := m.fitIntegers(w); problem != nil {
				first = cmp.Or(first, problem)
				continue
			}
		} else if !w.fitsCoded() {
			continue
		}
		if c.global != "" {
			if err := w.readCodedGlobal(); err != nil {
				m.fault(w.parts[Global].Name, "%v", err)
				continue
			}
		}
		m.setStack(w, false)
		m.Decoded = append(m.Decoded, c.name)
		return w, nil
	}
	return nil, first
}

// codesIn reports whether codes may be in elements of a dtype.
func (c *coded) codesIn(dtype safetensors.Dtype) bool {
	return dtype == c.words || c.words == 0 && (dtype == safetensors.U8 || dtype == safetensors.U32)
}

// fitsCoded sets the shape of a weight, and its dtype if scales have one. It reports whether its tensors have the
// dtypes and shapes of its layout.
func (w *Weight) fitsCoded() bool {
	c, codes, scales := w.coded, w.parts[Codes], w.parts[Scales]
	last := len(codes.Shape) - 1
	stored := codes.Shape[last] * int64(codes.Dtype.Bits())
	if scales == nil || c.global != "" && w.parts[Global] == nil || stored%int64(c.bits) != 0 {
		return false
	}
	w.Shape = append(slices.Clone(codes.Shape[:last]), stored/int64(c.bits))
	blocks := append(slices.Clone(codes.Shape[:last]), w.Shape[last]/int64(c.block))
	if w.Shape[last]%int64(c.block) != 0 || !slices.Equal(scales.Shape, blocks) {
		return false
	}
	if c.scale != nil {
		return scales.Dtype == safetensors.U8 || scales.Dtype == storedDtype(c.scale)
	}
	w.Dtype = scales.Dtype
	_, dense := w.Dtype.Dense()
	biases := w.parts[Biases]
	return dense && (c.biases == "" || biases != nil && biases.Dtype == w.Dtype && slices.Equal(biases.Shape, blocks))
}

// readCodedGlobal reads the global scale of a weight.
func (w *Weight) readCodedGlobal() error {
	var value [1]float32
	t := *w.parts[Global]
	if t.Dtype != safetensors.F32 || t.Elements() != 1 {
		return fmt.Errorf("a global scale is one F32 value, not %s %v", t.Dtype, t.Shape)
	}
	if err := readDense(value[:], t, Tile{To: 1, ToCol: 1}.DenseSpans(1)); err != nil {
		return err
	}
	w.Global = value[0]
	return nil
}

// readCoded returns the values of a tile.
func (w *Weight) readCoded(t Tile) (tensor.Dense, error) {
	c := w.coded
	switch {
	case c.quark != nil:
		return w.readQuark(t)
	case c.rotation != "":
		return w.readRotated(t)
	}
	_, cols := w.Matrix()
	x := tensor.New(t.To-t.From, t.ToCol-t.FromCol)
	from, to := t.FromCol*c.bits/8, (t.ToCol*c.bits+7)/8
	codes := w.parts[Codes]
	stored := int(codes.Shape[len(codes.Shape)-1]) * codes.Dtype.Bits() / 8 // of a row, with the padding of its last word
	if t.ToCol == cols {
		to = stored
	}
	raw := make([]byte, x.Rows*(to-from)+1) // a byte beyond the last code
	for s := range spans(stored, t.From, t.To, from, to) {
		if err := readAt(*codes, raw[s.From:s.To], s.At); err != nil {
			return x, err
		}
	}
	of, group, err := w.codedGroups(t)
	if err != nil {
		return x, err
	}
	shape := w.parts[Scales].Shape
	blocks := int(shape[len(shape)-1]) // of a row, which may be padded
	scales, err := w.codedScales(Scales, blocks, of)
	if err != nil {
		return x, err
	}
	zeros, biases := []float32(nil), []float32(nil)
	if c.zeros != "" {
		zeros, err = w.codedZeros(blocks, of)
	} else {
		biases, err = w.codedScales(Biases, blocks, of)
	}
	if err != nil {
		return x, err
	}
	values, wide := c.values(), of.ToCol-of.FromCol
	for i := range x.Rows {
		row, codes, at := x.Row(i), raw[i*(to-from):], t.FromCol*c.bits-from*8
		for j := range row {
			code := (uint32(codes[at/8]) | uint32(codes[at/8+1])<<8) >> (at % 8) & (1<<c.bits - 1)
			if k := i*wide + group[j]; zeros != nil {
				row[j] = (values[code] - zeros[k]) * scales[k]
			} else {
				row[j] = float32(values[code]*scales[k]) + biases[k]
			}
			at += c.bits
		}
		if t.ToCol == cols && anySet(codes[:to-from], at) {
			return x, fmt.Errorf("%s: row %d has codes behind column %d, the last of the weight: the file is damaged, fetch it again",
				w.parts[Codes].Name, t.From+i, cols)
		}
	}
	return x, nil
}

// anySet reports whether bits of a row are set from one on.
func anySet(row []byte, from int) bool {
	return slices.ContainsFunc(row[(from+7)/8:], func(b byte) bool { return b != 0 }) || from%8 > 0 && row[from/8]>>(from%8) != 0
}

// codedGroups returns the tile of the scales of a tile, and the column of them that each of its columns has.
func (w *Weight) codedGroups(t Tile) (of Tile, group []int, err error) {
	c := w.coded
	_, cols := w.Matrix()
	of = Tile{From: t.From, To: t.To, FromCol: t.FromCol / c.block, ToCol: (t.ToCol + c.block - 1) / c.block}
	group = make([]int, t.ToCol-t.FromCol)
	if c.groups == "" {
		for j := range group {
			group[j] = (t.FromCol+j)/c.block - of.FromCol
		}
		return of, group, nil
	}
	of.FromCol, of.ToCol = 0, int(ceilDiv(int64(cols), int64(c.block)))
	raw := make([]byte, 4*len(group))
	if err := readAt(*w.parts[groups], raw, int64(4*t.FromCol)); err != nil {
		return of, nil, err
	}
	for j := range group {
		n := binary.LittleEndian.Uint32(raw[4*j:])
		if n >= uint32(of.ToCol) {
			return of, nil, fmt.Errorf("%s: column %d is in group %d, and there are %d: fetch it again", w.parts[groups].Name, t.FromCol+j,
				int32(n), of.ToCol)
		}
		group[j] = int(n)
	}
	return of, group, nil
}

// codedZeros returns the zero points of a tile of blocks. Those of a column of blocks follow each other, as the codes of a row do.
func (w *Weight) codedZeros(blocks int, of Tile) ([]float32, error) {
	c, wide := w.coded, of.ToCol-of.FromCol
	word := c.words.Bits()
	from, to := of.From*c.bits/word, (of.To*c.bits+word-1)/word
	raw := make([]byte, (to-from+1)*wide*word/8) // a row of words beyond the last code
	for s := range spans(blocks*word/8, from, to, of.FromCol*word/8, of.ToCol*word/8) {
		if err := readAt(*w.parts[Biases], raw[s.From:s.To], s.At); err != nil {
			return nil, err
		}
	}
	zeros := make([]float32, (of.To-of.From)*wide)
	for i := range zeros {
		bit := (of.From+i/wide)*c.bits - from*word
		at := bit/word*wide + i%wide
		low, high := binary.LittleEndian.Uint32(raw[4*at:]), binary.LittleEndian.Uint32(raw[4*(at+wide):])
		zeros[i] = float32((uint64(low) | uint64(high)<<32) >> (bit % word) & (1<<c.bits - 1))
	}
	return zeros, nil
}

// values returns the values of the codes.
func (c *coded) values() []float32 {
	values := make([]float32, 1<<c.bits)
	for code := range values {
		values[code] = float32(code) - c.zero
		if c.element != nil {
			values[code] = c.element.Decode(uint32(code))
		}
	}
	return values
}

var negativeZero = float32(math.Copysign(0, -1))

// codedScales returns the scales or the biases of a tile of blocks, with the global scale. A layout without biases has −0:
// adding it changes no value.
func (w *Weight) codedScales(p Part, blocks int, of Tile) ([]float32, error) {
	values := make([]float32, (of.To-of.From)*(of.ToCol-of.FromCol))
	t := w.parts[p]
	switch {
	case t == nil || p == Biases && w.coded.biases == "":
		for i := range values {
			values[i] = negativeZero
		}
		return values, nil
	case w.coded.scale == nil:
		return values, readDense(values, *t, of.DenseSpans(blocks))
	}
	raw := make([]byte, len(values))
	for s := range of.DenseSpans(blocks) {
		if err := readAt(*t, raw[s.From:s.To], s.At); err != nil {
			return nil, err
		}
	}
	w.coded.scale.DecodeSlice(values, raw)
	for i := range values {
		values[i] *= w.Global
	}
	return values, nil
}

// errorBound is the bound of Blocks: two steps of a grid over −amax … amax, and what a scale loses below the smallest.
func (w *Weight) errorBound(amax float32) float32 {
	c := w.coded
	bound := 4 * amax / float32(int(1)<<cmp.Or(c.depth, c.bits)-1)
	if c.scale != nil {
		bound += c.element.Max() * c.scale.Smallest() * w.Global
	}
	return bound
}
