package asmgen

import "fmt"

// bytesNames are the constants of quant's bytesConstants.
var bytesNames = []string{"limit", "least", "anchor", "shift", "max", "mask", "one", "most", "stream"}

// quantBytes writes the kernels for codes of 8 bits under FP32 scales. They find
// the amaxes of what comes next while they encode what is there, so that one waits
// for memory while the other computes.
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
		v.b.rows(f, "rows"+v.suffix)
		v.b.maxima(f, "tileMaxima"+v.suffix)
	}
	byteFactors(f)
	quantAmaxBF16(f)
	fence := f.Func("fence", "fence makes what was stored past the caches visible before what is stored after.", "")
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

// zByteFactor is what elements are multiplied by.
var zByteFactor = Z(16)

// vectors returns how many vectors of the source hold 64 elements.
func (b *byteCodes) vectors() int { return b.source / 8 }

// load fills the registers of constants by way of t.
func (b *byteCodes) load(t Reg) {
	for i, v := range []Vec{zLimit, zLeast, zAnchor} {
		b.I("VPBROADCASTD", b.c.At(bytesNames[i]), v)
	}
	b.loadJoin(b.tables, b.source, b.c, t)
	broadcast(b.Func, 0x80808080, t, zSign)
	abs := uint32(0x7fffffff)
	if b.source == 16 {
		abs = 0x7fff7fff
		broadcast(b.Func, 0xffff0000, t, zUpper)
	}
	broadcast(b.Func, abs, t, zAbs)
	broadcast(b.Func, 0xff800000, t, zBinade)
	b.I("VPXORD", zAmax, zAmax, zAmax)
}

// raise raises the lanes of the amax to the magnitudes of a vector, by way of t.
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
	b.I("VPERMB", sums[1], zOrder, sums[1])
}

// store writes Z1, past the caches where the constants say so. Otherwise room for
// codes is fetched so many bytes ahead.
func (b *byteCodes) store(at Mem, ahead int) {
	plain, stored := b.NewLabel("plain"), b.NewLabel("stored")
	b.I("CMPL", b.c.At("stream"), 0)
	b.Jump("JEQ", plain)
	b.I("VMOVNTDQ", Z(1), at)
	b.Jump("JMP", stored)
	b.Place(plain)
	if ahead > 0 {
		b.I("PREFETCHT0", at.At(ahead))
	}
	b.I("VMOVDQU64", Z(1), at)
	b.Place(stored)
}

// blockFetches are fetches of kernels that read each block twice, first for its amax.
var blockFetches = map[int]fetch{32: {"PREFETCHT1", 4096}, 16: {"PREFETCHT0", 2048}}

const (
	blocksDoc = `quantizes blocks of 128, at least one, from %s to codes of 8 bits
under float32 scales, and returns the bits of the largest magnitude: where that is
Inf or NaN, the plain form must do the blocks anew.`
	blocksParams = "codes, scales, src *byte, blocks int, c *bytesConstants) (amax uint64"
)

// blocks: one block of 128 after the other, each with a scale of its own.
func (b byteCodes) blocks(f *File, name string) {
	b.Func = f.Func(name, name+" "+fmt.Sprintf(blocksDoc, sourceName(b.source)), blocksParams)
	codes, scales, src, blocks := b.Arg("codes"), b.Arg("scales"), b.Arg("src"), b.Arg("blocks")
	b.c = constants{b.Arg("c"), bytesNames}
	t := b.GP("constants and result")
	b.load(t)
	size, source := 128*b.source/8, blockFetches[b.source]
	loop := b.Label("block")
	b.Comment("amax")
	b.I("VPXORD", Z(12), Z(12), Z(12))
	b.I("VPXORD", Z(13), Z(13), Z(13))
	for i := range size / 64 {
		b.I(source.instruction, src.At(64*i+source.ahead))
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
		b.store(codes.At(64*i), codesAhead)
	}
	b.I("ADDQ", size, src)
	b.I("ADDQ", 128, codes)
	b.I("ADDQ", 4, scales)
	b.I("SUBQ", 1, blocks)
	b.Jump("JNZ", loop)
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

// A rowsLoop is what kernels for rows of blocks have in common: the loops over rows
// and blocks, and what moves from one to the next.
type rowsLoop struct {
	codes, src, next, blocks, left, factors, maxima, srcAhead, nextAhead Reg
	c                                                                    constants
}

const (
	rowsDoc = `encodes rows of blocks of 64·units elements of %s at src by a factor for each
block of a row to codes of 8 bits, unless codes is nil, and raises 16 maxima for each
block of a row of as many at next to the bits of their magnitudes, unless that is nil.
Gaps are the bytes between rows. Memory so far ahead of src and next is fetched.`
	rowsParams = "codes, src, next *byte, rows, blocks, units, codeGap, srcGap, srcAhead, nextAhead int, factors, maxima *float32, c *bytesConstants"
)

func (fn *Func) rowsLoop() rowsLoop {
	return rowsLoop{
		fn.Arg("codes"), fn.Arg("src"), fn.Arg("next"), fn.GP("blocks left of the row"), fn.GP("units left of the block, and constants"),
		fn.GP("factors"), fn.GP("maxima"), fn.Arg("srcAhead"), fn.Arg("nextAhead"), constants{fn.Arg("c"), bytesNames},
	}
}

// emit prints the loops. Of a block, begin and end load and store what it has, raise
// is for 64 elements at next, and encode for as many at src.
func (l rowsLoop) emit(fn *Func, unitBytes int, begin, raise, encode, end func()) {
	row := fn.Label("row")
	fn.I("MOVQ", fn.FP("blocks"), l.blocks)
	fn.I("MOVQ", fn.FP("factors"), l.factors)
	fn.I("MOVQ", fn.FP("maxima"), l.maxima)
	block := fn.Label("block")
	begin()
	fn.I("MOVQ", fn.FP("units"), l.left)
	loop := fn.Label("loop")
	encodes, encoded := fn.NewLabel("encode"), fn.NewLabel("encoded")
	fn.I("TESTQ", l.next, l.next)
	fn.Jump("JZ", encodes)
	raise()
	fn.I("ADDQ", unitBytes, l.next)
	fn.Place(encodes)
	fn.I("TESTQ", l.codes, l.codes)
	fn.Jump("JZ", encoded)
	encode()
	fn.I("ADDQ", unitBytes, l.src)
	fn.I("ADDQ", 64, l.codes)
	fn.Place(encoded)
	fn.I("SUBQ", 1, l.left)
	fn.Jump("JNZ", loop)
	end()
	fn.I("ADDQ", 4, l.factors)
	fn.I("ADDQ", 64, l.maxima)
	fn.I("SUBQ", 1, l.blocks)
	fn.Jump("JNZ", block)
	skipNext, skipCodes := fn.NewLabel("noNext"), fn.NewLabel("noCodes")
	fn.I("TESTQ", l.next, l.next)
	fn.Jump("JZ", skipNext)
	fn.I("ADDQ", fn.FP("srcGap"), l.next)
	fn.Place(skipNext)
	fn.I("TESTQ", l.codes, l.codes)
	fn.Jump("JZ", skipCodes)
	fn.I("ADDQ", fn.FP("srcGap"), l.src)
	fn.I("ADDQ", fn.FP("codeGap"), l.codes)
	fn.Place(skipCodes)
	fn.I("SUBQ", 1, fn.FP("rows"))
	fn.Jump("JNZ", row)
	fn.Return()
}

// rows: rows of blocks with a factor for each, while the amaxes of rows that come
// later are found.
func (b byteCodes) rows(f *File, name string) {
	b.Func = f.Func(name, name+" "+fmt.Sprintf(rowsDoc, sourceName(b.source)), rowsParams)
	l := b.rowsLoop()
	b.c = l.c
	b.load(l.left)
	l.emit(b.Func, 64*b.source/8, func() {
		b.I("VBROADCASTSS", l.factors.At(0), zByteFactor)
		b.I("VMOVDQU64", l.maxima.At(0), zAmax)
	}, func() {
		for i := range b.vectors() {
			b.I("PREFETCHT1", l.next.At(64*i).By(l.nextAhead, 1))
			b.raise(l.next.At(64*i), zAmax, Z(12+i))
		}
	}, func() {
		for i := range b.vectors() {
			b.I("PREFETCHT0", l.src.At(64*i).By(l.srcAhead, 1))
		}
		b.encode(l.src.At(0), true)
		b.store(l.codes.At(0), 0)
	}, func() {
		b.widen(zAmax, Z(12))
		b.I("VMOVDQU64", zAmax, l.maxima.At(0))
	})
}

func quantAmaxBF16(f *File) {
	fn := f.Func("amaxBF16", "amaxBF16 returns the bits, as float32, of the largest of |src[i]|, i < n, n > 0.", "src *byte, n int) (amax uint64")
	src, n := fn.Arg("src"), fn.Arg("n")
	t := fn.GP("masks and result")
	b := byteCodes{Func: fn, source: 16}
	broadcast(fn, 0x7fff7fff, t, zAbs)
	broadcast(fn, 0xffff0000, t, zUpper)
	fn.I("VPXORD", zAmax, zAmax, zAmax)
	fn.I("VPXORD", Z(0), Z(0), Z(0))
	rest, done := fn.NewLabel("rest"), fn.NewLabel("done")
	fn.I("SUBQ", 64, n)
	fn.Jump("JL", rest)
	loop := fn.Label("loop")
	for i := range 2 {
		fn.I("PREFETCHT0", src.At(64*i+linePrefetch))
		b.raise(src.At(64*i), []Vec{zAmax, Z(0)}[i], Z(1+i))
	}
	fn.I("ADDQ", 128, src)
	fn.I("SUBQ", 64, n)
	fn.Jump("JGE", loop)
	fn.Place(rest)
	fn.I("ADDQ", 64, n)
	fn.Jump("JZ", done)
	fn.I("MOVQ", -1, t)
	fn.I("BZHIQ", n, t, t)
	for i := range 2 {
		fn.I("KMOVD", t, K(1))
		fn.I("VMOVDQU16.Z", src.At(64*i), K(1), Z(1))
		b.raise(Z(1), zAmax, Z(1))
		fn.I("SHRQ", 32, t)
	}
	fn.Place(done)
	fn.I("VPMAXUW", Z(0), zAmax, zAmax)
	b.widen(zAmax, Z(1))
	fn.maxDword(zAmax, t)
	fn.I("MOVQ", t, fn.FP("amax"))
	fn.Return()
}
