package asm

import (
	"fmt"
	"strings"
)

// bytesNames are the constants of quant's bytesConstants.
var bytesNames = []string{"limit", "least", "anchor", "shift", "max", "mask", "one", "most", "infinity"}

// quantBytes writes the kernels for codes of 8 bits under FP32 scales.
func quantBytes() *File {
	f := NewFile("quant", "bytes")
	tables := makeJoinTables(f, "bytes")
	for _, v := range []struct {
		suffix string
		b      byteCodes
	}{
		{"", byteCodes{source: 32, tables: tables}},
		{"BF16", byteCodes{source: 16, tables: tables}},
	} {
		v.b.blocks(f, "blocks128"+v.suffix)
		v.b.rows(f, "encodeRows"+v.suffix)
	}
	fence := f.Func("fence", "fence makes non-temporal stores visible before later stores.", "")
	fence.I("SFENCE")
	fence.I("RET")
	return f
}

// A byteCodes is a kernel under construction that encodes 64 elements at a time.
// Z0 to Z15 are free between the steps, the others are those of the fused kernels.
type byteCodes struct {
	*Func
	source int // bits of a source element: 32 or 16 (BF16)
	tables joinTables
	c      constants
}

// zByteFactor is the factor of elements.
var zByteFactor = Z(16)

// load fills the registers of constants using t.
func (b *byteCodes) load(t Reg) {
	for i, v := range []Vec{zLimit, zLeast, zAnchor} {
		b.I("VPBROADCASTD", b.c.At(encodeNames[i]), v)
	}
	b.loadJoin(b.tables, b.source, b.c, t)
	broadcast(b.Func, 0x80808080, t, zSign)
	broadcast(b.Func, 0xffff0000, t, zUpper)
	broadcast(b.Func, b.absMask(), t, zAbs)
	broadcast(b.Func, 0xff800000, t, zBinade)
	b.I("VPXORD", zAmax, zAmax, zAmax)
}

// absMask returns the mask of the magnitudes of source elements in a dword.
func (b *byteCodes) absMask() uint32 {
	if b.source == 16 {
		return 0x7fff7fff
	}
	return 0x7fffffff
}

// raise raises the lanes of the amax to the magnitudes of a vector, using t.
func (b *byteCodes) raise(x any, amax, t Vec) {
	b.I("VPANDD", x, zAbs, t)
	if b.source == 16 {
		b.I("VPMAXUW", t, amax, amax)
	} else {
		b.I("VPMAXUD", t, amax, amax)
	}
}

// widen makes dwords of lanes that hold the amaxes of two BF16.
func (b *byteCodes) widen(amax, t Vec) {
	if b.source == 16 {
		b.I("VPSLLD", 16, amax, t)
		b.I("VPMAXUW", t, amax, amax)
		b.I("VPANDD", zUpper, amax, amax)
	}
}

// encode leaves the codes of the 64 elements at at, times zByteFactor, in Z1.
func (b *byteCodes) encode(at Mem, clamp bool) {
	var sums [4]Vec
	for i := range sums {
		y, e := Z(4+i), Z(i)
		sums[i] = e
		if b.source == 32 {
			b.I("VMULPS", at.At(64*i), zByteFactor, y)
		} else {
			if i%2 == 0 {
				b.I("VPSLLD", 16, at.At(64*(i/2)), y)
			} else {
				b.I("VPANDD", at.At(64*(i/2)), zUpper, y)
			}
			b.I("VMULPS", zByteFactor, y, y)
		}
		if clamp {
			clampTo(b, zLimit, y)
		}
		roundingSum(b, y, e, zBinade, zLeast, zAnchor)
		b.I("VPMADDWD", zTimes, e, e)
	}
	joinSums(b, sums, Z(4))
	b.I("VPTERNLOGD", 0xd8, zSign, sums[3], sums[1]) // where zSign is set signs, else codes
	orderCodes(b, b.source, sums[1])
}

// blocksDoc is of kernels that read each block twice, first for its amax.
const blocksDoc = `quantizes rows of groups of one block of 128, at least one, from %s to codes of 8
bits under float32 scales, and returns the bits of the largest magnitude: where that is
Inf or NaN, the reference implementation must encode the blocks. `

// blocks writes the kernel of blocks of 128, each with a separate scale.
func (b byteCodes) blocks(f *File, name string) {
	b.Func = f.Func(name, name+" "+fmt.Sprintf(blocksDoc+gapsDoc, sourceName(b.source), 64), "p fusedArgs, c *bytesConstants) (amax uint64")
	codes, scales, src, blocks, ahead := b.Arg("codes"), b.Arg("scales"), b.Arg("src"), b.Arg("groups"), b.Arg("ahead")
	b.c = constants{b.Arg("c"), bytesNames}
	t, codeAhead := b.GP("constants and result"), b.Arg("codeAhead")
	b.load(t)
	size := 128 * b.source / 8
	loop := b.Label("block")
	b.Comment("amax")
	b.I("VPXORD", Z(12), Z(12), Z(12))
	b.I("VPXORD", Z(13), Z(13), Z(13))
	for i := range size / 64 {
		b.I("PREFETCHT1", src.At(64*i).By(ahead, 1))
		b.raise(src.At(64*i), Z(12+i%2), Z(14+i%2))
	}
	if b.source == 16 {
		b.I("VPMAXUW", Z(13), Z(12), Z(12))
	} else {
		b.I("VPMAXUD", Z(13), Z(12), Z(12))
	}
	b.widen(Z(12), Z(13))
	b.maxDwords(Z(12), Z(12), Z(13))
	b.I("VPMAXUD", X(12), zAmax.X(), zAmax.X())
	b.factors(X(12), X(13), X(14))
	b.I("VBROADCASTSS", X(13), zByteFactor)
	b.I("VDIVPS", X(13), X(14), X(14))
	b.I("VMOVSS", X(14), scales.At(0))
	b.Comment("codes")
	for i := range 2 {
		b.encode(src.At(i*size/2), false)
		b.storeCodes("VMOVDQU64", Z(1), codes.At(64*i), codeAhead)
	}
	b.I("ADDQ", size, src)
	b.I("ADDQ", 128, codes)
	b.I("ADDQ", 4, scales)
	b.I("SUBQ", 1, blocks)
	b.Jump("JNZ", loop)
	b.nextRow(loop, blocks, codes, scales, src)
	b.I("VMOVD", zAmax.X(), t)
	b.I("MOVQ", t, b.FP("amax"))
	b.Return()
}

// factors leaves max/amax, kept finite, in factor, and 1 for a block of zeros; and ones.
func (b *byteCodes) factors(amax, factor, one Vec) {
	b.Comment("max/amax, kept finite; 1 for a block of zeros")
	b.I("VPTESTNMD", amax, amax, K(1))
	b.I("VBROADCASTSS", b.c.At("max"), factor)
	b.I("VDIVPS", amax, factor, factor)
	b.I("VMINPS.BCST", b.c.At("most"), factor, factor)
	b.I("VPANDD.BCST", b.c.At("mask"), factor, factor)
	b.I("VBROADCASTSS", b.c.At("one"), one)
	b.I("VMOVAPS", one, K(1), factor)
}

// A rowsLoop is the loop that kernels of rows of blocks with known factors share.
type rowsLoop struct {
	codes, src, blocks, left, factors, ahead Reg
	c                                        constants
}

const (
	encodeRowsDoc = `encodes rows of blocks of 64·units elements of %s by a factor for each block of
a row to codes of 8 bits. Elements are finite. `
	// rowsFields are the fields of quant.rowsArgs.
	rowsFields = "codes, src *byte, factors *float32, rows, blocks, units, codeGap, srcGap, factorGap, ahead, stream int"
)

func (fn *Func) rowsLoop() rowsLoop {
	return rowsLoop{
		fn.Arg("codes"), fn.Arg("src"), fn.GP("blocks left of the row"), fn.GP("units left of the block, and constants"),
		fn.Arg("factors"), fn.Arg("ahead"), constants{fn.Arg("c"), encodeNames},
	}
}

// emit prints the loops: begin loads the factor of a block, and encode has 64 elements.
func (l rowsLoop) emit(fn *Func, unitBytes int, begin, encode func()) {
	row := fn.Label("row")
	fn.I("MOVQ", fn.FP("blocks"), l.blocks)
	block := fn.Label("block")
	begin()
	fn.I("MOVQ", fn.FP("units"), l.left)
	loop := fn.Label("loop")
	for i := range unitBytes / 64 {
		fn.I("PREFETCHT1", l.src.At(64*i).By(l.ahead, 1))
	}
	encode()
	fn.I("ADDQ", unitBytes, l.src)
	fn.I("ADDQ", 64, l.codes)
	fn.I("SUBQ", 1, l.left)
	fn.Jump("JNZ", loop)
	fn.I("ADDQ", 4, l.factors)
	fn.I("SUBQ", 1, l.blocks)
	fn.Jump("JNZ", block)
	fn.I("ADDQ", fn.FP("srcGap"), l.src)
	fn.I("ADDQ", fn.FP("codeGap"), l.codes)
	fn.I("ADDQ", fn.FP("factorGap"), l.factors)
	fn.I("SUBQ", 1, fn.FP("rows"))
	fn.Jump("JNZ", row)
	fn.Return()
}

// rows: rows of blocks with a factor for each.
func (b byteCodes) rows(f *File, name string) {
	b.Func = f.Func(name, name+" "+fmt.Sprintf(encodeRowsDoc+strings.Replace(gapsDoc, ", and codeAhead\nbytes further in codes", "", 1),
		sourceName(b.source), 64), "p rowsArgs, c *encodeConstants")
	l := b.rowsLoop()
	b.c = l.c
	b.load(l.left)
	l.emit(b.Func, 64*b.source/8, func() {
		b.I("VBROADCASTSS", l.factors.At(0), zByteFactor)
	}, func() {
		b.encode(l.src.At(0), true)
		b.storeCodes("VMOVDQU64", Z(1), l.codes.At(0), "")
	})
}
