package ggml

import (
	"encoding/binary"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/microscale-go/microscale/format"
)

// A Quant is a type of ggml whose blocks hold integers with scales, and often minima: what
// llama.cpp's files have most.
//
// Layouts are those of ggml-common.h. d and dmin are FP16; q is an element, sc and mn are the
// scale and the minimum of its group. Products and sums are rounded to float32 one by one.
type Quant struct {
	Name     string
	Elements int // of a block
	Bytes    int // of a block
	bits     int // of an element; 1 where signs of others decide its sign (evenSigns), which may be the wrong one
	most     int // the largest multiple of d or dmin
	decode   func(dst []float32, block []byte)
	encode   func(dst []byte, b rowBlock) // dst is zero; nil: only decoded
}

// quants lists the types by their name.
var quants = map[string]Quant{}

func init() {
	for _, q := range []Quant{
		{"Q4_0", 32, 18, 4, 8, decodeQ40, encodeSigned(8)},
		{"Q4_1", 32, 20, 4, 15, decodeQ41, encodeRange(15)},
		{"Q5_0", 32, 22, 5, 16, decodeQ50, encodeSigned(16)},
		{"Q5_1", 32, 24, 5, 31, decodeQ51, encodeRange(31)},
		{"Q8_0", 32, 34, 8, 128, decodeQ80, nil},
		{"Q2_K", 256, 84, 2, 15 * 3, decodeQ2K, encodeQ2K},
		{"Q3_K", 256, 110, 3, 32 * 4, decodeQ3K, encodeQ3K},
		{"Q4_K", 256, 144, 4, 63 * 15, decodeQ4K, encodeGroups(rangeSearch{15, -1, 0.1, 20, false})},
		{"Q5_K", 256, 176, 5, 63 * 31, decodeQ5K, encodeGroups(rangeSearch{31, -0.5, 0.1, 15, false})},
		{"Q6_K", 256, 210, 6, 128 * 32, decodeQ6K, encodeQ6K},
		{"IQ4_NL", 32, 18, 4, 127, decodeIQ4NL, nil},
		{"IQ4_XS", 256, 136, 4, 32 * 127, decodeIQ4XS, nil},
		{"IQ1_S", 256, 50, 1, 17, decodeIQ1S, nil},
		{"IQ1_M", 256, 56, 1, 17, decodeIQ1M, nil},
		{"IQ2_XXS", 256, 66, 1, 4 * 43, decodeIQ2XXS, nil},
		{"IQ2_XS", 256, 74, 1, 4 * 43, decodeIQ2XS, nil},
		{"IQ2_S", 256, 82, 2, 4 * 43, decodeIQ2S, nil},
		{"IQ3_XXS", 256, 98, 1, 8 * 62, decodeIQ3XXS, nil},
		{"IQ3_S", 256, 110, 3, 31 * 15, decodeIQ3S, nil},
		{"TQ1_0", 256, 54, 1, 1, decodeTQ10, nil},
		{"TQ2_0", 256, 66, 1, 2, decodeTQ20, nil},
	} {
		quants[q.Name] = q
	}
}

// LookupQuant finds a type by ggml's name.
func LookupQuant(name string) (Quant, error) {
	q, ok := quants[name]
	if !ok {
		return Quant{}, fmt.Errorf("ggml type %s cannot be decoded: want one of %s", name, strings.Join(slices.Sorted(maps.Keys(quants)), ", "))
	}
	return q, nil
}

// Decode sets dst to the values of the blocks in src. It panics if the lengths are not those of
// the same number of whole blocks.
func (q Quant) Decode(dst []float32, src []byte) {
	if len(src)%q.Bytes != 0 || len(dst) != len(src)/q.Bytes*q.Elements {
		panic(fmt.Sprintf("ggml: %d bytes of %s for %d values", len(src), q.Name, len(dst)))
	}
	for ; len(src) > 0; src = src[q.Bytes:] {
		q.decode(dst[:q.Elements:q.Elements], src[:q.Bytes:q.Bytes])
		dst = dst[q.Elements:]
	}
}

// Bound returns the error of an element from which a block is not a rounding of values whose largest magnitude
// is amax: two steps of a grid over −amax … amax, and what d and dmin lose below the smallest normal FP16 number.
// Rounding alone causes half a step. Quantizers of ggml also move scales and cut off large values, to lower a
// weighted error: of normal values, the largest error of llama.cpp 0.5.0 is half of this bound. Beyond Max it does not grow.
func (q Quant) Bound(amax float32) float32 {
	const lost = 2 * 0x1p-25 // half of the smallest FP16 number, of d and of dmin
	return 4*min(amax, q.Max())/float32(int(1)<<q.bits-1) + float32(q.most)*lost
}

// Max returns a magnitude that no finite value of a block is above: the largest multiple of the largest FP16 number. Of larger values,
// Encode makes NaN, Inf or, where sums of its searches overflow, anything.
func (q Quant) Max() float32 { return float32(q.most) * format.FP16.Decode(0x7bff) }

// half decodes an FP16 number.
func half(b []byte) float32 { return format.FP16.Decode(uint32(binary.LittleEndian.Uint16(b))) }

// nibble returns element i of 32: the first 16 are in low nibbles, the others in high nibbles.
func nibble(qs []byte, i int) byte { return qs[i%16] >> (4 * (i / 16)) & 15 }

// d·(q−8)
func decodeQ40(dst []float32, b []byte) {
	d := half(b)
	for i := range dst {
		dst[i] = d * (float32(nibble(b[2:], i)) - 8)
	}
}

// d·q + m
func decodeQ41(dst []float32, b []byte) {
	d, m := half(b), half(b[2:])
	for i := range dst {
		dst[i] = float32(d*float32(nibble(b[4:], i))) + m
	}
}

// fifth returns a nibble with bit i of qh above it.
func fifth(qh, qs []byte, i int) float32 {
	return float32(nibble(qs, i) | byte(binary.LittleEndian.Uint32(qh)>>i&1)<<4)
}

// d·(q−16)
func decodeQ50(dst []float32, b []byte) {
	d := half(b)
	for i := range dst {
		dst[i] = d * (fifth(b[2:], b[6:], i) - 16)
	}
}

// d·q + m
func decodeQ51(dst []float32, b []byte) {
	d, m := half(b), half(b[2:])
	for i := range dst {
		dst[i] = float32(d*fifth(b[4:], b[8:], i)) + m
	}
}

// d·q
func decodeQ80(dst []float32, b []byte) {
	d := half(b)
	for i := range dst {
		dst[i] = d * float32(int8(b[2+i]))
	}
}

// two returns element i of 256 two-bit ones: each 32 bytes hold four runs of 32.
func two(qs []byte, i int) byte { return qs[i/128*32+i%32] >> (i % 128 / 32 * 2) & 3 }

// d·sc·q − dmin·mn, in groups of 16 with a scale and a minimum of 4 bits
func decodeQ2K(dst []float32, b []byte) {
	scales, qs, d, dmin := b[:16], b[16:80], half(b[80:]), half(b[82:])
	for i := range dst {
		sc := scales[i/16]
		dst[i] = float32(d*float32(sc&15)*float32(two(qs, i))) - float32(dmin*float32(sc>>4))
	}
}

// d·(sc−32)·(q−4), in groups of 16 with a scale of 6 bits; the third bit of q in hmask
func decodeQ3K(dst []float32, b []byte) {
	hmask, qs, scales, d := b[:32], b[32:96], b[96:108], half(b[108:])
	for i := range dst {
		g := i / 16
		sc := scales[g%8]>>(4*(g/8))&15 | scales[8+g%4]>>(2*(g/4))&3<<4
		q := int(two(qs, i)) | int(hmask[i%32]>>(i/32)&1)<<2
		dst[i] = float32(d*float32(int(sc)-32)) * float32(q-4)
	}
}

// scaleMin returns the scale and the minimum of group g of 8, of 6 bits each, of Q4_K and Q5_K.
func scaleMin(s []byte, g int) (sc, mn float32) {
	if g < 4 {
		return float32(s[g] & 63), float32(s[4+g] & 63)
	}
	return float32(s[8+g-4]&15 | s[g-4]>>6<<4), float32(s[8+g-4]>>4 | s[g]>>6<<4)
}

// d·sc·q − dmin·mn, in groups of 32; each 32 bytes hold two groups
func decodeQ4K(dst []float32, b []byte) {
	decodeGroups(dst, b[:16], b[16:], func(int) byte { return 0 })
}

// as Q4_K, with a fifth bit in qh: bit g of the byte of each element of group g
func decodeQ5K(dst []float32, b []byte) {
	qh := b[16:48]
	decodeGroups(dst, b[:16], b[48:], func(i int) byte { return qh[i%32] >> (i / 32) & 1 << 4 })
}

// decodeGroups decodes Q4_K and Q5_K. header is d, dmin and the scales.
func decodeGroups(dst []float32, header, qs []byte, high func(i int) byte) {
	d, dmin := half(header), half(header[2:])
	for g := range 8 {
		sc, mn := scaleMin(header[4:], g)
		scale, least := float32(d*sc), float32(dmin*mn)
		for i := g * 32; i < g*32+32; i++ {
			q := qs[g/2*32+i%32]>>(4*(g%2))&15 | high(i)
			dst[i] = float32(scale*float32(q)) - least
		}
	}
}

// d·sc·(q−32), in groups of 16 with a scale of 8 bits
func decodeQ6K(dst []float32, b []byte) {
	ql, qh, scales, d := b[:128], b[128:192], b[192:208], half(b[208:])
	for i := range dst {
		h, j := i/128, i%128 // half of the block, and within it
		low := ql[h*64+j%64] >> (4 * (j / 64)) & 15
		high := qh[h*32+j%32] >> (2 * (j / 32)) & 3
		dst[i] = float32(d*float32(int8(scales[i/16]))) * float32(int(low|high<<4)-32)
	}
}

// iq4Values are the values of the codes of IQ4_NL and IQ4_XS.
var iq4Values = [16]float32{-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113}

// d·T[q]
func decodeIQ4NL(dst []float32, b []byte) {
	d := half(b)
	for i := range dst {
		dst[i] = d * iq4Values[nibble(b[2:], i)]
	}
}

// d·(sc−32)·T[q], in groups of 32 with a scale of 6 bits
func decodeIQ4XS(dst []float32, b []byte) {
	d, high, low, qs := half(b), binary.LittleEndian.Uint16(b[2:]), b[4:8], b[8:]
	for g := range 8 {
		sc := int(low[g/2]>>(4*(g%2))&15) | int(high>>(2*g)&3)<<4
		scale := float32(d * float32(sc-32))
		for i := range 32 {
			dst[g*32+i] = scale * iq4Values[nibble(qs[g*16:], i)]
		}
	}
}
