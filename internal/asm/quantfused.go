package asm

import (
	"fmt"
	"slices"
)

// A fused kernel quantizes groups of 16 blocks: amax, scale and codes from one
// read of the source, in the order of a fusedLoop.
type fused struct {
	*Func
	fusedKind
	packing packing // of the codes
	c       constants
	tables  fusedTables

	fusedLoop
	maxima, second Reg // amaxes of the columns of a group; its bit 1 is set in the second half of a group
}

// exponentNames are the constants of kernels with E8M0 scales, in the order of
// quant's exponentConstants; globalNames those of its globalConstants.
var (
	exponentNames = []string{"ratio", "up", "down", "low", "span", "floor", "least", "base", "step", "anchor", "shift", "limit", "factor",
		"sign", "bits"}
	globalNames = []string{"encode", "decode", "infinity", "limit", "least", "anchor", "shift", "scaleLimit", "scaleLeast", "scaleAnchor",
		"rebias", "one", "most"}

	// of those of exponentWords, exponentNibbles and globalNibbles
	exponentWordNames   = slices.Concat(exponentNames, []string{"below", "wordLow", "wordTimes", "byteTie", "byteNormal"})
	exponentNibbleNames = slices.Concat(exponentNames, []string{"below"})
	globalNibbleNames   = slices.Concat(globalNames, []string{"below", "offsets", "zeroOffset"})
)

// codesAhead is the prefetch distance of codes, in bytes.
const codesAhead = 1024

// Registers that hold constants all along, with zTimes, zPair and kOdd. Z0 to Z7
// are scratch registers of amaxes and scales, Z8 to Z16 of codes.
var (
	zAbs        = Z(31) // magnitude of a source element
	zBinade     = Z(30) // sign and exponent of a float32
	zUpper      = Z(29) // the upper half of a dword
	zSwap       = Z(28) // indices of bytes that are exchanged with those two before or after
	zOrder      = Z(27) // indices that put 64 bytes in the order of the elements: of bytes in lanes, words or dwords
	zSign       = Z(26) // the sign bit of each code
	zLimit      = Z(25) // largest code in each byte; INT8, global: largest magnitude as float32
	zSpread     = Z(24) // indices of quadwords of bytes of two codes each; of codes of 6 bits, of dwords
	zJoin       = Z(23) // multipliers that join codes of less than a byte
	zJoin2      = Z(22)
	zDword      = Z(17) // indices of dwords or quadwords, after zOrder
	zSixes      = Z(21) // indices of the 12 bytes of a lane that 16 codes of 6 bits fill
	zAmax       = Z(20) // largest amax so far
	zLeast      = Z(22) // global: 2^(exponent of the smallest normal); it joins nibbles only
	zAnchor     = Z(21) // global: 2^(23-m)·(1 + bias·2^-23)
	kUpperLanes = K(2)  // global, of BF16: the second half of a vector
	kFlags      = K(7)  // blocks for the reference implementation
	kSixes      = K(6)  // the 48 bytes
	kLow        = K(4)  // the first and second byte of each dword
	kHigh       = K(3)  // the third and fourth
)

// fusedTables are the read-only data of the fused kernels, some by the bits of a
// source element.
type fusedTables struct {
	joinTables
	packed map[int]Sym  // the order of bytes that were packed with signs
	spread Sym          // the order of quadwords of bytes that hold two codes
	words  map[bool]Sym // where the amaxes of BF16 blocks are when they are folded: E8M0 scales, and global
	sixes  Sym          // indices of the bytes of codes of 6 bits in each lane, three from each dword
	threes Sym          // then of the dwords, three from each lane

	nibbles nibbleTables
}

func makeFusedTables(f *File) fusedTables {
	return fusedTables{
		joinTables: makeJoinTables(f, "quant"),
		packed: map[int]Sym{
			32: dwordsTable(f, "quant"),
			16: f.Table("quantPackedBF16", indices(func(i int) int { return (i%16/8*2+i%2)*4 + i/2%4 })),
		},
		spread: quadsTable(f),
		words: map[bool]Sym{
			false: f.Table("quantBlocks", halves(func(i int) int { return i/16*16 + i/2%8 })),
			true:  f.Table("quantBlocksGlobal", halves(func(i int) int { return i/2%2*16 + i/4 })),
		},
		sixes:   sixesTable(f, "quant"),
		threes:  threesTable(f, "quant"),
		nibbles: makeNibbleTables(f),
	}
}

// quadsTable has the order of the quadwords of two vectors that were packed in lanes.
func quadsTable(f *File) Sym {
	var order []uint32
	for q := range uint32(8) {
		order = append(order, q%4*2+q/4, 0)
	}
	return f.Table("quantQuads", words(order...))
}

// sixesTable has the three low bytes of each dword of a lane, 12 in all.
func sixesTable(f *File, prefix string) Sym {
	return f.Table(prefix+"Sixes", indices(func(i int) int { return min(i%16, 11)/3*4 + min(i%16, 11)%3 }))
}

// threesTable has the first three dwords of each lane.
func threesTable(f *File, prefix string) Sym {
	return f.Table(prefix+"Threes", words(0, 1, 2, 4, 5, 6, 8, 9, 10, 12, 13, 14, 15, 15, 15, 15))
}

// A fusedKind is the source and the codes of a fused kernel, in either tier.
type fusedKind struct {
	source, bits int  // of an element: 32, or 16 (BF16); of a stored code
	integer      bool // INT8 elements
	global       bool // E4M3 scales under a global one, 16 elements to a block; else E8M0 and 32
	lookup       bool // codes from tables, of 4 bits from BF16
	words        bool // codes of 4 or 8 bits from BF16, by the bits of words
}

// fusedKinds returns the kinds that have kernels.
func fusedKinds() []fusedKind {
	var kinds []fusedKind
	for _, k := range []fusedKind{{bits: 8}, {bits: 4}, {bits: 8, integer: true}, {bits: 4, global: true}} {
		for _, k.source = range []int{32, 16} {
			kinds = append(kinds, k)
		}
	}
	return kinds
}

// storesSixes reports whether the kernel also makes codes of 6 bits.
func (k fusedKind) storesSixes() bool { return k.bits == 8 && !k.integer && !k.words }

// begin begins a kernel of groups of that many blocks, whose non-temporal stores need
// multiples of that many bytes, and returns the names of its constants. columns adds the
// parameter maxima.
func (k fusedKind) begin(f *File, suffix string, blocks, multiple int, columns bool) (*Func, []string) {
	name, kind, names := "fuse", "exponentConstants", exponentNames
	if k.global {
		name, kind, names = "fuseGlobal", "globalConstants", globalNames
	}
	switch {
	case k.integer:
		name = "fuseInt"
	case k.words && k.global:
		kind = "globalCuts"
	case k.words && k.bits == 8:
		kind, names = "exponentWords", exponentWordNames
	case k.lookup && k.global:
		kind, names = "globalNibbles", globalNibbleNames
	case k.lookup:
		kind, names = "exponentNibbles", exponentNibbleNames
	}
	name = fmt.Sprint(name, k.bits) + sourceSuffix(k.source) + suffix
	codes := fmt.Sprint(k.bits)
	if k.storesSixes() {
		codes = "8 bits, or 6 where c.bits is 6"
	} else {
		codes += " bits"
	}
	doc, maxima := fmt.Sprintf(gapsDoc, multiple), ""
	if columns {
		doc, maxima = doc+fmt.Sprintf(" Unless maxima is nil, it is a row of\n%s that is raised to the magnitudes of each column.",
			sourceName(k.source)), "maxima *byte, "
	}
	return f.Func(name, fmt.Sprintf(`%s quantizes rows of groups of %d blocks, at least one, from %s to codes of
%s, and returns the bits of the largest magnitude; all ones where a block
must be encoded by the reference implementation. `, name, blocks, sourceName(k.source), codes)+doc,
		"p fusedArgs, "+maxima+"c *"+kind+") (amax uint64"), names
}

const (
	gapsDoc = `Gaps are the bytes from the end
of a row to the next one. Memory ahead bytes further in src is prefetched, and codeAhead
bytes further in codes. Where stream is not zero, codes leave by non-temporal stores to a
multiple of %d.`
	// fusedFields are the fields of quant.fusedArgs.
	fusedFields = "codes, scales, src *byte, groups, rows, codeGap, scaleGap, srcGap, ahead, codeAhead, stream int"
)

func quantFused() *File {
	f := NewFile("quant", "fused")
	tables := makeFusedTables(f)
	write := func(kind fusedKind, suffix string) {
		k := fused{fusedKind: kind, packing: packings[kind.bits], tables: tables}
		k.Func, k.c.names = kind.begin(f, suffix, 16, 64, true)
		k.emit(f)
	}
	for _, kind := range fusedKinds() {
		write(kind, "")
		if kind.bits == 4 && kind.source == 16 {
			kind.lookup = true
			write(kind, "Lookup")
		}
	}
	return f
}

// block returns the number of elements that share a scale.
func (k *fused) block() int {
	if k.global {
		return 16
	}
	return 32
}

// groupBytes returns the size of a group in the source.
func (k *fused) groupBytes() int { return 16 * k.block() * k.source / 8 }

func (k *fused) emit(f *File) {
	k.fusedLoop.take(k.Func, &k.c.base)
	k.maxima, k.second = k.left, k.started // which are free while scales are computed, and 0 or 1
	const buffer = 128
	k.Frame(2*buffer + 64)
	k.load()
	k.I("LEAQ", SP.At(63), k.write)
	k.I("ANDQ", -64, k.write)
	k.I("LEAQ", k.write.At(buffer), k.read)
	step := 64 // elements
	if k.lookup {
		step = 128
	}
	k.run(k.Func, 16*k.block()/step, 4*step/k.block(), func() {
		k.foldAmaxes(f)
		k.Emit(k.factors())
	}, func() {
		k.prefetchSource(k.Func, step*k.source/8)
		if k.lookup {
			k.storeNibbles()
		} else {
			k.storeSums()
		}
		k.I("ADDQ", step*k.source/8, k.src)
	})
	k.result()
}

// storeSums stores the codes of 64 elements, computed by rounding sums.
func (k *fused) storeSums() {
	var s sequence
	for i := range zSums {
		if k.integer {
			k.integers(&s, i)
		} else {
			k.sums(&s, i)
		}
	}
	k.join(&s)
	k.Emit(s)
	stored := k.NewLabel("stored")
	if k.storesSixes() {
		k.storeSixes(stored)
	}
	if k.packing.bits == 4 {
		k.joinPairs(stored)
	}
	k.storeCodes("VMOVDQU64", zSums[1], k.dst.At(0), k.codeAhead)
	k.I("ADDQ", 64, k.dst)
	k.Place(stored)
}

// storeSixes stores 64 codes of 6 bits and continues at stored, where codes have 6 bits.
func (k *fused) storeSixes(stored Label) {
	other, codes := k.NewLabel("other"), zSums[1]
	k.I("CMPL", k.c.At("bits"), "$6")
	k.Jump("JNE", other)
	joinSixes(k, codes)
	k.I("VPSHUFB", zSixes, codes, codes)
	k.I("VPERMD", codes, zSpread, codes)
	k.I("PREFETCHT0", k.dst.At(0).By(k.codeAhead, 1))
	k.I("VMOVDQU8", codes, kSixes, k.dst.At(0))
	k.I("ADDQ", 48, k.dst)
	k.Jump("JMP", stored)
	k.Place(other)
}

// storeCodes stores codes, by a non-temporal store where the argument stream is not
// zero. Otherwise it prefetches the destination of later codes, if a register has the
// distance.
func (fn *Func) storeCodes(store string, codes Vec, at Mem, ahead Reg) {
	plain, stored := fn.NewLabel("plain"), fn.NewLabel("stored")
	fn.I("CMPQ", fn.FP("stream"), "$0")
	fn.Jump("JEQ", plain)
	fn.I("VMOVNTDQ", codes, at)
	fn.Jump("JMP", stored)
	fn.Place(plain)
	if ahead != "" {
		fn.I("PREFETCHT0", at.By(ahead, 1))
	}
	fn.I(store, codes, at)
	fn.Place(stored)
}

// load fills the registers of constants.
func (k *fused) load() {
	abs := uint32(0x7fffffff)
	if k.source == 16 {
		abs = 0x7fff7fff
	}
	broadcast(k.Func, abs, k.write, zAbs)
	k.I("VPXORD", zAmax, zAmax, zAmax)
	k.I("KXORW", kFlags, kFlags, kFlags)
	if k.lookup {
		k.loadNibbles(k.write)
		return
	}
	if k.source == 16 {
		broadcast(k.Func, 0xffff0000, k.write, zUpper)
	}
	broadcast(k.Func, 0xff800000, k.write, zBinade)
	k.I("VPBROADCASTD", k.c.At("limit"), zLimit)
	if k.integer {
		k.I("VMOVDQU64", k.tables.packed[k.source], zOrder)
		k.I("VMOVDQU64", k.tables.spread, zDword)
		return
	}
	k.loadJoin(k.tables.joinTables, k.source, k.c, k.write)
	if k.storesSixes() {
		k.I("VPBROADCASTD", k.c.At("sign"), zSign)
		k.loadSixes(k.write)
	} else {
		broadcast(k.Func, 0x01010101<<k.packing.sign, k.write, zSign)
		broadcast(k.Func, 0x10011001, k.write, zJoin) // bytes times 1, 16
		k.I("VMOVDQU64", k.tables.spread, zSpread)
	}
	if k.global {
		if k.source == 16 {
			k.I("MOVL", "$0xff00", k.write)
			k.I("KMOVW", k.write, kUpperLanes)
		}
		k.I("VPBROADCASTD", k.c.At("least"), zLeast)
		k.I("VPBROADCASTD", k.c.At("anchor"), zAnchor)
	}
}

// loadSixes fills the registers that codes of 6 bits are joined with, using t.
func (k *fused) loadSixes(t Reg) {
	broadcast(k.Func, 0x40014001, t, zJoin)  // bytes times 1, 64
	broadcast(k.Func, 0x10000001, t, zJoin2) // words times 1, 4096
	k.I("VMOVDQU64", k.tables.sixes, zSixes)
	k.I("VMOVDQU64", k.tables.threes, zSpread)
	k.I("MOVQ", "$0x0000ffffffffffff", t)
	k.I("KMOVQ", t, kSixes)
}

// result returns the largest amax, or all ones if a flag is set.
func (k *fused) result() { k.amaxOrFlags(k.write, k.read) }

// amaxOrFlags returns the largest dword of zAmax as amax, or all ones where a bit of kFlags
// is set, using two registers.
func (fn *Func) amaxOrFlags(amax, flags Reg) {
	fn.Comment("the largest amax; all ones where a block was flagged")
	fn.maxDword(zAmax, amax)
	fn.I("KMOVW", kFlags, flags)
	fn.I("NEGL", flags) // carries if a flag is set
	fn.I("SBBL", flags, flags)
	fn.I("ORL", flags, amax)
	fn.I("MOVQ", amax, fn.FP("amax"))
	fn.Return()
}
