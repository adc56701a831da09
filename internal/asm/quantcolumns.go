package asm

import "fmt"

// quantColumns writes the kernels of columnwise copies: the amaxes of columns, their codes
// under known factors, and transpositions. Codes are of tiles of 64 rows and 64 columns. Each
// four rows become dwords that hold four codes of a column, in a buffer on the stack (they are
// staged); a routine transposes the dwords and stores the columns (quanttranspose.go).
func quantColumns() *File {
	f := NewFile("quant", "columns")
	tables := columnTables{
		joinTables: makeJoinTables(f, "columns"),
		deal: [2]Sym{
			f.Table("columnsDeal", words(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30)),
			f.Table("columnsDealOdd", words(1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23, 25, 27, 29, 31)),
		},
	}
	store := columnStore(f)
	for _, source := range []int{32, 16} {
		columnMaxima(f, source)
		for _, integer := range []bool{false, true} {
			k := columns{source: source, integer: integer, tables: tables, store: store}
			k.emitTo(f)
		}
	}
	transposeCodes(f, store)
	transposeFloats(f, store)
	transposeFour(f)
	return f
}

// columnMaxima raises the amaxes of columns, four rows at a time.
func columnMaxima(f *File, source int) {
	name := "columnMaxima" + sourceSuffix(source)
	fn := f.Func(name, fmt.Sprintf(`%s raises maxima[j], j < 64·n, to the bits of the magnitudes of column j of
4·fours rows of %s, n > 0, fours > 0. Memory ahead bytes further is prefetched.`, name, sourceName(source)),
		"maxima *uint32, src *byte, n, fours, srcStride, ahead int")
	src, stride, ahead := fn.Arg("src"), fn.Arg("srcStride"), fn.Arg("ahead")
	maxima, row, left := fn.GP("maxima of 64 columns"), fn.GP("64 columns of a row"), fn.GP("64 columns left")
	triple, triples := fn.GP("3·srcStride"), fn.GP("3·srcStride + ahead")
	b := byteCodes{Func: fn, source: source}
	broadcast(fn, b.absMask(), row, zAbs)
	fn.I("LEAQ", stride.At(0).By(stride, 2), triple)
	fn.I("LEAQ", triple.At(0).By(ahead, 1), triples)
	loop := fn.Label("rows")
	fn.I("MOVQ", fn.FP("maxima"), maxima)
	fn.I("MOVQ", src, row)
	fn.I("MOVQ", fn.FP("n"), left)
	columns := fn.Label("columns")
	for i := range 64 * source / 8 / 64 {
		most, x := Z(2*i), Z(2*i+1)
		at := row.At(64 * i)
		fn.I("VPANDD", at, zAbs, most)
		fn.I("PREFETCHT0", at.By(ahead, 1))
		for _, below := range []Mem{at.By(stride, 1), at.By(stride, 2), at.By(triple, 1)} {
			b.raise(below, most, x)
		}
		fn.I("PREFETCHT0", at.By(triples, 1))
		if source == 32 {
			fn.I("VPMAXUD", maxima.At(64*i), most, most)
			fn.I("VMOVDQU64", most, maxima.At(64*i))
			continue
		}
		for half := range 2 {
			if half == 1 {
				fn.I("VEXTRACTI64X4", 1, most, most.Y())
			}
			fn.I("VPMOVZXWD", most.Y(), x)
			fn.I("VPSLLD", 16, x, x)
			fn.I("VPMAXUD", maxima.At(128*i+64*half), x, x)
			fn.I("VMOVDQU64", x, maxima.At(128*i+64*half))
		}
	}
	fn.I("ADDQ", 64*source/8, row)
	fn.I("ADDQ", 256, maxima)
	fn.I("SUBQ", 1, left)
	fn.Jump("JNZ", columns)
	fn.I("LEAQ", src.At(0).By(stride, 4), src)
	fn.I("SUBQ", 1, fn.FP("fours"))
	fn.Jump("JNZ", loop)
	fn.Return()
}

// sourceSuffix ends the names of kernels by the bits of a source element.
func sourceSuffix(bits int) string { return map[int]string{32: "", 16: "BF16"}[bits] }

// columnTables are the read-only data of columns.
type columnTables struct {
	joinTables
	deal [2]Sym // indices of the even, and of the odd, dwords of two vectors
}

// columns is the kernel for a source and floating-point or integer codes. A row of a tile is
// four vectors of float32: of BF16, the even and the odd elements of 32, twice.
type columns struct {
	*Func
	source  int // bits of a source element
	integer bool
	c       constants
	tables  columnTables
	store   *Func

	from, stride, staged, factors, n, groups, ahead, further Reg
}

// Registers of these kernels beside those of the fused ones. Z0 to Z17 hold columns of codes when
// these are stored.
var (
	zColumnTemp    = Z(9)
	zColumnLargest = Z(24) // largest code in each byte
	zColumnLeast   = Z(20) // 2^(exponent of the smallest normal)
	zColumnAnchor  = Z(31) // 2^(23-m)·(1 + bias·2^-23)
)

const (
	tileSide    = 64
	stagedBytes = 16 * tileSide // of the codes of 16 columns
	// columnsFields are the fields of quant.columnsArgs.
	columnsFields = "codes, src *byte, factors *float32, n, blockRows, codeStride, srcStride, factorStride, ahead, store, powers int"
	storeDoc      = `Store is the bits of a stored code; -8 stores codes of 8 bits by
non-temporal stores to multiples of 64.`
)

func (k *columns) emitTo(f *File) {
	name, codes, powers := "columns", "a floating-point format", `
Where powers is not 0, factors are powers of two whose products with elements are less than
twice the largest value of the format.`
	if k.integer {
		name, codes, powers = "columnsInt", "INT8", " Powers is ignored."
	}
	name += sourceSuffix(k.source)
	k.Func = f.Func(name, fmt.Sprintf(`%s encodes n tiles of 64 rows and 64 columns of %s, n > 0, to codes of
%s, and stores them transposed: elements times the factor of their column, of
which there is a row for each 16·blockRows rows. Strides are in bytes. Elements are finite.
Memory ahead bytes further in src is prefetched, unless that is 0. `+storeDoc+powers,
		name, sourceName(k.source), codes), "p columnsArgs, c *encodeConstants")
	args := k.takeStore()
	k.staged = args.src
	k.c = constants{k.GP("constants"), encodeNames}
	k.I("MOVQ", k.FP("c"), k.c.base)
	k.from, k.stride = k.GP("four rows of the source"), k.Arg("srcStride")
	k.factors = k.GP("factors of a row of blocks")
	k.n, k.groups = k.GP("tiles left; four rows left"), k.GP("16 rows left")
	blocks := k.GP("16 rows left of a row of blocks")
	k.ahead, k.further = k.Arg("ahead"), k.GP("ahead, and a row")
	k.I("LEAQ", k.ahead.At(0).By(k.stride, 1), k.further)
	k.Frame(4*stagedBytes + 64)
	k.loadConstants()

	tile := k.Label("tile")
	k.I("MOVQ", k.FP("src"), k.from)
	k.I("MOVQ", k.FP("factors"), k.factors)
	k.toStaged(k.staged)
	k.I("MOVQ", tileSide/16, k.groups)
	blockRow := k.Label("blocks")
	k.I("MOVQ", k.FP("blockRows"), blocks)
	k.loadFactors()
	sixteen := k.Label("sixteen")
	k.encodeSixteen()
	done := k.NewLabel("done")
	k.I("SUBQ", 1, k.groups)
	k.Jump("JZ", done)
	k.I("SUBQ", 1, blocks)
	k.Jump("JNZ", sixteen)
	k.I("ADDQ", k.FP("factorStride"), k.factors)
	k.Jump("JMP", blockRow)
	k.Place(done)
	k.storeTile(args, k.store, k.n, 4, 32/k.source)
	k.I("ADDQ", tileSide*k.source/8, k.FP("src"))
	k.I("ADDQ", 4*tileSide, k.FP("factors"))
	k.I("SUBQ", 1, k.FP("n"))
	k.Jump("JNZ", tile)
	k.Return()
}

// loadConstants fills the registers of constants.
func (k *columns) loadConstants() {
	broadcast(k.Func, 0xff800000, k.staged, zBinade)
	broadcast(k.Func, 0xffff0000, k.staged, zUpper)
	k.I("VPBROADCASTD", k.c.At("sign"), zSign)
	k.I("VPBROADCASTD", k.c.At("limit"), zLimit)
	k.I("VPBROADCASTD", k.c.At("least"), zColumnLeast)
	k.I("VPBROADCASTD", k.c.At("anchor"), zColumnAnchor)
	k.I("VPBROADCASTD", k.c.At("codeLimit"), zColumnLargest)
	k.loadJoin(k.tables.joinTables, k.source, k.c, k.staged)
}

// factor returns the register of the factors of vector q of a row: of powers of two, e of the
// smallest normal element, and powerAnchor what e is multiplied by.
func (k *columns) factor(q int) Vec { return Z(14 + q) }

func (k *columns) powerAnchor(q int) Vec { return Z(10 + q) }

// loadFactors loads the factors of a row of blocks: those of BF16 in the order of its
// vectors, those of integers times the steps in 1.
func (k *columns) loadFactors() {
	for q := range 4 {
		if k.source == 16 {
			at := k.factors.At(q / 2 * 128)
			k.I("VMOVDQU64", at, Z(1))
			k.I("VMOVDQU64", k.tables.deal[q%2], k.factor(q))
			k.I("VPERMI2D", at.At(64), Z(1), k.factor(q))
		} else {
			k.I("VMOVUPS", k.factors.At(64*q), k.factor(q))
		}
		if k.integer {
			k.I("VMULPS.BCST", k.c.At("unit"), k.factor(q), k.factor(q))
		}
	}
	if k.integer {
		return
	}
	loaded := k.NewLabel("loaded")
	k.I("CMPQ", k.FP("powers"), "$0")
	k.Jump("JEQ", loaded)
	k.I("VPBROADCASTD", k.c.At("powerLeast"), zColumnTemp)
	for q := range 4 {
		f, a := k.factor(q), k.powerAnchor(q)
		k.I("VPSRLVD.BCST", k.c.At("shift"), f, a) // its exponent, times the codes in a binade
		k.I("VPADDD.BCST", k.c.At("powerBias"), a, a)
		k.I("VPTERNLOGD.BCST", 0xba, k.c.At("powerAnchor"), zUpper, a) // modulo 2^16, with the anchor
		k.I("VPSUBD", f, zColumnTemp, f)
	}
	k.Place(loaded)
}

// encodeSixteen encodes 16 rows, two at a time: the codes of the first two of four wait in Z0 to
// Z3.
func (k *columns) encodeSixteen() {
	k.I("MOVQ", 8, k.n)
	loop := k.Label("encode")
	k.prefetch()
	pair := [4]Vec{Z(8), Z(4), Z(5), Z(6)} // the codes of two rows, and their signs
	if k.integer {
		k.encodePair(pair, k.scaled)
	} else {
		powers, encoded := k.NewLabel("powers"), k.NewLabel("encoded")
		k.I("CMPQ", k.FP("powers"), "$0")
		k.Jump("JNE", powers)
		k.encodePair(pair, k.scaled)
		k.Jump("JMP", encoded)
		k.Place(powers)
		k.encodePair(pair, k.ofPower)
		k.Place(encoded)
	}
	k.I("LEAQ", k.from.At(0).By(k.stride, 2), k.from)
	four := k.NewLabel("four")
	k.I("SUBQ", 1, k.n)
	k.I("TESTQ", 1, k.n)
	k.Jump("JZ", four)
	for q, v := range pair {
		k.I("VMOVDQA64", v, Z(q))
	}
	k.Jump("JMP", loop)
	k.Place(four)
	for q, v := range pair {
		k.join(Z(q), v)
		k.I("VMOVDQA64", Z(q), k.staged.At(stagedBytes*q))
	}
	k.I("ADDQ", 64, k.staged)
	k.I("TESTQ", k.n, k.n)
	k.Jump("JNZ", loop)
}

// encodePair encodes two rows: the vectors of the first to Z4 to Z7, then those of the second,
// with them, to pair.
func (k *columns) encodePair(pair [4]Vec, encode func(x Vec, from Mem, q int)) {
	for q := range 4 {
		encode(Z(4+q), k.from.At(0), q)
	}
	for q, x := range pair {
		encode(x, k.from.At(0).By(k.stride, 1), q)
		k.I("VPSHUFB", zPair, Z(4+q), kOdd, x)
	}
}

// prefetch prefetches two rows, unless ahead is zero.
func (k *columns) prefetch() {
	none := k.NewLabel("none")
	k.I("TESTQ", k.ahead, k.ahead)
	k.Jump("JZ", none)
	for _, distance := range []Reg{k.ahead, k.further} {
		for at := 0; at < tileSide*k.source/8; at += 64 {
			k.I("PREFETCHT1", k.from.At(at).By(distance, 1))
		}
	}
	k.Place(none)
}

// element returns the memory of vector q of a row, or x with its elements of BF16 as float32.
func (k *columns) element(x Vec, from Mem, q int) any {
	switch {
	case k.source == 32:
		return from.At(64 * q)
	case q%2 == 0:
		k.I("VPSLLD", 16, from.At(32*q), x)
	default:
		k.I("VPANDD", from.At(32*(q-1)), zUpper, x)
	}
	return x
}

// scaled makes x what joins to codes, of vector q of a row: the rounding sum times zTimes, or an
// integer from the second byte on.
func (k *columns) scaled(x Vec, from Mem, q int) {
	k.I("VMULPS", k.element(x, from, q), k.factor(q), x)
	clampTo(k, zLimit, x)
	if k.integer {
		k.I("VCVTPS2DQ", x, x)
		k.I("VPSLLD", 8, x, x)
		return
	}
	e := zColumnTemp
	k.I("VPANDD", x, zBinade, e)
	k.I("VRANGEPS", 3, zColumnLeast, e, e)
	k.I("VFMADD231PS", zColumnAnchor, e, x)
	k.I("VPMADDWD", zTimes, x, x)
}

// ofPower is scaled of floating-point codes under a power of two: it is part of the rounding.
func (k *columns) ofPower(x Vec, from Mem, q int) {
	sum := x
	if k.source == 16 {
		sum = zColumnTemp
	}
	roundingSum(k, k.element(x, from, q), sum, zBinade, k.factor(q), k.powerAnchor(q))
	k.I("VPMADDWD", zTimes, sum, x)
}

// join makes a the codes, with their signs, of two vectors that hold two codes and two
// bytes of signs in each dword. It changes b.
func (k *columns) join(a, b Vec) {
	if k.integer { // whose codes have the sign
		k.I("VPSHUFB", zSwap, b, kHigh, a)
		return
	}
	k.I("VMOVDQA64", a, zColumnTemp)
	k.I("VPSHUFB", zSwap, b, kHigh, a)
	k.I("VPSHUFB", zSwap, zColumnTemp, kLow, b)
	k.I("VPMINUB", zColumnLargest, a, a) // under powers of two, the largest may be above it
	k.I("VPTERNLOGD", 0xd8, zSign, b, a) // where zSign is set signs, else codes
}
