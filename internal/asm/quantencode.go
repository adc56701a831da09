package asm

import "fmt"

// encodeNames are the constants of quant's encodeConstants.
var encodeNames = []string{"limit", "least", "anchor", "shift", "sign", "signShift", "unit", "binade", "mantissa", "largest", "thirtyTwo",
	"implicit", "codeLimit", "powerLeast", "powerBias", "powerAnchor"}

// Prefetch distances in the source, in bytes.
const (
	rowPrefetch = 2048    // of kernels that find amaxes
	farthest    = 1 << 15 // maximum of kernels that write codes
)

// quantEncode writes the kernels of single stages that support every scale rule: the amax of each
// block of a row, and the codes of a row under given factors, one to a byte.
func quantEncode() *File {
	f := NewFile("quant", "encode")
	quantAmaxes(f, 32)
	quantAmaxes(f, 16)
	low, high := gatherTables(f, "encode")
	quantEncodeBlocks(f, "encodeTimes", "VMULPS", "times", low, high)
	quantEncodeBlocks(f, "encodeOver", "VDIVPS", "divided by", low, high)
	return f
}

// elementLoop prints a loop over 64 of n elements at a time. K1 to K4 are the masks of the
// elements in four vectors of dwords, and K1 has those of all 64 in its bits. At the end, n is at
// most 0. t is a scratch register.
func (fn *Func) elementLoop(n, t Reg, body func()) {
	for i := 1; i <= 4; i++ {
		fn.I("KXNORQ", K(i), K(i), K(i))
	}
	whole := fn.NewLabel("whole")
	loop := fn.Label("loop")
	fn.I("CMPQ", n, 64)
	fn.Jump("JGE", whole)
	fn.I("MOVQ", -1, t)
	fn.I("BZHIQ", n, t, t)
	fn.I("KMOVQ", t, K(1))
	for i := 1; i < 4; i++ {
		fn.I("KSHIFTRQ", 16*i, K(1), K(1+i))
	}
	fn.Place(whole)
	body()
	fn.I("SUBQ", 64, n)
	fn.Jump("JG", loop)
}

// blockLoop prints a loop over the blocks of a row of n elements. For each block it prints begin,
// an elementLoop and end. i is the index in the block of the first of 64 elements.
func (fn *Func) blockLoop(n, extent Reg, begin func(), body func(i Reg), end func()) {
	i, left, t := fn.GP("elements done of the block"), fn.GP("elements left of it"), fn.GP("masks")
	block := fn.Label("block")
	begin()
	fn.I("MOVQ", extent, left)
	fn.I("CMPQ", n, extent)
	fn.I("CMOVQLT", n, left)
	fn.I("XORL", i, i)
	fn.elementLoop(left, t, func() {
		body(i)
		fn.I("ADDQ", 64, i)
	})
	end()
	fn.I("SUBQ", extent, n)
	fn.Jump("JG", block)
}

func quantAmaxes(f *File, source int) {
	name := "amaxes512" + sourceSuffix(source)
	fn := f.Func(name, fmt.Sprintf(`%s raises amax[j] to the largest of the bits of |src[i]|, i/extent = j,
i < n, n > 0, of %s.`, name, sourceName(source)), "amax *uint32, src *byte, n, extent int")
	amax, src, n, extent := fn.Arg("amax"), fn.Arg("src"), fn.Arg("n"), fn.Arg("extent")
	b := byteCodes{Func: fn, source: source}
	t := fn.GP("constants and results")
	broadcast(fn, b.absMask(), t, zAbs)
	broadcast(fn, 0xffff0000, t, zUpper)
	vectors, size, move := 4, 4, "VMOVDQU32.Z"
	if source == 16 {
		vectors, size, move = 2, 2, "VMOVDQU16.Z"
	}
	fn.blockLoop(n, extent, func() {
		for i := range vectors {
			fn.I("VPXORD", Z(2+i), Z(2+i), Z(2+i))
		}
	}, func(i Reg) {
		for j := range vectors {
			at := src.At(64*j).By(i, size)
			fn.I("PREFETCHT0", at.At(rowPrefetch))
			fn.I(move, at, K(1+j*4/vectors), Z(6+j))
		}
		for j := range vectors {
			b.raise(Z(6+j), Z(2+j), Z(6+j))
		}
	}, func() {
		for n := vectors / 2; n > 0; n /= 2 {
			for j := range n {
				b.raise(Z(2+n+j), Z(2+j), Z(2+n+j))
			}
		}
		b.widen(Z(2), Z(3))
		fn.I("VMOVD", amax.At(0), X(3))
		fn.I("VPMAXUD", Z(3), Z(2), Z(2))
		fn.maxDword(Z(2), t)
		fn.I("MOVL", t, amax.At(0))
		fn.I("ADDQ", 4, amax)
		fn.I("LEAQ", src.At(0).By(extent, size), src)
	})
	fn.Return()
}

func quantEncodeBlocks(f *File, name, operation, does string, low, high Sym) {
	fn := f.Func(name, fmt.Sprintf(`%s sets codes[i] to the code of src[i] %s factors[i/extent], i < n,
n > 0, and returns the bits of the largest magnitude of src. Where that is Inf
or NaN, the codes are undefined.`, name, does),
		"codes *byte, src *float32, n int, factors *float32, extent int, c *encodeConstants) (amax uint64")
	codes, src, n, factors, extent := fn.Arg("codes"), fn.Arg("src"), fn.Arg("n"), fn.Arg("factors"), fn.Arg("extent")
	c := constants{fn.Arg("c"), encodeNames}
	t, ahead := fn.GP("constants and result"), fn.GP("source to prefetch: the next row, at most farthest bytes away")
	var (
		zFactor                           = Z(16)
		zLimit, zLeast, zAnchor, zShift   = Z(17), Z(18), Z(19), Z(20)
		zSign, zSignShift                 = Z(21), X(22)
		zLow, zHigh, zAbs, zBinade, zAmax = Z(23), Z(24), Z(25), Z(26), Z(27)
	)
	for i, v := range []Vec{zLimit, zLeast, zAnchor, zShift, zSign} {
		fn.I("VPBROADCASTD", c.At(encodeNames[i]), v)
	}
	fn.I("VMOVD", c.At("signShift"), zSignShift)
	fn.I("VMOVDQU64", low, zLow)
	fn.I("VMOVDQU64", high, zHigh)
	broadcast(fn, 0x7fffffff, t, zAbs)
	broadcast(fn, 0xff800000, t, zBinade)
	fn.I("VPXORD", zAmax, zAmax, zAmax)
	fn.I("LEAQ", src.At(0).By(n, 4), ahead)
	fn.I("LEAQ", src.At(farthest), t)
	fn.I("CMPQ", ahead, t)
	fn.I("CMOVQHI", t, ahead)
	fn.blockLoop(n, extent, func() {
		fn.I("VBROADCASTSS", factors.At(0), zFactor)
	}, func(i Reg) {
		for j := range 4 {
			fn.I("PREFETCHT0", ahead.At(64*j).By(i, 4))
			fn.I("VMOVDQU32.Z", src.At(64*j).By(i, 4), K(1+j), Z(j))
		}
		for j := range 4 {
			y, e := Z(j), Z(4+j)
			fn.I("VPANDD", y, zAbs, e)
			fn.I("VPMAXUD", e, zAmax, zAmax)
			fn.I(operation, zFactor, y, y)
			clampTo(fn, zLimit, y)
			roundingSum(fn, y, e, zBinade, zLeast, zAnchor)
			fn.I("VPSRLVD", zShift, e, Z(8+j))
			fn.I("VPADDD", Z(8+j), e, e)
		}
		fn.gatherCodes(zLow, zHigh, zSign, zSignShift)
		fn.I("PREFETCHT0", codes.At(codesAhead).By(i, 1))
		fn.I("VMOVDQU8", Z(4), K(1), codes.At(0).By(i, 1))
	}, func() {
		fn.I("ADDQ", 4, factors)
		fn.I("ADDQ", extent, codes)
		fn.I("LEAQ", src.At(0).By(extent, 4), src)
		fn.I("LEAQ", ahead.At(0).By(extent, 4), ahead)
	})
	fn.maxDword(zAmax, t)
	fn.I("MOVQ", t, fn.FP("amax"))
	fn.Return()
}
