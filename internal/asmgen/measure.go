package asmgen

import "fmt"

// measureBlock is the number of elements of a block of the measuring kernels; measureLimit
// elements share a limit.
const (
	measureBlock = 32
	measureLimit = 16
)

// The sums of a measuring kernel in memory: eight float64 each, in the order of the lanes of
// package measure; two counts follow.
var measureSums = []string{"Σx̂²", "Σx·x̂", "Σe", "Σ|x|", "largest |e|/|x|"}

// Measure writes the kernels that sum the error of a row against the wanted row.
func Measure() []*File {
	f := NewFile("measure", "sums")
	measureRow(f, "sums32", "float32", 4)
	measureRow(f, "sums16", "BF16", 2)
	return []*File{f}
}

// nonFinite has the classes of VFPCLASSPD: quiet and signaling NaN, ±Inf.
const nonFinite = 0x99

// measureRow writes the kernel for one type of wanted elements. It checks the totals of a
// block for NaN and Inf instead of its elements, and restores the sums if it finds them.
func measureRow(f *File, name, source string, size int) {
	fn := f.Func(name, fmt.Sprintf(`%s adds blocks of %d elements, want in %s, to the lanes, and sets
totals[2i], totals[2i+1] to Σx² and Σe² of block i. It stops before a block that
holds NaN or Inf and returns the blocks done. A limit bounds the magnitude of %d
elements; step is the bytes from the limit of the first half of a block to that
of the second, and next those from there to the next block.`, name, measureBlock, source, measureLimit),
		"want *byte, got, limits *float32, step, next, blocks int, l *lanes, totals *float64) (done int")
	k := &measureKernel{Func: fn, size: size}
	k.want, k.got, k.limits, k.step, k.next = fn.Arg("want"), fn.Arg("got"), fn.Arg("limits"), fn.Arg("step"), fn.Arg("next")
	blocks := fn.Arg("blocks")
	k.lanes, k.totals = fn.Arg("l"), fn.Arg("totals")
	done := fn.GP("blocks done")
	k.t = fn.GP("scratch")
	k.begin()
	fn.I("XORQ", done, done)

	loop, end, undo := fn.NewLabel("loop"), fn.NewLabel("end"), fn.NewLabel("undo")
	fn.Place(loop)
	fn.I("CMPQ", done, blocks)
	fn.Jump("JGE", end)
	for i, v := range k.sums {
		fn.I("VMOVAPD", v, k.saved[i])
	}
	k.read()
	k.add()
	k.total(undo)
	k.count()
	fn.I("ADDQ", measureBlock*size, k.want)
	fn.I("ADDQ", measureBlock*4, k.got)
	fn.I("ADDQ", 16, k.totals)
	fn.I("ADDQ", 1, done)
	fn.Jump("JMP", loop)
	fn.Place(undo)
	for i, v := range k.sums {
		fn.I("VMOVAPD", k.saved[i], v)
	}
	fn.Place(end)
	k.store()
	fn.I("MOVQ", done, fn.FP("done"))
	fn.Return()
}

// A block is read in halves of a register of float32, and added in parts of a register of float64.
const (
	measureHalves = measureBlock / 16
	measureParts  = 2 * measureHalves
)

// The registers of measureRow that all its steps use. Z0 and Z1 hold the wanted elements of a block,
// Z4 and Z5 are scratch.
var (
	measureX, measureY, measureE = Z(6), Z(7), Z(8) // a part: wanted, got, and their difference
	measureM, measureD           = Z(9), Z(10)      // magnitudes of wanted and of the difference
	measureSignal, measureNoise  = Z(21), Z(22)     // Σx² and Σe² of the block
	measureBound                 = Z(13)            // the next number above each of the worst
	saturatedLanes, flushedLanes = Z(14), Z(15)     // counts
	abs64Mask, abs32Mask         = Z(23), Z(24)     // all bits but the sign
	zeroLanes, oneLanes          = Z(25), Z(31)     // 0 as float64, 1 as int32
)

// measureKernel is the state of measureRow.
type measureKernel struct {
	*Func
	size                                         int // bytes of a wanted element
	want, got, limits, step, next, lanes, totals Reg
	t                                            Reg   // scratch
	sums, saved                                  []Vec // of measureSums, and before the block
}

// begin loads the sums and sets the constants.
func (k *measureKernel) begin() {
	for i, doc := range measureSums {
		k.sums, k.saved = append(k.sums, Z(16+i)), append(k.saved, Z(26+i))
		k.Note(k.sums[i], doc)
		k.I("VMOVUPD", k.lanes.At(64*i), k.sums[i])
	}
	k.Note("Z26-Z30", "the sums before the block")
	k.Note(measureSignal, "Σx² of the block")
	k.Note(measureNoise, "Σe² of the block")
	k.Note(measureBound, "the next number above each of "+measureSums[4])
	k.Note(saturatedLanes, "counts of saturated elements")
	k.Note(flushedLanes, "counts of flushed elements")
	k.I("MOVQ", "$0x7fffffffffffffff", k.t)
	k.I("VPBROADCASTQ", k.t, abs64Mask)
	broadcast(k.Func, 0x7fffffff, k.t, abs32Mask)
	broadcast(k.Func, 1, k.t, oneLanes)
	for _, v := range []Vec{zeroLanes, saturatedLanes, flushedLanes} {
		k.I("VPXORQ", v, v, v)
	}
	k.I("MOVL", "$1", k.t)
	k.raise()
}

// raise sets the bound to the number after the worst ratio.
func (k *measureKernel) raise() {
	k.I("VPBROADCASTQ", k.t, Z(4))
	k.I("VPADDQ", Z(4), k.sums[4], measureBound)
}

// read reads the wanted elements of a block as float32.
func (k *measureKernel) read() {
	for h := range measureHalves {
		if k.size == 2 {
			k.I("VPMOVZXWD", k.want.At(16*k.size*h), Z(h))
			k.I("VPSLLD", 16, Z(h), Z(h))
		} else {
			k.I("VMOVUPS", k.want.At(16*k.size*h), Z(h))
		}
	}
}

// part computes part i of a block: wanted, got, their difference and magnitudes.
func (k *measureKernel) part(i int) {
	k.I("VCVTPS2PD", k.got.At(32*i), measureY)
	switch {
	case k.size == 4:
		k.I("VCVTPS2PD", k.want.At(32*i), measureX)
	case i%2 == 0:
		k.I("VCVTPS2PD", Z(i/2).Y(), measureX)
	default:
		k.I("VEXTRACTF64X4", 1, Z(i/2), Y(4))
		k.I("VCVTPS2PD", Y(4), measureX)
	}
	k.I("VSUBPD", measureX, measureY, measureE)
	k.I("VPANDQ", measureX, abs64Mask, measureM)
	k.I("VPANDQ", measureE, abs64Mask, measureD)
}

// add adds a block to the sums. Squares and products of float32 numbers are exact in float64, so
// that they may be fused.
func (k *measureKernel) add() {
	power, product, errors, magnitude := k.sums[0], k.sums[1], k.sums[2], k.sums[3]
	below := Z(12) // bound·m - d: negative where d/m exceeds the bound
	for i := range measureParts {
		k.part(i)
		if i == 0 {
			k.I("VMULPD", measureX, measureX, measureSignal)
			k.I("VMULPD", measureE, measureE, measureNoise)
		} else {
			k.I("VFMADD231PD", measureX, measureX, measureSignal)
			k.I("VMULPD", measureE, measureE, Z(11))
			k.I("VADDPD", Z(11), measureNoise, measureNoise)
		}
		k.I("VFMADD231PD", measureY, measureY, power)
		k.I("VFMADD231PD", measureX, measureY, product)
		k.I("VADDPD", measureE, errors, errors)
		k.I("VADDPD", measureM, magnitude, magnitude)
		if i == 0 {
			k.I("VMOVAPD", measureM, below)
			k.I("VFMSUB213PD", measureD, measureBound, below)
		} else {
			k.I("VFMSUB213PD", measureD, measureBound, measureM)
			k.I("VPORQ", measureM, below, below)
		}
	}
	k.I("VPMOVQ2M", below, K(1))
	k.I("KORTESTB", K(1), K(1))
	same := k.NewLabel("same")
	k.Jump("JZ", same) // nearly always
	k.divide()
	k.Place(same)
}

// divide raises the worst ratios of the difference to wanted elements.
func (k *measureKernel) divide() {
	worst, ratio := k.sums[4], Z(11)
	for i := range measureParts {
		k.part(i)
		k.I("VMOVAPD", measureD, ratio)
		k.I("VFNMADD231PD", measureM, measureBound, ratio)
		k.I("VCMPPD", 0x1e, zeroLanes, ratio, K(1))
		k.I("VCMPPD", 4, zeroLanes, measureM, K(1), K(1)) // where x is not zero
		k.I("VDIVPD.Z", measureM, measureD, K(1), ratio)
		k.I("VMAXPD", ratio, worst, worst)
		k.raise()
	}
}

// total stores Σx² and Σe² of the block, or jumps to undo if one is not finite. It adds both at once,
// in elements 0 and 4, by halves.
func (k *measureKernel) total(undo Label) {
	k.I("VINSERTF64X4", 1, measureNoise.Y(), measureSignal, Z(4))
	k.I("VSHUFF64X2", 0xee, measureNoise, measureSignal, Z(5))
	k.I("VADDPD", Z(5), Z(4), Z(4))
	k.I("VSHUFF64X2", 0xb1, Z(4), Z(4), Z(5))
	k.I("VADDPD", Z(5), Z(4), Z(4))
	k.I("VPERMILPD", 0x55, Z(4), Z(5))
	k.I("VADDPD", Z(5), Z(4), Z(4))
	k.I("VFPCLASSPDZ", nonFinite, Z(4), K(1))
	k.I("KORTESTB", K(1), K(1))
	k.Jump("JNZ", undo)
	k.I("VMOVSD", X(4), k.totals.At(0))
	k.I("VEXTRACTF32X4", 2, Z(4), X(5))
	k.I("VMOVSD", X(5), k.totals.At(8))
}

// count counts the saturated and flushed elements of the block.
func (k *measureKernel) count() {
	for h := range measureHalves {
		k.I("VPANDD", Z(h), abs32Mask, Z(4))
		k.I("VPTESTNMD", k.got.At(64*h), abs32Mask, K(1)) // zero now
		k.I("VPTESTMD", Z(4), Z(4), K(1), K(1))           // and not before
		k.I("VPADDD", oneLanes, flushedLanes, K(1), flushedLanes)
		k.I("VCMPPS.BCST", greaterThan, k.limits.At(0), Z(4), K(2)) // |x| > limit
		k.I("VPADDD", oneLanes, saturatedLanes, K(2), saturatedLanes)
		k.I("ADDQ", []Reg{k.step, k.next}[h], k.limits)
	}
}

// store stores the sums, and adds the counts to those of the lanes.
func (k *measureKernel) store() {
	for i, v := range k.sums {
		k.I("VMOVUPD", v, k.lanes.At(64*i))
	}
	for i, v := range []Vec{saturatedLanes, flushedLanes} {
		k.I("VEXTRACTI64X4", 1, v, Y(4))
		k.I("VPADDD", Y(4), v.Y(), Y(4))
		k.I("VEXTRACTI128", 1, Y(4), X(5))
		k.I("VPADDD", X(5), X(4), X(4))
		k.I("VPSHUFD", 0x4e, X(4), X(5))
		k.I("VPADDD", X(5), X(4), X(4))
		k.I("VPSHUFD", 0xb1, X(4), X(5))
		k.I("VPADDD", X(5), X(4), X(4))
		k.I("VMOVD", X(4), k.t)
		k.I("ADDQ", k.t, k.lanes.At(64*len(k.sums)+8*i))
	}
}
