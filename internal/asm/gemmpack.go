package asm

import "fmt"

// gemmTables writes the packing functions.
func gemmTables(f *File) {
	w := gemmPack{f: f}
	w.low, w.high = w.interleave("lowPairs", 0), w.interleave("highPairs", 2)
	w.even, w.odd = w.everyOther("evens", 0), w.everyOther("odds", 1)
	w.bytesToBF16()
	w.bytesToRows()
	w.copyRows()
	w.nibblesToInt8("packMX", 32)
	w.nibblesToInt8("packNV", 16)
	w.bytesToInt8("packSix", true)
	w.bytesToInt8("packInt", false)
	w.splitTiles()
	w.transposeScales()
	w.splitNibbles()
	w.splitSixes()
	w.foldNibbles()
	w.transposeDwords16()
	w.bytesToF32()
	w.floatsToF32()
	w.halvesToF32()
	w.transposeDwords8()
}

// gemmPack is the file of packing functions.
type gemmPack struct {
	f         *File
	low, high Sym // indices of VPERMT2B that combine bytes 0, 1 or 2, 3 of each dword to two BF16
	even, odd Sym // and those that select the even or odd bytes of two dwords
}

// interleave returns the table that selects bytes i and i+1 of each dword of a first vector as
// low bytes, and those of a second vector as high bytes.
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

// everyOther returns the table that selects bytes i and i+2 of each dword of a first vector,
// then of a second.
func (w *gemmPack) everyOther(name string, i int) Sym {
	data := make([]byte, 64)
	for lane := range 16 {
		for b := range 4 {
			data[4*lane+b] = byte(4*lane+i+b%2*2) | byte(b/2*64)
		}
	}
	return w.f.Table(name, data)
}

// A rowSet addresses 16 rows that are stride bytes apart, from four registers.
type rowSet struct {
	base           [4]Reg // rows 0, 4, 8, 12
	stride, triple Reg
}

// sixteenRows takes the registers of 16 rows from src on.
func sixteenRows(fn *Func, src, stride Reg) *rowSet {
	s := &rowSet{stride: stride, triple: fn.GP("3·stride")}
	s.base[0] = src
	for i := 1; i < 4; i++ {
		s.base[i] = fn.GP("source, four rows on")
		fn.I("LEAQ", s.base[i-1].At(0).By(stride, 4), s.base[i])
	}
	fn.I("LEAQ", stride.At(0).By(stride, 2), s.triple)
	fn.Comment("a mask for each group of four lanes except the first")
	for k, mask := range []int{0x00f0, 0x0f00, 0xf000} {
		fn.I("MOVL", mask, s.triple)
		fn.I("KMOVW", s.triple, K(k+1))
	}
	fn.I("LEAQ", stride.At(0).By(stride, 2), s.triple)
	return s
}

// at returns the memory off bytes past the current position in a row.
func (s *rowSet) at(row, off int) Mem {
	m := s.base[row/4].At(off)
	switch row % 4 {
	case 1, 2:
		return m.By(s.stride, row%4)
	case 3:
		return m.By(s.triple, 1)
	}
	return m
}

// load transposes 16 bytes of each row, off bytes past the current position, as dwords: lane i
// of Z(d), d < 4, gets bytes 4d…4d+3 of row i. It uses Z0…Z7 and K1…K3.
func (s *rowSet) load(fn *Func, off int) {
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

// advance advances all rows by n bytes.
func (s *rowSet) advance(fn *Func, n int) {
	for _, b := range s.base {
		fn.I("ADDQ", n, b)
	}
}

// int8Params are the parameters of packing functions of int8 panels. The scales of a block are
// 16 codes, of one block after another. table holds the integers of the codes, and add is added to
// them.
const int8Params = "dst, src unsafe.Pointer, stride int, scales unsafe.Pointer, n int, table unsafe.Pointer, add uint32"

// An int8Panel is the part that packing functions of int8 panels share. The panels are those of B;
// splitTiles converts them to panels of A.
type int8Panel struct {
	fn                               *Func
	dst, src, stride, scales, n, tmp Reg
}

// The registers of an int8Panel.
var int8Table, int8Zero, int8Add, int8Scale = Z(16), Z(17), Z(18), Z(19)

func newInt8Panel(f *File, name, doc string) *int8Panel {
	fn := f.Func(name, doc, int8Params)
	p := &int8Panel{fn, fn.Arg("dst"), fn.Arg("src"), fn.Arg("stride"), fn.Arg("scales"), fn.Arg("n"), fn.Arg("table")}
	fn.I("VMOVDQU64", p.tmp.At(0), int8Table)
	fn.I("MOVL", fn.FP("add"), p.tmp)
	fn.I("VPBROADCASTB", p.tmp, int8Add)
	fn.I("VPXORD", int8Zero, int8Zero, int8Zero)
	return p
}

// store stores step i of the block.
func (p *int8Panel) store(i int, x Vec) { p.fn.I("VMOVDQU64", x, p.dst.At(64*i)) }

// end ends a block: it converts its scales and stores them.
func (p *int8Panel) end(steps int, convert func()) {
	p.fn.I("VPMOVZXBD", p.scales.At(0), int8Scale)
	convert()
	p.store(steps, int8Scale)
	p.fn.I("ADDQ", (steps+1)*64, p.dst)
	p.fn.I("ADDQ", 16, p.scales)
}

// exponents returns the conversion of E8M0 codes to exponents as float32 numbers.
func (p *int8Panel) exponents(bias Vec) (convert func()) {
	broadcast(p.fn, 127, p.tmp, bias)
	return func() {
		p.fn.I("VPSUBD", bias, int8Scale, int8Scale)
		p.fn.I("VCVTDQ2PS", int8Scale, int8Scale)
	}
}

// factors returns the conversion of E4M3 codes that are neither negative nor NaN to float32.
func (p *int8Panel) factors(pow120 Vec) (convert func()) {
	broadcast(p.fn, 0x7b800000, p.tmp, pow120) // 2^120: float32's bias minus E4M3's
	return func() {
		p.fn.I("VPSLLD", 20, int8Scale, int8Scale)
		p.fn.I("VMULPS", pow120, int8Scale, int8Scale)
	}
}

// splitTiles copies the 16 bytes of each sub-panel.
func (w *gemmPack) splitTiles() {
	fn := w.f.Func("splitTiles", `splitTiles converts an int8 panel of B with n blocks of the given steps to one of A: four
sub-panels of 4 lanes, tile bytes apart, with the initial values of the sums (see kernel). bias is that of B. exponents
is a mask of the 16 rows: all if the scales are exponents, or none.`, "dst, src unsafe.Pointer, tile, steps, n int, bias, exponents uint32")
	dst, src, tile, steps, n := fn.Arg("dst"), fn.Arg("src"), fn.Arg("tile"), fn.Arg("steps"), fn.Arg("n")
	left, triple := fn.GP("steps left"), fn.GP("3·tile")
	x, bias, unit, sum := Z(0), Z(1), Z(2), Z(3)
	fn.I("MOVL", fn.FP("bias"), triple)
	fn.I("VPBROADCASTB", triple, bias)
	fn.I("MOVL", fn.FP("exponents"), triple)
	fn.I("KMOVW", triple, K(1))
	broadcast(fn, 0x4b400000, triple, unit) // 1.5·2^23
	fn.I("LEAQ", tile.At(0).By(tile, 2), triple)
	split := func() {
		fn.I("VMOVDQU", x.X(), dst.At(0))
		fn.I("VEXTRACTI32X4", 1, x, dst.At(0).By(tile, 1))
		fn.I("VEXTRACTI32X4", 2, x, dst.At(0).By(tile, 2))
		fn.I("VEXTRACTI32X4", 3, x, dst.At(0).By(triple, 1))
		fn.I("ADDQ", 16, dst)
	}
	block := fn.Label("block")
	fn.I("VPXORD", sum, sum, sum)
	fn.I("MOVQ", steps, left)
	step := fn.Label("step")
	fn.I("VMOVDQU64", src.At(0), x)
	fn.I("VPDPBUSD", x, bias, sum)
	split()
	fn.I("ADDQ", 64, src)
	fn.I("SUBQ", 1, left)
	fn.Jump("JNZ", step)
	fn.I("VMOVDQU64", src.At(0), x)
	fn.I("VSCALEFPS", x, unit, K(1), x)
	split()
	fn.I("VMOVDQA64.Z", x, K(1), x)
	fn.I("VPSUBD", sum, x, x)
	split()
	fn.I("ADDQ", 64, src)
	fn.I("SUBQ", 1, n)
	fn.Jump("JNZ", block)
	fn.Return()
}

// nibblesToInt8 looks up nibbles in a table of 16. Of eight positions, the even ones are the
// low nibbles of a step, the odd ones the high nibbles of the next.
func (w *gemmPack) nibblesToInt8(name string, block int) {
	p := newInt8Panel(w.f, name, fmt.Sprintf(`%s packs 16 rows of nibbles, stride bytes apart, as an int8 panel with blocks of %d:
n times 32 positions (int8Params in internal/asm).`, name, block))
	fn := p.fn
	low := Z(20)
	broadcast(fn, 0x0f0f0f0f, p.tmp, low)
	scales := p.exponents
	if block == 16 {
		scales = p.factors
	}
	convert := scales(Z(21))
	set := sixteenRows(fn, p.src, p.stride)
	loop := fn.Label("positions")
	set.load(fn, 0)
	words := 4 / (32 / block) // dwords of a row in a block
	for b := range 32 / block {
		for d := range words {
			v := Z(b*words + d)
			fn.I("VPANDD", low, v, Z(4))
			fn.I("VPSRLW", 4, v, Z(5))
			fn.I("VPANDD", low, Z(5), Z(5))
			for i, x := range []Vec{Z(4), Z(5)} {
				fn.I("VPSHUFB", x, int8Table, x)
				p.store(2*d+i, x)
			}
		}
		p.end(block/4, convert)
	}
	set.advance(fn, 16)
	fn.I("SUBQ", 1, p.n)
	fn.Jump("JNZ", loop)
	fn.Return()
}

// bytesToInt8 looks up magnitudes in a table of 64 and negates those with a sign, or copies
// integers. Two dwords of a row contain the even and the odd positions of eight.
func (w *gemmPack) bytesToInt8(name string, lookup bool) {
	what := "are the integers"
	if lookup {
		what = "have a sign and a magnitude, which is looked up in a table of 64"
	}
	p := newInt8Panel(w.f, name, fmt.Sprintf(`%s packs 16 rows of bytes, stride bytes apart, as an int8 panel with n blocks of 32
(int8Params in internal/asm). The bytes %s.`, name, what))
	fn, even, words := p.fn, Z(20), K(6)
	fn.I("VMOVDQU64", w.f.shared("evenOdd", indices(func(i int) int { return i%16&^3 + []int{0, 2, 1, 3}[i%4] })), even)
	fn.I("MOVL", "$0xaaaaaaaa", p.tmp)
	fn.I("KMOVD", p.tmp, words) // the second word of each dword
	convert := p.exponents(Z(22))
	set := sixteenRows(fn, p.src, p.stride)
	loop := fn.Label("block")
	for half := range 2 {
		set.load(fn, 16*half)
		for d := range 4 {
			if lookup {
				fn.I("VPMOVB2M", Z(d), K(5))
				fn.I("VPERMB", int8Table, Z(d), Z(d))
				fn.I("VPSUBB", Z(d), int8Zero, K(5), Z(d))
			}
			fn.I("VPADDB", int8Add, Z(d), Z(d))
		}
		for d := 0; d < 4; d += 2 {
			fn.I("VPSHUFB", even, Z(d), Z(d)) // bytes 0 2 1 3 of each dword
			fn.I("VPSHUFB", even, Z(d+1), Z(d+1))
			fn.I("VPSLLD", 16, Z(d+1), Z(4))
			fn.I("VPSRLD", 16, Z(d), Z(5))
			fn.I("VMOVDQU16", Z(4), words, Z(d))
			fn.I("VMOVDQU16", Z(d+1), words, Z(5))
			p.store(half*4+d, Z(d))
			p.store(half*4+d+1, Z(5))
		}
	}
	p.end(8, convert)
	set.advance(fn, 32)
	fn.I("SUBQ", 1, p.n)
	fn.Jump("JNZ", loop)
	fn.Return()
}

// transposeScales transposes 16 blocks of 16 rows at a time.
func (w *gemmPack) transposeScales() {
	fn := w.f.Func("transposeScales", `transposeScales copies the scales of 16 rows, stride bytes apart, to dst: those of
the first blocks, then of the second ones, 16·n blocks in all. It clamps codes to
[low, high] and reports whether one was above high.`,
		"dst, src unsafe.Pointer, stride, n int, low, high uint32) (above uint64")
	dst, src, stride, n := fn.Arg("dst"), fn.Arg("src"), fn.Arg("stride"), fn.Arg("n")
	tmp := fn.GP("scratch")
	fn.I("MOVL", fn.FP("low"), tmp)
	fn.I("VPBROADCASTB", tmp, Z(16))
	fn.I("MOVL", fn.FP("high"), tmp)
	fn.I("VPBROADCASTB", tmp, Z(17))
	fn.I("KXORQ", K(7), K(7), K(7))
	set := sixteenRows(fn, src, stride)
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

// splitNibbles expands nibbles; the even codes are the low ones.
func (w *gemmPack) splitNibbles() {
	fn := w.f.Func("splitNibbles", "splitNibbles writes 64·n nibbles as bytes with the sign in the top bit.", "dst, src unsafe.Pointer, n int")
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

// splitSixes copies three bytes to each dword, from which VPMULTISHIFTQB extracts four codes.
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
	fn := w.f.Func("splitSixes", "splitSixes writes 64·n 6-bit codes as bytes with the sign in the top bit.", "dst, src unsafe.Pointer, n int")
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

// foldNibbles expands eight bytes to quadwords and their nibbles to dwords, then multiplies the
// values of the codes by a scale. The upper halves of the products are BF16.
func (w *gemmPack) foldNibbles() {
	fn := w.f.Func("foldNibbles", `foldNibbles writes 16·n nibbles as BF16, each 16 times one of scales. The products
must be BF16. table holds the values of the codes.`, "dst, src, scales unsafe.Pointer, n int, table unsafe.Pointer")
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
