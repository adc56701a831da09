package gemm

import (
	"bytes"
	"encoding/binary"
	"slices"
	"unsafe"

	"github.com/microscale-go/microscale/format"
)

// planVectorInt8 is planVector for int8 kernels. The scale of A is constant over a block of B;
// the kernel multiplies the two scales as the panel kernels do.
func (p *plan) planVectorInt8(v *vectorKernel) (why string) {
	f, g := p.b.t.Format, p.a.t.Format
	_, integersB := int8Forms[f.Element]
	_, integersA := int8Forms[g.Element]
	switch {
	case !integersA || !integersB || f.Element.StoredBits() != v.bits:
		return "unsupported element format"
	case f.Scale != v.scale || f.Block.Cols != v.block || g.Block.Cols == 0 || g.Block.Cols%v.block != 0:
		return "unsupported scales"
	case v.signs && g.Element == format.INT8 && bytes.IndexByte(p.a.t.Codes, 0x80) >= 0:
		return "an element of a is -2"
	}
	if p.b.lo, p.b.hi = minExponent, maxExponent; v.scale == format.E4M3 {
		p.b.lo, p.b.hi = 0, byte(format.E4M3.MaxCode())
	}
	if v.interleaved != nil && p.b.form != interleaved {
		if why = p.b.interleavesRows(v); why != "" {
			return why
		}
	}
	switch {
	case g.Scale == format.E8M0:
		p.a.scales, p.a.lo, p.a.hi = exponents, minExponent, maxExponent
		return p.a.checkExponents()
	case g.Scale == format.E4M3 && v.scale == format.E4M3:
		p.a.scales = perChunk
		return ""
	}
	return "unsupported scales"
}

// interleavesRows returns the reason why the rows of B cannot be interleaved while they are multiplied.
func (s *side) interleavesRows(v *vectorKernel) (why string) {
	f := s.t.Format
	switch {
	case f.Block.Rows != 1 || s.t.Scales == nil:
		return "unsupported scales"
	case s.t.StoredCols()%max(v.block, 2*interleavedBytes) != 0:
		return "the last block of b is partial"
	case v.scale != format.E4M3:
		return s.checkExponents()
	case !allPositive(s.t.Scales):
		return "a scale of b is negative or NaN"
	}
	return ""
}

// allPositive reports whether E4M3 codes are neither negative nor NaN.
func allPositive(codes []byte) bool {
	const ones = 0x0101010101010101
	i := 0
	for ; i+8 <= len(codes); i += 8 { // eight at a time: the code after the largest has the bit of the sign
		x := binary.LittleEndian.Uint64(codes[i:])
		if (x|(x&^(0x80*ones)+ones))&(0x80*ones) != 0 {
			return false
		}
	}
	return !slices.ContainsFunc(codes[i:], func(code byte) bool { return uint32(code) > format.E4M3.MaxCode() })
}

// vectorInterleaved is vectorTask for an interleaved operand.
func (w *worker) vectorInterleaved(l0, l1 int) {
	const word = 4
	j, v, t := w.job, w.job.plan.kernel.vector, w.job.plan.b.t
	_, blocks := t.ScaleShape()
	var codes, scales unsafe.Pointer
	other := 0
	if v.scale != format.E8M0 {
		other = 1
	}
	switch {
	case j.plan.b.form != interleaved:
		c, s := w.interleaveRows(l0, l1)
		codes, scales = unsafe.Pointer(&c[0]), unsafe.Pointer(&s[0])
	case t.Scales32 != nil:
		codes, scales = unsafe.Pointer(&t.Codes[l0*t.RowBytes()]), unsafe.Pointer(&t.Scales32[l0*blocks])
	default:
		codes, scales = unsafe.Pointer(&t.Codes[l0*t.RowBytes()]), unsafe.Pointer(&t.Scales[l0*blocks])
	}
	for _, pass := range j.vector.passes {
		v.interleaved(interleavedArgs{
			w: codes, s: scales, x: unsafe.Pointer(&j.vector.x[pass.first*j.vector.xStride]),
			blocks: blocks, groups: ceilDiv(l1-l0, interleavedRows), y: unsafe.Pointer(&w.edge[pass.first*vectorRows]),
			xStride: word * j.vector.xStride, yStride: word * vectorRows, batch: pass.batch, tables: v.tables(t.Format.Element), other: other,
		})
	}
}
