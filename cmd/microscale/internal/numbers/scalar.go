package numbers

import (
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/microscale-go/microscale/cmd/microscale/internal/show"
	"github.com/microscale-go/microscale/format"
)

// ExponentText returns the power of two v as text, such as 2⁻¹⁴.
func ExponentText(v float32) string { return powerOfTwo(exponentOf(v)) }

// shortText returns the shortest decimal that rounds to v.
func shortText(v float32) string { return strconv.FormatFloat(float64(v), 'g', -1, 32) }

// valueText returns a value of format f: exact if that is short, otherwise as
// shortText.
func valueText(v float32, f *format.Scalar) string {
	const few = len("-0.395263671875")
	if exact := strconv.FormatFloat(float64(v), 'g', -1, 64); f != format.F32 && len(exact) <= few {
		return exact
	}
	return shortText(v)
}

// hexText returns a code of f in hexadecimal, padded to the width of the format.
func hexText(code uint32, f *format.Scalar) string {
	return fmt.Sprintf("0x%0*x", (f.Bits()+3)/4, code)
}

// bitsText returns a code of f in binary, with spaces between its fields.
func bitsText(code uint32, f *format.Scalar) string {
	digits := fmt.Sprintf("%0*b", f.Bits(), code)
	var fields []string
	for _, width := range fieldWidths(f) {
		fields = append(fields, digits[:width])
		digits = digits[width:]
	}
	return strings.Join(fields, " ")
}

// fieldNames returns the fields of bitsText, such as "s eeee mmm".
func fieldNames(f *format.Scalar) string {
	letters := []string{"s", "e", "m"}
	if f.Unsigned {
		letters = letters[1:]
	}
	if f.Exponent == 0 {
		letters = []string{"s", "i"}
	}
	var names []string
	for i, width := range fieldWidths(f) {
		names = append(names, strings.Repeat(letters[i], width))
	}
	return strings.Join(names, " ")
}

// fieldWidths returns the widths of the fields of f.
func fieldWidths(f *format.Scalar) []int {
	var widths []int
	if !f.Unsigned {
		widths = append(widths, 1)
	}
	for _, w := range []int{f.Exponent, f.Mantissa} {
		if w > 0 {
			widths = append(widths, w)
		}
	}
	return widths
}

// exponentOf returns e where |v| = m·2^e, 1 ≤ m < 2.
func exponentOf(v float32) int { return math.Ilogb(float64(v)) }

// powerOfTwo returns 2^e with a superscript exponent.
func powerOfTwo(e int) string {
	digits := strings.NewReplacer("-", "⁻", "0", "⁰", "1", "¹", "2", "²", "3", "³", "4", "⁴", "5", "⁵",
		"6", "⁶", "7", "⁷", "8", "⁸", "9", "⁹")
	return "2" + digits.Replace(strconv.Itoa(e))
}

// percentText returns the error of got relative to want as text.
func percentText(want, got float32) string {
	return show.RelativeError(relativeError(want, got))
}

// relativeError returns (got-want)/want: 0 if they are equal, NaN if it is undefined.
func relativeError(want, got float32) float64 {
	w, g := float64(want), float64(got)
	if w == g {
		return 0
	}
	if w == 0 || math.IsInf(w, 0) || math.IsInf(g, 0) {
		return math.NaN()
	}
	return (g - w) / w
}

// neighbors returns the nearest magnitudes of f below and above |x|, of values with the sign of x. They are equal if
// |x| is one of them, and NaN if f has none.
func neighbors(x float32, f *format.Scalar) (lower, upper float32) {
	none, negative := float32(math.NaN()), x < 0
	x = float32(math.Abs(float64(x)))
	if x != x {
		return none, none
	}
	code := f.EncodeWith(x, format.Conversion{Rounding: format.TowardZero}, 0)
	lower = f.Decode(code)
	switch {
	case lower == x:
		return x, x
	case lower > x: // e8m0 has no zero
		return none, lower
	case code == f.MaxCode():
		switch most := largest(f, negative); {
		case x < most:
			return lower, most
		case x == most:
			return x, x
		default:
			return most, none
		}
	}
	return lower, f.Decode(code + 1)
}

// largest returns the largest magnitude of f of values with a sign.
func largest(f *format.Scalar, negative bool) float32 {
	if negative {
		return 2*f.HalfRange() - f.Max()
	}
	return f.Max()
}

// marks returns notes about the conversion of x to code, such as "saturated".
func marks(x float32, code uint32, f *format.Scalar) []string {
	got := f.Decode(code)
	lower, upper := neighbors(x, f)
	magnitude := math.Abs(float64(x))
	var m []string
	switch {
	case x != x && got == got:
		m = append(m, "no NaN in "+f.Name)
	case x != x || x == got:
	case got != got:
		m = append(m, "became NaN")
	case math.IsInf(float64(got), 0):
		m = append(m, "became Inf")
	case got == 0:
		m = append(m, "flushed")
	case magnitude > float64(largest(f, x < 0)):
		m = append(m, "saturated")
	}
	if float64(lower)+float64(upper) == 2*magnitude && lower != upper {
		m = append(m, "tie")
	}
	if x < 0 && f.Unsigned {
		m = append(m, "sign dropped")
	}
	return m
}
