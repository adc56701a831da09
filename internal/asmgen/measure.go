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

// measureRow writes the kernel for one type of wanted elements.
func measureRow(f *File, name, source string, size int) {
	fn := f.Func(name, fmt.Sprintf(`%s adds blocks of %d elements, want in %s, to the lanes, and sets
totals[2i], totals[2i+1] to Σx² and Σe² of block i. It stops before a block that
holds NaN or Inf and returns the blocks done. limits[i/%d] bounds the magnitude
of element i; step is 4 bytes, or 0 for one limit of all elements.`, name, measureBlock, source, measureLimit),
		"want *byte, got, limits *float32, step, blocks int, l *lanes, totals *float64) (done int")
	want, got, limits, step := fn.Arg("want"), fn.Arg("got"), fn.Arg("limits"), fn.Arg("step")
	blocks, lanes, totals := fn.Arg("blocks"), fn.Arg("l"), fn.Arg("totals")
	done, t, saturated, flushed := fn.GP("blocks done"), fn.GP("scratch"), fn.GP("saturated"), fn.GP("flushed")
	var sums []Vec
	for i, doc := range measureSums {
		v := Z(16 + i)
		sums = append(sums, v)
		fn.Note(v, doc)
		fn.I("VMOVUPD", lanes.At(64*i), v)
	}
	power, product, errors, magnitude, worst := sums[0], sums[1], sums[2], sums[3], sums[4]
	counts := 64 * len(sums)
	signal, noise, abs64, abs32, zero := Z(21), Z(22), Z(23), Z(24), Z(25)
	fn.Note(signal, "Σx² of the block")
	fn.Note(noise, "Σe² of the block")
	fn.I("MOVQ", lanes.At(counts), saturated)
	fn.I("MOVQ", lanes.At(counts+8), flushed)
	fn.I("MOVQ", "$0x7fffffffffffffff", t)
	fn.I("VPBROADCASTQ", t, abs64)
	broadcast(fn, 0x7fffffff, t, abs32)
	fn.I("VPXORQ", zero, zero, zero)
	fn.I("XORQ", done, done)

	loop, end := fn.NewLabel("loop"), fn.NewLabel("end")
	fn.Place(loop)
	fn.I("CMPQ", done, blocks)
	fn.Jump("JGE", end)
	const halves = measureBlock / 16
	x := func(h int) Vec { return Z(0 + h) }
	y := func(h int) Vec { return Z(2 + h) }
	for h := range halves {
		if size == 2 {
			fn.I("VPMOVZXWD", want.At(16*size*h), x(h))
			fn.I("VPSLLD", 16, x(h), x(h))
		} else {
			fn.I("VMOVUPS", want.At(16*size*h), x(h))
		}
		fn.I("VMOVUPS", got.At(64*h), y(h))
	}
	const nonFinite, zeros = 0x99, 0x06 // classes of VFPCLASSPS: quiet and signaling NaN, ±Inf; ±0
	for h := range halves {
		fn.I("VFPCLASSPSZ", nonFinite, x(h), K(1))
		fn.I("VFPCLASSPSZ", nonFinite, y(h), K(2))
		fn.I("KORW", K(1), K(2), K(3+h))
	}
	fn.I("KORTESTW", K(3), K(4))
	fn.Jump("JNZ", end)
	for h := range halves {
		fn.I("VFPCLASSPSZ", zeros, x(h), K(1))
		fn.I("VFPCLASSPSZ", zeros, y(h), K(2))
		fn.I("KANDNW", K(2), K(1), K(1)) // zero now, and not before
		fn.I("KMOVW", K(1), t)
		fn.I("POPCNTL", t, t)
		fn.I("ADDQ", t, flushed)
		fn.I("VPANDD", x(h), abs32, Z(4))
		fn.I("VBROADCASTSS", limits.At(0), Z(5))
		fn.I("ADDQ", step, limits)
		fn.I("VCMPPS", greaterThan, Z(5), Z(4), K(1)) // |x| > limit
		fn.I("KMOVW", K(1), t)
		fn.I("POPCNTL", t, t)
		fn.I("ADDQ", t, saturated)
	}
	fn.I("VPXORQ", signal, signal, signal)
	fn.I("VPXORQ", noise, noise, noise)
	const parts = 2 * halves
	xd, yd, e, m, d, w := Z(6), Z(7), Z(8), Z(9), Z(10), Z(11)
	below := func(i int) Vec { return Z(12 + i) } // worst·m - d: negative where d/m exceeds the maximum so far
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
		fn.I("VFMADD231PD", xd, xd, signal)
		fn.I("VFMADD231PD", yd, yd, power)
		fn.I("VFMADD231PD", xd, yd, product)
		fn.I("VMULPD", e, e, w)
		fn.I("VADDPD", w, noise, noise)
		fn.I("VADDPD", e, errors, errors)
		fn.I("VADDPD", m, magnitude, magnitude)
		fn.I("VFMSUB213PD", d, worst, m)
		if i%2 == 0 {
			fn.I("VMOVAPD", m, below(i/2))
		} else {
			fn.I("VPORQ", m, below(i/2), below(i/2))
		}
	}
	for h := 1; h < halves; h++ {
		fn.I("VPORQ", below(h), below(0), below(0))
	}
	fn.I("VPMOVQ2M", below(0), K(1))
	fn.I("KORTESTB", K(1), K(1))
	same := fn.NewLabel("same")
	fn.Jump("JZ", same) // nearly always
	for i := range parts {
		load(i)
		fn.I("VMOVAPD", d, w)
		fn.I("VFNMADD231PD", m, worst, w)
		fn.I("VCMPPD", 0x1e, zero, w, K(1))
		fn.I("VCMPPD", 4, zero, m, K(1), K(1)) // where x is not zero
		fn.I("VDIVPD.Z", m, d, K(1), w)
		fn.I("VMAXPD", w, worst, worst)
	}
	fn.Place(same)
	for i, v := range []Vec{signal, noise} {
		fn.I("VEXTRACTF64X4", 1, v, Y(4))
		fn.I("VADDPD", Y(4), v.Y(), Y(4))
		fn.I("VEXTRACTF128", 1, Y(4), X(5))
		fn.I("VADDPD", X(5), X(4), X(4))
		fn.I("VPERMILPD", 1, X(4), X(5))
		fn.I("VADDSD", X(5), X(4), X(4))
		fn.I("VMOVSD", X(4), totals.At(8*i))
	}
	fn.I("ADDQ", measureBlock*size, want)
	fn.I("ADDQ", measureBlock*4, got)
	fn.I("ADDQ", 16, totals)
	fn.I("ADDQ", 1, done)
	fn.Jump("JMP", loop)
	fn.Place(end)
	for i, v := range sums {
		fn.I("VMOVUPD", v, lanes.At(64*i))
	}
	fn.I("MOVQ", saturated, lanes.At(counts))
	fn.I("MOVQ", flushed, lanes.At(counts+8))
	fn.I("MOVQ", done, fn.FP("done"))
	fn.Return()
}
