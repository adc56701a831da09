package asmgen

import "encoding/binary"

// An mma2 writes a kernel of package mma for AVX2: 32 columns at a time, twice for a panel.
type mma2 struct {
	*Func
	constants map[int]Sym

	rows, a, ea, b, eb, c, bad Reg
	t, k, bits                 Reg
}

// The registers of both kernels.
var (
	mma2Sums   = []Vec{Y(0), Y(1), Y(2), Y(3)}
	mma2Scales = []Vec{Y(4), Y(5), Y(6), Y(7)}
)

const mma2Bytes = 32 * 4 // of 32 columns of float32

// mma2Constants writes the table of the integers that the kernels compare and combine with.
func mma2Constants(f *File, values ...int) map[int]Sym {
	var data []byte
	places := map[int]Sym{}
	for i, v := range values {
		data = binary.LittleEndian.AppendUint32(data, uint32(int32(v)))
		places[v] = Sym{"mma2", 4 * i}
	}
	for len(data)%8 != 0 {
		data = append(data, 0)
	}
	f.shared("mma2", data)
	return places
}

// load sets v to a constant.
func (m *mma2) load(value int, v Vec) { m.I("VPBROADCASTD", m.constants[value], v) }

// exponents sets Y8 to the largest exponents of 32 columns, and moves ea and t on.
func (m *mma2) exponents(n any, half int) {
	m.I("VPCMPEQB", Y(8), Y(8), Y(8))
	m.I("VPSLLW", 15, Y(8), Y(8)) // 0x8000
	m.I("VPACKSSWB", Y(8), Y(8), Y(8))
	m.I("MOVQ", m.eb, m.t)
	m.I("MOVQ", n, m.k)
	loop := m.Label("exponents")
	m.I("VPBROADCASTB", m.ea.At(0), Y(9))
	m.I("VPADDSB", m.t.At(32*half), Y(9), Y(9))
	m.I("VPMAXSB", Y(9), Y(8), Y(8))
	m.I("ADDQ", 1, m.ea)
	m.I("ADDQ", 64, m.t)
	m.I("SUBQ", 1, m.k)
	m.Jump("JNZ", loop)
}

// widen sets Y9 to the largest exponents of the eight columns of vector v.
func (m *mma2) widen(v int) {
	switch v {
	case 0:
		m.I("VPMOVSXBD", X(8), Y(9))
		return
	case 2:
		m.I("VEXTRACTI128", 1, Y(8), X(9))
		m.I("VPMOVSXBD", X(9), Y(9))
		return
	case 3:
		m.I("VEXTRACTI128", 1, Y(8), X(9))
		m.I("VPSRLDQ", 8, X(9), X(9))
	default:
		m.I("VPSRLDQ", 8, X(8), X(9))
	}
	m.I("VPMOVSXBD", X(9), Y(9))
}

// field sets e to the exponents of the accumulators acc.
func (m *mma2) field(acc, e, x Vec) {
	m.I("VPSRLD", 23, acc, e)
	m.load(0xff, x)
	m.I("VPAND", x, e, e)
	m.load(127, x)
	m.I("VPSUBD", x, e, e)
}

// isZero sets z to the lanes of acc that are zero.
func (m *mma2) isZero(acc, z, x Vec) {
	m.load(0x7fffffff, x)
	m.I("VPAND", x, acc, z)
	m.I("VPXOR", x, x, x)
	m.I("VPCMPEQD", x, z, z)
}

// mark adds the lanes of mask to the bits of columns for the reference form.
func (m *mma2) mark(mask Vec, v, half int) {
	m.I("VMOVMSKPS", mask, m.t)
	if shift := 8*v + 32*half; shift > 0 {
		m.I("SHLQ", shift, m.t)
	}
	m.I("ORQ", m.t, m.bits)
}

// products adds n products of 32 columns to the sums, with a and t as the places of both
// operands, and moves these on.
func (m *mma2) products(n any, half int) {
	m.I("MOVQ", n, m.k)
	loop := m.Label("products")
	m.I("VBROADCASTSS", m.a.At(0), Y(8))
	for v, sum := range mma2Sums {
		z := Y(9 + v)
		m.I("VMULPS", m.t.At(mma2Bytes*half+32*v), Y(8), z)
		m.I("VMULPS", mma2Scales[v], z, z)
		m.I("VCVTTPS2DQ", z, z)
		m.I("VPADDD", z, sum, sum)
	}
	m.I("ADDQ", 4, m.a)
	m.I("ADDQ", 2*mma2Bytes, m.t)
	m.I("SUBQ", 1, m.k)
	m.Jump("JNZ", loop)
}

// next ends a row: bad columns are stored, and pointers move on.
func (m *mma2) next(row Label) {
	m.I("ORQ", m.bits, m.bad.At(0))
	m.I("ADDQ", 8, m.bad)
	m.I("ADDQ", 2*mma2Bytes, m.c)
	m.I("SUBQ", 1, m.rows)
	m.Jump("JNZ", row)
	m.Return()
}

// MMAAVX2 writes the kernels of package mma for FP8 and FP6 operands with AVX2.
func MMAAVX2() []*File {
	f := NewFile("mma", "mmaavx2")
	constants := mma2Constants(f, mmaLeastExp, -127, 0xff, 127, 128, 0x7fffffff, -100, 127+13, 254<<23, ^(1<<10 - 1), -10000, -mmaMaxExp, mmaMaxExp, 90, 127+25)
	mma2RZ13(f, constants)
	mma2RZ23(f, constants)
	return []*File{f}
}

func mma2RZ13(f *File, constants map[int]Sym) {
	fn := f.Func("group13AVX2", "group13AVX2 is group13 for AVX2. n need not be even.",
		"rows, n int, a *float32, ea *int8, b *float32, eb *int8, c *float32, bad *uint64")
	m := &mma2{Func: fn, constants: constants}
	m.rows = fn.Arg("rows")
	n := fn.Arg("n")
	m.a, m.ea, m.b, m.eb, m.c, m.bad = fn.Arg("a"), fn.Arg("ea"), fn.Arg("b"), fn.Arg("eb"), fn.Arg("c"), fn.Arg("bad")
	m.t, m.k, m.bits = fn.GP("scratch"), fn.GP("products left"), fn.GP("columns of the row that need the reference form")
	row := fn.Label("row")
	fn.I("XORQ", m.bits, m.bits)
	for half := range 2 {
		m.exponents(n, half)
		for v, scale := range mma2Scales {
			e, acc := Y(9), Y(10)
			m.widen(v)
			m.load(mmaLeastExp, Y(11))
			fn.I("VPCMPGTD", e, Y(11), Y(11)) // all products are zero
			m.load(-127, Y(12))
			fn.I("VPBLENDVB", Y(11), Y(12), e, e)
			fn.I("VMOVUPS", m.c.At(mma2Bytes*half+32*v), acc)
			m.field(acc, Y(11), Y(12))
			m.load(128, Y(12))
			fn.I("VPCMPEQD", Y(12), Y(11), Y(13)) // NaN and Inf
			fn.I("VPMAXSD", Y(11), e, e)
			m.load(-100, Y(14))
			fn.I("VPCMPGTD", e, Y(14), Y(15)) // too small
			m.isZero(acc, Y(11), Y(12))
			fn.I("VPANDN", Y(15), Y(11), Y(15))
			fn.I("VPOR", Y(15), Y(13), Y(13))
			m.mark(Y(13), v, half)
			fn.I("VPMAXSD", Y(14), e, e)
			m.load(127+13, Y(11))
			fn.I("VPSUBD", e, Y(11), scale)
			fn.I("VPSLLD", 23, scale, scale)
			fn.I("VMULPS", scale, acc, acc)
			fn.I("VCVTTPS2DQ", acc, mma2Sums[v])
		}
		fn.I("MOVQ", m.b, m.t)
		m.products(n, half)
		if half == 0 { // the second half reads the row again
			fn.I("SUBQ", n, m.ea)
			fn.I("MOVQ", n, m.k)
			fn.I("SHLQ", 2, m.k)
			fn.I("SUBQ", m.k, m.a)
		}
		m.load(254<<23, Y(12))
		m.load(^(1<<10 - 1), Y(13))
		for v, scale := range mma2Scales {
			fn.I("VCVTDQ2PS", mma2Sums[v], Y(10))
			fn.I("VPSUBD", scale, Y(12), Y(11)) // 2^(E-13)
			fn.I("VMULPS", Y(11), Y(10), Y(10))
			fn.I("VPAND", Y(13), Y(10), Y(10))
			fn.I("VMOVUPS", Y(10), m.c.At(mma2Bytes*half+32*v))
		}
	}
	m.next(row)
}

func mma2RZ23(f *File, constants map[int]Sym) {
	fn := f.Func("group23AVX2", "group23AVX2 is group23 for AVX2.",
		"rows int, a *float32, ea *int8, sa *int32, b *float32, eb *int8, sb *int32, c *float32, bad *uint64")
	m := &mma2{Func: fn, constants: constants}
	m.rows, m.a, m.ea = fn.Arg("rows"), fn.Arg("a"), fn.Arg("ea")
	sa := fn.Arg("sa")
	m.b, m.eb = fn.Arg("b"), fn.Arg("eb")
	sb := fn.Arg("sb")
	m.c, m.bad = fn.Arg("c"), fn.Arg("bad")
	m.t, m.k, m.bits = fn.GP("scratch"), fn.GP("products left"), fn.GP("columns of the row that need the reference form")
	fn.Frame(3 * mma2Bytes) // E, and both sums
	exps, first, second := 0, mma2Bytes, 2*mma2Bytes
	row := fn.Label("row")
	fn.I("XORQ", m.bits, m.bits)
	for half := range 2 {
		m.exponents(32, half)
		for v, scale := range mma2Scales {
			e, acc, s := Y(10), Y(11), Y(12)
			m.widen(v)
			m.load(mmaLeastExp, Y(13))
			fn.I("VPCMPGTD", Y(9), Y(13), Y(15)) // all products are zero
			fn.I("VPBROADCASTD", sa.At(0), s)
			fn.I("VPADDD", sb.At(mma2Bytes*half+32*v), s, s)
			fn.I("VPADDD", s, Y(9), Y(9))
			m.load(-10000, Y(13))
			fn.I("VPBLENDVB", Y(15), Y(13), Y(9), Y(9))
			fn.I("VMOVUPS", m.c.At(mma2Bytes*half+32*v), acc)
			m.field(acc, e, Y(13))
			fn.I("VPMAXSD", Y(9), e, e)
			m.isZero(acc, Y(13), Y(14))
			fn.I("VPAND", Y(15), Y(13), Y(13))
			fn.I("VPANDN", e, Y(13), e) // zero results: E is 0
			m.load(-mmaMaxExp, Y(13))
			fn.I("VPCMPGTD", e, Y(13), Y(13))
			m.load(mmaMaxExp, Y(14))
			fn.I("VPCMPGTD", Y(14), e, Y(14))
			fn.I("VPOR", Y(14), Y(13), Y(13))
			m.mark(Y(13), v, half)
			fn.I("VMOVDQU", e, SP.At(exps+32*v))
			fn.I("VPSUBD", s, e, s)
			m.load(90, Y(13))
			fn.I("VPMINSD", Y(13), s, s)
			m.load(mmaLeastExp, Y(13))
			fn.I("VPMAXSD", Y(13), s, s)
			m.load(127+25, Y(13))
			fn.I("VPSUBD", s, Y(13), scale)
			fn.I("VPSLLD", 23, scale, scale)
		}
		fn.I("MOVQ", m.b, m.t)
		for _, place := range []int{first, second} {
			for _, sum := range mma2Sums {
				fn.I("VPXOR", sum, sum, sum)
			}
			m.products(16, half)
			for v, sum := range mma2Sums {
				fn.I("VMOVDQU", sum, SP.At(place+32*v))
			}
		}
		if half == 0 { // the second half reads the row again
			fn.I("SUBQ", 32, m.ea)
			fn.I("SUBQ", 32*4, m.a)
		}
		fn.I("MOVQ", 1023+25, m.t)
		fn.I("VMOVQ", m.t, X(12))
		fn.I("VPBROADCASTQ", X(12), Y(12))
		fn.I("MOVQ", "$0x7fe0000000000000", m.t) // 2046 << 52
		fn.I("VMOVQ", m.t, X(13))
		fn.I("VPBROADCASTQ", X(13), Y(13))
		fn.I("MOVQ", "$0xffffffffe0000000", m.t) // the bits that FP32 keeps
		fn.I("VMOVQ", m.t, X(14))
		fn.I("VPBROADCASTQ", X(14), Y(14))
		for part := range 8 {
			at := 16 * part
			fn.I("VPMOVSXDQ", SP.At(exps+at), Y(9))
			fn.I("VPSUBQ", Y(9), Y(12), Y(9))
			fn.I("VPSLLQ", 52, Y(9), Y(9)) // 2^(25-E)
			fn.I("VCVTPS2PD", m.c.At(mma2Bytes*half+at), Y(10))
			fn.I("VMULPD", Y(9), Y(10), Y(10))
			fn.I("VROUNDPD", 3, Y(10), Y(10)) // toward zero
			for _, place := range []int{first, second} {
				fn.I("VCVTDQ2PD", SP.At(place+at), Y(11))
				fn.I("VADDPD", Y(11), Y(10), Y(10))
			}
			fn.I("VPSUBQ", Y(9), Y(13), Y(9))
			fn.I("VMULPD", Y(9), Y(10), Y(10))
			fn.I("VPAND", Y(14), Y(10), Y(10))
			fn.I("VCVTPD2PSY", Y(10), X(10))
			fn.I("VMOVUPS", X(10), m.c.At(mma2Bytes*half+at))
		}
	}
	fn.I("ADDQ", 4, sa)
	m.next(row)
}
