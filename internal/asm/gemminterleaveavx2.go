package asm

import "fmt"

// An interleaved256 writes a kernel of gemm.Interleaved for AVX2 and 8-bit integers: of the 16 rows of a group, the first
// eight, then the others. Elements of B are 0 to 24, those of A at most 128 in magnitude, so that
// VPMADDUBSW's pairs of products are below 2^13 and words hold the sums of four.
type interleaved256 struct {
	name  string
	block int

	fn   *Func
	w, s Reg
	x    vectorX
	ones Sym
	unit Sym
}

const interleavedBatch256 = 2 // rows of A in a pass

func (k *interleaved256) vectors() int     { return k.block / 8 } // of eight codes in a block
func (k *interleaved256) sum(b, h int) Vec { return Y(2*b + h) }
func (k *interleaved256) dot(b, i int) Vec { return Y(4 + 2*b + i) }
func (k *interleaved256) codes(i int) Vec  { return Y(8 + i) }
func (k *interleaved256) factor(b int) Vec { return Y(10 + b) }
func (k *interleaved256) end() int         { return 8 * k.vectors() }

func interleaved256Kernels(f *File) {
	ones, unit := f.Table("wordOnes", words(0x00010001, 0x00010001, 0x00010001, 0x00010001, 0x00010001, 0x00010001, 0x00010001, 0x00010001)),
		f.Table("float256", words(0x43800000, 0x43800000, 0x43800000, 0x43800000, 0x43800000, 0x43800000, 0x43800000, 0x43800000))
	for _, k := range []interleaved256{{name: "MX4", block: 32}, {name: "NV4", block: 16}} {
		k.ones, k.unit = ones, unit
		k.write(f)
	}
}

func (k *interleaved256) write(f *File) {
	name := "interleavedInt" + k.name + "AVX2"
	fn := f.Func(name, fmt.Sprintf("%s is an interleavedFunc for blocks of %d codes and integers, of 1 or 2 rows of A.", name, k.block),
		"w, s, x unsafe.Pointer, blocks, groups int, y unsafe.Pointer, xStride, yStride, batch int, tables unsafe.Pointer")
	k.fn, k.w, k.s = fn, fn.Arg("w"), fn.Arg("s")
	k.x = newVectorX(fn)
	left, y, tmp := fn.GP("blocks left"), fn.GP("position in y"), fn.GP("scratch")
	fn.Note("Y0…Y3", "sums of the first and the second eight rows, for each row of A")
	fn.Note("Y14, Y15", "low nibbles; integer of each nibble")
	fn.I("MOVQ", fn.FP("tables"), tmp)
	fn.I("VMOVDQU", tmp.At(0), Y(15))
	broadcast(fn, 0x0f0f0f0f, tmp, Y(14))
	fn.I("VMOVDQU", k.ones, Y(13))
	done := fn.NewLabel("done")
	for batch := interleavedBatch256; batch > 0; batch-- {
		next := fn.NewLabel("fewer")
		if batch > 1 {
			fn.I("CMPQ", fn.FP("batch"), batch)
			fn.Jump("JLT", next)
		}
		k.groups(batch, left, y)
		if batch > 1 {
			fn.Jump("JMP", done)
			fn.Place(next)
		}
	}
	fn.Place(done)
	fn.Return()
}

// groups writes the loop over groups of rows of B.
func (k *interleaved256) groups(batch int, left, y Reg) {
	fn := k.fn
	group := fn.Label(fmt.Sprintf("group%d", batch))
	fn.I("MOVQ", fn.FP("x"), k.x.x)
	fn.I("MOVQ", fn.FP("blocks"), left)
	for b := range batch {
		for h := range 2 {
			fn.I("VXORPS", k.sum(b, h), k.sum(b, h), k.sum(b, h))
		}
	}
	block := fn.Label(fmt.Sprintf("block%d", batch))
	fn.I("PREFETCHT0", k.s.At(interleavedAhead*8/k.block/4))
	for i := range k.vectors() {
		fn.I("PREFETCHT0", k.w.At(interleavedAhead+64*i))
	}
	for h := range 2 {
		k.multiply(batch, h)
	}
	fn.I("ADDQ", 64*k.vectors(), k.w)
	fn.I("ADDQ", 16, k.s)
	fn.I("ADDQ", k.end()+8, k.x.x)
	fn.I("SUBQ", 1, left)
	fn.Jump("JNZ", block)
	fn.I("MOVQ", fn.FP("y"), y)
	for b := range batch {
		for h := range 2 {
			fn.I("VMOVUPS", k.sum(b, h), y.At(32*h))
		}
		if b+1 < batch {
			fn.I("ADDQ", fn.FP("yStride"), y)
		}
	}
	fn.I("ADDQ", 64, fn.FP("y"))
	fn.I("SUBQ", 1, fn.FP("groups"))
	fn.Jump("JNZ", group)
}

// multiply adds the products of a block of eight rows. Blocks of 32 have sums of their own for the even and the odd
// elements, as words hold no more.
func (k *interleaved256) multiply(batch, h int) {
	fn := k.fn
	accumulators := k.block / 16
	used := map[int]bool{}
	for v := range k.vectors() {
		fn.I("VMOVDQU", k.w.At(64*v+32*h), k.codes(0))
		fn.I("VPSRLW", 4, k.codes(0), k.codes(1))
		for i := range 2 {
			fn.I("VPAND", Y(14), k.codes(i), k.codes(i))
		}
		for i := range 2 {
			fn.I("VPSHUFB", k.codes(i), Y(15), k.codes(i))
		}
		for i := range 2 {
			a := i % accumulators
			for b := range batch {
				x := k.factor(b)
				fn.I("VPBROADCASTD", k.x.at(b, 8*v+4*i), x)
				if !used[a] {
					fn.I("VPMADDUBSW", x, k.codes(i), k.dot(b, a))
					continue
				}
				fn.I("VPMADDUBSW", x, k.codes(i), x)
				fn.I("VPADDW", x, k.dot(b, a), k.dot(b, a))
			}
			used[a] = true
		}
	}
	scale, t := k.codes(0), k.codes(1)
	if k.block == 16 { // E4M3 as float16 is the scale times 2^-8
		fn.I("VPMOVZXBW", k.s.At(8*h), scale.X())
		fn.I("VPSLLW", 7, scale.X(), scale.X())
		fn.I("VCVTPH2PS", scale.X(), scale)
		fn.I("VMULPS", k.unit, scale, scale)
	} else {
		fn.I("VPMOVZXBD", k.s.At(8*h), scale)
		fn.I("VPSLLD", 23, scale, scale)
	}
	for b := range batch {
		dot := k.dot(b, 0)
		for a := range accumulators {
			fn.I("VPMADDWD", Y(13), k.dot(b, a), k.dot(b, a))
		}
		if accumulators > 1 {
			fn.I("VPADDD", k.dot(b, 1), dot, dot)
		}
		fn.I("VPBROADCASTD", k.x.at(b, k.end()), t)
		fn.I("VPADDD", t, dot, dot)
		fn.I("VCVTDQ2PS", dot, dot)
		fn.I("VPBROADCASTD", k.x.at(b, k.end()+4), t)
		if k.block == 16 {
			fn.I("VMULPS", t, scale, t)
		} else {
			fn.I("VPADDD", t, scale, t)
		}
		fn.I("VFMADD231PS", t, dot, k.sum(b, h))
	}
}
