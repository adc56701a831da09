package asm

import (
	"encoding/binary"
	"math"
)

// Constants of the kernels of CDNA3, which package mma explains.
const (
	mmaMinFloorExp = -100
	mmaMaxFloorExp = 126
)

// mmaExact writes the kernel of CDNA1. It adds products in float64, once rounding down and once
// rounding up: where both sums round to the same FP32, so does the exact sum.
func mmaExact(f *File) {
	fn := f.Func("groupExact", `groupExact adds n products to each of rows × 64 results c, as runExactSums does. It sets bad to
the columns whose sums it does not know, and leaves these unchanged.`,
		"rows, n int, a, b, c *float32, bad *uint64")
	rows, n, a, b, c, bad := fn.Arg("rows"), fn.Arg("n"), fn.Arg("a"), fn.Arg("b"), fn.Arg("c"), fn.Arg("bad")
	col, k, t := fn.GP("bytes of columns before these eight"), fn.GP("product"), fn.GP("scratch")
	lower, upper, x, y := Z(0), Z(1), Z(2), Z(3)
	row := fn.Label("row")
	fn.I("XORQ", col, col)
	columns := fn.Label("columns")
	fn.I("VCVTPS2PD", c.At(0), lower)
	fn.I("VMOVAPD", lower, upper)
	fn.I("LEAQ", b.At(0).By(col, 1), t)
	fn.I("XORQ", k, k)
	products := fn.Label("products")
	fn.I("VCVTPS2PD.BCST", a.At(0).By(k, 4), x)
	fn.I("VCVTPS2PD", t.At(0), y)
	fn.I("VFMADD231PD.RD_SAE", x, y, lower)
	fn.I("VFMADD231PD.RU_SAE", x, y, upper)
	mmaNextProducts(fn, t, 256, k, 1, n, products)
	fn.I("VCVTPD2PS", lower, x.Y())
	fn.I("VCVTPD2PS", upper, y.Y())
	fn.I("VCMPPD", 4, upper, lower, K(1)) // not equal: zeros of different signs are
	fn.I("VPCMPD", 4, y.Y(), x.Y(), K(1), K(1))
	mmaStoreKnown(fn, y.Y(), 1, t, bad, c.At(0))
	fn.I("ADDQ", 32, c)
	mmaNextColumns(fn, col, columns)
	fn.I("LEAQ", a.At(0).By(n, 4), a)
	fn.I("SUBQ", 1, rows)
	fn.Jump("JNZ", row)
	fn.Return()
}

// mmaStoreKnown stores the eight lanes of v outside mask K(k), and the mask as a byte of bad.
func mmaStoreKnown(fn *Func, v Vec, k int, t, bad Reg, to Mem) {
	fn.I("KMOVW", K(k), t)
	fn.I("MOVB", t, bad.At(0))
	fn.I("ADDQ", 1, bad)
	fn.I("KNOTW", K(k), K(k))
	fn.I("VMOVUPS", v, K(k), to)
}

// mmaNextProducts ends the loop over n products of a row, some at a time; t moves on in the panel.
func mmaNextProducts(fn *Func, t Reg, bytes int, k Reg, some int, n Reg, products Label) {
	fn.I("ADDQ", bytes, t)
	fn.I("ADDQ", some, k)
	fn.I("CMPQ", k, n)
	fn.Jump("JNE", products)
}

// mmaNextColumns ends the loop over the columns of a row, eight at a time.
func mmaNextColumns(fn *Func, col Reg, columns Label) {
	fn.I("ADDQ", 32, col)
	fn.I("CMPQ", col, 256)
	fn.Jump("JNE", columns)
}

// mmaFloorFields are the pointers of mma.floorArgs in their order.
var mmaFloorFields = []string{"sums0", "exps0", "sums1", "exps1", "scaleA", "scaleB", "c", "bad"}

// An mmaFloorFunc writes groupFloor, which adds eight columns at a time.
type mmaFloorFunc struct {
	*Func
	words map[int]Sym    // constants
	wide  map[string]Sym // constants of 8 bytes
	p     map[string]Reg // pointers of mma.floorArgs
	at    Reg            // bytes of results before these eight
	col   Reg            // bytes of columns before these eight

	e0, e1, scaled, e, cut Vec // exponents of both sums, of the larger one with scales, and E; log2 of the units of the sum
}

// lanes returns the eight columns of a pointer to rows × 64 elements.
func (m *mmaFloorFunc) lanes(name string) Mem { return m.p[name].At(0).By(m.at, 1) }

// constants writes the table of constants.
func (m *mmaFloorFunc) constants(f *File) {
	var data []byte
	m.words, m.wide = map[int]Sym{}, map[string]Sym{}
	for _, constant := range []struct {
		name string
		bits uint64
	}{{"24", math.Float64bits(24)}, {"32", math.Float64bits(32)}, {"2^8", math.Float64bits(256)}, {"below", 1<<(52-31) - 1}} {
		m.wide[constant.name] = Sym{"floor", len(data)}
		data = binary.LittleEndian.AppendUint64(data, constant.bits)
	}
	for _, v := range []int{127, 32 - 24, mmaMaxFloorExp, mmaMinFloorExp, mmaNoProductExp, 0} { // 0 is padding
		m.words[v] = Sym{"floor", len(data)}
		data = binary.LittleEndian.AppendUint32(data, uint32(int32(v)))
	}
	f.Table("floor", data)
}

// mmaFloor writes the end of a group of CDNA3: both partial sums and C, rounded down.
func mmaFloor(f *File) {
	fn := f.Func("groupFloor", `groupFloor adds the partial sums of a group to each of rows × 64 results, as floorParts does. It sets
bad to the columns with exponents beyond its bounds, and leaves these unchanged. A C of more than
dropped bits below E counts as zero.`, "rows, dropped int, x *floorArgs")
	m := &mmaFloorFunc{Func: fn, p: map[string]Reg{}, at: fn.Arg("x")}
	m.constants(f)
	for i, name := range mmaFloorFields {
		m.p[name] = fn.GP(name)
		fn.I("MOVQ", m.at.At(8*i), m.p[name])
	}
	m.col = fn.GP("bytes of columns before these eight")
	t := fn.GP("scratch")
	scale, dropped := Y(16), Y(17)
	fn.I("VPBROADCASTD", fn.FP("dropped"), dropped)
	fn.I("XORQ", m.at, m.at)
	row := fn.Label("row")
	fn.I("VPBROADCASTD", m.p["scaleA"].At(0), scale)
	fn.I("XORQ", m.col, m.col)
	columns := fn.Label("columns")
	m.exponents(scale, dropped)
	sum := m.total()
	mmaStoreKnown(fn, sum, 1, t, m.p["bad"], m.lanes("c"))
	fn.I("ADDQ", 32, m.at)
	mmaNextColumns(fn, m.col, columns)
	fn.I("ADDQ", 4, m.p["scaleA"])
	fn.I("SUBQ", 1, fn.FP("rows"))
	fn.Jump("JNZ", row)
	fn.Return()
}

// exponents sets the exponents, K(1) to the columns beyond the bounds and K(3) to those where C counts.
func (m *mmaFloorFunc) exponents(scale, dropped Vec) {
	m.e0, m.e1, m.scaled, m.e = Y(0), Y(1), Y(2), Y(4)
	c := Y(3)
	m.I("VMOVDQU", m.lanes("exps0"), m.e0)
	m.I("VMOVDQU", m.lanes("exps1"), m.e1)
	m.I("VPMAXSD", m.e0, m.e1, m.scaled)
	m.I("VPSUBD", m.scaled, m.e0, m.e0)
	m.I("VPSUBD", m.scaled, m.e1, m.e1)
	m.I("VPADDD", scale, m.scaled, m.scaled)
	m.I("VPADDD", m.p["scaleB"].At(0).By(m.col, 1), m.scaled, m.scaled)
	m.I("VPSLLD", 1, m.lanes("c"), c)
	m.I("VPSRLD", 24, c, c)
	m.I("VPSUBD.BCST", m.words[127], c, c)
	m.I("VPMAXSD", c, m.scaled, m.e)
	m.I("VPCMPD.BCST", 1, m.words[mmaMinFloorExp], m.scaled, K(1)) // below
	m.I("VPCMPD.BCST", 6, m.words[mmaNoProductExp], m.scaled, K(1), K(1))
	m.I("VPCMPD.BCST", 6, m.words[mmaMaxFloorExp], m.e, K(2))
	m.I("KORW", K(2), K(1), K(1))
	m.I("VPSUBD", c, m.e, c)
	m.I("VPCMPD", 2, dropped, c, K(3)) // not more
	m.cut = m.scaled
	m.I("VPSUBD", m.e, m.scaled, m.cut)
	m.I("VPADDD.BCST", m.words[32-24], m.cut, m.cut)
}

// floor multiplies v by 2^power and rounds down.
func (m *mmaFloorFunc) floor(power, v Vec) {
	m.I("VSCALEFPD", power, v, v)
	m.I("VRNDSCALEPD", 1, v, v)
}

// total returns the sum of the products and C, rounded.
func (m *mmaFloorFunc) total() Vec {
	sum, other, c, power := Z(5), Z(6), Z(7), Z(8)
	for _, part := range []struct {
		name     string
		exp, sum Vec
	}{{"sums0", m.e0, sum}, {"sums1", m.e1, other}} {
		m.I("VCVTDQ2PD", m.lanes(part.name), part.sum)
		m.I("VCVTDQ2PD", part.exp, power)
		m.floor(power, part.sum)
	}
	m.I("VADDPD", other, sum, sum)
	m.I("VCVTDQ2PD", m.cut, power)
	m.floor(power, sum)
	m.I("VCVTDQ2PD", m.e, power)
	m.I("VBROADCASTSD", m.wide["24"], other)
	m.I("VSUBPD", power, other, other)
	m.I("VCVTPS2PD", m.lanes("c"), c)
	m.floor(other, c)
	m.I("VFMADD231PD.BCST", m.wide["2^8"], c, K(3), sum)
	m.I("VPSRAQ", 63, sum, other) // down to 32 bits: up for a negative sum's magnitude
	m.I("VPANDQ.BCST", m.wide["below"], other, other)
	m.I("VPADDQ", other, sum, sum)
	m.I("VPBROADCASTQ", m.wide["below"], other)
	m.I("VPANDNQ", sum, other, sum)
	m.I("VSUBPD.BCST", m.wide["32"], power, power)
	m.I("VSCALEFPD", power, sum, sum)
	m.I("VCVTPD2PS", sum, sum.Y())
	return sum.Y()
}

// mma2Chain writes the kernel of FP32 units.
func mma2Chain(f *File) {
	fn := f.Func("groupChainAVX2", "groupChainAVX2 adds n products to each of rows × 64 results c, as runChains does.",
		"rows, n int, a, b, c *float32")
	rows, n, a, b, c := fn.Arg("rows"), fn.Arg("n"), fn.Arg("a"), fn.Arg("b"), fn.Arg("c")
	col, k, t := fn.GP("bytes of columns before these eight"), fn.GP("product"), fn.GP("scratch")
	sum, x := Y(0), Y(1)
	row := fn.Label("row")
	fn.I("XORQ", col, col)
	columns := fn.Label("columns")
	fn.I("VMOVUPS", c.At(0), sum)
	fn.I("LEAQ", b.At(0).By(col, 1), t)
	fn.I("XORQ", k, k)
	products := fn.Label("products")
	fn.I("VBROADCASTSS", a.At(0).By(k, 4), x)
	fn.I("VFMADD231PS", t.At(0), x, sum)
	mmaNextProducts(fn, t, 256, k, 1, n, products)
	fn.I("VMOVUPS", sum, c.At(0))
	fn.I("ADDQ", 32, c)
	mmaNextColumns(fn, col, columns)
	fn.I("LEAQ", a.At(0).By(n, 4), a)
	fn.I("SUBQ", 1, rows)
	fn.Jump("JNZ", row)
	fn.Return()
}

// mma2Tree writes the kernel of CDNA2. The processor flushes subnormal results, and C.
func mma2Tree(f *File) {
	fn := f.Func("groupTreeAVX2", "groupTreeAVX2 adds n products, 2 or 4, to each of rows × 64 results c, as runTrees does.",
		"rows, n int, a, b, c *float32")
	rows, n, a, b, c := fn.Arg("rows"), fn.Arg("n"), fn.Arg("a"), fn.Arg("b"), fn.Arg("c")
	col := fn.GP("bytes of columns before these eight, and scratch")
	fn.Frame(8)                // both modes
	const flush = 1<<15 | 1<<6 // FTZ and DAZ
	zero, sum, x, y := Y(4), Y(5), Y(6), Y(7)
	fn.I("STMXCSR", SP.At(0))
	fn.I("MOVL", SP.At(0), col)
	fn.I("ORL", flush, col)
	fn.I("MOVL", col, SP.At(4))
	fn.I("LDMXCSR", SP.At(4))
	fn.I("VXORPS", zero, zero, zero)
	row := fn.Label("row")
	for k := range 2 {
		fn.I("VBROADCASTSS", a.At(4*k), Y(k))
		fn.I("VBROADCASTSS", a.At(4*k-8).By(n, 4), Y(2+k)) // the same for two products
	}
	fn.I("LEAQ", a.At(0).By(n, 4), a)
	fn.I("XORQ", col, col)
	columns := fn.Label("columns")
	two := fn.NewLabel("two")
	product := func(k int, to Vec) { fn.I("VMULPS", b.At(256*k).By(col, 1), Y(k), to) }
	product(0, sum)
	product(1, x)
	fn.I("VADDPS", x, sum, sum)
	fn.I("CMPQ", n, 2)
	fn.Jump("JEQ", two)
	product(2, x)
	product(3, y)
	fn.I("VADDPS", y, x, x)
	fn.I("VADDPS", x, sum, sum)
	fn.Place(two)
	fn.I("VADDPS", c.At(0), zero, x) // +0 for -0
	fn.I("VADDPS", x, sum, sum)
	fn.I("VMOVUPS", sum, c.At(0))
	fn.I("ADDQ", 32, c)
	mmaNextColumns(fn, col, columns)
	fn.I("SUBQ", 1, rows)
	fn.Jump("JNZ", row)
	fn.I("LDMXCSR", SP.At(0))
	fn.Return()
}

// mma2Aligned writes the sums of products of CDNA3, 16 columns at a time.
func mma2Aligned(f *File, constants map[int]Sym) {
	fn := f.Func("alignedSumsAVX2", `alignedSumsAVX2 sets sums and exps, 64 for each row, to those of n products, an even number, as
alignedSums does.`,
		"rows, n int, a *float32, ea *int16, b *float32, eb *int16, sums, exps *int32")
	m := &mma2{Func: fn, constants: constants}
	n := fn.Arg("n")
	m.a, m.ea, m.b, m.eb = fn.Arg("a"), fn.Arg("ea"), fn.Arg("b"), fn.Arg("eb")
	sums, exps := fn.Arg("sums"), fn.Arg("exps")
	left, t, k := fn.GP("columns left"), fn.GP("scratch"), fn.GP("product")
	const groups = 4 // of 16 columns
	row := fn.Label("row")
	fn.I("MOVQ", groups, left)
	columns := fn.Label("columns")
	fn.I("VPCMPEQW", Y(8), Y(8), Y(8))
	fn.I("VPSLLW", 15, Y(8), Y(8)) // the least word
	fn.I("MOVQ", m.eb, t)
	fn.I("XORQ", k, k)
	exponents := fn.Label("exponents")
	for i := range 2 {
		fn.I("VPBROADCASTW", m.ea.At(2*i).By(k, 2), Y(9))
		fn.I("VPADDW", t.At(128*i), Y(9), Y(9))
		fn.I("VPMAXSW", Y(9), Y(8), Y(8))
	}
	mmaNextProducts(fn, t, 2*128, k, 2, n, exponents)
	m.alignedScales(exps)
	fn.I("MOVQ", m.b, t)
	fn.I("XORQ", k, k)
	products := fn.Label("products")
	for i := range 2 {
		fn.I("VBROADCASTSS", m.a.At(4*i).By(k, 4), Y(8))
		for v := range 2 {
			z := Y(9 + 2*i + v)
			fn.I("VMULPS", t.At(256*i+32*v), Y(8), z)
			fn.I("VMULPS", Y(2+v), z, z)
			fn.I("VCVTTPS2DQ", z, z)
			fn.I("VPADDD", z, Y(v), Y(v))
		}
	}
	mmaNextProducts(fn, t, 2*256, k, 2, n, products)
	for v := range 2 {
		fn.I("VMOVDQU", Y(v), sums.At(32*v))
	}
	for _, step := range []struct {
		bytes int
		of    Reg
	}{{64, m.b}, {32, m.eb}, {64, sums}, {64, exps}} {
		fn.I("ADDQ", step.bytes, step.of)
	}
	fn.I("SUBQ", 1, left)
	fn.Jump("JNZ", columns)
	fn.I("SUBQ", 64*groups, m.b)
	fn.I("SUBQ", 32*groups, m.eb)
	fn.I("LEAQ", m.a.At(0).By(n, 4), m.a)
	fn.I("LEAQ", m.ea.At(0).By(n, 2), m.ea)
	fn.I("SUBQ", 1, fn.FP("rows"))
	fn.Jump("JNZ", row)
	fn.Return()
}

// alignedScales stores the largest exponents of the 16 columns of Y8, sets Y2 and Y3 to 2^(24-E), and
// clears the sums Y0 and Y1.
func (m *mma2) alignedScales(exps Reg) {
	for v := range 2 {
		scale := Y(2 + v)
		m.I("VPMOVSXWD", X(8), Y(9))
		m.I("VEXTRACTI128", 1, Y(8), X(8))
		m.I("VMOVDQU", Y(9), exps.At(32*v))
		for _, bound := range []struct {
			op    string
			value int
		}{{"VPMAXSD", mmaMinFloorExp}, {"VPMINSD", mmaMaxFloorExp}} {
			m.load(bound.value, Y(10))
			m.I(bound.op, Y(10), Y(9), Y(9))
		}
		m.load(127+24, scale)
		m.I("VPSUBD", Y(9), scale, scale)
		m.I("VPSLLD", 23, scale, scale)
		m.I("VPXOR", Y(v), Y(v), Y(v))
	}
}
