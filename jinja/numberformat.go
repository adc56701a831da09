package jinja

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"unicode"
)

// A numberFormat is the part of a format that concerns the digits of a number. Fields are as in
// Python's specifications of formats: precision is negative and the others are empty if absent.
type numberFormat struct {
	sign      string // +, - or space
	alternate bool   // #
	grouping  string // , or _
	precision int
	verb      string
}

// format returns the sign of a number, with a prefix such as 0x, and the other characters.
func (f *numberFormat) format(v any) (sign, digits string, err error) {
	x, isFloat := v.(float64)
	i, _ := integer(v)
	if !isFloat && f.verb != "" && strings.Contains("eEfFgG%", f.verb) {
		x, isFloat = float64(i), true
	}
	negative, prefix := i < 0, ""
	if isFloat {
		negative = math.Signbit(x) && !math.IsNaN(x)
		digits, err = f.float(math.Abs(x))
	} else {
		prefix, digits, err = f.integer(i)
	}
	switch {
	case err != nil:
		return "", "", err
	case negative:
		sign = "-"
	case f.sign != "-":
		sign = f.sign
	}
	return sign + prefix, digits, nil
}

func (f *numberFormat) integer(i int64) (prefix, digits string, err error) {
	if f.verb == "c" && f.sign == "" && !f.alternate && f.grouping == "" && f.precision < 0 && i >= 0 && i <= unicode.MaxRune {
		return "", string(rune(i)), nil
	}
	bases := map[string]int{"": 10, "d": 10, "n": 10, "b": 2, "o": 8, "x": 16, "X": 16}
	base, size := bases[f.verb], 3
	if base != 10 {
		size = 4
	}
	if base == 0 || f.precision >= 0 || f.grouping == "," && base != 10 || f.grouping != "" && f.verb == "n" {
		return "", "", fmt.Errorf("unsupported format of an integer: %s", f)
	}
	digits = grouped(strings.TrimPrefix(strconv.FormatInt(i, base), "-"), f.grouping, size)
	if f.alternate && base != 10 {
		prefix = "0" + f.verb
	}
	if f.verb == "X" {
		digits = strings.ToUpper(digits)
	}
	return prefix, digits, nil
}

// float formats a float that is not negative.
func (f *numberFormat) float(x float64) (string, error) {
	precision := f.precision
	if precision < 0 {
		precision = 6
	}
	var suffix, digits string
	switch verb := strings.ToLower(f.verb); {
	case f.alternate || verb == "n" && f.grouping != "":
		return "", fmt.Errorf("unsupported format of a float: %s", f)
	case math.IsInf(x, 0) || math.IsNaN(x):
		if digits = strings.TrimPrefix(floatText(x), "+"); verb == "%" {
			suffix = "%"
		}
	case verb == "" && f.precision < 0:
		digits = floatText(x)
	case verb == "":
		digits = pointed(x, max(precision, 1))
	case verb == "f" || verb == "e":
		digits = strconv.FormatFloat(x, verb[0], precision, 64)
	case verb == "g" || verb == "n":
		digits = strconv.FormatFloat(x, 'g', max(precision, 1), 64)
	case verb == "%":
		digits, suffix = strconv.FormatFloat(x*100, 'f', precision, 64), "%"
	default:
		return "", fmt.Errorf("unsupported format of a float: %s", f)
	}
	if f.verb == "F" || f.verb == "E" || f.verb == "G" {
		digits = strings.ToUpper(digits)
	}
	if at := strings.IndexAny(digits, ".eEin"); at >= 0 {
		return grouped(digits[:at], f.grouping, 3) + digits[at:] + suffix, nil
	}
	return grouped(digits, f.grouping, 3) + suffix, nil
}

// pointed formats a float with a number of digits. One of them is right of the decimal point, else
// there is an exponent.
func pointed(x float64, precision int) string {
	digits := strconv.FormatFloat(x, 'e', precision-1, 64)
	mantissa, exponentText, _ := strings.Cut(digits, "e")
	exponent, _ := strconv.Atoi(exponentText)
	if exponent < -4 || exponent >= precision-1 {
		if strings.Contains(mantissa, ".") {
			mantissa = strings.TrimRight(strings.TrimRight(mantissa, "0"), ".")
		}
		return mantissa + "e" + exponentText
	}
	digits = strings.TrimRight(strconv.FormatFloat(x, 'f', precision-1-exponent, 64), "0")
	if strings.HasSuffix(digits, ".") {
		digits += "0"
	}
	return digits
}

// grouped puts a separator before every group of digits except the first.
func grouped(digits, separator string, size int) string {
	if separator == "" {
		return digits
	}
	for at := len(digits) - size; at > 0; at -= size {
		digits = digits[:at] + separator + digits[at:]
	}
	return digits
}

// String returns the format as a specification, for errors.
func (f *numberFormat) String() string {
	text := f.sign
	if f.alternate {
		text += "#"
	}
	text += f.grouping
	if f.precision >= 0 {
		text += "." + strconv.Itoa(f.precision)
	}
	return text + f.verb
}
