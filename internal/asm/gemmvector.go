package asm

import (
	"encoding/binary"
	"fmt"
)

// gemmVectors writes the vector kernels that multiply in BF16 and in integers.
func gemmVectors() []*File {
	f := NewFile("gemm", "vector")
	tables, ones := newVectorTables(f), f.Table("vectorOnes", bytes16(1))
	for _, v := range []vector{
		{name: "MX8", block: 32, bits: 8},
		{name: "MX6", block: 32, bits: 6},
		{name: "MX4", block: 32, bits: 4},
		{name: "NV4", block: 16, bits: 4},
	} {
		v.arithmetic = vectorBF16{v.bits, ones, tables}
		v.write(f)
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
		v.write(g)
	}
	return []*File{f, g}
}

// A vector writes the two vector kernels for a format of B: one for a row of A, and one for
// several, which multiplies pairs of rows of B by 2 or vectorBatches rows of A.
//
// A group has up to 16 scales of one byte, or as many float32 numbers as it has blocks. A chunk is
// the part of a group that is decoded together, a step of vectorFunc. Each dword of the products of
// a chunk belongs to one block and is multiplied by its scale.
type vector struct {
	name        string
	block, bits int
	arithmetic  vectorArithmetic
	lanes       Sym // the scale of each dword, for each chunk of a group

	rows    int // of B in the current kernel
	fn      *Func
	w, s    Reg
	wStride Reg
	ahead   [2]Reg // from w to the codes to prefetch, by row
	x       vectorX
}

// A vectorArithmetic decodes and multiplies codes of B. It uses Z8…Z23 and Z26…Z31.
type vectorArithmetic interface {
	chunkCodes() int
	spread(r int) Vec // the scales of the dwords of a chunk of row r of B
	dot(r int) Vec    // their products; free between chunks
	constants(v *vector, tables Reg)
	scales(v *vector, r int, from Mem) // converts those of a group to scale(r); reports unsupported ones in K5
	skip(v *vector, tmp Reg)           // the scales of a group
	decode(v *vector, r int)           // a chunk of row r of B
	multiply(v *vector, b int)         // adds the products of a chunk and row b of A to sum(r, b)
	checks(v *vector) string           // the unsupported scales
}

// sum holds the sums of row b of A with row r of B, scale the scales of a group of row r.
func (v *vector) sum(r, b int) Vec { return Z(vectorBatches*r + b) }
func (v *vector) scale(r int) Vec  { return Z(24 + r) }

// vectorTables are the constants of kernels with E4M3 scales.
type vectorTables struct {
	largest, pow120 Sym
}

func newVectorTables(f *File) vectorTables {
	return vectorTables{
		largest: f.Table("vectorLargest", bytes16(0x7e)),
		pow120:  f.Table("vectorPow120", binary.LittleEndian.AppendUint64(nil, 0x7b800000)), // 2^120: float32's bias minus E4M3's
	}
}

func bytes16(b byte) []byte {
	data := make([]byte, 16)
	for i := range data {
		data[i] = b
	}
	return data
}

// e4m3 converts E4M3 codes in the dwords of scale to float32. K5 receives the codes that are
// NaN or negative.
func (t vectorTables) e4m3(v *vector, codes, scale Vec) {
	v.fn.I("VPCMPUB", 6, t.largest, codes, K(5)) // greater
	v.fn.I("VPSLLD", 20, scale, scale)
	v.fn.I("VMULPS.BCST", t.pow120, scale, scale)
}

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

// codes returns the memory off bytes past the current position in row r of B, which is 0 or 1.
func (v *vector) codes(r, off int) Mem { return rowAt(v.w, v.wStride, "", r, off) }

func (v vector) write(f *File) {
	v.lanes = f.shared(fmt.Sprintf("lanes%dBy%d", v.arithmetic.chunkCodes(), v.block), v.scaleLanes())
	v.writeRows(f, 1)
	v.writeRows(f, 2)
}

func (v *vector) writeRows(f *File, rows int) {
	name, what := "vector"+v.name, "one row of A"
	if rows > 1 {
		name, what = name+"Pairs", "2 or more rows of A and pairs of rows of B"
	}
	fn := f.Func(name, fmt.Sprintf("%s is a vectorFunc for %s, in groups of 16 blocks and\nsteps of %d codes. It reports scales %s.", name,
		what, v.arithmetic.chunkCodes(), v.arithmetic.checks(v)), vectorParams)
	v.fn, v.rows = fn, rows
	v.w, v.s = fn.Arg("w"), fn.Arg("s")
	v.ahead[0] = fn.Arg("ahead")
	if rows > 1 {
		v.wStride = fn.Arg("wStride")
		v.ahead[1] = fn.GP("distance of prefetching row 1")
		fn.I("LEAQ", v.ahead[0].At(0).By(v.wStride, 1), v.ahead[1])
	}
	sStride := fn.Arg("sStride")
	v.x = newVectorX(fn)
	left, chunks, lanes := fn.GP("chunks left after the group"), fn.GP("chunks left of the group"), fn.GP("position in the lanes")
	tmp, to := fn.GP("scratch"), fn.GP("scratch")
	fn.I("KXORQ", K(7), K(7), K(7))
	fn.I("MOVQ", fn.FP("tables"), tmp)
	v.arithmetic.constants(v, tmp)
	fn.Note("Z0…Z7", "sums, by row of B, then of A")
	fn.Note("K7", "unsupported scales")

	row := fn.Label("rows")
	fn.I("MOVQ", fn.FP("x"), v.x.x)
	fn.I("MOVQ", fn.FP("steps"), left)
	most := 1
	if rows > 1 {
		most = vectorBatches
	}
	for r := range rows {
		for b := range most {
			fn.I("VPXORQ", v.sum(r, b), v.sum(r, b), v.sum(r, b))
		}
	}
	group := fn.Label("group")
	fn.I("PREFETCHT0", v.s.At(0).By(sStride, 4))
	if rows > 1 {
		fn.I("LEAQ", v.s.At(0).By(sStride, 4), to)
		fn.I("PREFETCHT0", to.At(0).By(sStride, 1))
	}
	for r := range rows {
		m := v.s.At(0)
		if r > 0 {
			m = m.By(sStride, r)
		}
		v.arithmetic.scales(v, r, m)
		fn.I("KORQ", K(5), K(7), K(7))
	}
	fn.I("LEAQ", v.lanes, lanes)
	limitSteps(fn, left, chunks, v.chunks())
	loop := fn.Label("chunk")
	for at := 0; at < v.chunkBytes(); at += 64 {
		for r := range rows {
			fn.I("PREFETCHT0", v.w.At(at).By(v.ahead[r], 1))
		}
	}
	for r := range rows {
		v.arithmetic.decode(v, r)
		spread := v.arithmetic.spread(r)
		fn.I("VMOVDQU64", lanes.At(0), spread)
		fn.I("VPERMD", v.scale(r), spread, spread)
	}
	multiplied := fn.NewLabel("multiplied")
	for b := range most {
		if b == 2 {
			fn.I("CMPQ", fn.FP("batch"), b)
			fn.Jump("JLE", multiplied)
		}
		v.arithmetic.multiply(v, b)
	}
	if most > 2 {
		fn.Place(multiplied)
	}
	fn.I("ADDQ", v.chunkBytes(), v.w)
	fn.I("ADDQ", 2*v.arithmetic.chunkCodes(), v.x.x)
	fn.I("ADDQ", 64, lanes)
	fn.I("SUBQ", 1, chunks)
	fn.Jump("JNZ", loop)
	v.arithmetic.skip(v, to)
	fn.I("TESTQ", left, left)
	fn.Jump("JNZ", group)

	fn.Comment("y += sums, across lanes")
	if rows == 1 {
		fn.I("MOVQ", fn.FP("y"), to)
		addLanes(fn, v.sum(0, 0), v.arithmetic.dot(0), to.At(0))
		fn.I("ADDQ", 4, fn.FP("y"))
	} else {
		fn.I("MOVQ", fn.FP("sums"), tmp)
		for i := range rows * most {
			fn.I("VMOVUPS", Z(i), tmp.At(64*i))
		}
		for r := range rows {
			fn.I("MOVQ", fn.FP("sums"), tmp)
			fn.I("ADDQ", 64*most*r, tmp)
			fn.I("MOVQ", fn.FP("y"), to)
			fn.I("MOVQ", fn.FP("batch"), chunks)
			addAllLanes(fn, Z, 64, tmp, to, chunks)
			fn.I("ADDQ", 4, fn.FP("y"))
		}
	}
	fn.I("ADDQ", fn.FP("wNext"), v.w)
	fn.I("ADDQ", fn.FP("sNext"), v.s)
	fn.I("SUBQ", 1, fn.FP("rows"))
	fn.Jump("JNZ", row)
	fn.I("KMOVQ", K(7), tmp)
	fn.I("MOVQ", tmp, fn.FP("found"))
	fn.Return()
}
