package asmgen

import (
	"fmt"
	"math/bits"
	"slices"
	"strings"
)

// quantBoth writes the kernels that make the rowwise and the columnwise copy of a
// matrix from one read of it, tile by tile of 64 rows and 64 columns. In a part of a tile
// at a time, which has the rows of a block, the amaxes of rows and of columns are found,
// and each element is then encoded twice, from the first-level cache. Rows of codes leave
// as they are, columns are turned when the tile has all rows of them.
func quantBoth() *File {
	f := NewFile("quant", "both")
	tables := fusedTables{joinTables: makeJoinTables(f, "both"), sixes: sixesTable(f, "both")}
	even := f.Table("bothEven", indices(func(i int) int { return i % 16 &^ 1 }))
	deal := [2]Sym{
		f.Table("bothDeal", words(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30)),
		f.Table("bothDealOdd", words(1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23, 25, 27, 29, 31)),
	}
	for _, k := range []both{
		{fused: fused{packing: packings[8]}}, {fused: fused{packing: packings[6]}}, {fused: fused{packing: packings[4]}},
		{fused: fused{packing: packings[8], integer: true}}, {fused: fused{packing: packings[4], global: true}},
		{fused: fused{packing: packings[8]}, known: true}, {fused: fused{packing: packings[8]}, known: true, square: true},
	} {
		k.tables, k.even, k.deal = tables, even, deal
		for _, k.source = range []int{32, 16} {
			for _, k.alone = range []bool{false, true} {
				if k.alone && k.square {
					continue
				}
				k.stream = false
				k.emitTo(f)
				if k.packing.bits == 8 { // columns of others are less than a cache line
					k.stream = true
					k.emitTo(f)
				}
			}
		}
	}
	return f
}

// halves returns 32 words, word i being of(i).
func halves(of func(i int) int) []byte {
	return indices(func(i int) int { return of(i/2) >> (i % 2 * 8) })
}

// both is the kernel of one source, kind of codes and way to store them. A row of
// a tile is four vectors of float32: of BF16, the even and the odd elements of 32,
// twice.
type both struct {
	fused
	known  bool   // factors of rows and columns come with the call; else they are computed, with scales
	square bool   // and those of columns serve rows, too: both copies have the same codes
	stream bool   // codes leave by non-temporal stores
	alone  bool   // the columnwise copy is the only one
	clamp  bool   // codes to the largest, which some scale rules go beyond
	even   Sym    // indices of the first byte of words, twice
	deal   [2]Sym // indices of the even, and of the odd, dwords of two vectors

	room, stride, row, ahead, from, staged, n, m, t, rowDst, rowScales, rowStride Reg
}

// Registers of these kernels beside those of the fused ones. Z0 to Z17
// serve amaxes, scales and codes.
var (
	zEven = Z(24)
	zZero = Z(31) // where factors are known: there are no magnitudes
	kEven = K(6)  // the second and fourth byte of each dword
	kRows = K(1)  // bytes of a column that the tile has rows for
)

// What a kernel has on the stack: factors of the rows of a part, and of its columns,
// codes of scales, how many parts are left, codes of columns by four vectors, and behind
// those the scales of columns by parts.
const (
	tileSide    = 64
	bothColumns = 4 * 128
	bothScales  = bothColumns + 4*128
	bothLeft    = bothScales + 64
	bothStaged  = bothLeft + 64
)

// stagedBytes returns the bytes of the codes of 16 columns, of which those of four
// rows, or eight of 4 bits, fill a dword.
func (k *both) stagedBytes() int {
	if k.packing.bits == 4 {
		return 8 * tileSide
	}
	return 16 * tileSide
}

// rowBytes returns the bytes of the source in a row of a tile.
func (k *both) rowBytes() int { return tileSide * k.source / 8 }

// partRows returns the rows of a part.
func (k *both) partRows() int {
	if k.known {
		return 16
	}
	return k.block()
}

// parts returns those of a tile.
func (k *both) parts() int { return tileSide / k.partRows() }

// scaled reports whether elements are multiplied by their factor before they are rounded:
// otherwise factors are part of the rounding.
func (k *both) scaled() bool { return k.known || k.global }

func (k both) emitTo(f *File) {
	name, suffix, how := "both", "", ""
	if k.alone {
		name = "columnTiles"
	}
	constantsType := "exponentConstants"
	k.c.names = exponentNames
	switch {
	case k.square:
		name, constantsType, k.c.names = name+"Square", "bytesConstants", bytesNames
	case k.known:
		name, constantsType, k.c.names = name+"Known", "bytesConstants", bytesNames
	case k.global:
		name, constantsType, k.c.names = name+"Global", "globalConstants", globalNames
	case k.integer:
		name += "Int"
	}
	if k.source == 16 {
		suffix = "BF16"
	}
	if k.stream {
		suffix += "Stream"
		how = "\nCodes are written past the caches, to multiples of 64."
	}
	name = fmt.Sprint(name, k.packing.bits) + suffix
	k.Func = f.Func(name, k.doc(name)+how, k.params()+constantsType+") (amax uint64")
	k.src, k.stride, k.c.base = k.Arg("src"), k.Arg("srcStride"), k.Arg("c")
	k.room, k.write, k.staged = k.GP("the stack, at a multiple of 64"), k.GP("factors"), k.GP("codes of columns")
	k.row, k.ahead = k.GP("a row of the source, or the stride of codes"), k.GP("what is fetched")
	k.from, k.rowDst, k.rowScales = k.GP("a row that is encoded"), k.GP("a row, or column, of codes"), k.GP("the scales of a row, or column")
	k.n, k.m, k.t = k.GP("what is left"), k.GP("groups of rows left"), k.GP("anything")
	k.read, k.rowStride = k.row, k.row
	k.Frame(bothStaged + 5*k.stagedBytes() + 64)
	k.I("LEAQ", SP.At(63), k.room)
	k.I("ANDQ", -64, k.room)
	k.constants()

	tile := k.Label("tile")
	if !k.alone {
		k.I("MOVQ", k.FP("rowCodes"), k.rowDst)
		switch {
		case !k.known:
			k.I("MOVQ", k.FP("rowScales"), k.rowScales)
		case !k.square:
			k.I("MOVQ", k.FP("rowFactors"), k.write)
		}
	}
	k.I("MOVQ", k.src, k.from)
	k.I("LEAQ", k.room.At(bothStaged), k.staged)
	if k.known {
		k.knownColumns()
	}
	if k.alone {
		k.I("MOVQ", k.FP("rows"), k.t)
		k.I("ADDQ", k.partRows()-1, k.t)
		k.I("SHRQ", bits.TrailingZeros(uint(k.partRows())), k.t)
	} else {
		k.I("MOVQ", k.parts(), k.t)
	}
	k.I("MOVQ", k.t, k.room.At(bothLeft))
	part := k.Label("part")
	if !k.known {
		k.scalePart()
		k.columnFactors()
	}
	k.encodePart()
	k.I("SUBQ", 1, k.room.At(bothLeft))
	k.Jump("JNZ", part)
	k.columnLines()
	if !k.known {
		k.columnScales()
	}
	if !k.alone {
		k.I("ADDQ", k.packing.bytes(tileSide), k.FP("rowCodes"))
		if !k.known {
			k.I("ADDQ", tileSide/k.block(), k.FP("rowScales"))
		}
	}
	k.I("ADDQ", k.rowBytes(), k.src)
	k.I("SUBQ", 1, k.FP("tiles"))
	k.Jump("JNZ", tile)
	if k.known {
		k.I("VCMPPS", unordered, zAmax, zAmax, kFlags)
		k.I("VPXORD", zAmax, zAmax, zAmax)
	}
	k.result()
}

// doc returns what is said of the kernel.
func (k *both) doc(name string) string {
	rows, along := "64 rows", "along rows and down columns"
	more := "and returns the bits of the largest\nmagnitude; all ones where a block must be redone by the plain form"
	if k.alone {
		rows, along = fmt.Sprintf("1 to 64 rows, of whole %ds in memory", k.partRows()), "down columns"
	}
	if k.known {
		more = "by factors of columns, and\nof rows, the same for all tiles; returns 0, and all ones where an element is Inf or NaN"
	}
	if k.square {
		more = "by factors of columns;\nreturns 0, and all ones where an element is Inf or NaN"
	}
	return fmt.Sprintf(`%s quantizes tiles of 64 columns of %s, at least one tile, from %s to
codes of %d bits, %s, %s. Strides are in
bytes; next is how far behind the last tile lies what is read after it.`, name, rows, sourceName(k.source), k.packing.bits, along, more)
}

// params returns the parameters but for the type of the constants.
func (k *both) params() string {
	pointers := []string{"rowCodes", "rowScales", "columnCodes", "columnScales", "src *byte"}
	if k.known {
		pointers = []string{"rowCodes", "columnCodes", "src *byte", "rowFactors", "columnFactors *float32"}
	}
	counts := []string{"tiles", "rows", "rowStride", "rowScaleStride", "columnStride", "columnScaleStride", "srcStride", "next int"}
	return strings.Join(slices.DeleteFunc(append(pointers, counts...), func(p string) bool {
		return k.alone && strings.HasPrefix(p, "row") && p != "rows" || !k.alone && p == "rows" || k.known && strings.HasSuffix(p, "ScaleStride") || k.square && p == "rowFactors"
	}), ", ") + ", c *"
}

// constants fills the registers of constants.
func (k *both) constants() {
	broadcast(k.Func, map[int]uint32{32: 0x7fffffff, 16: 0x7fff7fff}[k.source], k.write, zAbs)
	broadcast(k.Func, 0xff800000, k.write, zBinade)
	broadcast(k.Func, 0xffff0000, k.write, zUpper)
	broadcast(k.Func, 0x01010101<<k.packing.sign, k.write, zSign)
	k.I("VPBROADCASTD", k.c.At("limit"), zLimit)
	k.I("VPXORD", zAmax, zAmax, zAmax)
	k.I("KXORW", kFlags, kFlags, kFlags)
	k.loadJoin(k.tables.joinTables, k.source, k.c, k.write)
	switch k.packing.bits {
	case 6:
		k.loadSixes(k.write)
	case 4:
		broadcast(k.Func, 0x10011001, k.write, zJoin)
		k.I("VMOVDQU64", k.even, zEven)
		k.I("KNOTQ", kOdd, kEven)
	}
	if k.scaled() {
		k.I("VPBROADCASTD", k.c.At("least"), zLeast)
		k.I("VPBROADCASTD", k.c.At("anchor"), zAnchor)
	}
	if k.known {
		k.I("VPXORD", zZero, zZero, zZero)
	}
	if k.global {
		k.I("MOVL", 0xff00, k.write)
		k.I("KMOVW", k.write, kUpper)
	}
}

// knownColumns takes the factors of the columns of a tile to the stack.
func (k *both) knownColumns() {
	k.Comment("factors of columns")
	k.I("MOVQ", k.FP("columnFactors"), k.t)
	for q := range 4 {
		if k.source == 32 {
			k.I("VMOVDQU64", k.t.At(64*q), Z(0))
		} else {
			k.I("VMOVDQU64", k.t.At(q/2*128), Z(1))
			k.I("VMOVDQU64", k.deal[q%2], Z(0))
			k.I("VPERMI2D", k.t.At(q/2*128+64), Z(1), Z(0))
		}
		k.I("VMOVDQA64", Z(0), k.room.At(bothColumns+64*q))
	}
	k.I("ADDQ", 4*tileSide, k.FP("columnFactors"))
}

// encodePart encodes a part of a tile: its rows to their places, its columns four rows,
// or eight of codes of 4 bits, to a dword each.
func (k *both) encodePart() {
	k.Comment("codes")
	if !k.alone {
		k.I("MOVQ", k.FP("rowStride"), k.rowStride)
		if !k.known {
			k.I("MOVQ", k.room, k.write)
		}
	}
	inside := k.NewLabel("inside")
	k.I("MOVQ", k.rowBytes(), k.ahead)
	k.I("CMPQ", k.FP("tiles"), "$1")
	k.Jump("JNE", inside)
	k.I("MOVQ", k.FP("next"), k.ahead)
	k.Place(inside)
	k.I("LEAQ", k.ahead.At(0).By(k.stride, 1), k.t)
	if k.scaled() || k.integer {
		k.encodeRowsOfPart()
		return
	}
	clamped, done := k.NewLabel("clamped"), k.NewLabel("encoded")
	k.I("CMPL", k.c.At("limit"), "$-1") // nothing is above it
	k.Jump("JNE", clamped)
	k.encodeRowsOfPart()
	k.Jump("JMP", done)
	k.Place(clamped)
	k.clamp = true
	k.encodeRowsOfPart()
	k.clamp = false
	k.Place(done)
}

// encodeRowsOfPart is encodePart with what it needs in registers.
func (k *both) encodeRowsOfPart() {
	k.I("MOVQ", k.partRows()/16, k.m)
	sixteen := k.Label("sixteen")
	groups := [][2]int{{0, 2}}
	if k.packing.bits == 4 { // these give the first and third byte, and the second and fourth
		groups = [][2]int{{0, 4}, {2, 6}}
	}
	together := 4 * len(groups)
	k.I("MOVQ", 16/together, k.n)
	loop := k.Label("encode")
	p := newPool(18)
	var held [4]Vec // of codes of 4 bits, those of the first group
	at := 0         // the row where the pointers are
	for g, pairs := range groups {
		codes := k.encodeRows(p, pairs, &at)
		for q, v := range codes {
			switch {
			case k.packing.bits == 8:
				k.I("VMOVDQA64", v, k.staged.At(k.stagedBytes()*q))
				p.give(v)
			case k.packing.bits == 6:
				joinSixes(k, v)
				k.I("VMOVDQA64", v, k.staged.At(k.stagedBytes()*q))
				p.give(v)
			case g == 0:
				k.I("VPMADDUBSW", zJoin, v, v)
				held[q] = v
			default:
				k.I("VPMADDUBSW", zJoin, v, v)
				k.I("VPSHUFB", zEven, v, kEven, held[q])
				k.I("VMOVDQA64", held[q], k.staged.At(k.stagedBytes()*q))
				p.give(v)
				p.give(held[q])
			}
		}
	}
	k.moveTo(together, &at)
	k.I("ADDQ", 4*together, k.write)
	k.I("ADDQ", 64, k.staged)
	k.I("SUBQ", 1, k.n)
	k.Jump("JNZ", loop)
	if !k.known { // whose factors of rows are behind each other
		k.I("ADDQ", 2*128-64, k.write)
	}
	k.I("SUBQ", 1, k.m)
	k.Jump("JNZ", sixteen)
}

// moveTo moves the pointers to rows of the source and of codes by an even number.
func (k *both) moveTo(row int, at *int) {
	for ; *at > row; *at-- {
		k.I("SUBQ", k.stride, k.from)
		if !k.alone {
			k.I("SUBQ", k.rowStride, k.rowDst)
		}
	}
	if n := row - *at; n > 0 {
		k.I("LEAQ", k.from.At(0).By(k.stride, n), k.from)
		if !k.alone {
			k.I("LEAQ", k.rowDst.At(0).By(k.rowStride, n), k.rowDst)
		}
	}
	*at = row
}
