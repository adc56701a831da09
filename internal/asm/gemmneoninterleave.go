package asm

import "fmt"

// A neonInterleaved writes a kernel of gemm.Interleave for arm64, most with dot products of bytes (SDOT). Four registers hold four
// rows of a group each. Both operands are signed, so that sums start at zero. Instructions of a block of 16 rows, for 1, 2 and 4
// rows of A, of which the last three columns are those of a product of 32 codes:
//
//	MXFP4   148 203 313     9.3 6.3 4.9
//	NVFP4    89 127 203    11.1 7.9 6.3
//	MXINT8   94 150 262     5.9 4.7 4.1
//	Q8_0     83 139 251     5.2 4.3 3.9
type neonInterleaved struct {
	name        string
	block, bits int
	scale       func(k *neonInterleaved) // loads the scales of a block to neonScale, times the unit of the codes
	times       string                   // combines a scale with that of A

	begin    func(k *neonInterleaved)            // sets the constants
	multiply func(k *neonInterleaved, batch int) // adds the products of a block of all 16 rows of B
	most     int                                 // rows of A in a pass

	fn              *Func
	w, s, sums, tmp Reg
	x               [vectorBatches]Reg
}

// The registers of a neonInterleaved: sums of a block, by rows of A; codes, later scales; elements of A; constants.
const neonQuarters = 4 // of the rows of a group

func neonBlock(b, q int) Neon          { return V(neonQuarters*b + q) }
func neonCode(i, q int) Neon           { return V(16 + neonQuarters*i + q) }
func neonScale(q int) Neon             { return neonCode(0, q) }
func neonElements(b int) Neon          { return V(24 + b) }
func neonProduct(q int) Neon           { return neonCode(1, q) }
func (k *neonInterleaved) low() Neon   { return V(30) } // low nibbles
func (k *neonInterleaved) table() Neon { return V(31) } // integer of each nibble
func (k *neonInterleaved) unit() Neon  { return V(29) } // 2⁸: the power of two of float16's bias minus E4M3's
func (k *neonInterleaved) one() Neon   { return V(31) } // of 8-bit codes: the bits of 1, which scales of A lack, or 0

func neonInterleavedKernels() *File {
	f := ARM64.NewFile("gemm", "interleaved")
	for _, k := range []neonInterleaved{
		{name: "MX4", block: 32, bits: 4, scale: (*neonInterleaved).exponents, times: "VADD"},
		{name: "NV4", block: 16, bits: 4, scale: (*neonInterleaved).factors, times: "VFMUL"},
		{name: "8", block: 32, bits: 8, scale: (*neonInterleaved).exponentsOrFloats, times: "VFMUL"},
	} {
		k.begin, k.multiply, k.most = (*neonInterleaved).beginInt8, (*neonInterleaved).multiplyInt8, vectorBatches
		name := "interleavedInt" + k.name + "SDOT"
		k.write(f, name, fmt.Sprintf("%s is an interleavedFunc for blocks of %d codes of %d bits and integers.", name, k.block, k.bits))
	}
	neonInterleavedBF16(f)
	neonInterleavedF32(f)
	return f
}

func (k *neonInterleaved) write(f *File, name, doc string) {
	fn := f.Func(name, doc, "p interleavedArgs")
	fn.Frame(k.most * 64)
	k.fn, k.w, k.s = fn, fn.Arg("w"), fn.Arg("s")
	x, groups, y := fn.Arg("x"), fn.Arg("groups"), fn.Arg("y")
	xStride, yStride, batchArg := fn.Arg("xStride"), fn.Arg("yStride"), fn.Arg("batch")
	left, row := fn.GP("blocks left"), fn.GP("row of y")
	k.sums, k.tmp = fn.GP("sums"), fn.GP("scratch")
	for b := range k.most {
		k.x[b] = fn.GP(fmt.Sprintf("position in row %d of x", b))
	}
	fn.Note("V0…V15", "sums of a block")
	k.begin(k)
	done := fn.NewLabel("done")
	for batch := k.most; batch > 0; batch /= 2 {
		fewer := fn.NewLabel("fewer")
		fn.I("CMP", batch, batchArg)
		fn.Jump("BLT", fewer)
		group := fn.Label(fmt.Sprintf("group%d", batch))
		fn.I("MOVD", x, k.x[0])
		for b := 1; b < batch; b++ {
			fn.I("ADD", xStride, k.x[b-1], k.x[b])
		}
		fn.I("MOVD", fn.FP("blocks"), left)
		fn.I("ADD", 8, RSP, k.sums)
		quarters := [4]Neon{}
		for q := range quarters {
			quarters[q] = neonBlock(0, q).S4()
			neonZero(fn, neonBlock(0, q))
		}
		for range batch {
			fn.I("VST1.P", list(quarters[:]...), k.sums.post(64))
		}
		block := fn.Label(fmt.Sprintf("block%d", batch))
		k.multiply(k, batch)
		fn.I("SUBS", 1, left)
		fn.Jump("BNE", block)
		fn.I("ADD", 8, RSP, k.sums)
		fn.I("MOVD", y, row)
		for range batch {
			fn.I("VLD1.P", k.sums.post(64), list(quarters[:]...))
			fn.I("VST1", list(quarters[:]...), fmt.Sprintf("(%s)", row))
			fn.I("ADD", yStride, row)
		}
		fn.I("ADD", 64, y)
		fn.I("SUBS", 1, groups)
		fn.Jump("BNE", group)
		fn.Jump("B", done)
		fn.Place(fewer)
	}
	fn.Place(done)
	fn.Return()
}

// codes returns the registers of codes i with lanes of bytes.
func (k *neonInterleaved) codes(i int) []Neon {
	var regs []Neon
	for q := range neonQuarters {
		regs = append(regs, neonCode(i, q).B16())
	}
	return regs
}

func (k *neonInterleaved) beginInt8() {
	fn := k.fn
	if k.bits == 4 {
		fn.Note("V30 V31", "low nibbles; integer of each nibble")
		fn.I("MOVD", fn.FP("tables"), k.tmp)
		fn.I("FMOVQ", k.tmp.At(0), "F31")
		fn.I("VMOVI", 12, k.low().B16())
		fn.I("VSUB", k.low().B16(), k.table().B16(), k.table().B16())
		fn.I("VMOVI", 0x0f, k.low().B16())
	}
	if k.bits == 8 {
		floats := fn.NewLabel("floats")
		fn.Note("V31", "the bits of 1 if scales are E8M0, otherwise 0")
		neonZero(fn, k.one())
		fn.I("MOVD", fn.FP("other"), k.tmp)
		fn.I("CBNZ", k.tmp, string(floats))
		neonConstant(fn, k.one(), 0x3f800000, k.tmp)
		fn.Place(floats)
		return
	}
	neonConstant(fn, k.unit(), 0x43800000, k.tmp)
}

func (k *neonInterleaved) multiplyInt8(batch int) {
	fn := k.fn
	for b := range batch {
		for q := range neonQuarters {
			neonZero(fn, neonBlock(b, q))
		}
	}
	const positions = 16 // of a register of x
	vectors := positions * k.bits / 32
	if k.block > positions {
		fn.I("MOVD", k.block/positions, k.tmp)
	}
	part := fn.Label("part")
	lane := 0
	dot := func(i int) {
		for b := range batch {
			for q := range neonQuarters {
				fn.I("VSDOT.S", neonElements(b).S4().lane(lane), neonCode(i, q).B16(), neonBlock(b, q).S4())
			}
		}
		lane = (lane + 1) % 4
	}
	for b := range batch {
		fn.I("VLD1.P", k.x[b].post(positions), list(neonElements(b).B16()))
	}
	for range vectors {
		fn.I("PRFM", k.w.At(neonAhead), "PLDL1KEEP")
		fn.I("VLD1.P", k.w.post(64), list(k.codes(0)...))
		if k.bits == 8 {
			dot(0)
			continue
		}
		for q := range neonQuarters {
			fn.I("VUSHR", 4, neonCode(0, q).B16(), neonCode(1, q).B16())
			fn.I("VAND", k.low().B16(), neonCode(0, q).B16(), neonCode(0, q).B16())
		}
		for i := range 2 {
			for _, codes := range k.codes(i) {
				fn.I("VTBL", codes, list(k.table().B16()), codes)
			}
		}
		dot(0)
		dot(1)
	}
	if k.block > positions {
		fn.I("SUBS", 1, k.tmp)
		fn.Jump("BNE", part)
	}
	k.scale(k)
	fn.I("ADD", 8, RSP, k.sums)
	var sums []Neon
	for q := range neonQuarters {
		sums = append(sums, V(24+q).S4())
	}
	for b := range batch {
		fn.I("ADD", 4, k.x[b], k.tmp) // after the initial value, which operands with a bias need
		fn.I("VLD1R", fmt.Sprintf("(%s)", k.tmp), list(V(28).S4()))
		if k.bits == 8 {
			fn.I("VADD", k.one().S4(), V(28).S4(), V(28).S4())
		}
		fn.I("ADD", 8, k.x[b])
		fn.I("VLD1", fmt.Sprintf("(%s)", k.sums), list(sums...))
		for q := range neonQuarters {
			fn.I("VSCVTF", neonBlock(b, q).S4(), neonBlock(b, q).S4())
			fn.I(k.times, V(28).S4(), neonScale(q).S4(), neonProduct(q).S4())
			fn.I("VFMLA", neonProduct(q).S4(), neonBlock(b, q).S4(), sums[q])
		}
		fn.I("VST1.P", list(sums...), k.sums.post(64))
	}
}

// exponents loads E8M0 codes as exponents.
func (k *neonInterleaved) exponents() {
	fn := k.fn
	fn.I("VLD1.P", k.s.post(16), list(neonProduct(0).B16()))
	fn.I("VUXTL", neonProduct(0).B8(), neonProduct(1).H8())
	fn.I("VUXTL2", neonProduct(0).B16(), neonProduct(2).H8())
	for i := range 2 {
		fn.I("VUXTL", neonProduct(1+i).H4(), neonScale(2*i).S4())
		fn.I("VUXTL2", neonProduct(1+i).H8(), neonScale(2*i+1).S4())
	}
	for q := range neonQuarters {
		fn.I("VSHL", 23, neonScale(q).S4(), neonScale(q).S4())
	}
}

// factors loads E4M3 codes, which are neither negative nor NaN, as float16 and converts them.
func (k *neonInterleaved) factors() {
	fn := k.fn
	fn.I("VLD1.P", k.s.post(16), list(neonProduct(0).B16()))
	fn.I("VUSHLL", 7, neonProduct(0).B8(), neonProduct(1).H8())
	fn.I("VUSHLL2", 7, neonProduct(0).B16(), neonProduct(2).H8())
	for i := range 2 {
		fn.I("VFCVTL", neonProduct(1+i).H4(), neonScale(2*i).S4())
		fn.I("VFCVTL2", neonProduct(1+i).H8(), neonScale(2*i+1).S4())
	}
	for q := range neonQuarters {
		fn.I("VFMUL", k.unit().S4(), neonScale(q).S4(), neonScale(q).S4())
	}
}

// exponentsOrFloats chooses at run time.
func (k *neonInterleaved) exponentsOrFloats() {
	fn := k.fn
	floats, done := fn.NewLabel("floats"), fn.NewLabel("scaled")
	fn.I("MOVD", fn.FP("other"), k.tmp)
	fn.I("CBNZ", k.tmp, string(floats))
	k.exponents()
	fn.Jump("B", done)
	fn.Place(floats)
	fn.I("VLD1.P", k.s.post(64), list(neonScale(0).S4(), neonScale(1).S4(), neonScale(2).S4(), neonScale(3).S4()))
	fn.Place(done)
}
