package mma

import (
	"fmt"
	"math/bits"
)

// A rounding rounds an exact sum to a result.
type rounding struct {
	out        *Type
	fraction   int  // fraction bits of the result; the bits below are zero
	nearest    bool // to the nearest, ties to even; otherwise toward zero
	signedZero bool // a negative sum that rounds to zero is -0
}

// The roundings of the table.
var (
	rz23  = rounding{out: f32, fraction: 23}
	rz13  = rounding{out: f32, fraction: 13}
	rne16 = rounding{out: f16, fraction: 10, nearest: true}
	rne23 = rounding{out: f32, fraction: 23, nearest: true, signedZero: true}
)

// describe names the rounding.
func (r rounding) describe() string {
	if r.nearest {
		return "to the nearest " + r.out.Name
	}
	if r.fraction == r.out.Scalar.Mantissa {
		return fmt.Sprintf("toward zero to %s", r.out)
	}
	return fmt.Sprintf("toward zero to %s with %d fraction bits", r.out, r.fraction)
}

// code returns the code of sum·2^unit.
func (r rounding) code(sum int64, unit int) uint64 {
	if sum == 0 {
		return 0
	}
	f := r.out.Scalar
	magnitude, sign := uint64(sum), uint64(0)
	if sum < 0 {
		magnitude, sign = -magnitude, r.out.sign()
	}
	smallest := 1 - f.Bias // exponent of the smallest normal
	exp := max(bits.Len64(magnitude)-1+unit, smallest)
	code := r.shift(magnitude, exp-r.fraction-unit)
	code <<= f.Mantissa - r.fraction
	code += uint64(exp-smallest) << f.Mantissa // a normal's leading bit adds one to the exponent field
	if code > uint64(f.MaxCode()) {
		return r.out.infinity(sum < 0)
	}
	if code == 0 && !r.signedZero {
		return 0
	}
	return sign | code
}

// shift returns magnitude / 2^n, rounded.
func (r rounding) shift(magnitude uint64, n int) uint64 {
	if n <= 0 {
		return magnitude << -n
	}
	if n >= 64 {
		return 0 // less than half, since magnitudes have at most 63 bits
	}
	q := magnitude >> n
	rest, half := magnitude&(1<<n-1), uint64(1)<<(n-1)
	if r.nearest && (rest > half || rest == half && q&1 != 0) {
		q++
	}
	return q
}

// towardZero returns sig·2^shift rounded toward zero.
func towardZero(sig int64, shift int) int64 {
	if sig < 0 {
		return -down(-sig, shift)
	}
	return down(sig, shift)
}

// down returns sig·2^shift rounded toward -Inf.
func down(sig int64, shift int) int64 {
	if shift >= 0 {
		return sig << shift
	}
	return sig >> min(-shift, 63)
}
