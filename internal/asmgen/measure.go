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
	want, got, limits, step, next := fn.Arg("want"), fn.Arg("got"), fn.Arg("limits"), fn.Arg("step"), fn.Arg("next")
	blocks, lanes, totals := fn.Arg("blocks"), fn.Arg("l"), fn.Arg("totals")
	done, t := fn.GP("blocks done"), fn.GP("scratch")
	var sums, saved []Vec
	for i, doc := range measureSums {
		sums, saved = append(sums, Z(16+i)), append(saved, Z(26+i))
		fn.Note(sums[i], doc)
		fn.I("VMOVUPD", lanes.At(64*i), sums[i])
	}
	fn.Note("Z26-Z30", "the sums before the block")
	power, product, errors, magnitude, worst := sums[0], sums[1], sums[2], sums[3], sums[4]
	signal, noise, abs64, abs32, zero := Z(21), Z(22), Z(23), Z(24), Z(25)
	bound, saturated, flushed, ones := Z(13), Z(14), Z(15), Z(31)
	fn.Note(signal, "Σx² of the block")
	fn.Note(noise, "Σe² of the block")
	fn.Note(bound, "the next number above each of "+measureSums[4])
	fn.Note(saturated, "counts of saturated elements")
	fn.Note(flushed, "counts of flushed elements")
	fn.I("MOVQ", "$0x7fffffffffffffff", t)
	fn.I("VPBROADCASTQ", t, abs64)
	broadcast(fn, 0x7fffffff, t, abs32)
	broadcast(fn, 1, t, ones)
	for _, v := range []Vec{zero, saturated, flushed} {
		fn.I("VPXORQ", v, v, v)
	}
	fn.I("MOVL", "$1", t)
	raise := func() {
		fn.I("VPBROADCASTQ", t, Z(4))
		fn.I("VPADDQ", Z(4), worst, bound)
	}
	raise()
	fn.I("XORQ", done, done)

	loop, end, undo := fn.NewLabel("loop"), fn.NewLabel("end"), fn.NewLabel("undo")
	fn.Place(loop)
	fn.I("CMPQ", done, blocks)
	fn.Jump("JGE", end)
	for i, v := range sums {
		fn.I("VMOVAPD", v, saved[i])
	}
	const halves = measureBlock / 16
	x := func(h int) Vec { return Z(0 + h) }
	for h := range halves {
		if size == 2 {
			fn.I("VPMOVZXWD", want.At(16*size*h), x(h))
			fn.I("VPSLLD", 16, x(h), x(h))
		} else {
			fn.I("VMOVUPS", want.At(16*size*h), x(h))
		}
	}
	const parts = 2 * halves
	xd, yd, e, m, d, w := Z(6), Z(7), Z(8), Z(9), Z(10), Z(11)
	below := Z(12) // bound·m - d: negative where d/m exceeds the bound
	load := func(i int) {
		fn.I("VCVTPS2PD", got.At(32*i), yd)
		switch {
		case size == 4:
			fn.I("VCVTPS2PD", want.At(32*i), xd)
		case i%2 == 0:
			fn.I("VCVTPS2PD", x(i/2).Y(), xd)
		default:
			fn.I("VEXTRACTF64X4", 1, x(i/2), Y(4))
			fn.I("VCVTPS2PD", Y(4), xd)
		}
		fn.I("VSUBPD", xd, yd, e)
		fn.I("VPANDQ", xd, abs64, m)
		fn.I("VPANDQ", e, abs64, d)
	}
	for i := range parts {
		load(i)
		// Squares and products of float32 numbers are exact in float64, so that they may be fused.
		if i == 0 {
			fn.I("VMULPD", xd, xd, signal)
			fn.I("VMULPD", e, e, noise)
		} else {
			fn.I("VFMADD231PD", xd, xd, signal)
			fn.I("VMULPD", e, e, w)
			fn.I("VADDPD", w, noise, noise)
		}
		fn.I("VFMADD231PD", yd, yd, power)
		fn.I("VFMADD231PD", xd, yd, product)
		fn.I("VADDPD", e, errors, errors)
		fn.I("VADDPD", m, magnitude, magnitude)
		if i == 0 {
			fn.I("VMOVAPD", m, below)
			fn.I("VFMSUB213PD", d, bound, below)
		} else {
			fn.I("VFMSUB213PD", d, bound, m)
			fn.I("VPORQ", m, below, below)
		}
	}
	fn.I("VPMOVQ2M", below, K(1))
	fn.I("KORTESTB", K(1), K(1))
	same := fn.NewLabel("same")
	fn.Jump("JZ", same) // nearly always
	for i := range parts {
		load(i)
		fn.I("VMOVAPD", d, w)
		fn.I("VFNMADD231PD", m, bound, w)
		fn.I("VCMPPD", 0x1e, zero, w, K(1))
		fn.I("VCMPPD", 4, zero, m, K(1), K(1)) // where x is not zero
		fn.I("VDIVPD.Z", m, d, K(1), w)
		fn.I("VMAXPD", w, worst, worst)
		raise()
	}
	fn.Place(same)
	// Both totals at once, in elements 0 and 4, by halves.
	fn.I("VINSERTF64X4", 1, noise.Y(), signal, Z(4))
	fn.I("VSHUFF64X2", 0xee, noise, signal, Z(5))
	fn.I("VADDPD", Z(5), Z(4), Z(4))
	fn.I("VSHUFF64X2", 0xb1, Z(4), Z(4), Z(5))
	fn.I("VADDPD", Z(5), Z(4), Z(4))
	fn.I("VPERMILPD", 0x55, Z(4), Z(5))
	fn.I("VADDPD", Z(5), Z(4), Z(4))
	fn.I("VFPCLASSPDZ", nonFinite, Z(4), K(1))
	fn.I("KORTESTB", K(1), K(1))
	fn.Jump("JNZ", undo)
	fn.I("VMOVSD", X(4), totals.At(0))
	fn.I("VEXTRACTF32X4", 2, Z(4), X(5))
	fn.I("VMOVSD", X(5), totals.At(8))
	for h := range halves {
		fn.I("VPANDD", x(h), abs32, Z(4))
		fn.I("VPTESTNMD", got.At(64*h), abs32, K(1)) // zero now
		fn.I("VPTESTMD", Z(4), Z(4), K(1), K(1))     // and not before
		fn.I("VPADDD", ones, flushed, K(1), flushed)
		fn.I("VCMPPS.BCST", greaterThan, limits.At(0), Z(4), K(2)) // |x| > limit
		fn.I("VPADDD", ones, saturated, K(2), saturated)
		fn.I("ADDQ", []Reg{step, next}[h], limits)
	}
	fn.I("ADDQ", measureBlock*size, want)
	fn.I("ADDQ", measureBlock*4, got)
	fn.I("ADDQ", 16, totals)
	fn.I("ADDQ", 1, done)
	fn.Jump("JMP", loop)
	fn.Place(undo)
	for i, v := range sums {
		fn.I("VMOVAPD", saved[i], v)
	}
	fn.Place(end)
	for i, v := range sums {
		fn.I("VMOVUPD", v, lanes.At(64*i))
	}
	for i, v := range []Vec{saturated, flushed} {
		fn.I("VEXTRACTI64X4", 1, v, Y(4))
		fn.I("VPADDD", Y(4), v.Y(), Y(4))
		fn.I("VEXTRACTI128", 1, Y(4), X(5))
		fn.I("VPADDD", X(5), X(4), X(4))
		fn.I("VPSHUFD", 0x4e, X(4), X(5))
		fn.I("VPADDD", X(5), X(4), X(4))
		fn.I("VPSHUFD", 0xb1, X(4), X(5))
		fn.I("VPADDD", X(5), X(4), X(4))
		fn.I("VMOVD", X(4), t)
		fn.I("ADDQ", t, lanes.At(64*len(sums)+8*i))
	}
	fn.I("MOVQ", done, fn.FP("done"))
	fn.Return()
}
