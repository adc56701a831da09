package asmgen

// storeColumns transposes the codes of a tile, 16 columns at a time, and stores them.
func (k *columns) storeColumns() {
	k.Comment("codes of columns")
	k.I("MOVQ", k.FP("codes"), k.line)
	k.I("MOVQ", k.FP("codeStride"), k.factors)
	k.I("MOVQ", k.room, k.staged)
	stride := k.factors
	each := 32 / k.source // of BF16, even and odd columns
	k.I("MOVQ", stride, k.step)
	if each > 1 {
		k.I("ADDQ", stride, k.step)
	}
	k.I("MOVQ", 4/each, k.n)
	loop := k.Label("columns")
	k.I("MOVQ", k.line, k.from)
	for i := range each {
		if i > 0 {
			k.I("LEAQ", k.from.At(0).By(stride, 1), k.line)
		}
		if k.packing.bits == 4 {
			k.transpose8()
		} else {
			k.transpose16()
		}
		k.I("ADDQ", k.stagedBytes(), k.staged)
	}
	if each > 1 {
		k.I("SUBQ", stride, k.line)
	}
	k.I("SUBQ", 1, k.n)
	k.Jump("JNZ", loop)
	k.I("MOVQ", k.line, k.FP("codes"))
}

// exchange puts two halves of each of a and b to a, and the others to b.
func (k *columns) exchange(low, high string, immediate []any, a, b, t *Vec) {
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

// transposeDwords exchanges dwords within the lanes of groups of four vectors, so that
// vectors 0, 2, 1 and 3 of a group are columns 0 to 3 of each lane.
func (k *columns) transposeDwords(v []Vec, t *Vec) {
	for g := 0; g < len(v); g += 4 {
		k.exchange("VPUNPCKLDQ", "VPUNPCKHDQ", nil, &v[g], &v[g+1], t)
		k.exchange("VPUNPCKLDQ", "VPUNPCKHDQ", nil, &v[g+2], &v[g+3], t)
		k.exchange("VPUNPCKLQDQ", "VPUNPCKHQDQ", nil, &v[g], &v[g+2], t)
		k.exchange("VPUNPCKLQDQ", "VPUNPCKHQDQ", nil, &v[g+1], &v[g+3], t)
	}
}

// transpose16 stores 16 columns of 64 codes of 8 or 6 bits.
func (k *columns) transpose16() {
	p := newPool(17)
	v := make([]Vec, 16)
	for i := range v {
		v[i] = p.take()
		k.I("VMOVDQA64", k.staged.At(64*i), v[i])
	}
	t := p.take()
	k.transposeDwords(v, &t)
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
	if k.packing.bits == 6 {
		for _, c := range columns {
			k.I("VPERMB", c, zSixes, c)
			k.I("VMOVDQU8", c, kSixes, k.line.At(0))
			k.I("ADDQ", k.step, k.line)
		}
		return
	}
	plain, stored := k.NewLabel("plain"), k.NewLabel("stored")
	k.I("CMPQ", k.FP("stream"), "$0")
	k.Jump("JEQ", plain)
	for _, store := range []string{"VMOVNTDQ", "VMOVDQU64"} {
		for _, c := range columns {
			k.I(store, c, k.line.At(0))
			k.I("ADDQ", k.step, k.line)
		}
		if store == "VMOVNTDQ" {
			k.Jump("JMP", stored)
			k.Place(plain)
		}
	}
	k.Place(stored)
}

// transpose8 stores 16 columns of 64 codes of 4 bits.
func (k *columns) transpose8() {
	p := newPool(9)
	v := make([]Vec, 8)
	for i := range v {
		v[i] = p.take()
		k.I("VMOVDQA64", k.staged.At(64*i), v[i])
	}
	t := p.take()
	k.transposeDwords(v, &t)
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
			k.I("VMOVDQU", v.Y(), k.line.At(0))
		} else {
			k.I("VEXTRACTI64X4", 1, v, k.line.At(0))
		}
		k.I("ADDQ", k.step, k.line)
	}
}
