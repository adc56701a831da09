package asm

// An emitter takes instructions: a function at once, a sequence for later.
type emitter interface {
	I(mnemonic string, operands ...any)
}

// clampTo leaves the lesser magnitude of limit and y in y, with the sign of y.
func clampTo(e emitter, limit, y Vec) { e.I("VRANGEPS", 2, limit, y, y) }

// roundingSum sets sum to that of x, a vector or its memory: least is ±2^E of the
// smallest normal element, anchor what e is multiplied by (see Quant).
func roundingSum(e emitter, x any, sum, binade, least, anchor Vec) {
	e.I("VPANDD", x, binade, sum)
	e.I("VRANGEPS", 3, least, sum, sum) // the greater magnitude
	e.I("VFMADD213PS", x, anchor, sum)
}

// gatherTables makes the indices of the lowest and of the highest bytes of the dwords
// of two vectors, in tables whose names begin with prefix.
func gatherTables(f *File, prefix string) (low, high Sym) {
	low = f.Table(prefix+"Low", indices(func(i int) int { return 4 * i % 128 }))
	return low, f.Table(prefix+"High", indices(func(i int) int { return (4*i + 3) % 128 }))
}

// gatherCodes joins the lowest bytes of the dwords of Z4 to Z7, which are codes, and
// the highest of Z0 to Z3, whose first bits are their signs, to 64 codes in Z4.
func (fn *Func) gatherCodes(low, high, sign, signShift Vec) {
	for j := 0; j < 4; j += 2 {
		fn.I("VPERMT2B", Z(j+1), high, Z(j))
		fn.I("VPERMT2B", Z(4+j+1), low, Z(4+j))
	}
	fn.I("VINSERTI64X4", 1, Y(2), Z(0), Z(0))
	fn.I("VINSERTI64X4", 1, Y(6), Z(4), Z(4))
	fn.I("VPSRLW", signShift, Z(0), Z(0))
	fn.I("VPTERNLOGD", 0xd8, sign, Z(0), Z(4)) // where sign is set Z0, else Z4
}

// joinTables are the read-only data with which four vectors of rounding sums become
// 64 codes.
type joinTables struct {
	pair   Sym         // indices of the second and fourth bytes of dwords, twice
	swap   Sym         // indices of words that change places
	order  map[int]Sym // where the codes are, by the bits of a source element: bytes in a lane, or words
	dwords Sym         // then, of float32, the dwords
}

// makeJoinTables makes tables whose names begin with prefix. The four vectors are
// those of 64 float32, or the even and odd elements of 32 BF16, and of 32 more.
func makeJoinTables(f *File, prefix string) joinTables {
	return joinTables{
		pair: f.Table(prefix+"Pair", indices(func(i int) int { return i%16 | 1 })),
		swap: f.Table(prefix+"Swap", indices(func(i int) int { return i%16 ^ 2 })),
		order: map[int]Sym{
			32: f.Table(prefix+"Order", indices(func(i int) int { return i%4*4 + i%16/4 })),
			16: f.Table(prefix+"OrderBF16", halves(func(w int) int { return w%16*2 + w/16 })),
		},
		dwords: dwordsTable(f, prefix),
	}
}

// dwordsTable has the order of the dwords of a transposed 4 times 4.
func dwordsTable(f *File, prefix string) Sym {
	var order []uint32
	for i := range uint32(16) {
		order = append(order, i%4*4+i/4)
	}
	return f.shared(prefix+"LaneDwords", words(order...))
}

// orderCodes puts 64 codes in the order of the elements.
func orderCodes(e emitter, source int, v Vec) {
	if source == 16 {
		e.I("VPERMW", v, zOrder, v)
		return
	}
	e.I("VPSHUFB", zOrder, v, v)
	e.I("VPERMD", v, zDword, v)
}

// Registers of constants that fused kernels and column kernels share.
var (
	zTimes = Z(18) // what the halves of a rounding sum are multiplied by
	zPair  = Z(19)
	kOdd   = K(5) // the first and third byte of each dword
)

// loadTimes fills zTimes by way of r and Z0. Half a rounding sum t, as 16 bits with a
// sign, is its significand and bias, the other its sign and exponent. A sum of both,
// multiplied, is t + t>>shift from bit 8 on, the code, and the sign from bit 19 on at
// the latest.
func (fn *Func) loadTimes(c constants, r Reg) {
	broadcast(fn, 1<<24, r, zTimes)
	fn.I("VPSRLVD.BCST", c.At("shift"), zTimes, zTimes)
	fn.I("VPSLLD", 16, zTimes, zTimes)
	broadcast(fn, 1<<8, r, Z(0))
	fn.I("VPORD", Z(0), zTimes, zTimes)
}

// loadJoin fills zTimes, zPair, zSwap, zOrder, kOdd, kLow and kHigh by way of r and Z0.
func (fn *Func) loadJoin(t joinTables, source int, c constants, r Reg) {
	fn.loadTimes(c, r)
	fn.I("VMOVDQU64", t.pair, zPair)
	fn.I("VMOVDQU64", t.swap, zSwap)
	fn.I("VMOVDQU64", t.order[source], zOrder)
	if source == 32 {
		fn.I("VMOVDQU64", t.dwords, zDword)
	}
	fn.I("MOVQ", "$0x5555555555555555", r)
	fn.I("KMOVQ", r, kOdd)
	fn.I("MOVQ", "$0x3333333333333333", r)
	fn.I("KMOVQ", r, kLow)
	fn.I("KNOTQ", kLow, kHigh)
}

// joinSums takes four vectors of rounding sums times zTimes: the code is in the
// second byte of a dword, the sign its highest bit. It leaves the codes of each four
// lanes in the dwords of v[1], and their signs in those of v[3], by way of t.
func joinSums(e emitter, v [4]Vec, t Vec) {
	e.I("VPSHUFB", zPair, v[0], kOdd, v[1]) // two codes, and two bytes of signs
	e.I("VPSHUFB", zPair, v[2], kOdd, v[3])
	e.I("VMOVDQA64", v[1], t)
	e.I("VPSHUFB", zSwap, v[3], kHigh, v[1])
	e.I("VPSHUFB", zSwap, t, kLow, v[3])
}
