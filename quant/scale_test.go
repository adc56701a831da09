package quant

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"testing"

	"github.com/microscale-go/microscale/format"
	"github.com/microscale-go/microscale/internal/slow"
)

// TestRatioForms: the ratio rule in integers and by the product with
// float32(1/max) differ on one amax per element format, one ulp above
// max·2^-127, where the product is subnormal and rounds down to 2^-127; those of
// INT8, whose max is nearly 2, on that of every binade.
func TestRatioForms(t *testing.T) {
	for _, tc := range []struct {
		format Format
		differ uint32 // the least amax on which they do
	}{
		{MXFP8, 0x04600001},
		{MXFP8E5M2, 0x07e00001},
		{MXFP6E2M3, 0x01700001},
		{MXFP6E3M2, 0x02600001},
		{MXFP4, 0x01400001},
		{MXINT8, 0x007f0001},
	} {
		t.Run("format="+tc.format.Name, func(t *testing.T) {
			product := Quantizer{Format: tc.format}
			exact := Quantizer{Format: tc.format, ExactRatio: true}
			want := map[uint32]bool{tc.differ: true}
			if tc.format.Element == format.INT8 {
				// In the last binade both are the largest scale.
				for e := uint32(1); e < 254; e++ {
					want[e<<mantissaBits|0x7e0001] = true
				}
			}
			found := map[uint32]bool{}
			eachAmax(tc.differ, func(amax uint32) {
				if p, e := product.exponentCode(amax), exact.exponentCode(amax); p != e {
					found[amax] = true
					if p+1 != e {
						t.Errorf("amax %#08x: scales %d and %d", amax, p, e)
					}
				}
			})
			if !maps.Equal(found, want) {
				t.Errorf("the forms differ on %#08x, want %#08x", slices.Sorted(maps.Keys(found)), slices.Sorted(maps.Keys(want)))
			}
		})
	}
}

// eachAmax visits the 2^14 neighbors of special, those of every mantissa at which
// a rule changes in every binade, and a stride of all finite float32 values; all
// of them with -full.
func eachAmax(special uint32, visit func(amax uint32)) {
	if *slow.FullRun {
		for a := range uint32(exponentMask) {
			visit(a)
		}
		return
	}
	for a := special - 1<<13; a < special+1<<13; a++ {
		visit(a)
	}
	for e := range uint32(255) {
		for _, m := range []uint32{0, 0x400000, 0x600000, 0x700000, 0x7e0000} {
			at := e<<mantissaBits + m
			for a := at - min(at, 16); a < at+16; a++ {
				visit(a)
			}
		}
	}
	for a := uint32(0); a < exponentMask; a += 20011 {
		visit(a)
	}
}

// TestRatioConversion is the table of E8M0 codes that quotients round up to.
// Above 2^127 Transformer Engine saturates.
func TestRatioConversion(t *testing.T) {
	for bits, want := range map[uint32]uint32{
		0x00000000: 0, 0x00000001: 0, 0x00400000: 0, 0x00400001: 1, 0x007fffff: 1, 0x00800000: 1,
		0x1f800000: 63, 0x1f800001: 64, 0x3f7fffff: 127, 0x3f800000: 127, 0x3f800001: 128,
		0x5f800000: 191, 0x5f800001: 192, 0x7f000000: 254, 0x7f000001: 254, 0x7f7fffff: 254, 0x7f800000: 254,
		0x7fc00000: 255,
	} {
		got := format.E8M0.EncodeWith(math.Float32frombits(bits), format.Conversion{Rounding: format.Up}, 0)
		if got != want {
			t.Errorf("%#08x is %d, want %d", bits, got, want)
		}
	}
}

// TestScaleRules checks on which side of its threshold each rule goes up, in
// every binade whose scale is an E8M0 code.
func TestScaleRules(t *testing.T) {
	const never = 1 << mantissaBits
	for _, tc := range []struct {
		format Format
		from   map[ScaleRule]uint32 // the least mantissa that goes up
	}{
		{MXFP8, map[ScaleRule]uint32{Floor: never, Ceil: 1, Even: 0x780000, RatioCeil: 0x600001}},
		{MXFP8E5M2, map[ScaleRule]uint32{Floor: never, Ceil: 1, Even: 0x700000, RatioCeil: 0x600001}},
		{MXFP6E2M3, map[ScaleRule]uint32{Floor: never, Ceil: 1, Even: 0x780000, RatioCeil: 0x700001}},
		{MXFP6E3M2, map[ScaleRule]uint32{Floor: never, Ceil: 1, Even: 0x700000, RatioCeil: 0x600001}},
		{MXFP4, map[ScaleRule]uint32{Floor: never, Ceil: 1, Even: 0x600000, RatioCeil: 0x400001}},
		{MXINT8, map[ScaleRule]uint32{Floor: never, Ceil: 1, Even: 0x7f0000, RatioCeil: 0x7e0001}},
	} {
		for rule, up := range tc.from {
			t.Run(fmt.Sprintf("format=%s/rule=%s", tc.format, rule), func(t *testing.T) {
				q := &Quantizer{Format: tc.format, Rule: rule, ExactRatio: true}
				emax := tc.format.Element.MaxExponent()
				for e := 1; e < 255; e++ {
					for _, m := range []uint32{0, 1, 0x3fffff, 0x400000, 0x400001, 0x5fffff, up - 1, up, up + 1, 0x7fffff} {
						if m > mantissaMask {
							continue
						}
						want := e - emax
						if m >= up {
							want++
						}
						want = min(max(want, 0), 254)
						if got := int(q.exponentCode(uint32(e)<<mantissaBits | m)); got != want {
							t.Errorf("amax %g has scale %d, want %d", math.Float32frombits(uint32(e)<<mantissaBits|m), got, want)
						}
					}
				}
			})
		}
	}
	// Of a narrower width: 1.75 for all elements.
	q := &Quantizer{Format: MXFP8, Rule: Even, EvenMantissa: 1}
	for amax, want := range map[float32]byte{1.75: 120, 0x1.bffffep0: 119, 448: 128, 440: 127} {
		if got := q.exponentCode(math.Float32bits(amax)); got != want {
			t.Errorf("even at one mantissa bit: amax %g has scale %d, want %d", amax, got, want)
		}
	}
}

// TestSubnormalAmax: only MXINT8, whose values do not reach 2, can take a scale
// above the least for an amax below 2^-126.
func TestSubnormalAmax(t *testing.T) {
	for _, tc := range []struct {
		amax                     uint32 // in units of 2^-149
		floor, ceil, even, rceil byte
	}{
		{1, 0, 0, 0, 0},
		{0x400000, 0, 0, 0, 0}, // 2^-127
		{0x400001, 0, 1, 0, 0},
		{0x600000, 0, 1, 0, 0},
		{0x7f0000, 0, 1, 0, 0}, // 127/64·2^-127
		{0x7f0001, 0, 1, 0, 1},
		{0x7f7fff, 0, 1, 0, 1},
		{0x7f8000, 0, 1, 1, 1}, // rounds to 2^-126 at six mantissa bits
		{0x7fffff, 0, 1, 1, 1},
		{0x800000, 1, 1, 1, 1}, // 2^-126
	} {
		for rule, want := range map[ScaleRule]byte{Floor: tc.floor, Ceil: tc.ceil, Even: tc.even, RatioCeil: tc.rceil} {
			q := &Quantizer{Format: MXINT8, Rule: rule, ExactRatio: true}
			if got := q.exponentCode(tc.amax); got != want {
				t.Errorf("mxint8, %s: amax %#x has scale %d, want %d", rule, tc.amax, got, want)
			}
			q.Format = MXFP4
			if got := q.exponentCode(tc.amax); got != 0 {
				t.Errorf("mxfp4, %s: amax %#x has scale %d, want 0", rule, tc.amax, got)
			}
		}
	}
}

// TestLargestAmax: near the top of float32, rounding up may leave it.
func TestLargestAmax(t *testing.T) {
	for _, tc := range []struct {
		format                   Format
		amax                     float32
		floor, ceil, even, rceil byte
		evenPoison               byte
	}{
		{MXFP8, math.MaxFloat32, 246, 247, 247, 247, 255},
		{MXFP8, 0x1.cp127, 246, 247, 246, 246, 246},
		{MXFP8, 0x1.fp127, 246, 247, 247, 247, 255},
		{MXFP8E5M2, math.MaxFloat32, 239, 240, 240, 240, 255},
		{MXFP4, math.MaxFloat32, 252, 253, 253, 253, 255},
		{MXINT8, math.MaxFloat32, 254, 254, 254, 254, 255},
		{MXINT8, 0x1p127, 254, 254, 254, 254, 254},
		{MXINT8, 0x1p126, 253, 253, 253, 253, 253},
		{MXFP8, inf, 254, 254, 254, 254, 255},
	} {
		for rule, want := range map[ScaleRule]byte{Floor: tc.floor, Ceil: tc.ceil, Even: tc.even, RatioCeil: tc.rceil} {
			q := &Quantizer{Format: tc.format, Rule: rule}
			if got := q.exponentCode(math.Float32bits(tc.amax)); got != want {
				t.Errorf("%s, %s: amax %g has scale %d, want %d", tc.format, rule, tc.amax, got, want)
			}
		}
		q := &Quantizer{Format: tc.format, Rule: Even, NonFinite: Poison}
		if got := q.exponentCode(math.Float32bits(tc.amax)); got != tc.evenPoison {
			t.Errorf("%s, even, poison: amax %g has scale %d, want %d", tc.format, tc.amax, got, tc.evenPoison)
		}
	}
}

func TestParseScaleRule(t *testing.T) {
	for i, name := range []string{"rceil", "floor", "ceil", "even", "round"} {
		var r ScaleRule
		err := r.UnmarshalText([]byte(name))
		if err != nil || int(r) != i || r.String() != name || ScaleRules()[i] != r {
			t.Errorf("%s is rule %d (%v), want %d", name, r, err, i)
		}
	}
	var r ScaleRule
	if err := r.UnmarshalText([]byte("RCEIL")); err != nil || r != RatioCeil {
		t.Errorf("RCEIL is %v (%v)", r, err)
	}
	err := r.UnmarshalText([]byte("nearest"))
	if want := `unknown scale rule "nearest": use one of rceil, floor, ceil, even, round`; err == nil || err.Error() != want {
		t.Errorf("says %v, want %s", err, want)
	}
}

// TestRoundRule: the exponent is the whole number nearest to the logarithm of
// amax over the largest value, which float64 tells of every amax of a stride and of
// those around the threshold. For E2M1 amax 1.0606… is where 8 elements become 6.
func TestRoundRule(t *testing.T) {
	for _, f := range []Format{MXFP8, MXFP8E5M2, MXFP6E2M3, MXFP6E3M2, MXFP4, MXINT8} {
		q := &Quantizer{Format: f, Rule: Round}
		largest := float64(f.Element.Max())
		visit := func(amax uint32) {
			want := math.Round(math.Log2(float64(math.Float32frombits(amax)) / largest))
			if got := float64(q.exponentCode(amax)) - exponentBias; got != min(max(want, -exponentBias), exponentBias) {
				t.Errorf("%s: amax %g has scale 2^%g, want 2^%g", f, math.Float32frombits(amax), got, want)
			}
		}
		for amax := uint32(1); amax < exponentMask; amax += 20011 {
			visit(amax)
		}
		from := roundFrom(f.Element)
		if from == 0 || from > mantissaMask {
			t.Fatalf("%s: it does not halve from %#x", f, from)
		}
		for e := uint32(1); e < 255; e++ {
			for amax := e<<mantissaBits | from - 3; amax < e<<mantissaBits|from+3; amax++ {
				visit(amax)
			}
		}
		for amax, want := range map[float32]byte{0: 0, math.Float32frombits(1): 0, inf: e8m0Max} {
			if got := q.exponentCode(math.Float32bits(amax)); got != want {
				t.Errorf("%s: amax %g has scale code %d, want %d", f, amax, got, want)
			}
		}
	}
	q := &Quantizer{Format: MXFP4, Rule: Round}
	for amax, want := range map[float32]byte{1.06: 124, 1.0606601: 124, 1.0606602: 125, 1.999: 125} {
		if got := q.exponentCode(math.Float32bits(amax)); got != want {
			t.Errorf("mxfp4: amax %g has scale code %d, want %d", amax, got, want)
		}
	}
}
