package asm

import "fmt"

// measureBlock is the number of elements of a block of the measuring kernels; measureLimit
// elements share a limit.
const (
	measureBlock = 32
	measureLimit = 16
)

// Measure writes the kernels that sum the error of a row against the wanted row.
func Measure() []*File {
	f := NewFile("measure", "sums")
	var order []byte // first the four sums of the first block
	for i := range byte(16) {
		order = append(order, i/4+i%4*4)
	}
	table := f.Table("order", order)
	measureRow(f, "sums32", "float32", 4, table)
	measureRow(f, "sums16", "BF16", 2, table)
	measureRows256(f)
	return append(measureRowsNEON(), f)
}

// The lanes of package measure in memory: four totals and eight magnitudes as float64, sixteen
// ratios as float32, two counts.
const (
	measureMagnitudes = 4 * 8
	measureWorst      = measureMagnitudes + 8*8
	measureCounts     = measureWorst + 16*4
)

// Bits of the float32 numbers that bound the sums of a block; see measure.lanes.addSingle.
const (
	measureLow   = (127 - 100) << 23 // 2⁻¹⁰⁰
	measureRange = 200 << 23         // from there to 2¹⁰⁰
	measureTwo   = 128 << 23
)

// measureGroup is the number of blocks whose sums are completed and checked together.
const measureGroup = 4

// measureRow writes the kernel for one type of wanted elements.
func measureRow(f *File, name, source string, size int, order Sym) {
	fn := f.Func(name, fmt.Sprintf(`%s adds blocks of %d elements, want in %s, to the lanes, and sets ratios[i] to
Σx²/Σd² of block i, 0 if it is exact. It stops before a group of %d blocks or fewer
if addSingle rejects one of them, or if some are exact, and returns the blocks done.
A limit bounds the magnitude of %d elements; step is the bytes from the limit of the
first half of a block to that of the second, and next those from there to the next
block.`, name, measureBlock, source, measureGroup, measureLimit),
		"want *byte, got, limits *float32, step, next, blocks int, l *lanes, ratios *float32) (done int")
	k := &measureKernel{Func: fn, size: size}
	k.want, k.got, k.limits, k.step, k.next = fn.Arg("want"), fn.Arg("got"), fn.Arg("limits"), fn.Arg("step"), fn.Arg("next")
	k.blocks = fn.Arg("blocks")
	k.lanes, k.ratios = fn.Arg("l"), fn.Arg("ratios")
	k.done, k.left, k.mask, k.t = fn.GP("blocks done"), fn.GP("blocks left in the group"), fn.GP("those done of the group"), fn.GP("scratch")
	k.begin(order)

	group, block, accept, unusual, end := fn.NewLabel("group"), fn.NewLabel("block"), fn.NewLabel("accept"), fn.NewLabel("unusual"),
		fn.NewLabel("end")
	fn.Place(group)
	fn.I("TESTQ", k.blocks, k.blocks)
	fn.Jump("JZ", end)
	k.beginGroup()
	fn.Place(block)
	k.read()
	k.sums()
	k.magnitudes()
	k.ratio()
	k.count()
	k.advance(block)
	k.total()
	k.check(unusual)
	fn.Place(accept)
	k.endGroup()
	fn.Jump("JMP", group)
	fn.Place(unusual)
	k.exact(accept)
	fn.Place(end)
	k.store()
	fn.I("MOVQ", k.done, fn.FP("done"))
	fn.Return()
}

// The registers of measureRow that all its steps use. Z4 to Z9 are scratch.
var (
	measureX, measureD         = []Vec{Z(0), Z(1)}, []Vec{Z(2), Z(3)} // halves of the block: wanted, and wanted - got
	measureLows, measureWidths = X(10), X(11)                         // bounds of Σx² and Σd²
	measureTwos                = X(12)                                // and of their ratio
	measureBound               = Z(13)                                // the next number above each of the worst
	measureTotals              = Z(16)                                // Σx², Σd², Σx·d, Σd
	measureOrder               = Z(19)                                // of the sums of a group
	measureAbs, measureOne     = Z(20), Z(21)                         // constants
	measureAnyX, measureAnyD   = Z(22), Z(23)                         // the bits of all x and d of the group
	measureParts               = []Vec{Z(24), Z(25), Z(26), Z(27)}    // sums of a block, in four parts each, the last block first
	measureSaturated           = Z(14)                                // counts
	measureFlushed             = Z(15)                                // counts
	measureMagnitude           = Z(17)                                // Σ|x|
	measureLargest             = Z(18)                                // largest |d|/|x|
	measureChanging            = []Vec{measureMagnitude, measureLargest, measureSaturated, measureFlushed}
	measureSaved               = []Vec{Z(28), Z(29), Z(30), Z(31)} // the same before the group
)

// measureKernel is the state of measureRow.
type measureKernel struct {
	*Func
	size                                                 int // bytes of a wanted element
	want, got, limits, step, next, blocks, lanes, ratios Reg
	done, left, mask                                     Reg
	t                                                    Reg // scratch
}

// begin loads the lanes and sets the constants.
func (k *measureKernel) begin(order Sym) {
	k.Note(measureTotals, "Σx², Σd², Σx·d, Σd")
	k.Note(measureMagnitude, "Σ|x|")
	k.Note(measureLargest, "largest |d|/|x|")
	k.Note(measureBound, "the next number above each of them")
	k.Note("Z24-Z27", "sums of the blocks of a group, the last block first")
	k.Note("Z28-Z31", "lanes before the group")
	k.I("XORQ", k.done, k.done)
	k.I("VMOVUPD", k.lanes.At(0), measureTotals.Y())
	k.I("VMOVUPD", k.lanes.At(measureMagnitudes), measureMagnitude)
	k.I("VMOVUPS", k.lanes.At(measureWorst), measureLargest)
	k.I("VPMOVZXBD", order.At(0), measureOrder)
	broadcast(k.Func, measureLow, k.t, measureLows)
	broadcast(k.Func, measureRange, k.t, measureWidths)
	broadcast(k.Func, measureTwo, k.t, measureTwos)
	broadcast(k.Func, 0x7fffffff, k.t, measureAbs)
	broadcast(k.Func, 1, k.t, measureOne)
	for _, v := range []Vec{measureSaturated, measureFlushed} {
		k.I("VPXORD", v, v, v)
	}
	k.I("VPADDD", measureOne, measureLargest, measureBound)
}

// beginGroup begins a group of the next blocks.
func (k *measureKernel) beginGroup() {
	full := k.NewLabel("full")
	k.I("MOVL", measureGroup, k.left)
	k.I("CMPQ", k.blocks, measureGroup)
	k.Jump("JGE", full)
	k.I("MOVQ", k.blocks, k.left)
	k.Place(full)
	k.I("SUBQ", k.left, k.blocks)
	k.I("XORL", k.mask, k.mask)
	for i, v := range measureChanging {
		k.I("VMOVAPS", v, measureSaved[i])
	}
	for _, v := range append([]Vec{measureAnyX, measureAnyD}, measureParts...) {
		k.I("VPXORD", v, v, v)
	}
}

// read reads the wanted elements of a block as float32, and subtracts the others.
func (k *measureKernel) read() {
	for h, x := range measureX {
		if k.size == 2 {
			k.I("VPMOVZXWD", k.want.At(16*k.size*h), x)
			k.I("VPSLLD", 16, x, x)
		} else {
			k.I("VMOVUPS", k.want.At(16*k.size*h), x)
		}
		k.I("VSUBPS", k.got.At(64*h), x, measureD[h])
	}
}

// sums adds the sums of the block to measureParts. It adds the halves and then the quarters of
// their lanes.
func (k *measureKernel) sums() {
	x, d := measureX, measureD
	sum := func(a, b []Vec, to, scratch Vec) {
		k.I("VMULPS", a[0], b[0], to)
		k.I("VMULPS", a[1], b[1], scratch)
		k.I("VADDPS", scratch, to, to)
	}
	fold := func(low, high int, a, b, to Vec) {
		k.I("VSHUFF64X2", low, b, a, Z(8))
		k.I("VSHUFF64X2", high, b, a, Z(9))
		k.I("VADDPS", Z(9), Z(8), to)
	}
	for i := measureGroup - 1; i > 0; i-- {
		k.I("VMOVAPS", measureParts[i-1], measureParts[i])
	}
	sum(x, x, Z(4), Z(8))
	sum(d, d, Z(5), Z(8))
	sum(x, d, Z(6), Z(8))
	k.I("VADDPS", d[1], d[0], Z(7))
	fold(0x44, 0xee, Z(4), Z(5), Z(4))
	fold(0x44, 0xee, Z(6), Z(7), Z(6))
	fold(0x88, 0xdd, Z(4), Z(6), measureParts[0])
}

// magnitudes replaces x and d by their magnitudes, and adds those of x.
func (k *measureKernel) magnitudes() {
	const or3 = 0xfe
	for h, x := range measureX {
		k.I("VANDPS", x, measureAbs, x)
		k.I("VANDPS", measureD[h], measureAbs, measureD[h])
	}
	k.I("VPTERNLOGD", or3, measureX[0], measureX[1], measureAnyX)
	k.I("VPTERNLOGD", or3, measureD[0], measureD[1], measureAnyD)
	k.I("VADDPS", measureX[1], measureX[0], Z(4))
	k.I("VEXTRACTF64X4", 1, Z(4), Y(5))
	k.I("VADDPS", Y(5), Y(4), Y(4))
	k.I("VCVTPS2PD", Y(4), Z(4))
	k.I("VADDPD", Z(4), measureMagnitude, measureMagnitude)
}

// ratio raises the worst ratios of the difference to wanted elements.
func (k *measureKernel) ratio() {
	same := k.NewLabel("same")
	for h, x := range measureX {
		k.I("VMOVAPS", x, Z(4+h))
		k.I("VFMSUB213PS", measureD[h], measureBound, Z(4+h)) // bound·x - d, negative where d/x exceeds the bound
	}
	k.I("VPORD", Z(5), Z(4), Z(6))
	k.I("VPMOVD2M", Z(6), K(1))
	k.I("KORTESTW", K(1), K(1))
	k.Jump("JZ", same) // nearly always
	for h, x := range measureX {
		k.I("VPMOVD2M", Z(4+h), K(1))
		k.I("VPTESTMD", x, x, K(1), K(1)) // where x is not zero
		k.I("VDIVPS.Z", x, measureD[h], K(1), Z(6))
		k.I("VMAXPS", Z(6), measureLargest, measureLargest)
	}
	k.I("VPADDD", measureOne, measureLargest, measureBound)
	k.Place(same)
}

// count counts the saturated and flushed elements of the block.
func (k *measureKernel) count() {
	for h, x := range measureX {
		k.I("VPTESTNMD", k.got.At(64*h), measureAbs, K(1)) // zero now
		k.I("VPTESTMD", x, x, K(1), K(1))                  // and not before
		k.I("VPADDD", measureOne, measureFlushed, K(1), measureFlushed)
		k.I("VCMPPS.BCST", greaterThan, k.limits.At(0), x, K(2)) // |x| > limit
		k.I("VPADDD", measureOne, measureSaturated, K(2), measureSaturated)
		k.I("ADDQ", []Reg{k.step, k.next}[h], k.limits)
	}
}

// advance advances to the next block, and jumps there if it is of the same group.
func (k *measureKernel) advance(block Label) {
	k.I("ADDQ", measureBlock*k.size, k.want)
	k.I("ADDQ", measureBlock*4, k.got)
	k.I("ADDQ", 4, k.ratios)
	k.I("ADDQ", 1, k.done)
	k.I("SHRL", 1, k.mask)
	k.I("ORL", 1<<(measureGroup-1), k.mask)
	k.I("SUBL", 1, k.left)
	k.Jump("JNZ", block)
}

// total sets Z4 to the sums of the group: four Σx², four Σd², four Σx·d and four Σd.
func (k *measureKernel) total() {
	join := func(low, high string, a, b, to Vec) {
		k.I(low, b, a, Z(8))
		k.I(high, b, a, Z(9))
		k.I("VADDPS", Z(9), Z(8), to)
	}
	p := measureParts
	join("VUNPCKLPS", "VUNPCKHPS", p[3], p[2], Z(4))
	join("VUNPCKLPS", "VUNPCKHPS", p[1], p[0], Z(5))
	join("VUNPCKLPD", "VUNPCKHPD", Z(4), Z(5), Z(4))
}

// check sets X6 to the ratios of the blocks, and jumps if the sums of one are beyond their bounds.
func (k *measureKernel) check(unusual Label) {
	const atLeast = 0x1d
	k.I("VEXTRACTF32X4", 1, Z(4), X(5))
	k.I("VDIVPS", X(5), X(4), X(6))
	k.I("VPSUBD", measureLows, X(4), X(7))
	k.I("VPCMPUD", 1, measureWidths, X(7), K(1))
	k.I("VPSUBD", measureLows, X(5), X(7))
	k.I("VPCMPUD", 1, measureWidths, X(7), K(1), K(2))
	k.I("VCMPPS", atLeast, measureTwos, X(6), K(2), K(2))
	k.all(K(2))
	k.Jump("JNE", unusual)
}

// all compares the blocks of the group with those in m.
func (k *measureKernel) all(m Mask) {
	k.I("KMOVB", m, k.t)
	k.I("ANDL", k.mask, k.t)
	k.I("CMPL", k.t, k.mask)
}

// endGroup adds the sums to the totals, block by block, and stores the ratios.
func (k *measureKernel) endGroup() {
	k.I("KMOVB", k.mask, K(1))
	k.I("VMOVUPS", X(6), K(1), k.ratios.At(-4*measureGroup))
	k.I("VPERMPS", Z(4), measureOrder, Z(4))
	for i := range measureGroup {
		k.I("VEXTRACTF32X4", i, Z(4), X(5))
		k.I("VCVTPS2PD", X(5), Y(5))
		k.I("VADDPD", Y(5), measureTotals.Y(), measureTotals.Y())
	}
}

// exact jumps to accept if all blocks of the group are exact, and all within the bounds or all
// zero. Otherwise it undoes the group.
func (k *measureKernel) exact(accept Label) {
	undo := k.NewLabel("undo")
	k.I("VPTESTMD", measureAnyD, measureAnyD, K(2))
	k.I("KORTESTW", K(2), K(2))
	k.Jump("JNZ", undo)
	k.I("VXORPS", X(6), X(6), X(6))
	k.all(K(1))
	k.Jump("JEQ", accept)
	k.I("VPTESTMD", measureAnyX, measureAnyX, K(2))
	k.I("KORTESTW", K(2), K(2))
	k.Jump("JZ", accept)
	k.Place(undo)
	k.I("POPCNTL", k.mask, k.t)
	k.I("SUBQ", k.t, k.done)
	for i, v := range measureChanging {
		k.I("VMOVAPS", measureSaved[i], v)
	}
}

// store stores the lanes, and adds the counts to theirs.
func (k *measureKernel) store() {
	k.I("VMOVUPD", measureTotals.Y(), k.lanes.At(0))
	k.I("VMOVUPD", measureMagnitude, k.lanes.At(measureMagnitudes))
	k.I("VMOVUPS", measureLargest, k.lanes.At(measureWorst))
	for _, v := range []Vec{measureSaturated, measureFlushed} {
		k.I("VEXTRACTI64X4", 1, v, Y(4))
		k.I("VPADDD", Y(4), v.Y(), v.Y())
	}
	k.I("VPHADDD", measureFlushed.Y(), measureSaturated.Y(), Y(4)) // pairs of one count and the other
	k.I("VEXTRACTI128", 1, Y(4), X(5))
	k.I("VPADDD", X(5), X(4), X(4))
	k.I("VPHADDD", X(4), X(4), X(4))
	for i := range 2 {
		k.I("VPEXTRD", i, X(4), k.t)
		k.I("ADDQ", k.t, k.lanes.At(measureCounts+8*i))
	}
}
