package asm

import (
	"fmt"
	"math/bits"
)

// A measure256 writes the kernel of measureRow for AVX2, block by block. The lanes stay in memory: of a block,
// registers have the sums of lanes 0 to 7, then those of lanes 8 to 15 are added, as measure.total does first.
type measure256 struct {
	*Func
	want, got, limits, second, step, lanes, ratios Reg // second: the limit of the second half of a block
	blocks, done, t                                Reg
	abs, one, zero                                 Sym
}

// The registers of measure256.
var (
	measureSums256  = []Vec{Y(0), Y(1), Y(2), Y(3)} // Σx², Σd², Σx·d, Σd; then X0 has the four totals
	measureTotal256 = X(0)
	measureMag256   = Y(4)                // Σ|x|
	measureOver256  = Y(5)                // signs: a ratio is beyond its bound
	measureFlush256 = Y(6)                // counts
	measureSat256   = Y(7)                // counts
	measureX256     = []Vec{Y(8), Y(9)}   // of both halves of the block
	measureD256     = []Vec{Y(10), Y(11)} // wanted - got
	measureBound256 = Y(14)               // the next number above the worst ratio of each lane
	measureAbs256   = Y(15)
)

const measureFlags256 = 32 // offset of the second count in the frame

func measureRows256(f *File) {
	repeat := func(word uint32) []byte {
		var all []uint32
		for range 8 {
			all = append(all, word)
		}
		return words(all...)
	}
	abs, one, zero := f.Table("abs256", repeat(0x7fffffff)), f.Table("one256", repeat(1)), f.Table("zero256", repeat(0))
	fn := f.Func("sumsAVX2", `sumsAVX2 is sums32, or with want in 2 bytes each sums16, but it stops only before a block that addSingle
rejects.`, "want *byte, size int, got, limits *float32, step, next, blocks int, l *lanes, ratios *float32) (done int")
	k := &measure256{Func: fn, abs: abs, one: one, zero: zero}
	k.write()
}

func (k *measure256) write() {
	k.want, k.got, k.limits, k.step = k.Arg("want"), k.Arg("got"), k.Arg("limits"), k.Arg("step")
	k.blocks, k.lanes, k.ratios = k.Arg("blocks"), k.Arg("l"), k.Arg("ratios")
	k.done, k.second, k.t = k.GP("blocks done"), k.GP("limit of the second half"), k.GP("scratch")
	k.Frame(64)
	k.Note(measureSums256[0], "Σx², of the next three Σd², Σx·d, Σd; then the four totals")
	k.Note(measureMag256, "Σ|x|")
	k.Note(measureOver256, "signs: a ratio is beyond its bound")
	k.Note("Y6, Y7", "flushed and saturated elements")
	block, accept, unusual, update, next, end := k.NewLabel("block"), k.NewLabel("accept"), k.NewLabel("unusual"), k.NewLabel("update"),
		k.NewLabel("next"), k.NewLabel("end")
	k.I("XORL", k.done, k.done)
	k.I("VMOVUPS", k.abs, measureAbs256)
	k.I("VPXOR", Y(12), Y(12), Y(12))
	for _, at := range []int{0, measureFlags256} {
		k.I("VMOVDQU", Y(12), SP.At(at))
	}
	k.Place(block)
	k.I("CMPQ", k.done, k.blocks)
	k.Jump("JGE", end)
	k.I("LEAQ", k.limits.At(0).By(k.step, 1), k.second)
	for _, v := range []Vec{measureOver256, measureFlush256, measureSat256} {
		k.I("VPXOR", v, v, v)
	}
	for h := range 2 {
		k.half(h)
	}
	k.total()
	k.check(unusual)
	k.Place(accept)
	k.add()
	k.I("VMOVMSKPS", measureOver256, k.t)
	k.I("TESTQ", k.t, k.t)
	k.Jump("JNZ", update) // rarely
	k.Place(next)
	k.I("MOVQ", k.FP("size"), k.t)
	k.I("SHLQ", bits.Len(measureBlock-1), k.t)
	k.I("ADDQ", k.t, k.want)
	k.I("ADDQ", measureBlock*4, k.got)
	k.I("MOVQ", k.second, k.limits)
	k.I("ADDQ", k.FP("next"), k.limits)
	k.I("ADDQ", 4, k.ratios)
	k.I("ADDQ", 1, k.done)
	k.Jump("JMP", block)

	k.Place(unusual)
	k.exact(accept, end)
	k.Place(update)
	k.worst()
	k.Jump("JMP", next)
	k.Place(end)
	k.store()
	k.I("MOVQ", k.done, k.FP("done"))
	k.Return()
}

// read reads lanes 8h to 8h+7 of both halves of the block, and subtracts the others.
func (k *measure256) read(h int) {
	words, subtract := k.NewLabel("words"), k.NewLabel("subtract")
	at := [2]int{8 * h, 16 + 8*h}
	k.I("CMPQ", k.FP("size"), 4)
	k.Jump("JNE", words)
	for q, x := range measureX256 {
		k.I("VMOVUPS", k.want.At(4*at[q]), x)
	}
	k.Jump("JMP", subtract)
	k.Place(words)
	for q, x := range measureX256 {
		k.I("VPMOVZXWD", k.want.At(2*at[q]), x)
		k.I("VPSLLD", 16, x, x)
	}
	k.Place(subtract)
	for q, x := range measureX256 {
		k.I("VSUBPS", k.got.At(4*at[q]), x, measureD256[q])
	}
}

// bound sets measureBound256 for lanes 8h to 8h+7.
func (k *measure256) bound(h int) {
	k.I("VMOVDQU", k.lanes.At(measureWorst+32*h), measureBound256)
	k.I("VPADDD", k.one, measureBound256, measureBound256)
}

// half adds lanes 8h to 8h+7 to the sums of the block.
func (k *measure256) half(h int) {
	x, d := measureX256, measureD256
	k.read(h)
	pair := func(sum Vec, add func(q int, to Vec)) {
		to := sum
		if h == 1 {
			to = Y(12)
		}
		add(0, to)
		add(1, Y(13))
		k.I("VADDPS", Y(13), to, to)
		if h == 1 {
			k.I("VADDPS", to, sum, sum)
		}
	}
	for i, factors := range [][2][]Vec{{x, x}, {d, d}, {x, d}} {
		pair(measureSums256[i], func(q int, to Vec) { k.I("VMULPS", factors[0][q], factors[1][q], to) })
	}
	sum := func(a []Vec, to Vec) {
		if h == 0 {
			k.I("VADDPS", a[1], a[0], to)
			return
		}
		k.I("VADDPS", a[1], a[0], Y(12))
		k.I("VADDPS", Y(12), to, to)
	}
	sum(d, measureSums256[3])
	for q := range 2 {
		k.I("VANDPS", x[q], measureAbs256, x[q])
		k.I("VANDPS", d[q], measureAbs256, d[q])
	}
	sum(x, measureMag256)
	k.bound(h)
	for q, limit := range []Reg{k.limits, k.second} {
		const equal, notEqual = 0x00, 0x04
		k.I("VMOVUPS", k.got.At(4*(16*q+8*h)), Y(12))
		k.I("VCMPPS", equal, k.zero, Y(12), Y(12))
		k.I("VCMPPS", notEqual, k.zero, x[q], Y(13))
		k.I("VANDPS", Y(13), Y(12), Y(12)) // zero now, and not before
		k.I("VPSUBD", Y(12), measureFlush256, measureFlush256)
		k.I("VBROADCASTSS", limit.At(0), Y(12))
		k.I("VCMPPS", greaterThan, Y(12), x[q], Y(12))
		k.I("VPSUBD", Y(12), measureSat256, measureSat256)
		k.I("VFMSUB213PS", d[q], measureBound256, x[q]) // bound·x - d, negative where d/x exceeds the bound
		k.I("VANDPS", Y(13), x[q], x[q])
		k.I("VORPS", x[q], measureOver256, measureOver256)
	}
}

// total sets X0 to Σx², Σd², Σx·d and Σd.
func (k *measure256) total() {
	for i, v := range measureSums256 {
		k.I("VEXTRACTF128", 1, v, X(8+i))
		k.I("VADDPS", X(8+i), v.X(), v.X())
	}
	for i := range 2 {
		a, b := measureSums256[2*i].X(), measureSums256[2*i+1].X()
		k.I("VUNPCKLPD", b, a, X(8+i))
		k.I("VUNPCKHPD", b, a, X(10+i))
		k.I("VADDPS", X(10+i), X(8+i), X(8+i))
	}
	k.I("VSHUFPS", 0x88, X(9), X(8), X(0))
	k.I("VSHUFPS", 0xdd, X(9), X(8), X(1))
	k.I("VADDPS", X(1), X(0), measureTotal256)
}

// check sets X1 to the ratio of the block, and jumps if its sums are beyond their bounds.
func (k *measure256) check(unusual Label) {
	k.I("VPSHUFD", 0x55, measureTotal256, X(2))
	k.I("VDIVSS", X(2), measureTotal256, X(1))
	for _, v := range []Vec{measureTotal256, X(2)} {
		k.moderate(v, unusual)
	}
	k.I("VMOVD", X(1), k.t)
	k.I("CMPL", k.t, fmt.Sprintf("$%d", measureTwo))
	k.Jump("JLT", unusual)
}

// moderate jumps if the first dword of v is beyond the bounds of a sum.
func (k *measure256) moderate(v Vec, beyond Label) {
	k.I("VMOVD", v, k.t)
	k.I("SUBL", fmt.Sprintf("$%d", measureLow), k.t)
	k.I("CMPL", k.t, fmt.Sprintf("$%d", measureRange))
	k.Jump("JCC", beyond)
}

// add adds the sums of the block to the lanes, and stores the ratio in X1.
func (k *measure256) add() {
	k.I("VMOVSS", X(1), k.ratios.At(0))
	k.I("VCVTPS2PD", measureTotal256, Y(2))
	k.I("VADDPD", k.lanes.At(0), Y(2), Y(2))
	k.I("VMOVUPD", Y(2), k.lanes.At(0))
	k.I("VEXTRACTF128", 1, measureMag256, X(3))
	for i, v := range []Vec{measureMag256, Y(3)} {
		k.I("VCVTPS2PD", v.X(), v)
		k.I("VADDPD", k.lanes.At(measureMagnitudes+32*i), v, v)
		k.I("VMOVUPD", v, k.lanes.At(measureMagnitudes+32*i))
	}
	for i, v := range []Vec{measureSat256, measureFlush256} {
		k.I("VPADDD", SP.At(measureFlags256*i), v, v)
		k.I("VMOVDQU", v, SP.At(measureFlags256*i))
	}
}

// exact sets the ratio to 0 and jumps to accept if the block is exact, and its sum is within the bounds or it is zero.
// Otherwise it jumps to end.
func (k *measure256) exact(accept, end Label) {
	anyX, anyD := Y(12), Y(13)
	for h := range 2 {
		k.read(h)
		for q := range 2 {
			x, d := measureX256[q], measureD256[q]
			if h+q == 0 {
				k.I("VMOVAPS", x, anyX)
				k.I("VMOVAPS", d, anyD)
				continue
			}
			k.I("VORPS", x, anyX, anyX)
			k.I("VORPS", d, anyD, anyD)
		}
	}
	k.I("VPTEST", measureAbs256, anyD)
	k.Jump("JNZ", end)
	k.I("VXORPS", X(1), X(1), X(1))
	k.I("VPTEST", measureAbs256, anyX)
	k.Jump("JZ", accept)
	k.moderate(measureTotal256, end)
	k.Jump("JMP", accept)
}

// worst raises the worst ratios by those of the block that are beyond their bounds.
func (k *measure256) worst() {
	const notEqual = 0x04
	for h := range 2 {
		k.bound(h)
		k.I("VMOVUPS", k.lanes.At(measureWorst+32*h), Y(2))
		k.read(h)
		for q := range 2 {
			x, d := measureX256[q], measureD256[q]
			k.I("VANDPS", x, measureAbs256, x)
			k.I("VANDPS", d, measureAbs256, d)
			k.I("VCMPPS", notEqual, k.zero, x, Y(13))
			k.I("VDIVPS", x, d, Y(12))
			k.I("VFMSUB213PS", d, measureBound256, x)
			k.I("VPSRAD", 31, x, x)
			k.I("VANDPS", Y(13), x, x)
			k.I("VANDPS", x, Y(12), Y(12)) // the ratio where it counts, 0 elsewhere
			k.I("VMAXPS", Y(2), Y(12), Y(2))
		}
		k.I("VMOVUPS", Y(2), k.lanes.At(measureWorst+32*h))
	}
}

// store adds the counts to those of the lanes.
func (k *measure256) store() {
	k.I("VMOVDQU", SP.At(0), Y(7))
	k.I("VMOVDQU", SP.At(measureFlags256), Y(6))
	k.I("VPHADDD", Y(6), Y(7), Y(4)) // pairs of one count and the other
	k.I("VEXTRACTI128", 1, Y(4), X(5))
	k.I("VPADDD", X(5), X(4), X(4))
	k.I("VPHADDD", X(4), X(4), X(4))
	for i := range 2 {
		k.I("VPEXTRD", i, X(4), k.t)
		k.I("ADDQ", k.t, k.lanes.At(measureCounts+8*i))
	}
}
