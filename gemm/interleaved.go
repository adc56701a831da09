package gemm

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"math/bits"
	"slices"
	"unsafe"

	"github.com/microscale-go/microscale/format"
	"github.com/microscale-go/microscale/internal/parallel"
	"github.com/microscale-go/microscale/quant"
	"github.com/microscale-go/microscale/tensor"
)

// Interleaved is an operand B of 4-bit or 8-bit codes in the order in which products with few rows read
// it fastest. It has the size of the tensor that it was made from. In each group of 16 rows,
//
//	codes   of each 4 bytes (8 or 4 elements) those of the first row, then those of the next
//	scales  of each block that of the first row, then that of the next
//
// Sums then need no addition across the lanes of a vector, and all of a matrix is one stream.
type Interleaved struct{ t *quant.Tensor }

// interleavedRows is the number of rows in a group, and interleavedBytes the bytes of a row of
// codes that are contiguous.
const (
	interleavedRows  = 16
	interleavedBytes = 4
)

// An interleavedFunc sets y to the products of a few rows of A with groups of 16 rows of B.
type interleavedFunc func(p interleavedArgs)

// interleavedArgs are the arguments of an interleavedFunc.
type interleavedArgs struct {
	w, s, x          unsafe.Pointer // codes and scales of B, and rows of A
	blocks, groups   int            // of a row; of rows
	y                unsafe.Pointer
	xStride, yStride int            // bytes from a row of A, and from the products with it, to the next
	batch            int            // rows of A: 1, 2 or 4
	tables           unsafe.Pointer // vectorKernel.tables
	other            int            // 1: scales are not E8M0 but E4M3 (of 4-bit codes) or float32 (of 8-bit codes)
}

// Interleave reorders b, a rowwise operand, in its memory, for products with operands A in the format
// inputs: b must not be used any more. Kernels support mxfp4 and nvfp4 with a multiple of 16 rows, whole
// blocks, and scales that are neither NaN nor extreme; with 8-bit inputs some also mxint8 and q8_0, with
// inputs in bf16 mxfp8-e4m3 without NaN and with few subnormal elements. For other operands, and on
// processors without kernels for these inputs, Interleave returns an error that matches errors.ErrUnsupported, and leaves b
// unchanged. Products with other inputs have the same results, but may take longer.
func Interleave(b *quant.Tensor, inputs quant.Format, o Options) (*Interleaved, error) {
	if err := checkOperand("b", b); err != nil {
		return nil, err
	}
	if err := checkThreads(o); err != nil {
		return nil, err
	}
	if why := interleavable(b, inputs); why != "" {
		return nil, fmt.Errorf("gemm: interleave %s: %s: %w", describe(b), why, errors.ErrUnsupported)
	}
	_, blocks := b.ScaleShape()
	const grain = 32 // groups that share the scratch buffer
	parallel.For(b.StoredRows()/interleavedRows, grain, o.Threads, func(from, to int) {
		var scratch []byte
		for g := from; g < to; g++ {
			n := interleavedRows * b.RowBytes()
			codes := b.Codes[g*n : (g+1)*n]
			scratch = append(scratch[:0], codes...)
			interleaveCodes(codes, scratch, b.RowBytes())
			if n = interleavedRows * blocks; b.Scales32 != nil {
				group := b.Scales32[g*n : (g+1)*n]
				interleaveScales(group, slices.Clone(group), blocks)
			} else {
				group := b.Scales[g*n : (g+1)*n]
				scratch = append(scratch[:0], group...)
				interleaveScales(group, scratch, blocks)
			}
		}
	})
	return &Interleaved{b}, nil
}

// interleaveCodes sets dst to the codes of a group of rows in src, interleaved. A row has a multiple of
// eight bytes.
func interleaveCodes(dst, src []byte, row int) {
	const next = interleavedRows * interleavedBytes
	for i := 0; i < row; i += 2 * interleavedBytes { // two words of a row at a time
		out := dst[i*interleavedRows:][:2*next]
		for r := range interleavedRows {
			words := binary.LittleEndian.Uint64(src[r*row+i:])
			binary.LittleEndian.PutUint32(out[r*interleavedBytes:], uint32(words))
			binary.LittleEndian.PutUint32(out[next+r*interleavedBytes:], uint32(words>>32))
		}
	}
}

// interleaveScales sets dst to the scales of a group of rows in src, interleaved.
func interleaveScales[T byte | float32](dst, src []T, row int) {
	for i := range row {
		out := dst[i*interleavedRows:][:interleavedRows]
		for r := range out {
			out[r] = src[r*row+i]
		}
	}
}

// interleavable returns the reason why no kernel of this processor multiplies b interleaved by inputs, or
// "". It sets the scales of zero blocks that kernels do not support to 1.
func interleavable(b *quant.Tensor, inputs quant.Format) (why string) {
	f, panel := b.Format, panelBF16
	if _, integers := int8Forms[inputs.Element]; integers {
		panel = panelInt8
	}
	kernel := func(k *kernel) bool {
		return k.vector != nil && k.vector.interleaved != nil && k.runs() && (k.panel == panel || panel == panelBF16 && k.panel == panelF32) &&
			f.Element.StoredBits() == k.vector.bits && k.vector.tables(f.Element) != nil && f.Scale == k.vector.scale &&
			f.Block == quant.Shape{Rows: 1, Cols: k.vector.block}
	}
	found := false
	for _, k := range ordered {
		found = found || kernel(k)
	}
	switch {
	case !found:
		return "no kernel of this processor supports it"
	case b.Direction != quant.Rowwise:
		return "it is not rowwise"
	case b.StoredRows()%interleavedRows != 0:
		return "its rows are not a multiple of 16"
	case b.StoredCols()%max(f.Block.Cols, 2*interleavedBytes) != 0 || b.StoredCols() == 0:
		return "its last block is partial"
	case !f.Element.Integer && f.Element.StoredBits() == 8 && !mostlyNormal(b.Codes):
		return "elements are NaN, or too many are subnormal"
	}
	lo, hi, one := byte(minExponent), byte(maxExponent), byte(format.E8M0.Bias)
	if f.Scale == format.E4M3 {
		lo, hi = 0, byte(format.E4M3.MaxCode())
	}
	s := side{t: b}
	var zeros []int
	_, blocks := b.ScaleShape()
	for i, code := range b.Scales {
		if code >= lo && code <= hi {
			continue
		}
		if l, k := i/blocks, i%blocks*f.Block.Cols; code == 0xff || f.Scale != format.E8M0 || !s.isZero(l, k, k+f.Block.Cols) {
			return "a scale is out of range or NaN"
		}
		zeros = append(zeros, i)
	}
	if slices.ContainsFunc(b.Scales32, func(scale float32) bool { return !isModerate(scale) }) {
		return "a scale is out of range or NaN"
	}
	for _, i := range zeros {
		b.Scales[i] = one
	}
	return ""
}

// mostlyNormal reports whether no E4M3 code is NaN and at most one of 1024 is subnormal: kernels multiply it as a subnormal
// number, which takes some processors over a hundred cycles.
func mostlyNormal(codes []byte) bool {
	const magnitudes, tops, least = 0x7f7f7f7f7f7f7f7f, 0x8080808080808080, 0x7878787878787878 // added, normal codes reach the top bit
	subnormal := 0
	for i := 0; i < len(codes); i += 8 {
		x := binary.LittleEndian.Uint64(codes[i:]) & magnitudes
		if (x+tops/0x80)&tops != 0 {
			return false
		}
		subnormal += bits.OnesCount64((x + magnitudes) &^ (x + least) & tops)
	}
	return subnormal <= len(codes)/1024
}

// Mul is the function Mul with b interleaved.
func (b *Interleaved) Mul(c tensor.Dense, a *quant.Tensor, o Options) error {
	t := b.reordered()
	if t != nil && o.Accumulator.Model != nil {
		return Mul(c, a, b.Tensor(), o)
	}
	p, err := planDense(c, a, t, interleaved, o)
	if err != nil {
		return err
	}
	return p.run(c, extent{0, p.m}, extent{0, p.n}, nil, o)
}

// Choose is the function Choose with b interleaved.
func (b *Interleaved) Choose(a *quant.Tensor, o Options) (Kernel, error) {
	if o.Accumulator.Model != nil {
		return Choose(a, b.reordered(), o)
	}
	return choose(a, b.reordered(), interleaved, o)
}

// reordered returns the tensor in the order of b.
func (b *Interleaved) reordered() *quant.Tensor {
	if b == nil {
		return nil
	}
	return b.t
}

// Format returns the format of the tensor that b was made from.
func (b *Interleaved) Format() quant.Format { return b.t.Format }

// Rows returns the number of rows.
func (b *Interleaved) Rows() int { return b.t.StoredRows() }

// Bytes returns the bytes of codes and scales.
func (b *Interleaved) Bytes() int { return len(b.t.Codes) + len(b.t.Scales) + 4*len(b.t.Scales32) }

// Tensor returns the tensor that b was made from, in new memory.
func (b *Interleaved) Tensor() *quant.Tensor {
	t := *b.t
	t.Codes, t.Scales, t.Scales32 = bytes.Clone(b.t.Codes), bytes.Clone(b.t.Scales), slices.Clone(b.t.Scales32)
	_, blocks := t.ScaleShape()
	for g := range t.StoredRows() / interleavedRows {
		codes, scales := interleavedRows*t.RowBytes(), interleavedRows*blocks
		to := t
		to.Codes = t.Codes[g*codes : (g+1)*codes]
		if len(t.Scales32) > 0 {
			to.Scales32 = t.Scales32[g*scales : (g+1)*scales]
		} else {
			to.Scales = t.Scales[g*scales : (g+1)*scales]
		}
		separate(&to, b.t, g, 0, t.StoredCols())
	}
	return &t
}

// separate sets the codes and scales of to to those of a group of rows of t, which is interleaved, over n
// positions from k on, row by row.
func separate(to, t *quant.Tensor, group, k, n int) {
	row, bits := t.RowBytes(), t.Format.Element.StoredBits()
	codes, part := to.Codes, n*bits/8
	from := t.Codes[(group*row+k*bits/8)*interleavedRows:][:part*interleavedRows]
	i := 0
	for ; i+2*interleavedBytes <= part; i += 2 * interleavedBytes { // two words of a row at a time
		const next = interleavedRows * interleavedBytes
		words := from[i*interleavedRows:][:2*next]
		for r := range interleavedRows {
			low, high := binary.LittleEndian.Uint32(words[r*interleavedBytes:]), binary.LittleEndian.Uint32(words[next+r*interleavedBytes:])
			binary.LittleEndian.PutUint64(codes[r*part+i:], uint64(low)|uint64(high)<<32)
		}
	}
	for ; i < part; i += interleavedBytes {
		for r := range interleavedRows {
			*(*[interleavedBytes]byte)(codes[r*part+i:]) = *(*[interleavedBytes]byte)(from[i*interleavedRows+r*interleavedBytes:])
		}
	}
	_, blocks := t.ScaleShape()
	per := t.Format.Block.Cols
	first, count := (group*blocks+k/per)*interleavedRows, n/per
	if len(t.Scales32) > 0 {
		separateScales(to.Scales32, t.Scales32[first:], count)
	} else {
		separateScales(to.Scales, t.Scales[first:], count)
	}
}

func separateScales[T byte | float32](dst, src []T, count int) {
	for i := range count {
		for r := range interleavedRows {
			dst[r*count+i] = src[i*interleavedRows+r]
		}
	}
}

// packInterleaved is pack for an interleaved operand: it packs the group's rows, copied one after
// the other.
func (s *side) packInterleaved(dst []byte, l0, k0, kc int, w *scratch) {
	f := s.t.Format
	if w.rows == nil || w.rows.Format.Name != f.Name || w.rows.Shape[1] != kc {
		w.rows = &quant.Tensor{Format: f, Shape: []int{interleavedRows, kc}, Codes: make([]byte, interleavedRows*kc*f.Element.StoredBits()/8)}
		if n := interleavedRows * kc / f.Block.Cols; f.Scale == format.F32 {
			w.rows.Scales32 = make([]float32, n)
		} else {
			w.rows.Scales = make([]byte, n)
		}
	}
	w.rows.Global = s.t.Global
	separate(w.rows, s.t, l0/interleavedRows, k0, kc)
	w.side = *s
	w.side.t, w.side.form = w.rows, rowMajor
	w.side.fast, _ = fastPack(&w.side)
	w.side.pack(dst, l0%interleavedRows, 0, kc, w)
}

// interleaveRows returns the codes and scales of rows l0…l1 of a row-major operand B, interleaved. Rows of zeros
// complete the last group, and blocks of zeros get a scale that kernels support.
func (w *worker) interleaveRows(l0, l1 int) (codes, scales []byte) {
	s := &w.job.plan.b
	row, groups := s.t.RowBytes(), ceilDiv(l1-l0, interleavedRows)
	_, blocks := s.t.ScaleShape()
	codeBytes, scaleBytes := interleavedRows*row, interleavedRows*blocks
	grow(&w.tail, (groups+1)*(codeBytes+scaleBytes))
	codes, scales = w.tail[:groups*codeBytes], w.tail[groups*codeBytes:][:groups*scaleBytes]
	last := w.tail[groups*(codeBytes+scaleBytes):]
	for g := range groups {
		from, to := l0+g*interleavedRows, min(l0+(g+1)*interleavedRows, l1)
		rows, of := s.t.Codes[from*row:to*row], s.t.Scales[from*blocks:to*blocks]
		if to-from < interleavedRows {
			clear(last)
			copy(last, rows)
			copy(last[codeBytes:], of)
			rows, of = last[:codeBytes], last[codeBytes:][:scaleBytes]
		}
		interleaveCodes(codes[g*codeBytes:(g+1)*codeBytes], rows, row)
		interleaveScales(scales[g*scaleBytes:(g+1)*scaleBytes], of, blocks)
	}
	for i, code := range scales {
		scales[i] = min(max(code, s.lo), s.hi)
	}
	return codes, scales
}

// arrangeInterleaved sets x to the values as BF16, in the order of interleaved kernels: of each
// eight, the pairs (0, 4), (1, 5), (2, 6) and (3, 7).
func arrangeInterleaved(x []uint32, values []float32) {
	for i := range x {
		v := values[i/4*8+i%4:]
		x[i] = math.Float32bits(v[0])>>16 | math.Float32bits(v[4])&0xffff0000
	}
}

// arrangeInterleavedInt8 sets x to row l of A in the order of the interleaved int8 kernels.
// values are its elements without scales. Each block of B takes the elements as integers (with 4-bit codes
// of B, of each eight the even ones, then the odd ones), the initial value of the sums, which subtracts the
// bias of B, and the scale times the units of both element formats.
func (s *side) arrangeInterleavedInt8(x []uint32, values []float32, l int, unitB float32) {
	unit, v := int8Forms[s.t.Format.Element].unit, s.kernel.vector
	words, perUnit := v.words(v.block), 1/unit // a power of two
	second, next := 1, 2                       // first element of the second word of eight, and distance in a word
	if v.bits == 8 {
		second, next = 4, 1
	}
	for c := 0; c < len(values); c += v.block {
		out, in := x[c/v.block*words:][:words], values[c:c+v.block]
		var sum int32
		for i := 0; i < len(in); i += 8 {
			e := (*[8]float32)(in[i:])
			for word := range 2 {
				at := word * second
				n0, n1, n2, n3 := int32(e[at]*perUnit), int32(e[at+next]*perUnit), int32(e[at+2*next]*perUnit), int32(e[at+3*next]*perUnit)
				sum += n0 + n1 + n2 + n3
				out[i/4+word] = uint32(uint8(n0)) | uint32(uint8(n1))<<8 | uint32(uint8(n2))<<16 | uint32(uint8(n3))<<24
			}
		}
		out[words-2] = uint32(-sum * s.other)
		out[words-1] = s.vectorScale(l, c, unit*unitB)
	}
}
