package asm

import "fmt"

// storeRegisters are the arguments of the routine that stores columns, in the registers that
// its callers take first.
var storeRegisters = []string{
	"16 rows of dwords",
	"bytes between them",
	"a column of stored codes",
	"bytes between columns",
	"bits of a stored code; negative: by non-temporal stores",
}

// A storeArgs is these registers.
type storeArgs struct {
	src, srcStep, dst, dstStep, bits Reg
}

// takeStore takes the registers of the store routine in a caller, which has taken none.
func (fn *Func) takeStore() (s storeArgs) {
	for i, r := range []*Reg{&s.src, &s.srcStep, &s.dst, &s.dstStep, &s.bits} {
		*r = fn.GP(storeRegisters[i])
	}
	return s
}

// toStaged sets r to the buffer of staged codes, at a multiple of 64 in the frame.
func (fn *Func) toStaged(r Reg) {
	fn.I("LEAQ", SP.At(63), r)
	fn.I("ANDQ", -64, r)
}

// storeTile stores n times 16 columns of staged codes from the argument codes on, and advances it.
// interleaved is the number of calls that share adjacent columns: of BF16, one stores the even and
// one the odd columns of 32. left is a scratch register.
func (fn *Func) storeTile(s storeArgs, store *Func, left Reg, n, interleaved int) {
	fn.Comment("codes of columns")
	fn.toStaged(s.src)
	fn.I("MOVQ", 64, s.srcStep)
	fn.I("MOVQ", fn.FP("codes"), s.dst)
	fn.I("MOVQ", fn.FP("codeStride"), s.dstStep)
	if interleaved > 1 {
		fn.I("ADDQ", s.dstStep, s.dstStep)
	}
	fn.I("MOVQ", fn.FP("store"), s.bits)
	fn.I("MOVQ", n/interleaved, left)
	loop := fn.Label("columns")
	for i := range interleaved {
		if i > 0 {
			fn.I("MOVQ", fn.FP("codes"), s.dst)
			fn.I("ADDQ", fn.FP("codeStride"), s.dst)
		}
		fn.Call(store, s.src, s.srcStep, s.dst, s.dstStep, s.bits)
	}
	if interleaved > 1 {
		fn.I("SUBQ", fn.FP("codeStride"), s.dst)
	}
	fn.I("MOVQ", s.dst, fn.FP("codes"))
	fn.I("SUBQ", 1, left)
	fn.Jump("JNZ", loop)
}

// columnStore writes the routine that transposes 16 rows of 16 dwords and stores columns.
func columnStore(f *File) *Func {
	s := &columnStorer{Func: f.Routine("storeColumns",
		`storeColumns stores 16 columns of 16 dwords, each the codes of four rows, or two, or one:
of 6 or 4 bits joined, or else as they are. It moves src to the rows that follow, and dst to
the next column.`)}
	s.storeArgs = s.takeStore()
	columns := s.transpose()
	nibbles, plain, stream := s.NewLabel("nibbles"), s.NewLabel("plain"), s.NewLabel("stream")
	s.I("CMPQ", s.bits, "$8")
	s.Jump("JEQ", plain)
	s.I("CMPQ", s.bits, "$4")
	s.Jump("JEQ", nibbles)
	s.Jump("JLT", stream)

	s.Comment("64 codes of 6 bits: bytes times 1 and 64, words times 1 and 4096, three bytes of each dword")
	s.fill(0x40014001, zJoin)
	s.fill(0x10000001, zJoin2)
	s.I("VMOVDQU64", sixesTable(f, "columns"), zSixes)
	s.I("VMOVDQU64", threesTable(f, "columns"), zDword)
	s.I("MOVQ", "$0x0000ffffffffffff", s.bits)
	s.I("KMOVQ", s.bits, kSixes)
	s.I("MOVQ", 6, s.bits)
	s.each(columns, func(c Vec) {
		joinSixes(s, c)
		s.I("VPSHUFB", zSixes, c, c)
		s.I("VPERMD", c, zDword, c)
		s.I("VMOVDQU8", c, kSixes, s.dst.At(0))
	})
	s.Place(nibbles)
	s.Comment("64 codes of 4 bits: bytes times 1 and 16, the low byte of each word")
	s.fill(0x10011001, zJoin)
	s.I("MOVQ", 4, s.bits)
	s.each(columns, func(c Vec) {
		s.I("VPMADDUBSW", zJoin, c, c)
		s.I("VPMOVWB", c, s.dst.At(0))
	})
	s.Place(plain)
	s.each(columns, func(c Vec) { s.I("VMOVDQU64", c, s.dst.At(0)) })
	s.Place(stream)
	s.each(columns, func(c Vec) { s.I("VMOVNTDQ", c, s.dst.At(0)) })
	return s.Func
}

// A columnStorer is the routine of columnStore.
type columnStorer struct {
	*Func
	storeArgs
}

// fill fills a vector by way of bits.
func (s *columnStorer) fill(value uint32, v Vec) { broadcast(s.Func, value, s.bits, v) }

// each stores all columns, and returns.
func (s *columnStorer) each(columns [16]Vec, store func(Vec)) {
	for _, c := range columns {
		store(c)
		s.I("ADDQ", s.dstStep, s.dst)
	}
	s.Return()
}

// transpose loads 16 rows and transposes their dwords.
func (s *columnStorer) transpose() (columns [16]Vec) {
	v := make([]Vec, 16)
	for i := range v {
		v[i] = Z(i)
		s.I("VMOVDQU64", s.src.At(0), v[i])
		s.I("ADDQ", s.srcStep, s.src)
	}
	t := Z(16)
	s.transposeDwords(v, &t)
	lanes := func(immediate int, a, b *Vec) { s.exchange("VSHUFI32X4", "VSHUFI32X4", []any{immediate}, a, b, &t) }
	for c, i := range []int{0, 2, 1, 3} {
		lanes(0x44, &v[i], &v[4+i])
		lanes(0x44, &v[8+i], &v[12+i])
		lanes(0x88, &v[i], &v[8+i])
		lanes(0x88, &v[4+i], &v[12+i])
		for j, u := range []int{i, 8 + i, 4 + i, 12 + i} {
			columns[c+4*j] = v[u]
		}
	}
	return columns
}

// transposeDwords exchanges dwords within the lanes of groups of four vectors, so that
// vectors 0, 2, 1 and 3 of a group are columns 0 to 3 of each lane.
func (s *columnStorer) transposeDwords(v []Vec, t *Vec) {
	for g := 0; g < len(v); g += 4 {
		s.exchange("VPUNPCKLDQ", "VPUNPCKHDQ", nil, &v[g], &v[g+1], t)
		s.exchange("VPUNPCKLDQ", "VPUNPCKHDQ", nil, &v[g+2], &v[g+3], t)
		s.exchange("VPUNPCKLQDQ", "VPUNPCKHQDQ", nil, &v[g], &v[g+2], t)
		s.exchange("VPUNPCKLQDQ", "VPUNPCKHQDQ", nil, &v[g+1], &v[g+3], t)
	}
}

// exchange puts two halves of each of a and b to a, and the others to b.
func (s *columnStorer) exchange(low, high string, immediate []any, a, b, t *Vec) {
	s.I(low, append(immediate[:len(immediate):len(immediate)], *b, *a, *t)...)
	s.I(high, append(highImmediate(immediate), *b, *a, *a)...)
	*a, *b, *t = *t, *a, *b
}

// highImmediate returns the immediate that takes what another leaves.
func highImmediate(immediate []any) []any {
	if len(immediate) == 0 {
		return nil
	}
	return []any{map[int]int{0x44: 0xee, 0x88: 0xdd}[immediate[0].(int)]}
}

// transposeCodes writes the transposition of elements of one and two bytes: each four rows, or
// two, become dwords, which are staged.
func transposeCodes(f *File, store *Func) {
	dwords := f.Table("columnsDwords", words(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15))
	quads := f.Table("columnsQuads", words(0, 1, 8, 9, 2, 3, 10, 11, 4, 5, 12, 13, 6, 7, 14, 15))
	for size := 1; size <= 2; size++ {
		name, order, side := "transposeCodes", dwords, 64/size
		if size == 2 {
			name, order = "transposeWords", quads
		}
		fn := f.Func(name, fmt.Sprintf(`%s stores n tiles of %d rows and %d columns of codes of %d bits transposed,
n > 0. Strides are in bytes. Store is 8; -8 stores by non-temporal stores to multiples of 64.`, name, side, side, 8*size),
			"codes, src *byte, n, codeStride, srcStride, store int")
		args := fn.takeStore()
		from, stride, left := fn.GP("rows of the source"), fn.Arg("srcStride"), fn.GP("rows left")
		fn.Frame(4/size*1024 + 64)
		fn.I("VMOVDQU64", order, Z(31))
		tile := fn.Label("tile")
		fn.I("MOVQ", fn.FP("src"), from)
		fn.toStaged(args.src)
		fn.I("MOVQ", 16, left)
		rows := fn.Label("rows")
		fn.stageRows(from, stride, args.src, 4/size)
		fn.I("ADDQ", 64, args.src)
		fn.I("SUBQ", 1, left)
		fn.Jump("JNZ", rows)
		fn.storeTile(args, store, left, 4/size, 1)
		fn.I("ADDQ", 64, fn.FP("src"))
		fn.I("SUBQ", 1, fn.FP("n"))
		fn.Jump("JNZ", tile)
		fn.Return()
	}
}

// stageRows stages four rows of bytes or two of words. The dwords of a row change places
// first, so that unpacking within lanes leaves them in order.
func (fn *Func) stageRows(from, stride, staged Reg, rows int) {
	for pair := 0; pair < rows; pair += 2 {
		fn.I("VPERMD", from.At(0), Z(31), Z(pair))
		fn.I("VPERMD", from.At(0).By(stride, 1), Z(31), Z(pair+1))
		fn.I("LEAQ", from.At(0).By(stride, 2), from)
	}
	at := func(i int) Mem { return staged.At(1024 * i) }
	if rows == 2 {
		fn.I("VPUNPCKLWD", Z(1), Z(0), Z(2))
		fn.I("VPUNPCKHWD", Z(1), Z(0), Z(3))
		fn.I("VMOVDQA64", Z(2), at(0))
		fn.I("VMOVDQA64", Z(3), at(1))
		return
	}
	for pair := 0; pair < 4; pair += 2 {
		fn.I("VPUNPCKLBW", Z(pair+1), Z(pair), Z(4+pair))
		fn.I("VPUNPCKHBW", Z(pair+1), Z(pair), Z(5+pair))
	}
	for half := range 2 {
		fn.I("VPUNPCKLWD", Z(6+half), Z(4+half), Z(0))
		fn.I("VPUNPCKHWD", Z(6+half), Z(4+half), Z(1))
		fn.I("VMOVDQA64", Z(0), at(2*half))
		fn.I("VMOVDQA64", Z(1), at(2*half+1))
	}
}

// transposeFloats writes the transposition of float32, 16 rows of 16 at a time.
func transposeFloats(f *File, store *Func) {
	fn := f.Func("transpose512", `transpose512 sets dst[j][i] to src[i][j], i < 16·n, j < 16, n > 0. Strides are in
bytes.`, "dst, src *float32, dstStride, srcStride, n int")
	args := fn.takeStore()
	left := fn.Arg("n")
	fn.Frame(64)
	fn.I("MOVQ", fn.FP("src"), args.src)
	fn.I("MOVQ", fn.FP("srcStride"), args.srcStep)
	fn.I("MOVQ", fn.FP("dstStride"), args.dstStep)
	fn.I("MOVQ", 8, args.bits)
	loop := fn.Label("loop")
	fn.I("MOVQ", fn.FP("dst"), args.dst)
	fn.Call(store, args.src, args.srcStep, args.dst, args.dstStep, args.bits)
	fn.I("ADDQ", 64, fn.FP("dst"))
	fn.I("SUBQ", 1, left)
	fn.Jump("JNZ", loop)
	fn.Return()
}

// transposeFour writes the transposition of four rows of bytes, 16 columns at a time.
func transposeFour(f *File) {
	fn := f.Func("transposeFour", `transposeFour stores four rows of 16·n bytes transposed, n > 0: four contiguous bytes for
each column. Strides are in bytes.`, "dst, src *byte, n, dstStride, srcStride int")
	dst, src, n, dstStride, srcStride := fn.Arg("dst"), fn.Arg("src"), fn.Arg("n"), fn.Arg("dstStride"), fn.Arg("srcStride")
	dstTriple, srcTriple := fn.GP("3·dstStride"), fn.GP("3·srcStride")
	fn.I("LEAQ", dstStride.At(0).By(dstStride, 2), dstTriple)
	fn.I("LEAQ", srcStride.At(0).By(srcStride, 2), srcTriple)
	loop := fn.Label("columns")
	fn.I("VMOVDQU", src.At(0), X(0))
	fn.I("VMOVDQU", src.At(0).By(srcStride, 2), X(2))
	for half, unpack := range []string{"VPUNPCKLBW", "VPUNPCKHBW"} { // pairs of rows
		fn.I(unpack, src.At(0).By(srcStride, 1), X(0), X(4+half))
		fn.I(unpack, src.At(0).By(srcTriple, 1), X(2), X(6+half))
	}
	for half := range 2 {
		for _, unpack := range []string{"VPUNPCKLWD", "VPUNPCKHWD"} {
			fn.I(unpack, X(6+half), X(4+half), X(0))
			fn.I("VMOVD", X(0), dst.At(0))
			fn.I("VPEXTRD", 1, X(0), dst.At(0).By(dstStride, 1))
			fn.I("VPEXTRD", 2, X(0), dst.At(0).By(dstStride, 2))
			fn.I("VPEXTRD", 3, X(0), dst.At(0).By(dstTriple, 1))
			fn.I("LEAQ", dst.At(0).By(dstStride, 4), dst)
		}
	}
	fn.I("ADDQ", 16, src)
	fn.I("SUBQ", 1, n)
	fn.Jump("JNZ", loop)
	fn.Return()
}
