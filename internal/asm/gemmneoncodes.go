package asm

import "fmt"

// scaleCodes loads the codes of 16 scales, and raises their maximum. It widens them to V3 and V4.
func (v *neonVector) scaleCodes() {
	fn, codes := v.fn, V(2)
	fn.I("VLD1.P", v.s.post(16), list(codes.B16()))
	fn.I("VUMAX", codes.B16(), neonScales.B16(), neonScales.B16())
	fn.I("VUXTL", codes.B8(), V(3).H8())
	fn.I("VUXTL2", codes.B16(), V(4).H8())
}

// storeScales stores the scales in V5…V8 to the frame, times the unit, and sets p to their position.
func (v *neonVector) storeScales() {
	for _, scale := range neonRange(5, 4) {
		v.fn.I("VFMUL", neonUnit.S4(), scale.S4(), scale.S4())
	}
	v.fn.I("ADD", 8, RSP, v.p)
	v.fn.I("VST1", list(V(5).S4(), V(6).S4(), V(7).S4(), V(8).S4()), fmt.Sprintf("(%s)", v.p))
}

// e4m3 moves codes to the exponent and mantissa of a float16, which has a greater bias.
func (v *neonVector) e4m3() {
	fn := v.fn
	v.scaleCodes()
	for i := range 2 {
		half := V(3 + i)
		fn.I("VSHL", 7, half.H8(), half.H8())
		fn.I("VFCVTL", half.H4(), V(5+2*i).S4())
		fn.I("VFCVTL2", half.H8(), V(6+2*i).S4())
	}
	for _, scale := range neonRange(5, 4) {
		fn.I("VFMUL", neonFactor.S4(), scale.S4(), scale.S4())
	}
	v.storeScales()
}

// e8m0 moves codes to the exponent field of a float32.
func (v *neonVector) e8m0() {
	v.exponents()
	v.storeScales()
}

func (v *neonVector) exponents() {
	fn := v.fn
	v.scaleCodes()
	for i := range 2 {
		fn.I("VUXTL", V(3+i).H4(), V(5+2*i).S4())
		fn.I("VUXTL2", V(3+i).H8(), V(6+2*i).S4())
	}
	for _, scale := range neonRange(5, 4) {
		fn.I("VSHL", 23, scale.S4(), scale.S4())
		fn.I("VUMAX", neonLeast.S4(), scale.S4(), scale.S4())
	}
}

// f32x128 repeats the scale of each block of 128 for its four steps.
func (v *neonVector) f32x128() {
	v.fn.I("VLD1.P", v.s.post(16), list(V(2).S4()))
	for i, scale := range neonRange(5, 4) {
		v.fn.I("VDUP", V(2).S4().lane(i), scale.S4())
	}
	v.storeScales()
}

// e8m0OrF32 chooses at run time.
func (v *neonVector) e8m0OrF32() {
	fn := v.fn
	codes, end := fn.NewLabel("codes"), fn.NewLabel("end")
	fn.I("MOVBU", v.tables.At(vectorSingle), v.tmp)
	fn.I("CBZ", v.tmp, string(codes))
	fn.I("VLD1.P", v.s.post(64), list(V(5).S4(), V(6).S4(), V(7).S4(), V(8).S4()))
	fn.Jump("B", end)
	fn.Place(codes)
	v.exponents()
	fn.Place(end)
	v.storeScales()
}

func (v *neonVector) floats() {
	for range neonStep / 16 {
		v.fn.I("VLD1.P", v.w.post(64), list(V(2).S4(), V(3).S4(), V(4).S4(), V(5).S4()))
		for _, value := range neonRange(2, 4) {
			v.product(value)
		}
	}
}

// halves multiplies the even elements of each vector, then the odd ones.
func (v *neonVector) halves() {
	v.fn.I("VLD1.P", v.w.post(64), list(V(2).H8(), V(3).H8(), V(4).H8(), V(5).H8()))
	for _, codes := range neonRange(2, 4) {
		v.fn.I("VSHL", 16, codes.S4(), V(6).S4())
		v.product(V(6))
		v.fn.I("VAND", neonCodes.B16(), codes.B16(), V(7).B16())
		v.product(V(7))
	}
}

// float8 moves the magnitude of each code to that of a float16.
func (v *neonVector) float8() {
	fn := v.fn
	fn.I("VLD1.P", v.w.post(32), list(V(2).B16(), V(3).B16()))
	for _, codes := range neonRange(2, 2) {
		fn.I("VORR", neonMask.B16(), codes.B16(), V(4).B16())
		fn.I("VUMAX", V(4).B16(), neonCodes.B16(), neonCodes.B16())
		fn.I("VSSHLL", 0, codes.B8(), V(5).H8())
		fn.I("VSSHLL2", 0, codes.B16(), V(6).H8())
		for _, words := range neonRange(5, 2) {
			fn.I("VMUL", neonFirst.H8(), words.H8(), words.H8())
			v.float16(words)
		}
	}
}

// float16 masks words to the bits of a float16, converts them and multiplies.
func (v *neonVector) float16(words Neon) {
	v.fn.I("VAND", neonSecond.B16(), words.B16(), words.B16())
	v.widen("VFCVTL", words)
}

// widen converts words to V7 and V8, and multiplies.
func (v *neonVector) widen(mnemonic string, words Neon) {
	v.fn.I(mnemonic, words.H4(), V(7).S4())
	v.product(V(7))
	v.fn.I(mnemonic+"2", words.H8(), V(8).S4())
	v.product(V(8))
}

func (v *neonVector) integers() {
	fn := v.fn
	fn.I("VLD1.P", v.w.post(32), list(V(2).B16(), V(3).B16()))
	for _, codes := range neonRange(2, 2) {
		fn.I("VSSHLL", 0, codes.B8(), V(4).H8())
		fn.I("VSSHLL2", 0, codes.B16(), V(5).H8())
		for _, words := range neonRange(4, 2) {
			fn.I("VSSHLL", 0, words.H4(), V(6).S4())
			fn.I("VSSHLL2", 0, words.H8(), V(7).S4())
			for _, value := range neonRange(6, 2) {
				fn.I("VSCVTF", value.S4(), value.S4())
				v.product(value)
			}
		}
	}
}

// neonSixes is a table of the two bytes that contain the end of each 6-bit code, in four vectors of 8
// codes each (the first two of bytes 0 to 15, the others of bytes 8 to 23), and of the factors that
// move them to the top of their words. Three bytes hold four codes: the first two bytes two of them, the
// last two the others.
func neonSixes(f *File) Sym {
	var index []byte
	for i := range 32 {
		from := i/4*3 + i%4/2 - i/16*8
		index = append(index, byte(from), byte(from+1))
	}
	for range 2 {
		index = append(index, 0, 4, 16, 0, 64, 0, 1, 0)
	}
	return f.Table("sixes", index)
}

// float6 moves a code to the top of a word, then its magnitude to that of a float16.
func (v *neonVector) float6() {
	fn := v.fn
	fn.I("VLD1", fmt.Sprintf("(%s)", v.w), list(V(2).B16()))
	fn.I("ADD", 8, v.w)
	fn.I("VLD1.P", v.w.post(16), list(V(3).B16()))
	for i := range 4 {
		words := V(5)
		fn.I("VTBL", neonSixBytes[i].B16(), list(V(2+i/2).B16()), words.B16())
		fn.I("VMUL", neonSixAt.H8(), words.H8(), words.H8())
		fn.I("VSQDMULH", neonFirst.H8(), words.H8(), words.H8())
		v.float16(words)
	}
}

// nibbles looks up bytes 2 and 3 of the values. Of each 16 codes, the even ones make the first
// two vectors, the odd ones the next two; each takes every fourth.
func (v *neonVector) nibbles() {
	fn := v.fn
	fn.I("VLD1.P", v.w.post(16), list(V(2).B16()))
	fn.I("VUSHR", 4, V(2).B16(), V(3).B16())
	fn.I("VAND", neonMask.B16(), V(2).B16(), V(2).B16())
	for n := range 2 {
		fn.I("VTBL", V(2+n).B16(), list(neonFirst.B16()), V(4+n).B16())
		fn.I("VTBL", V(2+n).B16(), list(neonSecond.B16()), V(6+n).B16())
	}
	for _, zip := range []string{"VZIP1", "VZIP2"} {
		for n := range 2 {
			fn.I(zip, V(6+n).B16(), V(4+n).B16(), V(8).B16())
			fn.I("VSHL", 16, V(8).S4(), V(9).S4())
			v.product(V(9))
			fn.I("VAND", neonCodes.B16(), V(8).B16(), V(10).B16())
			v.product(V(10))
		}
	}
}
