//go:build !purego

package gemm

import (
	"math"
	"unsafe"

	"github.com/microscale-go/microscale/format"
)

// wideArgs are the arguments of the functions that pack wide int8 panels.
type wideArgs struct {
	dst, src                   unsafe.Pointer
	stride, step, half, middle int // bytes
	gap, n                     int // bytes; blocks of 32 codes
	table                      unsafe.Pointer
}

// packWide packs codes of that many bits as int8 elements. Of table, if there is one, a code is the index of its integer.
func packWide(bits int, table []byte, pack func(p wideArgs)) packFunc {
	const words, half = 4, 16 // bytes, and positions
	return func(s *side, dst []byte, l0, k0, kc int, w *scratch) bool {
		if kc%packBlock != 0 {
			return false
		}
		src, stride := s.eightRows(l0, k0, kc, bits, w)
		if table != nil {
			for i, code := range src[:packRows*kc] {
				src[i] = table[code]
			}
		}
		_, steps := s.geometry(kc)
		lanes := s.width()
		p := wideArgs{dst: unsafe.Pointer(&dst[0]), src: unsafe.Pointer(&src[0]), stride: stride, step: 2 * lanes * words, n: kc / packBlock,
			half: len(dst) / 2, gap: lanes * words, table: unsafe.Pointer(&fp4Integers[0])}
		if s.isA {
			p.gap *= 2 // the initial values
		} else {
			p.half = p.step / 2
		}
		if s.kernel.block == half {
			p.middle = p.gap
		}
		pack(p)
		s.putBlockScales(dst, l0, k0, steps, w)
		return true
	}
}

// putBlockScales writes the scales of all blocks of a wide int8 panel, and the initial values of A.
func (s *side) putBlockScales(dst []byte, l0, k0, steps int, w *scratch) {
	lanes := s.width()
	chunk := (steps + 1) * lanes
	if s.isA {
		chunk += lanes
	}
	words := unsafe.Slice((*uint32)(unsafe.Pointer(unsafe.SliceData(dst))), len(dst)/4)
	blocks := len(words) / s.kernel.Lanes * lanes / chunk
	grow(&w.values, blocks)
	for i := range s.kernel.Lanes {
		first := s.scaleIndex(min(l0+i, s.t.StoredRows()-1), k0)
		to := words[i/lanes*blocks*chunk+steps*lanes+i%lanes:]
		codes := s.t.Scales[first : first+blocks]
		if !s.kernel.pow2 {
			s.t.Format.Scale.DecodeSlice(w.values[:blocks], codes)
		}
		for b, code := range codes {
			if !s.kernel.pow2 {
				to[b*chunk] = math.Float32bits(w.values[b])
				if s.isA {
					to[b*chunk+lanes] = 0
				}
				continue
			}
			scale := s.exponentWord(uint32(min(max(code, s.lo), s.hi)) << 23)
			to[b*chunk] = scale
			if s.isA {
				to[b*chunk+lanes] = scale
			}
		}
	}
}

func asInt8(s side) bool { return s.form != interleaved && s.kernel.panel == panelInt8 }

func sixes(s side) bool { return s.t.Format.Element == format.E2M3 }

// fp4Integers and sixIntegers hold the integers of the codes of E2M1 and E2M3.
var fp4Integers, sixIntegers = integersOf(format.E2M1), integersOf(format.E2M3)

func integersOf(e *format.Scalar) []byte {
	table := make([]byte, 1<<e.Bits())
	for code := range table {
		table[code] = byte(int8(e.Decode(uint32(code)) / int8Forms[e].unit))
	}
	return table
}
