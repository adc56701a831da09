package show

import (
	"fmt"
	"math"
	"strconv"
	"strings"
)

// BytesText returns a size in decimal units, with three digits.
func BytesText(n float64) string {
	return UnitText(n, " B", " kB", " MB", " GB", " TB", " PB")
}

// Counted returns a number with its noun: 1 file, 2 files.
func Counted(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

// ParametersText returns the size of a model with three digits, such as 9.74 M
// parameters or 68.7 B parameters. Below a hundred thousand it is exact.
func ParametersText(n float64) string {
	if n < 100_000 {
		return Counted(int(n), "parameter")
	}
	return UnitText(n, "", " k", " M", " B", " T") + " parameters"
}

// UnitText returns n with three digits in the largest unit that is not above n. Each
// unit is a thousand times the one before. The first has no fraction.
func UnitText(n float64, units ...string) string {
	u := 0
	for n >= 999.5 && u < len(units)-1 {
		n /= 1000
		u++
	}
	digits := 0
	switch {
	case u == 0:
	case n < 9.995:
		digits = 2
	case n < 99.95:
		digits = 1
	}
	return fmt.Sprintf("%.*f%s", digits, n, units[u])
}

// DurationText returns a time in seconds as text: 12 ms, 1.2 s, 42 s, 2 min 5 s,
// 3 h 7 min.
func DurationText(s float64) string {
	switch whole := int64(math.Round(s)); {
	case s < 0.0005:
		return "0 ms"
	case s < 0.9995:
		return fmt.Sprintf("%.0f ms", 1000*s)
	case s < 59.5:
		return fmt.Sprintf("%.2g s", s)
	case whole < 3600:
		return fmt.Sprintf("%d min %d s", whole/60, whole%60)
	default:
		minutes := int64(math.Round(s / 60))
		return fmt.Sprintf("%d h %d min", minutes/60, minutes%60)
	}
}

// ThreeDigits returns v with three significant digits, or with its integer part if that has more.
func ThreeDigits(v float64) string {
	if math.IsNaN(v) || math.IsInf(v, 0) {
		return missing
	}
	// Round first: 99.96 has one decimal less than before rounding.
	rounded, err := strconv.ParseFloat(strconv.FormatFloat(v, 'e', 2, 64), 64)
	if err != nil || rounded == 0 {
		return "0"
	}
	return strconv.FormatFloat(v, 'f', max(0, 2-int(math.Floor(math.Log10(math.Abs(rounded))))), 64)
}

// Minus replaces the hyphen of a negative number by a minus sign.
func Minus(number string) string { return strings.Replace(number, "-", "−", 1) }

// missing stands for a figure that is undefined or infinite.
const missing = "-"

// SQNR returns an SQNR with its unit, for sentences.
func SQNR(v float64, unit string) string {
	switch {
	case math.IsInf(v, 1):
		return "infinite: exact"
	case math.IsNaN(v) || math.IsInf(v, 0):
		return "undefined"
	}
	return fmt.Sprintf("%.2f%s", v, unit)
}

// Decibels returns an SQNR without its unit, for columns.
func Decibels(v float64) string {
	switch {
	case math.IsInf(v, 1):
		return "exact"
	case math.IsNaN(v) || math.IsInf(v, 0):
		return missing
	}
	return fmt.Sprintf("%.2f", v)
}

// Percent returns a fraction as a percentage with two significant digits, or with its integer part if that has more.
func Percent(v float64) string {
	const least = 1e-5
	switch {
	case v == 0:
		return "0"
	case math.IsNaN(v) || math.IsInf(v, 0):
		return missing
	case math.Abs(v) < least:
		return fmt.Sprintf("<%g%%", 100*least)
	case math.Abs(v) >= 0.0995:
		return fmt.Sprintf("%.0f%%", 100*v)
	}
	return fmt.Sprintf("%.2g%%", 100*v)
}

// RelativeError returns an error relative to the exact value as a signed percentage with three digits.
func RelativeError(v float64) string {
	switch {
	case math.IsNaN(v):
		return missing
	case v == 0:
		return "0"
	}
	return fmt.Sprintf("%+.3g%%", 100*v)
}

// Change returns a signed fraction as a percentage with two decimals, with one from 10 % on. One that rounds to
// zero has no sign.
func Change(v float64) string {
	digits := 2
	if math.Abs(v) >= 0.0995 {
		digits = 1
	}
	if text := fmt.Sprintf("%+.*f%%", digits, 100*v); strings.Trim(text, "+-0.%") != "" {
		return Minus(text)
	}
	return fmt.Sprintf("%.*f%%", digits, 0.0)
}
