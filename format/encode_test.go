package format_test

import (
	"math"
	"testing"

	"github.com/microscale-go/microscale/format"
)

var (
	deterministic = []format.Rounding{format.NearestEven, format.HalfAway, format.HalfTowardZero, format.TowardZero, format.Up}
	overflows     = []format.Overflow{format.Saturate, format.NonSaturating, format.SaturateFinite}
	nans          = []format.NaN{format.Canonical, format.KeepSign, format.Unchecked, format.OppositeZero}
)

// TestRoundTrip checks that the value of every code encodes to that code, under every
// conversion. The cases of the switch are the only exceptions.
func TestRoundTrip(t *testing.T) {
	eachSpec(t, 32, func(t *testing.T, s *spec) {
		for _, r := range append(deterministic, format.Stochastic) {
			for _, o := range overflows {
				c := format.Conversion{Rounding: r, Overflow: o, NaN: format.KeepSign}
				for i := uint64(0); i < 1<<s.bits; i += stride(s.bits) {
					code := uint32(i)
					v := s.value(code)
					want := code
					switch {
					case math.IsNaN(v):
						continue // TestNaN: many NaN codes, one canonical
					case math.IsInf(v, 0) && o == format.Saturate:
						want = s.sign(s.maxCode, v < 0)
					case s.exponent == 0 && !s.lowest && code == s.signBit():
						want = 0x81 // INT8 is symmetric: -2 decodes, but nothing encodes to it
					}
					if got := s.format.EncodeWith(float32(v), c, math.MaxUint32); got != want {
						t.Fatalf("%v overflow=%v: value %v of code %#x: got %#x, want %#x", r, o, v, code, got, want)
					}
				}
			}
		}
	})
}

// TestMidpoints encodes every value, every midpoint between neighbors, and the float32 values
// next to each.
func TestMidpoints(t *testing.T) {
	eachSpec(t, 16, func(t *testing.T, s *spec) {
		oracle := newOracle(s)
		points := midpoints(oracle)
		for _, r := range deterministic {
			for _, o := range overflows {
				c := format.Conversion{Rounding: r, Overflow: o}
				for _, x := range points {
					if got, want := s.format.EncodeWith(x, c, 0), oracle.encode(float64(x), c); got != want {
						t.Fatalf("%v overflow=%v: %v (%#08x): got %#x, want %#x", r, o, x, math.Float32bits(x), got, want)
					}
				}
			}
		}
	})
}

// midpoints returns the midpoints between codes of o and the values of the codes, each with its
// two float32 neighbors, in both signs.
func midpoints(o *oracle) []float32 {
	var points []float32
	add := func(exact float64) {
		x := float32(exact)
		if math.IsInf(float64(x), 0) || float64(x) != exact {
			panic("a midpoint is not a float32")
		}
		for _, y := range []float32{math.Nextafter32(x, 0), x, math.Nextafter32(x, math.MaxFloat32)} {
			points = append(points, y, -y)
		}
	}
	points = append(points, 0, float32(math.Copysign(0, -1)), math.SmallestNonzeroFloat32, -math.SmallestNonzeroFloat32)
	for i, v := range o.values {
		high := o.next
		if i+1 < len(o.values) {
			high = o.values[i+1]
		}
		add(v)
		add((v + high) / 2)
	}
	if o.next <= math.MaxFloat32 {
		add(o.next)
	}
	return append(points, math.MaxFloat32, -math.MaxFloat32, float32(math.Inf(1)), float32(math.Inf(-1)))
}

// TestOverflow checks the upper end of each format against codes typed by hand: the largest
// value, half a step above it and its neighbors, one step above it, and infinity.
func TestOverflow(t *testing.T) {
	inf := float32(math.Inf(1))
	below := func(x float32) float32 { return math.Nextafter32(x, 0) }
	above := func(x float32) float32 { return math.Nextafter32(x, math.MaxFloat32) }
	for _, tc := range []struct {
		format                                  *format.Scalar
		x                                       float32
		saturate, nonSaturating, saturateFinite uint32
	}{
		{format.E4M3, 448, 0x7e, 0x7e, 0x7e},
		{format.E4M3, 464, 0x7e, 0x7e, 0x7e}, // the tie goes to the even 448
		{format.E4M3, above(464), 0x7e, 0x7f, 0x7e},
		{format.E4M3, 480, 0x7e, 0x7f, 0x7e},
		{format.E4M3, math.MaxFloat32, 0x7e, 0x7f, 0x7e},
		{format.E4M3, inf, 0x7e, 0x7f, 0x7f},
		{format.E5M2, 57344, 0x7b, 0x7b, 0x7b},
		{format.E5M2, below(61440), 0x7b, 0x7b, 0x7b},
		{format.E5M2, 61440, 0x7b, 0x7c, 0x7b}, // 57344 is odd
		{format.E5M2, 65536, 0x7b, 0x7c, 0x7b},
		{format.E5M2, inf, 0x7b, 0x7c, 0x7c},
		{format.E3M2, 30, 0x1f, 0x1f, 0x1f},
		{format.E3M2, inf, 0x1f, 0x1f, 0x1f},
		{format.E2M3, 8, 0x1f, 0x1f, 0x1f},
		{format.E2M3, inf, 0x1f, 0x1f, 0x1f},
		{format.E2M1, below(7), 0x7, 0x7, 0x7},
		{format.E2M1, 7, 0x7, 0x7, 0x7},
		{format.E2M1, 8, 0x7, 0x7, 0x7},
		{format.E2M1, inf, 0x7, 0x7, 0x7},
		{format.INT8, 127.5 / 64, 0x7f, 0x7f, 0x7f},
		{format.INT8, 2, 0x7f, 0x7f, 0x7f},
		{format.INT8, inf, 0x7f, 0x7f, 0x7f},
		{format.S4, 7.5, 0x7, 0x7, 0x7},
		{format.S4, 16, 0x7, 0x7, 0x7},
		{format.S8, inf, 0x7f, 0x7f, 0x7f},
		{format.UE4M3, 464, 0x7e, 0x7e, 0x7e},
		{format.UE4M3, 480, 0x7e, 0x7f, 0x7e},
		{format.UE4M3, inf, 0x7e, 0x7f, 0x7f},
		{format.E8M0, 0x1p127, 0xfe, 0xfe, 0xfe},
		{format.E8M0, below(0x1.8p127), 0xfe, 0xfe, 0xfe},
		{format.E8M0, 0x1.8p127, 0xfe, 0xff, 0xfe},
		{format.E8M0, math.MaxFloat32, 0xfe, 0xff, 0xfe},
		{format.E8M0, inf, 0xfe, 0xff, 0xff},
		{format.E4M3FNUZ, below(248), 0x7f, 0x7f, 0x7f},
		{format.E4M3FNUZ, 248, 0x7f, 0x80, 0x7f},
		{format.E4M3FNUZ, inf, 0x7f, 0x80, 0x80},
		{format.E5M2FNUZ, 61440, 0x7f, 0x80, 0x7f},
		{e4m3b11fnuz, 31, 0x7f, 0x80, 0x7f},
		{e4m3ieee, below(248), 0x77, 0x77, 0x77},
		{e4m3ieee, 248, 0x77, 0x78, 0x77},
		{e4m3ieee, inf, 0x77, 0x78, 0x78},
		{e3m4, 15.75, 0x6f, 0x70, 0x6f},
		{format.BF16, below(0x1.ffp127), 0x7f7f, 0x7f7f, 0x7f7f},
		{format.BF16, 0x1.ffp127, 0x7f7f, 0x7f80, 0x7f7f},
		{format.FP16, below(65520), 0x7bff, 0x7bff, 0x7bff},
		{format.FP16, 65520, 0x7bff, 0x7c00, 0x7bff},
		{format.FP16, inf, 0x7bff, 0x7c00, 0x7c00},
		{format.F32, math.MaxFloat32, 0x7f7fffff, 0x7f7fffff, 0x7f7fffff},
		{format.F32, inf, 0x7f7fffff, 0x7f800000, 0x7f800000},
	} {
		for o, want := range map[format.Overflow]uint32{
			format.Saturate: tc.saturate, format.NonSaturating: tc.nonSaturating, format.SaturateFinite: tc.saturateFinite,
		} {
			c := format.Conversion{Overflow: o}
			if got := tc.format.EncodeWith(tc.x, c, 0); got != want {
				t.Errorf("format=%v overflow=%v: %v: got %#x, want %#x", tc.format, o, tc.x, got, want)
			}
		}
	}
}

// TestOverflowRounding checks that rounding toward zero, and up for negative values, stays
// finite, while infinities do not depend on the rounding.
func TestOverflowRounding(t *testing.T) {
	for _, tc := range []struct {
		x        float32
		rounding format.Rounding
		want     uint32
	}{
		{1e6, format.TowardZero, 0x7b},
		{-1e6, format.TowardZero, 0xfb},
		{1e6, format.Up, 0x7c},
		{-1e6, format.Up, 0xfb},
		{57345, format.Up, 0x7c},
		{-57345, format.Up, 0xfb},
		{1e6, format.HalfTowardZero, 0x7c},
		{61440, format.HalfTowardZero, 0x7b},
		{1e6, format.Stochastic, 0x7c},
		{float32(math.Inf(1)), format.TowardZero, 0x7c},
		{float32(math.Inf(-1)), format.Up, 0xfc},
	} {
		c := format.Conversion{Rounding: tc.rounding, Overflow: format.NonSaturating}
		if got := format.E5M2.EncodeWith(tc.x, c, 0); got != tc.want {
			t.Errorf("rounding=%v: %v in e5m2: got %#x, want %#x", tc.rounding, tc.x, got, tc.want)
		}
	}
}

// TestNaN checks the code of NaN under every policy: [policy]{of +NaN, of -NaN}.
func TestNaN(t *testing.T) {
	for _, tc := range []struct {
		format *format.Scalar
		want   map[format.NaN][2]uint32
	}{
		{format.E4M3, map[format.NaN][2]uint32{format.Canonical: {0x7f, 0x7f}, format.KeepSign: {0x7f, 0xff}, format.Unchecked: {0x7f, 0xff},
			format.OppositeZero: {0x7f, 0xff}}},
		{format.E5M2, map[format.NaN][2]uint32{format.Canonical: {0x7f, 0x7f}, format.KeepSign: {0x7f, 0xff}, format.Unchecked: {0x7f, 0xff},
			format.OppositeZero: {0x7f, 0xff}}},
		{format.E3M2, map[format.NaN][2]uint32{format.Canonical: {0x1f, 0x1f}, format.KeepSign: {0x1f, 0x3f}, format.Unchecked: {0x0e, 0x2e},
			format.OppositeZero: {0x20, 0x00}}},
		{format.E2M3, map[format.NaN][2]uint32{format.Canonical: {0x1f, 0x1f}, format.KeepSign: {0x1f, 0x3f}, format.Unchecked: {0x0c, 0x2c},
			format.OppositeZero: {0x20, 0x00}}},
		{format.E2M1, map[format.NaN][2]uint32{format.Canonical: {0x7, 0x7}, format.KeepSign: {0x7, 0xf}, format.Unchecked: {0x3, 0xb},
			format.OppositeZero: {0x8, 0x0}}},
		{format.INT8, map[format.NaN][2]uint32{format.Canonical: {0x7f, 0x7f}, format.KeepSign: {0x7f, 0x81}, format.Unchecked: {0x7f, 0x81},
			format.OppositeZero: {0, 0}}},
		{format.S4, map[format.NaN][2]uint32{format.Canonical: {0x7, 0x7}, format.KeepSign: {0x7, 0x9}, format.Unchecked: {0x7, 0x8},
			format.OppositeZero: {0, 0}}},
		{format.S8, map[format.NaN][2]uint32{format.Canonical: {0x7f, 0x7f}, format.KeepSign: {0x7f, 0x81}, format.Unchecked: {0x7f, 0x80},
			format.OppositeZero: {0, 0}}},
		{format.E8M0, map[format.NaN][2]uint32{format.Canonical: {0xff, 0xff}, format.KeepSign: {0xff, 0xff}, format.Unchecked: {0xff, 0xff},
			format.OppositeZero: {0xff, 0xff}}},
		{format.UE4M3, map[format.NaN][2]uint32{format.Canonical: {0x7f, 0x7f}, format.KeepSign: {0x7f, 0x7f}, format.Unchecked: {0x7f, 0x7f},
			format.OppositeZero: {0x7f, 0x7f}}},
		{format.E4M3FNUZ, map[format.NaN][2]uint32{format.Canonical: {0x80, 0x80}, format.KeepSign: {0x80, 0x80}, format.Unchecked: {0x80, 0x80},
			format.OppositeZero: {0x80, 0x80}}},
		{format.E5M2FNUZ, map[format.NaN][2]uint32{format.Canonical: {0x80, 0x80}, format.KeepSign: {0x80, 0x80}, format.Unchecked: {0x80, 0x80},
			format.OppositeZero: {0x80, 0x80}}},
		{e4m3b11fnuz, map[format.NaN][2]uint32{format.Canonical: {0x80, 0x80}, format.KeepSign: {0x80, 0x80}, format.Unchecked: {0x80, 0x80},
			format.OppositeZero: {0x80, 0x80}}},
		{e4m3ieee, map[format.NaN][2]uint32{format.Canonical: {0x7f, 0x7f}, format.KeepSign: {0x7f, 0xff}, format.Unchecked: {0x7f, 0xff},
			format.OppositeZero: {0x7f, 0xff}}},
		{e3m4, map[format.NaN][2]uint32{format.Canonical: {0x7f, 0x7f}, format.KeepSign: {0x7f, 0xff}, format.Unchecked: {0x7f, 0xff},
			format.OppositeZero: {0x7f, 0xff}}},
		{format.BF16, map[format.NaN][2]uint32{format.Canonical: {0x7fff, 0x7fff}, format.KeepSign: {0x7fff, 0xffff},
			format.Unchecked: {0x7fff, 0xffff}, format.OppositeZero: {0x7fff, 0xffff}}},
		{format.FP16, map[format.NaN][2]uint32{format.Canonical: {0x7fff, 0x7fff}, format.KeepSign: {0x7fff, 0xffff},
			format.Unchecked: {0x7fff, 0xffff}, format.OppositeZero: {0x7fff, 0xffff}}},
		{format.F32, map[format.NaN][2]uint32{format.Canonical: {0x7fffffff, 0x7fffffff}, format.KeepSign: {0x7fffffff, 0xffffffff},
			format.Unchecked: {0x7fffffff, 0xffffffff}, format.OppositeZero: {0x7fffffff, 0xffffffff}}},
	} {
		t.Run("format="+tc.format.Name, func(t *testing.T) {
			for _, policy := range nans {
				for _, o := range overflows {
					c := format.Conversion{NaN: policy, Overflow: o}
					for sign, want := range tc.want[policy] {
						// The quiet NaN without payload: Unchecked depends on it.
						x := math.Float32frombits(uint32(sign)<<31 | 0x7fc00000)
						if got := tc.format.EncodeWith(x, c, 0); got != want {
							t.Errorf("policy %v, overflow=%v: NaN of sign %d: got %#x, want %#x", policy, o, sign, got, want)
						}
					}
				}
			}
		})
	}
}

// TestNaNPayload checks that the payload of a NaN does not matter.
func TestNaNPayload(t *testing.T) {
	eachSpec(t, 32, func(t *testing.T, s *spec) {
		want := s.format.Encode(float32(math.NaN()))
		for _, bits := range []uint32{0x7f800001, 0x7fa00000, 0x7fbfffff, 0x7fffffff, 0xff800001, 0xffffffff} {
			if got := s.format.Encode(math.Float32frombits(bits)); got != want {
				t.Errorf("NaN %#x: got %#x, want %#x", bits, got, want)
			}
		}
	})
}

// TestScaleConversion checks golden values of PTX's cvt.rp.ue8m0x2.f32, published by torchao,
// with .satfinite, where finite values saturate at 2^127, and without.
func TestScaleConversion(t *testing.T) {
	for _, tc := range []struct {
		bits                 uint32
		satfinite, unlimited uint32
	}{
		{0x00000000, 0, 0}, {0x00000001, 0, 0}, {0x00400000, 0, 0}, {0x00400001, 1, 1},
		{0x007fffff, 1, 1}, {0x00800000, 1, 1}, {0x00800001, 2, 2},
		{0x1f800000, 63, 63}, {0x1f800001, 64, 64},
		{0x3f7fffff, 127, 127}, {0x3f800000, 127, 127}, {0x3f800001, 128, 128},
		{0x5f800000, 191, 191}, {0x5f800001, 192, 192},
		{0x7f000000, 254, 254}, {0x7f000001, 254, 255}, {0x7f7fffff, 254, 255},
		{0x7f800000, 254, 255}, {0x7fc00000, 255, 255},
		{0xbf800001, 128, 128}, // the sign is dropped before rounding up
	} {
		x := math.Float32frombits(tc.bits)
		if got := format.E8M0.EncodeWith(x, format.Conversion{Rounding: format.Up}, 0); got != tc.satfinite {
			t.Errorf("up, saturating: %#08x: got %d, want %d", tc.bits, got, tc.satfinite)
		}
		if got := format.E8M0.EncodeWith(x, format.Conversion{Rounding: format.Up, Overflow: format.NonSaturating}, 0); got != tc.unlimited {
			t.Errorf("up, nonsaturating: %#08x: got %d, want %d", tc.bits, got, tc.unlimited)
		}
	}
}

// TestFloat32Subnormals checks inputs below 2^-126.
func TestFloat32Subnormals(t *testing.T) {
	eachSpec(t, 16, func(t *testing.T, s *spec) {
		oracle := newOracle(s)
		for _, r := range deterministic {
			c := format.Conversion{Rounding: r}
			for bits := uint32(1); bits < 0x00800000; bits += 4099 {
				for _, sign := range []uint32{0, 1 << 31} {
					x := math.Float32frombits(bits | sign)
					if got, want := s.format.EncodeWith(x, c, 0), oracle.encode(float64(x), c); got != want {
						t.Fatalf("%v: %v: got %#x, want %#x", r, x, got, want)
					}
				}
			}
		}
	})
}

func TestEncodeSlice(t *testing.T) {
	eachSpec(t, 8, func(t *testing.T, s *spec) {
		src := midpoints(newOracle(s))
		const past = 0xa5
		dst := make([]byte, len(src)+1)
		dst[len(src)] = past
		s.format.EncodeSlice(dst, src)
		for i, x := range src {
			if want := s.format.EncodeWith(x, format.Conversion{}, 0); uint32(dst[i]) != want {
				t.Fatalf("%v: got %#x in a slice, want %#x", x, dst[i], want)
			}
		}
		if dst[len(src)] != past {
			t.Errorf("EncodeSlice wrote past the last value")
		}
	})
}
