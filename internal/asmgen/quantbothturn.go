package asmgen

import "math/bits"

// columnLines turns the codes of the columns of a tile, and stores them.
func (k *both) columnLines() {
	k.Comment("codes of columns")
	line, stride, step, staged := k.rowDst, k.row, k.m, k.staged
	k.I("MOVQ", k.FP("columnCodes"), line)
	k.I("MOVQ", k.FP("columnStride"), stride)
	k.I("LEAQ", k.room.At(bothStaged), staged)
	if k.alone {
		k.I("MOVQ", k.FP("rows"), k.t)
		k.I("IMULQ", k.packing.bits, k.t)
		k.I("SHRQ", 3, k.t)
	} else {
		k.I("MOVQ", k.packing.bytes(tileSide), k.t)
	}
	k.I("MOVQ", -1, k.n)
	k.I("BZHIQ", k.t, k.n, k.n)
	k.I("KMOVQ", k.n, kRows)
	if k.source == 16 {
		k.I("LEAQ", Mem{Base: stride, Index: stride, Scale: 1}, step)
	} else {
		step = stride
	}
	if !k.stream {
		k.I("MOVQ", stride, k.ahead)
		k.I("SHLQ", bits.TrailingZeros(tileSide), k.ahead)
	}
	each := 32 / k.source // of BF16, even and odd columns
	k.I("MOVQ", 4/each, k.n)
	loop := k.Label("columns")
	k.I("MOVQ", line, k.from)
	for i := range each {
		if i > 0 {
			k.I("LEAQ", k.from.At(0).By(stride, 1), line)
		}
		if k.packing.bits != 4 {
			k.turn16(staged, line, step)
		} else {
			k.turn8(staged, line, step)
		}
		k.I("ADDQ", k.stagedBytes(), staged)
	}
	if each > 1 {
		k.I("SUBQ", stride, line)
	}
	k.I("SUBQ", 1, k.n)
	k.Jump("JNZ", loop)
	k.I("MOVQ", line, k.FP("columnCodes"))
}

// exchange puts two halves of each of a and b to a, and the others to b.
func (k *both) exchange(low, high string, immediate []any, a, b, t *Vec) {
	k.I(low, append(immediate[:len(immediate):len(immediate)], *b, *a, *t)...)
	k.I(high, append(highImmediate(immediate), *b, *a, *a)...)
	*a, *b, *t = *t, *a, *b
}

// highImmediate returns the immediate that takes what another leaves.
func highImmediate(immediate []any) []any {
	if len(immediate) == 0 {
		return nil
	}
	return []any{map[int]int{0x44: 0xee, 0x88: 0xdd}[immediate[0].(int)]}
}

// turnDwords exchanges dwords within the lanes of groups of four vectors, so that
// vectors 0, 2, 1 and 3 of a group are columns 0 to 3 of each lane.
func (k *both) turnDwords(v []Vec, t *Vec) {
	for g := 0; g < len(v); g += 4 {
		k.exchange("VPUNPCKLDQ", "VPUNPCKHDQ", nil, &v[g], &v[g+1], t)
		k.exchange("VPUNPCKLDQ", "VPUNPCKHDQ", nil, &v[g+2], &v[g+3], t)
		k.exchange("VPUNPCKLQDQ", "VPUNPCKHQDQ", nil, &v[g], &v[g+2], t)
		k.exchange("VPUNPCKLQDQ", "VPUNPCKHQDQ", nil, &v[g+1], &v[g+3], t)
	}
}

// turn16 stores 16 columns of 64 codes.
func (k *both) turn16(from, line, step Reg) {
	p := newPool(17)
	v := make([]Vec, 16)
	for i := range v {
		v[i] = p.take()
		k.I("VMOVDQA64", from.At(64*i), v[i])
	}
	t := p.take()
	k.turnDwords(v, &t)
	lanes := func(immediate int, a, b *Vec) { k.exchange("VSHUFI32X4", "VSHUFI32X4", []any{immediate}, a, b, &t) }
	var columns [16]Vec
	for c, i := range []int{0, 2, 1, 3} {
		lanes(0x44, &v[i], &v[4+i])
		lanes(0x44, &v[8+i], &v[12+i])
		lanes(0x88, &v[i], &v[8+i])
		lanes(0x88, &v[4+i], &v[12+i])
		for j, u := range []int{i, 8 + i, 4 + i, 12 + i} {
			columns[c+4*j] = v[u]
		}
	}
	for _, c := range columns {
		if k.packing.bits == 6 {
			k.I("VPERMB", c, zSixes, c)
		}
		if k.stream {
			k.I("VMOVNTDQ", c, line.At(0))
		} else {
			k.storeColumn(c, line)
		}
		k.I("ADDQ", step, line)
	}
}

// turn8 stores 16 columns of 64 codes of 4 bits.
func (k *both) turn8(from, line, step Reg) {
	p := newPool(9)
	v := make([]Vec, 8)
	for i := range v {
		v[i] = p.take()
		k.I("VMOVDQA64", from.At(64*i), v[i])
	}
	t := p.take()
	k.turnDwords(v, &t)
	var columns [8]Vec // of 16, each beside that four further
	for c, i := range []int{0, 2, 1, 3} {
		k.exchange("VSHUFI32X4", "VSHUFI32X4", []any{0x44}, &v[i], &v[4+i], &t)
		for j, u := range []int{i, 4 + i} {
			k.I("VSHUFI32X4", 0xd8, v[u], v[u], v[u])
			columns[c+4*j] = v[u]
		}
	}
	for c := range 16 {
		if v := columns[c%4+c/8*4]; c/4%2 == 0 {
			k.storeColumn(v.Y(), line)
		} else {
			k.I("VEXTRACTI64X4", 1, v, t.Y())
			k.storeColumn(t.Y(), line)
		}
		k.I("ADDQ", step, line)
	}
}

// storeColumn stores the codes of a column, and fetches room for those of the next tile.
func (k *both) storeColumn(v Vec, line Reg) {
	k.I("PREFETCHT0", line.At(0).By(k.ahead, 1))
	k.I("VMOVDQU8", v, kRows, line.At(0))
}
