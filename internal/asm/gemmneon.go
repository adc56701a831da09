package asm

import "fmt"

// gemmNEON writes the kernels of arm64. The vector kernels multiply one row of A in float32, as
// vectorF32 does with 4 lanes: 8-bit codes become float16, 4-bit codes BF16.
func gemmNEON() []*File {
	f := ARM64.NewFile("gemm", "vectorneon")
	neonVector{name: "FP8", bits: 8, block: 32}.write(f)
	neonVector{name: "FP4", bits: 4, block: 32}.write(f)
	neonVector{name: "FP4x16", bits: 4, block: 16}.write(f)
	tiles, packs := ARM64.NewFile("gemm", "dot"), ARM64.NewFile("gemm", "pack")
	neonTile(tiles)
	neonPacks(packs)
	return []*File{f, tiles, packs}
}

// A neonVector writes the kernel for a format of B. A group has 16 scales; a step is 32 codes.
type neonVector struct {
	name        string
	bits, block int
}

// neonAhead is the distance in bytes at which codes are prefetched.
const neonAhead = 512

// The registers of a neonVector.
var (
	neonSum, neonDot      = V(0), V(1)
	neonFirst, neonSecond = V(31), V(30) // constants of the arithmetic
	neonUnit              = V(29)        // factor of the scales
	neonMask              = V(28)        // sign bits of bytes; with 4 bits, low nibbles
	neonScales            = V(27)        // maximum of the scale codes
	neonCodes             = V(26)        // maximum of the codes with sign bits set; with 4 bits, upper halves of words
	neonFactor            = V(25)        // 2⁸: the power of two of float16's bias minus E4M3's
	neonLeast             = V(24)        // 2⁻¹²⁷, E8M0's code 0
)

func (v neonVector) write(f *File) {
	name := "vector" + v.name + "NEON"
	group := 16 * v.block
	fn := f.Func(name, fmt.Sprintf("%s is a vectorFunc for one row of A, in groups of %d codes in blocks of %d\nand steps of 32. It reports scales above the largest supported one, and NaN elements of 8 bits.", name, group, v.block), vectorParams)
	fn.Frame(64)
	w, s, y, rows, tables := fn.Arg("w"), fn.Arg("s"), fn.Arg("y"), fn.Arg("rows"), fn.Arg("tables")
	wNext, sNext := fn.Arg("wNext"), fn.Arg("sNext")
	x, left, steps, p, tmp := fn.GP("position in x"), fn.GP("steps left after the group"), fn.GP("steps left of the group"), fn.GP("position in the scales of the group"), fn.GP("scratch")
	fn.Note("V0 V1", "sums; sums of the block")
	v.begin(fn, tables, tmp)
	row := fn.Label("row")
	fn.I("MOVD", fn.FP("x"), x)
	fn.I("MOVD", fn.FP("steps"), left)
	neonZero(fn, neonSum)
	groupLoop := fn.Label("group")
	v.decodeScales(fn, s, p)
	fn.I("MOVD", group/32, steps)
	fn.I("CMP", steps, left)
	fn.I("CSEL", "LT", left, steps, steps)
	fn.I("SUB", steps, left)
	step := fn.Label("step")
	fn.I("PRFM", w.At(neonAhead), "PLDL1KEEP")
	v.multiply(fn, w, x, p)
	fn.I("SUBS", 1, steps)
	fn.Jump("BNE", step)
	fn.I("CMP", 0, left)
	fn.Jump("BNE", groupLoop)

	fn.Comment("y += sum of the lanes")
	fn.I("VFADDP", neonSum.S4(), neonSum.S4(), neonSum.S4())
	fn.I("VFADDP", neonSum.S4(), neonSum.S4(), neonSum.S4())
	fn.I("FMOVS", y.At(0), "F1")
	fn.I("FADDS", "F0", "F1", "F1")
	fn.I("FMOVS", "F1", y.At(0))
	fn.I("ADD", 4, y)
	fn.I("ADD", wNext, w)
	fn.I("ADD", sNext, s)
	fn.I("SUBS", 1, rows)
	fn.Jump("BNE", row)
	v.report(fn, tables, tmp)
	fn.Return()
}

// begin sets the constants and clears the maxima.
func (v neonVector) begin(fn *Func, tables, tmp Reg) {
	fn.I("FMOVQ", tables.At(vectorFirst), "F31")
	fn.I("FMOVQ", tables.At(vectorSecond), "F30")
	fn.I("ADD", vectorUnit, tables, tmp)
	fn.I("VLD1R", fmt.Sprintf("(%s)", tmp), list(neonUnit.S4()))
	if v.bits == 8 {
		fn.I("VMOVI", 0x80, neonMask.B16())
		neonZero(fn, neonCodes)
	} else {
		fn.I("VMOVI", 0x0f, neonMask.B16())
		fn.I("VMOVI", 0xff, neonCodes.B16())
		fn.I("VSHL", 16, neonCodes.S4(), neonCodes.S4())
	}
	fn.I("MOVD", 0x43800000, tmp)
	fn.I("VDUP", tmp, neonFactor.S4())
	fn.I("MOVD", 0x00400000, tmp)
	fn.I("VDUP", tmp, neonLeast.S4())
	neonZero(fn, neonScales)
}

// multiply adds the products of a step of codes at w with x, times the scales at p. It advances all
// three.
func (v neonVector) multiply(fn *Func, w, x, p Reg) {
	n := 0
	product := func(value Neon) {
		xs := V(16 + n%4)
		if n%4 == 0 {
			fn.I("VLD1.P", x.post(64), list(V(16).S4(), V(17).S4(), V(18).S4(), V(19).S4()))
		}
		op := "VFMLA"
		if n*4%v.block == 0 {
			op = "VFMUL"
		}
		fn.I(op, xs.S4(), value.S4(), neonDot.S4())
		if n++; n*4%v.block == 0 {
			fn.I("VLD1R.P", p.post(4), list(V(20).S4()))
			fn.I("VFMLA", V(20).S4(), neonDot.S4(), neonSum.S4())
		}
	}
	if v.bits == 8 {
		v.float8(fn, w, product)
	} else {
		v.nibbles(fn, w, product)
	}
}

// report sets the result: whether the maxima show scales or codes that the kernel does not support.
func (v neonVector) report(fn *Func, tables, tmp Reg) {
	found, largest := V(1).B16(), V(2)
	if v.block == 16 {
		fn.I("VMOVI", 0x7e, largest.B16())
	} else {
		fn.I("FMOVQ", tables.At(vectorLargest), "F2")
	}
	fn.I("VUMAX", largest.B16(), neonScales.B16(), found)
	fn.I("VEOR", largest.B16(), found, found)
	if v.bits == 8 {
		fn.I("VMOVI", 0xff, V(3).B16())
		fn.I("VCMEQ", V(3).B16(), neonCodes.B16(), neonCodes.B16())
		fn.I("VORR", neonCodes.B16(), found, found)
	}
	fn.I("VUMAXV", found, found)
	fn.I("VMOV", "V1.B[0]", tmp)
	fn.I("MOVD", tmp, fn.FP("found"))
}

// decodeScales decodes the scales of a group to the frame and sets p to their position.
func (v neonVector) decodeScales(fn *Func, s, p Reg) {
	codes := V(2)
	fn.I("VLD1.P", s.post(16), list(codes.B16()))
	fn.I("VUMAX", codes.B16(), neonScales.B16(), neonScales.B16())
	fn.I("VUXTL", codes.B8(), V(3).H8())
	fn.I("VUXTL2", codes.B16(), V(4).H8())
	for i := range 2 {
		half, low, high := V(3+i), V(5+2*i), V(6+2*i)
		if v.block == 16 { // E4M3: the exponent and mantissa of a float16
			fn.I("VSHL", 7, half.H8(), half.H8())
			fn.I("VFCVTL", half.H4(), low.S4())
			fn.I("VFCVTL2", half.H8(), high.S4())
		} else { // E8M0: the exponent of a float32
			fn.I("VUXTL", half.H4(), low.S4())
			fn.I("VUXTL2", half.H8(), high.S4())
		}
		for _, scale := range []Neon{low.S4(), high.S4()} {
			if v.block == 16 {
				fn.I("VFMUL", neonFactor.S4(), scale, scale)
			} else {
				fn.I("VSHL", 23, scale, scale)
				fn.I("VUMAX", neonLeast.S4(), scale, scale)
			}
			fn.I("VFMUL", neonUnit.S4(), scale, scale)
		}
	}
	fn.I("ADD", 8, RSP, p)
	fn.I("VST1", list(V(5).S4(), V(6).S4(), V(7).S4(), V(8).S4()), fmt.Sprintf("(%s)", p))
}

// float8 moves the magnitude of each code to that of a float16.
func (v neonVector) float8(fn *Func, w Reg, product func(Neon)) {
	fn.I("VLD1.P", w.post(32), list(V(2).B16(), V(3).B16()))
	for _, codes := range []Neon{V(2), V(3)} {
		fn.I("VORR", neonMask.B16(), codes.B16(), V(4).B16())
		fn.I("VUMAX", V(4).B16(), neonCodes.B16(), neonCodes.B16())
		fn.I("VSSHLL", 0, codes.B8(), V(5).H8())
		fn.I("VSSHLL2", 0, codes.B16(), V(6).H8())
		for _, words := range []Neon{V(5), V(6)} {
			fn.I("VMUL", neonFirst.H8(), words.H8(), words.H8())
			fn.I("VAND", neonSecond.B16(), words.B16(), words.B16())
			fn.I("VFCVTL", words.H4(), V(7).S4())
			product(V(7))
			fn.I("VFCVTL2", words.H8(), V(8).S4())
			product(V(8))
		}
	}
}

// nibbles looks up bytes 2 and 3 of the values. Of each 16 codes, the even ones make the first
// two vectors, the odd ones the next two; each takes every fourth.
func (v neonVector) nibbles(fn *Func, w Reg, product func(Neon)) {
	fn.I("VLD1.P", w.post(16), list(V(2).B16()))
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
			product(V(9))
			fn.I("VAND", neonCodes.B16(), V(8).B16(), V(10).B16())
			product(V(10))
		}
	}
}
