// Package mmatest generates operands for tests of package mma and of implementations compared with it.
package mmatest

import (
	"github.com/microscale-go/microscale/format"
	"github.com/microscale-go/microscale/mma"
)

// A Source is the random generator SplitMix64. Its value is its state.
type Source uint64

// Next returns the next 64 bits.
func (s *Source) Next() uint64 {
	*s += 0x9e3779b97f4a7c15
	z := uint64(*s)
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return z ^ z>>31
}

// A Case has the operands of one dot product.
type Case struct {
	A, B           []uint64
	C              uint64
	ScaleA, ScaleB []byte
}

// Dot returns the unit's result.
func (c *Case) Dot(u *mma.Unit) uint64 { return u.Dot(c.A, c.B, c.C, c.ScaleA, c.ScaleB) }

// The modes of a hard case.
const (
	anything     = iota // every code, including NaN and Inf
	finite              // every finite code
	around              // exponents around 0; modes 3 and 7 use them too
	canceling           // the second half of the products cancels the first
	small               // subnormals and the smallest normals
	large               // the largest exponents
	sparse              // three of four operands are zero
	specialStart        // C is a special value
)

// Hard returns a case with k products of edge cases. It draws one number each for the mode, the codes of
// A, those of B, C, and the scales, in this order.
func Hard(u *mma.Unit, k int, s *Source) Case {
	mode := s.Next() >> 61
	c := Case{A: make([]uint64, k), B: make([]uint64, k), ScaleA: make([]byte, u.Scales(k)), ScaleB: make([]byte, u.Scales(k))}
	for i := range c.A {
		c.A[i] = layoutOf(u.A).operand(mode, s.Next())
	}
	for i := range c.B {
		c.B[i] = layoutOf(u.B).operand(mode, s.Next())
	}
	c.C = layoutOf(u.Out).accumulator(mode, s.Next())
	for _, scales := range [][]byte{c.ScaleA, c.ScaleB} {
		for i := range scales {
			scales[i] = scale(u.Scale, mode, s.Next())
		}
	}
	if mode == canceling {
		for i := k / 2; i < k-1; i++ {
			c.A[i] = c.A[i-k/2]
			c.B[i] = c.B[i-k/2] ^ layoutOf(u.B).sign()
		}
	}
	return c
}

// A layout describes the fields of a type.
type layout struct {
	exponent, mantissa int
	bias, top          uint64 // top: the largest exponent field of a finite value
	scalar             *format.Scalar
}

func layoutOf(t *mma.Type) layout {
	if t.Scalar == nil {
		return layout{11, 52, 1023, 2046, nil}
	}
	f := t.Scalar
	return layout{f.Exponent, f.Mantissa, uint64(f.Bias), uint64(f.MaxCode() >> f.Mantissa), f}
}

func (l layout) sign() uint64 { return 1 << (l.exponent + l.mantissa) }

func (l layout) code(sign, field, mantissa uint64) uint64 {
	return sign<<(l.exponent+l.mantissa) | field<<l.mantissa | mantissa&(1<<l.mantissa-1)
}

func (l layout) operand(mode, u uint64) uint64 {
	r := u >> 52 & 0x7ff
	mantissa := u
	var field uint64
	switch {
	case mode == anything:
		field = r % (1 << l.exponent)
	case mode == sparse && u>>50&3 != 0:
		field, mantissa = 0, 0
	case mode == finite, mode == sparse:
		field = r % (l.top + 1)
	case mode == small && l.exponent == 8 && u>>51&1 != 0:
		field = 52 + r%17
	case mode == small:
		field = min(r%3, l.top)
	case mode == large:
		field = l.top - min(r%3, l.top)
	default:
		field = min(max(l.bias+r%5, 2)-2, l.top)
	}
	code := l.code(u>>63, field, mantissa)
	if mode != anything && l.scalar != nil && l.scalar.IsNaN(uint32(code)) {
		if l.scalar.HasNegativeZero() {
			code-- // the NaN of all ones
		} else {
			code = 0
		}
	}
	return code
}

func (l layout) accumulator(mode, u uint64) uint64 {
	r := u >> 52 & 0x7ff
	spread, top, low := uint64(15), uint64(24), uint64(64) // of exponents
	if l.exponent == 5 {
		spread, top, low = 4, 3, 3
	}
	var field uint64
	switch {
	case mode == specialStart:
		mantissa := l.code(0, 0, 1<<l.mantissa-1)
		infinity := l.code(0, l.top+1, 0)
		return []uint64{0, l.sign(), 1, l.sign() | mantissa, infinity, l.sign() | infinity, infinity | 1<<(l.mantissa-1), infinity - 1}[r&7]
	case mode == anything:
		field = r % (1 << l.exponent)
	case mode == finite:
		field = 1 + r%l.top
	case mode == large:
		field = l.top - r%top
	case (mode == canceling || mode == small || mode == sparse) && r&1 != 0:
		return l.code(u>>63, 0, 0)
	case mode == small:
		field = r >> 1 % low
	default:
		field = l.bias + r>>1%(2*spread+1) - spread
	}
	return l.code(u>>63, field, u)
}

func scale(t *mma.Type, mode, u uint64) byte {
	r := u >> 32
	if t.Scalar == format.E8M0 {
		switch mode {
		case anything:
			return byte(r)
		case finite:
			return byte(r % 255)
		case small:
			return byte(r%24 + r>>8&1*50)
		case large:
			return byte(254 - r%24)
		case specialStart:
			return []byte{0, 1, 126, 127, 128, 253, 254, 255}[r&7]
		}
		return byte(119 + r%17)
	}
	code := byte(r)
	switch mode {
	case specialStart:
		return []byte{0, 1, 0x80, 0x38, 0x7e, 0x7f, 8, 0xb8}[r&7]
	case small:
		return code & 15
	}
	if mode != anything && code&0x7f == 0x7f {
		code--
	}
	return code
}
