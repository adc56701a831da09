package jinja

import (
	"fmt"
	"math"
	"math/big"
	"regexp"
	"strconv"
	"strings"
	"unicode"
)

// This file has the filters of numbers.

func absolute(v any, _ given) (any, error) {
	if u, ok := v.(*undefined); ok {
		return nil, u.err()
	}
	if i, ok := integer(v); ok {
		if i == math.MinInt64 {
			return nil, errLarge
		}
		return max(i, -i), nil
	}
	f, ok := v.(float64)
	if !ok {
		return nil, fmt.Errorf("want a number, not a value of type %s", typeName(v))
	}
	return math.Abs(f), nil
}

// integerPattern and decimalPattern match what Python's int and float read, without sign and base.
var (
	integerPattern = regexp.MustCompile(`^[0-9a-z]+(_[0-9a-z]+)*$`)
	decimalPattern = regexp.MustCompile(`^[-+]?(([0-9](_?[0-9])*)?\.?([0-9](_?[0-9])*)?(e[-+]?[0-9](_?[0-9])*)?|inf|infinity|nan)$`)
)

// parseInteger reads an integer as Python's int does, big ones included.
func parseInteger(s string, base int64) (*big.Int, bool) {
	s = asciiDigits(s)
	sign := ""
	if s != "" && (s[0] == '-' || s[0] == '+') {
		sign, s = s[:1], s[1:]
	}
	if base < 0 || base == 1 || base > 36 {
		return nil, false
	}
	letters := map[string]int64{"0b": 2, "0o": 8, "0x": 16}
	if prefix := s[:min(2, len(s))]; letters[prefix] != 0 && (base == 0 || base == letters[prefix]) {
		base, s = letters[prefix], strings.TrimPrefix(s[2:], "_")
	} else if base == 0 {
		if base = 10; strings.HasPrefix(s, "0") && strings.Trim(s, "0_") != "" {
			return nil, false
		}
	}
	if !integerPattern.MatchString(s) {
		return nil, false
	}
	return new(big.Int).SetString(sign+strings.ReplaceAll(s, "_", ""), int(base))
}

// parseFloat reads a float as Python's float does.
func parseFloat(s string) (float64, bool) {
	s = asciiDigits(s)
	if !decimalPattern.MatchString(s) {
		return 0, false
	}
	if strings.HasSuffix(s, "nan") {
		return math.NaN(), true
	}
	f, err := strconv.ParseFloat(strings.ReplaceAll(s, "_", ""), 64)
	return f, err == nil || math.IsInf(f, 0) // out of range: infinite, as in Python
}

// asciiDigits returns the text of a number in lower case, without white space around it, and with
// ASCII digits instead of those of other scripts.
func asciiDigits(s string) string {
	return strings.Map(func(r rune) rune {
		if r <= unicode.MaxASCII {
			return unicode.ToLower(r)
		}
		for _, run := range unicode.Nd.R16 {
			if r >= rune(run.Lo) && r <= rune(run.Hi) {
				return '0' + (r-rune(run.Lo))%10
			}
		}
		for _, run := range unicode.Nd.R32 {
			if r >= rune(run.Lo) && r <= rune(run.Hi) {
				return '0' + (r-rune(run.Lo))%10
			}
		}
		return r
	}, strings.TrimFunc(s, isSpace))
}

func toInteger(v any, g given) (any, error) {
	if u, ok := v.(*undefined); ok {
		return nil, u.err()
	}
	f, ok := number(v)
	if s, isText := v.(string); isText {
		if base, ok := integer(g.or(1, int64(10))); ok {
			if i, ok := parseInteger(s, base); ok {
				if !i.IsInt64() {
					return nil, errLarge
				}
				return i.Int64(), nil
			}
		}
		f, ok = parseFloat(s)
		ok = ok && !math.IsInf(f, 0)
	}
	switch i, isInt := integer(v); {
	case isInt:
		return i, nil
	case !ok || math.IsNaN(f):
		return g.or(0, int64(0)), nil
	}
	return truncated(f)
}

// truncated returns the integer part of a float.
func truncated(f float64) (any, error) {
	if !(f >= -1<<63 && f < 1<<63) {
		return nil, errLarge
	}
	return int64(f), nil
}

func toFloat(v any, g given) (any, error) {
	switch v := v.(type) {
	case *undefined:
		return nil, v.err()
	case string:
		if f, ok := parseFloat(v); ok {
			return f, nil
		}
	}
	if f, ok := number(v); ok {
		return f, nil
	}
	return g.or(0, 0.0), nil
}

func round(v any, g given) (any, error) {
	precision, err := g.integer(0, 0)
	f, ok := number(v)
	if !ok || err != nil {
		return nil, orError(err, "want a number, not a value of type %s", typeName(v))
	}
	method := g.or(1, "common")
	if method == "common" {
		if i, ok := integer(v); ok {
			return roundedInteger(i, precision)
		}
		return rounded(f, precision)
	}
	if math.IsNaN(f) || math.IsInf(f, 0) || max(precision, -precision) > 300 {
		return nil, fmt.Errorf("cannot round %s to %d digits", str(v), precision)
	}
	factor := math.Pow(10, float64(precision))
	switch method {
	case "ceil":
		return math.Ceil(f*factor) / factor, nil
	case "floor":
		return math.Floor(f*factor) / factor, nil
	}
	return nil, fmt.Errorf("method is %s, want common, ceil or floor", repr(method))
}

// roundedInteger rounds the digits of i left of the decimal point, for negative precisions.
func roundedInteger(i, precision int64) (any, error) {
	if precision >= 0 {
		return i, nil
	}
	if precision < -19 {
		return int64(0), nil
	}
	unit := new(big.Int).Exp(big.NewInt(10), big.NewInt(-precision), nil)
	half := new(big.Int).Rsh(unit, 1)
	quotient, rest := new(big.Int).DivMod(big.NewInt(i), unit, new(big.Int))
	if c := rest.Cmp(half); c > 0 || c == 0 && quotient.Bit(0) == 1 {
		quotient.Add(quotient, big.NewInt(1))
	}
	if quotient.Mul(quotient, unit); !quotient.IsInt64() {
		return nil, errLarge
	}
	return quotient.Int64(), nil
}

// rounded rounds a float to digits right of the decimal point, or left of it if precision is negative.
func rounded(f float64, precision int64) (any, error) {
	if precision >= 0 || math.IsNaN(f) || math.IsInf(f, 0) {
		return strconv.ParseFloat(strconv.FormatFloat(f, 'f', int(min(max(precision, 0), 400)), 64), 64)
	}
	if precision < -308 {
		return math.Copysign(0, f), nil
	}
	unit := math.Pow(10, -float64(precision))
	text := strconv.FormatFloat(f, 'e', -1, 64)
	exponent, _ := strconv.ParseInt(text[strings.IndexByte(text, 'e')+1:], 10, 64)
	if exponent+precision < 0 { // at most one unit
		return math.RoundToEven(f/unit) * unit, nil
	}
	return strconv.ParseFloat(strconv.FormatFloat(f, 'e', int(exponent+precision), 64), 64)
}
