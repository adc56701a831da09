package asm

import (
	"bytes"
	"fmt"
)

// QuantAVX2 writes the AVX2 kernels of package quant: the same rounding as those
// of AVX-512, in 16 registers of 256 bits. AVX2 has no masks: kernels take whole units, and
// package quant pads row tails.
func QuantAVX2() []*File {
	return []*File{quantFused256(), quantBytes256(), quantStages256(), quantTraining256(), quantDecode256()}
}

// tables256 are read-only vectors. Those of words or bytes repeat one pattern.
type tables256 struct {
	abs, abs16, binade, upper Sym // magnitudes of float32 and of BF16; the exponent; the upper half of a dword
	low, sign                 Sym // the low byte of a dword; the sign of each byte
	order                     Sym // dwords 0 4 1 5 2 6 3 7
	words                     Sym // the same of the words in each half
	nibbles, sixes, twelves   Sym // multipliers that join two codes of 4 or 6 bits, and two of 12
	triples, packed           Sym // three bytes of each dword; six dwords of eight
}

func makeTables256(f *File) *tables256 {
	repeat := func(name string, pattern ...byte) Sym { return f.Table(name, bytes.Repeat(pattern, 32/len(pattern))) }
	half := func(of func(i int) int) []byte { return indices(of)[:16] }
	return &tables256{
		abs:     repeat("abs", 0xff, 0xff, 0xff, 0x7f),
		abs16:   repeat("abs16", 0xff, 0x7f),
		binade:  repeat("binade", 0, 0, 0x80, 0x7f),
		upper:   repeat("upper", 0, 0, 0xff, 0xff),
		low:     repeat("low", 0xff, 0, 0, 0),
		sign:    repeat("sign", 0x80),
		order:   f.Table("order", words(0, 4, 1, 5, 2, 6, 3, 7)),
		words:   repeat("words", half(func(i int) int { return i/2%2*8 + i/4*2 + i%2 })...),
		nibbles: repeat("nibbles", 1, 16),
		sixes:   repeat("sixes", 1, 64),
		twelves: repeat("twelves", 1, 0, 0, 16),
		triples: repeat("triples", half(func(i int) int {
			if i >= 12 {
				return 0x80 // zero
			}
			return i/3*4 + i%3
		})...),
		packed: f.Table("packed", words(0, 1, 2, 4, 5, 6, 3, 7)),
	}
}

// A kernel256 is an AVX2 kernel under construction that encodes 32 elements at a
// time. Y0 to Y7 are free between the steps.
type kernel256 struct {
	*Func
	*tables256
	source int // bits of a source element: 32 or 16 (BF16)
	c      constants
	slots  []string // names of the vectors on the stack
}

var (
	yFirst   = Y(8)  // codes of 4 bits: those of the first 32 elements of 64
	yOrder   = Y(9)  // float32: the order of dwords in which packing leaves the codes
	yZero    = Y(9)  // BF16
	yAnchor  = Y(10) // of a block: 2^(23-m)·(1 + bias·2^-23)
	yFactor  = Y(11) // of a block: the factor of its elements; or the binade of its smallest normal element
	yLow     = Y(12) // the low byte of a dword
	yShift   = Y(13) // 23 - mantissa bits
	yBinade  = Y(14) // the exponent of a float32
	yAbs     = Y(15) // magnitude of a source element
	yFactor2 = Y(10) // of the second block among 32 elements
)

// slot returns the stack slot of a vector, and reserves it on first use.
func (k *kernel256) slot(name string) Mem {
	for i, n := range k.slots {
		if n == name {
			return SP.At(32 * i)
		}
	}
	k.slots = append(k.slots, name)
	k.Frame(32 * len(k.slots))
	return k.slot(name)
}

// reserve reserves n contiguous slots and returns the first.
func (k *kernel256) reserve(name string, n int) Mem {
	for i := range n {
		k.slot(fmt.Sprint(name, i))
	}
	return k.slot(name + "0")
}

// spread fills slots with a constant each.
func (k *kernel256) spread(names ...string) {
	for _, n := range names {
		k.I("VPBROADCASTD", k.c.At(n), Y(0))
		k.I("VMOVDQU", Y(0), k.slot(n))
	}
}

// zero clears slots.
func (k *kernel256) zero(names ...string) {
	k.I("VPXOR", Y(0), Y(0), Y(0))
	for _, n := range names {
		k.I("VMOVDQU", Y(0), k.slot(n))
	}
}

// load fills the registers of constants.
func (k *kernel256) load() {
	k.I("VMOVDQU", k.binade, yBinade)
	k.I("VMOVDQU", k.low, yLow)
	k.I("VPBROADCASTD", k.c.At("shift"), yShift)
	if k.source == 16 {
		k.I("VMOVDQU", k.abs16, yAbs)
		k.I("VPXOR", yZero, yZero, yZero)
	} else {
		k.I("VMOVDQU", k.abs, yAbs)
		k.I("VMOVDQU", k.order, yOrder)
	}
}

// bytes returns the size of source elements in bytes.
func (k *kernel256) bytes(elements int) int { return elements * k.source / 8 }

// vectors returns the places of the vectors of 32 elements.
func (k *kernel256) vectors(at Mem) []Mem {
	var list []Mem
	for o := 0; o < k.bytes(32); o += 32 {
		list = append(list, at.At(o))
	}
	return list
}

// magnitudes calls each for every eight of the 32 elements in x, with their magnitudes in
// Y4. For BF16 it uses Y7.
func (k *kernel256) magnitudes(x []Mem, each func(i int, a Vec)) {
	a, both := Y(4), Y(7)
	for i := range 4 {
		if k.source == 32 {
			k.I("VPAND", x[i], yAbs, a)
		} else if i%2 == 0 {
			k.I("VPAND", x[i/2], yAbs, both)
			k.I("VPUNPCKLWD", both, yZero, a)
		} else {
			k.I("VPUNPCKHWD", both, yZero, a)
		}
		each(i, a)
	}
}

// pack leaves the codes in the dwords of Y0 to Y3 in the bytes of Y0, in an order
// that sort undoes.
func (k *kernel256) pack() {
	k.I("VPACKUSDW", Y(1), Y(0), Y(0))
	k.I("VPACKUSDW", Y(3), Y(2), Y(2))
	k.I("VPACKUSWB", Y(2), Y(0), Y(0))
}

// codes packs the magnitudes of the codes of the 32 elements in x. round makes, of
// the magnitudes of vector i, the rounding sums in e.
func (k *kernel256) codes(x []Mem, round func(i int, a, e Vec)) {
	k.magnitudes(x, func(i int, a Vec) {
		e := Y(5)
		round(i, a, e)
		k.I("VPSRLVD", yShift, e, a)
		k.I("VPADDD", a, e, e)
		k.I("VPAND", yLow, e, Y(i))
	})
	k.pack()
}

// roundScaled rounds a times the factor, clamped, by constants in slots.
func (k *kernel256) roundScaled(operation string, factor, a, e Vec) {
	k.I(operation, factor, a, a)
	k.I("VMINPS", k.slot("limit"), a, a)
	k.roundingSum(a, e)
}

// roundingSum sets e to the rounding sum of a, by constants in slots.
func (k *kernel256) roundingSum(a, e Vec) {
	k.I("VPAND", yBinade, a, e)
	k.I("VPMAXSD", k.slot("least"), e, e)
	k.I("VFMADD132PS", k.slot("anchor"), a, e) // e·anchor + a
}

// signs leaves the signs of the 32 elements in x in the uppermost bits of the
// bytes of Y4, in the order of codes.
func (k *kernel256) signs(x []Mem) {
	k.I("VMOVDQU", x[0], Y(4))
	if k.source == 16 {
		k.I("VPACKSSWB", x[1], Y(4), Y(4))
	} else {
		k.I("VPACKSSDW", x[1], Y(4), Y(4))
		k.I("VMOVDQU", x[2], Y(5))
		k.I("VPACKSSDW", x[3], Y(5), Y(5))
		k.I("VPACKSSWB", Y(5), Y(4), Y(4))
	}
	k.I("VPAND", k.sign, Y(4), Y(4))
}

// sort brings the dwords, or quadwords, of Y0 into the order of the elements.
func (k *kernel256) sort() {
	if k.source == 16 {
		k.I("VPERMQ", 0xd8, Y(0), Y(0))
	} else {
		k.I("VPERMD", Y(0), yOrder, Y(0))
	}
}

// pairs joins the codes of 4 bits in yFirst and Y0, 64 of them, in Y0. Both hold
// one code to a byte.
func (k *kernel256) pairs() {
	if k.source == 16 {
		k.I("VMOVDQU", k.order, Y(4))
		k.pairsBy(k.nibbles, Y(4))
		return
	}
	k.joinPairs(k.nibbles)
	k.I("VPERMQ", 0xd8, Y(0), Y(0))
	k.I("VPSHUFB", k.words, Y(0), Y(0))
}

// pairsBy is pairs of codes from BF16, by tables in registers or in memory.
func (k *kernel256) pairsBy(nibbles any, order Vec) {
	k.joinPairs(nibbles)
	k.I("VPERMD", Y(0), order, Y(0))
}

func (k *kernel256) joinPairs(nibbles any) {
	k.I("VPMADDUBSW", nibbles, yFirst, yFirst)
	k.I("VPMADDUBSW", nibbles, Y(0), Y(0))
	k.I("VPACKUSWB", Y(0), yFirst, Y(0))
}

// maxDword256 sets r to the largest dword of v, using Y0 and Y1.
func (fn *Func) maxDword256(v Vec, r Reg) {
	fn.maxInX0(v)
	fn.I("VMOVD", X(0), r)
}

// maxInX0 leaves the largest dword of v in every dword of X0, using X1.
func (fn *Func) maxInX0(v Vec) {
	fn.I("VEXTRACTI128", 1, v.Y(), X(1))
	fn.I("VPMAXUD", X(1), v.X(), X(0))
	fn.I("VPSHUFD", 0x4e, X(0), X(1))
	fn.I("VPMAXUD", X(1), X(0), X(0))
	fn.I("VPSHUFD", 0xb1, X(0), X(1))
	fn.I("VPMAXUD", X(1), X(0), X(0))
}

// sourceName returns the name of the element format of a source.
func sourceName(bits int) string { return fmt.Sprint(map[int]string{32: "float32", 16: "BF16"}[bits]) }
