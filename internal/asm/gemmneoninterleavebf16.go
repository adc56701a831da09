package asm

import "encoding/binary"

// neonInterleavedBF16 writes the kernel of gemm.Interleave for arm64 with BF16 dot products (BFDOT) and 4-bit codes, in blocks of 32
// codes with scales in E8M0, or 16 and E4M3. Two tables have the bytes of the BF16 values; interleaved, they are the elements 0, 2, 4 and 6
// of two rows, or 1, 3, 5 and 7. Lanes are added in pairs at the end of a block. Instructions of a block of 16 rows, for 1 and 2
// rows of A, of which the last two columns are those of a product of 32 codes:
//
//	MXFP4   292 386   18 12
//	NVFP4   166 222   21 14
func neonInterleavedBF16(f *File) {
	order := make([]byte, 32) // of pairs of A, which are the elements 0 and 4, 1 and 5, 2 and 6, 3 and 7
	for i, at := range []uint16{0, 4, 1, 5, 0, 4, 1, 5, 2, 6, 3, 7, 2, 6, 3, 7} {
		binary.LittleEndian.PutUint16(order[2*i:], 2*at+(2*at+1)<<8)
	}
	e := f.shared("evenOdd", order)
	k := &neonInterleaved{most: 2, multiply: (*neonInterleaved).multiplyBF16, begin: func(k *neonInterleaved) {
		fn := k.fn
		fn.Note("V23…V25", "lower and upper byte of each value; low nibbles")
		fn.Note("V30 V31", "order of even and odd elements of A")
		fn.I("MOVD", fn.FP("tables"), k.tmp)
		fn.I("FMOVQ", k.tmp.At(vectorFirst), "F23")
		fn.I("FMOVQ", k.tmp.At(vectorSecond), "F24")
		fn.I("VMOVI", 0x0f, V(25).B16())
		fn.I("MOVD", "$"+e.String(), k.tmp)
		fn.I("VLD1", "("+string(k.tmp)+")", list(V(30).B16(), V(31).B16()))
	}}
	name := "interleavedFP4BFDOT"
	k.write(f, name, name+" is an interleavedFunc for codes of 4 bits and BF16.")
}

func (k *neonInterleaved) multiplyBF16(batch int) {
	fn := k.fn
	sum := func(b, q, half int) Neon { return V(2*neonQuarters*b + 2*q + half) }
	lower, upper, low := V(23), V(24), V(25)
	xs := func(b, odd int) Neon { return V(26 + 2*b + odd) }
	for i := range 2 * neonQuarters * batch {
		neonZero(fn, V(i))
	}
	k.parts()
	part := fn.Label("part")
	for b := range batch {
		fn.I("VLD1.P", k.x[b].post(16), list(xs(b, 0).B16()))
		for odd := 1; odd >= 0; odd-- {
			fn.I("VTBL", V(30+odd).B16(), list(xs(b, 0).B16()), xs(b, odd).B16())
		}
	}
	fn.I("PRFM", k.w.At(neonAhead), "PLDL1KEEP")
	fn.I("VLD1.P", k.w.post(64), list(k.codes(0)...))
	for q := range neonQuarters {
		for odd := range 2 {
			codes, bytes, values := neonCode(0, q), V(20), neonRange(21, 2)
			if odd == 0 {
				fn.I("VAND", low.B16(), codes.B16(), values[1].B16())
			} else {
				fn.I("VUSHR", 4, codes.B16(), values[1].B16())
			}
			fn.I("VTBL", values[1].B16(), list(lower.B16()), bytes.B16())
			fn.I("VTBL", values[1].B16(), list(upper.B16()), values[1].B16())
			fn.I("VZIP1", values[1].B16(), bytes.B16(), values[0].B16())
			fn.I("VZIP2", values[1].B16(), bytes.B16(), values[1].B16())
			for b := range batch {
				for half, v := range values {
					fn.I("VBFDOT", xs(b, odd).H8(), v.H8(), sum(b, q, half).S4())
				}
			}
		}
	}
	fn.I("SUBS", 1, k.tmp)
	fn.Jump("BNE", part)
	k.scaleFP4()
	fn.I("ADD", 8, RSP, k.sums)
	var totals []Neon
	for q := range neonQuarters {
		totals = append(totals, V(26+q).S4())
	}
	for b := range batch {
		fn.I("VLD1", "("+string(k.sums)+")", list(totals...))
		for q := range neonQuarters {
			fn.I("VFADDP", sum(b, q, 1).S4(), sum(b, q, 0).S4(), sum(b, q, 0).S4())
			fn.I("VFMLA", sum(b, q, 0).S4(), neonScale(q).S4(), totals[q])
		}
		fn.I("VST1.P", list(totals...), k.sums.post(64))
	}
}

// parts sets tmp to the number of 64 bytes of 4-bit codes in a block: those whose scales are not E8M0 have 16 codes.
func (k *neonInterleaved) parts() {
	fn := k.fn
	const positions = 8
	short := fn.NewLabel("short")
	fn.I("MOVD", fn.FP("other"), k.tmp)
	fn.I("CMP", 0, k.tmp)
	fn.I("MOVD", 16/positions, k.tmp)
	fn.Jump("BNE", short)
	fn.I("MOVD", 32/positions, k.tmp)
	fn.Place(short)
}

// scaleFP4 loads the scales of a block of 4-bit codes.
func (k *neonInterleaved) scaleFP4() {
	fn := k.fn
	floats, done := fn.NewLabel("floats"), fn.NewLabel("scaled")
	fn.I("MOVD", fn.FP("other"), k.tmp)
	fn.I("CBNZ", k.tmp, string(floats))
	k.exponents()
	fn.Jump("B", done)
	fn.Place(floats)
	neonConstant(fn, k.unit(), 0x43800000, k.tmp)
	k.factors()
	fn.Place(done)
}
