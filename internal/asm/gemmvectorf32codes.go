package asm

import (
	"bytes"
	"encoding/binary"
	"fmt"
)

// vectorConstants are tables of the width of the vectors.
type vectorConstants struct {
	least       Sym         // 2⁻¹²⁷, E8M0's code 0
	factor      Sym         // 2⁸: the power of two of float16's bias minus E4M3's
	e4m3Largest Sym         // largest code of E4M3
	signs       Sym         // of bytes
	low         Sym         // nibbles of bytes
	high        Sym         // halves of dwords
	perDword    map[int]Sym // the scale of each dword of eight codes, by block size
	sixes       [2]Sym      // the two bytes that contain the end of each 6-bit code
	sixAt       Sym         // the factor that moves it to their top
}

func newVectorConstants(f *File, w vectorWidth) (c vectorConstants) {
	repeat := func(name string, pattern ...byte) Sym {
		return f.Table(w.file+name, bytes.Repeat(pattern, w.bytes/len(pattern)))
	}
	c.least = repeat("Least", 0, 0, 0x40, 0)
	c.factor = repeat("Factor", words(0x43800000)...)
	c.e4m3Largest = repeat("Largest", 0x7e)
	c.signs = repeat("Signs", 0x80)
	c.low = repeat("Low", 0x0f)
	c.high = repeat("High", 0, 0, 0xff, 0xff)
	// Three bytes hold four codes: the first two bytes two of them, the last two the others.
	c.sixAt = repeat("SixAt", 0, 4, 16, 0, 64, 0, 1, 0)
	c.perDword = map[int]Sym{}
	for _, block := range []int{32, 16} {
		if w.bytes < 64 {
			break // 4-bit codes are decoded in bytes
		}
		var index []byte
		for i := range w.lanes() {
			index = binary.LittleEndian.AppendUint32(index, uint32(i*8/block))
		}
		c.perDword[block] = f.Table(fmt.Sprintf("%sDwords%d", w.file, block), index)
	}
	for j := range c.sixes {
		index := make([]byte, w.bytes)
		for i := range w.bytes / 2 {
			from := i/4*3 + i%4/2 + w.bytes/8*j // the second load begins that much before its codes
			index[2*i], index[2*i+1] = byte(from), byte(from+1)
		}
		c.sixes[j] = f.Table(fmt.Sprintf("%sSix%d", w.file, j), index)
	}
	return c
}

// e8m0 moves codes to the exponent field of a float32.
func (v *vectorF32) e8m0(tables Reg) {
	v.scaleCodes(tables, func(codes Mem, scale Vec) {
		v.fn.I("VPMOVZXBD", codes, scale)
		v.fn.I("VPSLLD", 23, scale, scale)
		v.fn.I("VPMAXSD", v.least, scale, scale)
	})
}

// e4m3 moves codes to the exponent and mantissa of a float16, which has a greater bias.
func (v *vectorF32) e4m3(tables Reg) {
	v.scaleCodes(tables, func(codes Mem, scale Vec) {
		v.fn.I("VPMOVZXBW", codes, v.half(scale))
		v.fn.I("VPSLLW", 7, v.half(scale), v.half(scale))
		v.fn.I("VCVTPH2PS", v.half(scale), scale)
		v.fn.I("VMULPS", v.factor, scale, scale)
	})
}

func (v *vectorF32) scaleCodes(tables Reg, decode func(codes Mem, scale Vec)) {
	scale, unit, codes := v.t(3), v.t(4), v.t(5).X()
	v.fn.I("VMOVUPS", v.s.At(0), codes)
	v.fn.I("VPMAXUB", SP.At(frameFound), codes, codes)
	v.fn.I("VMOVUPS", codes, SP.At(frameFound))
	v.fn.I("VBROADCASTSS", tables.At(vectorUnit), unit)
	for at := 0; at < 16; at += v.lanes() {
		decode(v.s.At(at), scale)
		v.fn.I("VMULPS", unit, scale, scale)
		v.fn.I("VMOVUPS", scale, v.frame.At(frameScales+4*at))
	}
	v.fn.I("ADDQ", 16, v.s)
}

// f32 copies the scales.
func (v *vectorF32) f32(tables Reg) {
	unit, scale, n := v.t(3), v.t(4), v.group/v.block
	v.fn.I("VBROADCASTSS", tables.At(vectorUnit), unit)
	for at := 0; at < n; at += v.lanes() {
		if n < v.lanes() {
			unit, scale = unit.X(), scale.X()
		}
		v.fn.I("VMULPS", v.s.At(4*at), unit, scale)
		v.fn.I("VMOVUPS", scale, v.frame.At(frameScales+4*at))
	}
	v.fn.I("ADDQ", 4*n, v.s)
}

// e8m0OrF32 chooses at run time.
func (v *vectorF32) e8m0OrF32(tables Reg) {
	codes, end := v.fn.NewLabel("codes"), v.fn.NewLabel("end")
	v.fn.I("CMPB", tables.At(vectorSingle), 0)
	v.fn.Jump("JEQ", codes)
	v.f32(tables)
	v.fn.Jump("JMP", end)
	v.fn.Place(codes)
	v.e8m0(tables)
	v.fn.Place(end)
}

// inOrder is product for vectors whose elements are in the order of the codes, followed by add
// after the last vector of a block.
func (v *vectorF32) inOrder(value Vec, at int) {
	v.product(value, at, at%v.block == 0)
	if end := at + v.lanes(); end%v.block == 0 {
		v.fn.I("VBROADCASTSS", v.p.At(4*(at/v.block)), v.spread())
		v.add()
	}
}

// unscaled adds the products of value to the sums of even or odd vectors.
func (v *vectorF32) unscaled(value Vec, at, odd int) {
	for b := range v.batch {
		v.fn.I("VFMADD231PS", v.x.at(b, 4*at), value, []Vec{v.sum(b), v.dot(b)}[odd])
	}
}

func (v *vectorF32) floats() {
	for i := range v.step / v.lanes() {
		value := v.t(3 + i%2)
		v.fn.I("VMOVUPS", v.w.At(v.bytes*i), value)
		v.unscaled(value, v.lanes()*i, i%2)
	}
}

func (v *vectorF32) halves() {
	for i := range v.step / v.lanes() / 2 {
		codes, even, at := v.t(3), v.t(4), 2*v.lanes()*i
		v.fn.I("VMOVUPS", v.w.At(v.bytes*i), codes)
		v.fn.I("VPSLLD", 16, codes, even)
		v.unscaled(even, at, 0)
		v.fn.I(v.bitwise("VPAND"), v.high, codes, codes)
		v.unscaled(codes, at+v.lanes(), 1)
	}
}

// pairs multiplies in BF16, and alternates between the sums of even and odd vectors.
func (v *vectorF32) pairs() {
	for i := range v.step * v.bits / 8 / v.bytes {
		codes := v.t(3 + i%2)
		v.fn.I("VMOVUPS", v.w.At(v.bytes*i), codes)
		for b := range v.batch {
			v.fn.I("VDPBF16PS", v.x.at(b, v.bytes*i), codes, []Vec{v.sum(b), v.dot(b)}[i%2])
		}
	}
}

// float8 moves the magnitude to that of a float16.
func (v *vectorF32) float8() {
	perWords := v.bytes / 2
	for i := range v.step / perWords {
		codes := v.t(3)
		if i%2 == 0 {
			v.fn.I("VMOVUPS", v.w.At(perWords*i), codes)
			v.fn.I(v.bitwise("VPOR"), v.signs, codes, codes)
			v.fn.I("VPMAXUB", codes, v.worst(), v.worst())
		}
		v.fn.I("VPMOVSXBW", v.w.At(perWords*i), codes)
		v.fn.I("VPMULLW", v.t(0), codes, codes)
		v.float16(codes, perWords*i)
	}
}

// float16 masks words to the bits of a float16, converts them and multiplies.
func (v *vectorF32) float16(words Vec, at int) {
	value := v.t(4)
	v.fn.I(v.bitwise("VPAND"), v.t(1), words, words)
	v.fn.I("VMOVUPS", words, v.frame.At(frameWords))
	for i := range 2 {
		v.fn.I("VCVTPH2PS", v.frame.At(frameWords+v.bytes/2*i), value)
		v.inOrder(value, at+v.lanes()*i)
	}
}

func (v *vectorF32) integers() {
	for i := range v.step / v.lanes() {
		value := v.t(3 + i%2)
		v.fn.I("VPMOVSXBD", v.w.At(v.lanes()*i), value)
		v.fn.I("VCVTDQ2PS", value, value)
		v.inOrder(value, v.lanes()*i)
	}
}

// float6 moves a code to the top of a word, then its magnitude to that of a float16.
func (v *vectorF32) float6() {
	perWords := v.bytes / 2
	for i := range v.step / perWords {
		words, place := v.t(3), v.w.At(i/2*v.bytes*3/4+i%2*v.bytes/4)
		if v.bytes == 64 {
			v.fn.I("VMOVUPS", place, v.half(v.t(4)))
			v.fn.I("VMOVUPS", v.sixes[i%2], words)
			v.fn.I("VPERMB", v.t(4), words, words)
		} else {
			v.fn.I("VBROADCASTI128", place, words)
			v.fn.I("VPSHUFB", v.sixes[i%2], words, words)
		}
		v.fn.I("VPMULLW", v.sixAt, words, words)
		v.fn.I("VPMULHW", v.t(0), words, words)
		v.float16(words, perWords*i)
	}
}

// dwords looks up the lowest of the eight codes in each dword, which belong to one block, and
// shifts.
func (v *vectorF32) dwords() {
	fn, codes, value := v.fn, v.t(3), v.t(4)
	perVector := 2 * v.bytes
	for i := range v.step / perVector {
		fn.I("VMOVUPS", v.w.At(v.bytes*i), codes)
		for n := range 8 {
			if n > 0 {
				fn.I("VPSRLD", 4, codes, codes)
			}
			fn.I("VPERMPS", v.t(0), codes, value)
			v.product(value, perVector*i+n*v.lanes(), n == 0)
		}
		scales := map[int]Vec{32: v.spread().X(), 16: v.spread().Y()}[v.block] // not wider than the stores, to be forwarded
		fn.I("VMOVUPS", v.p.At(4*perVector/v.block*i), scales)
		fn.I("VPERMPS", v.spread(), v.t(1), v.spread())
		v.add()
	}
}

// nibbles decodes 128 bits at a time: the codes of a block of 32, or of two of 16.
func (v *vectorF32) nibbles() {
	fn, low, high := v.fn, v.t(0), v.t(1)
	perVector := 2 * v.bytes
	for i := range v.step / perVector {
		bytes := [2][2]Vec{{v.t(2), v.t(3)}, {v.t(4), v.t(5)}} // bytes 2 and 3 of the values of both nibbles
		fn.I("VMOVUPS", v.w.At(v.bytes*i), bytes[0][1])
		fn.I("VPSRLW", 4, bytes[0][1], bytes[1][1])
		for n := range 2 {
			codes := bytes[n][1]
			fn.I(v.bitwise("VPAND"), v.low, codes, codes)
			fn.I("VPSHUFB", codes, low, bytes[n][0])
			fn.I("VPSHUFB", codes, high, bytes[n][1])
		}
		for h := range 2 {
			unpack := []string{"VPUNPCKLBW", "VPUNPCKHBW"}[h]
			for n := range 2 {
				words, value := v.t(6), v.t(7)
				at := perVector*i + (4*h+2*n)*v.lanes()
				fn.I(unpack, bytes[n][1], bytes[n][0], words)
				fn.I("VPSLLD", 16, words, value)
				v.product(value, at, n == 0 && (h == 0 || v.block == 16))
				fn.I(v.bitwise("VPAND"), v.high, words, words)
				v.product(words, at+v.lanes(), false)
			}
			if h == 0 && v.block == 32 {
				continue
			}
			upper, of := v.t(6), v.p.At(4*perVector/v.block*i) // one at a time: they were not stored together
			if v.block == 16 {
				of = of.At(4 * h)
			}
			fn.I("VBROADCASTSS", of, v.spread())
			fn.I("VBROADCASTSS", of.At(4*perVector/v.block/2), upper)
			fn.I("VBLENDPS", 0xf0, upper, v.spread(), v.spread())
			v.add()
		}
	}
}
