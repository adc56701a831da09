package asm

import (
	"bytes"
	"fmt"
)

// quantDecode256 writes the AVX2 kernels that decode codes to float32 and multiply them by a
// scale. They take 32 codes at a time.
//
//	8 bits  The magnitude of a code, shifted to the exponent and mantissa of a float32, is the
//	        value divided by a power of two. If one of 32 codes is not finite, all 32 values
//	        come from a table.
//	6 bits  The two upper bytes of a value come from tables of 16 bytes.
//	4 bits  The values of a block are its scale times a table of eight magnitudes.
func quantDecode256() *File {
	f := NewFile("quant", "decodeavx2")
	t := makeTables256(f)
	decodeBytes256(f, t)
	decodeIntegers256(f, t)
	decodeSixes256(f, t)
	for _, scale := range []int{32, 16} {
		decodeNibbles256(f, t, scale)
	}
	return f
}

// Offsets of the fields of decodeTables, in bytes.
const (
	decodeHighest = 128 // highest bytes of values; their third bytes are at 0
	decodeValues  = 256
	decodeFloats  = decodeValues + 4*16 // floatConstants, then the values of all 256 codes
)

// floatNames are the constants of quant's floatConstants.
var floatNames = []string{"shift", "mask", "power", "largest"}

// A decoder256 writes one kernel.
type decoder256 struct {
	*kernel256
	dst, src, scales, n, table Reg
}

func newDecoder256(f *File, t *tables256, name, what string) decoder256 {
	k := &kernel256{tables256: t, source: 32}
	k.begin(f, name, "sets dst[i], %s, to "+what+",\ni < 32·n, n > 0.", "dst *float32, src *byte, scales *float32, n int, t *decodeTables")
	return decoder256{k, k.Arg("dst"), k.Arg("src"), k.Arg("scales"), k.Arg("n"), k.Arg("t")}
}

// each prints a loop over 32 codes at a time, which have the given numbers of bytes and scales. It
// ends the function.
func (d decoder256) each(codes, scales int, body func()) {
	loop := d.Label("loop")
	body()
	d.I("ADDQ", codes, d.src)
	d.I("ADDQ", 128, d.dst)
	d.I("ADDQ", 4*scales, d.scales)
	d.I("SUBQ", 1, d.n)
	d.Jump("JNZ", loop)
	d.Return()
}

func decodeBytes256(f *File, t *tables256) {
	d := newDecoder256(f, t, "decodeBytes", "scales[i/32] times the value of the code src[i]")
	d.I("ADDQ", decodeFloats, d.table)
	c := constants{d.table, floatNames}
	yShift, yMask, yPower, yLargest, yMagnitude, yScale := Y(15), Y(14), Y(13), Y(12), Y(11), Y(10)
	for i, v := range []Vec{yShift, yMask, yPower, yLargest} {
		d.I("VPBROADCASTD", c.At(floatNames[i]), v)
	}
	d.I("VPCMPEQB", Y(0), Y(0), Y(0))
	d.I("VPXOR", d.sign, Y(0), yMagnitude)
	special, done := d.NewLabel("special"), d.NewLabel("done")
	d.each(32, 1, func() {
		d.I("VBROADCASTSS", d.scales.At(0), yScale)
		d.I("VPAND", d.src.At(0), yMagnitude, Y(0))
		d.I("VPCMPGTB", yLargest, Y(0), Y(0))
		d.I("VPTEST", Y(0), Y(0))
		d.Jump("JNZ", special)
		for i := range 4 {
			v := Y(i)
			d.I("VPMOVSXBD", d.src.At(8*i), v)
			d.I("VPSLLVD", yShift, v, v)
			d.I("VPAND", yMask, v, v)
			d.I("VMULPS", yPower, v, v)
			d.I("VMULPS", yScale, v, v)
			d.I("VMOVUPS", v, d.dst.At(32*i))
		}
		d.Jump("JMP", done)
		d.Place(special)
		for i := range 4 {
			d.I("VPMOVZXBD", d.src.At(8*i), Y(4))
			d.I("VPCMPEQD", Y(5), Y(5), Y(5))
			d.I("VGATHERDPS", Y(5), d.table.At(4*len(floatNames)).By("Y4", 4), Y(i))
			d.I("VMULPS", yScale, Y(i), Y(i))
			d.I("VMOVUPS", Y(i), d.dst.At(32*i))
		}
		d.Place(done)
	})
}

func decodeIntegers256(f *File, t *tables256) {
	d := newDecoder256(f, t, "decodeIntegers", "scales[i/32] times the value of the integer src[i]")
	yStep, yScale := Y(15), Y(14)
	d.I("VBROADCASTSS", d.table.At(decodeValues+4), yStep)
	d.each(32, 1, func() {
		d.I("VBROADCASTSS", d.scales.At(0), yScale)
		for i := range 4 {
			v := Y(i)
			d.I("VPMOVSXBD", d.src.At(8*i), v)
			d.I("VCVTDQ2PS", v, v)
			d.I("VMULPS", yStep, v, v)
			d.I("VMULPS", yScale, v, v)
			d.I("VMOVUPS", v, d.dst.At(32*i))
		}
	})
}

func decodeSixes256(f *File, t *tables256) {
	d := newDecoder256(f, t, "decodeSixes", "scales[i/32] times the value of code i of 6 bits")
	spread := f.Table("spread", append(indices(func(i int) int { return i/4*3 + min(i%4, 2) })[:16],
		indices(func(i int) int { return 4 + i/4*3 + min(i%4, 2) })[:16]...))
	order := f.Table("transpose", words(0, 2, 4, 6, 1, 3, 5, 7))
	var code [4]Sym // masks of the bits of code i in a dword
	for i := range code {
		pattern := make([]byte, 4)
		pattern[i] = 1<<6 - 1
		code[i] = f.Table(fmt.Sprintf("code%d", i), bytes.Repeat(pattern, 8))
	}
	fifteen := f.Table("fifteen", bytes.Repeat([]byte{15}, 32))
	yThird, yThird2, yHighest, yHighest2, yOrder, yScale, zero := Y(15), Y(14), Y(13), Y(12), Y(11), Y(10), Y(9)
	for i, v := range []Vec{yThird, yThird2, yHighest, yHighest2} {
		d.I("VBROADCASTI128", d.table.At(decodeHighest*(i/2)+16*(i%2)), v)
	}
	d.I("VMOVDQU", order, yOrder)
	d.I("VPXOR", zero, zero, zero)
	d.each(24, 1, func() {
		x, third, highest := Y(0), Y(1), Y(2)
		d.I("VBROADCASTSS", d.scales.At(0), yScale)
		d.I("VMOVDQU", d.src.At(0), x.X())
		d.I("VINSERTI128", 1, d.src.At(8), x, x)
		d.I("VPSHUFB", spread, x, x) // three bytes in each dword
		d.I("VPAND", code[0], x, Y(3))
		for i := 1; i < 4; i++ {
			d.I("VPSLLD", 2*i, x, Y(4))
			d.I("VPAND", code[i], Y(4), Y(4))
			d.I("VPOR", Y(4), Y(3), Y(3))
		}
		d.I("VPERMD", Y(3), yOrder, x)
		d.Comment("bit 4 chooses the table, bit 5 is the sign")
		d.I("VPSLLW", 3, x, Y(3))
		d.I("VPAND", fifteen, x, Y(6))
		d.I("VPSHUFB", Y(6), yThird, third)
		d.I("VPSHUFB", Y(6), yThird2, Y(4))
		d.I("VPBLENDVB", Y(3), Y(4), third, third)
		d.I("VPSHUFB", Y(6), yHighest, highest)
		d.I("VPSHUFB", Y(6), yHighest2, Y(4))
		d.I("VPBLENDVB", Y(3), Y(4), highest, highest)
		d.I("VPSLLW", 2, x, x)
		d.I("VPAND", d.sign, x, x)
		d.I("VPOR", x, highest, highest)
		d.I("VPUNPCKLBW", highest, third, Y(3))
		d.I("VPUNPCKHBW", highest, third, Y(4))
		for i, w := range []Vec{Y(3), Y(3), Y(4), Y(4)} {
			v := Y(5 + i%2)
			d.I([]string{"VPUNPCKLWD", "VPUNPCKHWD"}[i%2], w, zero, v)
			d.I("VMULPS", yScale, v, v)
			d.I("VMOVUPS", v, d.dst.At(32*i))
		}
	})
}

func decodeNibbles256(f *File, t *tables256, scale int) {
	d := newDecoder256(f, t, fmt.Sprintf("decodeNibbles%d", scale), fmt.Sprintf("scales[i/%d] times the value of code i of 4 bits", scale))
	yTable, yShifts, yValues := Y(15), Y(14), Y(12)
	d.I("VMOVUPS", d.table.At(decodeValues), yTable)
	d.I("VMOVDQU", f.Table(fmt.Sprintf("nibbles%d", scale), words(0, 4, 8, 12, 16, 20, 24, 28)), yShifts)
	signs := f.Table(fmt.Sprintf("signs%d", scale), bytes.Repeat([]byte{0, 0, 0, 0x80}, 8))
	d.I("VMOVDQU", signs, Y(13))
	d.each(16, 32/scale, func() {
		for i := range 4 {
			if 8*i%scale == 0 {
				d.I("VBROADCASTSS", d.scales.At(4*(8*i/scale)), yValues)
				d.I("VMULPS", yTable, yValues, yValues)
			}
			code, v := Y(2*i), Y(2*i+1)
			d.I("VPBROADCASTD", d.src.At(4*i), code)
			d.I("VPSRLVD", yShifts, code, code)
			d.I("VPERMPS", yValues, code, v) // indices of three bits
			d.I("VPSLLD", 28, code, code)
			d.I("VPAND", Y(13), code, code)
			d.I("VXORPS", code, v, v)
			d.I("VMOVUPS", v, d.dst.At(32*i))
		}
	})
}
