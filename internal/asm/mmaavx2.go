package asm

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
	constants := mma2Constants(f, mmaNoProductExp, -127, 0xff, 127, 128, 0x7fffffff, mmaMinExpRZ13, 127+13, 254<<23, ^(1<<10 - 1), mmaZeroExp,
		-mmaMaxExp, mmaMaxExp, mmaMaxProductExp, 0x00010001, mmaMinFloorExp, mmaMaxFloorExp, 127+24)
	mma2RZ13(f, constants)
	mma2RZ23(f, constants)
	mma2Dots{}.write(f, constants)
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
		"p groupArgs")
	m := &mma2{Func: fn, constants: constants}
	m.rows, m.a, m.ea = fn.Arg("rows"), fn.Arg("a"), fn.Arg("ea")
	sa := fn.Arg("sa")
	m.b, m.eb = fn.Arg("b"), fn.Arg("eb")
	sb := fn.Arg("sb")
	m.c, m.bad = fn.Arg("c"), fn.Arg("bad")
	m.t, m.k, m.bits = fn.GP("scratch"), fn.GP("products left"), fn.GP("columns of the row that need the reference form")
	m.halves = fn.GP("halves of the row left")
	fn.Frame(mma2Words + mma2Bytes/2)
	row := fn.Label("row")
	m.half(fn.FP("n"), func() {
		fn.I("MOVQ", fn.FP("n"), m.k)
		m.exponents()
		m.eights(mma2Words, func() { m.scales23(sa, sb) })
		for v, scale := range mma2Scales {
			fn.I("VMOVDQU", SP.At(mma2First+32*v), scale)
		}
		fn.I("MOVQ", m.b, m.t)
		for _, place := range []int{mma2First, mma2Second} {
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
		m.totals23()
		fn.I("ADDQ", mma2Bytes, sb)
	})
	fn.I("SUBQ", 2*mma2Bytes, sb)
	fn.I("ADDQ", 4, sa)
	m.next(row)
}

// The frame of group23AVX2, for 32 columns.
const (
	mma2Exps   = mma2Bytes * iota // E
	mma2First                     // scales, then sums of the first half of the products
	mma2Second                    // sums of the others
	mma2Words                     // largest exponents
)

// scales23 stores E of the eight columns of the loop of eights, and 2^(F-E) times the scales of the
// operands, whose exponents are at sa and sb.
func (m *mma2) scales23(sa, sb Reg) {
	e, acc, s, scale := Y(10), Y(11), Y(12), Y(4)
	m.load(mmaNoProductExp, Y(13))
	m.I("VPCMPGTD", Y(9), Y(13), Y(15)) // all products are zero
	m.I("VPBROADCASTD", sa.At(0), s)
	m.I("VPADDD", m.lanes(sb, 0), s, s)
	m.I("VPADDD", s, Y(9), Y(9))
	m.load(mmaZeroExp, Y(13))
	m.I("VPBLENDVB", Y(15), Y(13), Y(9), Y(9))
	m.I("VMOVUPS", m.lanes(m.c, 0), acc)
	m.field(acc, e, Y(13))
	m.I("VPMAXSD", Y(9), e, e)
	m.isZero(acc, Y(13), Y(14))
	m.I("VPAND", Y(15), Y(13), Y(13))
	m.I("VPANDN", e, Y(13), e) // zero results: E is 0
	m.load(-mmaMaxExp, Y(13))
	m.I("VPCMPGTD", e, Y(13), Y(13))
	m.load(mmaMaxExp, Y(14))
	m.I("VPCMPGTD", Y(14), e, Y(14))
	m.I("VPOR", Y(14), Y(13), Y(13))
	m.mark(Y(13))
	m.I("VMOVDQU", e, m.lanes(SP, mma2Exps))
	m.I("VPSUBD", s, e, s)
	m.load(mmaMaxProductExp, Y(13))
	m.I("VPMINSD", Y(13), s, s)
	m.load(-mmaMaxExp, Y(13))
	m.I("VPMAXSD", Y(13), s, s)
	m.I("VPBROADCASTD", m.FP("one"), Y(13))
	m.I("VPSUBD", s, Y(13), scale)
	m.I("VPSLLD", 23, scale, scale)
	m.I("VMOVDQU", scale, m.lanes(SP, mma2First))
}

// totals23 adds both sums of 32 columns to c, cut to multiples of 2^(E-F).
func (m *mma2) totals23() {
	m.I("MOVQ", m.FP("one"), m.t)
	m.I("ADDQ", 1023-127, m.t)
	m.wide(Y(12), Y(13), Y(14))
	m.I("XORQ", m.t, m.t)
	four := m.Label("four")
	at := func(base Reg, at int) Mem { return base.At(at).By(m.t, 1) }
	m.I("VPMOVSXDQ", at(SP, mma2Exps), Y(9))
	m.I("VPSUBQ", Y(9), Y(12), Y(9))
	m.I("VPSLLQ", 52, Y(9), Y(9)) // 2^(F-E)
	m.I("VCVTPS2PD", at(m.c, 0), Y(10))
	m.I("VMULPD", Y(9), Y(10), Y(10))
	m.I("VROUNDPD", 3, Y(10), Y(10)) // toward zero
	for _, place := range []int{mma2First, mma2Second} {
		m.I("VCVTDQ2PD", at(SP, place), Y(11))
		m.I("VADDPD", Y(11), Y(10), Y(10))
	}
	m.store(Y(10), Y(9), Y(13), Y(14), at(m.c, 0))
	m.I("ADDQ", 16, m.t)
	m.I("CMPQ", m.t, mma2Bytes)
	m.Jump("JNE", four)
}

// An mma2Dots writes the kernel of FP4 units with block scales, eight columns at a time.
type mma2Dots struct {
	*mma2
	p   map[string]Reg // pointers of the arguments
	col Reg
}

// The registers of an mma2Dots.
var (
	dotsSums                                  = []Vec{Y(0), Y(1), Y(2), Y(3)}
	dotsE, dotsZeros, dotsY, dotsZ            = Y(4), Y(5), Y(6), Y(7) // the last two are scratch
	dotsWide, dotsInverse, dotsKept, dotsTerm = Y(8), Y(9), Y(10), Y(14)
)

const dotsExps = 4 * 32 // place of E in the frame, after the dot products

// at returns the eight columns of an argument, of dwords.
func (d mma2Dots) at(name string, at int) Mem { return d.p[name].At(at).By(d.col, 4) }

func (mma2Dots) write(f *File, constants map[int]Sym) {
	fn := f.Func("groupDotsAVX2", "groupDotsAVX2 is groupDots for AVX2.", "rows int, x *dotsArgs")
	d := mma2Dots{mma2: &mma2{Func: fn, constants: constants}}
	d.rows = fn.Arg("rows")
	d.p = mmaDotsPointers(fn)
	d.t = fn.GP("scratch")
	d.col = fn.GP("columns before these eight")
	fn.Note("Y0-Y3", "dot products times 4")
	fn.Frame(dotsExps + 32)
	fn.I("MOVQ", 1023+35, d.t)
	d.wide(dotsWide, dotsInverse, dotsKept)
	row := fn.Label("row")
	fn.I("XORQ", d.col, d.col)
	eight := fn.Label("columns")
	fn.I("VMOVUPS", d.at("c", 0), dotsZ)
	d.field(dotsZ, dotsE, dotsY)
	d.isZero(dotsZ, dotsTerm, dotsY)
	d.dots()
	d.bound()
	for s, sum := range dotsSums {
		fn.I("VMOVDQU", sum, SP.At(32*s))
	}
	fn.I("VMOVDQU", dotsE, SP.At(dotsExps))
	d.totals()
	fn.I("CMPQ", d.col, 64)
	fn.Jump("JNE", eight)
	mmaDotsNextRow(fn, d.p)
	fn.I("SUBQ", 1, d.rows)
	fn.Jump("JNZ", row)
	fn.Return()
}

// dots sets the sums to the dot products of four blocks, E to the largest exponent of those that are
// not zero and of the accumulators, and zeros to the columns without any.
func (d mma2Dots) dots() {
	e, zeros, y, z, power := dotsE, dotsZeros, dotsY, dotsZ, Y(11)
	d.I("VPCMPEQD", zeros, zeros, zeros)
	for s, sum := range dotsSums {
		d.I("VPXOR", sum, sum, sum)
		for word := range 4 {
			d.I("VPBROADCASTD", d.p["a"].At(16*s+4*word), y)
			d.I("VPMADDUBSW", d.at("b", 256*(4*s+word)), y, y)
			d.I("VPADDW", y, sum, sum)
		}
		d.load(0x00010001, y)
		d.I("VPMADDWD", y, sum, sum)
		d.I("VPSUBD", d.at("sums", 256*s), sum, sum)
		d.I("VPBROADCASTD", d.p["masksA"].At(4*s), y)
		d.I("VPAND", d.at("masksB", 256*s), y, y)
		d.I("VPXOR", z, z, z)
		d.I("VPCMPEQD", z, y, y) // zero dot products
		d.I("VPAND", y, zeros, zeros)
		d.I("VPBROADCASTD", d.p["expsA"].At(4*s), z)
		d.I("VPADDD", d.at("expsB", 256*s), z, z)
		d.load(mmaZeroExp, power)
		d.I("VPBLENDVB", y, power, z, z)
		d.I("VPMAXSD", z, e, e)
	}
}

// bound sets E of zero results to 0, and adds the columns whose E is beyond its limits to bad. dotsTerm holds
// the columns whose accumulators are zero.
func (d mma2Dots) bound() {
	e, zeros, y, z := dotsE, dotsZeros, dotsY, dotsZ
	d.I("VPAND", dotsTerm, zeros, zeros)
	d.I("VPANDN", e, zeros, e) // zero results: E is 0
	d.load(-mmaMaxExp, y)
	d.I("VPCMPGTD", e, y, y)
	d.load(mmaMaxExp, z)
	d.I("VPCMPGTD", z, e, z)
	d.I("VPOR", z, y, y)
	d.I("VMOVMSKPS", y, d.t)
	d.I("ORQ", d.t, d.p["bad"].At(0)) // eight times: each byte comes to its place
	d.I("RORQ", 8, d.p["bad"].At(0))
}

// totals adds the dot products times their scales to four columns of c at a time, each cut to a multiple of
// 2^(E-35), and moves col on.
func (d mma2Dots) totals() {
	z, term, power, quarter, total, factor := dotsZ, dotsTerm, Y(11), Y(12), Y(13), Y(15)
	four := d.Label("four")
	d.I("MOVQ", fmt.Sprintf("$0x%016x", uint64(2)<<52), d.t)
	d.I("VMOVQ", d.t, quarter.X())
	d.I("VPBROADCASTQ", quarter.X(), quarter)
	d.I("MOVQ", d.col, d.t)
	d.I("ANDQ", 4, d.t)
	d.I("VPMOVSXDQ", SP.At(dotsExps).By(d.t, 4), power)
	d.I("VPSUBQ", power, dotsWide, power)
	d.I("VPSLLQ", 52, power, power) // 2^(35-E)
	d.I("VCVTPS2PD", d.at("c", 0), total)
	d.I("VMULPD", power, total, total)
	d.I("VROUNDPD", 3, total, total) // toward zero
	d.I("VPXOR", z, z, z)
	d.I("VADDPD", z, total, total)         // not -0, as in groupDots
	d.I("VPSUBQ", quarter, power, quarter) // 2^(33-E)
	for s := range dotsSums {
		d.I("VCVTDQ2PD", SP.At(32*s).By(d.t, 4), term)
		d.I("VMULPD", d.p["scalesB"].At(512*s).By(d.col, 8), term, term)
		d.I("VBROADCASTSD", d.p["scalesA"].At(8*s), factor)
		d.I("VMULPD", factor, term, term)
		d.I("VMULPD", quarter, term, term)
		d.I("VROUNDPD", 3, term, term)
		d.I("VADDPD", term, total, total)
	}
	d.store(total, power, dotsInverse, dotsKept, d.at("c", 0))
	d.I("ADDQ", 4, d.col)
	d.I("TESTQ", 4, d.col)
	d.Jump("JNZ", four)
}
