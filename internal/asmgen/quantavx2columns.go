package asmgen

// quantColumns256 writes the AVX2 kernels for columns as lines.
func quantColumns256() *File {
	f := NewFile("quant", "columnsavx2")
	columns256(f)
	spread256(f)
	return f
}

// columns256: 16 columns of one block at a time, each a lane of two vectors. Their
// rows are copied first, for those of a matrix may all fall into one set of the
// cache. The codes of four rows make a dword of each column, and eight of those its
// line.
func columns256(f *File) {
	const rows, together = 32, 4
	k := &fused256{bits: 8, kernel256: &kernel256{tables256: makeTables256(f), source: 32}}
	k.begin(f, "columns8", `quantizes tiles of 16 columns of 32 rows of %s, at least one tile, to codes of
8 bits, each column a line, and returns the bits of the largest magnitude; all ones
where a block must be redone by the plain form. Strides are in bytes.`,
		"codes, scales *byte, src *float32, tiles, codeStride, scaleStride, srcStride int, c *exponentConstants) (amax uint64")
	k.dst, k.scales, k.src = k.Arg("codes"), k.Arg("scales"), k.Arg("src")
	tiles, codeStride, srcStride := k.Arg("tiles"), k.Arg("codeStride"), k.Arg("srcStride")
	k.scaleStride = k.Arg("scaleStride")
	k.c = constants{k.Arg("c"), exponentNames}
	row, triple, codeTriple := k.GP("rows"), k.GP("3·srcStride"), k.GP("3·codeStride")
	line4, i := k.GP("four lines of codes on"), k.GP("dwords of codes, and result")
	k.block = i
	k.I("LEAQ", srcStride.At(0).By(srcStride, 2), triple)
	k.I("LEAQ", codeStride.At(0).By(codeStride, 2), codeTriple)
	k.constants()
	four := indices(func(i int) int { return i%4*4 + i/4%4 })[:16]
	turn := f.Table("columnsTurn", append(four, four...))
	halves := [2]Mem{k.room("left", rows), k.room("right", rows)}
	dwords := k.room("dwords", rows/together)
	// strided returns the places of a stride each behind at.
	strided := func(at, stride, triple Reg) []Mem {
		return []Mem{at.At(0), at.At(0).By(stride, 1), at.At(0).By(stride, 2), at.At(0).By(triple, 1)}
	}
	// eachFour prints body for each four rows.
	eachFour := func(name string, body func()) {
		k.I("XORL", i, i)
		loop := k.Label(name)
		body()
		k.I("ADDQ", 32, i)
		k.I("CMPQ", i, 32*rows/together)
		k.Jump("JL", loop)
	}

	tile := k.Label("tile")
	k.Comment("a copy, and amaxes")
	k.I("MOVQ", k.src, row)
	amaxes := [2]Vec{Y(0), Y(1)}
	for _, v := range amaxes {
		k.I("VPXOR", v, v, v)
	}
	eachFour("rows", func() {
		for r, at := range strided(row, srcStride, triple) {
			k.I("PREFETCHT1", at.At(1024))
			for h, v := range amaxes {
				k.I("VMOVDQU", at.At(32*h), Y(2+h))
				k.I("VMOVDQU", Y(2+h), halves[h].At(32*r).By(i, together))
				k.I("VPAND", yAbs, Y(2+h), Y(2+h))
				k.I("VPMAXUD", Y(2+h), v, v)
			}
		}
		k.I("LEAQ", row.At(0).By(srcStride, together), row)
	})
	k.I("VMOVDQU", amaxes[1], k.slot("amaxes"))
	for h := range halves {
		k.Comment("scales of columns %d to %d", 8*h, 8*h+7)
		if h == 1 {
			k.I("VMOVDQU", k.slot("amaxes"), Y(0))
		}
		k.sawAmaxes()
		k.exponentFactors()
		k.Comment("codes")
		k.I("VMOVDQU", k.factors, yFactor)
		k.I("VMOVDQU", k.anchors, yAnchor)
		eachFour("codes", func() {
			x := k.vectors(halves[h].By(i, together))
			k.exponentCodes(x)
			k.signs(x)
			k.I("VPOR", Y(4), Y(0), Y(0))
			k.I("VPSHUFB", turn, Y(0), Y(0))
			k.I("VMOVDQU", Y(0), dwords.By(i, 1))
		})
		k.Comment("lines")
		for d := range rows / together {
			k.I("VMOVDQU", dwords.At(32*d), Y(d))
		}
		k.I("LEAQ", k.dst.At(0).By(codeStride, 4), line4)
		(&panel8{fn: k.Func}).turn(func(d int, v Vec) {
			k.I("VMOVDQU", v, strided([]Reg{k.dst, line4}[d/4], codeStride, codeTriple)[d%4])
		})
		k.load()
		k.I("LEAQ", k.dst.At(0).By(codeStride, 8), k.dst)
	}
	k.I("ADDQ", 64, k.src)
	k.I("SUBQ", 1, tiles)
	k.Jump("JNZ", tile)
	k.result()
}

func spread256(f *File) {
	k := &kernel256{source: 32}
	k.begin(f, "spreadLines", "copies n times 64·width bytes%.0s, one behind the other, past the caches\nto places that are stride bytes apart and multiples of 64.", "dst, src *byte, width, n, stride int")
	dst, src, width, n, stride := k.Arg("dst"), k.Arg("src"), k.Arg("width"), k.Arg("n"), k.Arg("stride")
	to, left := k.GP("place in the line"), k.GP("left of it")
	line := k.Label("line")
	k.I("MOVQ", dst, to)
	k.I("MOVQ", width, left)
	loop := k.Label("loop")
	for i := range 2 {
		k.I("VMOVDQU", src.At(32*i), Y(i))
		k.I("VMOVNTDQ", Y(i), to.At(32*i))
	}
	k.I("ADDQ", 64, src)
	k.I("ADDQ", 64, to)
	k.I("SUBQ", 1, left)
	k.Jump("JNZ", loop)
	k.I("ADDQ", stride, dst)
	k.I("SUBQ", 1, n)
	k.Jump("JNZ", line)
	k.Return()
}
