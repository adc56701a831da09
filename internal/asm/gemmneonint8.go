package asm

import "fmt"

// A neonInt8 writes a micro-kernel of arm64 for wide int8 panels: a sub-panel of A of 4 lanes by 8 lanes of B, with products of int8
// matrices (SMMLA). A sum holds two rows of A by two of B. Instructions of a block, and those of a product of 32 codes, of which
// it has 32 (NVFP4: 16):
//
//	MX   75   2.3
//	NV   63   3.9
type neonInt8 struct {
	name  string
	block int
	add   func(fn *Func, a, b Neon, sum, total Neon) // adds a sum times its scales to the total
}

var neonInt8s = []neonInt8{
	{"MX", 32, func(fn *Func, a, b, sum, total Neon) {
		fn.I("VFSUB", a.S4(), sum.S4(), sum.S4())
		fn.I("VFMLA", b.S4(), sum.S4(), total.S4())
	}},
	{"NV", 16, func(fn *Func, a, b, sum, total Neon) {
		scale := V(26)
		fn.I("VSCVTF", sum.S4(), sum.S4())
		fn.I("VFMUL", a.S4(), b.S4(), scale.S4())
		fn.I("VFMLA", scale.S4(), sum.S4(), total.S4())
	}},
}

// neonPairs sets two registers to lanes 0 and 1, and 2 and 3, of a register, each twice.
func neonPairs(fn *Func, from Neon, to []Neon) {
	for i, zip := range []string{"VZIP1", "VZIP2"} {
		fn.I(zip, from.S4(), from.S4(), to[i].S4())
	}
}

func (d neonInt8) write(f *File) {
	const rows = 4
	name := fmt.Sprintf("dot%s_%dx8", d.name, rows)
	fn := f.Func(name, fmt.Sprintf("%s is a microkernel for wide int8 panels with chunks of %d (see kernel).", name, d.block), dotParams)
	chunks, a, b, c, ldc := fn.Arg("chunks"), fn.Arg("a"), fn.Arg("b"), fn.Arg("c"), fn.Arg("ldc")
	from, next, tmp := fn.GP("previous elements of C"), fn.GP("distance of their rows"), fn.GP("scratch")
	sums, totals, as, bs := neonRange(0, 8), neonRange(8, 8), neonRange(16, 2), neonRange(18, 4)
	fn.Note("V0…V7", "sums of a block: two rows of A by two of B")
	fn.Note("V8…V15", "their totals")
	fn.Note("V16…V21", "a; b")
	for _, total := range totals {
		neonZero(fn, total)
	}
	chunk := fn.Label("chunk")
	steps := d.block / 4
	fn.I("FMOVQ", a.At((steps+1)*rows*4), "F16")
	for i := range sums { // each in its place: a copy would take as many
		fn.I([]string{"VZIP1", "VZIP2"}[i/4], V(16).S4(), V(16).S4(), sums[i].S4())
	}
	for range steps / 2 {
		fn.I("VLD1.P", a.post(2*rows*4), list(neonEach(Neon.B16, as)...))
		fn.I("VLD1.P", b.post(2*neonTileStep), list(neonEach(Neon.B16, bs)...))
		for i := range sums {
			fn.I("VSMMLA", bs[i%4].B16(), as[i/4].B16(), sums[i].S4())
		}
	}
	fn.I("VLD1.P", a.post(2*rows*4), list(neonEach(Neon.S4, as)...))
	fn.I("VLD1.P", b.post(neonTileStep), list(neonEach(Neon.S4, bs[:2])...))
	scalesA, scalesB := neonRange(20, 2), neonRange(22, 4)
	neonPairs(fn, as[0], scalesA)
	for j, scale := range scalesB {
		fn.I("VDUP", bs[j/2].D2().lane(j%2), scale.D2())
	}
	for i, sum := range sums {
		d.add(fn, scalesA[i/4], scalesB[i%4], sum, totals[i])
	}
	fn.I("SUBS", 1, chunks)
	fn.Jump("BNE", chunk)

	fn.Comment("C (+)= alpha · total")
	neonPrevious(f, fn, c, ldc, from, next, tmp)
	fn.I("FMOVS", fn.FP("alpha"), "F16")
	for i := range rows {
		apart, previous := neonRange(0, 4), neonEach(Neon.S4, neonRange(17, 2))
		if i%2 == 0 {
			neonApart(fn, totals[i/2*4:], apart)
		}
		fn.I("VLD1", "("+string(from)+")", list(previous...))
		fn.I("ADD", next, from)
		for j, p := range previous {
			fn.I("VFMLA.S", V(16).S4().lane(0), apart[i%2*2+j].S4(), p)
		}
		fn.I("VST1", list(previous...), "("+string(c)+")")
		fn.I("ADD", ldc, c)
	}
	fn.Return()
}
