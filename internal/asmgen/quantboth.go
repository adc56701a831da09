package asmgen

import "fmt"

// quantBoth writes the kernels that make the rowwise and the columnwise copy of a
// matrix from one read of it, tile by tile of 64 rows and 64 columns. In half a tile
// at a time the amaxes of rows and of columns are found, and each element is then
// encoded twice, from the first-level cache. Rows of codes leave as they are, columns
// are turned when the tile has all 64 rows of them.
func quantBoth() *File {
	f := NewFile("quant", "both")
	k := both{
		pair:  f.Table("bothPair", indices(func(i int) int { return i%16 | 1 })),
		even:  f.Table("bothEven", indices(func(i int) int { return i % 16 &^ 1 })),
		codes: f.Table("bothCodes", halves(func(i int) int { return i/2*2 + i%2*32 })),
		signs: f.Table("bothSigns", halves(func(i int) int { return i/2*2 + i%2*32 + 1 })),
		rowCodes: map[int]Sym{
			32: f.Table("bothRowCodes", indices(func(i int) int { return i/32*64 + i%16*4 + i/16%2 })),
			16: f.Table("bothRowCodesBF16", indices(func(i int) int { return i/32*64 + i%32/2*4 + i%2 })),
		},
		rowSigns: map[int]Sym{
			32: f.Table("bothRowSigns", indices(func(i int) int { return i/32*64 + i%16*4 + i/16%2 + 2 })),
			16: f.Table("bothRowSignsBF16", indices(func(i int) int { return i/32*64 + i%32/2*4 + i%2 + 2 })),
		},
	}
	for _, bits := range []int{8, 4} {
		for _, source := range []int{32, 16} {
			for _, k.alone = range []bool{false, true} {
				for _, stream := range []bool{false, true} {
					if stream && bits == 4 { // its columns are half a cache line
						continue
					}
					k.fused = fused{source: source, packing: packings[bits], stream: stream}
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

// both is the kernel of one source, width of codes and way to store them. A row of
// a tile is four vectors of float32: of BF16, the even and the odd elements of 32,
// twice.
type both struct {
	fused
	alone              bool        // the columnwise copy is the only one
	clamp              bool        // codes to the largest, which some scale rules go beyond
	pair, even         Sym         // indices of the second, and of the first, byte of words, twice
	codes, signs       Sym         // indices of the first, and of the second, words of the dwords of two vectors
	rowCodes, rowSigns map[int]Sym // indices of a row's codes, and signs, in the same, by the bits of a source element

	room, stride, row, ahead, from, staged, n, m, t, rowDst, rowScales, rowStride Reg
}

// Registers of these kernels beside those of the fused ones. Z0 to Z17
// serve amaxes, scales and codes.
var (
	zCodes    = Z(21)
	zSigns    = Z(22)
	zRowCodes = Z(27)
	zRowSigns = Z(28)
	zNibbles  = Z(23) // multipliers that join nibbles
	zEven     = Z(24)
	kEven     = K(6) // the second and fourth byte of each dword
)

// What a kernel has on the stack: factors of the rows and columns of half a tile,
// codes of scales, codes of columns by four vectors, and behind those of each half
// the scales of its columns.
const (
	tileSide    = 64
	bothColumns = 4 * 128
	bothScales  = bothColumns + 4*128
	bothStaged  = bothScales + 64
)

// stagedBytes returns the bytes of the codes of 16 columns.
func (k *both) stagedBytes() int { return 16 * tileSide * k.packing.bits / 8 }

// rowBytes returns the bytes of the source in a row of a tile.
func (k *both) rowBytes() int { return tileSide * k.source / 8 }

func (k *both) emitTo(f *File) {
	name := fmt.Sprintf("both%d", k.packing.bits)
	if k.alone {
		name = fmt.Sprintf("columnTiles%d", k.packing.bits)
	}
	how := ""
	if k.source == 16 {
		name += "BF16"
	}
	if k.stream {
		name += "Stream"
		how = "\nCodes are written past the caches, to multiples of 64."
	}
	params := "rowCodes, rowScales, columnCodes, columnScales, src *byte, tiles, rowStride, rowScaleStride, columnStride, columnScaleStride, srcStride, next int, c *exponentConstants) (amax uint64"
	along := "along rows and down columns"
	if k.alone {
		params = "columnCodes, columnScales, src *byte, tiles, columnStride, columnScaleStride, srcStride, next int, c *exponentConstants) (amax uint64"
		along = "down columns"
	}
	k.Func = f.Func(name, fmt.Sprintf(`%s quantizes tiles of 64 columns of 64 rows, at least one tile, from %s to
codes of %d bits, %s, and returns the bits of the largest
magnitude; all ones where a block must be redone by the plain form. Strides are in
bytes; next is how far behind the last tile lies what is read after it.`,
		name, map[int]string{32: "float32", 16: "BF16"}[k.source], k.packing.bits, along)+how, params)
	k.c = constants{names: exponentNames}
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
		k.I("MOVQ", k.FP("rowScales"), k.rowScales)
	}
	k.I("LEAQ", k.room.At(bothStaged), k.staged)
	half := k.Label("half")
	k.scaleHalf()
	k.columnFactors()
	k.encodeHalf()
	k.I("LEAQ", k.room.At(bothStaged+k.stagedBytes()), k.t)
	k.I("CMPQ", k.staged, k.t)
	k.Jump("JNE", half)
	k.columnLines()
	k.columnScales()
	if !k.alone {
		k.I("ADDQ", k.packing.bytes(tileSide), k.FP("rowCodes"))
		k.I("ADDQ", tileSide/32, k.FP("rowScales"))
	}
	k.I("ADDQ", k.rowBytes(), k.src)
	k.I("SUBQ", 1, k.FP("tiles"))
	k.Jump("JNZ", tile)
	k.result()
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
	k.loadTimes(k.c, k.write)
	broadcast(k.Func, 0x10011001, k.write, zNibbles)
	for _, t := range []struct {
		table Sym
		v     Vec
	}{{k.pair, zPair}, {k.even, zEven}, {k.codes, zCodes}, {k.signs, zSigns}, {k.rowCodes[k.source], zRowCodes}, {k.rowSigns[k.source], zRowSigns}} {
		k.I("VMOVDQU64", t.table, t.v)
	}
	k.I("MOVQ", "$0x5555555555555555", k.write)
	k.I("KMOVQ", k.write, kOdd)
	k.I("KNOTQ", kOdd, kEven)
}

// encodeHalf encodes half a tile: its rows to their places, its columns four rows,
// or eight of codes of 4 bits, to a dword each.
func (k *both) encodeHalf() {
	k.Comment("codes")
	if !k.alone {
		k.I("MOVQ", k.FP("rowStride"), k.rowStride)
	}
	k.I("MOVQ", k.room, k.write)
	k.I("MOVQ", k.rowBytes(), k.ahead)
	inside := k.NewLabel("inside")
	k.I("CMPQ", k.FP("tiles"), "$1")
	k.Jump("JNE", inside)
	k.I("MOVQ", k.FP("next"), k.ahead)
	k.Place(inside)
	k.I("LEAQ", k.ahead.At(0).By(k.stride, 1), k.t)
	k.I("MOVQ", 2, k.m)
	clamped, done := k.NewLabel("clamped"), k.NewLabel("encoded")
	k.I("CMPL", k.c.At("limit"), "$-1") // nothing is above it
	k.Jump("JNE", clamped)
	k.encodeRowsOfHalf()
	k.Jump("JMP", done)
	k.Place(clamped)
	k.clamp = true
	k.encodeRowsOfHalf()
	k.clamp = false
	k.Place(done)
}

// encodeRowsOfHalf is encodeHalf with what it needs in registers.
func (k *both) encodeRowsOfHalf() {
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
			case g == 0:
				k.I("VPMADDUBSW", zNibbles, v, v)
				held[q] = v
			default:
				k.I("VPMADDUBSW", zNibbles, v, v)
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
	k.I("ADDQ", 2*128-64, k.write)
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

// encodeRows stores the codes of two pairs of rows, and returns them as four dwords
// of each 16 columns.
func (k *both) encodeRows(p *pool, starts [2]int, at *int) [4]Vec {
	var pairs [2][4]Vec // of columns: the codes of two rows, and their signs
	for i, start := range starts {
		k.moveTo(start, at)
		for r, from := range []Mem{k.from.At(0), k.from.At(0).By(k.stride, 1)} {
			var row [2]Vec // the codes of two vectors, and their signs
			for q := range 4 {
				if k.source == 32 || q%2 == 0 {
					k.I("PREFETCHT1", k.from.At(q*k.rowBytes()/4).By([]Reg{k.ahead, k.t}[r], 1))
				}
				x, e := p.take(), p.take()
				var v Vec
				if !k.alone {
					v = p.take()
				}
				switch {
				case k.source == 32:
					k.I("VMOVDQU64", from.At(64*q), x)
				case q%2 == 0:
					k.I("VPSLLD", 16, from.At(32*q), x)
				default:
					k.I("VPANDD", from.At(32*(q-1)), zUpper, x)
				}
				k.I("VPANDD", x, zBinade, e)
				if !k.alone {
					factors := k.write.At(q/2*128 + 4*(start+r))
					k.I("VRANGEPS.BCST", 3, factors, e, v) // the greater magnitude
					k.I("VFMADD132PS.BCST", factors.At(64), x, v)
					k.I("VPMADDWD", zTimes, v, v)
					if q%2 == 1 { // two codes, and two bytes of signs
						k.I("VPSHUFB", zPair, row[q/2], kOdd, v)
						p.give(row[q/2])
					}
					row[q/2] = v
				}
				factors := k.room.At(bothColumns + 128*q)
				k.I("VRANGEPS", 3, factors, e, e)
				k.I("VFMADD132PS", factors.At(64), x, e)
				k.I("VPMADDWD", zTimes, e, e)
				p.give(x)
				if r == 1 {
					k.I("VPSHUFB", zPair, pairs[i][q], kOdd, e)
					p.give(pairs[i][q])
				}
				pairs[i][q] = e
			}
			if k.alone {
				continue
			}
			codes := k.join("VPERMT2B", zRowCodes, zRowSigns, row[0], row[1], p)
			to := k.rowDst.At(0)
			if r == 1 {
				to = to.By(k.rowStride, 1)
			}
			k.storeRow(codes, to)
			p.give(codes)
		}
	}
	var codes [4]Vec
	for q := range codes {
		codes[q] = k.join("VPERMT2W", zCodes, zSigns, pairs[0][q], pairs[1][q], p)
	}
	return codes
}

// join makes bytes of codes with their signs of two vectors of both.
func (k *both) join(permute string, codes, signs, a, b Vec, p *pool) Vec {
	v := p.take()
	k.I("VMOVDQA64", a, v)
	k.I(permute, b, codes, v)
	k.I(permute, b, signs, a)
	if k.clamp {
		k.I("VPMINUB", zLimit, v, v)
	}
	k.I("VPTERNLOGD", 0xd8, zSign, a, v)
	p.give(a)
	p.give(b)
	return v
}

// storeRow stores 64 codes of a row.
func (k *both) storeRow(v Vec, at Mem) {
	switch {
	case k.packing.bits == 4:
		k.I("VPMADDUBSW", zNibbles, v, v)
		k.I("VPMOVWB", v, v.Y())
		k.I("VMOVDQU", v.Y(), at)
	case k.stream:
		k.I("VMOVNTDQ", v, at)
	default:
		k.I("VMOVDQU64", v, at)
	}
}
