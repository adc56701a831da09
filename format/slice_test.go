package format_test

import (
	"encoding/binary"
	"math"
	"testing"

	"github.com/microscale-go/microscale/format"
	"github.com/microscale-go/microscale/internal/slow"
)

// eachChunk calls check with slices of float32 patterns in numeric order: every step-th, or all
// with -full.
func eachChunk(step uint64, check func([]float32)) {
	if *slow.FullRun {
		step = 1
	}
	chunk := make([]float32, 0, 1<<12)
	for bits := uint64(0); bits < 1<<32; bits += step {
		chunk = append(chunk, math.Float32frombits(uint32(bits)))
		if len(chunk) == cap(chunk) || bits+step >= 1<<32 {
			check(chunk)
			chunk = chunk[:0]
		}
	}
}

// TestEncodeSliceWith checks that EncodeSliceWith gives the codes of EncodeWith, under every
// conversion without random bits.
func TestEncodeSliceWith(t *testing.T) {
	for _, s := range format.All() {
		if s.Bits() > 8 {
			continue
		}
		t.Run("format="+s.Name, func(t *testing.T) {
			t.Parallel()
			for r := format.NearestEven; r < format.Stochastic; r++ {
				for o := format.Saturate; o <= format.SaturateFinite; o++ {
					for n := format.Canonical; n <= format.OppositeZero; n++ {
						c := format.Conversion{Rounding: r, Overflow: o, NaN: n}
						step := uint64(1000003)
						if c == (format.Conversion{}) {
							step = 4001
						} else if *slow.FullRun {
							continue // hours each: only for the most used conversion
						}
						codes := make([]byte, 1<<12)
						eachChunk(step, func(x []float32) {
							s.EncodeSliceWith(codes, x, c)
							for i, v := range x {
								if want := byte(s.EncodeWith(v, c, 0)); codes[i] != want {
									t.Fatalf("%+v: %#08x: got %#x, want %#x", c, math.Float32bits(v), codes[i], want)
								}
							}
						})
					}
				}
			}
		})
	}
}

// TestDecodeSliceScaled checks that each product is rounded once.
func TestDecodeSliceScaled(t *testing.T) {
	for _, s := range format.All() {
		if s.Bits() > 8 {
			continue
		}
		codes := make([]byte, 256)
		for i := range codes {
			codes[i] = byte(i)
		}
		values := make([]float32, len(codes))
		for _, scale := range []float32{1, 0.3, 0x1p-127, 0x1p127, float32(math.Inf(1))} {
			s.DecodeSliceScaled(values, codes, scale)
			for i, c := range codes {
				if want := float32(scale * s.Decode(uint32(c))); !same(float64(values[i]), float64(want)) {
					t.Errorf("%s: %v·code %#x: got %v, want %v", s, scale, c, values[i], want)
				}
			}
		}
	}
}

// TestSlice16 decodes and encodes all codes of the 16-bit formats, and encodes under the
// conversions of casts and of hardware.
func TestSlice16(t *testing.T) {
	for _, s := range []*format.Scalar{format.BF16, format.FP16} {
		t.Run("format="+s.Name, func(t *testing.T) {
			t.Parallel()
			raw := make([]byte, 2<<16)
			for c := range 1 << 16 {
				binary.LittleEndian.PutUint16(raw[2*c:], uint16(c))
			}
			values := make([]float32, 1<<16)
			s.DecodeSlice16(values, raw)
			for c, v := range values {
				if want := s.Decode(uint32(c)); !same(float64(v), float64(want)) {
					t.Fatalf("code %#x: got %v, want %v", c, v, want)
				}
			}
			for _, c := range []format.Conversion{{}, {Overflow: format.NonSaturating, NaN: format.KeepSign}, {Rounding: format.TowardZero}} {
				check := func(x []float32) {
					s.EncodeSlice16(raw, x, c)
					for i, v := range x {
						if got, want := binary.LittleEndian.Uint16(raw[2*i:]), uint16(s.EncodeWith(v, c, 0)); got != want {
							t.Fatalf("%+v: %#08x: got %#x, want %#x", c, math.Float32bits(v), got, want)
						}
					}
				}
				eachChunk(4001, check)
				check(values)
			}
		})
	}
}
