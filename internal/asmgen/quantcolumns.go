package asmgen

// quantColumns writes the kernel that quantizes down columns: 32 rows of 16
// columns at a time, whose codes are turned in registers. Lanes are columns, so
// that amaxes, scales and factors need no folding and no broadcast.
func quantColumns() *File {
	f := NewFile("quant", "columns")
	k := &columns{
		fused:  fused{source: 32, packing: packings[8]},
		pair:   f.Table("columnsPair", indices(func(i int) int { return i%16 | 1 })),
		codes:  f.Table("columnsCodes", halves(func(i int) int { return i/2*2 + i%2*32 })),
		signs:  f.Table("columnsSigns", halves(func(i int) int { return i/2*2 + i%2*32 + 1 })),
		first:  f.Table("columnsFirst", words(0, 0, 1, 0, 8, 0, 9, 0, 2, 0, 3, 0, 10, 0, 11, 0)),
		second: f.Table("columnsSecond", words(4, 0, 5, 0, 12, 0, 13, 0, 6, 0, 7, 0, 14, 0, 15, 0)),
	}
	k.Func = f.Func("columns8", `columns8 quantizes tiles of 16 columns of 32 rows, at least one tile, to codes of
8 bits, each column a line, and returns the bits of the largest magnitude; all
ones where a block must be redone by the plain form. Strides are in bytes.`,
		"codes, scales *byte, src *float32, tiles, codeStride, scaleStride, srcStride int, c *exponentConstants) (amax uint64")
	k.c = constants{names: exponentNames}
	k.emit()
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

// halves returns 32 words, word i being of(i).
func halves(of func(i int) int) []byte {
	return indices(func(i int) int { return of(i/2) >> (i % 2 * 8) })
}

// columns is a fused kernel whose blocks are columns. What it encodes a tile from
// is a copy on the stack: the rows of the source may all fall on the same few
// cache lines.
type columns struct {
	fused
	pair          Sym // indices of the second and fourth bytes of dwords, twice
	codes, signs  Sym // indices of the first and second words of the dwords of two vectors
	first, second Sym // indices of the quadwords of two vectors that make columns of the first, and of the second, 8 lanes

	codeStride, scaleStride, srcStride Reg
	row, line, fourLines, t            Reg
}

// Registers of the columns kernel beside those of the fused ones. Z0 to Z2 serve
// the amaxes and scales, Z5 to Z17 the codes.
var (
	zLeastE = Z(3)  // least e of each column
	zSum    = Z(4)  // 2^(23-m)·(1 + bias·2^-23) of each column
	zTimes  = Z(18) // what the halves of a rounding sum are multiplied by
	zPair   = Z(19)
	zCodes  = Z(21)
	zSigns  = Z(22)
	zFirst  = Z(23)
	zSecond = Z(24)
	kOdd    = K(5) // the first and third byte of each dword
)

const (
	columnScales = 128               // of a tile, behind its factors
	columnTile   = columnScales + 64 // its copy, behind those
	columnBytes  = columnTile + 32*64
)

func (k *columns) emit() {
	k.dst, k.scales, k.src, k.groups, k.c.base = k.Arg("codes"), k.Arg("scales"), k.Arg("src"), k.Arg("tiles"), k.Arg("c")
	k.codeStride, k.scaleStride, k.srcStride = k.Arg("codeStride"), k.Arg("scaleStride"), k.Arg("srcStride")
	k.write, k.read = k.GP("factors, scales and copy of the tile whose amaxes are found"), k.GP("those of the tile that is encoded")
	k.row, k.line, k.fourLines, k.t = k.GP("a row of the source"), k.GP("a line of codes"), k.GP("four lines"), k.GP("a byte, or a line")
	k.Frame(2*columnBytes + 64)
	k.constants()
	k.I("MOVQ", k.codeStride, k.fourLines)
	k.I("SHLQ", 2, k.fourLines)
	k.I("LEAQ", SP.At(63), k.write)
	k.I("ANDQ", -64, k.write)
	k.I("LEAQ", k.write.At(columnBytes), k.read)

	k.Comment("scales of the first tile")
	k.Emit(k.tileScales())
	k.I("XCHGQ", k.read, k.write)
	k.I("SUBQ", 1, k.groups)
	last := k.NewLabel("last")
	k.Jump("JZ", last)

	loop := k.Label("loop")
	k.Comment("codes of a tile, and scales of the next")
	k.Emit(interleave(k.tileCodes(), k.tileScales(), lead))
	k.I("XCHGQ", k.read, k.write)
	k.I("SUBQ", 1, k.groups)
	k.Jump("JNZ", loop)

	k.Place(last)
	k.Comment("codes of the last tile")
	k.Emit(k.tileCodes())
	k.result()
}

// constants fills the registers of constants. Half a rounding sum t, as 16 bits
// with a sign, is its significand and bias, the other its sign and exponent. A sum
// of both, multiplied, is t + t>>shift from bit 8 on, the code, and the sign from
// bit 19 on at the latest.
func (k *columns) constants() {
	k.dword(zAbs, 0x7fffffff)
	k.dword(zBinade, 0xff800000)
	k.dword(zSign, 0x80808080)
	k.I("VPBROADCASTD", k.c.At("limit"), zLimit)
	k.I("VPXORD", zAmax, zAmax, zAmax)
	k.I("KXORW", kFlags, kFlags, kFlags)
	k.dword(zTimes, 1<<24) // 2^(24-shift) in the upper half, 2^8 in the lower
	k.I("VPSRLVD.BCST", k.c.At("shift"), zTimes, zTimes)
	k.I("VPSLLD", 16, zTimes, zTimes)
	k.dword(Z(0), 1<<8)
	k.I("VPORD", Z(0), zTimes, zTimes)
	for _, t := range []struct {
		table Sym
		v     Vec
	}{{k.pair, zPair}, {k.codes, zCodes}, {k.signs, zSigns}, {k.first, zFirst}, {k.second, zSecond}} {
		k.I("VMOVDQU64", t.table, t.v)
	}
	k.I("MOVQ", "$0x5555555555555555", k.write)
	k.I("KMOVQ", k.write, kOdd)
}

// tileScales finds the amaxes of 16 columns, copies the tile, and stores scales
// and factors.
func (k *columns) tileScales() sequence {
	var s sequence
	s.I("MOVQ", k.src, k.row)
	for r := range 32 {
		at := k.row.At(0)
		if r%2 == 1 {
			at = at.By(k.srcStride, 1)
		}
		x, amax := Z(1), Z(0)
		if r == 0 {
			x = amax
		}
		s.I("PREFETCHT1", at.At(1024))
		s.I("VMOVDQU64", at, x)
		s.I("VMOVDQA64", x, k.write.At(columnTile+64*r))
		s.I("VPANDD", x, zAbs, x)
		if r > 0 {
			s.I("VPMAXUD", x, amax, amax)
		}
		if r%2 == 1 {
			s.I("LEAQ", k.row.At(0).By(k.srcStride, 2), k.row)
		}
	}
	s.I("VPMAXUD", Z(0), zAmax, zAmax)
	s = append(s, k.exponentFactors(k.write.At(columnScales))...)
	for c := range 16 {
		s.I("MOVBLZX", k.write.At(columnScales+c), k.row)
		s.I("MOVB", k.row, k.scales.At(0))
		s.I("ADDQ", k.scaleStride, k.scales)
	}
	s.I("ADDQ", 64, k.src)
	return s
}

// tileCodes encodes a tile and turns its codes.
func (k *columns) tileCodes() sequence {
	var s sequence
	s.I("VMOVDQA64", k.read.At(0), zLeastE)
	s.I("VMOVDQA64", k.read.At(64), zSum)
	// quad encodes four rows to the bytes of each dword of code.
	quad := func(r int, t [4]Vec, code Vec) {
		for i, v := range t {
			at := k.read.At(columnTile + 64*(r+i))
			s.I("VPANDD", at, zBinade, v)
			s.I("VRANGEPS", 3, zLeastE, v, v) // the greater magnitude
			s.I("VFMADD213PS", at, zSum, v)
			s.I("VPMADDWD", zTimes, v, v)
			if i%2 == 1 { // two codes, and two bytes of signs
				s.I("VPSHUFB", zPair, t[i-1], kOdd, v)
			}
		}
		s.I("VMOVDQA64", t[1], code)
		s.I("VPERMT2W", t[3], zCodes, code)
		s.I("VPERMT2W", t[3], zSigns, t[1])
		s.I("VPMINUB", zLimit, code, code)
		s.I("VPTERNLOGD", 0xd8, zSign, t[1], code)
	}
	// turn makes of four vectors, each of four rows, four with 16 rows of columns c,
	// c+4, c+8 and c+12 in vector c.
	turn := func(code, turned [4]Vec) {
		t := [4]Vec{Z(5), Z(6), Z(7), Z(8)}
		for i := range 2 {
			s.I("VPUNPCKLDQ", code[2*i+1], code[2*i], t[2*i])
			s.I("VPUNPCKHDQ", code[2*i+1], code[2*i], t[2*i+1])
		}
		for i := range 2 {
			s.I("VPUNPCKLQDQ", t[2+i], t[i], turned[2*i])
			s.I("VPUNPCKHQDQ", t[2+i], t[i], turned[2*i+1])
		}
	}
	code := [4]Vec{Z(9), Z(10), Z(11), Z(12)}
	turned := [2][4]Vec{{Z(13), Z(14), Z(15), Z(16)}, code}
	for half := range 2 {
		for i, c := range code {
			quad(16*half+4*i, [4]Vec{Z(5), Z(6), Z(7), Z(8)}, c)
		}
		turn(code, turned[half])
	}
	s.I("MOVQ", k.dst, k.line)
	for c := range 4 { // each column is a line
		lower, upper, rest := turned[0][c], turned[1][c], Z(17)
		s.I("VMOVDQA64", lower, rest)
		s.I("VPERMT2Q", upper, zFirst, lower)
		s.I("VPERMT2Q", upper, zSecond, rest)
		s.I("VMOVDQU64", lower.Y(), k.line.At(0))
		s.I("VEXTRACTI64X4", 1, lower, k.line.At(0).By(k.fourLines, 1))
		s.I("VMOVDQU64", rest.Y(), k.line.At(0).By(k.fourLines, 2))
		s.I("LEAQ", k.line.At(0).By(k.fourLines, 1), k.t)
		s.I("VEXTRACTI64X4", 1, rest, k.t.At(0).By(k.fourLines, 2))
		s.I("ADDQ", k.codeStride, k.line)
	}
	s.I("LEAQ", k.dst.At(0).By(k.fourLines, 4), k.dst)
	return s
}
