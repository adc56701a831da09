package asmgen

import "fmt"

// A fused kernel quantizes groups of 16 blocks: amax, scale and codes from one
// read of the source.
type fused struct {
	*Func
	source  int     // bits of a source element: 32 or 16 (BF16)
	packing packing // of the codes
	integer bool    // INT8 elements
	global  bool    // E4M3 scales under a global one, 16 elements to a block; else E8M0 and 32
	stream  bool    // codes are written past the caches, to multiples of 32 bytes
	c       constants
	tables  fusedTables

	dst, scales, src, groups Reg
	write, read              Reg // two buffers on the stack: factors being computed, factors in use
}

// exponentNames are the constants of kernels with E8M0 scales, in the order of
// quant's exponentConstants; globalNames those of its globalConstants.
var (
	exponentNames = []string{"ratio", "up", "down", "low", "span", "floor", "least", "base", "step", "anchor", "shift", "limit"}
	globalNames   = []string{"encode", "decode", "infinity", "limit", "least", "anchor", "shift", "scaleLimit", "scaleLeast", "scaleAnchor", "rebias", "one", "most"}
)

const (
	lead = 0.85 // how far the scales of a group run ahead of the codes of the one before
	// codesAhead is how far ahead room for codes is fetched, in bytes.
	codesAhead = 1024
)

// A fetch is how the source is asked for: into which cache, and how many bytes
// ahead of the codes.
type fetch struct {
	instruction string
	ahead       int
}

// fetches has what was fastest by bits of a source element.
var fetches = map[int]fetch{32: {"PREFETCHT1", 8192}, 16: {"PREFETCHT0", 6144}}

// Registers that hold constants all along. Z0 to Z7 serve the amaxes and scales,
// Z8 to Z19 the codes.
var (
	zAbs    = Z(31) // magnitude of a source element
	zBinade = Z(30) // sign and exponent of a float32
	zUpper  = Z(29) // the upper half of a dword
	zLow    = Z(28) // indices of the low bytes of 32 dwords
	zHigh   = Z(27) // indices of their high bytes, or of those of 32 words
	zSign   = Z(26) // the place of the sign in each code
	zLimit  = Z(25) // largest code in each byte; INT8, global: largest magnitude as float32
	zShift  = Z(24) // 23 - mantissa bits
	zJoin   = Z(23) // multipliers that join codes of less than a byte
	zJoin2  = Z(22)
	zSixes  = Z(21) // indices of the 48 bytes that 64 codes of 6 bits fill
	zAmax   = Z(20) // largest amax so far
	zLeast  = Z(22) // global: 2^(exponent of the smallest normal); it joins nibbles only
	zAnchor = Z(21) // global: 2^(23-m)·(1 + bias·2^-23)
	kFlags  = K(7)  // blocks that the plain form must do
	kSixes  = K(6)  // the 48 bytes
	kUpper  = K(5)  // global: the lanes of the second block of a vector
)

// fusedTables are the read-only data of the fused kernels.
type fusedTables struct {
	low, high     Sym // indices of the lowest and highest bytes of 32 dwords
	mixed, higher Sym // indices of the lowest bytes of two times 16 dwords by turns, and of the higher bytes of words
	pairs         Sym // the order of amaxes that are folded two blocks to a vector
	sixes         Sym // indices of 48 bytes, three from each dword
}

func makeFusedTables(f *File) fusedTables {
	return fusedTables{
		low:    f.Table("quantLow", indices(func(i int) int { return 4 * i % 128 })),
		high:   f.Table("quantHigh", indices(func(i int) int { return (4*i + 3) % 128 })),
		mixed:  f.Table("quantMixed", indices(func(i int) int { return i%2*64 + i/2*4%64 })),
		higher: f.Table("quantHigher", indices(func(i int) int { return (2*i + 1) % 64 })),
		pairs:  f.Table("quantPairs", words(pairOrder()...)),
		sixes:  f.Table("quantSixes", indices(func(i int) int { return i/3*4 + i%3 })),
	}
}

// pairOrder returns where the amax of each block is when every vector that was
// folded held two blocks.
func pairOrder() []uint32 {
	order := make([]uint32, 16)
	for i := range order {
		order[i] = uint32(i/8*8 + i%2*4 + i%8/2)
	}
	return order
}

func quantFused() *File {
	f := NewFile("quant", "fused")
	tables := makeFusedTables(f)
	for _, v := range []struct {
		name    string
		packing packing
		integer bool
		global  bool
	}{
		{"fuse8", packings[8], false, false},
		{"fuse6", packings[6], false, false},
		{"fuse4", packings[4], false, false},
		{"fuseInt8", packings[8], true, false},
		{"fuseGlobal4", packings[4], false, true},
	} {
		k := fused{packing: v.packing, integer: v.integer, global: v.global}
		for _, k.source = range []int{32, 16} {
			name := v.name + map[int]string{16: "BF16"}[k.source]
			quantFusedFrom(f, tables, name, k)
			if k.packing.bits != 6 { // whose codes do not fill lines as they come
				k.stream = true
				quantFusedFrom(f, tables, name+"Stream", k)
				k.stream = false
			}
		}
	}
	return f
}

// quantFusedFrom writes one kernel.
func quantFusedFrom(f *File, tables fusedTables, name string, k fused) {
	k.tables = tables
	kind, names := "exponentConstants", exponentNames
	if k.global {
		kind, names = "globalConstants", globalNames
	}
	how := ""
	if k.stream {
		how = "\nCodes are written past the caches, to a multiple of 32."
	}
	k.Func = f.Func(name, fmt.Sprintf(`%s quantizes groups of 16 blocks, at least one, from %s to codes of
%d bits, and returns the bits of the largest magnitude; all ones where a block
must be redone by the plain form.`, name, map[int]string{32: "float32", 16: "BF16"}[k.source], k.packing.bits)+how,
		"codes, scales, src *byte, groups int, c *"+kind+") (amax uint64")
	k.c = constants{names: names}
	k.emit()
}

// block returns the elements that share a scale.
func (k *fused) block() int {
	if k.global {
		return 16
	}
	return 32
}

// groupBytes returns the bytes of the source that a group takes.
func (k *fused) groupBytes() int { return 16 * k.block() * k.source / 8 }

func (k *fused) emit() {
	k.dst, k.scales, k.src, k.groups, k.c.base = k.Arg("codes"), k.Arg("scales"), k.Arg("src"), k.Arg("groups"), k.Arg("c")
	k.write, k.read = k.GP("factors being computed"), k.GP("factors in use")
	const buffer = 128
	k.Frame(2*buffer + 64)
	k.load()
	k.I("LEAQ", SP.At(63), k.write)
	k.I("ANDQ", -64, k.write)
	k.I("LEAQ", k.write.At(buffer), k.read)

	k.Comment("scales of the first group")
	first := k.amaxes(0)
	first = append(first, k.factors()...)
	k.Emit(first)
	k.I("XCHGQ", k.read, k.write)
	k.I("SUBQ", 1, k.groups)
	last := k.NewLabel("last")
	k.Jump("JZ", last)

	loop := k.Label("loop")
	k.Comment("codes of a group, and scales of the next")
	next := append(k.amaxes(k.groupBytes()), k.factors()...)
	k.Emit(interleave(k.codes(true), next, lead))
	k.I("ADDQ", k.groupBytes(), k.src)
	k.I("XCHGQ", k.read, k.write)
	k.I("SUBQ", 1, k.groups)
	k.Jump("JNZ", loop)

	k.Place(last)
	k.Comment("codes of the last group")
	k.Emit(k.codes(false))
	k.result()
}

// load fills the registers of constants.
func (k *fused) load() {
	abs := 0x7fffffff
	if k.source == 16 {
		abs = 0x7fff7fff
		k.dword(zUpper, 0xffff0000)
	}
	k.dword(zAbs, abs)
	k.dword(zBinade, 0xff800000)
	low, high := k.tables.low, k.tables.high
	if k.source == 16 {
		low, high = k.tables.mixed, k.tables.higher
	}
	k.I("VMOVDQU64", low, zLow)
	k.I("VMOVDQU64", high, zHigh)
	k.dword(zSign, 0x01010101<<k.packing.sign)
	k.I("VPBROADCASTD", k.c.At("limit"), zLimit)
	k.I("VPBROADCASTD", k.c.At("shift"), zShift)
	k.I("VPXORD", zAmax, zAmax, zAmax)
	k.I("KXORW", kFlags, kFlags, kFlags)
	switch k.packing.bits {
	case 6:
		k.dword(zJoin, 0x40014001)  // bytes times 1, 64
		k.dword(zJoin2, 0x10000001) // words times 1, 4096
		k.I("VMOVDQU64", k.tables.sixes, zSixes)
		k.I("MOVQ", "$0x0000ffffffffffff", k.write)
		k.I("KMOVQ", k.write, kSixes)
	case 4:
		k.dword(zJoin, 0x10011001) // bytes times 1, 16
	}
	if k.global {
		k.I("VPBROADCASTD", k.c.At("least"), zLeast)
		k.I("VPBROADCASTD", k.c.At("anchor"), zAnchor)
		k.I("MOVL", 0xff00, k.write)
		k.I("KMOVW", k.write, kUpper)
	}
}

// dword fills a register with one dword.
func (k *fused) dword(v Vec, value int) {
	k.I("MOVL", fmt.Sprintf("$0x%08x", uint32(value)), k.write)
	k.I("VPBROADCASTD", k.write, v)
}

// amaxes leaves the amaxes of the 16 blocks of a group, in their order, in Z0.
// Pairs of vectors are folded into one that holds maxima of both: dwords, then
// quadwords, then lanes change places until each dword is one block's.
func (k *fused) amaxes(offset int) sequence {
	var s sequence
	free := []Vec{Z(0), Z(1), Z(2), Z(3), Z(4), Z(5), Z(6), Z(7)}
	take := func() Vec { v := free[0]; free = free[1:]; return v }
	release := func(v Vec) { free = append([]Vec{v}, free...) }
	leaves := min(16, k.groupBytes()/64)
	leafBytes := k.groupBytes() / leaves
	var fold func(first, n int) Vec
	fold = func(first, n int) Vec {
		if n == 1 {
			v := take()
			at := k.src.At(offset + first*leafBytes)
			s.I("VPANDD", at, zAbs, v)
			t := take()
			if leafBytes == 128 {
				s.I("VPANDD", at.At(64), zAbs, t)
				s.I("VPMAXUD", t, v, v)
			}
			if k.source == 16 { // both halves of a dword become the greater
				s.I("VPROLD", 16, v, t)
				s.I("VPMAXUW", t, v, v)
			}
			release(t)
			return v
		}
		a := fold(first, n/2)
		b := fold(first+n/2, n/2)
		t := take()
		s.foldMaxima("VPMAXUD", n, a, b, t)
		release(t)
		release(b)
		return a
	}
	fold(0, leaves)
	if leaves < 16 {
		s.I("VMOVDQU64", k.tables.pairs, Z(1))
		s.I("VPERMD", Z(0), Z(1), Z(0))
	}
	if k.source == 16 {
		s.I("VPSLLD", 16, Z(0), Z(0))
	}
	s.I("VPMAXUD", Z(0), zAmax, zAmax)
	return s
}

// foldMaxima leaves in a the maxima of a and of b, each of which holds those of
// n/2 blocks; t is room.
func (s *sequence) foldMaxima(greater string, n int, a, b, t Vec) {
	switch n {
	case 2:
		s.I("VPUNPCKLDQ", b, a, t)
		s.I("VPUNPCKHDQ", b, a, a)
	case 4:
		s.I("VPUNPCKLQDQ", b, a, t)
		s.I("VPUNPCKHQDQ", b, a, a)
	default:
		s.I("VSHUFI32X4", 0x88, b, a, t)
		s.I("VSHUFI32X4", 0xdd, b, a, a)
	}
	s.I(greater, t, a, a)
}

// factors stores the scales of the amaxes in Z0, and in the write buffer what
// their elements are encoded with.
func (k *fused) factors() sequence {
	if k.global {
		return k.globalFactors()
	}
	return append(k.exponentFactors(k.scales.At(0)), instruction{"ADDQ", []any{16, k.scales}})
}

// exponentFactors: the code of a scale is the exponent of amax·ratio, raised by
// what the rule adds to the significand. The write buffer gets e of the smallest
// normal element, and behind it 2^(23-m)·(1 + bias·2^-23).
func (k *fused) exponentFactors(scales Mem) sequence {
	var s sequence
	amax, code, t := Z(0), Z(0), Z(1)
	s.I("VPSUBD.BCST", k.c.At("low"), amax, t)
	s.I("VPTESTMD", amax, amax, K(1))
	s.I("VPCMPUD.BCST", 6, k.c.At("span"), t, K(1), K(1))
	s.I("KORW", K(1), kFlags, kFlags)
	s.I("VMULPS.BCST", k.c.At("ratio"), amax, amax)
	s.I("VPADDD.BCST", k.c.At("up"), amax, amax)
	s.I("VPSRLD", 23, amax, code)
	s.I("VPSUBD.BCST", k.c.At("down"), code, code)
	s.I("VPXORD", t, t, t)
	s.I("VPMAXSD", t, code, code)
	s.I("VPMOVDB", code, scales)
	s.I("VPMAXSD.BCST", k.c.At("floor"), code, code)
	if k.integer {
		s.I("VPBROADCASTD", k.c.At("base"), t)
		s.I("VPSUBD", code, t, t)
		s.I("VPSLLD", 23, t, t)
		s.I("VMOVDQA64", t, k.write.At(0))
	} else {
		s.I("VPSUBD.BCST", k.c.At("least"), code, t)
		s.I("VPSLLD", 23, t, t)
		s.I("VMOVDQA64", t, k.write.At(0))
		s.I("VPBROADCASTD", k.c.At("base"), t)
		s.I("VPSUBD", code, t, t)
		s.I("VPBROADCASTD", k.c.At("step"), Z(2))
		s.I("VPSLLVD", Z(2), t, t)
		s.I("VPSLLD", 16, t, t) // modulo 2^16
		s.I("VPSRLD", 16, t, t)
		s.I("VPORD.BCST", k.c.At("anchor"), t, t)
		s.I("VMOVDQA64", t, k.write.At(64))
	}
	return s
}

// globalFactors: scale = e4m3(amax·encode), and the write buffer gets
// 1/(scale·decode), kept finite.
func (k *fused) globalFactors() sequence {
	var s sequence
	amax, t, u := Z(0), Z(1), Z(2)
	s.I("VPCMPUD.BCST", 5, k.c.At("infinity"), amax, K(1))
	s.I("KORW", K(1), kFlags, kFlags)
	s.I("VMULPS.BCST", k.c.At("encode"), amax, amax)
	s.I("VMINPS.BCST", k.c.At("scaleLimit"), amax, amax)
	s.I("VPANDD", amax, zBinade, t)
	s.I("VPMAXUD.BCST", k.c.At("scaleLeast"), t, t)
	s.I("VPBROADCASTD", k.c.At("scaleAnchor"), u)
	s.I("VFMADD213PS", amax, u, t)
	s.I("VPSRLD", 20, t, u)
	s.I("VPADDD", u, t, t)
	s.I("VPMOVDB", t, k.scales.At(0))
	s.I("VPSLLD", 24, t, t)
	s.I("VPSRLD", 4, t, t)
	s.I("VMULPS.BCST", k.c.At("rebias"), t, t)
	s.I("VMULPS.BCST", k.c.At("decode"), t, t)
	s.I("VPBROADCASTD", k.c.At("one"), u)
	s.I("VDIVPS", t, u, t)
	s.I("VMINPS.BCST", k.c.At("most"), t, t)
	s.I("VMOVDQA64", t, k.write.At(0))
	s.I("ADDQ", 16, k.scales)
	return s
}

// codes encodes a group with the factors of the read buffer.
func (k *fused) codes(ahead bool) sequence {
	var s sequence
	source := fetches[k.source]
	units := 16 * k.block() / 32
	unit := func(u, register int) Vec {
		if ahead {
			for o := 0; o < 32*k.source/8; o += 64 {
				s.I(source.instruction, k.src.At(u*32*k.source/8+o+source.ahead))
			}
		}
		return k.unit(&s, u, register)
	}
	store := "VMOVDQU"
	if k.stream {
		store = "VMOVNTDQ"
	}
	if ahead && !k.stream {
		for o := 0; o < k.packing.bytes(16*k.block()); o += 64 {
			s.I("PREFETCHT0", k.dst.At(o+codesAhead))
		}
	}
	if k.packing.bits == 8 {
		for u := range units {
			s.I(store, unit(u, 8+u%2*6).Y(), k.dst.At(32*u))
		}
	} else {
		for u := 0; u < units; u += 2 {
			a, b := unit(u, 8), unit(u+1, 14)
			s.I("VINSERTI64X4", 1, b.Y(), a, a)
			s.I("VPMADDUBSW", zJoin, a, a)
			at := k.dst.At(k.packing.bytes(32 * u))
			if k.packing.bits == 4 {
				s.I("VPMOVWB", a, a.Y())
				s.I(store, a.Y(), at)
				continue
			}
			s.I("VPMADDWD", zJoin2, a, a)
			s.I("VPERMB", a, zSixes, a)
			s.I("VMOVDQU8", a, kSixes, at)
		}
	}
	s.I("ADDQ", k.packing.bytes(16*k.block()), k.dst)
	return s
}

// unit encodes 32 elements into the low half of the register it returns. It
// uses six registers from the given one.
func (k *fused) unit(s *sequence, u, register int) Vec {
	a, b, c, d, f, g := Z(register), Z(register+1), Z(register+2), Z(register+3), Z(register+4), Z(register+5)
	x := k.elements(s, u, c, d)
	switch {
	case k.integer:
		s.I("VBROADCASTSS", k.read.At(4*u), f)
		for i, v := range []Vec{a, b} {
			s.I("VMULPS", x[i], f, v)
			s.I("VRANGEPS", 2, zLimit, v, v) // the lesser magnitude, with the sign of v
			s.I("VCVTPS2DQ", v, v)
		}
		s.I("VPERMT2B", b, zLow, a)
		return a
	case k.global:
		s.I("VBROADCASTSS", k.read.At(8*u), f)
		if k.source == 16 {
			s.I("VBROADCASTSS", k.read.At(8*u+4), kUpper, f)
			g = f
		} else {
			s.I("VBROADCASTSS", k.read.At(8*u+4), g)
		}
		for i, v := range []Vec{a, b} {
			y, factor := []Vec{c, d}[i], []Vec{f, g}[i]
			s.I("VMULPS", x[i], factor, y)
			s.I("VRANGEPS", 2, zLimit, y, y)
			s.I("VPANDD", y, zBinade, v)
			s.I("VRANGEPS", 3, zLeast, v, v) // the greater magnitude
			s.I("VFMADD213PS", y, zAnchor, v)
			s.I("VPSRLVD", zShift, v, y)
			s.I("VPADDD", y, v, v)
		}
	default:
		s.I("VBROADCASTSS", k.read.At(4*u), f)
		s.I("VBROADCASTSS", k.read.At(64+4*u), g)
		for i, v := range []Vec{a, b} {
			t := []Vec{c, d}[i]
			s.I("VPANDD", x[i], zBinade, v)
			s.I("VRANGEPS", 3, f, v, v)
			s.I("VFMADD213PS", x[i], g, v)
			s.I("VPSRLVD", zShift, v, t)
			s.I("VPADDD", t, v, v)
		}
	}
	at := k.src.At(u * 32 * k.source / 8)
	if k.source == 16 {
		s.I("VPERMB", at, zHigh, c)
	} else {
		s.I("VMOVDQU64", at, c)
		s.I("VPERMT2B", at.At(64), zHigh, c)
	}
	s.I("VPERMT2B", b, zLow, a)
	if !k.global { // some rules leave the largest magnitude above the limit
		s.I("VPMINUB", zLimit.Y(), a.Y(), a.Y())
	}
	if shift := 7 - k.packing.sign; shift > 0 {
		s.I("VPSRLW", shift, c.Y(), c.Y())
	}
	s.I("VPTERNLOGD", 0xd8, zSign.Y(), c.Y(), a.Y()) // where zSign is set c, else a
	return a
}

// elements returns where the float32 of unit u are: two vectors, in memory or in
// c and d. Those of BF16 are the even elements and the odd ones.
func (k *fused) elements(s *sequence, u int, c, d Vec) [2]any {
	at := k.src.At(u * 32 * k.source / 8)
	if k.source == 32 {
		return [2]any{at, at.At(64)}
	}
	s.I("VPSLLD", 16, at, c)
	s.I("VPANDD", at, zUpper, d)
	return [2]any{c, d}
}

// result returns the largest amax, or all ones where flags were raised.
func (k *fused) result() {
	k.Comment("the largest amax; all ones where a block was flagged")
	k.maxDword(zAmax, k.write)
	k.I("KMOVW", kFlags, k.read)
	k.I("NEGL", k.read) // carries where there is a flag
	k.I("SBBL", k.read, k.read)
	k.I("ORL", k.read, k.write)
	k.I("MOVQ", k.write, k.FP("amax"))
	k.Return()
}
