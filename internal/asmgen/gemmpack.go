package asmgen

// gemmTables writes the functions that decode codes into panels of 16 lanes.
func gemmTables(f *File) {
	w := gemmPack{f: f}
	w.low, w.high = w.interleave("lowPairs", 0), w.interleave("highPairs", 2)
	w.even, w.odd = w.everyOther("evens", 0), w.everyOther("odds", 1)
	for _, c := range packCodeKinds {
		w.bytesToBF16(c)
		w.bytesToLines(c)
	}
	w.copyLines()
	for _, isA := range []bool{true, false} {
		w.nibblesToInt8("packMX", 32, isA)
		w.nibblesToInt8("packNV", 16, isA)
	}
	for _, isA := range []bool{true, false} {
		w.bytesToInt8("packSix", true, isA)
		w.bytesToInt8("packInt", false, isA)
	}
	w.transposeScales()
	w.splitNibbles()
	w.splitSixes()
	w.foldNibbles()
	w.transposeDwords16()
	for _, lanes := range []int{8, 16} {
		w.bytesToF32(lanes)
		w.floatsToF32(lanes)
		w.halvesToF32(lanes)
	}
	w.transposeDwords8()
}

// gemmPack is the file of packing functions.
type gemmPack struct {
	f         *File
	low, high Sym // indices for VPERMT2B that make two BF16 of bytes 0, 1 or 2, 3 of each dword
	even, odd Sym // and those that take the even or odd bytes of two dwords
}

// interleave returns the table that takes bytes i and i+1 of each dword of a first
// vector as low bytes, and those of a second as high ones.
func (w *gemmPack) interleave(name string, i int) Sym {
	data := make([]byte, 64)
	for lane := range 16 {
		for b := range 2 {
			low := byte(4*lane + i + b)
			data[4*lane+2*b], data[4*lane+2*b+1] = low, low|64
		}
	}
	return w.f.Table(name, data)
}

// everyOther returns the table that takes bytes i and i+2 of each dword of a first
// vector, then of a second.
func (w *gemmPack) everyOther(name string, i int) Sym {
	data := make([]byte, 64)
	for lane := range 16 {
		for b := range 4 {
			data[4*lane+b] = byte(4*lane+i+b%2*2) | byte(b/2*64)
		}
	}
	return w.f.Table(name, data)
}

// A lineSet addresses 16 lines that are stride bytes apart, from four registers.
type lineSet struct {
	base           [4]Reg // lines 0, 4, 8, 12
	stride, triple Reg
}

// lines takes the registers of 16 lines from src on.
func lines(fn *Func, src, stride Reg) *lineSet {
	s := &lineSet{stride: stride, triple: fn.GP("3·stride")}
	s.base[0] = src
	for i := 1; i < 4; i++ {
		s.base[i] = fn.GP("source, four lines on")
		fn.I("LEAQ", s.base[i-1].At(0).By(stride, 4), s.base[i])
	}
	fn.I("LEAQ", stride.At(0).By(stride, 2), s.triple)
	fn.Comment("one mask for each group of four lanes but the first")
	for k, mask := range []int{0x00f0, 0x0f00, 0xf000} {
		fn.I("MOVL", mask, s.triple)
		fn.I("KMOVW", s.triple, K(k+1))
	}
	fn.I("LEAQ", stride.At(0).By(stride, 2), s.triple)
	return s
}

// at returns the memory off bytes on in a line.
func (s *lineSet) at(line, off int) Mem {
	m := s.base[line/4].At(off)
	switch line % 4 {
	case 1, 2:
		return m.By(s.stride, line%4)
	case 3:
		return m.By(s.triple, 1)
	}
	return m
}

// load transposes 16 bytes of each line, off bytes on, as dwords: Z(d), d < 4,
// gets bytes 4d…4d+3 of line i in lane i. It uses Z0…Z7 and K1…K3.
func (s *lineSet) load(fn *Func, off int) {
	for j := range 4 {
		fn.I("VMOVDQU", s.at(j, off), X(j))
		for k := 1; k < 4; k++ {
			fn.I("VBROADCASTI32X4", s.at(4*k+j, off), K(k), Z(j))
		}
	}
	fn.I("VPUNPCKLDQ", Z(1), Z(0), Z(4))
	fn.I("VPUNPCKHDQ", Z(1), Z(0), Z(5))
	fn.I("VPUNPCKLDQ", Z(3), Z(2), Z(6))
	fn.I("VPUNPCKHDQ", Z(3), Z(2), Z(7))
	fn.I("VPUNPCKLQDQ", Z(6), Z(4), Z(0))
	fn.I("VPUNPCKHQDQ", Z(6), Z(4), Z(1))
	fn.I("VPUNPCKLQDQ", Z(7), Z(5), Z(2))
	fn.I("VPUNPCKHQDQ", Z(7), Z(5), Z(3))
}

// advance moves all lines on by n bytes.
func (s *lineSet) advance(fn *Func, n int) {
	for _, b := range s.base {
		fn.I("ADDQ", n, b)
	}
}

// nibblesToInt8: nibbles become bytes by VPSHUFB on a table of 16; the low ones
// are the even positions of eight, the high ones the odd positions, and each
// make a step. A's panel gets -bias·Σ a besides, by VPDPBUSD.
func (w *gemmPack) nibblesToInt8(name string, block int, isA bool) {
	what := "scales, E4M3 codes without sign and NaN, become float32"
	if block == 32 {
		what = "scales, E8M0 codes less base, become exponent fields"
	}
	side := "B"
	if isA {
		side = "A"
	}
	fn := w.f.Func(name+side, name+side+` packs 16 lines of nibbles, stride bytes apart, as an int8 panel of `+side+`,
pairs times 32 positions. table has the int8 of each nibble, four times; `+what+`,
16 for each block in turn. bias is that of B, for panels of A.`,
		"dst, src unsafe.Pointer, stride int, scales unsafe.Pointer, pairs int, table unsafe.Pointer, base, bias uint32")
	dst, src, stride := fn.Arg("dst"), fn.Arg("src"), fn.Arg("stride")
	scales, pairs := fn.Arg("scales"), fn.Arg("pairs")
	tmp := fn.Arg("table")
	fn.I("VMOVDQU64", tmp.At(0), Z(16))
	broadcast(fn, 0x0f0f0f0f, tmp, Z(17))
	fn.I("MOVL", fn.FP("bias"), tmp)
	fn.I("VPBROADCASTB", tmp, Z(18))
	if block == 32 {
		fn.I("MOVL", fn.FP("base"), tmp)
		fn.I("VPBROADCASTD", tmp, Z(19))
	} else {
		broadcast(fn, 0x7b800000, tmp, Z(19)) // 2^120: from E4M3's bias to float32's
	}
	fn.Note("Z16", "int8 of each nibble")
	fn.Note("Z17 Z18", "low nibbles, bias of B")
	fn.Note("Z19", "base, or 2^120")
	set := lines(fn, src, stride)
	loop := fn.Label("pair")
	set.load(fn, 0)
	words := 4 / (32 / block) // dwords of a line in a block
	steps := block / 4
	size := (steps + 1) * 64
	if isA {
		size += 64
	}
	for b := range 32 / block {
		base := b * size
		if isA {
			fn.I("VPXORD", Z(29), Z(29), Z(29))
		}
		for d := range words {
			v := Z(b*words + d)
			fn.I("VPANDD", Z(17), v, Z(4))
			fn.I("VPSRLW", 4, v, Z(5))
			fn.I("VPANDD", Z(17), Z(5), Z(5))
			for i, x := range []Vec{Z(4), Z(5)} {
				fn.I("VPSHUFB", x, Z(16), x)
				fn.I("VMOVDQU64", x, dst.At(base+(2*d+i)*64))
				if isA {
					fn.I("VPDPBUSD", x, Z(18), Z(29))
				}
			}
		}
		fn.I("VPMOVZXBD", scales.At(16*b), Z(28))
		if block == 32 {
			fn.I("VPSUBD", Z(19), Z(28), Z(28))
			fn.I("VPSLLD", 23, Z(28), Z(28))
		} else {
			fn.I("VPSLLD", 20, Z(28), Z(28))
			fn.I("VMULPS", Z(19), Z(28), Z(28))
		}
		fn.I("VMOVDQU64", Z(28), dst.At(base+steps*64))
		if isA {
			fn.I("VPXORD", Z(28), Z(28), Z(28))
			fn.I("VPSUBD", Z(29), Z(28), Z(29))
			fn.I("VMOVDQU64", Z(29), dst.At(base+steps*64+64))
		}
	}
	fn.I("ADDQ", 32/block*size, dst)
	fn.I("ADDQ", 32/block*16, scales)
	set.advance(fn, 16)
	fn.I("SUBQ", 1, pairs)
	fn.Jump("JNZ", loop)
	fn.Return()
}

// bytesToInt8: magnitudes become integers by a table of 64 and are negated where
// the sign is set, or are integers already; two dwords of a line make the even
// positions of eight, and the odd ones.
func (w *gemmPack) bytesToInt8(name string, lookup, isA bool) {
	side, what := "B", "are the integers"
	if isA {
		side = "A"
	}
	if lookup {
		what = "have a sign, and a magnitude that is looked up in a table of 64"
	}
	fn := w.f.Func(name+side, name+side+` packs 16 lines of bytes, stride bytes apart, as an int8 panel of `+side+`:
blocks of 32 positions. The bytes `+what+`.
scales has the E8M0 codes of each block's 16 lanes, which less base become
exponent fields. bias is that of B.`,
		"dst, src unsafe.Pointer, stride int, scales unsafe.Pointer, blocks int, table unsafe.Pointer, base, bias uint32")
	dst, src, stride := fn.Arg("dst"), fn.Arg("src"), fn.Arg("stride")
	scales, blocks := fn.Arg("scales"), fn.Arg("blocks")
	tmp := fn.Arg("table")
	if lookup {
		fn.I("VMOVDQU64", tmp.At(0), Z(16))
		fn.Note("Z16", "integer of each magnitude")
	}
	fn.I("MOVL", fn.FP("bias"), tmp)
	fn.I("VPBROADCASTB", tmp, Z(18))
	fn.I("MOVL", fn.FP("base"), tmp)
	fn.I("VPBROADCASTD", tmp, Z(19))
	fn.I("VMOVDQU64", w.even, Z(20))
	fn.I("VMOVDQU64", w.odd, Z(21))
	fn.I("VPXORD", Z(17), Z(17), Z(17))
	fn.Note("Z17…Z21", "zero, bias of B, base, indices of even and odd positions")
	set := lines(fn, src, stride)
	const steps, line = 8, 64
	loop := fn.Label("block")
	if isA {
		fn.I("VPXORD", Z(29), Z(29), Z(29))
	}
	for half := range 2 {
		set.load(fn, 16*half)
		for d := range 4 {
			if lookup {
				fn.I("VPMOVB2M", Z(d), K(5))
				fn.I("VPERMB", Z(16), Z(d), Z(d))
				fn.I("VPSUBB", Z(d), Z(17), K(5), Z(d))
			}
			if !isA {
				fn.I("VPADDB", Z(18), Z(d), Z(d))
			}
		}
		for d := 0; d < 4; d += 2 {
			fn.I("VMOVDQA64", Z(d), Z(4))
			fn.I("VPERMT2B", Z(d+1), Z(20), Z(4))
			fn.I("VPERMT2B", Z(d+1), Z(21), Z(d))
			for i, x := range []Vec{Z(4), Z(d)} {
				fn.I("VMOVDQU64", x, dst.At((half*4+d+i)*line))
				if isA {
					fn.I("VPDPBUSD", x, Z(18), Z(29))
				}
			}
		}
	}
	fn.I("VPMOVZXBD", scales.At(0), Z(28))
	fn.I("VPSUBD", Z(19), Z(28), Z(28))
	fn.I("VPSLLD", 23, Z(28), Z(28))
	fn.I("VMOVDQU64", Z(28), dst.At(steps*line))
	size := (steps + 1) * line
	if isA {
		fn.I("VPSUBD", Z(29), Z(17), Z(29))
		fn.I("VMOVDQU64", Z(29), dst.At(size))
		size += line
	}
	fn.I("ADDQ", size, dst)
	fn.I("ADDQ", 16, scales)
	set.advance(fn, 32)
	fn.I("SUBQ", 1, blocks)
	fn.Jump("JNZ", loop)
	fn.Return()
}

// transposeScales: 16 lines of scale codes, 16 blocks at a time.
func (w *gemmPack) transposeScales() {
	fn := w.f.Func("transposeScales", `transposeScales copies the scales of 16 lines, stride bytes apart, to dst: those of
the lines' first blocks, then of their second ones, 16·n blocks in all. Codes are
clamped to [low, high]; it reports whether one was above high.`,
		"dst, src unsafe.Pointer, stride, n int, low, high uint32) (above uint64")
	dst, src, stride, n := fn.Arg("dst"), fn.Arg("src"), fn.Arg("stride"), fn.Arg("n")
	tmp := fn.GP("scratch")
	fn.I("MOVL", fn.FP("low"), tmp)
	fn.I("VPBROADCASTB", tmp, Z(16))
	fn.I("MOVL", fn.FP("high"), tmp)
	fn.I("VPBROADCASTB", tmp, Z(17))
	fn.I("KXORQ", K(7), K(7), K(7))
	set := lines(fn, src, stride)
	loop := fn.Label("loop")
	set.load(fn, 0)
	for d := range 4 {
		fn.I("VPCMPUB", 6, Z(17), Z(d), K(5)) // greater
		fn.I("KORQ", K(5), K(7), K(7))
		fn.I("VPMAXUB", Z(16), Z(d), Z(d))
		fn.I("VPMINUB", Z(17), Z(d), Z(d))
		for b := range 4 {
			fn.I("VPMOVDB", Z(d), dst.At((4*d+b)*16))
			if b < 3 {
				fn.I("VPSRLD", 8, Z(d), Z(d))
			}
		}
	}
	fn.I("ADDQ", 256, dst)
	set.advance(fn, 16)
	fn.I("SUBQ", 1, n)
	fn.Jump("JNZ", loop)
	fn.I("KMOVQ", K(7), tmp)
	fn.I("MOVQ", tmp, fn.FP("above"))
	fn.Return()
}

// splitNibbles: even codes are the low nibbles.
func (w *gemmPack) splitNibbles() {
	fn := w.f.Func("splitNibbles", "splitNibbles writes 64·n nibbles as bytes, their sign in the top bit.", "dst, src unsafe.Pointer, n int")
	dst, src, n := fn.Arg("dst"), fn.Arg("src"), fn.Arg("n")
	tmp := fn.GP("scratch")
	broadcast(fn, 0x07070707, tmp, Z(1))
	broadcast(fn, 0x80808080, tmp, Z(3))
	loop := fn.Label("loop")
	fn.I("VPMOVZXBW", src.At(0), Z(0)) // a byte as a word: nibbles h l
	fn.I("VPSLLW", 4, Z(0), Z(2))      // h in the upper byte, l in the lower one's top
	fn.I("VPORD", Z(2), Z(0), Z(0))    // h in the upper byte
	fn.I("VPSLLW", 4, Z(0), Z(4))      // both, one nibble up
	fn.I("VPANDD", Z(1), Z(0), Z(0))
	fn.I("VPTERNLOGD", 0xf8, Z(3), Z(4), Z(0))
	fn.I("VMOVDQU64", Z(0), dst.At(0))
	fn.I("ADDQ", 32, src)
	fn.I("ADDQ", 64, dst)
	fn.I("SUBQ", 1, n)
	fn.Jump("JNZ", loop)
	fn.Return()
}

// splitSixes: three bytes go to each dword, from which VPMULTISHIFTQB takes the
// four codes.
func (w *gemmPack) splitSixes() {
	spread, shifts := make([]byte, 64), make([]byte, 64)
	for i := range 16 {
		for b := range 3 {
			spread[4*i+b] = byte(3*i + b)
		}
		for c := range 4 {
			shifts[4*i+c] = byte(i%2*32 + 6*c)
		}
	}
	fn := w.f.Func("splitSixes", "splitSixes writes 64·n codes of six bits as bytes, their sign in the top bit.", "dst, src unsafe.Pointer, n int")
	dst, src, n := fn.Arg("dst"), fn.Arg("src"), fn.Arg("n")
	tmp := fn.GP("scratch")
	fn.I("VMOVDQU64", w.f.Table("sixSpread", spread), Z(1))
	fn.I("VMOVDQU64", w.f.Table("sixShifts", shifts), Z(2))
	broadcast(fn, 0x1f1f1f1f, tmp, Z(3))
	broadcast(fn, 0x80808080, tmp, Z(4))
	fn.I("MOVL", 0xfff, tmp) // 48 bytes are 12 dwords
	fn.I("KMOVW", tmp, K(1))
	loop := fn.Label("loop")
	fn.I("VMOVDQU32.Z", src.At(0), K(1), Z(0))
	fn.I("VPERMB", Z(0), Z(1), Z(0))
	fn.I("VPMULTISHIFTQB", Z(0), Z(2), Z(0))
	fn.I("VPSLLW", 2, Z(0), Z(5))
	fn.I("VPANDD", Z(3), Z(0), Z(0))
	fn.I("VPTERNLOGD", 0xf8, Z(4), Z(5), Z(0))
	fn.I("VMOVDQU64", Z(0), dst.At(0))
	fn.I("ADDQ", 48, src)
	fn.I("ADDQ", 64, dst)
	fn.I("SUBQ", 1, n)
	fn.Jump("JNZ", loop)
	fn.Return()
}

// foldNibbles: eight bytes to eight quadwords, whose nibbles go to the ends of
// dwords; values of 16 codes times a scale, whose upper halves are BF16.
func (w *gemmPack) foldNibbles() {
	fn := w.f.Func("foldNibbles", `foldNibbles writes 16·n nibbles as BF16, each 16 times one of scales; the products
are BF16. table has the values of the codes.`, "dst, src, scales unsafe.Pointer, n int, table unsafe.Pointer")
	dst, src, scales, n, table := fn.Arg("dst"), fn.Arg("src"), fn.Arg("scales"), fn.Arg("n"), fn.Arg("table")
	shifts := make([]byte, 64)
	for i := range shifts {
		shifts[i] = byte(i % 8)
	}
	fn.I("VMOVDQU64", table.At(0), Z(16))
	fn.I("VMOVDQU64", w.f.Table("nibbleShifts", shifts), Z(17))
	loop := fn.Label("block")
	fn.I("VPMOVZXBQ", src.At(0), Z(0))
	fn.I("VPMULTISHIFTQB", Z(0), Z(17), Z(0))
	fn.I("VPERMD", Z(16), Z(0), Z(0))
	fn.I("VMULPS.BCST", scales.At(0), Z(0), Z(0))
	fn.I("VPSRLD", 16, Z(0), Z(0))
	fn.I("VPMOVDW", Z(0), dst.At(0))
	fn.I("ADDQ", 8, src)
	fn.I("ADDQ", 4, scales)
	fn.I("ADDQ", 32, dst)
	fn.I("SUBQ", 1, n)
	fn.Jump("JNZ", loop)
	fn.Return()
}
