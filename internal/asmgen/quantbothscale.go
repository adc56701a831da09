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

// scaleHalf finds the maxima of the columns of half a tile, and stores scales and
// factors of its rows.
func (k *both) scaleHalf() {
	k.Comment("scales of 32 rows, and the maxima of their columns")
	k.I("MOVQ", k.src, k.row)
	k.I("LEAQ", k.room.At(bothStaged), k.t)
	k.I("CMPQ", k.staged, k.t)
	upper := k.NewLabel("upper")
	k.Jump("JEQ", upper)
	k.I("MOVQ", k.stride, k.t)
	k.I("SHLQ", 5, k.t)
	k.I("ADDQ", k.t, k.row)
	k.Place(upper)
	vectors := k.rowBytes() / 64
	for i := range vectors {
		k.I("VPXORD", columnMaxima(i), columnMaxima(i), columnMaxima(i))
	}
	k.I("MOVQ", k.row, k.from)
	if k.alone {
		k.maximaOfColumns()
		return
	}
	k.I("MOVQ", k.room, k.write)
	k.I("MOVQ", 2, k.m)
	loop := k.Label("rows")
	if k.source == 32 {
		k.scaleRows()
	} else {
		k.scaleRowsBF16()
	}
	k.Comment("scales of 16 rows, two each")
	k.I("VMOVDQU", k.room.At(bothScales), X(0))
	k.I("VMOVDQU", k.room.At(bothScales+16), X(1))
	k.I("VPUNPCKLBW", X(1), X(0), X(2))
	k.I("VPUNPCKHBW", X(1), X(0), X(0))
	k.I("VMOVDQU", X(2), k.room.At(bothScales))
	k.I("VMOVDQU", X(0), k.room.At(bothScales+16))
	for r := range 16 {
		k.I("MOVWLZX", k.room.At(bothScales+2*r), k.t)
		k.I("MOVW", k.t, k.rowScales.At(0))
		k.I("ADDQ", k.FP("rowScaleStride"), k.rowScales)
	}
	k.I("SUBQ", 1, k.m)
	k.Jump("JNZ", loop)
}

// maximaOfColumns is scaleHalf of columns alone.
func (k *both) maximaOfColumns() {
	greater := map[int]string{32: "VPMAXUD", 16: "VPMAXUW"}[k.source]
	for range 32 {
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
			trees[j] = k.fold(trees[j], a, r, "VPMAXUD", p)
		}
		k.I("ADDQ", k.stride, k.row)
	}
	first, second := trees[0][0], trees[1][0]
	k.I("VMOVDQA64", second, Z(13))
	k.rowFactors(0, "VMOVDQA64", first)
	k.rowFactors(1, "VMOVDQA64", Z(13))
}

// scaleRowsBF16 is 16 rows of BF16. Maxima of both halves of the columns are folded
// as the words of dwords.
func (k *both) scaleRowsBF16() {
	p := newPool(14)
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
		tree = k.fold(tree, a, r, "VPMAXUW", p)
		k.I("ADDQ", k.stride, k.row)
	}
	k.I("VMOVDQA64", tree[0], Z(13))
	k.rowFactors(0, "VPSLLD", 16, Z(13))
	k.rowFactors(1, "VPANDD", zUpper, Z(13))
}

// fold adds the maxima of row r to a tree of those before, which are as many as
// the number of rows has bits.
func (k *both) fold(tree []Vec, leaf Vec, r int, greater string, p *pool) []Vec {
	tree = append(tree, leaf)
	for n := 2; r&(n-1) == n-1; n *= 2 {
		a, b := tree[len(tree)-2], tree[len(tree)-1]
		t := p.take()
		var s sequence
		s.foldMaxima(greater, n, a, b, t)
		k.Emit(s)
		p.give(t)
		p.give(b)
		tree = tree[:len(tree)-1]
	}
	return tree
}

// rowFactors stores scales and factors of 16 rows in one half of the columns, whose
// amaxes an instruction takes to Z0.
func (k *both) rowFactors(j int, mnemonic string, operands ...any) {
	k.I(mnemonic, append(operands, Z(0))...)
	k.Emit(k.exponentFactors(k.room.At(bothScales + 16*j)))
	k.I("ADDQ", 128, k.write)
}

// columnFactors stores scales and factors of the columns of half a tile.
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
		k.I("LEAQ", k.room.At(bothColumns+128*q), k.write)
		k.Emit(k.exponentFactors(k.staged.At(4*k.stagedBytes() + 16*q)))
	}
}
