package asmgen

import (
	"encoding/binary"
	"fmt"
)

// gemmVectors writes the kernels that multiply a few lines of A by lines of B
// straight from their codes: by products in BF16, and by integer ones.
func gemmVectors() []*File {
	shapes := [][2]int{{1, 1}, {2, 2}, {2, 4}, {2, 8}}
	f := NewFile("gemm", "vector")
	tables, ones := newVectorTables(f), f.Table("vectorOnes", bytes16(1))
	for _, v := range []vector{
		{name: "MX8", block: 32, bits: 8},
		{name: "MX4", block: 32, bits: 4},
		{name: "NV4", block: 16, bits: 4},
	} {
		v.arithmetic = vectorBF16{v.bits, ones, tables}
		v.write(f, shapes)
	}
	g := NewFile("gemm", "vectorint8")
	tables = newVectorTables(g)
	six := newVectorSixes(g)
	for _, v := range []vector{
		{name: "IntMX4", block: 32, bits: 4},
		{name: "IntMX6", block: 32, bits: 6},
		{name: "IntMX8", block: 32, bits: 8},
		{name: "IntNV4", block: 16, bits: 4},
	} {
		v.arithmetic = vectorInt8{v.bits, tables, six}
		v.write(g, shapes)
	}
	return []*File{f, g}
}

// A vector is one kernel: rows lines of B at a time, by batch lines of A. A group
// is the codes of 16 scales, a chunk some of them that are decoded together. Every
// dword of the products of a chunk is of one block, and takes that block's scale in
// one fused multiply-add.
type vector struct {
	name        string
	block, bits int
	arithmetic  vectorArithmetic
	lanes       Sym // for each chunk of a group the scale of each dword

	rows, batch int
	fn          *Func
	wStride     Reg
	xStride     Reg
	wTriple     Reg
	xTriple     Reg
	w, s, x, x4 Reg
}

// A vectorArithmetic is how codes of B are decoded and multiplied. It has Z16…Z23 and
// Z26…Z31 for itself.
type vectorArithmetic interface {
	chunkCodes() int
	spread(r int) Vec // the scales of the dwords of a chunk of line r of B
	dot(r int) Vec    // their products, free between chunks
	constants(v *vector, tables Reg)
	scales(v *vector, r int)          // of a group, to scale(r); what they are not good for, to K5
	decode(v *vector, c, r int)       // chunk c of line r of B
	multiply(v *vector, c, b, at int) // by what line b of A has for it, at bytes behind x, adding to sum(r, b)
	checks(v *vector) string          // the scales that it does not take
}

// Codes are fetched twice: lines ahead to the second-level cache, which waits for more of
// them at a time than the first, and so many bytes ahead to that.
const vectorNear = 512

// sum is the register of the sums of line b of A with line r of B.
func (v *vector) sum(r, b int) Vec { return Z(8*r + b) }

// scale is the register of the scales of a group of line r of B.
func (v *vector) scale(r int) Vec { return Z(24 + r) }

// vectorTables are the constants of kernels for E4M3 scales.
type vectorTables struct {
	largest, pow120 Sym
}

func newVectorTables(f *File) vectorTables {
	return vectorTables{
		largest: f.Table("vectorLargest", bytes16(0x7e)),
		pow120:  f.Table("vectorPow120", binary.LittleEndian.AppendUint64(nil, 0x7b800000)), // 2^120: from E4M3's bias to float32's
	}
}

func bytes16(b byte) []byte {
	data := make([]byte, 16)
	for i := range data {
		data[i] = b
	}
	return data
}

// e4m3 makes float32 of the codes of E4M3 in the dwords of scale; K5 gets those that
// are NaN or have a sign.
func (t vectorTables) e4m3(v *vector, codes, scale Vec) {
	v.fn.I("VPCMPUB", 6, t.largest, codes, K(5)) // greater
	v.fn.I("VPSLLD", 20, scale, scale)
	v.fn.I("VMULPS.BCST", t.pow120, scale, scale)
}

// chunks is how many a group has, chunkBytes what one takes.
func (v *vector) chunks() int     { return 16 * v.block / v.arithmetic.chunkCodes() }
func (v *vector) chunkBytes() int { return v.arithmetic.chunkCodes() * v.bits / 8 }

func (v *vector) scaleLanes() []byte {
	var data []byte
	for c := range v.chunks() {
		for lane := range 16 {
			data = binary.LittleEndian.AppendUint32(data, uint32((c*16+lane)*v.arithmetic.chunkCodes()/16/v.block))
		}
	}
	return data
}

// codes returns the memory off bytes behind the current place in line r of B.
func (v *vector) codes(r, off int) Mem {
	m := v.w.At(off)
	if r > 0 {
		m = m.By(v.wStride, r)
	}
	return m
}

// line returns the memory off bytes behind the current place in line b of A.
func (v *vector) line(b, off int) Mem {
	m := v.x.At(off)
	if b >= 4 {
		m = v.x4.At(off)
	}
	switch b % 4 {
	case 1, 2:
		return m.By(v.xStride, b%4)
	case 3:
		return m.By(v.xTriple, 1)
	}
	return m
}

func (v vector) write(f *File, shapes [][2]int) {
	v.lanes = f.Table("lanes"+v.name, v.scaleLanes())
	for _, shape := range shapes {
		v.rows, v.batch = shape[0], shape[1]
		v.writeShape(f)
	}
}

func (v *vector) writeShape(f *File) {
	name := fmt.Sprintf("vector%s_%dx%d", v.name, v.rows, v.batch)
	fn := f.Func(name, fmt.Sprintf(`%s adds to y the products of %d lines of x with lines of B, %d at a
time and that pairs times, over groups of 16 blocks. Lines are wStride, their
scales sStride bytes apart; wNext and sNext lead from the end of one set of lines
to the next. Lines of x are xStride, those of y yStride bytes apart. It reports
whether there were scales that it does not take (%s).`, name, v.batch, v.rows, v.arithmetic.checks(v)),
		"w, s, x unsafe.Pointer, groups, pairs, wStride, sStride, wNext, sNext int, y unsafe.Pointer, xStride, yStride int, tables unsafe.Pointer) (found uint64")
	v.fn = fn
	v.w, v.s = fn.Arg("w"), fn.Arg("s")
	y := fn.Arg("y")
	pairs := fn.Arg("pairs")
	v.wStride = fn.Arg("wStride")
	sStride := fn.Arg("sStride")
	v.xStride = fn.Arg("xStride")
	v.x = fn.GP("place in x")
	groups := fn.GP("groups left")
	v.wTriple, v.xTriple = fn.GP("3·wStride"), fn.GP("3·xStride")
	v.x4 = fn.GP("place in x, four lines on")
	tmp := fn.GP("scratch")
	fn.I("LEAQ", v.wStride.At(0).By(v.wStride, 2), v.wTriple)
	fn.I("LEAQ", v.xStride.At(0).By(v.xStride, 2), v.xTriple)
	fn.I("KXORQ", K(7), K(7), K(7))
	fn.I("MOVQ", fn.FP("tables"), tmp)
	v.arithmetic.constants(v, tmp)
	fn.Note("Z0…Z15", "sums, lines of x within lines of B")
	fn.Note("K7", "scales found")

	row := fn.Label("lines")
	fn.I("MOVQ", fn.FP("x"), v.x)
	fn.I("MOVQ", fn.FP("groups"), groups)
	for r := range v.rows {
		for b := range v.batch {
			fn.I("VPXORQ", v.sum(r, b), v.sum(r, b), v.sum(r, b))
		}
	}
	loop := fn.Label("group")
	if v.batch > 4 {
		fn.I("LEAQ", v.x.At(0).By(v.xStride, 4), v.x4)
	}
	fn.I("PREFETCHT0", v.s.At(0).By(sStride, 4))
	for r := range v.rows {
		m := v.s.At(0)
		if r > 0 {
			m = m.By(sStride, r)
		}
		fn.I("VMOVDQU64", m, v.arithmetic.dot(0).X())
		v.arithmetic.scales(v, r)
		fn.I("KORQ", K(5), K(7), K(7))
	}
	bytes, perX := v.chunkBytes(), 2*v.arithmetic.chunkCodes()
	prefetched := 0
	for c := range v.chunks() {
		for ; prefetched < (c+1)*bytes; prefetched += 64 {
			for r := range v.rows {
				far := v.w.At(prefetched).By(v.wStride, 16/v.bits) // of lines of half the bytes twice as many on
				if v.rows == 2 {
					far = [...]Mem{v.codes(2, prefetched), v.w.At(prefetched).By(v.wTriple, 1)}[r]
				}
				fn.I("PREFETCHT1", far)
				fn.I("PREFETCHT0", v.codes(r, prefetched+vectorNear))
			}
		}
		for r := range v.rows {
			v.arithmetic.decode(v, c, r)
			spread := v.arithmetic.spread(r)
			fn.I("VMOVDQU64", v.lanes.At(64*c), spread)
			fn.I("VPERMD", v.scale(r), spread, spread)
		}
		for b := range v.batch {
			v.arithmetic.multiply(v, c, b, c*perX)
		}
	}
	fn.I("ADDQ", bytes*v.chunks(), v.w)
	fn.I("ADDQ", 16, v.s)
	fn.I("ADDQ", perX*v.chunks(), v.x)
	fn.I("SUBQ", 1, groups)
	fn.Jump("JNZ", loop)

	fn.Comment("y += sums, across lanes")
	for r := range v.rows {
		fn.I("MOVQ", y, tmp)
		for b := range v.batch {
			a, t := v.sum(r, b), v.arithmetic.dot(0)
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
	fn.I("ADDQ", fn.FP("wNext"), v.w)
	fn.I("ADDQ", fn.FP("sNext"), v.s)
	fn.I("SUBQ", 1, pairs)
	fn.Jump("JNZ", row)
	fn.I("KMOVQ", K(7), tmp)
	fn.I("MOVQ", tmp, fn.FP("found"))
	fn.Return()
}
