//go:build (amd64 || arm64) && !purego

package gemm

import (
	"math"
	"unsafe"

	"github.com/microscale-go/microscale/format"
)

// packHalves packs BF16 as float32, eight rows at a time.
func packHalves(s *side, dst []byte, l0, k0, kc int, _ *scratch) bool {
	const group = 8
	lanes, n := s.kernel.Lanes, s.t.RowBytes()
	if kc%packBlock != 0 || l0+lanes > s.t.StoredRows() {
		return false
	}
	for first := 0; first < lanes; first += group {
		packHalvesF32(unsafe.Pointer(&dst[4*first]), unsafe.Pointer(&s.t.Codes[(l0+first)*n+2*k0]), n, 4*lanes, kc/group)
	}
	_, steps := s.geometry(kc)
	s.putScales(dst, l0, k0, 1, steps)
	return true
}

// A codeDecoder packs 8 rows of codes of an element format, stride bytes apart, as steps of a float32 panel, or pairs of steps of a wide
// BF16 panel, step bytes apart: their values, times the scale of the row. It takes n groups of 8 bytes of a row. It
// returns false, and leaves the steps undefined, if it does not support a code.
type codeDecoder func(e *format.Scalar, dst, src unsafe.Pointer, stride int, scales unsafe.Pointer, step, n int) bool

// packCodes packs codes of at most eight bits times their scales, but those of chunks, eight rows at a time. The decoder reads codes
// of that many bits: as they are stored, or one in each byte.
func packCodes(bits int, decode codeDecoder) packFunc {
	const lanes, group = packRows, 8
	return func(s *side, dst []byte, l0, k0, kc int, w *scratch) bool {
		if !s.inBlocks(kc) {
			return false
		}
		chunks, steps := s.geometry(kc)
		per := s.kernel.panel.perStep()
		span := steps * per
		e := s.t.Format.Element
		step := 4 * s.kernel.Lanes
		if s.kernel.wide {
			step *= 2
		}
		extent := s.t.Format.Block.Cols
		if extent == 0 {
			extent = s.t.StoredCols()
		}
		for first := 0; first < s.kernel.Lanes; first += lanes {
			l := l0 + first
			rows := min(lanes, max(0, s.t.StoredRows()-l))
			src, stride := s.eightRows(l, k0, kc, bits, w)
			blocks := ceilDiv(k0%extent+kc, extent)
			grow(&w.values, lanes+rows*blocks)
			scales, rowScales := w.values[:lanes], w.values[lanes:lanes+rows*blocks]
			clear(scales)
			for i := range rows {
				s.decodeScales(rowScales[i*blocks:(i+1)*blocks], l+i, k0/extent)
			}
			for k := 0; k < kc; {
				for i := range rows {
					scales[i] = rowScales[i*blocks+(k0+k)/extent-k0/extent]
				}
				m := min(kc-k, extent-(k0+k)%extent, span-k%span)
				at := k/span*(steps+1) + k%span/per // step
				if !decode(e, unsafe.Pointer(&dst[(at*s.kernel.Lanes+first)*4]), unsafe.Pointer(&src[k*bits/8]), stride, unsafe.Pointer(&scales[0]),
					step, m*bits/8/group) {
					return false
				}
				k += m
			}
		}
		s.part(dst, chunks-1, kc) // its padding
		s.putScales(dst, l0, k0, chunks, steps)
		return true
	}
}

// packRows is the number of rows that packing functions of codes take at a time.
const packRows = 8

// eightRows returns positions k0…k0+kc of 8 rows, as codes of the given bits, which are those of storage or 8, and the distance in bytes
// from a row to the next. Rows past the last are zeros.
func (s *side) eightRows(l, k0, kc, bits int, w *scratch) (src []byte, stride int) {
	e, n := s.t.Format.Element, s.t.RowBytes()
	stored, width := e.StoredBits(), kc*bits/8
	rows := min(packRows, max(0, s.t.StoredRows()-l))
	if stored == bits && rows == packRows {
		return s.t.Codes[l*n+k0*bits/8:], n
	}
	for i := range rows {
		to, from := w.codes[i*width:(i+1)*width], s.t.Codes[(l+i)*n:][k0*stored/8:(k0+kc)*stored/8]
		if stored == bits {
			copy(to, from)
		} else {
			e.Split(to, from)
		}
	}
	clear(w.codes[rows*width : packRows*width])
	return w.codes, width
}

// decodeScales sets dst to the scales that elements of row l from the given block on are multiplied by.
func (s *side) decodeScales(dst []float32, l, block int) {
	if s.scales == perChunk {
		for i := range dst {
			dst[i] = 1
		}
		return
	}
	_, cols := s.t.ScaleShape()
	first := block
	if rows := s.t.Format.Block.Rows; rows > 0 {
		first += l / rows * cols
	}
	if s.t.Scales32 != nil {
		copy(dst, s.t.Scales32[first:])
		return
	}
	global := float32(1)
	if s.t.Format.Global && s.dequantized() {
		global = s.t.Global
	}
	s.t.Format.Scale.DecodeSliceScaled(dst, s.t.Scales[first:first+len(dst)], global)
}

// floatCodes holds the constants that convert sign-magnitude codes to float16, eight times
// each: the mask of the magnitude, the multipliers that shift the magnitude and the sign into
// place, the mask of the sign there, and the largest finite code. factor is the remaining
// power of two.
type floatCodes struct {
	magnitude, shift, signShift, sign, largest [8]uint16
	factor                                     [8]float32
}

var floatCodesOf = func() map[*format.Scalar]*floatCodes {
	all := map[*format.Scalar]*floatCodes{}
	for _, e := range format.All() {
		if e.Bits() > 8 || !e.HasNegativeZero() {
			continue
		}
		c := new(floatCodes)
		for i := range c.shift {
			c.magnitude[i] = 1<<(e.Bits()-1) - 1
			c.shift[i] = 1 << (format.FP16.Mantissa - e.Mantissa)
			c.signShift[i] = 1 << (16 - e.Bits())
			c.sign[i] = 1 << 15
			c.largest[i] = uint16(e.MaxCode())
			c.factor[i] = float32(math.Ldexp(1, format.FP16.Bias-e.Bias))
		}
		all[e] = c
	}
	return all
}()
