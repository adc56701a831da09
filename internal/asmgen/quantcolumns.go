package asmgen

// quantColumns writes the kernel that quantizes down columns: 32 rows of 16
// columns at a time, whose codes are turned in registers. Lanes are columns, so
// that amaxes, scales and factors need no folding and no broadcast.
func quantColumns() *File {
	f := NewFile("quant", "columns")
	tables := fusedTables{
		low:   f.Table("columnsLow", indices(func(i int) int { return i%2*64 + i/4*4 })),
		high:  f.Table("columnsHigh", indices(func(i int) int { return i%2*64 + i/4*4 + 3 })),
		pairs: f.Table("columnsFirst", words(0, 0, 1, 0, 8, 0, 9, 0, 2, 0, 3, 0, 10, 0, 11, 0)),
		sixes: f.Table("columnsSecond", words(4, 0, 5, 0, 12, 0, 13, 0, 6, 0, 7, 0, 14, 0, 15, 0)),
	}
	k := &fused{source: 32, packing: packings[8], tables: tables}
	k.Func = f.Func("columns8", `columns8 quantizes tiles of 16 columns of 32 rows, at least one tile, to codes of
8 bits, each column a line, and returns the bits of the largest magnitude; all
ones where a block must be redone by the plain form. Strides are in bytes.`,
		"codes, scales *byte, src *float32, tiles, codeStride, scaleStride, srcStride int, c *exponentConstants) (amax uint64")
	k.c = constants{names: exponentNames}
	k.emitColumns()
	spread := f.Func("spreadLines", `spreadLines copies n times 64·width bytes, one behind the other, past the caches
to places that are stride bytes apart and multiples of 64.`, "dst, src *byte, width, n, stride int")
	dst, src, width, n, stride := spread.Arg("dst"), spread.Arg("src"), spread.Arg("width"), spread.Arg("n"), spread.Arg("stride")
	at, left := spread.GP("place of a copy"), spread.GP("left of it")
	line := spread.Label("line")
	spread.I("MOVQ", dst, at)
	spread.I("MOVQ", width, left)
	part := spread.Label("part")
	spread.I("VMOVDQU64", src.At(0), Z(0))
	spread.I("VMOVNTDQ", Z(0), at.At(0))
	spread.I("ADDQ", 64, src)
	spread.I("ADDQ", 64, at)
	spread.I("SUBQ", 1, left)
	spread.Jump("JNZ", part)
	spread.I("ADDQ", stride, dst)
	spread.I("SUBQ", 1, n)
	spread.Jump("JNZ", line)
	spread.Return()
	return f
}

func (k *fused) emitColumns() {
	k.dst, k.scales, k.src, k.groups, k.c.base = k.Arg("codes"), k.Arg("scales"), k.Arg("src"), k.Arg("tiles"), k.Arg("c")
	codeStride, scaleStride, srcStride := k.Arg("codeStride"), k.Arg("scaleStride"), k.Arg("srcStride")
	k.write, k.read = k.GP("factors, and scales behind them"), k.GP("a byte")
	row, multiple := k.GP("a row of the source, or a line of codes"), k.GP("three rows, or four lines")
	const (
		scaleBytes = 128             // behind the factors
		tile       = scaleBytes + 64 // a copy of the tile: its rows may all fall on the same few cache lines
	)
	k.Frame(tile + 32*64 + 64)
	k.load()
	zFirst, zSecond := Z(22), Z(23)
	k.I("VMOVDQU64", k.tables.pairs, zFirst)
	k.I("VMOVDQU64", k.tables.sixes, zSecond)
	kOdd := K(5)
	k.I("MOVL", "$0xaaaaaaaa", k.write)
	k.I("KMOVD", k.write, kOdd)
	k.I("LEAQ", SP.At(63), k.write)
	k.I("ANDQ", -64, k.write)
	rows := func(use func(r int, at Mem)) { // of the source, in order
		k.I("MOVQ", k.src, row)
		k.I("LEAQ", srcStride.At(0).By(srcStride, 2), multiple)
		for r := range 32 {
			at := row.At(0)
			switch r % 4 {
			case 1, 2:
				at = at.By(srcStride, r%4)
			case 3:
				at = at.By(multiple, 1)
			}
			use(r, at)
			if r%4 == 3 {
				k.I("LEAQ", row.At(0).By(srcStride, 4), row)
			}
		}
	}

	loop := k.Label("loop")
	k.Comment("amaxes of 16 columns, in Z0")
	for i := range 4 {
		k.I("VPXORD", Z(i), Z(i), Z(i))
	}
	rows(func(r int, at Mem) {
		k.I("PREFETCHT1", at.At(1024))
		x, t := Z(4+r%4), Z(8+r%4)
		k.I("VMOVDQU64", at, x)
		k.I("VMOVDQA64", x, k.write.At(tile+64*r))
		k.I("VPANDD", x, zAbs, t)
		k.I("VPMAXUD", t, Z(r%4), Z(r%4))
	})
	k.I("VPMAXUD", Z(1), Z(0), Z(0))
	k.I("VPMAXUD", Z(3), Z(2), Z(2))
	k.I("VPMAXUD", Z(2), Z(0), Z(0))
	k.I("VPMAXUD", Z(0), zAmax, zAmax)
	k.Comment("their scales")
	k.Emit(k.exponentFactors(k.write.At(scaleBytes)))
	for c := range 16 {
		k.I("MOVBLZX", k.write.At(scaleBytes+c), k.read)
		k.I("MOVB", k.read, k.scales.At(0))
		k.I("ADDQ", scaleStride, k.scales)
	}

	k.Comment("codes: four rows to the bytes of a dword")
	zLeastE, zSum := Z(2), Z(3)
	k.I("VMOVDQA64", k.write.At(0), zLeastE)
	k.I("VMOVDQA64", k.write.At(64), zSum)
	sign := func(r int) Vec { return []Vec{Z(0), {}, Z(1), {}}[r] }
	for r := range 32 {
		v, t, at := Z(16+r%4), Z(4+r%4), k.write.At(tile+64*r)
		k.I("VPANDD", at, zBinade, v)
		k.I("VRANGEPS", 3, zLeastE, v, v)
		k.I("VFMADD213PS", at, zSum, v)
		k.I("VPSRLVD", zShift, v, t)
		k.I("VPADDD", t, v, v)
		if r%2 == 0 {
			k.I("VMOVDQA64", at, sign(r%4))
			continue
		}
		k.I("VPERMT2B", at, zHigh, sign(r%4-1))
		k.I("VPERMT2B", v, zLow, Z(16+r%4-1))
		if r%4 == 3 {
			code := Z(8 + r/4)
			k.I("VPBLENDMW", Z(18), Z(16), kOdd, code)
			k.I("VPBLENDMW", Z(1), Z(0), kOdd, Z(0))
			k.I("VPMINUB", zLimit, code, code)
			k.I("VPTERNLOGD", 0xd8, zSign, Z(0), code)
		}
	}

	k.Comment("four columns of each lane: rows 0 to 15 in Z0 to Z3, rows 16 to 31 in Z4 to Z7")
	for half := range 2 {
		g := 8 + 4*half
		k.I("VPUNPCKLDQ", Z(g+1), Z(g), Z(16))
		k.I("VPUNPCKHDQ", Z(g+1), Z(g), Z(17))
		k.I("VPUNPCKLDQ", Z(g+3), Z(g+2), Z(18))
		k.I("VPUNPCKHDQ", Z(g+3), Z(g+2), Z(19))
		for i, v := range []Vec{Z(16), Z(17)} {
			k.I("VPUNPCKLQDQ", Z(18+i), v, Z(4*half+2*i))
			k.I("VPUNPCKHQDQ", Z(18+i), v, Z(4*half+2*i+1))
		}
	}
	k.Comment("each column is a line")
	k.I("MOVQ", k.dst, row)
	k.I("MOVQ", codeStride, multiple)
	k.I("SHLQ", 2, multiple)
	for c := range 4 {
		upper := Z(8 + c)
		k.I("VMOVDQA64", Z(c), upper)
		k.I("VPERMT2Q", Z(4+c), zFirst, Z(c))
		k.I("VPERMT2Q", Z(4+c), zSecond, upper)
		k.I("VMOVDQU", Y(c), row.At(0))
		k.I("VEXTRACTI64X4", 1, Z(c), row.At(0).By(multiple, 1))
		k.I("VMOVDQU", upper.Y(), row.At(0).By(multiple, 2))
		k.I("LEAQ", row.At(0).By(multiple, 1), k.read)
		k.I("VEXTRACTI64X4", 1, upper, k.read.At(0).By(multiple, 2))
		k.I("ADDQ", codeStride, row)
	}
	k.I("SHLQ", 2, multiple)
	k.I("ADDQ", multiple, k.dst)
	k.I("ADDQ", 64, k.src)
	k.I("SUBQ", 1, k.groups)
	k.Jump("JNZ", loop)
	k.result()
}
