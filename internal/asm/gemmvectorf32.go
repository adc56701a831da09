package asm

import "fmt"

// gemmVectorsF32 writes the vector kernels that multiply in float32, for both vector widths. With AVX-512,
// that for BF16 takes A in BF16: other inputs are rare, and the AVX2 kernel is as fast for them.
func gemmVectorsF32() []*File {
	var files []*File
	for _, width := range []vectorWidth{
		{"AVX512", "vectorf32", 64, Z, (*vectorF32).pairs, (*vectorF32).dwords},
		{"AVX2", "vectoravx2", 32, Y, (*vectorF32).halves, (*vectorF32).nibbles},
	} {
		f := NewFile("gemm", width.file)
		c := newVectorConstants(f, width)
		for _, v := range []vectorF32{
			{name: "F32", bits: 32, step: 32, group: 512, decode: (*vectorF32).floats},
			{name: "BF16", bits: 16, step: 64, group: 512, decode: width.halves, bf16: width.bytes == 64},
			{name: "FP8", bits: 8, block: 32, step: width.bytes, group: 512, scales: (*vectorF32).e8m0, decode: (*vectorF32).float8, nan: true},
			{name: "FP8x128", bits: 8, block: 128, step: 128, group: 512, scales: (*vectorF32).f32, decode: (*vectorF32).float8, nan: true},
			{name: "INT8", bits: 8, block: 32, step: 32, group: 512, scales: (*vectorF32).e8m0OrF32, decode: (*vectorF32).integers},
			{name: "FP6", bits: 6, block: 32, step: 64, group: 512, scales: (*vectorF32).e8m0, decode: (*vectorF32).float6},
			{name: "FP4", bits: 4, block: 32, step: 2 * width.bytes, group: 512, scales: (*vectorF32).e8m0, decode: width.fours},
			{name: "FP4x16", bits: 4, block: 16, step: 2 * width.bytes, group: 256, scales: (*vectorF32).e4m3, decode: width.fours},
		} {
			if v.block == 128 && width.bytes == 64 {
				continue // inputs in BF16 have a kernel, and others are rare
			}
			v.vectorWidth, v.vectorConstants = width, c
			v.write(f)
		}
		files = append(files, f)
	}
	return files
}

// A vectorWidth describes vectors of one width.
type vectorWidth struct {
	tier, file string
	bytes      int // of a vector
	vec        func(int) Vec
	halves     func(v *vectorF32) // decodes a step of BF16
	fours      func(v *vectorF32) // of 4-bit codes
}

// lanes returns the float32 elements of a vector.
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

// A vectorF32 writes the vector kernel for a format of B. It multiplies one row of B at a time
// by up to vectorBatches rows of A. A group has up to 16 scales, which are decoded to the frame
// first. A step is a number of whole blocks. The products of a block are added, multiplied by
// its scale, and added to the sums. Without scales, two sums alternate between vectors. If A is in
// BF16, the products are added in pairs, by VDPBF16PS.
//
// Codes are decoded to their values, or to their values divided by a power of two that the
// scales include. 8- and 6-bit elements become float16, which are converted as they are loaded
// back from the frame: that uses no shuffle unit. 4-bit elements are looked up: as float32 if a
// vector has a lane for each code, otherwise as BF16 in two tables. A is arranged in the order
// that takes the fewest instructions:
//
//	BF16     AVX2: of each two vectors, the even elements, then the odd ones
//	4 bits   AVX-512: of each eight codes, which are a dword, the first in one vector, the
//	         second in the next, and so on
//	         AVX2: of the codes of a vector, 32 in 128 bits, the first 16 in four vectors,
//	         then the others; of each four the first in one, the third, the second, the fourth
//
// and otherwise in the order of the codes.
type vectorF32 struct {
	vectorWidth
	vectorConstants
	name        string
	bits        int
	block       int                            // codes that share a scale; 0: unscaled
	step, group int                            // codes
	scales      func(v *vectorF32, tables Reg) // of a group, to the frame
	decode      func(v *vectorF32)             // a step
	nan         bool                           // reports codes of 7 ones
	bf16        bool                           // A is in BF16
	batch       int                            // rows of A of the current loop
	fn          *Func
	w, s, p     Reg
	x           vectorX
	frame       Reg // cache lines of the frame
}

// Offsets in gemm.vectorTable, in bytes.
const (
	vectorFirst   = 0 // constants of the arithmetic
	vectorSecond  = 64
	vectorUnit    = 128 // factor of the element values
	vectorLargest = 144 // largest supported E8M0 code, 16 times
	vectorValues  = 160 // of the 4-bit codes
	vectorSingle  = 224 // 1: scales are float32
)

// Offsets in the frame, in bytes: from its start, and from its first cache line.
const (
	frameFound = 0 // largest scale codes
	frameLine  = 64

	frameScales = 0 // of a group
	frameWords  = frameLine
	frameBytes  = 16 + 3*frameLine
)

// sum holds the sums of row b of A, or those of even vectors; dot those of the block, or of odd
// vectors.
func (v *vectorF32) sum(b int) Vec { return v.vec(b) }
func (v *vectorF32) dot(b int) Vec { return v.vec(vectorBatches + b) }

// t is a register for the arithmetic: the first two hold constants.
func (v *vectorF32) t(i int) Vec { return v.vec(2*vectorBatches + i) }

// spread holds the scales of the products, worst the maximum of codes that may be NaN.
func (v *vectorF32) spread() Vec { return v.t(7) }
func (v *vectorF32) worst() Vec  { return v.t(2) }

func (v *vectorF32) zero(r Vec) { v.fn.I(v.bitwise("VPXOR"), r, r, r) }

func (v *vectorF32) write(f *File) {
	name, what, reports := "vector"+v.name+v.tier, "unscaled codes", ""
	if v.block > 0 {
		what, reports = fmt.Sprintf("codes in blocks of %d", v.block), " It\nreports scales above the largest supported one, and NaN "+
			"elements of 8 bits."
	}
	fn := f.Func(name, fmt.Sprintf("%s is a vectorFunc for groups of %d %s in steps of %d.%s", name, v.group, what, v.step, reports),
		vectorParams)
	v.fn = fn
	if v.block > 0 {
		fn.Frame(frameBytes)
	}
	v.w, v.s = fn.Arg("w"), fn.Arg("s")
	tables, ahead := fn.Arg("tables"), fn.Arg("ahead")
	v.x = newVectorX(fn)
	left, steps := fn.GP("steps left after the group"), fn.GP("steps left of the group")
	v.p = fn.GP("position in the scales of the group")
	tmp, to := fn.GP("cache lines of the frame; scratch between rows"), fn.GP("scratch")
	v.frame = tmp
	fn.Note(fmt.Sprintf("%v…%v", v.sum(0), v.sum(vectorBatches-1)), "sums")
	fn.Note(fmt.Sprintf("%v…%v", v.dot(0), v.dot(vectorBatches-1)), "those of the block, or of odd vectors")
	if v.block > 0 {
		fn.Note(fmt.Sprintf("%v %v", v.t(0), v.t(1)), "constants of the arithmetic")
		fn.I("VPXOR", X(0), X(0), X(0))
		fn.I("VMOVDQU", X(0), SP.At(frameFound))
	}
	if v.nan {
		fn.Note(v.worst(), "codes with sign bits set: the maximum of each byte")
		v.zero(v.worst())
	}
	if v.bits == 4 && v.bytes == 64 {
		fn.I("VMOVUPS", tables.At(vectorValues), v.t(0))
		fn.I("VMOVUPS", v.perDword[v.block], v.t(1))
	} else if v.block > 0 {
		fn.I("VMOVUPS", tables.At(vectorFirst), v.t(0))
		fn.I("VMOVUPS", tables.At(vectorSecond), v.t(1))
	}

	row := fn.Label("row")
	fn.I("MOVQ", fn.FP("x"), v.x.x)
	fn.I("MOVQ", fn.FP("steps"), left)
	if v.block > 0 {
		fn.I("LEAQ", SP.At(frameBytes-2*frameLine-1), v.frame)
		fn.I("ANDQ", -frameLine, v.frame)
	}
	for b := range vectorBatches {
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
	limitSteps(fn, left, steps, v.group/v.step)
	bytes := v.step * v.bits / 8
	byBatch(fn, vectorBatches, func(batch int) {
		v.batch = batch
		step := fn.Label("step")
		for at := 0; at < bytes; at += 64 {
			fn.I("PREFETCHT0", v.w.At(at).By(ahead, 1))
		}
		v.decode(v)
		fn.I("ADDQ", bytes, v.w)
		fn.I("ADDQ", v.inputBytes()*v.step, v.x.x)
		if v.block > 0 {
			fn.I("ADDQ", 4*v.step/v.block, v.p)
		}
		fn.I("SUBQ", 1, steps)
		fn.Jump("JNZ", step)
	})
	fn.I("TESTQ", left, left)
	fn.Jump("JNZ", group)

	fn.Comment("y += sums, across lanes")
	fn.I("MOVQ", fn.FP("sums"), tmp)
	for b := range vectorBatches {
		if v.block == 0 {
			fn.I("VADDPS", v.dot(b), v.sum(b), v.sum(b))
		}
		fn.I("VMOVUPS", v.sum(b), tmp.At(v.bytes*b))
	}
	fn.I("MOVQ", fn.FP("y"), to)
	fn.I("MOVQ", fn.FP("batch"), steps)
	addAllLanes(fn, v.vec, v.bytes, tmp, to, steps)
	fn.I("ADDQ", 4, fn.FP("y"))
	fn.I("ADDQ", fn.FP("wNext"), v.w)
	fn.I("ADDQ", fn.FP("sNext"), v.s)
	fn.I("SUBQ", 1, fn.FP("rows"))
	fn.Jump("JNZ", row)
	if v.block > 0 {
		v.report(tables, tmp)
	} else {
		fn.I("MOVQ", 0, fn.FP("found"))
	}
	fn.Return()
}

// inputBytes returns the bytes of an element of A.
func (v *vectorF32) inputBytes() int {
	if v.bf16 {
		return 2
	}
	return 4
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

// product adds the products of value and the elements from at on in the step to those of the
// block; first marks the first vector of a block.
func (v *vectorF32) product(value Vec, at int, first bool) {
	for b := range v.batch {
		if first {
			v.fn.I("VMULPS", v.x.at(b, 4*at), value, v.dot(b))
		} else {
			v.fn.I("VFMADD231PS", v.x.at(b, 4*at), value, v.dot(b))
		}
	}
}

// add adds the products of blocks times their scales, which are in spread.
func (v *vectorF32) add() {
	for b := range v.batch {
		v.fn.I("VFMADD231PS", v.spread(), v.dot(b), v.sum(b))
	}
}
