package asmgen

// The registers of a routine that stores columns are the first that its callers take.

// takeStore takes the registers of the store routine in a caller, and returns that of the
// staged codes.
func (fn *Func) takeStore(store *Func) (staged Reg) {
	for i, note := range storeRegisters {
		if r := fn.GP(note); r != storeReg(i) {
			panic("asmgen: " + fn.name + ": the registers of " + store.name + " are not the first")
		}
	}
	return storeReg(0)
}

var storeRegisters = []string{"staged codes: of 16 columns, the dwords of four rows after the other", "a column of stored codes", "bytes between columns", "bits of a stored code; -8: by non-temporal stores"}

func storeReg(i int) Reg { return amd64Generals[i] }

// toStaged sets r to the buffer of staged codes, at a multiple of 64 in the frame.
func (fn *Func) toStaged(r Reg) {
	fn.I("LEAQ", SP.At(63), r)
	fn.I("ANDQ", -64, r)
}

// storeTile stores the staged codes of a tile from the argument codes on, which it moves to
// the next tile. Each of interleaved calls stores every so many columns: of BF16, the even
// and then the odd ones of 32. left is a scratch register.
func (fn *Func) storeTile(store *Func, left Reg, interleaved int) {
	fn.Comment("codes of columns")
	staged, line, step, bits := storeReg(0), storeReg(1), storeReg(2), storeReg(3)
	fn.toStaged(staged)
	fn.I("MOVQ", fn.FP("codes"), line)
	fn.I("MOVQ", fn.FP("codeStride"), step)
	if interleaved > 1 {
		fn.I("ADDQ", step, step)
	}
	fn.I("MOVQ", fn.FP("store"), bits)
	fn.I("MOVQ", 4/interleaved, left)
	loop := fn.Label("columns")
	for i := range interleaved {
		if i > 0 {
			fn.I("MOVQ", fn.FP("codes"), line)
			fn.I("ADDQ", fn.FP("codeStride"), line)
		}
		fn.Call(store)
	}
	if interleaved > 1 {
		fn.I("SUBQ", fn.FP("codeStride"), line)
	}
	fn.I("MOVQ", line, fn.FP("codes"))
	fn.I("SUBQ", 1, left)
	fn.Jump("JNZ", loop)
}

// columnStore writes the routine that transposes and stores 16 columns of 64 codes.
func columnStore(f *File) *Func {
	s := &columnStorer{Func: f.Routine("storeColumns", "storeColumns stores 16 columns of 64 staged codes, and moves to the next 16.")}
	s.staged, s.line, s.step, s.bits = storeReg(0), storeReg(1), storeReg(2), storeReg(3)
	for i, note := range storeRegisters {
		s.Note(storeReg(i), note)
	}
	columns := s.transpose()
	s.I("ADDQ", stagedBytes, s.staged)
	sixes := f.shared("columnsSixes", indices(func(i int) int { return i/3*4 + i%3 }))
	nibbles, plain, stream := s.NewLabel("nibbles"), s.NewLabel("plain"), s.NewLabel("stream")
	s.I("CMPQ", s.bits, "$8")
	s.Jump("JEQ", plain)
	s.I("CMPQ", s.bits, "$4")
	s.Jump("JEQ", nibbles)
	s.Jump("JLT", stream)
	s.Comment("64 codes of 6 bits: bytes times 1 and 64, words times 1 and 4096, three bytes of each dword")
	s.fill(0x40014001, zJoin)
	s.fill(0x10000001, zJoin2)
	s.I("VMOVDQU64", sixes, zSixes)
	s.I("MOVQ", "$0x0000ffffffffffff", s.bits)
	s.I("KMOVQ", s.bits, kSixes)
	s.I("MOVQ", 6, s.bits)
	s.each(columns, func(c Vec) {
		joinSixes(s, c)
		s.I("VPERMB", c, zSixes, c)
		s.I("VMOVDQU8", c, kSixes, s.line.At(0))
	})
	s.Place(nibbles)
	s.Comment("64 codes of 4 bits: bytes times 1 and 16, the low byte of each word")
	s.fill(0x10011001, zJoin)
	s.I("MOVQ", 4, s.bits)
	s.each(columns, func(c Vec) {
		s.I("VPMADDUBSW", zJoin, c, c)
		s.I("VPMOVWB", c, s.line.At(0))
	})
	s.Place(plain)
	s.each(columns, func(c Vec) { s.I("VMOVDQU64", c, s.line.At(0)) })
	s.Place(stream)
	s.each(columns, func(c Vec) { s.I("VMOVNTDQ", c, s.line.At(0)) })
	return s.Func
}

// A columnStorer is the routine of columnStore.
type columnStorer struct {
	*Func
	staged, line, step, bits Reg
}

// fill fills a vector by way of bits.
func (s *columnStorer) fill(value uint32, v Vec) { broadcast(s.Func, value, s.bits, v) }

// each stores all columns, and returns.
func (s *columnStorer) each(columns [16]Vec, store func(Vec)) {
	for _, c := range columns {
		store(c)
		s.I("ADDQ", s.step, s.line)
	}
	s.Return()
}

// transpose loads the staged codes of 16 columns and transposes their dwords.
func (s *columnStorer) transpose() (columns [16]Vec) {
	p := newPool(17)
	v := make([]Vec, 16)
	for i := range v {
		v[i] = p.take()
		s.I("VMOVDQA64", s.staged.At(64*i), v[i])
	}
	t := p.take()
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

// transposeCodes writes the transposition of stored codes of 8 bits.
func transposeCodes(f *File, store *Func) {
	fn := f.Func("transposeCodes", `transposeCodes stores n tiles of 64 rows and 64 columns of codes of 8 bits transposed,
n > 0. Strides are in bytes. `+storeDoc, "codes, src *byte, n, codeStride, srcStride, store int")
	staged := fn.takeStore(store)
	from, stride, left := fn.GP("four rows of the source"), fn.Arg("srcStride"), fn.GP("what is left")
	fn.Frame(4*stagedBytes + 64)
	fn.I("VMOVDQU64", f.Table("columnsDwords", words(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15)), Z(31))
	tile := fn.Label("tile")
	fn.I("MOVQ", fn.FP("src"), from)
	fn.toStaged(staged)
	fn.I("MOVQ", tileSide/4, left)
	rows := fn.Label("rows")
	for pair := 0; pair < 4; pair += 2 { // of rows, bytes beside each other
		fn.I("VPERMD", from.At(0), Z(31), Z(pair))
		fn.I("VPERMD", from.At(0).By(stride, 1), Z(31), Z(pair+1))
		fn.I("LEAQ", from.At(0).By(stride, 2), from)
		fn.I("VPUNPCKLBW", Z(pair+1), Z(pair), Z(4+pair))
		fn.I("VPUNPCKHBW", Z(pair+1), Z(pair), Z(5+pair))
	}
	for half := range 2 {
		fn.I("VPUNPCKLWD", Z(6+half), Z(4+half), Z(0))
		fn.I("VPUNPCKHWD", Z(6+half), Z(4+half), Z(1))
		fn.I("VMOVDQA64", Z(0), staged.At(2*half*stagedBytes))
		fn.I("VMOVDQA64", Z(1), staged.At((2*half+1)*stagedBytes))
	}
	fn.I("ADDQ", 64, staged)
	fn.I("SUBQ", 1, left)
	fn.Jump("JNZ", rows)
	fn.storeTile(store, left, 1)
	fn.I("ADDQ", tileSide, fn.FP("src"))
	fn.I("SUBQ", 1, fn.FP("n"))
	fn.Jump("JNZ", tile)
	fn.Return()
}
