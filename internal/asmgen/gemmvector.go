package asmgen

import (
	"encoding/binary"
	"fmt"
)

// gemmVectors writes the kernels that multiply a few lines of A by lines of B
// straight from their codes.
func gemmVectors() *File {
	f := NewFile("gemm", "vector")
	ones := f.Table("vectorOnes", bytes16(1))
	largest := f.Table("vectorLargest", bytes16(0x7e))
	pow120 := f.Table("vectorPow120", binary.LittleEndian.AppendUint64(nil, 0x7b800000)) // 2^120: from E4M3's bias to float32's
	for _, v := range []vector{
		{name: "MX8", block: 32, bits: 8},
		{name: "MX4", block: 32, bits: 4},
		{name: "NV4", block: 16, bits: 4},
	} {
		v.ones, v.largest, v.pow120 = ones, largest, pow120
		v.lanes = f.Table("lanes"+v.name, v.scaleLanes())
		for _, shape := range [][2]int{{1, 1}, {2, 2}, {2, 4}, {2, 8}} {
			v.rows, v.batch = shape[0], shape[1]
			v.write(f)
		}
	}
	return f
}

func bytes16(b byte) []byte {
	data := make([]byte, 16)
	for i := range data {
		data[i] = b
	}
	return data
}

// A vector is one kernel: rows lines of B at a time, by batch lines of A. A group
// is the codes of 16 scales, a chunk 64 bytes of them. Chunks become BF16 in the
// order in which that is least work, and A is in the same order:
//
//	8 bits   of each 16 codes the first eight in one vector, the others in a second
//	4 bits   of each 4 codes the first in one vector, and so on for four vectors
//
// Every dword of the products of a chunk is then of one block, and takes that
// block's scale in one fused multiply-add.
type vector struct {
	name                  string
	block, bits           int
	rows, batch           int
	lanes                 Sym // for each chunk of a group the scale of each dword
	ones, largest, pow120 Sym
}

func (v vector) chunkCodes() int { return 64 * 8 / v.bits }

func (v vector) chunks() int { return 16 * v.block / v.chunkCodes() }

// vectors is how many a chunk becomes.
func (v vector) vectors() int { return 16 / v.bits }

func (v vector) scaleLanes() []byte {
	var data []byte
	for c := range v.chunks() {
		for lane := range 16 {
			data = binary.LittleEndian.AppendUint32(data, uint32((c*16+lane)*v.chunkCodes()/16/v.block))
		}
	}
	return data
}

func (v vector) write(f *File) {
	name := fmt.Sprintf("vector%s_%dx%d", v.name, v.rows, v.batch)
	check := "0 and 255, for 0 and infinity"
	if v.block == 16 {
		check = "of sign 1, and NaN"
	}
	fn := f.Func(name, fmt.Sprintf(`%s adds to y the products of %d lines of x with lines of B, %d at a
time and that pairs times, over groups of 16 blocks. Lines are wStride, their
scales sStride bytes apart; wNext and sNext lead from the end of one set of lines
to the next. Lines of x are xStride, those of y yStride bytes apart. It reports
whether there were scales that it does not take (%s).`, name, v.batch, v.rows, check),
		"w, s, x unsafe.Pointer, groups, pairs, wStride, sStride, wNext, sNext int, y unsafe.Pointer, xStride, yStride int, tables unsafe.Pointer) (found uint64")
	w, s, y := fn.Arg("w"), fn.Arg("s"), fn.Arg("y")
	pairs, wStride, sStride, xStride := fn.Arg("pairs"), fn.Arg("wStride"), fn.Arg("sStride"), fn.Arg("xStride")
	x, groups := fn.GP("place in x"), fn.GP("groups left")
	wTriple, xTriple := fn.GP("3·wStride"), fn.GP("3·xStride")
	x4, tmp := fn.GP("place in x, four lines on"), fn.GP("scratch")
	fn.I("LEAQ", wStride.At(0).By(wStride, 2), wTriple)
	fn.I("LEAQ", xStride.At(0).By(xStride, 2), xTriple)
	fn.I("KXORQ", K(7), K(7), K(7))
	fn.I("MOVQ", fn.FP("tables"), tmp)

	sum := func(r, b int) Vec { return Z(8*r + b) }
	n := v.vectors()
	codes := func(r, i int) Vec { return Z(16 + n*r + i) }
	scale := func(r int) Vec { return Z(24 + r) }
	var spread, dot func(r int) Vec
	var xv Vec
	if v.bits == 8 {
		spread, dot, xv = func(r int) Vec { return Z(20 + r) }, func(r int) Vec { return Z(22 + r) }, Z(26)
		for i := range 4 {
			fn.I("VMOVDQU64", tmp.At(64*i), Z(28+i))
		}
		broadcast(fn, 0x80808080, tmp, Z(27))
		fn.Note("Z27…Z31", "sign bits; tables: low halves, high halves")
	} else {
		spread, dot, xv = func(r int) Vec { return Z(26 + r) }, func(r int) Vec { return Z(28 + r) }, Z(30)
		fn.I("VMOVDQU64", tmp.At(0), Z(31))
		fn.Note("Z31", "BF16 of each nibble, twice")
	}
	fn.Note("Z0…Z15", "sums, lines of x within lines of B")
	fn.Note("K7", "scales found")
	line := func(m Mem, stride Reg, r int) Mem {
		if r > 0 {
			m = m.By(stride, r)
		}
		return m
	}
	xLine := func(b, off int) Mem {
		m := x.At(off)
		if b >= 4 {
			m = x4.At(off)
		}
		switch b % 4 {
		case 1, 2:
			return m.By(xStride, b%4)
		case 3:
			return m.By(xTriple, 1)
		}
		return m
	}

	row := fn.Label("lines")
	fn.I("MOVQ", fn.FP("x"), x)
	fn.I("MOVQ", fn.FP("groups"), groups)
	for r := range v.rows {
		for b := range v.batch {
			fn.I("VPXORQ", sum(r, b), sum(r, b), sum(r, b))
		}
	}
	loop := fn.Label("group")
	if v.batch > 4 {
		fn.I("LEAQ", x.At(0).By(xStride, 4), x4)
	}
	fn.I("PREFETCHT0", s.At(0).By(sStride, 2))
	for r := range v.rows {
		fn.I("VMOVDQU64", line(s.At(0), sStride, r), dot(0).X())
		if v.block == 32 {
			fn.I("VPMOVZXBD", dot(0).X(), scale(r))
			fn.I("VPADDB", v.ones, dot(0).X(), dot(0).X())
			fn.I("VPCMPUB", 2, v.ones, dot(0).X(), K(5)) // not greater
			fn.I("VPSLLD", 23, scale(r), scale(r))
		} else {
			fn.I("VPMOVZXBD", dot(0).X(), scale(r))
			fn.I("VPCMPUB", 6, v.largest, dot(0).X(), K(5)) // greater
			fn.I("VPSLLD", 20, scale(r), scale(r))
			fn.I("VMULPS.BCST", v.pow120, scale(r), scale(r))
		}
		fn.I("KORQ", K(5), K(7), K(7))
	}
	for c := range v.chunks() {
		for r := range v.rows {
			next := w.At(64*c).By(wStride, 8/v.bits) // of lines of half the bytes the one after
			if v.rows == 2 {
				next = [...]Mem{line(w.At(64*c), wStride, 2), w.At(64*c).By(wTriple, 1)}[r]
			}
			fn.I("PREFETCHT0", next)
			fn.I("VMOVDQU64", line(w.At(64*c), wStride, r), codes(r, 0))
			if v.bits == 8 {
				fn.I("VMOVDQA64", codes(r, 0), codes(r, 1))
				fn.I("VPERMI2B", Z(31), Z(30), codes(r, 1))
				fn.I("VMOVDQA64", codes(r, 0), dot(0))
				fn.I("VPERMI2B", Z(29), Z(28), dot(0))
				fn.I("VPTERNLOGD", 0xf8, Z(27), codes(r, 0), codes(r, 1))
				fn.I("VPUNPCKLBW", codes(r, 1), dot(0), codes(r, 0))
				fn.I("VPUNPCKHBW", codes(r, 1), dot(0), codes(r, 1))
			} else {
				for i := 1; i < n; i++ {
					fn.I("VPSRLW", 4*i, codes(r, 0), codes(r, i))
				}
				for i := range n {
					fn.I("VPERMW", Z(31), codes(r, i), codes(r, i))
				}
			}
			fn.I("VMOVDQU64", v.lanes.At(64*c), spread(r))
			fn.I("VPERMD", scale(r), spread(r), spread(r))
		}
		for b := range v.batch {
			for r := range v.rows {
				fn.I("VPXORQ", dot(r), dot(r), dot(r))
			}
			for i := range n {
				fn.I("VMOVDQU64", xLine(b, (c*n+i)*64), xv)
				for r := range v.rows {
					fn.I("VDPBF16PS", xv, codes(r, i), dot(r))
				}
			}
			for r := range v.rows {
				fn.I("VFMADD231PS", spread(r), dot(r), sum(r, b))
			}
		}
	}
	fn.I("ADDQ", 64*v.chunks(), w)
	fn.I("ADDQ", 16, s)
	fn.I("ADDQ", 64*v.chunks()*n, x)
	fn.I("SUBQ", 1, groups)
	fn.Jump("JNZ", loop)

	fn.Comment("y += sums, across lanes")
	for r := range v.rows {
		fn.I("MOVQ", y, tmp)
		for b := range v.batch {
			a, t := sum(r, b), dot(0)
			fn.I("VEXTRACTF64X4", 1, a, t.Y())
			fn.I("VADDPS", t.Y(), a.Y(), a.Y())
			fn.I("VEXTRACTF32X4", 1, a.Y(), t.X())
			fn.I("VADDPS", t.X(), a.X(), a.X())
			fn.I("VPSHUFD", 0x4e, a.X(), t.X())
			fn.I("VADDPS", t.X(), a.X(), a.X())
			fn.I("VPSHUFD", 0xb1, a.X(), t.X())
			fn.I("VADDPS", t.X(), a.X(), a.X())
			fn.I("VADDSS", tmp.At(4*r), a.X(), a.X())
			fn.I("VMOVSS", a.X(), tmp.At(4*r))
			fn.I("ADDQ", fn.FP("yStride"), tmp)
		}
	}
	fn.I("ADDQ", 4*v.rows, y)
	fn.I("ADDQ", fn.FP("wNext"), w)
	fn.I("ADDQ", fn.FP("sNext"), s)
	fn.I("SUBQ", 1, pairs)
	fn.Jump("JNZ", row)
	fn.I("KMOVQ", K(7), tmp)
	fn.I("MOVQ", tmp, fn.FP("found"))
	fn.Return()
}
