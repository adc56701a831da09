package asm

import "fmt"

// gemmInterleaved writes the kernels for 4-bit operands whose rows are interleaved: see
// gemm.Interleaved for the order. A vector holds eight codes of each of 16 rows of B, so that
// sums need no addition across lanes, and elements of A are broadcast.
func gemmInterleaved() *File {
	f := NewFile("gemm", "interleaved")
	tables := newVectorTables(f)
	for _, k := range []interleaved{
		{name: "MX4", block: 32}, {name: "NV4", block: 16},
		{name: "IntMX4", block: 32, integers: true}, {name: "IntNV4", block: 16, integers: true},
	} {
		k.vectorTables = tables
		k.write(f)
	}
	interleaved256Kernels(f)
	interleavedFloatsKernels(f)
	return f
}

// interleavedFields are the fields of gemm.interleavedArgs.
const interleavedFields = "w, s, x unsafe.Pointer, blocks, groups int, y unsafe.Pointer, xStride, yStride, batch int, " +
	"tables unsafe.Pointer, other int"

// An interleaved writes the kernel of a format of B. For each block, a row of A has
//
//	BF16      of each eight elements the pairs (0, 4), (1, 5), (2, 6) and (3, 7)
//	integers  of each eight elements the even ones, then the odd ones; then the initial value of
//	          the sum and the scale, as in vectorInt8
type interleaved struct {
	name     string
	block    int
	integers bool
	vectorTables

	fn   *Func
	w, s Reg
	x    vectorX
}

const interleavedAhead = 8192 // bytes of codes that are prefetched

func (k *interleaved) vectors() int        { return k.block / 8 } // of codes in a block
func (k *interleaved) sum(b int) Vec       { return Z(b) }
func (k *interleaved) dot(b, half int) Vec { return Z(4 + 2*b + half) }
func (k *interleaved) codes(i int) Vec     { return Z(16 + i) }
func (k *interleaved) scale() Vec          { return Z(20) }
func (k *interleaved) raw() Vec            { return Z(21) }

func (k interleaved) write(f *File) {
	fn := f.Func("interleaved"+k.name, fmt.Sprintf("interleaved%s is an interleavedFunc for blocks of %d codes.", k.name, k.block),
		"p interleavedArgs")
	k.fn, k.w, k.s = fn, fn.Arg("w"), fn.Arg("s")
	k.x = newVectorX(fn)
	left, y, tmp := fn.GP("blocks left"), fn.GP("position in y"), fn.GP("scratch")
	fn.I("MOVQ", fn.FP("tables"), tmp)
	fn.I("VMOVDQU64", tmp.At(0), Z(31))
	if k.integers {
		broadcast(fn, 0x0f0f0f0f, tmp, Z(30))
		fn.Note("Z30, Z31", "low nibbles; integer of each nibble")
	} else {
		fn.Note("Z31", "BF16 value of each nibble, twice")
	}
	byBatch(fn, vectorBatches, func(batch int) {
		group := fn.Label(fmt.Sprintf("group%d", batch))
		fn.I("MOVQ", fn.FP("x"), k.x.x)
		fn.I("MOVQ", fn.FP("blocks"), left)
		for b := range batch {
			fn.I("VPXORQ", k.sum(b), k.sum(b), k.sum(b))
		}
		block := fn.Label(fmt.Sprintf("block%d", batch))
		k.scales()
		if k.integers {
			k.multiplyIntegers(batch)
		} else {
			k.multiply(batch)
		}
		fn.I("SUBQ", 1, left)
		fn.Jump("JNZ", block)
		fn.I("MOVQ", fn.FP("y"), y)
		for b := range batch {
			fn.I("VMOVUPS", k.sum(b), y.At(0))
			if b+1 < batch {
				fn.I("ADDQ", fn.FP("yStride"), y)
			}
		}
		fn.I("ADDQ", 64, fn.FP("y"))
		fn.I("SUBQ", 1, fn.FP("groups"))
		fn.Jump("JNZ", group)
	})
	fn.Return()
}

// scales sets scale to the scales of the next block of each row: float32 values.
func (k *interleaved) scales() {
	k.fn.I("PREFETCHT0", k.s.At(interleavedAhead*8/k.block/4))
	for i := range k.vectors() {
		k.fn.I("PREFETCHT0", k.w.At(interleavedAhead+64*i))
	}
	k.fn.I("VPMOVZXBD", k.s.At(0), k.scale())
	k.fn.I("ADDQ", 16, k.s)
	if k.block == 16 {
		k.fn.I("VPSLLD", 20, k.scale(), k.scale())
		k.fn.I("VMULPS.BCST", k.pow120, k.scale(), k.scale())
		return
	}
	k.fn.I("VPSLLD", 23, k.scale(), k.scale())
}

func (k *interleaved) multiply(batch int) {
	fn := k.fn
	for b := range batch {
		for half := range 2 {
			fn.I("VPXORQ", k.dot(b, half), k.dot(b, half), k.dot(b, half))
		}
	}
	for v := range k.vectors() {
		fn.I("VMOVDQU64", k.w.At(64*v), k.codes(0))
		for i := 1; i < 4; i++ {
			fn.I("VPSRLW", 4*i, k.codes(0), k.codes(i))
		}
		for i := range 4 {
			fn.I("VPERMW", Z(31), k.codes(i), k.codes(i))
		}
		for i := range 4 {
			for b := range batch {
				fn.I("VDPBF16PS.BCST", k.x.at(b, 16*v+4*i), k.codes(i), k.dot(b, v%2))
			}
		}
	}
	fn.I("ADDQ", 64*k.vectors(), k.w)
	fn.I("ADDQ", 16*k.vectors(), k.x.x)
	for b := range batch {
		fn.I("VADDPS", k.dot(b, 1), k.dot(b, 0), k.dot(b, 0))
		fn.I("VFMADD231PS", k.scale(), k.dot(b, 0), k.sum(b))
	}
}

func (k *interleaved) multiplyIntegers(batch int) {
	fn, end, combine := k.fn, 8*k.vectors(), "VPADDD.BCST"
	if k.block == 16 {
		combine = "VMULPS.BCST"
	}
	for b := range batch {
		fn.I("VPBROADCASTD", k.x.at(b, end), k.dot(b, 0))
	}
	for v := range k.vectors() {
		fn.I("VMOVDQU64", k.w.At(64*v), k.raw())
		fn.I("VPSRLW", 4, k.raw(), k.codes(1))
		fn.I("VPANDQ", Z(30), k.raw(), k.codes(0))
		fn.I("VPANDQ", Z(30), k.codes(1), k.codes(1))
		for i := range 2 {
			fn.I("VPSHUFB", k.codes(i), Z(31), k.codes(i))
		}
		for i := range 2 {
			for b := range batch {
				fn.I("VPDPBUSD.BCST", k.x.at(b, 8*v+4*i), k.codes(i), k.dot(b, 0))
			}
		}
	}
	for b := range batch {
		fn.I(combine, k.x.at(b, end+4), k.scale(), k.dot(b, 1))
		fn.I("VCVTDQ2PS", k.dot(b, 0), k.dot(b, 0))
		fn.I("VFMADD231PS", k.dot(b, 1), k.dot(b, 0), k.sum(b))
	}
	fn.I("ADDQ", 64*k.vectors(), k.w)
	fn.I("ADDQ", end+8, k.x.x)
}
