package asm

import "fmt"

// Constants of the kernels of package mma, which explains them.
const (
	mmaMaxExp        = 80
	mmaMinExpRZ13    = -100
	mmaMaxProductExp = 90
	mmaNoProductExp  = -1000
	mmaZeroExp       = -10000
	mmaVectors       = 4 // of 16 columns in a panel of 64
)

// MMA writes the kernels of package mma: one fused addition of a matrix unit, for all rows of a
// packed tile of A and a panel of 64 columns of B.
func MMA() []*File {
	f := NewFile("mma", "mma")
	mmaRZ13(f)
	mma23{}.write(f)
	mmaDots(f)
	mmaExact(f)
	mmaFloor(f)
	return []*File{f}
}

// mmaExponents prints the loop that sets largest, two registers of words, to the largest sums of an
// exponent of A's row, k in number, and those of B's columns.
func mmaExponents(fn *Func, ea, eb Reg, t, k Reg, largest [2]Vec, x, y Vec) {
	broadcast(fn, 0x80008000, t, largest[0])
	fn.I("VMOVDQA64", largest[0], largest[1])
	fn.I("MOVQ", eb, t)
	loop := fn.Label("exponents")
	fn.I("VPBROADCASTW", ea.At(0), x)
	for h, v := range largest {
		fn.I("VPADDW", t.At(64*h), x, y)
		fn.I("VPMAXSW", y, v, v)
	}
	fn.I("ADDQ", 2, ea)
	fn.I("ADDQ", 128, t)
	fn.I("SUBQ", 1, k)
	fn.Jump("JNZ", loop)
}

// mmaWiden sets x to the largest exponents of the 16 columns of vector v.
func mmaWiden(fn *Func, v int, largest [2]Vec, x Vec) {
	fn.I("VEXTRACTI64X4", v%2, largest[v/2], x.Y())
	fn.I("VPMOVSXWD", x.Y(), x)
}

// mmaProducts prints the loop over n products of a row: each times s, cut to an integer, is
// added to the sums. y and the two registers after it are scratch.
func mmaProducts(fn *Func, a, t, k Reg, sums, scales []Vec, x, y Vec) {
	loop := fn.Label("products")
	for i := range 2 {
		fn.I("VBROADCASTSS", a.At(4*i), x)
		for v := range sums {
			z := Z(y.number + v%3)
			fn.I("VMULPS", t.At(256*i+64*v), x, z)
			fn.I("VMULPS", scales[v], z, z)
			fn.I("VCVTTPS2DQ", z, z)
			fn.I("VPADDD", z, sums[v], sums[v])
		}
	}
	fn.I("ADDQ", 8, a)
	fn.I("ADDQ", 512, t)
	fn.I("SUBQ", 2, k)
	fn.Jump("JNZ", loop)
}

// mmaBad adds mask K(k), of vector v's lanes, to the bits of bad, a register or memory.
func mmaBad(fn *Func, k, v int, t Reg, bad any) {
	fn.I("KMOVW", K(k), t)
	if v > 0 {
		fn.I("SHLQ", 16*v, t)
	}
	fn.I("ORQ", t, bad)
}

// fourVectors returns four vector registers from the first on, and notes their purpose.
func fourVectors(fn *Func, first int, purpose string) []Vec {
	fn.Note(fmt.Sprintf("Z%d-Z%d", first, first+3), purpose)
	return []Vec{Z(first), Z(first + 1), Z(first + 2), Z(first + 3)}
}

// mmaRZ13 writes the kernel of FP8 units with 13 fraction bits.
func mmaRZ13(f *File) {
	fn := f.Func("group13", `group13 adds n products, an even number, to each of rows × 64 results c, as runRZ13 does.
a and ea hold n values and exponents for each row, b and eb 64 for each k. It sets
the bits of bad[i] for columns of row i that need the reference form.`,
		"rows, n int, a *float32, ea *int16, b *float32, eb *int16, c *float32, bad *uint64")
	rows, n, a, ea := fn.Arg("rows"), fn.Arg("n"), fn.Arg("a"), fn.Arg("ea")
	b, eb, c, bad := fn.Arg("b"), fn.Arg("eb"), fn.Arg("c"), fn.Arg("bad")
	t, k, bits := fn.GP("scratch"), fn.GP("products left"), fn.GP("columns of the row that need the reference form")
	sums := fourVectors(fn, 0, "sums")
	scales := fourVectors(fn, 4, "2^(13-E)")
	largest, x, e, acc := [2]Vec{Z(8), Z(16)}, Z(9), Z(10), Z(11)
	least, none, fields, bias, infinite, abs, floor, one, inverse, kept := Z(20), Z(21), Z(22), Z(23), Z(24), Z(25), Z(26), Z(27), Z(28), Z(29)
	for _, constant := range []struct {
		v     Vec
		value int
	}{{least, mmaNoProductExp}, {none, -127}, {fields, 0xff}, {bias, 127}, {infinite, 128}, {abs, 0x7fffffff}, {floor, mmaMinExpRZ13},
		{one, 127 + 13}, {inverse, 254 << 23}, {kept, ^(1<<10 - 1)}} {
		broadcast(fn, uint32(int32(constant.value)), t, constant.v)
	}
	row := fn.Label("row")
	fn.I("XORQ", bits, bits)
	fn.I("MOVQ", n, k)
	mmaExponents(fn, ea, eb, t, k, largest, x, e)
	for v := range mmaVectors {
		mmaWiden(fn, v, largest, e)
		fn.I("VPCMPD", 1, least, e, K(1)) // all products are zero
		fn.I("VMOVDQA32", none, K(1), e)
		fn.I("VMOVUPS", c.At(64*v), acc)
		fn.I("VPSRLD", 23, acc, x)
		fn.I("VPANDD", fields, x, x)
		fn.I("VPSUBD", bias, x, x)
		fn.I("VPCMPEQD", infinite, x, K(2))
		fn.I("VPMAXSD", x, e, e)
		fn.I("VPCMPD", 1, floor, e, K(3))
		fn.I("VPTESTMD", abs, acc, K(4))
		fn.I("KANDW", K(3), K(4), K(3))
		fn.I("KORW", K(2), K(3), K(2))
		mmaBad(fn, 2, v, t, bits)
		fn.I("VPMAXSD", floor, e, e)
		fn.I("VPSUBD", e, one, scales[v])
		fn.I("VPSLLD", 23, scales[v], scales[v])
		fn.I("VMULPS", scales[v], acc, acc)
		fn.I("VCVTTPS2DQ", acc, sums[v])
	}
	fn.I("MOVQ", b, t)
	fn.I("MOVQ", n, k)
	mmaProducts(fn, a, t, k, sums, scales, x, Z(12))
	for v := range mmaVectors {
		fn.I("VCVTDQ2PS", sums[v], acc)
		fn.I("VPSUBD", scales[v], inverse, x) // 2^(E-13)
		fn.I("VMULPS", x, acc, acc)
		fn.I("VPANDD", kept, acc, acc)
		fn.I("VMOVUPS", acc, c.At(64*v))
	}
	fn.I("ORQ", bits, bad.At(0))
	fn.I("ADDQ", 8, bad)
	fn.I("ADDQ", 256, c)
	fn.I("SUBQ", 1, rows)
	fn.Jump("JNZ", row)
	fn.Return()
}

// mmaRange prints what bounds the exponents e of a vector: those of zero results, where both
// masks zeros and K(2) are set, become 0, and the others beyond ±80 go to bad.
func mmaRange(fn *Func, zeros, v int, e, zero, low, high Vec, t Reg, bits any) {
	fn.I("KANDW", K(zeros), K(2), K(2))
	fn.I("VMOVDQA32", zero, K(2), e)
	fn.I("VPCMPD", 1, low, e, K(3))
	fn.I("VPCMPD", 6, high, e, K(4)) // above
	fn.I("KORW", K(3), K(4), K(3))
	mmaBad(fn, 3, v, t, bits)
}

// mmaField prints what sets e to the exponents of the accumulators acc, and K(2) to their zeros.
func mmaField(fn *Func, acc, e, fields, bias, abs Vec) {
	fn.I("VPSRLD", 23, acc, e)
	fn.I("VPANDD", fields, e, e)
	fn.I("VPSUBD", bias, e, e)
	fn.I("VPTESTNMD", abs, acc, K(2))
}

// An mma23 writes the kernel of units with 23 to 25 fraction bits.
type mma23 struct {
	*Func
	sa, sb, c, t, bits   Reg
	sums                 [2][]Vec // of either half of the products
	scales, exps         []Vec
	largest              [2]Vec
	least, none, fields  Vec // constants
	bias, abs, low, high Vec
	upper, one, zero     Vec
	wide, inverse        Vec // as exponent fields of float64
}

func (m mma23) write(f *File) {
	fn := f.Func("group23", `group23 adds n products, a multiple of four, to each of rows × 64 results c, as runRZ23 does. one is
the exponent field of 2^F. a and ea hold n values and exponents for each row, sa the exponent
of its scale; b and eb 64 for each k, sb the exponents of the columns' scales.`,
		"p groupArgs")
	m.Func = fn
	rows, a, ea := fn.Arg("rows"), fn.Arg("a"), fn.Arg("ea")
	m.sa = fn.Arg("sa")
	b, eb := fn.Arg("b"), fn.Arg("eb")
	m.sb, m.c = fn.Arg("sb"), fn.Arg("c")
	bad := fn.Arg("bad")
	m.t = fn.GP("scratch")
	k := fn.GP("products left")
	m.bits = fn.GP("columns of the row that need the reference form")
	m.sums = [2][]Vec{fourVectors(fn, 0, "sums of the first half of the products"), fourVectors(fn, 4, "sums of the others")}
	m.scales = fourVectors(fn, 8, "2^(F-E) without the scales")
	m.exps = fourVectors(fn, 12, "E")
	m.largest = [2]Vec{m.sums[0][0], m.sums[0][1]} // before the sums
	m.constants()
	row := fn.Label("row")
	fn.I("XORQ", m.bits, m.bits)
	fn.I("MOVQ", fn.FP("n"), k)
	mmaExponents(fn, ea, eb, m.t, k, m.largest, Z(16), Z(17))
	for v := range mmaVectors {
		m.scale(v)
	}
	fn.I("MOVQ", b, m.t)
	for _, sums := range m.sums {
		for _, sum := range sums {
			fn.I("VPXORD", sum, sum, sum)
		}
		fn.I("MOVQ", fn.FP("n"), k)
		fn.I("SHRQ", 1, k)
		mmaProducts(fn, a, m.t, k, sums, m.scales, Z(16), Z(17))
	}
	for v := range mmaVectors {
		for h := range 2 {
			m.total(v, h)
		}
	}
	mmaNextRow(fn, m.bits, bad, m.c)
	fn.I("ADDQ", 4, m.sa)
	fn.I("SUBQ", 1, rows)
	fn.Jump("JNZ", row)
	fn.Return()
}

// constants sets the constants.
func (m *mma23) constants() {
	m.wide, m.inverse = Z(20), Z(31)
	m.least, m.none, m.fields, m.bias, m.abs = Z(21), Z(22), Z(23), Z(24), Z(25)
	m.low, m.high, m.upper, m.one, m.zero = Z(26), Z(27), Z(28), Z(29), Z(30)
	for _, constant := range []struct {
		v     Vec
		value int
	}{{m.least, mmaNoProductExp}, {m.none, mmaZeroExp}, {m.fields, 0xff}, {m.bias, 127}, {m.abs, 0x7fffffff}, {m.low, -mmaMaxExp},
		{m.high, mmaMaxExp}, {m.upper, mmaMaxProductExp}, {m.zero, 0}} {
		broadcast(m.Func, uint32(int32(constant.value)), m.t, constant.v)
	}
	m.I("MOVQ", m.FP("one"), m.t)
	m.I("VPBROADCASTD", m.t, m.one)
	m.I("ADDQ", 1023-127, m.t)
	mmaWide(m.Func, m.t, m.wide, m.inverse)
}

// scale sets E of the columns of vector v and their scales, from the largest exponents.
func (m *mma23) scale(v int) {
	e, s, x, z, w := m.exps[v], m.scales[v], Z(16), Z(18), Z(19)
	mmaWiden(m.Func, v, m.largest, x)
	m.I("VPCMPD", 1, m.least, x, K(1)) // all products are zero
	m.I("VPBROADCASTD", m.sa.At(0), z)
	m.I("VPADDD", m.sb.At(64*v), z, z)
	m.I("VPADDD", z, x, x)
	m.I("VMOVDQA32", m.none, K(1), x)
	m.I("VMOVUPS", m.c.At(64*v), w)
	mmaField(m.Func, w, e, m.fields, m.bias, m.abs)
	m.I("VPMAXSD", x, e, e)
	mmaRange(m.Func, 1, v, e, m.zero, m.low, m.high, m.t, m.bits)
	m.I("VPSUBD", z, e, z)
	m.I("VPMINSD", m.upper, z, z)
	m.I("VPMAXSD", m.low, z, z)
	m.I("VPSUBD", z, m.one, s)
	m.I("VPSLLD", 23, s, s)
}

// total adds both sums of half h of the columns of vector v to c, cut to a multiple of 2^(E-F).
func (m *mma23) total(v, h int) {
	x, y, z := Z(16), Z(17), Z(18)
	m.I("VEXTRACTI64X4", h, m.exps[v], x.Y())
	m.I("VPMOVSXDQ", x.Y(), x)
	m.I("VPSUBQ", x, m.wide, x)
	m.I("VPSLLQ", 52, x, x) // 2^(F-E)
	m.I("VCVTPS2PD", m.c.At(64*v+32*h), y)
	m.I("VMULPD", x, y, y)
	m.I("VRNDSCALEPD", 3, y, y) // toward zero
	for _, sums := range m.sums {
		m.I("VEXTRACTI64X4", h, sums[v], z.Y())
		m.I("VCVTDQ2PD", z.Y(), z)
		m.I("VADDPD", z, y, y)
	}
	mmaStore(m.Func, y, x, m.inverse, m.c.At(64*v+32*h))
}

// mmaWide sets the constants from which the powers of two of sums come: the exponent field t of
// the unit of a sum, as float64, and twice that of 1.
func mmaWide(fn *Func, t Reg, wide, inverse Vec) {
	fn.I("VPBROADCASTQ", t, wide)
	fn.I("MOVQ", fmt.Sprintf("$0x%016x", uint64(2046)<<52), t)
	fn.I("VPBROADCASTQ", t, inverse)
}

// mmaStore divides the totals by the powers of two, rounds toward zero and stores 8 results.
func mmaStore(fn *Func, total, power, inverse Vec, to Mem) {
	fn.I("VPSUBQ", power, inverse, power)
	fn.I("VMULPD", power, total, total)
	fn.I("VCVTPD2PS.RZ_SAE", total, total.Y())
	fn.I("VMOVUPS", total.Y(), to)
}

func mmaNextRow(fn *Func, bits, bad, c Reg) {
	fn.I("ORQ", bits, bad.At(0))
	fn.I("ADDQ", 8, bad)
	fn.I("ADDQ", 256, c)
}

// groupFields are the fields of mma.groupArgs.
const groupFields = "rows, n, one int, a *float32, ea *int16, sa *int32, b *float32, eb *int16, sb *int32, c *float32, bad *uint64"

// mmaDotsFields are the pointers of mma.dotsArgs in their order.
var mmaDotsFields = []string{"a", "masksA", "scalesA", "expsA", "b", "sums", "masksB", "scalesB", "expsB", "c", "bad"}

// mmaDotsPointers loads the pointers of the parameter x, a *dotsArgs.
func mmaDotsPointers(fn *Func) map[string]Reg {
	x := fn.Arg("x")
	p := map[string]Reg{}
	for i, name := range mmaDotsFields {
		p[name] = x // the last pointer takes the register of the struct
		if i < len(mmaDotsFields)-1 {
			p[name] = fn.GP(name)
		}
		fn.I("MOVQ", x.At(8*i), p[name])
	}
	return p
}

// mmaDotsNextRow moves the pointers that differ between rows to the next one.
func mmaDotsNextRow(fn *Func, p map[string]Reg) {
	fn.I("ADDQ", 8, p["bad"])
	fn.I("ADDQ", 256, p["c"])
	fn.I("ADDQ", 64, p["a"])
	for _, name := range []string{"masksA", "expsA"} {
		fn.I("ADDQ", 16, p[name])
	}
	fn.I("ADDQ", 32, p["scalesA"])
}

// mmaDots writes the kernel of FP4 units with block scales.
func mmaDots(f *File) {
	fn := f.Func("groupDots", `groupDots adds 64 products, four exact dot products of 16, to each of rows × 64 results, as
runDots does.`, "rows int, x *dotsArgs")
	rows := fn.Arg("rows")
	p := mmaDotsPointers(fn)
	t, col := fn.GP("scratch"), fn.GP("columns before these 16")
	lanes := func(name string, at int) Mem { return p[name].At(at).By(col, 4) }
	const blocks = 4
	dot := fourVectors(fn, 0, "dot products times 4")
	e, acc, y, z, w := Z(4), Z(5), Z(6), Z(7), Z(8)
	fields, bias, abs, low, high, zero := Z(23), Z(24), Z(25), Z(26), Z(27), Z(30)
	wide, inverse, quarter := Z(20), Z(31), Z(29)
	for _, constant := range []struct {
		v     Vec
		value int
	}{{fields, 0xff}, {bias, 127}, {abs, 0x7fffffff}, {low, -mmaMaxExp}, {high, mmaMaxExp}, {zero, 0}} {
		broadcast(fn, uint32(int32(constant.value)), t, constant.v)
	}
	fn.I("MOVQ", 1023+35, t)
	mmaWide(fn, t, wide, inverse)
	fn.I("MOVQ", fmt.Sprintf("$0x%016x", uint64(2)<<52), t)
	fn.I("VPBROADCASTQ", t, quarter)
	row := fn.Label("row")
	fn.I("XORQ", col, col)
	vector := fn.Label("columns")
	fn.I("VMOVUPS", lanes("c", 0), acc)
	mmaField(fn, acc, e, fields, bias, abs)
	fn.I("KXORW", K(1), K(1), K(1)) // columns with a nonzero product
	for s := range blocks {
		fn.I("VPSUBD", lanes("sums", 256*s), zero, dot[s])
		for word := range 4 {
			fn.I("VPBROADCASTD", p["a"].At(16*s+4*word), y)
			fn.I("VPDPBUSD", lanes("b", 256*(4*s+word)), y, dot[s])
		}
		fn.I("VPBROADCASTD", p["masksA"].At(4*s), y)
		fn.I("VPTESTMD", lanes("masksB", 256*s), y, K(3))
		fn.I("KORW", K(3), K(1), K(1))
		fn.I("VPBROADCASTD", p["expsA"].At(4*s), y)
		fn.I("VPADDD", lanes("expsB", 256*s), y, y)
		fn.I("VPMAXSD", y, e, K(3), e)
	}
	fn.I("KNOTW", K(1), K(1))
	mmaRange(fn, 1, 0, e, zero, low, high, t, p["bad"].At(0))
	fn.I("RORQ", 16, p["bad"].At(0)) // four times, so that each 16 come to their place
	for h := range 2 {
		fn.I("VEXTRACTI64X4", h, e, y.Y())
		fn.I("VPMOVSXDQ", y.Y(), y)
		fn.I("VPSUBQ", y, wide, y)
		fn.I("VPSLLQ", 52, y, y) // 2^(35-E)
		fn.I("VCVTPS2PD", lanes("c", 32*h), z)
		fn.I("VMULPD", y, z, z)
		fn.I("VRNDSCALEPD", 3, z, z)
		fn.I("VADDPD", zero, z, z)    // not -0, to which negative dot products times zero scales add -0
		fn.I("VPSUBQ", quarter, y, w) // 2^(33-E)
		for s := range blocks {
			fn.I("VEXTRACTI64X4", h, dot[s], Y(9))
			fn.I("VCVTDQ2PD", Y(9), Z(9))
			fn.I("VMULPD", p["scalesB"].At(512*s+64*h).By(col, 8), Z(9), Z(9))
			fn.I("VBROADCASTSD", p["scalesA"].At(8*s), Z(10))
			fn.I("VMULPD", Z(10), Z(9), Z(9))
			fn.I("VMULPD", w, Z(9), Z(9))
			fn.I("VRNDSCALEPD", 3, Z(9), Z(9))
			fn.I("VADDPD", Z(9), z, z)
		}
		mmaStore(fn, z, y, inverse, lanes("c", 32*h))
	}
	fn.I("ADDQ", 16, col)
	fn.I("CMPQ", col, 64)
	fn.Jump("JNE", vector)
	mmaDotsNextRow(fn, p)
	fn.I("SUBQ", 1, rows)
	fn.Jump("JNZ", row)
	fn.Return()
}
