package quant

import (
	"encoding/binary"
	"math"
	"unsafe"

	"github.com/microscale-go/microscale/format"
	"github.com/microscale-go/microscale/internal/cpu"
	"github.com/microscale-go/microscale/tensor"
)

// Primitives are the operations of the pipeline that kernels do. Each has a table of
// kernels, best first, in kernel_amd64.go (or the file of another architecture; builds
// without kernels have empty tables), and a plain Go twin: a function of this file, or the
// reference implementation. A kernel gives the bits of its twin. An operation takes the
// first row that this processor can run and that computes what the quantizer asks for.
//
// Where nothing else is said, lengths are positive, memory beyond the arguments is neither
// read nor written, strides and gaps are in bytes, and magnitudes are compared by their bits,
// so that NaN is above Inf. Sources are float32, or BF16 where raw is set.

// A fusedKernel does amax, scale and encode of rows of groups of blocks.
// Twin: worker.referenceBlocks.
type fusedKernel struct {
	tier     cpu.Tier
	raw      bool
	group    int // blocks
	supports func(*Quantizer) bool
	begin    func(*output) func(rowGroups) (amax uint32) // bits of the largest magnitude, or flagged
}

// rowGroups are rows of groups of blocks, and where their codes and scales go.
type rowGroups struct {
	codes, scales, src        []byte
	groups, rows              int // of a row; rows
	codeGap, scaleGap, srcGap int // from the end of a row to the next
	ahead, codeAhead          int // bytes of src, and of codes, that are prefetched ahead
	stream                    bool
}

// A rowKernel encodes rows of blocks of rowUnit·units finite elements, each times the
// factor of its block, to codes of 8 bits. Twin: worker.encodeRow.
type rowKernel struct {
	tier   cpu.Tier
	raw    bool
	encode func(rowPart, *encodeConstants)
}

// rowPart is rows of blocks. Their factors are factorStride apart.
type rowPart struct {
	codes, src            []byte
	factors               []float32
	rows, blocks, units   int
	codeStride, srcStride int
	factorStride          int // in factors
	ahead                 int // bytes of src that are prefetched ahead
	stream                bool
}

const rowUnit = 64

// A columnKernel has what columnwise copies need: maxima raises the maxima of a multiple of
// tileSide columns to the bits of their magnitudes, and prefetches ahead bytes further;
// encode is for floating-point or integer codes. Twin: worker.rows of the transposed tile.
type columnKernel struct {
	tier   cpu.Tier
	raw    bool
	ints   bool
	maxima func(maxima []uint32, src []byte, rows, srcStride, ahead int)
	encode func(columnPart, *encodeConstants)
}

// columnPart is n tiles of tileSide rows and columns, of finite elements. Their codes leave
// as rows, one for each column. There is a row of factors for each 16·blockRows rows.
type columnPart struct {
	codes, src                          []byte
	factors                             []float32
	n, blockRows                        int
	codeStride, srcStride, factorStride int
	ahead                               int  // bytes of src that are prefetched ahead, unless it is 0
	bits                                int  // of a stored code
	stream                              bool // codes of 8 bits leave by non-temporal stores
}

// store returns how kernels store codes: their bits, or -8 for non-temporal stores.
func (t columnPart) store() int {
	if t.stream {
		return -t.bits
	}
	return t.bits
}

// A scaleKernel sets scales, and the factors that elements are multiplied by, of a multiple
// of scaleUnit blocks. It returns the bits of the largest amax, or flagged where one needs
// the reference implementation. Twin: Quantizer.blockScale.
type scaleKernel struct {
	tier     cpu.Tier
	supports func(*Quantizer) bool
	begin    func(*output) scaleFunc
}

type scaleFunc func(factors []float32, scales []byte, amaxes []uint32) (amax uint32)

const scaleUnit = 16

// A joinKernel sets the stored codes of src times factors[i/factorExtent], with random
// words where it rounds so. Factors fill units of joinUnit elements. Twin: worker.encodeRow.
type joinKernel struct {
	tier   cpu.Tier
	bits   int // of a stored code
	random bool
	encode func(codes []byte, src []float32, random []uint32, factors []float32, c *encodeConstants)
}

const (
	joinUnit     = 64
	factorExtent = 16
)

// An encodeKernel sets codes[i], one to a byte, to that of src[i] times, or divided by,
// factors[i/extent]. Twin: worker.encodeReference.
type encodeKernel struct {
	tier   cpu.Tier
	divide bool
	encode encodeFunc
}

type encodeFunc func(codes []byte, src, factors []float32, extent int, c *encodeConstants)

// An amaxKernel raises amaxes[i/extent] to the bits of the magnitude of element i of src,
// and returns the largest of all. Twins: raiseAmaxes, maxBits.
type amaxKernel struct {
	tier  cpu.Tier
	raw   bool
	raise func(amaxes []uint32, src []byte, extent int)
	most  func(src []byte) uint32
}

// A searchKernel sets errors[k] to the error of src, a multiple of searchUnit elements,
// under n factors. Twin: searcher.squaredError.
type searchKernel struct {
	tier   cpu.Tier
	divide bool
	errors searchFunc
}

type searchFunc func(errors []float64, src, factors, decodes []float32, n int, c *searchConstants)

// A philoxKernel sets dst, a multiple of philoxUnit words, to random ones. Twin:
// philoxBlocks.
type philoxKernel struct {
	tier  cpu.Tier
	words func(dst []uint32, first uint64, c *philoxConstants)
}

// A hadamardKernel transforms each 16 elements of x; NaN becomes nan. Twin: Hadamard16.
type hadamardKernel struct {
	tier      cpu.Tier
	transform func(x []float32, signs *[hadamardSize]uint32, nan float32)
}

// A decodeKernel sets dst to scales[i/extent] times the values of the codes in src.
// Twin: Tensor.rowDecoder.
type decodeKernel struct {
	tier     cpu.Tier
	supports func(element *format.Scalar) bool
	extent   int
	decode   func(dst []float32, src []byte, scales []float32, t *decodeTables)
}

// A spreadKernel copies n times 64·width contiguous bytes by non-temporal stores to places
// that are stride bytes apart and multiples of 64. Twin: copy.
type spreadKernel struct {
	tier   cpu.Tier
	spread func(dst, src []byte, width, n, stride int)
}

const cacheLine = 64

// A transposeKernel sets dst to the transpose of the first transposeSize·n rows and
// transposeSize columns of src; strides are in elements. Twin: transpose.
type transposeKernel struct {
	tier      cpu.Tier
	transpose func(dst, src []float32, dstStride, srcStride, n int)
}

// A codesKernel transposes n tiles, which are side by side in src, of cacheLine/size rows and
// columns of codes of size bytes. Strides are in bytes. Twin: transposeTiles.
type codesKernel struct {
	tier      cpu.Tier
	size      int
	transpose func(dst, src []byte, n, dstStride, srcStride int, stream bool)
}

const transposeSize = 16

// first returns the first row of a table for which supports is true, or nil.
func first[K any](table []K, supports func(*K) bool) *K {
	for i := range table {
		if supports(&table[i]) {
			return &table[i]
		}
	}
	return nil
}

// has reports whether kernels of a tier can run.
func has(tier cpu.Tier) bool { return tier <= cpu.Best() }

// A fusedCall is a fused kernel with its constants.
type fusedCall struct {
	group    int // blocks
	quantize func(rowGroups) (amax uint32)
}

// fusedCall returns the first fused kernel for a source that is BF16 or not, or nil.
func (o *output) fusedCall(raw bool) *fusedCall {
	k := first(fusedKernels, func(k *fusedKernel) bool { return has(k.tier) && k.raw == raw && k.supports(o.q) })
	if k == nil || o.q.Search != NoSearch {
		return nil
	}
	return &fusedCall{k.group, k.begin(o)}
}

// rowKernel returns the kernel for rows of codes of 8 bits, or nil.
func (o *output) rowKernel(raw bool) *rowKernel {
	if o.q.Format.Element.StoredBits() != 8 || !o.q.signMagnitude() || o.divides {
		return nil
	}
	return first(rowKernels, func(k *rowKernel) bool { return has(k.tier) && k.raw == raw })
}

// columnKernel returns the kernel for tiles of a columnwise copy, or nil.
func (o *output) columnKernel() *columnKernel {
	q, block := o.q, o.q.Format.Block
	switch {
	case !q.Format.Scaled() || q.Search != NoSearch || q.Hadamard || o.divides || o.needsWholeRows():
		return nil
	case q.Format.PerTensor() && !o.tensorFactor.isFactor():
		return nil
	case block.Cols%16 != 0 || block.Cols%tileSide != 0 && tileSide%block.Cols != 0:
		return nil
	case q.Format.Element.Integer && (q.Rounding != format.NearestEven || q.NegativeZero != KeepNegativeZero):
		return nil
	case !q.Format.Element.Integer && !q.signMagnitude():
		return nil
	}
	return first(columnKernels, func(k *columnKernel) bool {
		return has(k.tier) && k.raw == o.x.isBF16() && k.ints == q.Format.Element.Integer
	})
}

// joinKernel returns the kernel for stored codes of the quantizer's rounding, or nil.
func (o *output) joinKernel() *joinKernel {
	nearest := *o.q
	nearest.Rounding = format.NearestEven
	random := o.q.Rounding == format.Stochastic
	if o.q.Rounding != format.NearestEven && !random || !nearest.signMagnitude() || o.divides {
		return nil
	}
	return first(joinKernels, func(k *joinKernel) bool {
		return has(k.tier) && k.bits == o.q.Format.Element.StoredBits() && k.random == random
	})
}

// encodeFunc returns the kernel for codes of one byte, or nil.
func (o *output) encodeFunc() encodeFunc {
	if !o.q.signMagnitude() {
		return nil
	}
	k := first(encodeKernels, func(k *encodeKernel) bool { return has(k.tier) && k.divide == o.divides })
	if k == nil {
		return nil
	}
	return k.encode
}

// raiseAmaxes raises amaxes[i/extent] to the bits of element i of src.
func raiseAmaxes(amaxes []uint32, src []byte, raw bool, extent int) {
	if len(src) == 0 {
		return
	}
	if k := first(amaxKernels, func(k *amaxKernel) bool { return has(k.tier) && k.raw == raw }); k != nil {
		k.raise(amaxes, src, extent)
		return
	}
	for i := range len(src) / (4 - 2*index(raw)) {
		j := i / extent
		amaxes[j] = max(amaxes[j], magnitude(src, raw, i))
	}
}

// magnitude returns the bits of the magnitude of element i.
func magnitude(src []byte, raw bool, i int) uint32 {
	if raw {
		return uint32(binary.LittleEndian.Uint16(src[2*i:])) << 16 & absMask
	}
	return binary.LittleEndian.Uint32(src[4*i:]) & absMask
}

// maxBits returns the largest bits of a magnitude in src.
func maxBits(src []byte, raw bool) (amax uint32) {
	if len(src) == 0 {
		return 0
	}
	if k := first(amaxKernels, func(k *amaxKernel) bool { return has(k.tier) && k.raw == raw }); k != nil {
		return k.most(src)
	}
	for i := range len(src) / (4 - 2*index(raw)) {
		amax = max(amax, magnitude(src, raw, i))
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
	if k := first(spreadKernels, func(k *spreadKernel) bool { return has(k.tier) }); k != nil {
		k.spread(dst, src, n/cacheLine, rows, stride)
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
	if k := first(hadamardKernels, func(k *hadamardKernel) bool { return has(k.tier) }); k != nil && len(row) > 0 {
		k.transform(row, &hadamardFlips, hadamardNaN)
		return
	}
	for i := 0; i < len(row); i += hadamardSize {
		Hadamard16(row[i : i+hadamardSize])
	}
}

// transpose sets dst to the transpose of src, of float32.
func transpose(dst tensor.Dense, src source) {
	rows, cols := src.rows/transposeSize*transposeSize, src.cols/transposeSize*transposeSize
	k := first(transposeKernels, func(k *transposeKernel) bool { return has(k.tier) })
	if k == nil || rows == 0 {
		rows, cols = 0, 0
	}
	for j := 0; j < cols; j += transposeSize {
		k.transpose(dst.Data[j*dst.Stride:], floats(src.data)[j:], dst.Stride, src.stride/src.size, rows/transposeSize)
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
