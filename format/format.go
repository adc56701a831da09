// Package format defines the scalar number formats of low-precision computing as rows of one
// table, with one codec for all of them.
//
// A scalar format defines the value of a single code: E4M3, E2M1, E8M0. Package quant defines
// blocks of codes with a shared scale: MXFP4, NVFP4.
//
// A code consists of the sign, the exponent field E and the mantissa field M, from the top bit
// down:
//
//	 E4M3            E2M1      E8M0
//	 s eeee mmm      s ee m    eeeeeeee
//
//	E > 0:  value = (-1)^s · 2^(E-bias) · (1 + M/2^mantissa)      normal
//	E = 0:  value = (-1)^s · 2^(1-bias) · (M/2^mantissa)          subnormal
//
// E8M0 has no subnormals: E = 0 is 2^-127. INT8, the element of MXINT8, has no exponent. Its
// codes are two's complement integers times 2^-6: the formula for subnormals with bias 0 and 7
// mantissa bits. S4 and S8 are integers without that factor, of which the encoder uses the most negative
// code, too. Every limit (Max, SmallestNormal, …) is computed from the row.
//
// Sources: OCP 8-bit Floating Point Specification 1.0 (E4M3, E5M2); OCP Microscaling Formats
// 1.0 §5.3 (E3M2, E2M3, E2M1, INT8, E8M0); PTX ISA `cvt` (UE4M3 and conversions); Quark and
// AutoRound, which agree on UE5M3 (quark/torch/kernel/float8_e5m3, auto_round/data_type/nvfp.py); XLA's float8
// variants (the FNUZ formats); PTX ISA `mma` for the integers S4 and S8.
package format

import (
	"math"
	"strings"

	"github.com/microscale-go/microscale/internal/naming"
)

// specials says which codes of a format are not finite numbers.
type specials uint8

const (
	ieee            specials = iota // top exponent: M = 0 is Inf, other codes are NaN
	finiteNaN                       // no Inf; the code with all magnitude bits set is NaN
	finiteOnly                      // no Inf, no NaN
	negativeZeroNaN                 // no Inf, no -0: the code of -0 is the only NaN
)

// A Scalar is a scalar format. The rows of the table are the only values: the variables below
// and those that only [Lookup] and [All] return. Compare them by pointer, and do not modify
// them.
type Scalar struct {
	Name     string   // the name in this module, in lower case
	Aliases  []string // other projects' names, in lower case
	Exponent int      // exponent bits; 0 for integers
	Mantissa int      // stored mantissa bits
	Bias     int      // exponent bias
	Unsigned bool     // no sign bit: the encoder ignores the sign
	NoZero   bool     // E = 0 is a normal power of two (E8M0)
	Integer  bool     // two's complement instead of sign and magnitude

	fullRange bool // the encoder uses the most negative code of integers, one step below -Max
	specials  specials
	decoded   []float32  // value of each code, for formats of at most 8 bits
	narrow    *narrow    // constants of EncodeSlice, for the same formats
	draws     *[256]draw // constants of EncodeSliceStochastic
}

// The table of scalar formats. The bits of a format's name are exponent and mantissa bits; "fn"
// in other projects' names means no infinities, "fnuz" also no negative zero, "u" unsigned.
var (
	E4M3 = row(Scalar{Name: "e4m3", Aliases: []string{"e4m3fn", "float8_e4m3fn", "f8_e4m3", "fp8_e4m3", "f8e4m3fn", "torch.float8_e4m3fn"},
		Exponent: 4, Mantissa: 3, Bias: 7, specials: finiteNaN})
	E5M2 = row(Scalar{Name: "e5m2", Aliases: []string{"float8_e5m2", "f8_e5m2", "fp8_e5m2", "f8e5m2", "torch.float8_e5m2"}, Exponent: 5,
		Mantissa: 2, Bias: 15, specials: ieee})
	E3M2 = row(Scalar{Name: "e3m2", Aliases: []string{"e3m2fn", "float6_e3m2fn", "f6_e3m2", "fp6_e3m2"}, Exponent: 3, Mantissa: 2, Bias: 3,
		specials: finiteOnly})
	E2M3 = row(Scalar{Name: "e2m3", Aliases: []string{"e2m3fn", "float6_e2m3fn", "f6_e2m3", "fp6_e2m3"}, Exponent: 2, Mantissa: 3, Bias: 1,
		specials: finiteOnly})
	E2M1 = row(Scalar{Name: "e2m1", Aliases: []string{"e2m1fn", "float4_e2m1fn", "float4_e2m1fn_x2", "f4", "f4_e2m1", "fp4", "fp4_e2m1",
		"torch.float4_e2m1fn_x2"}, Exponent: 2, Mantissa: 1, Bias: 1, specials: finiteOnly})
	INT8 = row(Scalar{Name: "int8", Aliases: []string{"i8", "mx_int8"}, Exponent: 0, Mantissa: 7, Bias: 0, specials: finiteOnly,
		Integer: true})
	S4 = row(Scalar{Name: "s4", Aliases: []string{"int4", "i4", "torch.int4"}, Exponent: 0, Mantissa: 3, Bias: -2, specials: finiteOnly,
		Integer: true, fullRange: true})
	S8 = row(Scalar{Name: "s8", Aliases: []string{"torch.int8"}, Exponent: 0, Mantissa: 7, Bias: -6, specials: finiteOnly, Integer: true,
		fullRange: true})
	E8M0 = row(Scalar{Name: "e8m0", Aliases: []string{"ue8m0", "e8m0fnu", "float8_e8m0fnu", "f8_e8m0", "torch.float8_e8m0fnu"}, Exponent: 8,
		Mantissa: 0, Bias: 127, specials: finiteNaN, Unsigned: true, NoZero: true})
	UE4M3 = row(Scalar{Name: "ue4m3", Exponent: 4, Mantissa: 3, Bias: 7, specials: finiteNaN, Unsigned: true})
	UE5M3 = row(Scalar{Name: "ue5m3", Aliases: []string{"e5m3", "fp8_e5m3"}, Exponent: 5, Mantissa: 3, Bias: 15, specials: finiteNaN,
		Unsigned: true})

	E4M3FNUZ = row(Scalar{Name: "e4m3fnuz", Aliases: []string{"float8_e4m3fnuz", "f8_e4m3fnuz", "torch.float8_e4m3fnuz"}, Exponent: 4,
		Mantissa: 3, Bias: 8, specials: negativeZeroNaN})
	E5M2FNUZ = row(Scalar{Name: "e5m2fnuz", Aliases: []string{"float8_e5m2fnuz", "f8_e5m2fnuz", "torch.float8_e5m2fnuz"}, Exponent: 5,
		Mantissa: 2, Bias: 16, specials: negativeZeroNaN})
	_ = row(Scalar{Name: "e4m3b11fnuz", Aliases: []string{"float8_e4m3b11fnuz"}, Exponent: 4, Mantissa: 3, Bias: 11,
		specials: negativeZeroNaN})
	_ = row(Scalar{Name: "e4m3ieee", Aliases: []string{"float8_e4m3"}, Exponent: 4, Mantissa: 3, Bias: 7, specials: ieee})
	_ = row(Scalar{Name: "e3m4", Aliases: []string{"float8_e3m4"}, Exponent: 3, Mantissa: 4, Bias: 3, specials: ieee})

	BF16 = row(Scalar{Name: "bf16", Aliases: []string{"bfloat16", "torch.bfloat16"}, Exponent: 8, Mantissa: 7, Bias: 127, specials: ieee})
	FP16 = row(Scalar{Name: "fp16", Aliases: []string{"f16", "float16", "half", "torch.float16"}, Exponent: 5, Mantissa: 10, Bias: 15,
		specials: ieee})
	F32 = row(Scalar{Name: "f32", Aliases: []string{"fp32", "float32", "float", "torch.float32"}, Exponent: 8, Mantissa: 23, Bias: 127,
		specials: ieee})
)

var all []*Scalar

// row adds s to the table and computes its lookup tables.
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

// All returns all formats, in the order of the table.
func All() []*Scalar { return append([]*Scalar(nil), all...) }

// Lookup returns the format with the given name or alias, ignoring case: "e4m3",
// "float8_e4m3fn" and "F8_E4M3" name the same format. Besides the variables of this package, it
// has ml_dtypes' e4m3b11fnuz, e4m3ieee (its float8_e4m3) and e3m4. For an unknown name, the
// error lists similar names, or all.
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
	return nil, naming.Unknown("scalar format", name, names)
}

// String returns the format's name.
func (s *Scalar) String() string { return s.Name }

// Bits returns the width of a code in bits. UE4M3 has 7: the top bit of its byte is 0.
func (s *Scalar) Bits() int {
	if s.Unsigned {
		return s.Exponent + s.Mantissa
	}
	return 1 + s.Exponent + s.Mantissa
}

// MaxCode returns the code of the largest finite value.
func (s *Scalar) MaxCode() uint32 {
	ones := s.magnitudeMask()
	switch s.specials {
	case ieee:
		return ones&^(1<<s.Mantissa-1) - 1
	case finiteNaN:
		return ones - 1
	}
	return ones
}

// Max returns the largest finite value.
func (s *Scalar) Max() float32 { return s.Decode(s.MaxCode()) }

// HalfRange returns half of what is between the most negative value that numbers become and Max: Max, or half a step more
// for integers whose encoder uses the most negative code.
func (s *Scalar) HalfRange() float32 {
	if s.fullRange {
		return s.Max() + s.Smallest()/2
	}
	return s.Max()
}

// MaxExponent returns ⌊log2 Max⌋, the emax of the OCP scale rule.
func (s *Scalar) MaxExponent() int { return math.Ilogb(float64(s.Max())) }

// SmallestNormal returns the smallest positive value with all mantissa bits. For INT8, which has
// none, it returns the step.
func (s *Scalar) SmallestNormal() float32 {
	if s.NoZero || s.Exponent == 0 {
		return s.Smallest()
	}
	return s.Decode(1 << s.Mantissa)
}

// Smallest returns the smallest positive value.
func (s *Scalar) Smallest() float32 {
	if s.NoZero {
		return s.Decode(0)
	}
	return s.Decode(1)
}

// HasInf reports whether the format has infinities.
func (s *Scalar) HasInf() bool { return s.specials == ieee }

// HasNaN reports whether the format has a NaN.
func (s *Scalar) HasNaN() bool { return s.specials != finiteOnly }

// HasNegativeZero reports whether the format has a code of -0. Unsigned formats, integers and
// the FNUZ formats, whose code of -0 is NaN, have none.
func (s *Scalar) HasNegativeZero() bool {
	return !s.Unsigned && !s.Integer && s.specials != negativeZeroNaN
}

// magnitudeMask returns the bits of the exponent and mantissa fields.
func (s *Scalar) magnitudeMask() uint32 { return uint32(1)<<(s.Exponent+s.Mantissa) - 1 }

// signBit returns the sign bit, or 0 for an unsigned format.
func (s *Scalar) signBit() uint32 {
	if s.Unsigned {
		return 0
	}
	return 1 << (s.Exponent + s.Mantissa)
}
