package asmgen

import "fmt"

// gemmVectorsF32 writes the kernels that multiply a few lines of A by lines of B
// straight from their codes in float32, with vectors of either width.
func gemmVectorsF32() []*File {
	var files []*File
	for _, width := range []vectorWidth{
		{"AVX512", "vectorf32", 64, Z, []int{1, 2, 4, 8}, (*vectorF32).dwords},
		{"AVX2", "vectoravx2", 32, Y, []int{1, 2, 4}, (*vectorF32).nibbles},
	} {
		f := NewFile("gemm", width.file)
		c := newVectorConstants(f, width)
		for _, v := range []vectorF32{
			{name: "F32", bits: 32, step: 32, group: 512, decode: (*vectorF32).floats},
			{name: "BF16", bits: 16, step: 64, group: 512, decode: (*vectorF32).halves},
			{name: "FP8", bits: 8, block: 32, step: 64, group: 512, scales: (*vectorF32).e8m0, decode: (*vectorF32).float8, nan: true},
			{name: "FP8x128", bits: 8, block: 128, step: 128, group: 512, scales: (*vectorF32).f32, decode: (*vectorF32).float8, nan: true},
			{name: "INT8", bits: 8, block: 32, step: 64, group: 512, scales: (*vectorF32).e8m0, decode: (*vectorF32).integers},
			{name: "FP6", bits: 6, block: 32, step: 64, group: 512, scales: (*vectorF32).e8m0, decode: (*vectorF32).float6},
			{name: "FP4", bits: 4, block: 32, step: 128, group: 512, scales: (*vectorF32).e8m0, decode: width.fours},
			{name: "FP4x16", bits: 4, block: 16, step: 128, group: 256, scales: (*vectorF32).e4m3, decode: width.fours},
		} {
			v.vectorWidth, v.vectorConstants = width, c
			for _, v.batch = range width.batches {
				v.write(f)
			}
		}
		files = append(files, f)
	}
	return files
}

// A vectorWidth is vectors of one width.
type vectorWidth struct {
	tier, file string
	bytes      int // of a vector
	vec        func(int) Vec
	batches    []int              // lines of A that kernels are written for
	fours      func(v *vectorF32) // decodes a step of codes of 4 bits
}

// lanes is the float32 numbers of a vector.
func (w vectorWidth) lanes() int { return w.bytes / 4 }

// half returns the lower half of v.
func (w vectorWidth) half(v Vec) Vec {
	if w.bytes == 64 {
		return v.Y()
	}
	return v.X()
}

// bitwise returns the mnemonic of VPAND, VPOR or VPXOR.
func (w vectorWidth) bitwise(name string) string {
	if w.bytes == 64 {
		return name + "D"
	}
	return name
}

// A vectorF32 is one kernel: a line of B at a time, by batch lines of A. A group is
// the codes of 16 scales or fewer, which become float32 in the frame first; a step is
// some whole blocks. The products of a block are summed alone, and added times its
// scale; without scales, there are two sums of vectors in turn.
//
// Values come out of the codes as they are, or times a power of two, which the scales
// take back: elements of 8 and 6 bits as float16, which are converted on their way back
// from the frame, since that takes no unit that shuffles; those of 4 bits by a table where
// vectors hold one of all codes, and else as BF16 by two tables. A has the order in which
// that is least work:
//
//	BF16     of each two vectors the even elements, then the odd ones
//	4 bits   AVX-512: of each eight codes, which are a dword, the first in one vector, the
//	         second in the next, and so on
//	         AVX2: of the codes of a vector, 32 in 128 bits, the first 16 in four vectors,
//	         then the others; of each four the first in one, the third, the second, the fourth
//
// and that of the codes else.
type vectorF32 struct {
	vectorWidth
	vectorConstants
	name             string
	bits             int
	block            int                            // codes that share a scale; 0: there are no scales
	step, group      int                            // codes
	scales           func(v *vectorF32, tables Reg) // of a group, to the frame
	decode           func(v *vectorF32)             // a step, by product
	nan              bool                           // codes of 7 ones are to be found
	batch            int
	fn               *Func
	w, s, x, x4, p   Reg
	frame            Reg // whole cache lines of the frame
	xStride, xTriple Reg
}

// The places in the tables of a format, in bytes.
const (
	vectorFirst   = 0 // constants of the arithmetic
	vectorSecond  = 64
	vectorUnit    = 128 // what the values of elements are multiples of
	vectorLargest = 144 // the largest E8M0 code that the kernel takes, 16 times
	vectorValues  = 160 // of the codes of 4 bits
)

// The places in the frame, in bytes: from its start, and from the first cache line in it.
const (
	frameFound = 0 // the largest scale codes
	frameLine  = 64

	frameScales = 0 // of a group
	frameWords  = frameLine
	frameBytes  = 16 + 3*frameLine
)

// sum is the register of the sums of line b of A, or of those of even vectors; dot
// that of the products of a block, or of the sums of odd vectors.
func (v *vectorF32) sum(b int) Vec { return v.vec(b) }
func (v *vectorF32) dot(b int) Vec { return v.vec(v.batch + b) }

// t is a register for the arithmetic: the first two hold constants.
func (v *vectorF32) t(i int) Vec { return v.vec(2*v.batches[len(v.batches)-1] + i) }

// spread is the register of the scales of products, worst that of the codes that may
// be NaN.
func (v *vectorF32) spread() Vec { return v.t(7) }
func (v *vectorF32) worst() Vec  { return v.t(2) }

func (v *vectorF32) zero(r Vec) { v.fn.I(v.bitwise("VPXOR"), r, r, r) }

// line returns the memory at element at of the step in line b of A.
func (v *vectorF32) line(b, at int) Mem {
	m := v.x.At(4 * at)
	if b >= 4 {
		m = v.x4.At(4 * at)
	}
	switch b % 4 {
	case 1, 2:
		return m.By(v.xStride, b%4)
	case 3:
		return m.By(v.xTriple, 1)
	}
	return m
}

func (v *vectorF32) write(f *File) {
	name := fmt.Sprintf("vector%s%s_1x%d", v.name, v.tier, v.batch)
	what := "no scales"
	if v.block > 0 {
		what = fmt.Sprintf("blocks of %d", v.block)
	}
	fn := f.Func(name, fmt.Sprintf(`%s adds to y the products of %d lines of x with lines of B, one at a
time and that pairs times, over groups of %d codes with %s. Lines are wStride,
their scales sStride bytes apart; wNext and sNext lead from the end of one line to
the next. Lines of x are xStride, those of y yStride bytes apart. It reports whether
there were scales above the largest one that it takes, or elements of 8 bits that are
NaN.`, name, v.batch, v.group, what),
		"w, s, x unsafe.Pointer, groups, pairs, wStride, sStride, wNext, sNext int, y unsafe.Pointer, xStride, yStride int, tables unsafe.Pointer) (found uint64")
	v.fn = fn
	fn.Frame(frameBytes)
	v.w, v.s = fn.Arg("w"), fn.Arg("s")
	y, lines, tables := fn.Arg("y"), fn.Arg("pairs"), fn.Arg("tables")
	wStride := fn.Arg("wStride")
	v.xStride = fn.Arg("xStride")
	v.x, v.x4, v.xTriple = fn.GP("place in x"), fn.GP("place in x, four lines on"), fn.GP("3·xStride")
	groups, steps := fn.GP("groups left"), fn.GP("steps left of the group")
	v.p = fn.GP("place in the group's scales")
	tmp := fn.GP("cache lines of the frame; between lines scratch")
	v.frame = tmp
	fn.I("LEAQ", v.xStride.At(0).By(v.xStride, 2), v.xTriple)
	fn.Note(fmt.Sprintf("%v…%v", v.sum(0), v.sum(v.batch-1)), "sums")
	fn.Note(fmt.Sprintf("%v…%v", v.dot(0), v.dot(v.batch-1)), "those of the block, or of odd vectors")
	fn.Note(fmt.Sprintf("%v %v", v.t(0), v.t(1)), "constants of the arithmetic")
	fn.I("VPXOR", X(0), X(0), X(0))
	fn.I("VMOVDQU", X(0), SP.At(frameFound))
	if v.nan {
		fn.Note(v.worst(), "codes, signs set: the largest of each byte")
		v.zero(v.worst())
	}
	if v.bits == 4 && v.bytes == 64 {
		fn.I("VMOVUPS", tables.At(vectorValues), v.t(0))
		fn.I("VMOVUPS", v.perDword[v.block], v.t(1))
	} else {
		fn.I("VMOVUPS", tables.At(vectorFirst), v.t(0))
		fn.I("VMOVUPS", tables.At(vectorSecond), v.t(1))
	}

	row := fn.Label("line")
	fn.I("MOVQ", fn.FP("x"), v.x)
	fn.I("MOVQ", fn.FP("groups"), groups)
	fn.I("LEAQ", SP.At(frameBytes-2*frameLine-1), v.frame)
	fn.I("ANDQ", -frameLine, v.frame)
	for b := range v.batch {
		v.zero(v.sum(b))
		if v.block == 0 {
			v.zero(v.dot(b))
		}
	}
	group := fn.Label("group")
	if v.block > 0 {
		v.scales(v, tables)
		fn.I("LEAQ", v.frame.At(frameScales), v.p)
	}
	fn.I("MOVQ", v.group/v.step, steps)
	step := fn.Label("step")
	if v.batch > 4 {
		fn.I("LEAQ", v.x.At(0).By(v.xStride, 4), v.x4)
	}
	bytes := v.step * v.bits / 8
	for at := 0; at < bytes; at += 64 {
		fn.I("PREFETCHT1", v.w.At(at).By(wStride, max(1, 16/v.bits))) // of lines of half the bytes twice as many on
		fn.I("PREFETCHT0", v.w.At(at+vectorNear))
	}
	v.decode(v)
	fn.I("ADDQ", bytes, v.w)
	fn.I("ADDQ", 4*v.step, v.x)
	if v.block > 0 {
		fn.I("ADDQ", 4*v.step/v.block, v.p)
	}
	fn.I("SUBQ", 1, steps)
	fn.Jump("JNZ", step)
	fn.I("SUBQ", 1, groups)
	fn.Jump("JNZ", group)

	fn.Comment("y += sums, across lanes")
	fn.I("MOVQ", y, tmp)
	for b := range v.batch {
		a, t := v.sum(b), v.t(3)
		if v.block == 0 {
			fn.I("VADDPS", v.dot(b), a, a)
		}
		if v.bytes == 64 {
			fn.I("VEXTRACTF64X4", 1, a, t.Y())
			fn.I("VADDPS", t.Y(), a.Y(), a.Y())
		}
		fn.I(map[int]string{64: "VEXTRACTF32X4", 32: "VEXTRACTF128"}[v.bytes], 1, a.Y(), t.X())
		fn.I("VADDPS", t.X(), a.X(), a.X())
		for _, swap := range []int{0x4e, 0xb1} {
			fn.I("VPSHUFD", swap, a.X(), t.X())
			fn.I("VADDPS", t.X(), a.X(), a.X())
		}
		fn.I("VADDSS", tmp.At(0), a.X(), a.X())
		fn.I("VMOVSS", a.X(), tmp.At(0))
		if b+1 < v.batch {
			fn.I("ADDQ", fn.FP("yStride"), tmp)
		}
	}
	fn.I("ADDQ", 4, y)
	fn.I("ADDQ", fn.FP("wNext"), v.w)
	fn.I("ADDQ", fn.FP("sNext"), v.s)
	fn.I("SUBQ", 1, lines)
	fn.Jump("JNZ", row)
	v.report(tables, tmp)
	fn.Return()
}

// report sets found.
func (v *vectorF32) report(tables, tmp Reg) {
	fn := v.fn
	fn.I("VMOVDQU", SP.At(frameFound), X(0))
	largest := any(tables.At(vectorLargest))
	if v.block == 16 {
		largest = v.e4m3Largest
	}
	fn.I("VPSUBUSB", largest, X(0), X(0))
	if v.nan {
		worst, other := v.vec(1), v.vec(2)
		fn.I("VMOVAPS", v.worst(), worst)
		for half := v.bytes / 2; half >= 16; half /= 2 {
			if half == 32 {
				fn.I("VEXTRACTI64X4", 1, worst, other.Y())
			} else {
				fn.I("VEXTRACTI128", 1, worst.Y(), other.X())
			}
			fn.I("VPMAXUB", other.Y(), worst.Y(), worst.Y())
		}
		fn.I("VPCMPEQB", X(2), X(2), X(2))
		fn.I("VPCMPEQB", X(2), X(1), X(1))
		fn.I("VPOR", X(1), X(0), X(0))
	}
	fn.I("XORL", tmp, tmp)
	fn.I("VPTEST", X(0), X(0))
	fn.I("SETNE", tmp)
	fn.I("MOVQ", tmp, fn.FP("found"))
}

// product multiplies value by elements at and on of the step; first and last say
// whether it begins or ends a sum to be scaled.
func (v *vectorF32) product(value Vec, at int, first bool) {
	for b := range v.batch {
		if first {
			v.fn.I("VMULPS", v.line(b, at), value, v.dot(b))
		} else {
			v.fn.I("VFMADD231PS", v.line(b, at), value, v.dot(b))
		}
	}
}

// add adds the products of blocks times their scales, which are in spread.
func (v *vectorF32) add() {
	for b := range v.batch {
		v.fn.I("VFMADD231PS", v.spread(), v.dot(b), v.sum(b))
	}
}
