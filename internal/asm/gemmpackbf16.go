package asm

// A bf16Packer is the part that packing functions of byte codes share. They look up the low and
// the high byte of each BF16 in two tables of 128 bytes, and add the exponent of the block to
// those that are not zero.
type bf16Packer struct {
	fn                     *Func
	dst, exponents, blocks Reg
	rows                   *rowSet
	tmp                    Reg
}

const bf16PackParams = "dst, src unsafe.Pointer, stride int, exponents unsafe.Pointer, blocks int, tables unsafe.Pointer, mask, " +
	"special uint32) (found uint64"

func (w *gemmPack) bf16Packer(name, layout string) *bf16Packer {
	fn := w.f.Func(name, name+` packs 16 rows of byte codes, stride bytes apart, as a BF16 panel
`+layout+`, in blocks of 32 positions. exponents holds the E8M0 codes of each block's
16 lanes. tables holds the low bytes of the BF16 values of magnitudes 0 to 127, then
the high bytes. mask is 0x7f for codes of sign and magnitude, and 0xff for two's
complement. It reports magnitudes of at least special, which the tables do not
support; the panel is invalid then.`, bf16PackParams)
	p := &bf16Packer{fn: fn}
	p.dst = fn.Arg("dst")
	src, stride := fn.Arg("src"), fn.Arg("stride")
	p.exponents, p.blocks = fn.Arg("exponents"), fn.Arg("blocks")
	tables := fn.Arg("tables")
	for i := range 4 {
		fn.I("VMOVDQU64", tables.At(64*i), Z(16+i))
	}
	p.tmp = tables
	broadcast(fn, 0x80808080, p.tmp, Z(22))
	fn.I("MOVL", fn.FP("mask"), p.tmp)
	fn.I("VPBROADCASTB", p.tmp, Z(23))
	broadcast(fn, 0x7fff7fff, p.tmp, Z(24))
	broadcast(fn, 127, p.tmp, Z(25))
	fn.I("VPXORD", Z(26), Z(26), Z(26))
	fn.Note("Z16…Z19", "tables: low halves, high halves")
	fn.Note("Z22…Z25", "sign bits, mask of bytes, magnitude bits of words, 127")
	fn.Note("Z26", "maximum of the magnitudes")
	fn.Note("Z27", "addends of the exponents")
	p.rows = sixteenRows(fn, src, stride)
	return p
}

// addends sets both halves of each dword of Z27 to the addend of its lane.
func (p *bf16Packer) addends() {
	fn := p.fn
	fn.I("VPMOVZXBD", p.exponents.At(0), Z(27))
	fn.I("VPSUBD", Z(25), Z(27), Z(27))
	fn.I("VPSLLD", 23, Z(27), Z(27))
	fn.I("VPSRLD", 16, Z(27), Z(28))
	fn.I("VPORD", Z(28), Z(27), Z(27))
}

// lookUp sets low and high to the halves of the values of the codes. It changes codes.
func (p *bf16Packer) lookUp(codes, low, high Vec) {
	fn, magnitudes := p.fn, Z(6)
	fn.I("VPANDD", Z(23), codes, magnitudes)
	fn.I("VPABSB", magnitudes, magnitudes) // of sign and magnitude, the same
	fn.I("VPMAXUB", magnitudes, Z(26), Z(26))
	fn.I("VMOVDQA64", magnitudes, low)
	fn.I("VPERMI2B", Z(17), Z(16), low)
	fn.I("VMOVDQA64", magnitudes, high)
	fn.I("VPERMI2B", Z(19), Z(18), high)
	fn.I("VPTERNLOGD", 0xf8, Z(22), codes, high) // high half | code & sign
}

// store adds the exponents to values that are not zero, and stores them.
func (p *bf16Packer) store(v, addends Vec, mask Mask, to Mem) {
	p.fn.I("VPTESTMW", Z(24), v, mask)
	p.fn.I("VPADDW", addends, v, mask, v)
	p.fn.I("VMOVDQU64", v, to)
}

// next ends the loop over blocks and the function.
func (p *bf16Packer) next(loop Label) {
	fn := p.fn
	fn.I("ADDQ", 1024, p.dst)
	fn.I("ADDQ", 16, p.exponents)
	p.rows.advance(fn, 32)
	fn.I("SUBQ", 1, p.blocks)
	fn.Jump("JNZ", loop)
	fn.I("MOVL", fn.FP("special"), p.tmp)
	fn.I("VPBROADCASTB", p.tmp, Z(27))
	fn.I("VPCMPUB", 5, Z(27), Z(26), K(5)) // not less
	fn.I("KMOVQ", K(5), p.tmp)
	fn.I("MOVQ", p.tmp, fn.FP("found"))
	fn.Return()
}

// bytesToBF16 packs panels of steps: a dword of a step is two bytes of a row.
func (w *gemmPack) bytesToBF16() {
	p := w.bf16Packer("packBytesBF16", "of steps")
	fn := p.fn
	fn.I("VMOVDQU64", w.low, Z(20))
	fn.I("VMOVDQU64", w.high, Z(21))
	fn.Note("Z20 Z21", "indices of bytes 0, 1 and 2, 3")
	loop := fn.Label("block")
	p.addends()
	for half := range 2 {
		p.rows.load(fn, 16*half)
		for d := range 4 {
			low, high := Z(5), Z(4)
			p.lookUp(Z(d), low, high)
			fn.I("VMOVDQA64", low, Z(6))
			fn.I("VPERMT2B", high, Z(20), low)
			fn.I("VPERMT2B", high, Z(21), Z(6))
			p.store(low, Z(27), K(5), p.dst.At(512*half+128*d))
			p.store(Z(6), Z(27), K(6), p.dst.At(512*half+128*d+64))
		}
	}
	p.next(loop)
}

// bytesToRows packs panels by rows, two rows at a time. It distributes the bytes of each row
// over the same half of every 128 bits, and interleaves low and high bytes there.
func (w *gemmPack) bytesToRows() {
	p := w.bf16Packer("packBytesRows", "by rows")
	fn := p.fn
	fn.Frame(64) // the addends, one for each row
	spread := make([]byte, 64)
	for i, q := range []byte{0, 4, 1, 5, 2, 6, 3, 7} {
		spread[8*i] = q
	}
	fn.I("VMOVDQU64", w.f.shared("rowSpread", spread), Z(20))
	fn.Note("Z20", "alternate quadwords of two rows")
	loop := fn.Label("block")
	p.addends()
	fn.I("VMOVDQU64", Z(27), SP.At(0))
	for i := 0; i < 16; i += 2 {
		fn.I("VMOVDQU", p.rows.at(i, 0), Y(0))
		fn.I("VINSERTI64X4", 1, p.rows.at(i+1, 0), Z(0), Z(0))
		fn.I("VPERMQ", Z(0), Z(20), Z(0))
		low, high := Z(5), Z(4)
		p.lookUp(Z(0), low, high)
		for j, unpack := range []string{"VPUNPCKLBW", "VPUNPCKHBW"} {
			fn.I(unpack, high, low, Z(1+j))
			fn.I("VPBROADCASTD", SP.At(4*(i+j)), Z(7+j))
			p.store(Z(1+j), Z(7+j), K(5+j), p.dst.At(64*(i+j)))
		}
	}
	p.next(loop)
}

// copyRows packs tiles by rows from rows of BF16.
func (w *gemmPack) copyRows() {
	fn := w.f.Func("copyRows", "copyRows copies 16 rows of BF16, stride bytes apart, to a panel by rows: 32·n\nelements of each.",
		"dst, src unsafe.Pointer, stride, n int")
	dst, src, stride, n := fn.Arg("dst"), fn.Arg("src"), fn.Arg("stride"), fn.Arg("n")
	set := sixteenRows(fn, src, stride)
	loop := fn.Label("tile")
	for i := range 16 {
		fn.I("VMOVDQU64", set.at(i, 0), Z(i%4))
		fn.I("VMOVDQU64", Z(i%4), dst.At(64*i))
	}
	fn.I("ADDQ", 1024, dst)
	set.advance(fn, 64)
	fn.I("SUBQ", 1, n)
	fn.Jump("JNZ", loop)
	fn.Return()
}
