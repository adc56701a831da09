package asm

// A neonTile writes a micro-kernel of arm64 for panels of 8 lanes. A step takes 2 loads, for 8 elements of A and of B, and 16 FMLA by
// element: as many sums as hide the latency of four units. Two steps of wide panels take 2 loads, for 4 BF16 elements of each
// lane, and 16 BFMMLA: of two rows of A and two of B, whose sums the end of a chunk takes apart with 16 instructions.
// It takes 8 rows of 2 loads or stores and 5 instructions, too.
type neonTile struct {
	panels string
	steps  int // of a loop
	loads  int // registers of a step of A, or B
	dot    func(t neonTile, fn *Func, as, bs []Neon)
	rows   func(fn *Func, i int) []Neon // sums of row i, taken in order
}

var neonTiles = []neonTile{
	{"F32", 1, 2, neonTile.byElement, func(_ *Func, i int) []Neon { return neonRange(2*i, 2) }},
	{"BF16", 2, 4, neonTile.byPairs, func(fn *Func, i int) []Neon {
		pairs := neonRange(24, 4)
		if i%2 == 0 {
			neonApart(fn, neonRange(2*i, 4), pairs)
		}
		return pairs[i%2*2:][:2]
	}},
}

// neonApart sets rows to two rows of sums, 4 each, of two rows of A and 4 pairs of rows of B.
func neonApart(fn *Func, sums, rows []Neon) {
	neonShuffle(fn, Neon.D2, []Neon{sums[0], sums[2], sums[1], sums[3]}, []Neon{rows[0], rows[2], rows[1], rows[3]})
}

func (t neonTile) byElement(fn *Func, as, bs []Neon) {
	for i := range neonTileRows {
		for j, b := range bs {
			fn.I("VFMLA.S", as[i/4].S4().lane(i%4), b.S4(), V(2*i+j).S4())
		}
	}
}

func (t neonTile) byPairs(fn *Func, as, bs []Neon) {
	for i, a := range as {
		for j, b := range bs {
			fn.I("VBFMMLA", b.H8(), a.H8(), V(4*i+j).S4())
		}
	}
}

const neonTileRows, neonTileStep = 8, 32 // and bytes of a step of a panel

// neonEach returns the registers with the same lanes.
func neonEach(lanes func(Neon) Neon, regs []Neon) []Neon {
	var all []Neon
	for _, v := range regs {
		all = append(all, lanes(v))
	}
	return all
}

// neonPrevious sets from to the previous elements of C, and next to the distance of their rows: C, or zeros if not accumulating.
func neonPrevious(f *File, fn *Func, c, ldc, from, next, tmp Reg) {
	fn.I("LSL", 2, ldc)
	fn.I("MOVD", c, from)
	fn.I("MOVD", ldc, next)
	add := fn.NewLabel("add")
	fn.I("MOVBU", fn.FP("accumulate"), tmp)
	fn.I("CBNZ", tmp, string(add))
	fn.I("MOVD", "$"+minusZeros(f, neonTileStep).String(), from)
	fn.I("MOVD", 0, next)
	fn.Place(add)
}

func (t neonTile) write(f *File) {
	name := "dot" + t.panels + "_8x8"
	fn := f.Func(name, name+" is a microkernel for "+t.panels+" panels of 8 lanes (see kernel).", dotParams)
	chunks, steps, a, b := fn.Arg("chunks"), fn.Arg("steps"), fn.Arg("a"), fn.Arg("b")
	c, ldc := fn.Arg("c"), fn.Arg("ldc")
	k, row := fn.GP("steps left"), fn.GP("row of C")
	from, next := fn.GP("previous elements of C"), fn.GP("distance of their rows")
	fn.Note("V0…V15", "sums of the chunk")
	fn.Note("V16…V23", "b; a")
	neonPrevious(f, fn, c, ldc, from, next, k)
	chunk := fn.Label("chunk")
	for i := range 2 * neonTileRows {
		neonZero(fn, V(i))
	}
	fn.I("MOVD", steps, k)
	loop := fn.Label("loop")
	bs, as := neonRange(16, t.loads), neonRange(16+t.loads, t.loads)
	fn.I("VLD1.P", b.post(t.steps*neonTileStep), list(neonEach(Neon.S4, bs)...))
	fn.I("VLD1.P", a.post(t.steps*neonTileStep), list(neonEach(Neon.S4, as)...))
	t.dot(t, fn, as, bs)
	fn.I("SUBS", t.steps, k)
	fn.Jump("BNE", loop)

	fn.Comment("C (+)= alpha · scale of b · scale of a · sum")
	bs, as = neonEach(Neon.S4, neonRange(16, 2)), neonEach(Neon.S4, neonRange(18, 2))
	fn.I("VLD1.P", b.post(neonTileStep), list(bs...))
	fn.I("VLD1.P", a.post(neonTileStep), list(as...))
	fn.I("FMOVS", fn.FP("alpha"), "F20")
	for _, scale := range bs {
		fn.I("VFMUL.S", V(20).S4().lane(0), scale, scale)
	}
	fn.I("MOVD", c, row)
	for i := range neonTileRows {
		scales, previous := neonEach(Neon.S4, neonRange(20, 2)), neonEach(Neon.S4, neonRange(22, 2))
		sums := t.rows(fn, i)
		fn.I("VLD1", "("+string(from)+")", list(previous...))
		fn.I("ADD", next, from)
		for j := range bs {
			fn.I("VFMUL.S", as[i/4].lane(i%4), bs[j], scales[j])
			fn.I("VFMLA", sums[j].S4(), scales[j], previous[j])
		}
		fn.I("VST1", list(previous...), "("+string(row)+")")
		fn.I("ADD", ldc, row)
	}
	fn.I("MOVD", c, from)
	fn.I("MOVD", ldc, next)
	fn.I("SUBS", 1, chunks)
	fn.Jump("BNE", chunk)
	fn.Return()
}
