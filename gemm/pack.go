package gemm

import (
	"math"
	"unsafe"

	"github.com/microscale-go/microscale/format"
	"github.com/microscale-go/microscale/quant"
	"github.com/microscale-go/microscale/tensor"
)

// A packFunc fills one panel as side.pack does. It returns false if it does not support the
// operand's shape or values; packGeneric then fills the panel.
type packFunc func(s *side, dst []byte, l0, k0, kc int, w *scratch) bool

// scratch holds the buffers of packing.
type scratch struct {
	values []float32 // elements of one lane
	codes  []byte    // codes of a panel, one per byte
	scales []byte    // scales of a panel, transposed
	words  []uint16  // elements of a panel in BF16
	panel  []byte    // an int8 panel of A before splitTiles

	rows *quant.Tensor // of an interleaved operand, one after the other
	side side          // the operand of these rows
}

// reserve grows the buffers for panels of up to kc positions.
func (w *scratch) reserve(k *kernel, kc int) {
	grow(&w.values, k.KC)
	grow(&w.codes, k.Lanes*kc)
	grow(&w.scales, k.Lanes*kc/16)
}

// int8Forms lists the element formats whose values are small integers: value = unit·integer.
// Adding bias makes the integer unsigned.
var int8Forms = map[*format.Scalar]struct {
	unit float32
	bias int32
}{
	format.E2M1: {1. / 2, 12},
	format.E2M3: {1. / 8, 60},
	format.INT8: {1. / 64, 128},
}

// int8Offset times a scale of A is added to the products of its block, so that the bits of an
// integer sum are those of a float32 number.
const int8Offset = 1.5 * (1 << 23)

// rowTiles reports whether the panels of the operand consist of tiles that store row after
// row.
func (s *side) rowTiles() bool { return s.isA && s.kernel.macro != nil }

// geometry returns the number of chunks in a panel over kc positions, and the steps of each.
// Only the last chunk may have fewer positions; zeros pad it.
func (s *side) geometry(kc int) (chunks, steps int) {
	chunk, k := s.chunk, s.kernel
	if k.panel != panelInt8 { // int8 kernels require whole blocks
		chunk = min(chunk, kc)
	}
	if k.span > 0 && s.chunk == k.KC { // split evenly
		chunk = ceilDiv(chunk, ceilDiv(chunk, k.span))
	}
	unit := k.positions()
	chunk = ceilDiv(chunk, unit) * unit
	return ceilDiv(kc, chunk), chunk / k.panel.perStep()
}

// width returns the number of lanes in a step of a panel (see kernel).
func (s *side) width() int {
	if s.isA && s.kernel.panel == panelInt8 {
		return s.kernel.MR
	}
	return s.kernel.Lanes
}

// word returns the index in a chunk of the word of lane i in a step.
func (s *side) word(step, i int) int {
	if s.rowTiles() {
		return step/tileSteps*tileSteps*s.width() + i*tileSteps + step%tileSteps
	}
	return wordAt(step, i, s.width(), s.kernel.wide)
}

// wordAt is side.word for panels without tiles.
func wordAt(step, i, lanes int, wide bool) int {
	if wide {
		return step/2*2*lanes + 2*i + step%2
	}
	return step*lanes + i
}

// tileSteps is the number of steps in a tile of B.
const tileSteps = 16

// panelBytes returns the size of a panel over kc positions.
func (s *side) panelBytes(kc int) int {
	chunks, steps := s.geometry(kc)
	rows := steps + 1
	if s.isA && s.kernel.panel == panelInt8 {
		rows++
	}
	return chunks * rows * 4 * s.kernel.Lanes
}

// pack fills the panel dst with the rows from l0 on, over positions k0 to k0+kc.
func (s *side) pack(dst []byte, l0, k0, kc int, w *scratch) {
	switch {
	case s.fast != nil && s.fast(s, dst, l0, k0, kc, w):
	case s.form == interleaved:
		s.packInterleaved(dst, l0, k0, kc, w)
	default:
		s.packGeneric(dst, l0, k0, kc, w)
	}
}

// packGeneric is the reference implementation of pack, for every format and panel type. It
// decodes one row at a time into its lane.
func (s *side) packGeneric(dst []byte, l0, k0, kc int, w *scratch) {
	lanes := s.width()
	words := unsafe.Slice((*uint32)(unsafe.Pointer(unsafe.SliceData(dst))), len(dst)/4)
	chunks, steps := s.geometry(kc)
	per := s.kernel.panel.perStep()
	rows := len(words) / s.kernel.Lanes / chunks // words per lane in a chunk
	values := w.values[:chunks*steps*per]
	for i := range s.kernel.Lanes {
		l := l0 + i
		clear(values)
		if l < s.t.StoredRows() {
			s.elements(values[:kc], l, k0)
			if s.scales == folded {
				s.fold(values[:kc], l, k0)
			}
		}
		for c := range chunks {
			v := values[c*steps*per : (c+1)*steps*per]
			chunk := words[(i/lanes*chunks+c)*rows*lanes:][:rows*lanes]
			ii := i % lanes
			switch s.kernel.panel {
			case panelF32:
				for k, x := range v {
					chunk[k*lanes+ii] = math.Float32bits(x)
				}
			case panelBF16: // the upper halves: the conversion is exact
				for k := range steps {
					chunk[s.word(k, ii)] = math.Float32bits(v[2*k])>>16 | math.Float32bits(v[2*k+1])&0xffff0000
				}
			case panelInt8:
				s.packIntegers(chunk, v, ii)
			}
			scale := s.scaleWord(l, k0+c*steps*per)
			if s.kernel.pow2 {
				scale = s.exponentWord(scale)
				if s.isA {
					chunk[(steps+1)*lanes+ii] += scale
				}
			}
			chunk[steps*lanes+ii] = scale
		}
	}
}

// packIntegers fills lane i of a chunk of an int8 panel, but its scale, with the elements v.
func (s *side) packIntegers(chunk []uint32, v []float32, i int) {
	form, steps := int8Forms[s.t.Format.Element], len(v)/panelInt8.perStep()
	bias := form.bias
	if s.isA || s.kernel.wide {
		bias = 0
	}
	var sum int32
	for k := range steps {
		var word uint32
		first, next := k/2*8+k%2, 2 // of eight positions the even ones, then the odd ones
		if s.kernel.wide {
			first, next = 4*k, 1
		}
		for b := range 4 {
			n := int32(v[first+next*b] / form.unit)
			sum += n
			word |= uint32(uint8(n+bias)) << (8 * b)
		}
		chunk[s.word(k, i)] = word
	}
	if s.isA {
		chunk[(steps+1)*s.width()+i] = uint32(-sum * s.other)
	}
}

// scaleWord returns the panel's 32-bit word for the scale of row l at position k.
func (s *side) scaleWord(l, k int) uint32 {
	if l >= s.t.StoredRows() {
		l = s.t.StoredRows() - 1 // multiplied by zeros: any scale of the tensor will do
	}
	switch s.scales {
	case exponents:
		code := min(max(s.t.Scales[s.scaleIndex(l, k)], s.lo), s.hi)
		return uint32(code) << 23
	case perChunk:
		i := s.scaleIndex(l, k)
		if s.t.Scales32 != nil {
			return math.Float32bits(s.t.Scales32[i])
		}
		return math.Float32bits(s.t.Format.Scale.Decode(uint32(s.t.Scales[i])))
	}
	return math.Float32bits(1)
}

// exponentWord returns the word of a scale, a power of two, in panels of kernels with exponents.
func (s *side) exponentWord(scale uint32) uint32 {
	switch {
	case s.isA:
		return math.Float32bits(int8Offset * math.Float32frombits(scale))
	case s.kernel.wide:
		return scale
	}
	return math.Float32bits(float32(int(scale>>23) - format.E8M0.Bias))
}

// scaleIndex returns the index of the scale of row l at position k.
func (s *side) scaleIndex(l, k int) int {
	b := &s.t.Format.Block
	row, col, cols := 0, 0, 1
	if b.Rows > 0 {
		row = l / b.Rows
	}
	if b.Cols > 0 {
		col, cols = k/b.Cols, ceilDiv(s.t.StoredCols(), b.Cols)
	}
	return row*cols + col
}

// elements sets dst to the elements of row l from position k on, without their scales.
// Position k must start at a byte boundary.
func (s *side) elements(dst []float32, l, k int) {
	e := s.t.Format.Element
	n := s.t.RowBytes()
	src := s.t.Codes[l*n : (l+1)*n][k*e.StoredBits()/8:]
	if e.Bits() > 8 {
		if err := tensor.FromBytes(dst, src[:len(dst)*e.StoredBits()/8], e); err != nil {
			panic(err) // the plan admits only elements that FromBytes supports
		}
		return
	}
	s.narrow(dst, src)
}

// narrow decodes the codes in src, of at most eight bits each, into dst.
func (s *side) narrow(dst []float32, src []byte) {
	e := s.t.Format.Element
	var codes [64]byte
	for len(dst) > 0 {
		part := codes[:min(len(codes), len(dst))]
		whole := len(part)
		bytes, ok := e.StoredBytes(whole)
		for !ok { // extend to a whole byte; a row ends with one
			whole++
			bytes, ok = e.StoredBytes(whole)
		}
		e.Split(codes[:whole], src[:bytes])
		e.DecodeSlice(dst, part)
		dst, src = dst[len(part):], src[bytes:]
	}
}

// fold multiplies the elements of row l from position k on by their scales. It includes the
// global scale only if the operand is dequantized.
func (s *side) fold(v []float32, l, k int) {
	if !s.t.Format.Scaled() {
		return
	}
	extent := s.t.Format.Block.Cols
	for len(v) > 0 {
		n := len(v)
		if extent > 0 {
			n = min(n, extent-k%extent)
		}
		var scale float32
		if s.dequantized() || s.t.Scales32 != nil {
			scale = s.t.Scale(l, k)
		} else {
			scale = s.t.Format.Scale.Decode(uint32(s.t.Scales[s.scaleIndex(l, k)]))
		}
		for i, x := range v[:n] {
			v[i] = float32(scale * x)
		}
		v, k = v[n:], k+n
	}
}
