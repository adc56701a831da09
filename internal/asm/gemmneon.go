package asm

import "fmt"

// gemmNEON writes the kernels of arm64. The vector kernels multiply one row of A in float32, as
// vectorF32 does with 4 lanes: 8- and 6-bit codes become float16, 4-bit codes BF16.
func gemmNEON() []*File {
	f := ARM64.NewFile("gemm", "vectorneon")
	sixes := neonSixes(f)
	for _, v := range []neonVector{
		{name: "F32", bits: 32, decode: (*neonVector).floats},
		{name: "BF16", bits: 16, decode: (*neonVector).halves},
		{name: "FP8", bits: 8, block: 32, scales: (*neonVector).e8m0, decode: (*neonVector).float8},
		{name: "FP8x128", bits: 8, block: 128, scales: (*neonVector).f32x128, decode: (*neonVector).float8},
		{name: "INT8", bits: 8, block: 32, scales: (*neonVector).e8m0OrF32, decode: (*neonVector).integers},
		{name: "FP6", bits: 6, block: 32, scales: (*neonVector).e8m0, decode: (*neonVector).float6},
		{name: "FP4", bits: 4, block: 32, scales: (*neonVector).e8m0, decode: (*neonVector).nibbles},
		{name: "FP4x16", bits: 4, block: 16, scales: (*neonVector).e4m3, decode: (*neonVector).nibbles},
	} {
		v.sixes = sixes
		v.write(f)
	}
	tiles, packs := ARM64.NewFile("gemm", "dot"), ARM64.NewFile("gemm", "pack")
	for _, t := range neonTiles {
		t.write(tiles)
	}
	for _, d := range neonInt8s {
		d.write(tiles)
	}
	neonPacks(packs)
	return []*File{f, neonInterleavedKernels(), tiles, packs}
}

// A neonVector writes the kernel for a format of B. A step is 32 codes; a group has 16 scales, of which a
// block of 128 takes four. Instructions of a step, and of the scales and the loop of a group:
//
//	          step  group                 step  group
//	F32       17    4        FP6          43    26
//	BF16      23    4        MXFP4        35    26
//	FP8       41    26       NVFP4        37    24
//	FP8x128   41    15       INT8         37    30
type neonVector struct {
	name        string
	bits        int
	block       int                 // codes that share a scale; 0: unscaled
	scales      func(v *neonVector) // of a group, to the frame
	decode      func(v *neonVector) // a step
	sixes       Sym
	fn          *Func
	w, s, x, p  Reg
	tables, tmp Reg
	n           int // vectors of the step that are multiplied already
}

const neonStep = 32

// scaled returns the codes that a scale in the frame is for.
func (v *neonVector) scaled() int { return min(v.block, neonStep) }

// neonAhead is the distance in bytes at which codes are prefetched.
const neonAhead = 512

// The registers of a neonVector. V2 to V10 are scratch, V16 to V20 hold x and a scale.
var (
	neonSum, neonDot      = V(0), V(1)
	neonSums              = []Neon{V(0), V(1), V(21), V(22)} // without scales
	neonSixAt             = V(11)                            // factors that move 6-bit codes to the top of their words
	neonSixBytes          = neonRange(12, 4)                 // bytes of these words, for each 8 codes
	neonFirst, neonSecond = V(31), V(30)                     // constants of the arithmetic
	neonUnit              = V(29)                            // factor of the scales
	neonMask              = V(28)                            // sign bits of bytes; with 4 bits, low nibbles
	neonScales            = V(27)                            // maximum of the scale codes
	neonCodes             = V(26)                            // maximum of the codes with sign bits set; with 4 bits, upper halves of words
	neonFactor            = V(25)                            // 2⁸: the power of two of float16's bias minus E4M3's
	neonLeast             = V(24)                            // 2⁻¹²⁷, E8M0's code 0
)

func (v *neonVector) write(f *File) {
	group := 16 * neonStep
	what, reports := "unscaled codes ", ""
	if v.block > 0 {
		group = 16 * v.scaled()
		what, reports = fmt.Sprintf("codes in blocks of %d\n", v.block), " It reports scales above the largest supported one, and NaN "+
			"elements of 8 bits."
	}
	name := "vector" + v.name + "NEON"
	fn := f.Func(name, fmt.Sprintf("%s is a vectorFunc for one row of A, in groups of %d %sand steps of %d.%s", name, group, what, neonStep,
		reports), vectorParams)
	v.fn = fn
	if v.block > 0 {
		fn.Frame(64)
	}
	v.w, v.s, v.tables = fn.Arg("w"), fn.Arg("s"), fn.Arg("tables")
	y, rows := fn.Arg("y"), fn.Arg("rows")
	wNext, sNext := fn.Arg("wNext"), fn.Arg("sNext")
	v.x = fn.GP("position in x")
	left, steps := fn.GP("steps left after the group"), fn.GP("steps left of the group")
	v.p, v.tmp = fn.GP("position in the scales of the group"), fn.GP("scratch")
	if v.block > 0 {
		fn.Note("V0 V1", "sums; sums of the block")
	} else {
		fn.Note("V0 V1 V21 V22", "sums")
	}
	v.begin()
	row := fn.Label("row")
	fn.I("MOVD", fn.FP("x"), v.x)
	fn.I("MOVD", fn.FP("steps"), left)
	neonZero(fn, neonSum)
	if v.block == 0 {
		for _, sum := range neonSums[1:] {
			neonZero(fn, sum)
		}
	}
	groupLoop := fn.Label("group")
	if v.block > 0 {
		v.scales(v)
	}
	fn.I("MOVD", group/neonStep, steps)
	fn.I("CMP", steps, left)
	fn.I("CSEL", "LT", left, steps, steps)
	fn.I("SUB", steps, left)
	step := fn.Label("step")
	for at := 0; at < neonStep*v.bits/8; at += 64 {
		fn.I("PRFM", v.w.At(neonAhead+at), "PLDL1KEEP")
	}
	v.n = 0
	v.decode(v)
	fn.I("SUBS", 1, steps)
	fn.Jump("BNE", step)
	fn.I("CMP", 0, left)
	fn.Jump("BNE", groupLoop)

	fn.Comment("y += sum of the lanes")
	if v.block == 0 {
		for _, pair := range [][2]int{{1, 0}, {3, 2}, {2, 0}} {
			to := neonSums[pair[1]].S4()
			fn.I("VFADD", neonSums[pair[0]].S4(), to, to)
		}
	}
	fn.I("VFADDP", neonSum.S4(), neonSum.S4(), neonSum.S4())
	fn.I("VFADDP", neonSum.S4(), neonSum.S4(), neonSum.S4())
	fn.I("FMOVS", y.At(0), "F1")
	fn.I("FADDS", "F0", "F1", "F1")
	fn.I("FMOVS", "F1", y.At(0))
	fn.I("ADD", 4, y)
	fn.I("ADD", wNext, v.w)
	fn.I("ADD", sNext, v.s)
	fn.I("SUBS", 1, rows)
	fn.Jump("BNE", row)
	v.report()
	fn.Return()
}

// begin sets the constants and clears the maxima.
func (v *neonVector) begin() {
	fn := v.fn
	if v.bits == 16 || v.bits == 4 {
		fn.I("VMOVI", 0xff, neonCodes.B16())
		fn.I("VSHL", 16, neonCodes.S4(), neonCodes.S4())
	}
	if v.block == 0 {
		return
	}
	fn.I("FMOVQ", v.tables.At(vectorFirst), "F31")
	fn.I("FMOVQ", v.tables.At(vectorSecond), "F30")
	fn.I("ADD", vectorUnit, v.tables, v.tmp)
	fn.I("VLD1R", fmt.Sprintf("(%s)", v.tmp), list(neonUnit.S4()))
	switch v.bits {
	case 8:
		fn.I("VMOVI", 0x80, neonMask.B16())
		neonZero(fn, neonCodes)
	case 6:
		fn.I("VUSHR", 1, neonFirst.H8(), neonFirst.H8()) // SQDMULH doubles
		fn.I("MOVD", "$"+v.sixes.String(), v.tmp)
		fn.I("VLD1.P", v.tmp.post(64), list(neonSixBytes[0].B16(), neonSixBytes[1].B16(), neonSixBytes[2].B16(), neonSixBytes[3].B16()))
		fn.I("VLD1", fmt.Sprintf("(%s)", v.tmp), list(neonSixAt.B16()))
	case 4:
		fn.I("VMOVI", 0x0f, neonMask.B16())
	}
	fn.I("MOVD", 0x43800000, v.tmp)
	fn.I("VDUP", v.tmp, neonFactor.S4())
	fn.I("MOVD", 0x00400000, v.tmp)
	fn.I("VDUP", v.tmp, neonLeast.S4())
	neonZero(fn, neonScales)
}

// product adds the products of the next 4 values of a step with x, and after a block multiplies by its scale.
func (v *neonVector) product(value Neon) {
	fn, xs := v.fn, V(16+v.n%4)
	if v.n%4 == 0 {
		fn.I("VLD1.P", v.x.post(64), list(V(16).S4(), V(17).S4(), V(18).S4(), V(19).S4()))
	}
	v.n++
	if v.block == 0 {
		fn.I("VFMLA", xs.S4(), value.S4(), neonSums[v.n%4].S4())
		return
	}
	op := "VFMLA"
	if (v.n-1)*4%v.scaled() == 0 {
		op = "VFMUL"
	}
	fn.I(op, xs.S4(), value.S4(), neonDot.S4())
	if v.n*4%v.scaled() == 0 {
		fn.I("VLD1R.P", v.p.post(4), list(V(20).S4()))
		fn.I("VFMLA", V(20).S4(), neonDot.S4(), neonSum.S4())
	}
}

// report sets the result: whether the maxima show scales or codes that the kernel does not support.
func (v *neonVector) report() {
	fn, found, largest := v.fn, V(1).B16(), V(2)
	if v.block == 0 {
		fn.I("MOVD", "ZR", fn.FP("found"))
		return
	}
	if v.block == 16 {
		fn.I("VMOVI", 0x7e, largest.B16())
	} else {
		fn.I("FMOVQ", v.tables.At(vectorLargest), "F2")
	}
	fn.I("VUMAX", largest.B16(), neonScales.B16(), found)
	fn.I("VEOR", largest.B16(), found, found)
	if v.bits == 8 {
		fn.I("VMOVI", 0xff, V(3).B16())
		fn.I("VCMEQ", V(3).B16(), neonCodes.B16(), neonCodes.B16())
		fn.I("VORR", neonCodes.B16(), found, found)
	}
	fn.I("VUMAXV", found, found)
	fn.I("VMOV", "V1.B[0]", v.tmp)
	fn.I("MOVD", v.tmp, fn.FP("found"))
}
