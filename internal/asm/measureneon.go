package asm

import (
	"fmt"
	"math/bits"
)

// A measureNEON writes the kernel of measureRow for arm64, block by block. A block is 8 vectors of x and of d;
// vector q of each half has lanes 4q to 4q+3 of package measure. The sums are added and checked first, so
// that a block that addSingle rejects changes nothing. A block of 32 elements takes about 220 instructions,
// and 70 more where a worst ratio rises.
type measureNEON struct {
	*Func
	want, size, got, limits, step, next, blocks, lanes, ratios Reg
	done, t, u, p                                              Reg
}

// The registers of measureNEON. V16 to V23 are scratch.
var (
	measureXNEON      = [2][]Neon{neonRange(0, 4), neonRange(4, 4)}  // of both halves of the block
	measureDNEON      = [2][]Neon{neonRange(8, 4), neonRange(12, 4)} // wanted - got
	measureBoundNEON  = neonRange(24, 4)                             // the next number above the worst ratio of each lane
	measureSatNEON    = V(28)                                        // counts
	measureFlushNEON  = V(29)                                        // counts
	measureTotalsNEON = neonRange(30, 2)                             // Σx², Σd², Σx·d, Σd
)

// measureRowsNEON writes the kernel.
func measureRowsNEON() []*File {
	f := ARM64.NewFile("measure", "sums")
	fn := f.Func("sumsNEON", `sumsNEON adds blocks of 32 elements, want in size bytes each (4: float32; 2: BF16), to the lanes, and sets
ratios[i] to Σx²/Σd² of block i, 0 if it is exact. It stops before a block that addSingle rejects, and returns the blocks done. A
limit bounds the magnitude of 16 elements; step is the bytes from the limit of the first half of a block to that of the second,
and next those from there to the next block.`,
		"want *byte, size int, got, limits *float32, step, next, blocks int, l *lanes, ratios *float32) (done int")
	k := &measureNEON{Func: fn}
	k.write()
	return []*File{f}
}

func (k *measureNEON) write() {
	k.want, k.size, k.got, k.limits = k.Arg("want"), k.Arg("size"), k.Arg("got"), k.Arg("limits")
	k.step, k.next, k.blocks = k.Arg("step"), k.Arg("next"), k.Arg("blocks")
	k.lanes, k.ratios = k.Arg("l"), k.Arg("ratios")
	k.done, k.t, k.u, k.p = k.GP("blocks done"), k.GP("scratch"), k.GP("scratch"), k.GP("position of a load")
	k.Note("V0…V15", "x and d of the block")
	k.Note("V24…V27", "the next number above each of the worst ratios")
	k.Note("V28 V29", "counts of saturated and flushed elements")
	k.Note("V30 V31", "Σx², Σd², Σx·d, Σd")
	k.I("MOVD", 0, k.done)
	k.I("VLD1", "("+string(k.lanes)+")", list(measureTotalsNEON[0].D2(), measureTotalsNEON[1].D2()))
	k.I("ADD", measureWorst, k.lanes, k.p)
	k.I("VLD1", "("+string(k.p)+")", neonList(Neon.S4, neonRange(0, 4)))
	k.setBounds(neonRange(0, 4))
	neonZero(k.Func, measureSatNEON)
	neonZero(k.Func, measureFlushNEON)

	block, accept, unusual, end := k.NewLabel("block"), k.NewLabel("accept"), k.NewLabel("unusual"), k.NewLabel("end")
	k.Place(block)
	k.I("CBZ", k.blocks, string(end))
	k.read()
	k.sums()
	k.check(unusual)
	k.Place(accept)
	k.I("FMOVS.P", "F18", k.ratios.post(4))
	k.addTotals()
	k.magnitudes()
	k.count()
	k.ratio()
	k.I("ADD", fmt.Sprintf("%s<<%d", k.size, bits.Len(measureBlock-1)), k.want)
	k.I("ADD", measureBlock*4, k.got)
	k.I("ADD", 1, k.done)
	k.I("SUB", 1, k.blocks)
	k.Jump("B", block)
	k.Place(unusual)
	k.exact(accept, end)
	k.Place(end)
	k.store()
	k.I("MOVD", k.done, k.FP("done"))
	k.Return()
}

// neonList is list with an arrangement.
func neonList(lanes func(Neon) Neon, regs []Neon) string {
	var all []Neon
	for _, r := range regs {
		all = append(all, lanes(r))
	}
	return list(all...)
}

// setBounds sets the bounds to the numbers above the worst ratios. It changes V19.
func (k *measureNEON) setBounds(worst []Neon) {
	k.I("VCMEQ", V(19).S4(), V(19).S4(), V(19).S4()) // -1
	for q, bound := range measureBoundNEON {
		k.I("VSUB", V(19).S4(), worst[q].S4(), bound.S4())
	}
}

// read reads the wanted elements of a block as float32, and subtracts the others.
func (k *measureNEON) read() {
	k.I("MOVD", k.want, k.p)
	float, wide := k.NewLabel("float"), k.NewLabel("wide")
	k.I("CMP", 4, k.size)
	k.Jump("BEQ", float)
	neonZero(k.Func, V(20))
	k.I("VLD1", "("+string(k.p)+")", neonList(Neon.H8, neonRange(16, 4)))
	for i := range 4 {
		neonShuffle(k.Func, Neon.H8, []Neon{V(20), V(16 + i)}, neonRange(2*i, 2))
	}
	k.Jump("B", wide)
	k.Place(float)
	k.I("VLD1.P", k.p.post(64), neonList(Neon.S4, measureXNEON[0]))
	k.I("VLD1", "("+string(k.p)+")", neonList(Neon.S4, measureXNEON[1]))
	k.Place(wide)
	k.I("MOVD", k.got, k.p)
	k.I("VLD1.P", k.p.post(64), neonList(Neon.S4, measureDNEON[0]))
	k.I("VLD1", "("+string(k.p)+")", neonList(Neon.S4, measureDNEON[1]))
	for h, x := range measureXNEON {
		for q, d := range measureDNEON[h] {
			k.I("VFSUB", d.S4(), x[q].S4(), d.S4())
		}
	}
}

// sums sets V16 to Σx², Σd², Σx·d and Σd, added in the order of measure.total.
func (k *measureNEON) sums() {
	x, d := measureXNEON, measureDNEON
	add := func(a, b, to Neon) { k.I("VFADD", b.S4(), a.S4(), to.S4()) }
	fold := func(quarter func(q int, to Neon), to Neon) {
		quarter(0, V(20))
		quarter(2, V(22))
		add(V(20), V(22), V(20))
		quarter(1, V(22))
		quarter(3, V(23))
		add(V(22), V(23), V(22))
		add(V(20), V(22), to)
	}
	product := func(a, b [2][]Neon) func(q int, to Neon) {
		return func(q int, to Neon) {
			k.I("VFMUL", a[0][q].S4(), b[0][q].S4(), to.S4())
			k.I("VFMUL", a[1][q].S4(), b[1][q].S4(), V(21).S4())
			add(to, V(21), to)
		}
	}
	fold(product(x, x), V(16))
	fold(product(d, d), V(17))
	fold(product(x, d), V(18))
	fold(func(q int, to Neon) { add(d[0][q], d[1][q], to) }, V(19))
	for i := 16; i < 20; i += 2 {
		neonShuffle(k.Func, Neon.D2, neonRange(i, 2), neonRange(20, 2))
		add(V(20), V(21), V(i))
	}
	k.I("VFADDP", V(18).S4(), V(16).S4(), V(16).S4())
}

// moderate jumps if the sum in a lane of V16 is beyond its bounds.
func (k *measureNEON) moderate(lane int, not Label) {
	k.I("VMOV", V(16).S4().lane(lane), k.t)
	k.I("SUBW", k.u, k.t)
	k.I("CMPW", k.p, k.t)
	k.Jump("BHS", not)
}

// check sets F18 to the ratio, and jumps if a sum or the ratio is beyond its bounds.
func (k *measureNEON) check(unusual Label) {
	k.I("VDUP", V(16).S4().lane(1), V(17).S4())
	k.I("FDIVS", "F17", "F16", "F18")
	k.I("MOVD", measureLow, k.u)
	k.I("MOVD", measureRange, k.p)
	k.moderate(0, unusual)
	k.moderate(1, unusual)
	k.I("VMOV", V(18).S4().lane(0), k.t)
	k.I("MOVD", measureTwo, k.u)
	k.I("CMPW", k.u, k.t)
	k.Jump("BLT", unusual)
}

// exact sets the ratio to 0 and jumps to accept if the block is exact, and within the bounds or all zero. Otherwise
// it jumps to end.
func (k *measureNEON) exact(accept, end Label) {
	zero := k.NewLabel("zero")
	k.anyBits(measureDNEON)
	k.I("CBNZW", k.t, string(end))
	neonZero(k.Func, V(18))
	k.I("MOVD", measureLow, k.u)
	k.I("MOVD", measureRange, k.p)
	k.moderate(0, zero)
	k.Jump("B", accept)
	k.Place(zero)
	k.anyBits(measureXNEON)
	k.I("CBZW", k.t, string(accept))
}

// anyBits sets t to zero if all magnitudes are zero. It changes V17.
func (k *measureNEON) anyBits(of [2][]Neon) {
	k.I("VORR", of[0][0].B16(), of[1][0].B16(), V(17).B16())
	for q := 1; q < 4; q++ {
		k.I("VORR", of[0][q].B16(), V(17).B16(), V(17).B16())
		k.I("VORR", of[1][q].B16(), V(17).B16(), V(17).B16())
	}
	k.I("VSHL", 1, V(17).S4(), V(17).S4())
	k.I("VUMAXV", V(17).S4(), V(17).S4())
	k.I("VMOV", V(17).S4().lane(0), k.t)
}

// addTotals adds V16 to the totals.
func (k *measureNEON) addTotals() {
	k.I("VFCVTL", V(16).S2(), V(17).D2())
	k.I("VFCVTL2", V(16).S4(), V(19).D2())
	for i, sum := range []Neon{V(17), V(19)} {
		k.I("VFADD", sum.D2(), measureTotalsNEON[i].D2(), measureTotalsNEON[i].D2())
	}
}

// magnitudes replaces x by its magnitudes, and adds them to those of the lanes.
func (k *measureNEON) magnitudes() {
	x := measureXNEON
	for q := range 4 {
		for h := range 2 {
			k.I("VFABS", x[h][q].S4(), x[h][q].S4())
		}
		k.I("VFADD", x[1][q].S4(), x[0][q].S4(), V(16+q).S4())
	}
	for q := range 2 {
		k.I("VFADD", V(18+q).S4(), V(16+q).S4(), V(16+q).S4())
	}
	for q := range 2 {
		k.I("VFCVTL2", V(16+q).S4(), V(19+2*q).D2())
		k.I("VFCVTL", V(16+q).S2(), V(18+2*q).D2())
	}
	k.I("ADD", measureMagnitudes, k.lanes, k.p)
	for _, first := range []int{18, 20} {
		k.I("VLD1", "("+string(k.p)+")", list(V(16).D2(), V(17).D2()))
		for i := range 2 {
			k.I("VFADD", V(first+i).D2(), V(16+i).D2(), V(16+i).D2())
		}
		k.I("VST1.P", list(V(16).D2(), V(17).D2()), k.p.post(32))
	}
}

// count counts the saturated and flushed elements of the block.
func (k *measureNEON) count() {
	k.I("MOVD", k.got, k.p)
	for h, x := range measureXNEON {
		k.I("VLD1.P", k.p.post(64), neonList(Neon.S4, neonRange(16, 4)))
		k.I("VLD1R", "("+string(k.limits)+")", list(V(20).S4()))
		k.I("ADD", []Reg{k.step, k.next}[h], k.limits)
		for q := range 4 {
			got, mask := V(16+q), V(21)
			k.I("VFCMEQ.0", got.S4(), got.S4()) // zero now
			k.I("VCMTST", x[q].S4(), x[q].S4(), mask.S4())
			k.I("VAND", mask.B16(), got.B16(), got.B16()) // and not before
			k.I("VSUB", got.S4(), measureFlushNEON.S4(), measureFlushNEON.S4())
			k.I("VFCMGT", V(20).S4(), x[q].S4(), mask.S4())
			k.I("VSUB", mask.S4(), measureSatNEON.S4(), measureSatNEON.S4())
		}
	}
}

// over sets a register to |d| - bound·|x|, which is positive where the ratio exceeds the bound. d and x are
// magnitudes.
func (k *measureNEON) over(h, q int, to Neon) {
	d := measureDNEON[h][q].B16()
	k.I("VORR", d, d, to.B16())
	k.I("VFMLS", measureBoundNEON[q].S4(), measureXNEON[h][q].S4(), to.S4())
}

// ratio raises the worst ratios of the difference to wanted elements.
func (k *measureNEON) ratio() {
	same := k.NewLabel("same")
	for h, d := range measureDNEON {
		for q := range 4 {
			k.I("VFABS", d[q].S4(), d[q].S4())
			k.over(h, q, V(16+4*h+q))
		}
	}
	for half := 4; half > 0; half /= 2 { // as integers, the order of positive numbers is the same
		for i := range half {
			k.I("VSMAX", V(16+half+i).S4(), V(16+i).S4(), V(16+i).S4())
		}
	}
	k.I("VSMAXV", V(16).S4(), V(16).S4())
	k.I("VMOV", V(16).S4().lane(0), k.t)
	k.I("CMPW", 0, k.t)
	k.Jump("BLE", same) // nearly always
	k.I("ADD", measureWorst, k.lanes, k.p)
	k.I("VLD1", "("+string(k.p)+")", neonList(Neon.S4, neonRange(20, 4)))
	for h, x := range measureXNEON {
		for q, d := range measureDNEON[h] {
			k.over(h, q, V(16))
			k.I("VFCMGT.0", V(16).S4(), V(16).S4())
			k.I("VCMTST", x[q].S4(), x[q].S4(), V(17).S4()) // where x is not zero
			k.I("VFDIV", x[q].S4(), d.S4(), d.S4())
			k.I("VAND", V(16).B16(), d.B16(), d.B16())
			k.I("VAND", V(17).B16(), d.B16(), d.B16())
			k.I("VSMAX", d.S4(), V(20+q).S4(), V(20+q).S4())
		}
	}
	k.I("VST1", neonList(Neon.S4, neonRange(20, 4)), "("+string(k.p)+")")
	k.setBounds(neonRange(20, 4))
	k.Place(same)
}

// store stores the lanes, and adds the counts to theirs.
func (k *measureNEON) store() {
	k.I("VST1", list(measureTotalsNEON[0].D2(), measureTotalsNEON[1].D2()), "("+string(k.lanes)+")")
	for i, count := range []Neon{measureSatNEON, measureFlushNEON} {
		k.I("VADDV", count.S4(), count)
		k.I("VMOV", count.S4().lane(0), k.t)
		k.I("MOVD", k.lanes.At(measureCounts+8*i), k.u)
		k.I("ADD", k.u, k.t)
		k.I("MOVD", k.t, k.lanes.At(measureCounts+8*i))
	}
}
