package asm

// A mmaNEON writes a kernel of package mma for arm64: 16 columns at a time, four times for a panel. Instructions of a product of 16
// columns: 9 for the exponents and 21 for the sums; of FP32 units 9. Those of 16 columns besides are 121 (13 bits) and 270 (23 to 25
// bits).
type mmaNEON struct {
	*Func
	rows, n, a, ea, b, eb, c, bad        Reg
	pa, pea, pb, peb, t, k, bits, groups Reg // positions; columns that need the reference form; 16 columns left
}

// The registers of a mmaNEON. V16 to V23 are scratch.
var (
	mmaSumsNEON    = neonRange(0, 4)
	mmaScalesNEON  = neonRange(4, 4)
	mmaExpsNEON    = neonRange(8, 4)  // E of units of 23 to 25 bits
	mmaSecondNEON  = neonRange(12, 4) // their exponents of scales, then the sums of the other half of the products
	mmaLargestNEON = neonRange(24, 2) // largest exponents of the products
	mmaBadNEON     = V(26)            // a bit for each column that needs the reference form
	mmaZeroNEON    = V(27)
	mmaWeightsNEON = V(28) // 1, 2, 4, 8
)

// MMANEON writes the kernels of package mma for arm64.
func MMANEON() []*File {
	f := ARM64.NewFile("mma", "mmaneon")
	weights := f.Table("weights", words(1, 2, 4, 8))
	mmaNEON{}.write13(f, weights)
	mmaNEON{}.write23(f, weights)
	mmaChainNEON(f)
	return []*File{f}
}

// begin sets the registers, and the constants that all rows share.
func (m *mmaNEON) begin(fn *Func, weights Sym) {
	m.Func = fn
	for _, r := range []struct {
		reg  *Reg
		name string
	}{{&m.rows, "rows"}, {&m.n, "n"}, {&m.a, "a"}, {&m.ea, "ea"}, {&m.b, "b"}, {&m.eb, "eb"}, {&m.c, "c"}, {&m.bad, "bad"}} {
		*r.reg = fn.Arg(r.name)
	}
	for _, r := range []struct {
		reg   *Reg
		holds string
	}{{&m.pa, "position in a"}, {&m.pea, "position in ea"}, {&m.pb, "the 16 columns of b"}, {&m.peb, "the 16 columns of eb"},
		{&m.t, "scratch"}, {&m.k, "products left"}, {&m.bits, "columns of the row that need the reference form"},
		{&m.groups, "16 columns of the row left"}} {
		*r.reg = fn.GP(r.holds)
	}
	fn.Note("V0…V7", "sums; powers of two")
	fn.I("MOVD", "$"+weights.String(), m.t)
	fn.I("VLD1", "("+string(m.t)+")", list(mmaWeightsNEON.S4()))
	neonZero(fn, mmaZeroNEON)
}

// row writes the loop over rows, and in it that over 16 columns each, which body computes.
func (m *mmaNEON) row(body, next func()) {
	row := m.Label("row")
	m.I("MOVD", m.b, m.pb)
	m.I("MOVD", m.eb, m.peb)
	m.I("MOVD", 0, m.bits)
	m.I("MOVD", 4, m.groups)
	group := m.Label("group")
	body()
	m.I("VADDV", mmaBadNEON.S4(), mmaBadNEON)
	m.I("VMOV", mmaBadNEON.S4().lane(0), m.t)
	m.I("LSR", 16, m.bits)
	m.I("ORR", string(m.t)+"<<48", m.bits)
	m.I("ADD", 64, m.pb)
	m.I("ADD", 32, m.peb)
	m.I("SUBS", 1, m.groups)
	m.Jump("BNE", group)
	m.I("MOVD", m.pa, m.a)
	m.I("MOVD", m.pea, m.ea)
	next()
	m.I("MOVD", m.bad.At(0), m.t)
	m.I("ORR", m.t, m.bits)
	m.I("MOVD.P", m.bits, m.bad.post(8))
	m.I("SUBS", 1, m.rows)
	m.Jump("BNE", row)
	m.Return()
}

// exponents sets the largest exponents of n products.
func (m *mmaNEON) exponents() {
	for _, v := range mmaLargestNEON {
		m.I("VMOVI", 0x80, v.B16())
		m.I("VSHL", 8, v.H8(), v.H8()) // the least word
	}
	m.I("MOVD", m.ea, m.pea)
	m.I("MOVD", m.peb, m.t)
	m.I("MOVD", m.n, m.k)
	loop := m.Label("exponents")
	m.I("VLD1R.P", m.pea.post(2), list(V(20).H8()))
	m.I("VLD1", "("+string(m.t)+")", list(V(16).H8(), V(17).H8()))
	m.I("ADD", 128, m.t)
	for h, v := range mmaLargestNEON {
		m.I("VADD", V(20).H8(), V(16+h).H8(), V(16+h).H8())
		m.I("VSMAX", V(16+h).H8(), v.H8(), v.H8())
	}
	m.I("SUBS", 1, m.k)
	m.Jump("BNE", loop)
	neonZero(m.Func, mmaBadNEON)
}

// fours prints body for the accumulators of four columns each, the last first, so that the bits of columns come to their places. body
// gets the largest exponents in V21, the exponents of the accumulators in V22 and which of these are zeros in V23, and sets V21 to the
// columns that need no reference form.
func (m *mmaNEON) fours(bias Neon, body func(v int)) {
	m.I("VLD1", "("+string(m.c)+")", neonList(Neon.S4, mmaSumsNEON))
	for v := 3; v >= 0; v-- {
		largest, field, zeros := V(21), V(22).S4(), V(23).S4()
		if from := mmaLargestNEON[v/2]; v%2 == 0 {
			m.I("VSSHLL", 0, from.H4(), largest.S4())
		} else {
			m.I("VSSHLL2", 0, from.H8(), largest.S4())
		}
		m.I("VSHL", 1, mmaSumsNEON[v].S4(), zeros) // without the sign
		m.I("VUSHR", 24, zeros, field)
		m.I("VSUB", bias.S4(), field, field)
		m.I("VCMEQ", mmaZeroNEON.S4(), zeros, zeros)
		body(v)
		m.I("VCMEQ", mmaZeroNEON.S4(), largest.S4(), largest.S4())
		m.I("VAND", mmaWeightsNEON.B16(), largest.B16(), largest.B16())
		m.I("VSHL", 4, mmaBadNEON.S4(), mmaBadNEON.S4())
		m.I("VORR", largest.B16(), mmaBadNEON.B16(), mmaBadNEON.B16())
	}
}

// products adds n products to the sums, and moves pa and t on.
func (m *mmaNEON) products(sums []Neon) {
	loop := m.Label("products")
	m.I("VLD1R.P", m.pa.post(4), list(V(20).S4()))
	m.I("VLD1", "("+string(m.t)+")", neonList(Neon.S4, neonRange(16, 4)))
	m.I("ADD", 256, m.t)
	for v, sum := range sums {
		z := V(16 + v).S4()
		m.I("VFMUL", V(20).S4(), z, z)
		m.I("VFMUL", mmaScalesNEON[v].S4(), z, z)
		m.I("VFCVTZS", z, z)
		m.I("VADD", z, sum.S4(), sum.S4())
	}
	m.I("SUBS", 1, m.k)
	m.Jump("BNE", loop)
}

func (m mmaNEON) write13(f *File, weights Sym) {
	m.begin(f.Func("group13NEON", "group13NEON is group13 for arm64. n need not be even.",
		"rows, n int, a *float32, ea *int16, b *float32, eb *int16, c *float32, bad *uint64"), weights)
	bias, least, infinite, one := V(29), V(30), V(31), V(19)
	neonConstant(m.Func, bias, 127, m.t)
	neonConstant(m.Func, infinite, 128, m.t)
	m.row(func() {
		m.exponents()
		neonConstant(m.Func, least, mmaMinExpRZ13&0xffffffff, m.t)
		neonConstant(m.Func, one, 127+13, m.t)
		m.fours(bias, func(v int) { // where all products are zero, the largest exponent is the least of all
			e, field, zeros, cut := V(21).S4(), V(22).S4(), V(23).B16(), V(20).S4()
			m.I("VSMAX", field, e, e)
			m.I("VSMAX", least.S4(), e, cut)
			m.I("VCMEQ", cut, e, e)
			m.I("VORR", zeros, V(21).B16(), V(21).B16()) // large enough, or zero
			m.I("VCMEQ", infinite.S4(), field, field)    // NaN and Inf
			m.I("VBIT", V(22).B16(), mmaZeroNEON.B16(), V(21).B16())
			scale, sum := mmaScalesNEON[v].S4(), mmaSumsNEON[v].S4()
			m.I("VSUB", cut, one.S4(), scale)
			m.I("VSHL", 23, scale, scale)
			m.I("VFMUL", scale, sum, sum)
			m.I("VFCVTZS", sum, sum)
		})
		m.I("MOVD", m.a, m.pa)
		m.I("MOVD", m.pb, m.t)
		m.I("MOVD", m.n, m.k)
		m.products(mmaSumsNEON)
		inverse, kept := V(16), V(17)
		neonConstant(m.Func, inverse, 254<<23, m.t)
		neonConstant(m.Func, kept, 0xfffffc00, m.t)
		for v, scale := range mmaScalesNEON {
			sum := mmaSumsNEON[v]
			m.I("VSUB", scale.S4(), inverse.S4(), scale.S4()) // 2^(E-13)
			m.I("VSCVTF", sum.S4(), sum.S4())
			m.I("VFMUL", scale.S4(), sum.S4(), sum.S4())
			m.I("VAND", kept.B16(), sum.B16(), sum.B16())
		}
		m.I("VST1.P", neonList(Neon.S4, mmaSumsNEON), m.c.post(64))
	}, func() {})
}

func (m mmaNEON) write23(f *File, weights Sym) {
	fn := f.Func("group23NEON", "group23NEON is group23 for arm64.", "p groupArgs")
	m.begin(fn, weights)
	sa, sb, psb, one := fn.Arg("sa"), fn.Arg("sb"), fn.GP("the 16 columns of sb"), fn.Arg("one")
	bias, low, high, none, upper, first := V(29), V(30), V(31), V(16), V(17), V(18)
	neonConstant(fn, bias, 127, m.t)
	neonConstant(fn, low, -mmaMaxExp&0xffffffff, m.t)
	neonConstant(fn, high, mmaMaxExp, m.t)
	fn.I("MOVD", sb, psb)
	m.row(func() {
		m.exponents()
		neonConstant(fn, none, mmaNoProductExp&0xffffffff, m.t)
		neonConstant(fn, upper, mmaMaxProductExp, m.t)
		fn.I("VDUP", one, first.S4())
		fn.I("VLD1R", "("+string(sa)+")", list(V(19).S4()))
		fn.I("VLD1.P", psb.post(64), neonList(Neon.S4, mmaSecondNEON))
		m.fours(bias, func(v int) {
			e, field, zeros := V(21), V(22).S4(), V(23)
			s, scale, exps, nothing := mmaSecondNEON[v].S4(), mmaScalesNEON[v].S4(), mmaExpsNEON[v], V(20)
			fn.I("VADD", V(19).S4(), s, s)
			fn.I("VSMAX", none.S4(), e.S4(), nothing.S4())
			fn.I("VCMEQ", none.S4(), nothing.S4(), nothing.S4()) // all products are zero: e is below all exponents
			fn.I("VADD", s, e.S4(), e.S4())
			fn.I("VSMAX", field, e.S4(), e.S4())
			fn.I("VAND", zeros.B16(), nothing.B16(), nothing.B16())
			fn.I("VBIT", nothing.B16(), mmaZeroNEON.B16(), e.B16()) // zero results: E is 0
			fn.I("VSMAX", low.S4(), e.S4(), exps.S4())
			fn.I("VSMIN", high.S4(), exps.S4(), exps.S4())
			fn.I("VCMEQ", exps.S4(), e.S4(), e.S4())
			fn.I("VSUB", s, exps.S4(), scale)
			fn.I("VSMAX", low.S4(), scale, scale)
			fn.I("VSMIN", upper.S4(), scale, scale)
			fn.I("VSUB", scale, first.S4(), scale)
			fn.I("VSHL", 23, scale, scale)
		})
		fn.I("MOVD", m.a, m.pa)
		fn.I("MOVD", m.pb, m.t)
		for _, sums := range [][]Neon{mmaSumsNEON, mmaSecondNEON} {
			for _, sum := range sums {
				neonZero(fn, sum)
			}
			fn.I("LSR", 1, m.n, m.k)
			m.products(sums)
		}
		m.totals(one)
		fn.I("VST1.P", neonList(Neon.S4, neonRange(16, 4)), m.c.post(64))
	}, func() {
		fn.I("ADD", 4, sa)
		fn.I("MOVD", sb, psb)
	})
}

// totals sets V16 to V19 to the results: the sums of both halves of the products and the accumulator, cut, as float64, which is rounded
// toward zero.
func (m *mmaNEON) totals(one Reg) {
	anchor, inverse, kept := V(29), V(30), V(31)
	m.I("ADD", 1023-127, one, m.t) // of 2^F
	m.I("VDUP", m.t, anchor.D2())
	m.I("MOVD", 2046<<52, m.t)
	m.I("VDUP", m.t, inverse.D2())
	m.I("VMOVI", 0xff, kept.B16())
	m.I("VSHL", 52-23, kept.D2(), kept.D2())
	m.I("VLD1", "("+string(m.c)+")", neonList(Neon.S4, neonRange(16, 4)))
	for v := range mmaSumsNEON {
		acc := V(16 + v)
		m.I("VORR", acc.B16(), acc.B16(), V(24).B16())
		for half := range 2 {
			total, other, power := V(20), V(21), V(22)
			widen := func(from, to Neon) {
				if half == 0 {
					m.I("VSSHLL", 0, from.S2(), to.D2())
				} else {
					m.I("VSSHLL2", 0, from.S4(), to.D2())
				}
			}
			widen(mmaSumsNEON[v], total)
			widen(mmaSecondNEON[v], other)
			m.I("VADD", other.D2(), total.D2(), total.D2())
			m.I("VSCVTF", total.D2(), total.D2())
			widen(mmaExpsNEON[v], power)
			m.I("VSUB", power.D2(), anchor.D2(), power.D2())
			m.I("VSHL", 52, power.D2(), power.D2()) // 2^(F-E)
			if half == 0 {
				m.I("VFCVTL", V(24).S2(), other.D2())
			} else {
				m.I("VFCVTL2", V(24).S4(), other.D2())
			}
			m.I("VFMUL", power.D2(), other.D2(), other.D2())
			m.I("VFRINTZ", other.D2(), other.D2())
			m.I("VFADD", other.D2(), total.D2(), total.D2())
			m.I("VSUB", power.D2(), inverse.D2(), power.D2())
			m.I("VFMUL", power.D2(), total.D2(), total.D2())
			m.I("VAND", kept.B16(), total.B16(), total.B16())
			if half == 0 {
				m.I("VFCVTN", total.D2(), acc.S2())
			} else {
				m.I("VFCVTN2", total.D2(), acc.S4())
			}
		}
	}
	neonConstant(m.Func, anchor, 127, m.t)
	neonConstant(m.Func, inverse, -mmaMaxExp&0xffffffff, m.t)
	neonConstant(m.Func, kept, mmaMaxExp, m.t)
}

// mmaChainNEON writes the kernel of FP32 units.
func mmaChainNEON(f *File) {
	fn := f.Func("groupChainNEON", "groupChainNEON is groupChainAVX2 for arm64.", "rows, n int, a, b, c *float32")
	rows, n, a, b, c := fn.Arg("rows"), fn.Arg("n"), fn.Arg("a"), fn.Arg("b"), fn.Arg("c")
	pa, pb, t, k, groups := fn.GP("position in a"), fn.GP("the 16 columns of b"), fn.GP("position in b"), fn.GP("products left"),
		fn.GP("16 columns of the row left")
	sums, values := neonRange(0, 4), neonRange(16, 4)
	row := fn.Label("row")
	fn.I("MOVD", b, pb)
	fn.I("MOVD", 4, groups)
	group := fn.Label("group")
	fn.I("VLD1", "("+string(c)+")", neonList(Neon.S4, sums))
	fn.I("MOVD", a, pa)
	fn.I("MOVD", pb, t)
	fn.I("MOVD", n, k)
	product := fn.Label("product")
	fn.I("VLD1R.P", pa.post(4), list(V(20).S4()))
	fn.I("VLD1", "("+string(t)+")", neonList(Neon.S4, values))
	fn.I("ADD", 256, t)
	for v, sum := range sums {
		fn.I("VFMLA", V(20).S4(), values[v].S4(), sum.S4())
	}
	fn.I("SUBS", 1, k)
	fn.Jump("BNE", product)
	fn.I("VST1.P", neonList(Neon.S4, sums), c.post(64))
	fn.I("ADD", 64, pb)
	fn.I("SUBS", 1, groups)
	fn.Jump("BNE", group)
	fn.I("MOVD", pa, a)
	fn.I("SUBS", 1, rows)
	fn.Jump("BNE", row)
	fn.Return()
}
