package quant

import (
	"slices"

	"github.com/microscale-go/microscale/format"
	"github.com/microscale-go/microscale/internal/cpu"
)

// Kernels are rows of the tables of this file's amd64 twin, best first. An
// operation takes the first row that the processor can run and that computes
// what the quantizer asks for; where there is none, the plain form, which is the
// specification: a kernel gives the same bits, or reports that it could not.

// A fusedKernel quantizes groups of blocks in one read of the source. A block
// that it does not serve (one that holds NaN or Inf, or whose scale is at an end
// of its range) raises a flag, and the plain form redoes the call.
type fusedKernel struct {
	tier   cpu.Tier
	raw    bool // the source is BF16, else float32
	group  int  // blocks
	serves func(*Quantizer) bool
	begin  func(*run) fusedCall
}

// A fusedCall quantizes whole groups, at least one, and returns the bits of the
// largest magnitude, or flagged. With stream, codes are written past the caches.
type fusedCall func(codes, scales, src []byte, groups int, stream bool) uint32

const (
	groupBlocks     = 16      // of fused kernels that compute the scales of so many at once
	groupBlocksAVX2 = 8       // of those for AVX2 with blocks of 32
	callBytes       = 1 << 16 // of the source, about, in one call: what is redone where a block is flagged
	flagged         = 1<<32 - 1
)

// A rowsKernel encodes rows of blocks of 64·units elements by factors, one for each
// block of a row, unless codes is nil, while it raises 16 maxima for each block of
// rows that come later to the bits of magnitudes, unless next is nil.
type rowsKernel struct {
	tier   cpu.Tier
	raw    bool
	encode func(rowsTile, *bytesConstants)
}

// A rowsTile is what a rowsKernel works on.
type rowsTile struct {
	codes, src, next    []byte // from the first block on
	rows, units         int
	codeGap, srcGap     int // bytes between rows
	srcAhead, nextAhead int // bytes from what is read to what is fetched
	factors, maxima     []float32
}

// A lineKernel sets the codes of a line to those of src times factors[i/16], with
// the bits of random where it rounds so, and returns the largest bits of a magnitude
// in src; where they are not those of a finite number, the codes are not valid. Its
// maxima are raised to the bits of |src[i]|.
type lineKernel struct {
	tier   cpu.Tier
	bits   int // of a stored code
	random bool
	encode func(codes []byte, src []float32, random []uint32, factors []float32, c *lineConstants) uint32
	maxima func(maxima, src []float32)
}

// lineUnit is the elements that a lineKernel takes at a time: it reads the factors
// of so many.
const lineUnit = 64

// A philoxKernel sets dst, a multiple of philoxUnit words, to random ones.
type philoxKernel struct {
	tier  cpu.Tier
	words func(dst []uint32, first uint64, c *philoxConstants)
}

// A hadamardKernel transforms each 16 elements of x, which has some; NaN becomes
// nan.
type hadamardKernel struct {
	tier      cpu.Tier
	transform func(x []float32, signs *[hadamardSize]uint32, nan float32)
}

// An amaxBF16Kernel returns the bits of the largest magnitude of src, which is
// not empty.
type amaxBF16Kernel struct {
	tier cpu.Tier
	amax func(src []byte) uint32
}

// An encodeKernel sets codes[i] to that of src[i] times factors[i/extent], or
// divided by it, one per byte, and returns the largest bits of a magnitude in
// src; where they are not those of a finite number, the codes are not valid.
type encodeKernel struct {
	tier   cpu.Tier
	divide bool
	encode encodeFunc
}

type encodeFunc func(codes []byte, src, factors []float32, extent int, c *encodeConstants) uint32

// A decodeKernel sets dst to scales[i/extent] times the values of the codes that
// are stored in src, blocks of zeros at the end included.
type decodeKernel struct {
	tier   cpu.Tier
	serves func(element *format.Scalar) bool
	extent int // elements that one of scales serves
	decode func(dst []float32, src []byte, scales []float32, t *decodeTables)
}

// An amaxKernel raises amaxes[i/extent] to the bits of |x[i]|, or returns the largest
// of all, where x is not empty.
type amaxKernel struct {
	tier  cpu.Tier
	raise func(amaxes []uint32, x []float32, extent int)
	most  func(x []float32) uint32
}

// A spreadKernel copies so many times 64·width bytes, one behind the other, past the
// caches to places that are stride bytes apart and multiples of 64.
type spreadKernel struct {
	tier   cpu.Tier
	spread func(dst, src []byte, width, lines, stride int)
}

const spreadUnit = 64 // bytes

// spreader returns the best of their functions; nil where there is none.
func spreader() func(dst, src []byte, width, lines, stride int) {
	for _, k := range spreadKernels {
		if k.tier <= cpu.Best() {
			return k.spread
		}
	}
	return nil
}

// A fetchKernel brings rows of 64·width bytes that are stride bytes apart to the
// second-level cache. Where the last one ends beyond src, nothing is read there.
type fetchKernel struct {
	tier  cpu.Tier
	fetch func(src []byte, width, rows, stride int)
}

// A transposeKernel sets dst to the transpose of the first 16·n rows and 16
// columns of src; strides are in elements.
type transposeKernel struct {
	tier      cpu.Tier
	transpose func(dst, src []float32, dstStride, srcStride, n int)
}

// A pairKernel is the same of 32·n rows and 32 columns of elements of two bytes,
// with strides in bytes.
type pairKernel struct {
	tier      cpu.Tier
	transpose func(dst, src []byte, dstStride, srcStride, n int)
}

const (
	transposeSize = 16 // rows and columns of a transposeKernel
	pairSize      = 32 // and of a pairKernel
)

// fused returns the first fused kernel that serves the run, or nil.
func (r *run) fused() *fusedKernel {
	if r.q.Search != NoSearch {
		return nil
	}
	for i, k := range fusedKernels {
		if k.tier <= cpu.Best() && k.raw == r.x.isRaw && k.serves(r.q) {
			return &fusedKernels[i]
		}
	}
	return nil
}

// rowsKernel returns the kernel for rows or tiles under one factor each, or nil.
func (r *run) rowsKernel() *rowsKernel {
	if r.q.Format.Element.StoredBits() != 8 || !r.q.signMagnitude() {
		return nil
	}
	for i, k := range rowsKernels {
		if k.tier <= cpu.Best() && k.raw == r.x.isRaw {
			return &rowsKernels[i]
		}
	}
	return nil
}

// A lineEncoder is an encode kernel with room for the factors of a line.
type lineEncoder struct {
	kernels   [2]encodeFunc // that multiplies, and that divides
	constants encodeConstants
	factors   []float32
	extent    int
}

// lineEncoder returns e, set up for r, or nil where no kernel computes what the quantizer
// asks for.
func (r *run) lineEncoder(e *lineEncoder) *lineEncoder {
	if !r.q.signMagnitude() {
		return nil
	}
	e.constants, e.extent, e.kernels = newEncodeConstants(r.q.Format.Element), r.t.extent(), [2]encodeFunc{}
	grow(&e.factors, r.t.scaleCols())
	for _, k := range slices.Backward(encodeKernels) {
		if k.tier <= cpu.Best() {
			e.kernels[index(k.divide)] = k.encode
		}
	}
	return e
}

// encode sets codes to those of a line; false where the line, or one of its
// factors, is not for the kernel.
func (e *lineEncoder) encode(codes []byte, line []float32, factors []blockFactor) bool {
	if e == nil || len(line) == 0 {
		return false
	}
	divide := factors[0].divide
	kernel := e.kernels[index(divide)]
	for j, f := range factors {
		usable := f.value > 0 && f.value <= maxFloat32
		if f.poison || !f.isPlain() || f.divide != divide || !usable {
			return false
		}
		e.factors[j] = f.value
	}
	return kernel != nil && kernel(codes, line, e.factors[:len(factors)], e.extent, &e.constants) < exponentMask
}

func index(divide bool) int {
	if divide {
		return 1
	}
	return 0
}

// raiseAmaxes raises amaxes[i/extent] to the bits of |x[i]|, NaN above all.
func raiseAmaxes(amaxes []uint32, x []float32, extent int) {
	if len(x) == 0 {
		return
	}
	for _, k := range amaxKernels {
		if k.tier <= cpu.Best() {
			k.raise(amaxes, x, extent)
			return
		}
	}
	for j := range ceilDiv(len(x), extent) {
		amaxes[j] = max(amaxes[j], format.MaxBits(x[j*extent:min((j+1)*extent, len(x))]))
	}
}

// maxBits is format.MaxBits by the best kernel.
func maxBits(x []float32) uint32 {
	if len(x) > 0 {
		for _, k := range amaxKernels {
			if k.tier <= cpu.Best() {
				return k.most(x)
			}
		}
	}
	return format.MaxBits(x)
}
