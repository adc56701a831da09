package asm

// vectorBF16 multiplies by VDPBF16PS. It decodes 64 codes, or 128 of 4 bits, to BF16 in the order that
// takes the fewest instructions; A is arranged in the same order:
//
//	8, 6 bits   of each 16 codes, the first eight in one vector, the others in a second
//	4 bits      of each 4 codes, the first in one vector, and so on for four vectors
//
// Codes of 8 bits have a sign and a magnitude, or are integers in two's complement.
type vectorBF16 struct {
	bits int
	ones Sym
	vectorTables
}

// Offsets in gemm.bf16Table, in bytes.
const (
	bf16Index  = 256 // of the scales: the byte for each byte
	bf16Shifts = 320
	bf16Add    = 384
	bf16Limit  = 400
	bf16Loaded = 416 // a bit for each byte of a group
	bf16Bytes  = 424 // of the scales of a group
	bf16Mask   = 436 // bits of a code whose absolute value is the magnitude
)

func (a vectorBF16) chunkCodes() int    { return 32 * a.vectors() }
func (a vectorBF16) vectors() int       { return 16 / a.bits } // of a chunk
func (a vectorBF16) codes(r, i int) Vec { return Z(8 + a.vectors()*r + i) }
func (a vectorBF16) spread(r int) Vec   { return Z(20 + r) }
func (a vectorBF16) dot(r int) Vec      { return Z(22 + r) }
func (a vectorBF16) magnitude() Vec     { return Z(12) } // of codes of 8 bits

func (a vectorBF16) checks(v *vector) string {
	switch {
	case a.bits != 4:
		return "0 and 255 of E8M0, which stand for 0 and infinity here"
	case v.block == 16:
		return "that are negative or NaN"
	}
	return "0 and 255, which stand for 0 and infinity here"
}

func (a vectorBF16) constants(v *vector, tables Reg) {
	if a.bits != 4 {
		for i := range 4 {
			v.fn.I("VMOVDQU64", tables.At(64*i), Z(28+i))
		}
		v.fn.I("VMOVDQU64", tables.At(bf16Index), Z(16))
		v.fn.I("VMOVDQU64", tables.At(bf16Shifts), Z(17))
		v.fn.I("VMOVDQU64", tables.At(bf16Add), X(18))
		v.fn.I("VMOVDQU64", tables.At(bf16Limit), X(19))
		v.fn.I("KMOVQ", tables.At(bf16Loaded), K(4))
		v.fn.Note("Z16…Z19", "bytes of the scales; shifts; number added to find unsupported scales, which are then smaller than the last")
		v.fn.Note("K4", "bytes of the scales of a group")
		if a.bits == 8 {
			v.fn.I("VPBROADCASTB", tables.At(bf16Mask), a.magnitude())
			v.fn.Note(a.magnitude(), "bits of a code whose absolute value is the magnitude")
			broadcast(v.fn, 0x80808080, tables, Z(27))
			v.fn.Note("Z27…Z31", "sign bits; tables of low and of high bytes")
			return
		}
		v.fn.I("MOVQ", 1<<v.chunkBytes()-1, tables)
		v.fn.I("KMOVQ", tables, K(6))
		v.fn.Note("K6", "bytes of a chunk")
		v.fn.Note("Z28…Z31", "tables of low and of high bytes; the bytes and the positions of codes")
	} else {
		v.fn.I("VMOVDQU64", tables.At(0), Z(31))
		v.fn.Note("Z31", "BF16 value of each nibble, twice")
	}
}

// skip skips the scales of 4-bit codes, or as many bytes as the table says.
func (a vectorBF16) skip(v *vector, tmp Reg) {
	if a.bits == 4 {
		v.fn.I("ADDQ", 16, v.s)
		return
	}
	v.fn.I("MOVQ", v.fn.FP("tables"), tmp)
	v.fn.I("ADDQ", tmp.At(bf16Bytes), v.s)
}

func (a vectorBF16) scales(v *vector, r int, from Mem) {
	codes := a.dot(0).X()
	if a.bits == 4 {
		v.fn.I("VMOVDQU64", from, codes)
	} else {
		v.fn.I("VMOVDQU8.Z", from, K(4), codes.Z())
		v.fn.I("VPERMB", codes.Z(), Z(16), v.scale(r))
		v.fn.I("VPSLLVD", Z(17), v.scale(r), v.scale(r))
		v.fn.I("VPADDB", X(18), codes, codes)
		v.fn.I("VPCMPUB", 1, X(19), codes, K(5)) // less
		return
	}
	v.fn.I("VPMOVZXBD", codes, v.scale(r))
	if v.block == 16 {
		a.e4m3(v, codes, v.scale(r))
		return
	}
	v.fn.I("VPADDB", a.ones, codes, codes)
	v.fn.I("VPCMPUB", 2, a.ones, codes, K(5)) // not greater
	v.fn.I("VPSLLD", 23, v.scale(r), v.scale(r))
}

func (a vectorBF16) decode(v *vector, r int) {
	fn := v.fn
	if a.bits == 6 {
		fn.I("VMOVDQU8.Z", v.codes(r, 0), K(6), a.codes(r, 0))
		fn.I("VPERMB", a.codes(r, 0), Z(30), a.codes(r, 0))
		fn.I("VPMULTISHIFTQB", a.codes(r, 0), Z(31), a.codes(r, 0))
		fn.I("VPERMB", Z(29), a.codes(r, 0), a.codes(r, 1)) // uses the lower six bits of an index
		fn.I("VPERMB", Z(28), a.codes(r, 0), a.dot(0))
		fn.I("VPUNPCKLBW", a.codes(r, 1), a.dot(0), a.codes(r, 0))
		fn.I("VPUNPCKHBW", a.codes(r, 1), a.dot(0), a.codes(r, 1))
		return
	}
	fn.I("VMOVDQU64", v.codes(r, 0), a.codes(r, 0))
	if a.bits == 8 {
		fn.I("VPTESTMB", a.codes(r, 0), a.codes(r, 0), K(6))
		fn.I("VPANDQ", a.magnitude(), a.codes(r, 0), a.codes(r, 1))
		fn.I("VPABSB", a.codes(r, 1), a.codes(r, 1))
		fn.I("VMOVDQA64", a.codes(r, 1), a.dot(0))
		fn.I("VPERMI2B.Z", Z(31), Z(30), K(6), a.codes(r, 1)) // zero, or the lowest integer: only the lower seven bits are an index
		fn.I("VPERMI2B", Z(29), Z(28), a.dot(0))
		fn.I("VPTERNLOGD", 0xf8, Z(27), a.codes(r, 0), a.codes(r, 1))
		fn.I("VPUNPCKLBW", a.codes(r, 1), a.dot(0), a.codes(r, 0))
		fn.I("VPUNPCKHBW", a.codes(r, 1), a.dot(0), a.codes(r, 1))
		return
	}
	for i := 1; i < a.vectors(); i++ {
		fn.I("VPSRLW", 4*i, a.codes(r, 0), a.codes(r, i))
	}
	for i := range a.vectors() {
		fn.I("VPERMW", Z(31), a.codes(r, i), a.codes(r, i))
	}
}

func (a vectorBF16) multiply(v *vector, b int) {
	x := Z(26)
	for r := range v.rows {
		v.fn.I("VPXORQ", a.dot(r), a.dot(r), a.dot(r))
	}
	for i := range a.vectors() {
		v.fn.I("VMOVDQU64", v.x.at(b, 64*i), x)
		for r := range v.rows {
			v.fn.I("VDPBF16PS", x, a.codes(r, i), a.dot(r))
		}
	}
	for r := range v.rows {
		v.fn.I("VFMADD231PS", a.spread(r), a.dot(r), v.sum(r, b))
	}
}
