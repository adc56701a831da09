package mmatest

import (
	"math"

	"github.com/microscale-go/microscale/format"
	"github.com/microscale-go/microscale/mma"
)

// Plain returns a case with k products of finite codes, for a unit with operands of at most 8 bits and
// FP32 results.
func Plain(u *mma.Unit, k int, s *Source) Case {
	c := Case{A: make([]uint64, k), B: make([]uint64, k), ScaleA: make([]byte, u.Scales(k)), ScaleB: make([]byte, u.Scales(k))}
	for i := range c.A {
		c.A[i] = plainCode(u.A.Scalar, s.Next())
	}
	for i := range c.B {
		c.B[i] = plainCode(u.B.Scalar, s.Next())
	}
	fraction := float64(s.Next()>>11)*0x1p-53 - 0.5
	c.C = uint64(math.Float32bits(float32(math.Ldexp(fraction, int(s.Next()>>59)-8))))
	for _, scales := range [][]byte{c.ScaleA, c.ScaleB} {
		for i := range scales {
			if u.Scale.Scalar == format.E8M0 {
				scales[i] = byte(119 + s.Next()>>32%17)
			} else {
				scales[i] = min(byte(s.Next()>>57), 0x7e)
			}
		}
	}
	return c
}

func plainCode(f *format.Scalar, u uint64) uint64 {
	code := u >> (64 - f.Bits())
	switch magnitude := uint32(code) &^ (1 << (f.Bits() - 1)); {
	case !f.HasNegativeZero() && f.IsNaN(uint32(code)):
		return 0
	case !f.HasInf() && f.IsNaN(uint32(code)):
		return code &^ 1
	case f.HasInf() && magnitude > f.MaxCode():
		return code &^ (1 << f.Mantissa) // the largest exponent, with the same mantissa
	}
	return code
}
