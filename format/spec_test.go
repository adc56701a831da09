package format_test

import (
	"math"
	"slices"
	"sort"
	"testing"

	"github.com/microscale-go/microscale/format"
)

// Formats that only Lookup returns.
var e4m3b11fnuz, e4m3ieee, e3m4 = mustLookup("e4m3b11fnuz"), mustLookup("e4m3ieee"), mustLookup("e3m4")

func mustLookup(name string) *format.Scalar {
	s, err := format.Lookup(name)
	if err != nil {
		panic(err)
	}
	return s
}

// A spec is the definition of a format in its standard, typed by hand. The oracle computed from
// it does not use the package's codec: it searches floating-point values in a sorted list, where
// the codec shifts bits.
type spec struct {
	format   *format.Scalar
	bits     int
	exponent int // width of the exponent field
	mantissa int
	bias     int
	signed   bool

	inf      uint32 // magnitude of infinity; 0: none
	firstNaN uint32 // smallest magnitude that is NaN; 0: none
	nanZero  bool   // the code of -0 is the NaN
	lowest   bool   // integers: values saturate to the most negative code, too

	maxCode   uint32
	max       float64
	minNormal float64
	min       float64
}

// specs has every row of the table. Sources: OFP8 1.0 table 1, OCP MX 1.0 tables 1 to 6, IEEE
// 754, and the comments of XLA's float8 types.
var specs = []*spec{
	{format: format.E4M3, bits: 8, exponent: 4, mantissa: 3, bias: 7, signed: true, firstNaN: 0x7f, maxCode: 0x7e, max: 448, minNormal: 0x1p-6,
		min: 0x1p-9},
	{format: format.E5M2, bits: 8, exponent: 5, mantissa: 2, bias: 15, signed: true, inf: 0x7c, firstNaN: 0x7d, maxCode: 0x7b, max: 57344,
		minNormal: 0x1p-14, min: 0x1p-16},
	{format: format.E3M2, bits: 6, exponent: 3, mantissa: 2, bias: 3, signed: true, maxCode: 0x1f, max: 28, minNormal: 0.25, min: 0.0625},
	{format: format.E2M3, bits: 6, exponent: 2, mantissa: 3, bias: 1, signed: true, maxCode: 0x1f, max: 7.5, minNormal: 1, min: 0.125},
	{format: format.E2M1, bits: 4, exponent: 2, mantissa: 1, bias: 1, signed: true, maxCode: 0x7, max: 6, minNormal: 1, min: 0.5},
	{format: format.INT8, bits: 8, mantissa: 7, signed: true, maxCode: 0x7f, max: 127.0 / 64, minNormal: 1.0 / 64, min: 1.0 / 64},
	{format: format.S4, bits: 4, mantissa: 3, signed: true, lowest: true, maxCode: 0x7, max: 7, minNormal: 1, min: 1},
	{format: format.S8, bits: 8, mantissa: 7, signed: true, lowest: true, maxCode: 0x7f, max: 127, minNormal: 1, min: 1},
	{format: format.E8M0, bits: 8, exponent: 8, bias: 127, firstNaN: 0xff, maxCode: 0xfe, max: 0x1p127, minNormal: 0x1p-127, min: 0x1p-127},
	{
		format:    format.UE4M3,
		bits:      7,
		exponent:  4,
		mantissa:  3,
		bias:      7,
		firstNaN:  0x7f,
		maxCode:   0x7e,
		max:       448,
		minNormal: 0x1p-6,
		min:       0x1p-9,
	},
	{
		format:    format.UE5M3,
		bits:      8,
		exponent:  5,
		mantissa:  3,
		bias:      15,
		firstNaN:  0xff,
		maxCode:   0xfe,
		max:       114688,
		minNormal: 0x1p-14,
		min:       0x1p-17,
	},
	{
		format:    format.E4M3FNUZ,
		bits:      8,
		exponent:  4,
		mantissa:  3,
		bias:      8,
		signed:    true,
		nanZero:   true,
		maxCode:   0x7f,
		max:       240,
		minNormal: 0x1p-7,
		min:       0x1p-10,
	},
	{
		format:    format.E5M2FNUZ,
		bits:      8,
		exponent:  5,
		mantissa:  2,
		bias:      16,
		signed:    true,
		nanZero:   true,
		maxCode:   0x7f,
		max:       57344,
		minNormal: 0x1p-15,
		min:       0x1p-17,
	},
	{
		format:    e4m3b11fnuz,
		bits:      8,
		exponent:  4,
		mantissa:  3,
		bias:      11,
		signed:    true,
		nanZero:   true,
		maxCode:   0x7f,
		max:       30,
		minNormal: 0x1p-10,
		min:       0x1p-13,
	},
	{
		format:    e4m3ieee,
		bits:      8,
		exponent:  4,
		mantissa:  3,
		bias:      7,
		signed:    true,
		inf:       0x78,
		firstNaN:  0x79,
		maxCode:   0x77,
		max:       240,
		minNormal: 0x1p-6,
		min:       0x1p-9,
	},
	{
		format:    e3m4,
		bits:      8,
		exponent:  3,
		mantissa:  4,
		bias:      3,
		signed:    true,
		inf:       0x70,
		firstNaN:  0x71,
		maxCode:   0x6f,
		max:       15.5,
		minNormal: 0x1p-2,
		min:       0x1p-6,
	},
	{
		format:    format.BF16,
		bits:      16,
		exponent:  8,
		mantissa:  7,
		bias:      127,
		signed:    true,
		inf:       0x7f80,
		firstNaN:  0x7f81,
		maxCode:   0x7f7f,
		max:       0x1.fep127,
		minNormal: 0x1p-126,
		min:       0x1p-133,
	},
	{
		format:    format.FP16,
		bits:      16,
		exponent:  5,
		mantissa:  10,
		bias:      15,
		signed:    true,
		inf:       0x7c00,
		firstNaN:  0x7c01,
		maxCode:   0x7bff,
		max:       65504,
		minNormal: 0x1p-14,
		min:       0x1p-24,
	},
	{
		format:    format.F32,
		bits:      32,
		exponent:  8,
		mantissa:  23,
		bias:      127,
		signed:    true,
		inf:       0x7f800000,
		firstNaN:  0x7f800001,
		maxCode:   0x7f7fffff,
		max:       math.MaxFloat32,
		minNormal: 0x1p-126,
		min:       0x1p-149,
	},
}

// eachSpec runs a subtest for each format of at most widest bits.
func eachSpec(t *testing.T, widest int, test func(*testing.T, *spec)) {
	for _, s := range specs {
		if s.bits <= widest {
			t.Run("format="+s.format.Name, func(t *testing.T) { test(t, s) })
		}
	}
}

func (s *spec) signBit() uint32 {
	if !s.signed {
		return 0
	}
	return 1 << (s.bits - 1)
}

// value returns the value of a code by the definition of the standard.
func (s *spec) value(code uint32) float64 {
	if s.exponent == 0 {
		unused := 8 - s.bits
		return float64(int8(code<<unused)>>unused) * s.min // two's complement; OCP MX 1.0 §5.3.4: the implied scale of INT8 is 2^-6
	}
	sign, magnitude := 1.0, code&^s.signBit()
	if code != magnitude {
		sign = -1
	}
	switch {
	case s.nanZero && sign < 0 && magnitude == 0, s.firstNaN != 0 && magnitude >= s.firstNaN:
		return math.NaN()
	case s.inf != 0 && magnitude == s.inf:
		return math.Inf(int(sign))
	}
	fraction := float64(magnitude%(1<<s.mantissa)) / math.Pow(2, float64(s.mantissa))
	e := float64(magnitude >> s.mantissa)
	if e == 0 && s.mantissa > 0 {
		return sign * math.Pow(2, 1-float64(s.bias)) * fraction
	}
	return sign * math.Pow(2, e-float64(s.bias)) * (1 + fraction)
}

// grid returns the finite magnitudes in increasing order: values[i] is that of code i. next is
// the value that follows the largest one if the exponent range had no limit. Rounding to it is
// overflow.
func (s *spec) grid() (values []float64, next float64) {
	for code := range s.maxCode + 1 {
		values = append(values, s.value(code))
	}
	n := len(values)
	if s.mantissa == 0 {
		return values, 2 * values[n-1]
	}
	return values, values[n-1] + (values[n-1] - values[n-2])
}

// tieUp reports whether nearest-even rounds a tie above code up. The significand of E8M0 is the
// implied bit, which is odd, so all its ties round up, as in PyTorch.
func (s *spec) tieUp(code int) bool { return s.mantissa == 0 || code%2 == 1 }

// An oracle encodes by search in the grid of its format.
type oracle struct {
	*spec
	values []float64
	next   float64
}

func newOracle(s *spec) *oracle {
	o := &oracle{spec: s}
	o.values, o.next = s.grid()
	return o
}

// encode returns the wanted result of EncodeWith for x that is not NaN and any rounding but
// stochastic.
func (o *oracle) encode(x float64, c format.Conversion) uint32 {
	negative := math.Signbit(x) && o.signed
	a := math.Abs(x)
	if math.IsInf(a, 0) {
		if c.Overflow == format.Saturate {
			return o.largest(negative)
		}
		return o.infinity(negative)
	}
	values, next := o.values, o.next
	if o.lowest && negative {
		values, next = append(slices.Clone(values), next), next+o.min
	}
	last := len(values) - 1
	i := sort.SearchFloat64s(values, a) // the first code whose value is at least a
	switch {
	case i <= last && values[i] == a:
		return o.sign(uint32(i), negative)
	case i == 0:
		return 0 // below the smallest value of a format without zero
	}
	low := i - 1
	high := next
	if low < last {
		high = values[i]
	}
	middle := (values[low] + high) / 2
	var up bool
	switch c.Rounding {
	case format.NearestEven:
		up = a > middle || a == middle && o.tieUp(low)
	case format.HalfAway:
		up = a >= middle
	case format.HalfTowardZero:
		up = a > middle
	case format.Up:
		up = !negative
	}
	if !up {
		return o.sign(uint32(low), negative)
	}
	if low < last {
		return o.sign(uint32(low+1), negative)
	}
	if c.Overflow == format.NonSaturating {
		return o.infinity(negative)
	}
	return o.largest(negative)
}

// largest returns the code of the largest magnitude with a sign.
func (o *oracle) largest(negative bool) uint32 {
	if o.lowest && negative {
		return o.signBit()
	}
	return o.sign(o.maxCode, negative)
}

func (o *oracle) infinity(negative bool) uint32 {
	switch {
	case o.inf != 0:
		return o.sign(o.inf, negative)
	case o.nanZero:
		return o.signBit()
	case o.firstNaN != 0:
		return o.sign(o.firstNaN, negative) // of the number's sign, whatever becomes of a NaN
	}
	return o.largest(negative)
}

// sign returns the code of the magnitude m with a sign.
func (s *spec) sign(m uint32, negative bool) uint32 {
	switch {
	case !negative || !s.signed:
		return m
	case s.exponent == 0:
		return -m & (1<<s.bits - 1)
	case s.nanZero && m == 0:
		return 0
	}
	return m | s.signBit()
}
