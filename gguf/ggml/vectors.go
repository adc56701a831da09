package ggml

import (
	"encoding/binary"
	"math/bits"
)

// The types below have vectors of 8 or 4 elements: a code is an index of a codebook (codebooks.go). Layouts are those of
// ggml-common.h, decoding that of dequantize_row_iq… in ggml-quants.c.

// putVector sets dst to the elements of vector i, times scale, each negative whose bit is set in signs.
func putVector(dst, vectors []float32, i int, scale float32, signs uint8) {
	for j, v := range vectors[i*len(dst):][:len(dst)] {
		v = float32(scale * v)
		if signs>>j&1 != 0 {
			v = -v
		}
		dst[j] = v
	}
}

// evenSigns returns eight signs for seven bits: the number of negative ones is even.
func evenSigns(seven uint32) uint8 {
	s := uint8(seven & 127)
	return s | uint8(bits.OnesCount8(s)&1)<<7
}

// halves returns the scales of the two halves of a group: d·(½+sc)/4, with a nibble each.
func halves(d float32, scales byte) [2]float32 {
	return [2]float32{d * (0.5 + float32(scales&15)) * 0.25, d * (0.5 + float32(scales>>4)) * 0.25}
}

// In groups of 32 with 8 bytes: four indexes of 8 bits, then four of seven signs and the scale.
func decodeIQ2XXS(dst []float32, b []byte) {
	d := half(b)
	for g := range 8 {
		codes, rest := b[2+8*g:], binary.LittleEndian.Uint32(b[6+8*g:])
		scale := float32(d*(0.5+float32(rest>>28))) * 0.25
		for l := range 4 {
			putVector(dst[g*32+l*8:][:8], iq2xxsVectors(), int(codes[l]), scale, evenSigns(rest>>(7*l)))
		}
	}
}

// Indexes of 9 bits below seven signs, then scales of 4 bits for each 16.
func decodeIQ2XS(dst []float32, b []byte) {
	d, codes, scales := half(b), b[2:66], b[66:]
	for i := range 32 {
		code := uint32(binary.LittleEndian.Uint16(codes[2*i:]))
		putVector(dst[i*8:][:8], iq2xsVectors(), int(code&511), halves(d, scales[i/4])[i/2%2], evenSigns(code>>9))
	}
}

// Low bytes of indexes, signs, two high bits of each index, scales of 4 bits for each 16.
func decodeIQ2S(dst []float32, b []byte) {
	d, codes, signs, high, scales := half(b), b[2:34], b[34:66], b[66:74], b[74:]
	for i := range 32 {
		code := int(codes[i]) | int(high[i/4]>>(2*(i%4))&3)<<8
		putVector(dst[i*8:][:8], iq2sVectors(), code, halves(d, scales[i/4])[i/2%2], signs[i])
	}
}

// Indexes of 8 bits, then for each 32 elements four of seven signs and the scale.
func decodeIQ3XXS(dst []float32, b []byte) {
	d, codes, rests := half(b), b[2:66], b[66:]
	for i := range 64 {
		rest := binary.LittleEndian.Uint32(rests[i/8*4:])
		scale := float32(d*(0.5+float32(rest>>28))) * 0.5
		putVector(dst[i*4:][:4], iq3xxsVectors(), int(codes[i]), scale, evenSigns(rest>>(7*(i/2%4)))>>(4*(i%2)))
	}
}

// Low bytes of indexes, their ninth bits, signs, scales of 4 bits for each 32.
func decodeIQ3S(dst []float32, b []byte) {
	d, codes, high, signs, scales := half(b), b[2:66], b[66:74], b[74:106], b[106:]
	for i := range 64 {
		code := int(codes[i]) | int(high[i/8]>>(i%8)&1)<<8
		scale := float32(d * float32(1+2*(scales[i/16]>>(i/8%2*4)&15)))
		putVector(dst[i*4:][:4], iq3sVectors(), code, scale, signs[i/2]>>(4*(i%2)))
	}
}

// shift is what elements of IQ1_S and IQ1_M are above those of the vectors, or below.
const shift = 0.125

// putShifted sets dst to scale·(v ± shift) of the elements of vector i.
func putShifted(dst []float32, i int, scale float32, below bool) {
	by := float32(shift)
	if below {
		by = -by
	}
	for j, v := range iq1Vectors()[i*8:][:8] {
		dst[j] = float32(scale * (v + by))
	}
}

// Low bytes of indexes, then for each 32 elements three high bits of each, the scale and the sign of the shift.
func decodeIQ1S(dst []float32, b []byte) {
	d, codes, rests := half(b), b[2:34], b[34:]
	for i := range 32 {
		rest := int(binary.LittleEndian.Uint16(rests[i/4*2:]))
		code := int(codes[i]) | rest>>(3*(i%4))&7<<8
		putShifted(dst[i*8:][:8], code, d*float32(2*(rest>>12&7)+1), rest>>15 != 0)
	}
}

// Low bytes of indexes, nibbles of three high bits and the sign of the shift, four scales of 3 bits for each 64, with a nibble of d above.
func decodeIQ1M(dst []float32, b []byte) {
	codes, high, scales := b[:32], b[32:48], b[48:]
	var bits [2]byte
	for i := range 4 {
		bits[i/2] |= scales[2*i+1] >> 4 << (4 * (i % 2))
	}
	d := half(bits[:])
	for i := range 32 {
		rest := int(high[i/2] >> (4 * (i % 2)) & 15)
		group := int(binary.LittleEndian.Uint16(scales[i/8*2:])) >> (3 * (i / 2 % 4)) & 7
		putShifted(dst[i*8:][:8], int(codes[i])|rest&7<<8, d*float32(2*group+1), rest>>3 != 0)
	}
}

// digit returns digit n of a byte, which is a number of base 3 as a fraction of 256.
func digit(b byte, n int) float32 {
	for range n {
		b *= 3
	}
	return float32(int(b)*3>>8) - 1
}

// d·(q−1), five to a byte, the last 16 four to a byte; elements that follow each other are in different bytes.
func decodeTQ10(dst []float32, b []byte) {
	d := half(b[52:])
	for i := range dst {
		switch {
		case i < 160:
			dst[i] = d * digit(b[i%32], i/32)
		case i < 240:
			dst[i] = d * digit(b[32+i%16], (i-160)/16)
		default:
			dst[i] = d * digit(b[48+i%4], (i-240)/4)
		}
	}
}

// d·(q−1)
func decodeTQ20(dst []float32, b []byte) {
	d := half(b[64:])
	for i := range dst {
		dst[i] = d * (float32(two(b, i)) - 1)
	}
}
