package quant

import (
	"encoding/binary"
	"fmt"
	"math"
	"unsafe"

	"github.com/microscale-go/microscale/format"
	"github.com/microscale-go/microscale/internal/cpu"
	"github.com/microscale-go/microscale/tensor"
)

// Primitives are the operations of the pipeline that kernels do. Each has a table of
// kernels, best first, which the file of an architecture fills (kernel_amd64.go), and a plain
// Go twin: a function of this file, or the reference implementation. A kernel gives the bits
// of its twin. An operation takes the first kernel that this processor can run and that
// computes what the quantizer asks for.
//
// Unless a comment says otherwise, lengths are positive, a kernel neither reads nor writes memory
// beyond its arguments, strides and gaps are in bytes, and magnitudes are compared by their bits, so
// that NaN is above Inf. Sources are float32 or BF16.

// A kernel does a primitive F on processors with the features that it needs, for one variant.
type kernel[F any] struct {
	needs cpu.Set
	variant
	run F
}

// A variant says which sources and codes a kernel is for. A field that a primitive does not
// distinguish is zero.
type variant struct {
	bf16    bool // the source
	integer bool // codes are of INT8
	divides bool // elements are divided by their factors, not multiplied
	random  bool // rounding is stochastic
	weights bool // errors have weights
	bits    int  // of a stored code
}

var (
	fusedKernels  []fusedKernel
	scaleKernels  []scaleKernel
	decodeKernels []decodeKernel

	// rowKernels encode rows of blocks of finite elements, each times the factor of its
	// block, to codes of 8 bits. Twin: worker.encodeRow.
	rowKernels []kernel[func(rowPart, *encodeConstants)]

	// maximaKernels raise the maxima of a multiple of tileSide columns to the bits of their
	// magnitudes, and prefetch ahead bytes further. Twin: raiseMagnitudes.
	maximaKernels []kernel[func(maxima []uint32, src []byte, rows, srcStride, ahead int)]

	// columnKernels encode tiles of a columnwise copy. Twin: worker.rows of the transposed
	// tile.
	columnKernels []kernel[func(columnPart, *encodeConstants)]

	// joinKernels set the stored codes of src times factors[i/factorExtent], with random
	// words for stochastic rounding. Factors fill units of joinUnit elements. Twin:
	// worker.encodeRow.
	joinKernels []kernel[func(codes []byte, src []float32, random []uint32, factors []float32, c *encodeConstants)]

	// encodeKernels set codes[i], one to a byte, to that of src[i] times, or divided by,
	// factors[i/extent]. Twin: worker.encodeReference.
	encodeKernels []kernel[func(codes []byte, src, factors []float32, extent int, c *encodeConstants)]

	// amaxKernels raise amaxes[i/extent] to the bits of the magnitude of element i of src.
	// Twin: raiseAmaxes.
	amaxKernels []kernel[func(amaxes []uint32, src []byte, extent int)]

	// maxKernels return the largest bits of a magnitude in src. Twin: maxBits.
	maxKernels []kernel[func(src []byte) (amax uint32)]

	// searchKernels set errors[k] to the error of src, a multiple of searchUnit elements with
	// as many weights, or without any, under n factors. Twin: output.squaredError.
	searchKernels []kernel[searchKernel]

	// sumKernels set the sums of blockSums. Twin: plainSums.
	sumKernels []kernel[sumKernel]

	// philoxKernels set dst, a multiple of philoxUnit words, to random ones. Twin:
	// philoxBlocks.
	philoxKernels []kernel[func(dst []uint32, first uint64, c *philoxConstants)]

	// hadamardKernels transform each 16 elements of x; NaN becomes nan. Twin: Hadamard16.
	hadamardKernels []kernel[func(x []float32, signs *[hadamardSize]uint32, nan float32)]

	// spreadKernels copy n times 64·width contiguous bytes by non-temporal stores to places
	// that are stride bytes apart and multiples of 64. Twin: copy.
	spreadKernels []kernel[func(dst, src []byte, width, n, stride int)]

	// transposeKernels set dst to the transpose of the first transposeSize·n rows and
	// transposeSize columns of src; strides are in elements. Twin: transpose.
	transposeKernels []kernel[func(dst, src []float32, dstStride, srcStride, n int)]

	// transposeFourKernels store four rows of fourUnit·n bytes transposed: four contiguous bytes
	// for each column. Twin: transposeScales.
	transposeFourKernels []kernel[func(dst, src []byte, n, dstStride, srcStride int)]

	// codesKernels transpose n tiles, which are side by side in src, of codes of 8 or 16
	// bits: as many rows and columns as fill a cache line. Twin: transposeTiles.
	codesKernels []kernel[func(dst, src []byte, n, dstStride, srcStride int, stream bool)]
)

const (
	cacheLine     = 64
	rowUnit       = 64
	scaleUnit     = 16
	joinUnit      = 64
	factorExtent  = 16
	transposeSize = 16
	fourUnit      = 16
)

// A condition is what a row of a kernel table is for.
type condition[T any] struct {
	name  string
	holds func(T) bool
}

// add appends a kernel to a table.
func add[F any](table *[]kernel[F], needs cpu.Set, v variant, run F) {
	*table = append(*table, kernel[F]{needs, v, run})
}

func init() {
	cpu.AddTable("quant", &fusedKernels, func(k *fusedKernel) (string, cpu.Set) {
		return "fused rows, " + k.supports.name + variant{bf16: k.bf16}.String(), k.needs
	})
	cpu.AddTable("quant", &scaleKernels, func(k *scaleKernel) (string, cpu.Set) { return "scales, " + k.supports.name, k.needs })
	cpu.AddTable("quant", &decodeKernels, func(k *decodeKernel) (string, cpu.Set) {
		return fmt.Sprintf("decode, %s, blocks of %d", k.supports.name, k.extent), k.needs
	})
	list("encode rows", &rowKernels)
	list("column maxima", &maximaKernels)
	list("encode columns", &columnKernels)
	list("encode, joined codes", &joinKernels)
	list("encode", &encodeKernels)
	list("amaxes", &amaxKernels)
	list("largest magnitude", &maxKernels)
	list("scale search", &searchKernels)
	list("error sums", &sumKernels)
	list("random words", &philoxKernels)
	list("Hadamard", &hadamardKernels)
	list("copy apart", &spreadKernels)
	list("transpose", &transposeKernels)
	list("transpose four rows", &transposeFourKernels)
	list("transpose codes", &codesKernels)
}

// list adds the table of a primitive to those of the program.
func list[F any](primitive string, table *[]kernel[F]) {
	cpu.AddTable("quant", table, func(k *kernel[F]) (string, cpu.Set) { return primitive + k.variant.String(), k.needs })
}

// String returns what distinguishes the variant, as a suffix.
func (v variant) String() (text string) {
	for _, property := range []struct {
		has  bool
		name string
	}{{v.bf16, "BF16"}, {v.integer, "INT8"}, {v.divides, "divided"}, {v.random, "stochastic"}, {v.weights, "weighted"},
		{v.bits > 0, fmt.Sprintf("%d bits", v.bits)}} {
		if property.has {
			text += ", " + property.name
		}
	}
	return text
}

// find returns the first kernel for a variant that this processor can run. ok is false if
// there is none.
func find[F any](table []kernel[F], v variant) (run F, ok bool) {
	k := first(table, func(k *kernel[F]) bool { return cpu.Uses(k.needs) && k.variant == v })
	if k == nil {
		return run, false
	}
	return k.run, true
}

// first returns the first row of a table for which supports is true, or nil.
func first[K any](table []K, supports func(*K) bool) *K {
	for i := range table {
		if supports(&table[i]) {
			return &table[i]
		}
	}
	return nil
}

// A fusedKernel does amax, scale and encode of rows of groups of blocks.
// Twin: worker.referenceBlocks.
type fusedKernel struct {
	needs    cpu.Set
	bf16     bool
	group    int  // blocks
	columns  bool // it raises rowGroups.maxima
	supports condition[*Quantizer]
	begin    func(*output) func(rowGroups) (amax uint32) // bits of the largest magnitude, or flagged
}

// rowGroups are rows of groups of blocks, and where their codes and scales go.
type rowGroups struct {
	codes, scales, src        []byte
	groups, rows              int // of a row; rows
	codeGap, scaleGap, srcGap int // from the end of a row to the next
	ahead, codeAhead          int // bytes of src, and of codes, that are prefetched ahead
	stream                    bool
	maxima                    []byte // running amaxes of the columns, as a row of src, which fusedKernel.columns raises; or nil
}

// A scaleKernel sets scales, and the factors that elements are multiplied by, of a multiple
// of scaleUnit blocks. It returns the bits of the largest amax, or flagged where one needs
// the reference implementation. Twin: Quantizer.blockScale.
type scaleKernel struct {
	needs    cpu.Set
	supports condition[*Quantizer]
	begin    func(*output) func(factors []float32, scales []byte, amaxes []uint32) (amax uint32)
}

// A decodeKernel sets dst to scales[i/extent] times the values of the codes in src.
// Twin: Tensor.plainRowDecoder.
type decodeKernel struct {
	needs    cpu.Set
	supports condition[*format.Scalar] // of elements
	extent   int
	decode   func(dst []float32, src []byte, scales []float32, t *decodeTables)
}

// rowPart is rows of blocks of rowUnit·units elements. Their factors are factorStride apart.
type rowPart struct {
	codes, src            []byte
	factors               []float32
	rows, blocks, units   int
	codeStride, srcStride int
	factorStride          int // in factors
	ahead                 int // bytes of src that are prefetched ahead
	stream                bool
}

// columnPart is n tiles of tileSide rows and columns, of finite elements. Their codes are
// stored as rows, one for each column. There is a row of factors for each 16·blockRows rows.
type columnPart struct {
	codes, src                          []byte
	factors                             []float32
	n, blockRows                        int
	codeStride, srcStride, factorStride int
	ahead                               int  // bytes of src that are prefetched ahead, unless it is 0
	bits                                int  // of a stored code
	stream                              bool // codes of 8 bits are written by non-temporal stores
	powers                              bool // factors are powers of two whose products are less than twice the largest element
}

// store returns how kernels store codes: their bits, or -8 for non-temporal stores.
func (t columnPart) store() int {
	if t.stream {
		return -t.bits
	}
	return t.bits
}

// A fusedCall is a fused kernel with its constants.
type fusedCall struct {
	group    int  // blocks
	columns  bool // it raises rowGroups.maxima
	quantize func(rowGroups) (amax uint32)
}

// fusedCall returns the first fused kernel for a source that is BF16 or not, or nil.
func (o *output) fusedCall(bf16 bool) *fusedCall {
	k := first(fusedKernels, func(k *fusedKernel) bool { return cpu.Uses(k.needs) && k.bf16 == bf16 && k.supports.holds(o.q) })
	if k == nil || o.q.Search != NoSearch {
		return nil
	}
	return &fusedCall{k.group, k.columns, k.begin(o)}
}

// columnKernel returns the kernel for tiles of a columnwise copy, or nil.
func (o *output) columnKernel() func(columnPart, *encodeConstants) {
	q, block := o.q, o.q.Format.Block
	switch {
	case !q.Format.Scaled() || q.Search != NoSearch || q.Hadamard || o.divides || o.needsWholeRows():
		return nil
	case q.Format.PerTensor() && !o.tensorFactor.isFactor():
		return nil
	case block.Cols%16 != 0 || block.Cols%tileSide != 0 && tileSide%block.Cols != 0:
		return nil
	case q.Format.Element.Integer && (q.Rounding != format.NearestEven || q.NegativeZero != KeepNegativeZero ||
		!isSymmetric(q.Format.Element)):
		return nil
	case !q.Format.Element.Integer && !q.signMagnitude():
		return nil
	}
	encode, _ := find(columnKernels, variant{bf16: o.x.isBF16(), integer: q.Format.Element.Integer})
	return encode
}

// rowKernel returns the kernel for rows of codes of 8 bits, or nil.
func (o *output) rowKernel(bf16 bool) func(rowPart, *encodeConstants) {
	if o.q.Format.Element.StoredBits() != 8 || !o.q.signMagnitude() || o.divides {
		return nil
	}
	encode, _ := find(rowKernels, variant{bf16: bf16})
	return encode
}

// joinKernel returns the kernel for stored codes of the quantizer's rounding, or nil.
func (o *output) joinKernel() func(codes []byte, src []float32, random []uint32, factors []float32, c *encodeConstants) {
	nearest := *o.q
	nearest.Rounding = format.NearestEven
	random := o.q.Rounding == format.Stochastic
	if o.q.Rounding != format.NearestEven && !random || !nearest.signMagnitude() || o.divides {
		return nil
	}
	encode, _ := find(joinKernels, variant{bits: o.q.Format.Element.StoredBits(), random: random})
	return encode
}

// encodeKernel returns the kernel for codes of one byte, or nil.
func (o *output) encodeKernel() func(codes []byte, src, factors []float32, extent int, c *encodeConstants) {
	if !o.q.signMagnitude() {
		return nil
	}
	encode, _ := find(encodeKernels, variant{divides: o.divides})
	return encode
}

// raiseAmaxes raises amaxes[i/extent] to the bits of element i of src.
func raiseAmaxes(amaxes []uint32, src []byte, bf16 bool, extent int) {
	if len(src) == 0 {
		return
	}
	if raise, ok := find(amaxKernels, variant{bf16: bf16}); ok {
		raise(amaxes, src, extent)
		return
	}
	for i := range len(src) / (4 - 2*index(bf16)) {
		j := i / extent
		amaxes[j] = max(amaxes[j], magnitude(src, bf16, i))
	}
}

// magnitude returns the bits of the magnitude of element i.
func magnitude(src []byte, bf16 bool, i int) uint32 {
	if bf16 {
		return uint32(binary.LittleEndian.Uint16(src[2*i:])) << 16 & absMask
	}
	return binary.LittleEndian.Uint32(src[4*i:]) & absMask
}

// maxBits returns the largest bits of a magnitude in src.
func maxBits(src []byte, bf16 bool) (amax uint32) {
	if len(src) == 0 {
		return 0
	}
	if kernel, ok := find(maxKernels, variant{bf16: bf16}); ok {
		return kernel(src)
	}
	for i := range len(src) / (4 - 2*index(bf16)) {
		amax = max(amax, magnitude(src, bf16, i))
	}
	return amax
}

// raiseMagnitudes raises each of maxima to the bits of |x[i]|.
func raiseMagnitudes(maxima []uint32, x []float32) {
	for i, v := range x {
		maxima[i] = max(maxima[i], math.Float32bits(v)&absMask)
	}
}

// spread copies n bytes of each row to places that are stride bytes apart by non-temporal
// stores; all are multiples of cacheLine.
func spread(dst, src []byte, n, rows, stride int) {
	if spread, ok := find(spreadKernels, variant{}); ok {
		spread(dst, src, n/cacheLine, rows, stride)
		return
	}
	for i := range rows {
		copy(dst[i*stride:][:n], src[i*n:])
	}
}

// isAligned reports whether b begins with a cache line.
func isAligned(b []byte) bool { return uintptr(unsafe.Pointer(unsafe.SliceData(b)))%cacheLine == 0 }

// hadamardRow transforms each 16 elements of a row of a multiple of 16.
func hadamardRow(row []float32) {
	if transform, ok := find(hadamardKernels, variant{}); ok && len(row) > 0 {
		transform(row, &hadamardFlips, hadamardNaN)
		return
	}
	for i := 0; i < len(row); i += hadamardSize {
		Hadamard16(row[i : i+hadamardSize])
	}
}

// transpose sets dst to the transpose of src, of float32.
func transpose(dst tensor.Dense, src source) {
	rows, cols := src.rows/transposeSize*transposeSize, src.cols/transposeSize*transposeSize
	kernel, ok := find(transposeKernels, variant{})
	if !ok || rows == 0 {
		rows, cols = 0, 0
	}
	for j := 0; j < cols; j += transposeSize {
		kernel(dst.Data[j*dst.Stride:], floats(src.data)[j:], dst.Stride, src.stride/src.size, rows/transposeSize)
	}
	for i := range src.rows {
		j := cols
		if i >= rows {
			j = 0
		}
		for row := src.row(i, 0, src.cols, nil); j < len(row); j++ {
			dst.Data[j*dst.Stride+i] = row[j]
		}
	}
}
