package asm

// vectorInt8 multiplies by VPDPBUSD. The codes of B become unsigned integers, those of A are
// signed. A chunk is 128 codes, which become two vectors:
//
//	4 bits      of each 8 codes, the even ones in a dword of the first, the odd ones in the second
//	6, 8 bits   of each 32 codes, the first 16 in four dwords of the first, the others in the second
//
// A has four vectors for each chunk: the integers that correspond to these two; the initial
// values of the sums, minus the bias of B times the sum of A; and the scale of each dword. With
// E4M3 scales of B it is a float32, with E8M0 scales the amount to add to the exponent field.
//
// The tables hold the integer of each code in 64 bytes. With E8M0, they also hold the smallest
// supported code and the size of the range above it, 16 times each.
type vectorInt8 struct {
	bits int
	vectorTables
	vectorSixes
}

// vectorSixes holds, for 6-bit codes in two vectors 32 bytes apart, the bytes of each four
// codes and the positions of the codes in them.
type vectorSixes struct {
	halves [2]Sym
	shifts Sym
}

func newVectorSixes(f *File) (s vectorSixes) {
	for h, name := range []string{"sixesLow", "sixesHigh"} {
		index := make([]byte, 64)
		for lane := range 16 {
			for b := range 3 {
				at := 24*(lane/4) + 12*h + 3*(lane%4) + b
				if at >= 64 {
					at += 64 - 32 // in the second vector
				}
				index[4*lane+b] = byte(at)
			}
		}
		s.halves[h] = f.Table(name, index)
	}
	shifts := make([]byte, 64)
	for i := range shifts {
		shifts[i] = byte(i/4%2*32 + i%4*6)
	}
	s.shifts = f.Table("sixesShifts", shifts)
	return s
}

func (a vectorInt8) chunkCodes() int     { return 128 }
func (a vectorInt8) codes(r, i int) Vec  { return Z(16 + 2*r + i) }
func (a vectorInt8) spread(r int) Vec    { return Z(20 + r) }
func (a vectorInt8) dot(r int) Vec       { return Z(22 + r) }
func (a vectorInt8) temporary(i int) Vec { return Z(26 + i) }
func (a vectorInt8) table() (of, at Vec) { return Z(28), Z(29) }
func (a vectorInt8) least() Vec          { return Z(30).X() }
func (a vectorInt8) span() Vec           { return Z(31).X() }

func (a vectorInt8) checks(v *vector) string {
	if v.block == 16 {
		return "that are negative or NaN"
	}
	return "outside the range of the tables"
}

func (a vectorInt8) constants(v *vector, tables Reg) {
	of, at := a.table()
	v.fn.I("VMOVDQU64", tables.At(0), of)
	if v.block == 32 {
		v.fn.I("VMOVDQU64", tables.At(64), a.least())
		v.fn.I("VMOVDQU64", tables.At(80), a.span())
		v.fn.Note("X30, X31", "smallest scale; size of the range")
	}
	switch a.bits {
	case 4:
		broadcast(v.fn, 0x0f0f0f0f, tables, at)
		v.fn.Note("Z28, Z29", "integer of each nibble; low nibbles")
	case 6:
		v.fn.I("VMOVDQU64", a.shifts, at)
		v.fn.Note("Z28, Z29", "integer of each code; positions in a quadword")
	case 8:
		v.fn.Note("Z28", "sign bits")
	}
}

func (a vectorInt8) skip(v *vector, _ Reg) { v.fn.I("ADDQ", 16, v.s) }

func (a vectorInt8) scales(v *vector, r int, from Mem) {
	codes, within := a.dot(0).X(), a.dot(1).X()
	v.fn.I("VMOVDQU64", from, codes)
	if v.block == 16 {
		v.fn.I("VPMOVZXBD", codes, v.scale(r))
		a.e4m3(v, codes, v.scale(r))
		return
	}
	v.fn.I("VPMAXUB", a.least(), codes, within)
	v.fn.I("VPSUBB", a.least(), codes, codes)
	v.fn.I("VPCMPUB", 6, a.span(), codes, K(5)) // greater
	v.fn.I("VPMOVZXBD", within, v.scale(r))
	v.fn.I("VPSLLD", 23, v.scale(r), v.scale(r))
}

func (a vectorInt8) decode(v *vector, r int) {
	fn := v.fn
	of, table := a.table()
	first, second := a.temporary(0), a.temporary(1)
	switch a.bits {
	case 4:
		fn.I("VMOVDQU64", v.codes(r, 0), a.codes(r, 0))
		fn.I("VPSRLW", 4, a.codes(r, 0), a.codes(r, 1))
		for i := range 2 {
			fn.I("VPANDQ", table, a.codes(r, i), a.codes(r, i))
			fn.I("VPSHUFB", a.codes(r, i), of, a.codes(r, i))
		}
	case 6:
		fn.I("VMOVDQU64", v.codes(r, 0), first)
		fn.I("VMOVDQU64", v.codes(r, 32), second)
		for i := range 2 {
			fn.I("VMOVDQU64", a.halves[i], a.codes(r, i))
			fn.I("VPERMI2B", second, first, a.codes(r, i))
			fn.I("VPMULTISHIFTQB", a.codes(r, i), table, a.codes(r, i))
			fn.I("VPERMB", of, a.codes(r, i), a.codes(r, i)) // uses the lower six bits of an index
		}
	case 8:
		fn.I("VMOVDQU64", v.codes(r, 0), first)
		fn.I("VMOVDQU64", v.codes(r, 64), second)
		for i, half := range []int{0x88, 0xdd} {
			fn.I("VSHUFI32X4", half, second, first, a.codes(r, i))
			fn.I("VPXORQ", of, a.codes(r, i), a.codes(r, i))
		}
	}
}

func (a vectorInt8) multiply(v *vector, b int) {
	fn := v.fn
	combine := "VPADDD"
	if v.block == 16 {
		combine = "VMULPS"
	}
	fn.I("VMOVDQU64", v.x.at(b, 128), a.dot(0))
	for r := 1; r < v.rows; r++ {
		fn.I("VMOVDQA64", a.dot(0), a.dot(r))
	}
	for i := range 2 {
		x := a.temporary(i)
		fn.I("VMOVDQU64", v.x.at(b, 64*i), x)
		for r := range v.rows {
			fn.I("VPDPBUSD", x, a.codes(r, i), a.dot(r))
		}
	}
	for r := range v.rows {
		scale := a.temporary(r)
		fn.I("VCVTDQ2PS", a.dot(r), a.dot(r))
		fn.I(combine, v.x.at(b, 192), a.spread(r), scale)
		fn.I("VFMADD231PS", scale, a.dot(r), v.sum(r, b))
	}
}
