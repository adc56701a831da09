package asmgen

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

// A pool is the vector registers that are free.
type pool []Vec

func newPool(n int) *pool {
	var p pool
	for i := range n {
		p = append(p, Z(i))
	}
	return &p
}

func (p *pool) take() Vec {
	v := (*p)[0]
	*p = (*p)[1:]
	return v
}

func (p *pool) give(v Vec) { *p = append(pool{v}, *p...) }

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

// Registers of these kernels beside those of the fused ones. Z0 to Z17 hold codes.
var (
	zColumnLeast  = Z(20) // 2^(exponent of the smallest normal)
	zColumnAnchor = Z(31) // 2^(23-m)·(1 + bias·2^-23)
)

const (
	tileSide    = 64
	stagedBytes = 16 * tileSide // of the codes of 16 columns
	tileColumns = "codes, src *byte, factors *float32, n, blockRows, codeStride, srcStride, factorStride, ahead, store int, c *encodeConstants"
	storeDoc    = `Store is the bits of a stored code; -8 stores codes of 8 bits by
non-temporal stores to multiples of 64.`
)

func (k *columns) emitTo(f *File) {
	name, codes := "columns", "a floating-point format"
	if k.integer {
		name, codes = "columnsInt", "INT8"
	}
	name += sourceSuffix(k.source)
	k.Func = f.Func(name, fmt.Sprintf(`%s encodes n tiles of 64 rows and 64 columns of %s, n > 0, to codes of
%s, and stores them transposed: elements times the factor of their column, of
which there is a row for each 16·blockRows rows. Strides are in bytes. Elements are finite.
Memory ahead bytes further in src is prefetched, unless that is 0. `+storeDoc,
		name, sourceName(k.source), codes), tileColumns)
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
	k.loadJoin(k.tables.joinTables, k.source, k.c, k.staged)
}

// factor returns the register of the factors of vector q of a row.
func (k *columns) factor(q int) Vec { return Z(14 + q) }

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
}

// encodeSixteen encodes 16 rows, two at a time: the codes of the first two of four wait in the
// first registers.
func (k *columns) encodeSixteen() {
	p := newPool(14)
	var first, pair [4]Vec // the codes of two rows, and their signs
	for q := range first {
		first[q] = p.take()
	}
	k.I("MOVQ", 8, k.n)
	loop := k.Label("encode")
	k.prefetch()
	for r, from := range []Mem{k.from.At(0), k.from.At(0).By(k.stride, 1)} {
		for q := range 4 {
			x := p.take()
			k.scaled(x, from, q)
			k.round(p, x)
			if r == 1 {
				k.I("VPSHUFB", zPair, pair[q], kOdd, x)
				p.give(pair[q])
			}
			pair[q] = x
		}
	}
	k.I("LEAQ", k.from.At(0).By(k.stride, 2), k.from)
	four := k.NewLabel("four")
	k.I("SUBQ", 1, k.n)
	k.I("TESTQ", 1, k.n)
	k.Jump("JZ", four)
	for q := range first {
		k.I("VMOVDQA64", pair[q], first[q])
	}
	k.Jump("JMP", loop)
	k.Place(four)
	for q := range first {
		k.join(first[q], pair[q], p)
		k.I("VMOVDQA64", first[q], k.staged.At(stagedBytes*q))
	}
	k.I("ADDQ", 64, k.staged)
	k.I("TESTQ", k.n, k.n)
	k.Jump("JNZ", loop)
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

// scaled leaves vector q of a row times the factors of its columns in x.
func (k *columns) scaled(x Vec, from Mem, q int) {
	switch {
	case k.source == 32:
		k.I("VMULPS", from.At(64*q), k.factor(q), x)
		return
	case q%2 == 0:
		k.I("VPSLLD", 16, from.At(32*q), x)
	default:
		k.I("VPANDD", from.At(32*(q-1)), zUpper, x)
	}
	k.I("VMULPS", k.factor(q), x, x)
}

// round makes y what joins to codes: the rounding sum times zTimes, or an integer from
// the second byte on.
func (k *columns) round(p *pool, y Vec) {
	clampTo(k, zLimit, y)
	if k.integer {
		k.I("VCVTPS2DQ", y, y)
		k.I("VPSLLD", 8, y, y)
		return
	}
	e := p.take()
	k.I("VPANDD", y, zBinade, e)
	k.I("VRANGEPS", 3, zColumnLeast, e, e)
	k.I("VFMADD231PS", zColumnAnchor, e, y)
	k.I("VPMADDWD", zTimes, y, y)
	p.give(e)
}

// join makes a the codes, with their signs, of two vectors that hold two codes and two
// bytes of signs in each dword. It frees b.
func (k *columns) join(a, b Vec, p *pool) {
	defer p.give(b)
	if k.integer { // whose codes have the sign
		k.I("VPSHUFB", zSwap, b, kHigh, a)
		return
	}
	t := p.take()
	k.I("VMOVDQA64", a, t)
	k.I("VPSHUFB", zSwap, b, kHigh, a)
	k.I("VPSHUFB", zSwap, t, kLow, b)
	k.I("VPTERNLOGD", 0xd8, zSign, b, a) // where zSign is set signs, else codes
	p.give(t)
}
