package asm

// quantDecode writes the kernels that decode codes to float32 and multiply them by a scale.
//
// BF16 represents every value of a format of at most 8 bits, so only the upper two bytes of the
// float32 are not zero. One table lookup gives the third byte of a value, and a second lookup the
// fourth. Unpacking these with zeros gives the float32. Values of 4 bits need one lookup.
func quantDecode() *File {
	f := NewFile("quant", "decode")
	decodeBytes(f)
	decodeSixes(f)
	for _, v := range []struct {
		name  string
		scale int
	}{{"decodeNibbles32", 32}, {"decodeNibbles16", 16}} {
		decodeNibbles(f, v.name, v.scale)
	}
	decodeIntegers(f)
	return f
}

// transposed returns the index of a dword in the transpose of a vector of 4×4 dwords. Unpacking
// moves dword v of every lane to vector v, so the kernels transpose codes before.
func transposed(dword int) int { return dword%4*4 + dword/4 }

// A decoder writes one kernel.
type decoder struct {
	*Func
	dst, src, scales, n, table, t Reg
}

// newDecoder begins a kernel. what completes "sets dst[i] to" in its comment. table is the type of
// the elements of its table.
func newDecoder(f *File, name, what, table string) decoder {
	fn := f.Func(name, name+" sets dst[i] to "+what+", i < n, n > 0.\nThe scales of a multiple of 64 codes are read.",
		"dst *float32, src *byte, scales *float32, n int, table *"+table)
	return decoder{fn, fn.Arg("dst"), fn.Arg("src"), fn.Arg("scales"), fn.Arg("n"), fn.Arg("table"), fn.GP("masks and constants")}
}

// each prints a loop over 64 codes at a time, which have sourceBytes bytes and the given number of
// scales. It ends the function.
func (d decoder) each(sourceBytes, scales int, body func()) {
	d.elementLoop(d.n, d.t, func() {
		body()
		d.I("ADDQ", sourceBytes, d.src)
		d.I("ADDQ", 256, d.dst)
		d.I("ADDQ", 4*scales, d.scales)
	})
	d.Return()
}

// loadScales sets Z0 and Z1 to the scales of 64 codes, one for each 32.
func (d decoder) loadScales() {
	d.I("VBROADCASTSS", d.scales.At(0), Z(0))
	d.I("VBROADCASTSS", d.scales.At(4), Z(1))
}

// loadBits loads the bytes of at most 64 codes of the given number of bits into Z10.
func (d decoder) loadBits(bits int, mask Reg) {
	d.I("MOVQ", 64, d.t)
	d.I("CMPQ", d.n, d.t)
	d.I("CMOVQLT", d.n, d.t)
	d.I("IMULQ", bits, d.t)
	d.I("ADDQ", 7, d.t)
	d.I("SHRQ", 3, d.t)
	d.I("MOVQ", -1, mask)
	d.I("BZHIQ", d.t, mask, mask)
	d.I("KMOVQ", mask, K(5))
	d.I("VMOVDQU8.Z", d.src.At(0), K(5), Z(10))
}

// store multiplies the values of vector i by a scale and stores them.
func (d decoder) store(i int, scale, v Vec) {
	d.I("VMULPS", scale, v, v)
	d.I("VMOVDQU32", v, K(1+i), d.dst.At(64*i))
}

// storeBytes makes float32 of the third and highest bytes of 64 values, which are transposed. It
// multiplies them by the scales in Z0 and Z1 and stores them.
func (d decoder) storeBytes(third, highest, zero Vec) {
	low, high := Z(2), Z(3)
	d.I("VPUNPCKLBW", highest, third, low)
	d.I("VPUNPCKHBW", highest, third, high)
	for i, w := range []Vec{low, low, high, high} {
		v := Z(4 + i)
		d.I([]string{"VPUNPCKLWD", "VPUNPCKHWD"}[i%2], w, zero, v)
		d.store(i, Z(i/2), v)
	}
}

func decodeBytes(f *File) {
	d := newDecoder(f, "decodeBytes", `scales[i/32] times the value of the code src[i]; table has
the third bytes of the 128 magnitudes as float32, then their highest bytes`, "byte")
	var order []uint32
	for i := range 16 {
		order = append(order, uint32(transposed(i)))
	}
	third0, third1, highest0, highest1, zSign, zOrder4x4, zero := Z(16), Z(17), Z(18), Z(19), Z(20), Z(21), Z(22)
	for i, v := range []Vec{third0, third1, highest0, highest1} {
		d.I("VMOVDQU64", d.table.At(64*i), v)
	}
	broadcast(d.Func, 0x80808080, d.t, zSign)
	d.I("VMOVDQU64", f.Table("decodeTranspose", words(order...)), zOrder4x4)
	d.I("VPXORD", zero, zero, zero)
	d.each(64, 2, func() {
		d.loadScales()
		d.I("VMOVDQU8.Z", d.src.At(0), K(1), Z(10))
		d.I("VPERMD", Z(10), zOrder4x4, Z(10))
		d.I("VMOVDQA64", Z(10), Z(11))
		d.I("VMOVDQA64", Z(10), Z(12))
		d.I("VPERMI2B", third1, third0, Z(11)) // indices of 7 bits
		d.I("VPERMI2B", highest1, highest0, Z(12))
		d.I("VPTERNLOGD", 0xf8, zSign, Z(10), Z(12)) // Z12 | Z10 & zSign
		d.storeBytes(Z(11), Z(12), zero)
	})
}

func decodeSixes(f *File) {
	d := newDecoder(f, "decodeSixes", `scales[i/32] times the value of code i of 6 bits; table has
the third bytes of the 64 values as float32 and, from byte 128 on, their highest bytes`, "byte")
	spread := f.Table("decodeSpread", indices(func(i int) int { return transposed(i/4)*3 + min(i%4, 2) }))
	shifts := f.Table("decodeSixShifts", indices(func(i int) int { return i%8/4*32 + i%4*6 }))
	third, highest, zSpread, zShifts, zero := Z(16), Z(17), Z(18), Z(19), Z(20)
	d.I("VMOVDQU64", d.table.At(0), third)
	d.I("VMOVDQU64", d.table.At(128), highest)
	d.I("VMOVDQU64", spread, zSpread)
	d.I("VMOVDQU64", shifts, zShifts)
	d.I("VPXORD", zero, zero, zero)
	mask := d.GP("bytes of the source")
	d.each(48, 2, func() {
		d.loadScales()
		d.loadBits(6, mask)
		d.I("VPERMB", Z(10), zSpread, Z(10)) // three bytes in each dword
		d.I("VPMULTISHIFTQB", Z(10), zShifts, Z(10))
		d.I("VPERMB", third, Z(10), Z(11)) // indices of 6 bits
		d.I("VPERMB", highest, Z(10), Z(12))
		d.storeBytes(Z(11), Z(12), zero)
	})
}

func decodeNibbles(f *File, name string, scale int) {
	d := newDecoder(f, name, map[int]string{32: "scales[i/32]", 16: "scales[i/16]"}[scale]+` times the value of code i of 4 bits; table has the
16 values`, "float32")
	zTable, zShifts := Z(16), Z(17)
	d.I("VMOVDQU64", d.table.At(0), zTable)
	d.I("VMOVDQU64", f.Table(name+"Shifts", indices(func(i int) int { return i % 8 })), zShifts)
	for v := range 4 { // one byte to each quadword
		d.I("VMOVDQU64", f.Table(name+"Spread"+string(rune('0'+v)), indices(func(i int) int { return 8*v + i/8 })), Z(18+v))
	}
	mask := d.GP("bytes of the source")
	d.each(32, 64/scale, func() {
		d.loadBits(4, mask)
		for v := range 4 {
			code, values := Z(v), Z(4+v*16/scale)
			if v*16%scale == 0 {
				d.I("VMULPS.BCST", d.scales.At(64*v/scale), zTable, values)
			}
			d.I("VPERMB", Z(10), Z(18+v), code)
			d.I("VPMULTISHIFTQB", code, zShifts, code) // one nibble in the low bits of each dword
			d.I("VPERMD", values, code, code)
			d.I("VMOVDQU32", code, K(1+v), d.dst.At(64*v))
		}
	})
}

func decodeIntegers(f *File) {
	d := newDecoder(f, "decodeIntegers", `scales[i/32] times the value of the integer src[i]; table has
the values of 0 and 1`, "float32")
	zStep := Z(16)
	d.I("VBROADCASTSS", d.table.At(4), zStep)
	d.each(64, 2, func() {
		d.loadScales()
		for i := range 4 {
			v := Z(4 + i)
			d.I("VPMOVSXBD.Z", d.src.At(16*i), K(1+i), v)
			d.I("VCVTDQ2PS", v, v)
			d.I("VMULPS", zStep, v, v)
			d.store(i, Z(i/2), v)
		}
	})
}
