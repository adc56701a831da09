package numbers

import (
	"errors"
	"math"
	"strconv"
	"strings"

	"github.com/microscale-go/microscale/cmd/microscale/internal/show"
	"github.com/microscale-go/microscale/format"
)

// Help describes the numbers that Parse reads.
const Help = `Numbers are decimal (0.3952, -1e-3), hexadecimal with a binary exponent
(0x1.8p-3), inf, -inf, nan, or a bit pattern: 0x3f800000, without a p.`

// Parse parses a number, or a bit pattern of the format from. It returns the value
// rounded to from, and its pattern.
func Parse(s string, from *format.Scalar) (v float32, pattern uint32, err error) {
	if digits, ok := strings.CutPrefix(strings.ToLower(s), "0x"); ok && !strings.Contains(digits, "p") {
		bits, err := strconv.ParseUint(digits, 16, 64)
		if err != nil || bits>>from.Bits() != 0 {
			return 0, 0, show.Misuse("%q is not a bit pattern of %s: use up to %d hexadecimal digits, or append an exponent such as p0 for a number",
				s, from, (from.Bits()+3)/4)
		}
		return fromBits(uint32(bits), from), uint32(bits), nil
	}
	if strings.EqualFold(s, "-nan") {
		return float32(math.NaN()), quietNaN(from) | 1<<(from.Bits()-1), nil
	}
	wide, err := strconv.ParseFloat(s, 32)
	switch {
	case errors.Is(err, strconv.ErrRange):
		return 0, 0, show.Misuse("%s is beyond the maximum of float32, %g: use inf", s, math.MaxFloat32)
	case err != nil:
		return 0, 0, show.Misuse("%q is not a number: use a form such as 0.3952, 0x1.8p-3, inf, nan or 0x3f800000", s)
	case math.IsNaN(wide):
		return float32(wide), quietNaN(from), nil
	case wide == 0 && hasDigits(s):
		return 0, 0, show.Misuse("%s rounds to 0 in float32, whose minimum is %.2g: use 0", s, math.SmallestNonzeroFloat32)
	}
	pattern = from.EncodeWith(float32(wide), format.Conversion{Overflow: format.NonSaturating}, 0)
	return from.Decode(pattern), pattern, nil
}

// hasDigits reports whether the significand of a number in the syntax of strconv has a
// digit other than zero.
func hasDigits(s string) bool {
	significand, _, binary := strings.Cut(strings.ToLower(s), "p")
	if !binary {
		significand, _, _ = strings.Cut(significand, "e")
	}
	return strings.ContainsAny(significand, "123456789abcdef")
}

// quietNaN returns the pattern of the default NaN of processors in an IEEE format.
func quietNaN(f *format.Scalar) uint32 { return f.MaxCode() + 1 + 1<<(f.Mantissa-1) }

// ParseAll parses float32 values.
func ParseAll(args []string) ([]float32, error) {
	values := make([]float32, len(args))
	for i, a := range args {
		var err error
		if values[i], _, err = Parse(a, format.F32); err != nil {
			return nil, err
		}
	}
	return values, nil
}

// IsNumber reports whether s has the syntax of a number, whatever its magnitude.
func IsNumber(s string) bool {
	_, _, err := Parse(s, format.F32)
	_, parsing := strconv.ParseFloat(s, 32)
	return err == nil || parsing == nil || errors.Is(parsing, strconv.ErrRange)
}

// fromBits returns the value of a pattern. It keeps the payload of a float32 NaN.
func fromBits(bits uint32, f *format.Scalar) float32 {
	if f == format.F32 {
		return math.Float32frombits(bits)
	}
	return f.Decode(bits)
}
