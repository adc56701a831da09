package asm

// neonTile writes a micro-kernel of arm64 for panels of 8 lanes. A step takes 2 loads, for 8 elements of A and of B, or
// pairs of BF16 elements, and 16 FMLA or BFDOT by element: as many sums as hide the latency of four units.
// The end of a chunk takes 8 rows of 2 loads or stores and 5 instructions.
func neonTile(f *File, panels, dot string, lanes func(Neon) Neon) {
	const rows, panel = 8, 32 // panel: bytes of a step
	name := "dot" + panels + "_8x8"
	fn := f.Func(name, name+" is a microkernel for "+panels+" panels of 8 lanes (see kernel).", dotParams)
	chunks, steps, a, b := fn.Arg("chunks"), fn.Arg("steps"), fn.Arg("a"), fn.Arg("b")
	c, ldc := fn.Arg("c"), fn.Arg("ldc")
	k, row := fn.GP("steps left"), fn.GP("row of C")
	from, next := fn.GP("previous elements of C"), fn.GP("distance of their rows")
	sum := func(i, j int) Neon { return V(2*i + j).S4() }
	bs, as, factor := []Neon{V(16).S4(), V(17).S4()}, []Neon{V(18).S4(), V(19).S4()}, V(20)
	fn.Note("V0…V15", "sums of the chunk, row by row")
	fn.Note("V16 V17", "b")
	fn.Note("V18 V19", "a")

	fn.I("LSL", 2, ldc)
	fn.I("MOVD", c, from)
	fn.I("MOVD", ldc, next)
	add := fn.NewLabel("add")
	fn.I("MOVBU", fn.FP("accumulate"), k)
	fn.I("CBNZ", k, string(add))
	fn.I("MOVD", "$"+minusZeros(f, panel).String(), from)
	fn.I("MOVD", 0, next)
	fn.Place(add)
	chunk := fn.Label("chunk")
	for i := range 2 * rows {
		neonZero(fn, V(i))
	}
	fn.I("MOVD", steps, k)
	loop := fn.Label("loop")
	fn.I("VLD1.P", b.post(panel), list(bs...))
	fn.I("VLD1.P", a.post(panel), list(as...))
	for i := range rows {
		for j := range bs {
			fn.I(dot, as[i/4].lane(i%4), lanes(bs[j]), sum(i, j))
		}
	}
	fn.I("SUBS", 1, k)
	fn.Jump("BNE", loop)

	fn.Comment("C (+)= alpha · scale of b · scale of a · sum")
	fn.I("VLD1.P", b.post(panel), list(bs...))
	fn.I("VLD1.P", a.post(panel), list(as...))
	fn.I("FMOVS", fn.FP("alpha"), "F20")
	for _, scale := range bs {
		fn.I("VFMUL.S", factor.S4().lane(0), scale, scale)
	}
	fn.I("MOVD", c, row)
	for i := range rows {
		scales, previous := []Neon{V(20).S4(), V(21).S4()}, []Neon{V(22).S4(), V(23).S4()}
		fn.I("VLD1", "("+string(from)+")", list(previous...))
		fn.I("ADD", next, from)
		for j := range bs {
			fn.I("VFMUL.S", as[i/4].lane(i%4), bs[j], scales[j])
			fn.I("VFMLA", sum(i, j), scales[j], previous[j])
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
