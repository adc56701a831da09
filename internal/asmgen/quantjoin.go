package asmgen

// An emitter takes instructions: a function at once, a sequence for later.
type emitter interface {
	I(mnemonic string, operands ...any)
}

// joinTables are the read-only data with which four vectors of rounding sums become
// 64 codes.
type joinTables struct {
	pair  Sym         // indices of the second and fourth bytes of dwords, twice
	swap  Sym         // indices of words that change places
	order map[int]Sym // where the codes are, by the bits of a source element
}

// makeJoinTables makes tables whose names begin with prefix. The four vectors are
// those of 64 float32, or the even and odd elements of 32 BF16, and of 32 more.
func makeJoinTables(f *File, prefix string) joinTables {
	return joinTables{
		pair: f.Table(prefix+"Pair", indices(func(i int) int { return i%16 | 1 })),
		swap: f.Table(prefix+"Swap", indices(func(i int) int { return i%16 ^ 2 })),
		order: map[int]Sym{
			32: f.Table(prefix+"Order", indices(func(i int) int { return i%16*4 + i/16 })),
			16: f.Table(prefix+"OrderBF16", indices(func(i int) int { return i%32/2*4 + i/32*2 + i%2 })),
		},
	}
}

// loadJoin fills zTimes, as columns has it, zPair, zSwap, zOrder, kOdd, kLow and
// kHigh by way of r and Z0.
func (fn *Func) loadJoin(t joinTables, source int, c constants, r Reg) {
	broadcast(fn, 1<<24, r, zTimes)
	fn.I("VPSRLVD.BCST", c.At("shift"), zTimes, zTimes)
	fn.I("VPSLLD", 16, zTimes, zTimes)
	broadcast(fn, 1<<8, r, Z(0))
	fn.I("VPORD", Z(0), zTimes, zTimes)
	fn.I("VMOVDQU64", t.pair, zPair)
	fn.I("VMOVDQU64", t.swap, zSwap)
	fn.I("VMOVDQU64", t.order[source], zOrder)
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
