package asm

import (
	"bytes"
	"fmt"
)

// An interleavedFloats writes a kernel of gemm.Interleave for AVX2 and inputs in float32. Codes become float32 numbers in lanes of their
// row, two vectors of codes at a time.
//
//	8 bits  E4M3: sign and magnitude of a code are moved to those of a BF16 number in each word, which is then the value times 2^-120, and
//	        subnormal if the code is. A dword has the numbers of one row. Elements of A are times 2^100, scales times 2^20.
//	4 bits  Two tables have the bytes of the BF16 values. Interleaved, they are the elements 0, 2, 4 and 6 of two rows, then 1, 3, 5 and 7,
//	        as words. A has pairs of elements in the order 0, 4, 2, 6, 1, 5, 3, 7. Lanes are added in pairs at the end of a block.
//
// Blocks of 4-bit codes have 32 elements and scales in E8M0, or 16 and E4M3.
type interleavedFloats struct {
	name string
	bits int
	interleavedHalves
	chunks, start, from          Reg // chunks left of a block; its codes and elements of A
	upper, nibbles, unit, factor Sym
}

func interleavedFloatsKernels(f *File) {
	repeat := func(name string, word uint32) Sym { return f.shared(name, bytes.Repeat(words(word), 8)) }
	upper, nibbles := repeat("upper256", 0xffff0000), repeat("nibbles256", 0x0f0f0f0f)
	unit, factor := repeat("float256", 0x43800000), repeat("exponent20", 20<<23)
	for _, k := range []interleavedFloats{{name: "FP8", bits: 8}, {name: "FP4", bits: 4}} {
		k.upper, k.nibbles, k.unit, k.factor = upper, nibbles, unit, factor
		k.write(f)
	}
}

// floatBatches is the maximum of rows of A in a pass: registers hold four sums of a block for each, which wait less for each other
// than two.
const floatBatches = 2

func (k *interleavedFloats) dot(b, i int) Vec { return Y(4*b + i) }

func (k *interleavedFloats) write(f *File) {
	name := "interleaved" + k.name + "AVX2"
	k.interleavedHalves.write(f, name, fmt.Sprintf("%s is an interleavedFunc for codes of %d bits and float32.", name, k.bits), func(tmp Reg) {
		k.chunks, k.start, k.from = k.fn.GP("chunks left of a block"), k.fn.GP("its codes"), k.fn.GP("its elements of A")
		k.fn.Note("Y0…Y7", "sums of a block")
		if k.bits == 8 {
			broadcast(k.fn, 0x87f087f0, tmp, Y(15))
			return
		}
		k.fn.Note("Y14, Y15", "lower and upper byte of each value")
		k.fn.I("VMOVDQU", tmp.At(vectorFirst), Y(14))
		k.fn.I("VMOVDQU", tmp.At(vectorSecond), Y(15))
	}, floatBatches, k.block)
}

// block adds the products of a block of both halves.
func (k *interleavedFloats) block(batch int) {
	fn := k.fn
	fn.I("MOVQ", k.w, k.start)
	fn.I("MOVQ", k.x.x, k.from)
	half := fn.Label(fmt.Sprintf("half%d", batch))
	for i := range 4 * batch {
		fn.I("VXORPS", Y(i), Y(i), Y(i))
	}
	if k.bits == 8 {
		fn.I("MOVQ", 4, k.chunks)
	} else {
		fn.I("MOVQ", 2, k.chunks)
		fn.I("SUBQ", fn.FP("other"), k.chunks)
	}
	fn.I("PREFETCHT0", k.s.At(interleavedAhead*k.bits/4/32))
	chunk := fn.Label(fmt.Sprintf("chunk%d", batch))
	fn.I("PREFETCHT0", k.w.At(interleavedAhead+32)) // the first line of the chunk in the first half, then the second
	for v := range 2 {
		if k.bits == 8 {
			k.bytes(batch, v)
		} else {
			k.fours(batch, v)
		}
	}
	fn.I("ADDQ", 128, k.w)
	fn.I("ADDQ", 256/k.bits, k.x.x)
	fn.I("SUBQ", 1, k.chunks)
	fn.Jump("JNZ", chunk)
	scale := Y(8)
	k.scale(scale)
	for b := range batch {
		k.add(b, scale)
	}
	end := fn.NewLabel("ended")
	fn.I("XORQ", 128, k.off)
	fn.Jump("JEQ", end)
	fn.I("LEAQ", k.start.At(32), k.w)
	fn.I("MOVQ", k.from, k.x.x)
	fn.Jump("JMP", half)
	fn.Place(end)
	fn.I("SUBQ", 32, k.w)
}

// bytes multiplies four 8-bit codes of eight rows, vector v of the chunk.
func (k *interleavedFloats) bytes(batch, v int) {
	fn, value, x := k.fn, Y(10), Y(11)
	words := []Vec{Y(8), Y(9)} // of codes 0 and 2, 1 and 3
	fn.I("VMOVDQU", k.w.At(64*v), words[1])
	fn.I("VPSLLW", 8, words[1], words[0])
	for _, w := range words {
		fn.I("VPSRAW", 4, w, w)
		fn.I("VPAND", Y(15), w, w)
	}
	for e := range 4 {
		w := words[e%2]
		if e < 2 {
			fn.I("VPSLLD", 16, w, value)
		} else {
			fn.I("VPAND", k.upper, w, value)
		}
		for b := range batch {
			fn.I("VBROADCASTSS", k.x.at(b, 16*v+4*e), x)
			fn.I("VFMADD231PS", x, value, k.dot(b, e))
		}
	}
}

// fours multiplies eight 4-bit codes of eight rows, vector v of the chunk. Sums are those of rows 0, 1, 4 and 5, and of the others,
// in turn.
func (k *interleavedFloats) fours(batch, v int) {
	fn, codes, low, high, other, x := k.fn, Y(8), Y(9), Y(10), Y(11), Y(12)
	fn.I("VMOVDQU", k.w.At(64*v), codes)
	for n := range 2 {
		if n > 0 {
			fn.I("VPSRLW", 4, codes, codes)
		}
		fn.I("VPAND", k.nibbles, codes, low)
		fn.I("VPSHUFB", low, Y(15), high)
		fn.I("VPSHUFB", low, Y(14), low)
		fn.I("VPUNPCKLBW", high, low, other)
		fn.I("VPUNPCKHBW", high, low, high)
		values := []Vec{low, Y(13)}
		for e := range 2 {
			for u, words := range []Vec{other, high} {
				if e == 0 {
					fn.I("VPSLLD", 16, words, values[u])
				} else {
					fn.I("VPAND", k.upper, words, values[u])
				}
			}
			for b := range batch {
				fn.I("VBROADCASTSD", k.x.at(b, 32*v+16*n+8*e), x)
				for u, value := range values {
					fn.I("VFMADD231PS", x, value, k.dot(b, 2*e+u))
				}
			}
		}
	}
}

// scale loads the scales of a block of eight rows.
func (k *interleavedFloats) scale(scale Vec) {
	fn, end := k.fn, k.fn.NewLabel("scaled")
	if k.bits == 4 {
		exponents := fn.NewLabel("exponents")
		fn.I("CMPQ", fn.FP("other"), 0)
		fn.Jump("JEQ", exponents)
		k.factors(scale, k.unit)
		fn.Jump("JMP", end)
		fn.Place(exponents)
	}
	k.exponents(scale)
	if k.bits == 8 {
		fn.I("VPADDD", k.factor, scale, scale)
	}
	fn.Place(end)
	fn.I("ADDQ", halfRows, k.s)
}

// add adds the products of a block with row b of A times the scales.
func (k *interleavedFloats) add(b int, scale Vec) {
	fn, dot := k.fn, k.dot(b, 0)
	for i := range 2 {
		fn.I("VADDPS", k.dot(b, i+2), k.dot(b, i), k.dot(b, i))
	}
	if k.bits == 8 {
		fn.I("VADDPS", k.dot(b, 1), dot, dot)
	} else {
		fn.I("VHADDPS", k.dot(b, 1), dot, dot)
	}
	sum := k.sum(b).By(k.off, 1)
	fn.I("VFMADD213PS", sum, scale, dot)
	fn.I("VMOVUPS", dot, sum)
}
