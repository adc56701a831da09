package numbers

import (
	"math"
	"strings"
	"testing"

	"github.com/microscale-go/microscale/format"
)

func TestParseNumber(t *testing.T) {
	nan := float32(math.NaN())
	for _, tc := range []struct {
		text    string
		from    *format.Scalar
		want    float32
		pattern uint32
	}{
		{"0.3952", format.F32, 0.3952, 0x3eca57a8},
		{"0.3952", format.BF16, 0.39453125, 0x3eca},
		{"0.3952", format.FP16, 0.395263671875, 0x3653},
		{"0x1.8p1", format.F32, 3, 0x40400000},
		{"0x3f800000", format.F32, 1, 0x3f800000},
		{"0X3F80", format.BF16, 1, 0x3f80},
		{"0x3c00", format.FP16, 1, 0x3c00},
		{"0x1", format.F32, math.SmallestNonzeroFloat32, 1},
		{"-0", format.F32, float32(math.Copysign(0, -1)), 0x80000000},
		{"0.00e-50", format.F32, 0, 0},
		{"0x0p-200", format.F32, 0, 0},
		{"-0e5", format.BF16, float32(math.Copysign(0, -1)), 0x8000},
		{"0.71e-45", format.F32, math.SmallestNonzeroFloat32, 1},
		{"1e-44", format.BF16, 0, 0},
		{"-inf", format.BF16, float32(math.Inf(-1)), 0xff80},
		{"1e5", format.FP16, float32(math.Inf(1)), 0x7c00},
		{"nan", format.F32, nan, 0x7fc00000},
		{"NaN", format.BF16, nan, 0x7fc0},
		{"-nan", format.FP16, nan, 0xfe00},
		{"0x7fa00001", format.F32, nan, 0x7fa00001},
	} {
		v, pattern, err := Parse(tc.text, tc.from)
		same := v == tc.want && math.Signbit(float64(v)) == math.Signbit(float64(tc.want)) || v != v && tc.want != tc.want
		if err != nil || !same || pattern != tc.pattern {
			t.Errorf("%s in %s is %v, %#x, %v, want %v, %#x", tc.text, tc.from, v, pattern, err, tc.want, tc.pattern)
		}
		if !IsNumber(tc.text) && strings.HasPrefix(tc.text, "-") {
			t.Errorf("%s is not taken for a number", tc.text)
		}
	}
	for _, text := range []string{"", "-", "x", "--1", "1e39", "0.69e-45", "0x1.8p-151", "1e-400", "0x", "0x1ffffffff", "0xg", "-0x3f80"} {
		if v, _, err := Parse(text, format.F32); err == nil {
			t.Errorf("%q is taken for %v", text, v)
		}
	}
}

// TestNeighbors checks every code of every small format, and the midpoints.
func TestNeighbors(t *testing.T) {
	for _, f := range format.All() {
		if f.Bits() > 8 {
			continue
		}
		for code := range f.MaxCode() {
			a, b := f.Decode(code), f.Decode(code+1)
			if lower, upper := neighbors(a, f); lower != a || upper != a {
				t.Errorf("%s: %v lies between %v and %v", f, a, lower, upper)
			}
			middle := float32((float64(a) + float64(b)) / 2)
			if lower, upper := neighbors(-middle, f); lower != a || upper != b {
				t.Errorf("%s: %v lies between %v and %v, want %v and %v", f, -middle, lower, upper, a, b)
			}
			if m := marks(middle, f.Encode(middle), f); len(m) == 0 || m[len(m)-1] != "tie" {
				t.Errorf("%s: %v is marked %q, want tie", f, middle, m)
			}
		}
		if lower, upper := neighbors(2*f.Max(), f); lower != f.Max() || upper == upper {
			t.Errorf("%s: beyond its largest value there are %v and %v", f, lower, upper)
		}
	}
	if lower, upper := neighbors(0, format.E8M0); lower == lower || upper != format.E8M0.Smallest() {
		t.Errorf("e8m0: 0 lies between %v and %v", lower, upper)
	}
}

// TestFields checks that the binary digits of codes are grouped by field.
func TestFields(t *testing.T) {
	for _, tc := range []struct {
		format      *format.Scalar
		code        uint32
		names, bits string
		hex         string
	}{
		{format.E4M3, 0x2d, "s eeee mmm", "0 0101 101", "0x2d"},
		{format.E5M2, 0xb6, "s eeeee mm", "1 01101 10", "0xb6"},
		{format.E2M1, 0x9, "s ee m", "1 00 1", "0x9"},
		{format.E3M2, 0x29, "s eee mm", "1 010 01", "0x29"},
		{format.INT8, 0xb2, "s iiiiiii", "1 0110010", "0xb2"},
		{format.E8M0, 0x7f, "eeeeeeee", "01111111", "0x7f"},
		{format.UE4M3, 0x2d, "eeee mmm", "0101 101", "0x2d"},
		{format.FP16, 0x3653, "s eeeee mmmmmmmmmm", "0 01101 1001010011", "0x3653"},
	} {
		if names, bits, hex := fieldNames(tc.format), bitsText(tc.code, tc.format), hexText(tc.code, tc.format); names != tc.names ||
			bits != tc.bits || hex != tc.hex {
			t.Errorf("%s: %q %q %q, want %q %q %q", tc.format, names, bits, hex, tc.names, tc.bits, tc.hex)
		}
	}
}
