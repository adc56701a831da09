package asm

// quantScales writes the kernels that compute scales, and the factors that elements are
// multiplied by, from amaxes: 16 at a time.
func quantScales() *File {
	f := NewFile("quant", "scales")
	exponentScales(f)
	globalScales(f)
	byteScales(f)
	return f
}

const scalesParams = "factors *float32, scales *byte, amaxes *uint32, n int, c *"

// A scaleLoop is what they have in common.
type scaleLoop struct {
	*Func
	c                       constants
	factors, scales, amaxes Reg
	n, scratch              Reg
	loop                    Label
}

// amax of a group of 16 is in Z0, flags of those that are not served in K7.
func newScaleLoop(f *File, name, doc, kind string, names []string) *scaleLoop {
	l := &scaleLoop{Func: f.Func(name, name+doc+`, i < 16·n, n > 0. It
returns the bits of the largest amax; all ones where one needs the reference
implementation.`, scalesParams+kind+") (amax uint64")}
	l.factors, l.scales, l.amaxes, l.n = l.Arg("factors"), l.Arg("scales"), l.Arg("amaxes"), l.Arg("n")
	l.c, l.scratch = constants{l.Arg("c"), names}, l.GP("constants")
	l.I("KXORW", kFlags, kFlags, kFlags)
	l.I("VPXORD", zAmax, zAmax, zAmax)
	broadcast(l.Func, 0xff800000, l.scratch, zBinade)
	l.loop = l.Label("loop")
	l.I("VMOVUPS", l.amaxes.At(0), Z(0))
	l.I("VPMAXUD", Z(0), zAmax, zAmax)
	return l
}

// end ends a loop whose scales have the given number of bytes.
func (l *scaleLoop) end(scaleBytes int) {
	l.I("ADDQ", 64, l.factors)
	l.I("ADDQ", 16*scaleBytes, l.scales)
	l.I("ADDQ", 64, l.amaxes)
	l.I("SUBQ", 1, l.n)
	l.Jump("JNZ", l.loop)
	l.amaxOrFlags(l.scratch, l.n)
}

func exponentScales(f *File) {
	l := newScaleLoop(f, "exponentScales", ` sets scales[i] to the E8M0 code of a block of amaxes[i], by the rule that
is in the constants, and factors[i] to the inverse of its scale`, "exponentConstants", exponentNames)
	var s sequence
	code := exponentCodes(&s, l.c, l.scales.At(0))
	l.Emit(s)
	l.I("VPMAXSD.BCST", l.c.At("floor"), code, code) // of blocks of zeros
	l.I("VPBROADCASTD", l.c.At("factor"), Z(1))
	l.I("VPSUBD", code, Z(1), Z(1))
	l.I("VPSLLD", 23, Z(1), Z(1))
	l.I("VMOVDQU64", Z(1), l.factors.At(0))
	l.end(1)
}

// exponentCodes stores the E8M0 codes of the amaxes in Z0, flags those outside the
// range, and returns the register of the codes, which is Z0. It uses Z1. The code of a scale
// is the exponent of amax·ratio, raised by what the rule adds to the significand.
func exponentCodes(s *sequence, c constants, scales Mem) Vec {
	amax, code, t := Z(0), Z(0), Z(1)
	s.I("VPSUBD.BCST", c.At("low"), amax, t)
	s.I("VPTESTMD", amax, amax, K(1))
	s.I("VPCMPUD.BCST", 6, c.At("span"), t, K(1), K(1))
	s.I("KORW", K(1), kFlags, kFlags)
	s.I("VMULPS.BCST", c.At("ratio"), amax, amax)
	s.I("VPADDD.BCST", c.At("up"), amax, amax)
	s.I("VPSRLD", 23, amax, code)
	s.I("VPSUBD.BCST", c.At("down"), code, code)
	s.I("VPXORD", t, t, t)
	s.I("VPMAXSD", t, code, code)
	s.I("VPMOVDB", code, scales)
	return code
}

func globalScales(f *File) {
	l := newScaleLoop(f, "globalScales", ` sets scales[i] to the E4M3 code of a block of amaxes[i] under the global
scale, and factors[i] to the inverse of the product of both scales`, "globalConstants", globalNames)
	var s sequence
	globalFactors(&s, l.c, l.scales.At(0), l.factors.At(0))
	l.Emit(s)
	l.end(1)
}

// globalCodes stores the E4M3 codes of the amaxes in Z0, scale = e4m3(amax·encode), and returns
// the register of the scales, which is Z1. It uses Z2 and zBinade.
func globalCodes(s *sequence, c constants, scales Mem) Vec {
	amax, t, u := Z(0), Z(1), Z(2)
	s.I("VPCMPUD.BCST", 5, c.At("infinity"), amax, K(1))
	s.I("KORW", K(1), kFlags, kFlags)
	s.I("VMULPS.BCST", c.At("encode"), amax, amax)
	s.I("VMINPS.BCST", c.At("scaleLimit"), amax, amax)
	s.I("VPANDD", amax, zBinade, t)
	s.I("VPMAXUD.BCST", c.At("scaleLeast"), t, t)
	s.I("VPBROADCASTD", c.At("scaleAnchor"), u)
	s.I("VFMADD213PS", amax, u, t)
	s.I("VPSRLD", 20, t, u)
	s.I("VPADDD", u, t, t)
	s.I("VPMOVDB", t, scales)
	s.I("VPSLLD", 24, t, t)
	s.I("VPSRLD", 4, t, t)
	s.I("VMULPS.BCST", c.At("rebias"), t, t)
	return t
}

// globalFactors stores the E4M3 codes of the amaxes in Z0, and the factors 1/(scale·decode) of
// their elements, kept finite. It uses Z1 and Z2, and zBinade.
func globalFactors(s *sequence, c constants, scales, factors Mem) {
	t, u := globalCodes(s, c, scales), Z(2)
	s.I("VMULPS.BCST", c.At("decode"), t, t)
	s.I("VPBROADCASTD", c.At("one"), u)
	s.I("VDIVPS", t, u, t)
	s.I("VMINPS.BCST", c.At("most"), t, t)
	s.I("VMOVDQU64", t, factors)
}

func byteScales(f *File) {
	l := newScaleLoop(f, "byteScales", ` sets factors[i] to max/amaxes[i], kept finite and 1 for a block of zeros,
and scales[i], a float32, to its inverse`, "bytesConstants", bytesNames)
	l.I("VPCMPUD.BCST", 5, l.c.At("infinity"), Z(0), K(1))
	l.I("KORW", K(1), kFlags, kFlags)
	b := byteCodes{Func: l.Func, c: l.c}
	b.factors(Z(0), Z(1), Z(2))
	l.I("VMOVUPS", Z(1), l.factors.At(0))
	l.I("VDIVPS", Z(1), Z(2), Z(2))
	l.I("VMOVUPS", Z(2), l.scales.At(0))
	l.end(4)
}
