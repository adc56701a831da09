package asmgen

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

// columnMaxima returns the register of the maxima of columns: 16 of float32, or 32
// of BF16.
func columnMaxima(i int) Vec { return Z(14 + i) }

// scalePart finds the maxima of the columns of a part, and stores scales and
// factors of its rows.
func (k *both) scalePart() {
	k.Comment("scales of the rows of a part, and the maxima of their columns")
	k.I("MOVQ", k.from, k.row)
	for i := range k.rowBytes() / 64 {
		k.I("VPXORD", columnMaxima(i), columnMaxima(i), columnMaxima(i))
	}
	if k.alone {
		k.maximaOfColumns()
		return
	}
	k.I("MOVQ", k.room, k.write)
	k.I("MOVQ", k.partRows()/16, k.m)
	loop := k.Label("rows")
	switch {
	case k.source == 16:
		k.scaleRowsBF16()
	case k.global:
		k.scaleRowsGlobal()
	default:
		k.scaleRows()
	}
	k.Comment("scales of 16 rows")
	p := newPool(18)
	lists := make([][]Vec, tileSide/k.block())
	for j := range lists {
		lists[j] = []Vec{p.take().X()}
		k.I("VMOVDQU", k.room.At(bothScales+16*j), lists[j][0])
	}
	k.storeLists(lists, k.room.At(bothScales), p)
	for r := range 16 {
		k.moveScales(k.room.At(bothScales+len(lists)*r), k.rowScales.At(0))
		k.I("ADDQ", k.FP("rowScaleStride"), k.rowScales)
	}
	k.I("SUBQ", 1, k.m)
	k.Jump("JNZ", loop)
}

// maximaOfColumns is scalePart of columns alone.
func (k *both) maximaOfColumns() {
	greater := map[int]string{32: "VPMAXUD", 16: "VPMAXUW"}[k.source]
	for range k.partRows() {
		for i := range k.rowBytes() / 64 {
			k.takeVector(i, Z(i))
			k.I(greater, Z(i), columnMaxima(i), columnMaxima(i))
		}
		k.I("ADDQ", k.stride, k.row)
	}
}

// takeVector takes the magnitudes of vector i of a row to x.
func (k *both) takeVector(i int, x Vec) {
	k.I("VPANDD", k.row.At(64*i), zAbs, x)
}

// scaleRows is 16 rows of float32.
func (k *both) scaleRows() {
	p := newPool(14)
	var trees [2][]Vec // maxima of the first half of the columns, and of the other
	for r := range 16 {
		for j := range trees {
			a, b := p.take(), p.take()
			for i, x := range []Vec{a, b} {
				k.takeVector(2*j+i, x)
				k.I("VPMAXUD", x, columnMaxima(2*j+i), columnMaxima(2*j+i))
			}
			k.I("VPMAXUD", b, a, a)
			p.give(b)
			trees[j] = k.fold(trees[j], a, r, 16, "VPMAXUD", p)
		}
		k.I("ADDQ", k.stride, k.row)
	}
	first, second := trees[0][0], trees[1][0]
	k.I("VMOVDQA64", second, Z(13))
	k.rowFactors(0, "VMOVDQA64", first)
	k.rowFactors(1, "VMOVDQA64", Z(13))
}

// scaleRowsGlobal is 16 rows of float32, one block after the other.
func (k *both) scaleRowsGlobal() {
	k.I("MOVQ", k.from, k.row)
	for j := range 4 {
		p := newPool(14)
		var tree []Vec
		if j > 0 {
			k.I("MOVQ", k.from, k.row)
		}
		for r := range 16 {
			x := p.take()
			k.takeVector(j, x)
			k.I("VPMAXUD", x, columnMaxima(j), columnMaxima(j))
			tree = k.fold(tree, x, r, 16, "VPMAXUD", p)
			k.I("ADDQ", k.stride, k.row)
		}
		k.rowFactors(j, "VMOVDQA64", tree[0])
	}
}

// scaleRowsBF16 is 16 rows of BF16. Maxima of both halves of the columns are folded
// as the words of dwords. Of blocks of 16, two of each half are in lanes of their own
// until the last step, which would fold them.
func (k *both) scaleRowsBF16() {
	p, most := newPool(14), 16
	if k.global {
		most = 8
	}
	var tree []Vec
	for r := range 16 {
		a, b, t := p.take(), p.take(), p.take()
		for i, x := range []Vec{a, b} {
			k.takeVector(i, x)
			k.I("VPMAXUW", x, columnMaxima(i), columnMaxima(i))
		}
		k.I("VPUNPCKLWD", b, a, t)
		k.I("VPUNPCKHWD", b, a, a)
		k.I("VPMAXUW", t, a, a)
		p.give(t)
		p.give(b)
		tree = k.fold(tree, a, r, most, "VPMAXUW", p)
		k.I("ADDQ", k.stride, k.row)
	}
	if k.global {
		k.I("VSHUFI32X4", 0xdd, tree[1], tree[0], Z(13))
		k.I("VSHUFI32X4", 0x88, tree[1], tree[0], Z(12))
		for j := range 4 { // of the first vector of a row, and of the second
			if v := Z(12 + j%2); j < 2 {
				k.rowFactors(j, "VPSLLD", 16, v)
			} else {
				k.rowFactors(j, "VPANDD", zUpper, v)
			}
		}
		return
	}
	k.I("VMOVDQA64", tree[0], Z(13))
	k.rowFactors(0, "VPSLLD", 16, Z(13))
	k.rowFactors(1, "VPANDD", zUpper, Z(13))
}

// fold adds the maxima of row r to a tree of those before, which are as many as
// the number of rows has bits; steps that would make one of more than most rows are left
// out.
func (fn *Func) fold(tree []Vec, leaf Vec, r, most int, greater string, p *pool) []Vec {
	tree = append(tree, leaf)
	for n := 2; r&(n-1) == n-1 && n <= most; n *= 2 {
		a, b := tree[len(tree)-2], tree[len(tree)-1]
		t := p.take()
		var s sequence
		s.foldMaxima(greater, n, a, b, t)
		fn.Emit(s)
		p.give(t)
		p.give(b)
		tree = tree[:len(tree)-1]
	}
	return tree
}

// rowFactors stores scales and factors of 16 rows in one part of the columns, whose
// amaxes an instruction takes to Z0.
func (k *both) rowFactors(j int, mnemonic string, operands ...any) {
	k.I(mnemonic, append(operands, Z(0))...)
	k.Emit(k.factorsOf(k.room.At(bothScales + 16*j)))
	k.I("ADDQ", k.columnStep(), k.write)
}

// columnFactors stores scales and factors of the columns of a part.
func (k *both) columnFactors() {
	k.Comment("factors of columns")
	for q := range 4 {
		if k.source == 32 {
			k.I("VMOVDQA64", columnMaxima(q), Z(0))
		} else if q%2 == 0 {
			k.I("VPSLLD", 16, columnMaxima(q/2), Z(0))
		} else {
			k.I("VPANDD", columnMaxima(q/2), zUpper, Z(0))
		}
		k.I("VPMAXUD", Z(0), zAmax, zAmax)
		k.I("LEAQ", k.room.At(bothColumns+k.columnStep()*q), k.write)
		k.Emit(k.factorsOf(k.staged.At(4*k.stagedBytes() + 16*q)))
	}
}

// columnScales stores the scales of the columns of a tile.
func (k *both) columnScales() {
	k.Comment("scales of columns")
	base, parts := bothStaged+4*k.stagedBytes(), k.parts()
	for half := range 2 {
		p := newPool(18)
		lists := make([][]Vec, parts)
		for part := range lists {
			for q := range 2 {
				v := p.take().X()
				k.I("VMOVDQU", k.room.At(base+part*k.stagedBytes()/parts+16*(2*half+q)), v)
				lists[part] = append(lists[part], v)
			}
			if k.source == 16 { // back in order
				lists[part] = k.alternate("BW", lists[part][:1], lists[part][1:], p)
			}
		}
		k.storeLists(lists, k.room.At(32*parts*half), p)
	}
	k.I("MOVQ", k.FP("columnScales"), k.rowScales)
	k.I("MOVQ", k.FP("columnScaleStride"), k.row)
	for c := range tileSide {
		k.moveScales(k.room.At(parts*c), k.rowScales.At(0))
		k.I("ADDQ", k.row, k.rowScales)
	}
	k.I("MOVQ", k.rowScales, k.FP("columnScales"))
}

// storeLists stores lists of scales, two or four, so that those of a line are side by side.
func (k *both) storeLists(lists [][]Vec, to Mem, p *pool) {
	for _, unit := range []string{"BW", "WD"} {
		var next [][]Vec
		for i := 0; i+1 < len(lists); i += 2 {
			next = append(next, k.alternate(unit, lists[i], lists[i+1], p))
		}
		if len(next) > 0 {
			lists = next
		}
	}
	for i, v := range lists[0] {
		k.I("VMOVDQU", v, to.At(16*i))
	}
}

// alternate returns the units of two lists by turns.
func (k *both) alternate(unit string, a, b []Vec, p *pool) (list []Vec) {
	for i := range a {
		t := p.take().X()
		k.I("VPUNPCKL"+unit, b[i], a[i], t)
		k.I("VPUNPCKH"+unit, b[i], a[i], a[i])
		p.give(b[i])
		list = append(list, t, a[i])
	}
	return list
}

// moveScales moves the scales of a line of a tile.
func (k *both) moveScales(from, to Mem) {
	if k.global {
		k.I("MOVL", from, k.t)
		k.I("MOVL", k.t, to)
		return
	}
	k.I("MOVWLZX", from, k.t)
	k.I("MOVW", k.t, to)
}
