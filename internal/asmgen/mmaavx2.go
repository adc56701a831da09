package asmgen

import (
	"encoding/binary"
	"fmt"
)

// An mma2 writes a kernel of package mma for AVX2: 32 columns at a time, twice for a panel.
type mma2 struct {
	*Func
	constants map[int]Sym

	rows, a, ea, b, eb, c, bad Reg
	t, k, bits, halves         Reg
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

// mma2Largest are the registers of the largest exponents, words of 16 columns each. The second is one of
// the sums, which are set later.
var mma2Largest = [2]Vec{Y(8), Y(3)}

// exponents sets the largest exponents of 32 columns, for k products, and moves ea and t on.
func (m *mma2) exponents() {
	for _, v := range mma2Largest {
		m.I("VPCMPEQW", v, v, v)
		m.I("VPSLLW", 15, v, v) // the least word
	}
	m.I("MOVQ", m.eb, m.t)
	loop := m.Label("exponents")
	m.I("VPBROADCASTW", m.ea.At(0), Y(9))
	for h, v := range mma2Largest {
		m.I("VPADDW", m.t.At(32*h), Y(9), Y(10))
		m.I("VPMAXSW", Y(10), v, v)
	}
	m.I("ADDQ", 2, m.ea)
	m.I("ADDQ", 128, m.t)
	m.I("SUBQ", 1, m.k)
	m.Jump("JNZ", loop)
}

// eights prints the loop over the four vectors of eight columns: body with their largest exponents in
// Y9. The exponents pass through the stack at words.
func (m *mma2) eights(words int, body func()) {
	for h, v := range mma2Largest {
		m.I("VMOVDQU", v, SP.At(words+32*h))
	}
	m.I("XORQ", m.k, m.k)
	loop := m.Label("eight")
	m.I("VPMOVSXWD", SP.At(words).By(m.k, 1), Y(9))
	body()
	m.I("ADDQ", 16, m.k)
	m.I("CMPQ", m.k, 64)
	m.Jump("JNE", loop)
}

// lanes returns the eight columns of the loop of eights, of dwords at a distance from base.
func (m *mma2) lanes(base Reg, at int) Mem { return base.At(at).By(m.k, 2) }

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

// mark adds the lanes of mask to the columns for the reference form. It is called for the eight
// vectors of a row in order, so that each byte comes to its place.
func (m *mma2) mark(mask Vec) {
	m.I("VMOVMSKPS", mask, m.t)
	m.I("ORQ", m.t, m.bits)
	m.I("RORQ", 8, m.bits)
}

// products adds k products of 32 columns to the sums, with a and t as the places of both
// operands, and moves these on.
func (m *mma2) products() {
	loop := m.Label("products")
	m.I("VBROADCASTSS", m.a.At(0), Y(8))
	for v, sum := range mma2Sums {
		z := Y(9 + v)
		m.I("VMULPS", m.t.At(32*v), Y(8), z)
		m.I("VMULPS", mma2Scales[v], z, z)
		m.I("VCVTTPS2DQ", z, z)
		m.I("VPADDD", z, sum, sum)
	}
	m.I("ADDQ", 4, m.a)
	m.I("ADDQ", 2*mma2Bytes, m.t)
	m.I("SUBQ", 1, m.k)
	m.Jump("JNZ", loop)
}

// again moves a and ea back by k products, for the second half of the columns.
func (m *mma2) again() {
	m.I("SHLQ", 1, m.k)
	m.I("SUBQ", m.k, m.ea)
	m.I("SHLQ", 1, m.k)
	m.I("SUBQ", m.k, m.a)
}

// wide sets the constants from which the powers of two of sums come, as mmaWide does, and the bits
// of a float64 that FP32 keeps.
func (m *mma2) wide(wide, inverse, kept Vec) {
	for _, constant := range []struct {
		v    Vec
		bits string
	}{{wide, ""}, {inverse, "$0x7fe0000000000000"}, {kept, "$0xffffffffe0000000"}} { // 2046 << 52
		if constant.bits != "" {
			m.I("MOVQ", constant.bits, m.t)
		}
		m.I("VMOVQ", m.t, constant.v.X())
		m.I("VPBROADCASTQ", constant.v.X(), constant.v)
	}
}

// store divides the totals by the powers of two, rounds toward zero and stores four results.
func (m *mma2) store(total, power, inverse, kept Vec, to Mem) {
	m.I("VPSUBQ", power, inverse, power)
	m.I("VMULPD", power, total, total)
	m.I("VPAND", kept, total, total)
	m.I("VCVTPD2PSY", total, total.X())
	m.I("VMOVUPS", total.X(), to)
}

// half prints the loop over the halves of a row, of n products: body for 32 columns each.
func (m *mma2) half(n any, body func()) {
	m.I("XORQ", m.bits, m.bits)
	m.I("MOVQ", 2, m.halves)
	half, done := m.Label("half"), m.NewLabel("done")
	body()
	m.I("ADDQ", mma2Bytes, m.c)
	m.I("SUBQ", 1, m.halves)
	m.Jump("JZ", done)
	m.I("MOVQ", n, m.k)
	m.again()
	m.I("ADDQ", mma2Bytes, m.b)
	m.I("ADDQ", mma2Bytes/2, m.eb)
	m.Jump("JMP", half)
	m.Place(done)
	m.I("SUBQ", mma2Bytes, m.b)
	m.I("SUBQ", mma2Bytes/2, m.eb)
}

// next ends a row: bad columns are stored, and pointers move on.
func (m *mma2) next(row Label) {
	m.I("ORQ", m.bits, m.bad.At(0))
	m.I("ADDQ", 8, m.bad)
	m.I("SUBQ", 1, m.rows)
	m.Jump("JNZ", row)
	m.Return()
}

// MMAAVX2 writes the kernels of package mma for AVX2.
func MMAAVX2() []*File {
	f := NewFile("mma", "mmaavx2")
	constants := mma2Constants(f, mmaNoProductExp, -127, 0xff, 127, 128, 0x7fffffff, mmaMinExpRZ13, 127+13, 254<<23, ^(1<<10 - 1), mmaZeroExp, -mmaMaxExp, mmaMaxExp, mmaMaxProductExp, 0x00010001, mmaMinFloorExp, mmaMaxFloorExp, 127+24)
	mma2RZ13(f, constants)
	mma2RZ23(f, constants)
	mma2Dots(f, constants)
	mma2Chain(f)
	mma2Tree(f)
	mma2Aligned(f, constants)
	return []*File{f}
}

func mma2RZ13(f *File, constants map[int]Sym) {
	fn := f.Func("group13AVX2", "group13AVX2 is group13 for AVX2. n need not be even.",
		"rows, n int, a *float32, ea *int16, b *float32, eb *int16, c *float32, bad *uint64")
	m := &mma2{Func: fn, constants: constants}
	m.rows = fn.Arg("rows")
	n := fn.Arg("n")
	m.a, m.ea, m.b, m.eb, m.c, m.bad = fn.Arg("a"), fn.Arg("ea"), fn.Arg("b"), fn.Arg("eb"), fn.Arg("c"), fn.Arg("bad")
	m.t, m.k, m.bits = fn.GP("scratch"), fn.GP("products left"), fn.GP("columns of the row that need the reference form")
	m.halves = fn.GP("halves of the row left")
	const scales, sums, words = 0, mma2Bytes, 2 * mma2Bytes
	fn.Frame(words + mma2Bytes/2)
	row := fn.Label("row")
	m.half(n, func() {
		fn.I("MOVQ", n, m.k)
		m.exponents()
		m.eights(words, func() {
			e, acc := Y(9), Y(10)
			m.load(mmaNoProductExp, Y(11))
			fn.I("VPCMPGTD", e, Y(11), Y(11)) // all products are zero
			m.load(-127, Y(12))
			fn.I("VPBLENDVB", Y(11), Y(12), e, e)
			fn.I("VMOVUPS", m.lanes(m.c, 0), acc)
			m.field(acc, Y(11), Y(12))
			m.load(128, Y(12))
			fn.I("VPCMPEQD", Y(12), Y(11), Y(13)) // NaN and Inf
			fn.I("VPMAXSD", Y(11), e, e)
			m.load(mmaMinExpRZ13, Y(14))
			fn.I("VPCMPGTD", e, Y(14), Y(15)) // too small
			m.isZero(acc, Y(11), Y(12))
			fn.I("VPANDN", Y(15), Y(11), Y(15))
			fn.I("VPOR", Y(15), Y(13), Y(13))
			m.mark(Y(13))
			fn.I("VPMAXSD", Y(14), e, e)
			m.load(127+13, Y(11))
			fn.I("VPSUBD", e, Y(11), e)
			fn.I("VPSLLD", 23, e, e)
			fn.I("VMOVDQU", e, m.lanes(SP, scales))
			fn.I("VMULPS", e, acc, acc)
			fn.I("VCVTTPS2DQ", acc, acc)
			fn.I("VMOVDQU", acc, m.lanes(SP, sums))
		})
		for v, scale := range mma2Scales {
			fn.I("VMOVDQU", SP.At(scales+32*v), scale)
			fn.I("VMOVDQU", SP.At(sums+32*v), mma2Sums[v])
		}
		fn.I("MOVQ", m.b, m.t)
		fn.I("MOVQ", n, m.k)
		m.products()
		m.load(254<<23, Y(12))
		m.load(^(1<<10 - 1), Y(13))
		for v, scale := range mma2Scales {
			fn.I("VCVTDQ2PS", mma2Sums[v], Y(10))
			fn.I("VPSUBD", scale, Y(12), Y(11)) // 2^(E-13)
			fn.I("VMULPS", Y(11), Y(10), Y(10))
			fn.I("VPAND", Y(13), Y(10), Y(10))
			fn.I("VMOVUPS", Y(10), m.c.At(32*v))
		}
	})
	m.next(row)
}

func mma2RZ23(f *File, constants map[int]Sym) {
	fn := f.Func("group23AVX2", "group23AVX2 is group23 for AVX2.",
		"rows, n, one int, a *float32, ea *int16, sa *int32, b *float32, eb *int16, sb *int32, c *float32, bad *uint64")
	m := &mma2{Func: fn, constants: constants}
	m.rows, m.a, m.ea = fn.Arg("rows"), fn.Arg("a"), fn.Arg("ea")
	sa := fn.Arg("sa")
	m.b, m.eb = fn.Arg("b"), fn.Arg("eb")
	sb := fn.Arg("sb")
	m.c, m.bad = fn.Arg("c"), fn.Arg("bad")
	m.t, m.k, m.bits = fn.GP("scratch"), fn.GP("products left"), fn.GP("columns of the row that need the reference form")
	m.halves = fn.GP("halves of the row left")
	const exps, first, second, words = 0, mma2Bytes, 2 * mma2Bytes, 3 * mma2Bytes // E, both sums, largest exponents
	fn.Frame(words + mma2Bytes/2)
	row := fn.Label("row")
	m.half(fn.FP("n"), func() {
		fn.I("MOVQ", fn.FP("n"), m.k)
		m.exponents()
		m.eights(words, func() {
			e, acc, s, scale := Y(10), Y(11), Y(12), Y(4)
			m.load(mmaNoProductExp, Y(13))
			fn.I("VPCMPGTD", Y(9), Y(13), Y(15)) // all products are zero
			fn.I("VPBROADCASTD", sa.At(0), s)
			fn.I("VPADDD", m.lanes(sb, 0), s, s)
			fn.I("VPADDD", s, Y(9), Y(9))
			m.load(mmaZeroExp, Y(13))
			fn.I("VPBLENDVB", Y(15), Y(13), Y(9), Y(9))
			fn.I("VMOVUPS", m.lanes(m.c, 0), acc)
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
			m.mark(Y(13))
			fn.I("VMOVDQU", e, m.lanes(SP, exps))
			fn.I("VPSUBD", s, e, s)
			m.load(mmaMaxProductExp, Y(13))
			fn.I("VPMINSD", Y(13), s, s)
			m.load(-mmaMaxExp, Y(13))
			fn.I("VPMAXSD", Y(13), s, s)
			fn.I("VPBROADCASTD", fn.FP("one"), Y(13))
			fn.I("VPSUBD", s, Y(13), scale)
			fn.I("VPSLLD", 23, scale, scale)
			fn.I("VMOVDQU", scale, m.lanes(SP, first))
		})
		for v, scale := range mma2Scales {
			fn.I("VMOVDQU", SP.At(first+32*v), scale)
		}
		fn.I("MOVQ", m.b, m.t)
		for _, place := range []int{first, second} {
			for _, sum := range mma2Sums {
				fn.I("VPXOR", sum, sum, sum)
			}
			fn.I("MOVQ", fn.FP("n"), m.k)
			fn.I("SHRQ", 1, m.k)
			m.products()
			for v, sum := range mma2Sums {
				fn.I("VMOVDQU", sum, SP.At(place+32*v))
			}
		}
		fn.I("MOVQ", fn.FP("one"), m.t)
		fn.I("ADDQ", 1023-127, m.t)
		m.wide(Y(12), Y(13), Y(14))
		fn.I("XORQ", m.t, m.t)
		four := fn.Label("four")
		at := func(base Reg, at int) Mem { return base.At(at).By(m.t, 1) }
		fn.I("VPMOVSXDQ", at(SP, exps), Y(9))
		fn.I("VPSUBQ", Y(9), Y(12), Y(9))
		fn.I("VPSLLQ", 52, Y(9), Y(9)) // 2^(F-E)
		fn.I("VCVTPS2PD", at(m.c, 0), Y(10))
		fn.I("VMULPD", Y(9), Y(10), Y(10))
		fn.I("VROUNDPD", 3, Y(10), Y(10)) // toward zero
		for _, place := range []int{first, second} {
			fn.I("VCVTDQ2PD", at(SP, place), Y(11))
			fn.I("VADDPD", Y(11), Y(10), Y(10))
		}
		m.store(Y(10), Y(9), Y(13), Y(14), at(m.c, 0))
		fn.I("ADDQ", 16, m.t)
		fn.I("CMPQ", m.t, mma2Bytes)
		fn.Jump("JNE", four)
		fn.I("ADDQ", mma2Bytes, sb)
	})
	fn.I("SUBQ", 2*mma2Bytes, sb)
	fn.I("ADDQ", 4, sa)
	m.next(row)
}

// mma2Dots writes the kernel of FP4 units with block scales, eight columns at a time.
func mma2Dots(f *File, constants map[int]Sym) {
	fn := f.Func("groupDotsAVX2", "groupDotsAVX2 is groupDots for AVX2.", "rows int, x *dotsArgs")
	m := &mma2{Func: fn, constants: constants}
	m.rows = fn.Arg("rows")
	p := mmaDotsPointers(fn)
	m.t = fn.GP("scratch")
	col := fn.GP("columns before these eight")
	dot := []Vec{Y(0), Y(1), Y(2), Y(3)}
	fn.Note("Y0-Y3", "dot products times 4")
	e, zeros, y, z := Y(4), Y(5), Y(6), Y(7)
	wide, inverse, kept := Y(8), Y(9), Y(10)
	power, quarter, total, term, factor := Y(11), Y(12), Y(13), Y(14), Y(15)
	lanes := func(name string, at int) Mem { return p[name].At(at).By(col, 4) }
	fn.I("MOVQ", 1023+35, m.t)
	m.wide(wide, inverse, kept)
	row := fn.Label("row")
	fn.I("XORQ", col, col)
	eight := fn.Label("columns")
	fn.I("VMOVUPS", lanes("c", 0), z)
	m.field(z, e, y)
	m.isZero(z, term, y)
	fn.I("VPCMPEQD", zeros, zeros, zeros) // columns without a nonzero product
	for s, sum := range dot {
		fn.I("VPXOR", sum, sum, sum)
		for word := range 4 {
			fn.I("VPBROADCASTD", p["a"].At(16*s+4*word), y)
			fn.I("VPMADDUBSW", lanes("b", 256*(4*s+word)), y, y)
			fn.I("VPADDW", y, sum, sum)
		}
		m.load(0x00010001, y)
		fn.I("VPMADDWD", y, sum, sum)
		fn.I("VPSUBD", lanes("sums", 256*s), sum, sum)
		fn.I("VPBROADCASTD", p["masksA"].At(4*s), y)
		fn.I("VPAND", lanes("masksB", 256*s), y, y)
		fn.I("VPXOR", z, z, z)
		fn.I("VPCMPEQD", z, y, y) // zero dot products
		fn.I("VPAND", y, zeros, zeros)
		fn.I("VPBROADCASTD", p["expsA"].At(4*s), z)
		fn.I("VPADDD", lanes("expsB", 256*s), z, z)
		m.load(mmaZeroExp, power)
		fn.I("VPBLENDVB", y, power, z, z)
		fn.I("VPMAXSD", z, e, e)
	}
	fn.I("VPAND", term, zeros, zeros)
	fn.I("VPANDN", e, zeros, e) // zero results: E is 0
	m.load(-mmaMaxExp, y)
	fn.I("VPCMPGTD", e, y, y)
	m.load(mmaMaxExp, z)
	fn.I("VPCMPGTD", z, e, z)
	fn.I("VPOR", z, y, y)
	fn.I("VMOVMSKPS", y, m.t)
	fn.I("ORQ", m.t, p["bad"].At(0)) // eight times: each byte comes to its place
	fn.I("RORQ", 8, p["bad"].At(0))
	const exps = 4 * 32 // after the dot products
	fn.Frame(exps + 32)
	for s, sum := range dot {
		fn.I("VMOVDQU", sum, SP.At(32*s))
	}
	fn.I("VMOVDQU", e, SP.At(exps))
	four := fn.Label("four")
	fn.I("MOVQ", fmt.Sprintf("$0x%016x", uint64(2)<<52), m.t)
	fn.I("VMOVQ", m.t, quarter.X())
	fn.I("VPBROADCASTQ", quarter.X(), quarter)
	fn.I("MOVQ", col, m.t)
	fn.I("ANDQ", 4, m.t)
	fn.I("VPMOVSXDQ", SP.At(exps).By(m.t, 4), power)
	fn.I("VPSUBQ", power, wide, power)
	fn.I("VPSLLQ", 52, power, power) // 2^(35-E)
	fn.I("VCVTPS2PD", lanes("c", 0), total)
	fn.I("VMULPD", power, total, total)
	fn.I("VROUNDPD", 3, total, total) // toward zero
	fn.I("VPXOR", z, z, z)
	fn.I("VADDPD", z, total, total)         // not -0, as in groupDots
	fn.I("VPSUBQ", quarter, power, quarter) // 2^(33-E)
	for s := range dot {
		fn.I("VCVTDQ2PD", SP.At(32*s).By(m.t, 4), term)
		fn.I("VMULPD", p["scalesB"].At(512*s).By(col, 8), term, term)
		fn.I("VBROADCASTSD", p["scalesA"].At(8*s), factor)
		fn.I("VMULPD", factor, term, term)
		fn.I("VMULPD", quarter, term, term)
		fn.I("VROUNDPD", 3, term, term)
		fn.I("VADDPD", term, total, total)
	}
	m.store(total, power, inverse, kept, lanes("c", 0))
	fn.I("ADDQ", 4, col)
	fn.I("TESTQ", 4, col)
	fn.Jump("JNZ", four)
	fn.I("CMPQ", col, 64)
	fn.Jump("JNE", eight)
	mmaDotsNextRow(fn, p)
	fn.I("SUBQ", 1, m.rows)
	fn.Jump("JNZ", row)
	fn.Return()
}
