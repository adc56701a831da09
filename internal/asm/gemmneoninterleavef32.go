package asm

// neonInterleavedF32 writes the kernels of gemm.Interleave for arm64 with float32 products and one row of A: of E4M3 codes in blocks of
// 32, and of 4-bit codes in blocks of 32 with scales in E8M0, or 16 and E4M3. Codes become float16, of which half a vector has four of a
// row. Each row has a register of sums, whose lanes are added at the end of a block. Instructions of a block of 16 rows, and of a product
// of 32 codes:
//
//	MXFP8   477   30
//	MXFP4   460   29
//	NVFP4   258   32
func neonInterleavedF32(f *File) {
	k := &neonInterleaved{most: 1, begin: func(k *neonInterleaved) {
		k.fn.Note("V29 V30", "2⁸; sign, exponent and mantissa in a float16")
		neonConstant(k.fn, k.unit(), 0x43800000, k.tmp)
		neonConstant(k.fn, V(30), 0xbf80bf80, k.tmp)
	}, multiply: (*neonInterleaved).multiplyE4M3}
	k.write(f, "interleavedFP8NEON", "interleavedFP8NEON is an interleavedFunc for codes of 8 bits and float32.")

	k = &neonInterleaved{most: 1, begin: func(k *neonInterleaved) {
		k.fn.Note("V27 V30 V31", "zero; low nibbles; upper byte of each value as float16")
		k.fn.I("MOVD", k.fn.FP("tables"), k.tmp)
		k.fn.I("FMOVQ", k.tmp.At(0), "F31")
		k.fn.I("VMOVI", 0x0f, k.low().B16())
		neonZero(k.fn, V(27))
	}, multiply: (*neonInterleaved).multiplyE2M1}
	k.write(f, "interleavedFP4NEON", "interleavedFP4NEON is an interleavedFunc for codes of 4 bits and float32.")
}

// multiplyE4M3 moves the sign, exponent and mantissa of a code to those of a float16, whose exponent has a greater bias.
func (k *neonInterleaved) multiplyE4M3(int) {
	fn, x := k.fn, V(24)
	k.sumRows(func() { fn.I("MOVD", 32/4, k.tmp) }, func() {
		fn.I("VLD1.P", k.x[0].post(16), list(x.S4()))
		for q := range neonQuarters {
			codes, halves := neonCode(0, q), neonRange(20, 2)
			fn.I("VSSHLL", 7, codes.B8(), halves[0].H8())
			fn.I("VSSHLL2", 7, codes.B16(), halves[1].H8())
			for i, h := range halves {
				fn.I("VAND", V(30).B16(), h.B16(), h.B16())
				k.twoRows(h, x, 4*q+2*i)
			}
		}
	})
	k.exponents()
	for q := range neonQuarters {
		fn.I("VFMUL", k.unit().S4(), neonScale(q).S4(), neonScale(q).S4())
	}
	k.addRows()
}

// multiplyE2M1 looks up the upper bytes of values as float16, whose lower bytes are zero.
func (k *neonInterleaved) multiplyE2M1(int) {
	fn := k.fn
	k.sumRows(k.parts, func() {
		fn.I("VLD1.P", k.x[0].post(32), list(V(24).S4(), V(25).S4()))
		for q := range neonQuarters {
			codes, nibbles, halves := neonCode(0, q), V(20), neonRange(28, 2)
			for odd := range 2 {
				if odd == 0 {
					fn.I("VAND", k.low().B16(), codes.B16(), nibbles.B16())
				} else {
					fn.I("VUSHR", 4, codes.B16(), nibbles.B16())
				}
				fn.I("VTBL", nibbles.B16(), list(k.table().B16()), nibbles.B16())
				fn.I("VZIP1", nibbles.B16(), V(27).B16(), halves[0].B16())
				fn.I("VZIP2", nibbles.B16(), V(27).B16(), halves[1].B16())
				for i, h := range halves {
					k.twoRows(h, V(24+odd), 4*q+2*i)
				}
			}
		}
	})
	k.scaleFP4()
	k.addRows()
}

// sumRows sets V0, V4, V8 and V12 to the sums of the rows over a block. count sets tmp to its parts of 64 bytes, of which multiply
// multiplies those in V16 to V19.
func (k *neonInterleaved) sumRows(count, multiply func()) {
	fn := k.fn
	const rows = 4 * neonQuarters
	for row := range rows {
		neonZero(fn, V(row))
	}
	count()
	part := fn.Label("part")
	fn.I("PRFM", k.w.At(neonAhead), "PLDL1KEEP")
	fn.I("VLD1.P", k.w.post(64), list(k.codes(0)...))
	multiply()
	fn.I("SUBS", 1, k.tmp)
	fn.Jump("BNE", part)
	for _, apart := range []int{1, 2} { // lanes of a row, then of four rows
		for row := 0; row < rows; row += 2 * apart {
			fn.I("VFADDP", V(row+apart).S4(), V(row).S4(), V(row).S4())
		}
	}
}

// twoRows adds the products of four float16 of each of two rows with four positions of x.
func (k *neonInterleaved) twoRows(halves, x Neon, row int) {
	low, high := V(22).S4(), V(23).S4()
	k.fn.I("VFCVTL", halves.H4(), low)
	k.fn.I("VFCVTL2", halves.H8(), high)
	k.fn.I("VFMLA", x.S4(), low, V(row).S4())
	k.fn.I("VFMLA", x.S4(), high, V(row+1).S4())
}

// addRows adds the sums of a block, times its scales, to those in the frame.
func (k *neonInterleaved) addRows() {
	fn := k.fn
	fn.I("ADD", 8, RSP, k.sums)
	var totals []Neon
	for q := range neonQuarters {
		totals = append(totals, neonProduct(q).S4())
	}
	fn.I("VLD1", "("+string(k.sums)+")", list(totals...))
	for q := range neonQuarters {
		fn.I("VFMLA", V(neonQuarters*q).S4(), neonScale(q).S4(), totals[q])
	}
	fn.I("VST1", list(totals...), "("+string(k.sums)+")")
}
