// Package format holds the scalar number formats of low-precision computing as
// rows of one table, and one codec that serves them all.
//
// A scalar format says what one code means on its own: E4M3, E2M1, E8M0. What a
// block of codes with a shared scale means (MXFP4, NVFP4) is package quant's.
//
// A code is the sign, the exponent field E and the mantissa field M, packed from
// the top bit down:
//
//	 E4M3            E2M1      E8M0
//	 s eeee mmm      s ee m    eeeeeeee
//
//	E > 0:  value = (-1)^s · 2^(E-bias) · (1 + M/2^mantissa)      normal
//	E = 0:  value = (-1)^s · 2^(1-bias) · (M/2^mantissa)          subnormal
//
// E8M0 has no subnormals (E = 0 is 2^-127), and INT8, the element of MXINT8, has
// no exponent: its codes are two's complement integers times 2^-6, which is the
// subnormal line of the formula with bias 0 and 7 mantissa bits. Every limit
// (Max, SmallestNormal, …) is computed from the row.
//
// Sources: OCP 8-bit Floating Point Specification 1.0 (E4M3, E5M2), OCP
// Microscaling Formats 1.0 §5.3 (E3M2, E2M3, E2M1, INT8, E8M0), PTX ISA `cvt`
// (UE4M3 and all conversions), and the float8 variants of XLA (the FNUZ rows).
package format

import (
	"fmt"
	"math"
	"strings"
)

// Specials says which codes of a format are not finite numbers.
type Specials uint8

const (
	IEEE         Specials = iota // top exponent: M = 0 is Inf, the rest NaN
	FiniteNaN                    // no Inf; the code with all magnitude bits set is NaN
	FiniteOnly                   // no Inf, no NaN
	UnsignedZero                 // no Inf, no -0: the code of -0 is the only NaN
)

// A Scalar is one scalar format: data, computed upon by the codec.
// The rows below are the only values; compare them by pointer.
type Scalar struct {
	Name     string   // the name used everywhere in this module
	Aliases  []string // other projects' names, matched without regard to case
	Exponent int      // width of the exponent field in bits; 0 for integers
	Mantissa int      // stored mantissa bits
	Bias     int      // exponent bias
	Specials Specials // which codes are NaN or Inf
	Unsigned bool     // no sign bit: the encoder takes the magnitude
	NoZero   bool     // E = 0 is a normal power of two (E8M0)
	Integer  bool     // two's complement instead of sign and magnitude

	decoded []float32  // value of each code, for formats of at most 8 bits
	narrow  *narrow    // constants of EncodeSlice, for the same formats
	draws   *[256]draw // constants of EncodeSliceStochastic
}

// The table of scalar formats.
var (
	E4M3  = row(Scalar{Name: "e4m3", Aliases: []string{"e4m3fn", "float8_e4m3fn", "f8_e4m3", "fp8_e4m3", "f8e4m3fn", "torch.float8_e4m3fn"}, Exponent: 4, Mantissa: 3, Bias: 7, Specials: FiniteNaN})
	E5M2  = row(Scalar{Name: "e5m2", Aliases: []string{"float8_e5m2", "f8_e5m2", "fp8_e5m2", "f8e5m2", "torch.float8_e5m2"}, Exponent: 5, Mantissa: 2, Bias: 15, Specials: IEEE})
	E3M2  = row(Scalar{Name: "e3m2", Aliases: []string{"e3m2fn", "float6_e3m2fn", "f6_e3m2", "fp6_e3m2"}, Exponent: 3, Mantissa: 2, Bias: 3, Specials: FiniteOnly})
	E2M3  = row(Scalar{Name: "e2m3", Aliases: []string{"e2m3fn", "float6_e2m3fn", "f6_e2m3", "fp6_e2m3"}, Exponent: 2, Mantissa: 3, Bias: 1, Specials: FiniteOnly})
	E2M1  = row(Scalar{Name: "e2m1", Aliases: []string{"e2m1fn", "float4_e2m1fn", "float4_e2m1fn_x2", "f4", "f4_e2m1", "fp4", "fp4_e2m1", "torch.float4_e2m1fn_x2"}, Exponent: 2, Mantissa: 1, Bias: 1, Specials: FiniteOnly})
	INT8  = row(Scalar{Name: "int8", Aliases: []string{"i8", "mx_int8"}, Exponent: 0, Mantissa: 7, Bias: 0, Specials: FiniteOnly, Integer: true})
	E8M0  = row(Scalar{Name: "e8m0", Aliases: []string{"ue8m0", "e8m0fnu", "float8_e8m0fnu", "f8_e8m0", "torch.float8_e8m0fnu"}, Exponent: 8, Mantissa: 0, Bias: 127, Specials: FiniteNaN, Unsigned: true, NoZero: true})
	UE4M3 = row(Scalar{Name: "ue4m3", Exponent: 4, Mantissa: 3, Bias: 7, Specials: FiniteNaN, Unsigned: true})

	E4M3FNUZ    = row(Scalar{Name: "e4m3fnuz", Aliases: []string{"float8_e4m3fnuz", "f8_e4m3fnuz", "torch.float8_e4m3fnuz"}, Exponent: 4, Mantissa: 3, Bias: 8, Specials: UnsignedZero})
	E5M2FNUZ    = row(Scalar{Name: "e5m2fnuz", Aliases: []string{"float8_e5m2fnuz", "f8_e5m2fnuz", "torch.float8_e5m2fnuz"}, Exponent: 5, Mantissa: 2, Bias: 16, Specials: UnsignedZero})
	E4M3B11FNUZ = row(Scalar{Name: "e4m3b11fnuz", Aliases: []string{"float8_e4m3b11fnuz"}, Exponent: 4, Mantissa: 3, Bias: 11, Specials: UnsignedZero})
	E4M3IEEE    = row(Scalar{Name: "e4m3ieee", Aliases: []string{"float8_e4m3"}, Exponent: 4, Mantissa: 3, Bias: 7, Specials: IEEE})
	E3M4        = row(Scalar{Name: "e3m4", Aliases: []string{"float8_e3m4"}, Exponent: 3, Mantissa: 4, Bias: 3, Specials: IEEE})

	BF16 = row(Scalar{Name: "bf16", Aliases: []string{"bfloat16", "torch.bfloat16"}, Exponent: 8, Mantissa: 7, Bias: 127, Specials: IEEE})
	FP16 = row(Scalar{Name: "fp16", Aliases: []string{"f16", "float16", "half", "torch.float16"}, Exponent: 5, Mantissa: 10, Bias: 15, Specials: IEEE})
	F32  = row(Scalar{Name: "f32", Aliases: []string{"fp32", "float32", "float", "torch.float32"}, Exponent: 8, Mantissa: 23, Bias: 127, Specials: IEEE})
)

var all []*Scalar

// row files s in the table and computes its decoding table.
func row(s Scalar) *Scalar {
	p := &s
	if p.Bits() <= 8 {
		p.decoded = make([]float32, 1<<p.Bits())
		for c := range p.decoded {
			p.decoded[c] = p.decode(uint32(c))
		}
	}
	p.narrow, p.draws = p.makeNarrow(), p.makeDraws()
	all = append(all, p)
	return p
}

// All returns the rows of the table in their order.
func All() []*Scalar { return append([]*Scalar(nil), all...) }

// Lookup finds a format by its name or by another project's name for it:
// "e4m3", "float8_e4m3fn" and "F8_E4M3" are one row. Case is ignored.
func Lookup(name string) (*Scalar, error) {
	want := strings.ToLower(name)
	names := make([]string, len(all))
	for i, s := range all {
		names[i] = s.Name
		if s.Name == want {
			return s, nil
		}
		for _, a := range s.Aliases {
			if a == want {
				return s, nil
			}
		}
	}
	return nil, fmt.Errorf("unknown scalar format %q: use one of %s", name, strings.Join(names, ", "))
}

// String returns the format's name.
func (s *Scalar) String() string { return s.Name }

// Bits returns the width of one code in bits. UE4M3 has 7: as a byte, its top bit is 0.
func (s *Scalar) Bits() int {
	if s.Unsigned {
		return s.Exponent + s.Mantissa
	}
	return 1 + s.Exponent + s.Mantissa
}

// MaxCode returns the code of the largest finite value.
func (s *Scalar) MaxCode() uint32 {
	ones := s.magnitudeMask()
	switch s.Specials {
	case IEEE:
		return ones&^(1<<s.Mantissa-1) - 1
	case FiniteNaN:
		return ones - 1
	}
	return ones
}

// Max returns the largest finite value.
func (s *Scalar) Max() float32 { return s.Decode(s.MaxCode()) }

// MaxExponent returns ⌊log2 Max⌋, the emax of the OCP scale rule.
func (s *Scalar) MaxExponent() int { return math.Ilogb(float64(s.Max())) }

// SmallestNormal returns the least positive value with full precision.
// INT8 has none and returns its step.
func (s *Scalar) SmallestNormal() float32 {
	if s.NoZero || s.Exponent == 0 {
		return s.Smallest()
	}
	return s.Decode(1 << s.Mantissa)
}

// Smallest returns the least positive value.
func (s *Scalar) Smallest() float32 {
	if s.NoZero {
		return s.Decode(0)
	}
	return s.Decode(1)
}

// HasInf reports whether the format has infinities.
func (s *Scalar) HasInf() bool { return s.Specials == IEEE }

// HasNaN reports whether the format has a NaN.
func (s *Scalar) HasNaN() bool { return s.Specials != FiniteOnly }

// magnitudeMask returns the ones of the exponent and mantissa fields.
func (s *Scalar) magnitudeMask() uint32 { return uint32(1)<<(s.Exponent+s.Mantissa) - 1 }

// signBit returns the sign bit, or 0 for an unsigned format.
func (s *Scalar) signBit() uint32 {
	if s.Unsigned {
		return 0
	}
	return 1 << (s.Exponent + s.Mantissa)
}
