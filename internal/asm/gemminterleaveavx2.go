package asm

import (
	"bytes"
	"fmt"
)

// An interleaved256 writes a kernel of gemm.Interleave for vectors of 256 bits and 8-bit integers. Of the 16 rows of a group
// it multiplies the first eight, then the others, in each block.
//
// VPDPBUSD multiplies unsigned bytes of B, which are offset by a bias, by signed ones of A, exactly. Without it, VPMADDUBSW adds
// pairs of products in 16 bits. Of 4-bit codes, elements of B are 0 to 24 and those of A at most 128 in magnitude: a pair is below
// 2^13, and words hold the sums of four. Of 8-bit codes, it multiplies magnitudes of B by elements of A with the sign of the
// product, which are at most 127 in magnitude: a pair fits.
type interleaved256 struct {
	name        string
	block, bits int
	scale       interleavedScale // of 4-bit codes; those of 8 bits are of either kind, see interleavedArgs
	vnni        bool             // VPDPBUSD, in the encoding of processors without AVX-512

	interleavedHalves
	unit Sym // 2^8
}

// An interleavedScale is how blocks of interleaved codes are scaled.
type interleavedScale struct {
	bytes int // of a scale
	load  func(k *interleaved256, scale Vec)
	times string // combines it with that of A
}

var (
	interleavedE8M0 = interleavedScale{1, func(k *interleaved256, scale Vec) { k.exponents(scale) }, "VPADDD"}
	interleavedE4M3 = interleavedScale{1, func(k *interleaved256, scale Vec) { k.factors(scale, k.unit) }, "VMULPS"}
	interleavedF32  = interleavedScale{4, (*interleaved256).floats, "VMULPS"}
)

const halfRows = 8 // rows of B in a vector

func (k *interleaved256) vectors() int     { return k.block * k.bits / 32 } // of codes in a block
func (k *interleaved256) dot(b, i int) Vec { return Y(k.accumulators()*b + i) }
func (k *interleaved256) codes(i int) Vec  { return Y(8 + i) }
func (k *interleaved256) factor(i int) Vec { return Y(10 + i%3) }

// The constants: ones of words, low nibbles of bytes, and the integer of each nibble. 8-bit codes have the bias instead of the last.
func (k *interleaved256) ones() Vec  { return Y(13) }
func (k *interleaved256) low() Vec   { return Y(14) }
func (k *interleaved256) table() Vec { return Y(15) }

// accumulators returns the number of sums of a row of A in a block. Words hold no more than the products of half a block of 32.
func (k *interleaved256) accumulators() int {
	if !k.vnni && k.bits == 4 {
		return k.block / 16
	}
	return 1
}

func interleaved256Kernels(f *File) {
	for _, vnni := range []bool{false, true} {
		for _, k := range []interleaved256{
			{name: "MX4", block: 32, bits: 4, scale: interleavedE8M0},
			{name: "NV4", block: 16, bits: 4, scale: interleavedE4M3},
			{name: "8", block: 32, bits: 8},
		} {
			k.vnni = vnni
			k.write(f)
		}
	}
}

func (k *interleaved256) write(f *File) {
	name := "interleavedInt" + k.name + map[bool]string{false: "AVX2", true: "VNNI"}[k.vnni]
	doc := fmt.Sprintf("%s is an interleavedFunc for blocks of %d codes of %d bits and integers.", name, k.block, k.bits)
	k.interleavedHalves.write(f, name, doc, func(tmp Reg) {
		k.fn.Note("Y0…Y7", "sums of a block")
		k.fn.Note("Y13, Y14, Y15", "ones of words; low nibbles; integer of each nibble, or bias")
		k.unit = f.shared("float256", bytes.Repeat(words(0x43800000), 8))
		k.fn.I("VMOVDQU", tmp.At(0), k.table())
		broadcast(k.fn, 0x0f0f0f0f, tmp, k.low())
		k.fn.I("VMOVDQU", f.shared("wordOnes", bytes.Repeat([]byte{1, 0}, 16)), k.ones())
	}, vectorBatches, k.halves)
}

// halves adds the products of a block with both halves of the rows of B.
func (k *interleaved256) halves(batch int) {
	fn := k.fn
	if k.bits == 4 {
		fn.I("PREFETCHT0", k.s.At(interleavedAhead*32*k.scale.bytes/k.block/k.bits))
	}
	for i := range k.vectors() {
		fn.I("PREFETCHT0", k.w.At(interleavedAhead+64*i))
	}
	half := fn.Label(fmt.Sprintf("half%d", batch))
	k.multiply(batch)
	fn.I("ADDQ", 32, k.w)
	fn.I("XORQ", 128, k.off)
	fn.Jump("JNZ", half)
	if rest := 64*k.vectors() - 64; rest > 0 {
		fn.I("ADDQ", rest, k.w)
	}
	fn.I("ADDQ", k.block+8, k.x.x)
}

// An interleavedHalves is what kernels of gemm.Interleave for vectors of 256 bits have in common: groups of rows, and the sums of
// all rows of A, which are in the frame.
type interleavedHalves struct {
	fn   *Func
	w, s Reg
	x    vectorX
	sums Reg // of all rows of A, for the first eight rows of B, then for the others
	off  Reg // of the eight rows in sums
}

// write writes a kernel. constants loads registers from the tables, and block adds the products of a block with both halves of the
// rows of B, and moves on to the next block. most is the maximum of rows of A.
func (k *interleavedHalves) write(f *File, name, doc string, constants func(tables Reg), most int, block func(batch int)) {
	fn := f.Func(name, doc, "p interleavedArgs")
	fn.Frame(2 * vectorBatches * 32)
	k.fn, k.w, k.s = fn, fn.Arg("w"), fn.Arg("s")
	k.x = newVectorX(fn)
	k.sums, k.off = fn.GP("sums"), fn.GP("offset of eight rows in sums")
	left, y, tmp := fn.GP("blocks left"), fn.GP("position in y"), fn.GP("scratch")
	fn.I("LEAQ", SP.At(0), k.sums)
	fn.I("MOVQ", fn.FP("tables"), tmp)
	constants(tmp)
	byBatch(fn, most, func(batch int) {
		group := fn.Label(fmt.Sprintf("group%d", batch))
		fn.I("MOVQ", fn.FP("x"), k.x.x)
		fn.I("MOVQ", fn.FP("blocks"), left)
		fn.I("XORL", k.off, k.off)
		fn.I("VPXOR", Y(0), Y(0), Y(0))
		for b := range batch {
			for h := range 2 {
				fn.I("VMOVUPS", Y(0), k.sum(b).At(128*h))
			}
		}
		next := fn.Label(fmt.Sprintf("block%d", batch))
		block(batch)
		fn.I("SUBQ", 1, left)
		fn.Jump("JNZ", next)
		fn.I("MOVQ", fn.FP("y"), y)
		for b := range batch {
			for h := range 2 {
				fn.I("VMOVUPS", k.sum(b).At(128*h), Y(0))
				fn.I("VMOVUPS", Y(0), y.At(32*h))
			}
			if b+1 < batch {
				fn.I("ADDQ", fn.FP("yStride"), y)
			}
		}
		fn.I("ADDQ", 64, fn.FP("y"))
		fn.I("SUBQ", 1, fn.FP("groups"))
		fn.Jump("JNZ", group)
	})
	fn.Return()
}

// sum returns the memory of the sums of row b of A.
func (k *interleavedHalves) sum(b int) Mem { return k.sums.At(32 * b) }

// multiply adds the products of a block of eight rows of B.
func (k *interleaved256) multiply(batch int) {
	fn := k.fn
	if k.vnni {
		for b := range batch {
			fn.I("VPBROADCASTD", k.x.at(b, k.block), k.dot(b, 0))
		}
	}
	used := map[int]bool{}
	for v := range k.vectors() {
		fn.I("VMOVDQU", k.w.At(64*v), k.codes(0))
		if k.bits == 8 {
			k.multiplyBytes(batch, 4*v, v == 0)
			continue
		}
		fn.I("VPSRLW", 4, k.codes(0), k.codes(1))
		for i := range 2 {
			fn.I("VPAND", k.low(), k.codes(i), k.codes(i))
		}
		for i := range 2 {
			fn.I("VPSHUFB", k.codes(i), k.table(), k.codes(i))
		}
		for i := range 2 {
			a := i % k.accumulators()
			for b := range batch {
				x := k.factor(b)
				fn.I("VPBROADCASTD", k.x.at(b, 8*v+4*i), x)
				switch {
				case k.vnni:
					fn.I(vexDot, x, k.codes(i), k.dot(b, 0))
				case !used[a]:
					fn.I("VPMADDUBSW", x, k.codes(i), k.dot(b, a))
				default:
					fn.I("VPMADDUBSW", x, k.codes(i), x)
					fn.I("VPADDW", x, k.dot(b, a), k.dot(b, a))
				}
			}
			used[a] = true
		}
	}
	if k.bits == 8 {
		exponents, end := fn.NewLabel("exponents"), fn.NewLabel("scaled")
		fn.I("CMPQ", fn.FP("other"), 0)
		fn.Jump("JEQ", exponents)
		fn.I("PREFETCHT0", k.s.At(4*interleavedAhead/k.block))
		k.factors32(interleavedF32, batch)
		fn.Jump("JMP", end)
		fn.Place(exponents)
		fn.I("PREFETCHT0", k.s.At(interleavedAhead/k.block))
		k.factors32(interleavedE8M0, batch)
		fn.Place(end)
		for b := range batch {
			fn.I("VCVTDQ2PS", k.dot(b, 0), k.dot(b, 0))
			k.add(b, k.times(b))
		}
		return
	}
	scale := k.codes(0)
	k.scale.load(k, scale)
	for b := range batch {
		dot, t := k.dot(b, 0), k.factor(b)
		if !k.vnni {
			for a := range k.accumulators() {
				fn.I("VPMADDWD", k.ones(), k.dot(b, a), k.dot(b, a))
			}
			if k.accumulators() > 1 {
				fn.I("VPADDD", k.dot(b, 1), dot, dot)
			}
			fn.I("VPBROADCASTD", k.x.at(b, k.block), t)
			fn.I("VPADDD", t, dot, dot)
		}
		fn.I("VCVTDQ2PS", dot, dot)
		fn.I("VPBROADCASTD", k.x.at(b, k.block+4), t)
		fn.I(k.scale.times, t, scale, t)
		k.add(b, t)
	}
	fn.I("ADDQ", halfRows*k.scale.bytes, k.s)
}

// times holds the scales of 8-bit codes times that of row b of A: one sum of a block leaves these registers.
func (k *interleaved256) times(b int) Vec { return Y(vectorBatches + b) }

// factors32 sets times.
func (k *interleaved256) factors32(s interleavedScale, batch int) {
	scale := k.codes(0)
	s.load(k, scale)
	for b := range batch {
		k.fn.I("VPBROADCASTD", k.x.at(b, k.block+4), k.times(b))
		k.fn.I(s.times, k.times(b), scale, k.times(b))
	}
	k.fn.I("ADDQ", halfRows*s.bytes, k.s)
}

// add adds the products of a block, which are in dot, times the scales to the sums of row b of A.
func (k *interleaved256) add(b int, scale Vec) {
	sum := k.sum(b).By(k.off, 1)
	k.fn.I("VFMADD213PS", sum, scale, k.dot(b, 0))
	k.fn.I("VMOVUPS", k.dot(b, 0), sum)
}

// multiplyBytes adds the products of four 8-bit codes of eight rows, in codes(0), and the elements at an offset in x.
func (k *interleaved256) multiplyBytes(batch, at int, first bool) {
	fn := k.fn
	if k.vnni {
		fn.I("VPXOR", k.table(), k.codes(0), k.codes(0))
	} else {
		fn.I("VPABSB", k.codes(0), k.codes(1))
	}
	for b := range batch {
		x, dot := k.factor(b), k.dot(b, 0)
		fn.I("VPBROADCASTD", k.x.at(b, at), x)
		if k.vnni {
			fn.I(vexDot, x, k.codes(0), dot)
			continue
		}
		fn.I("VPSIGNB", k.codes(0), x, x)
		fn.I("VPMADDUBSW", x, k.codes(1), x)
		if first {
			fn.I("VPMADDWD", k.ones(), x, dot)
			continue
		}
		fn.I("VPMADDWD", k.ones(), x, x)
		fn.I("VPADDD", x, dot, dot)
	}
}

// exponents sets scale to the exponents of the scales.
func (k *interleavedHalves) exponents(scale Vec) {
	k.fn.I("VPMOVZXBD", k.s.At(0), scale)
	k.fn.I("VPSLLD", 23, scale, scale)
}

// factors sets scale to the values of E4M3 codes: as float16, they are times 2^-8. unit is 2^8.
func (k *interleavedHalves) factors(scale Vec, unit Sym) {
	k.fn.I("VPMOVZXBW", k.s.At(0), scale.X())
	k.fn.I("VPSLLW", 7, scale.X(), scale.X())
	k.fn.I("VCVTPH2PS", scale.X(), scale)
	k.fn.I("VMULPS", unit, scale, scale)
}

func (k *interleaved256) floats(scale Vec) { k.fn.I("VMOVUPS", k.s.At(0), scale) }
