package asm

import "fmt"

// Quant writes the AVX-512 kernels of package quant.
//
// All round in the same way. With e = ±2^E, the sign and binade of x, where E is
// at least that of the smallest normal element, and m mantissa bits,
//
//	t = e·2^(23-m)·(1 + bias·2^-23) + x
//
// is one fused multiply-add whose result has steps of 2^(E-m): it rounds x to
// nearest even at the last bit of the element, for normals and subnormals alike.
// The significand of the code, plus the bias, is in the low bits of t, and the
// exponent of t counts binades at bit 23. So the low byte of
//
//	t + t>>(23-m)
//
// is the magnitude of the code: the bias subtracts the exponent of the smallest
// normal. It is a multiple of 2^m, so that ties stay even. If the bias is subtracted
// from the low half of t, zTimes computes the same from bit 8 on, and the sign: it
// multiplies both halves of t by powers of two and adds the products.
func Quant() []*File {
	return []*File{quantFused(), quantEncode(), quantSearch(), quantDecode(), quantSpread(), quantColumns(), quantScales(), quantBytes(),
		quantStages()}
}

// An instruction that waits to be printed.
type instruction struct {
	mnemonic string
	operands []any
}

// A sequence is a run of instructions that depend on no others than those of
// the sequence before them.
type sequence []instruction

// I appends an instruction.
func (s *sequence) I(mnemonic string, operands ...any) {
	*s = append(*s, instruction{mnemonic, operands})
}

// Emit prints a sequence.
func (fn *Func) Emit(s sequence) {
	for _, i := range s {
		fn.I(i.mnemonic, i.operands...)
	}
}

// words returns the bytes of dwords, to be a table.
func words(values ...uint32) []byte {
	var b []byte
	for _, v := range values {
		b = append(b, byte(v), byte(v>>8), byte(v>>16), byte(v>>24))
	}
	return b
}

// indices returns 64 bytes, byte i being of(i).
func indices(of func(i int) int) []byte {
	b := make([]byte, 64)
	for i := range b {
		b[i] = byte(of(i))
	}
	return b
}

// halves returns 32 words, word i being of(i).
func halves(of func(i int) int) []byte {
	return indices(func(i int) int { return of(i/2) >> (i % 2 * 8) })
}

// constants is the layout of the constants of a kernel: dwords in the order of a Go struct.
type constants struct {
	base  Reg
	names []string
}

// At returns the memory of a constant.
func (c constants) At(name string) Mem {
	for i, n := range c.names {
		if n == name {
			return c.base.At(4 * i)
		}
	}
	panic(fmt.Sprintf("asm: there is no constant %s", name))
}

// A packing is how codes of one width leave the kernel.
type packing struct {
	bits int // of a stored code
	sign int // the sign bit of a code in a byte; 7 needs no shift
}

var packings = map[int]packing{8: {8, 7}, 6: {6, 5}, 4: {4, 3}}
