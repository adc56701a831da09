package gemm

import (
	"math"

	"github.com/microscale-go/microscale/format"
	"github.com/microscale-go/microscale/internal/memory"
)

// A vectorScales locates the scales of B. It is empty if B has no scales or one per row.
type vectorScales struct {
	bytes []byte
	row   int // bytes of a row of scales
	rows  int // of B that share it

	// If kernels multiply scales of the next rows by the zeros after a row: the number of scales of the
	// row and of those, and the largest finite code.
	used    int
	largest byte
}

func newVectorScales(s *side) (v vectorScales) {
	if !s.t.Format.Scaled() || s.perRow() {
		return v
	}
	v.bytes, v.rows = s.t.Scales, s.t.Format.Block.Rows
	if x := s.t.Scales32; x != nil {
		v.bytes = memory.Bytes(x)
	}
	_, cols := s.t.ScaleShape()
	v.row = cols * s.kernel.vector.scaleBytes()
	if k := s.kernel.vector; k.single != nil && v.row == cols {
		if used := k.stepsInside(s.t.StoredCols(), s.t.Format.Element) * k.step / k.block; used > cols {
			v.used, v.largest = used, s.hi
		}
		if k.scale == format.E4M3 {
			v.largest = byte(format.E4M3.MaxCode())
		}
	}
	return v
}

// finiteAfter reports whether the scales that kernels multiply by the zeros after row l of B are finite.
func (v *vectorScales) finiteAfter(l int) bool {
	all, _ := v.from(l)
	for _, code := range all[min(v.row, len(all)):min(v.used, len(all))] {
		if code > v.largest {
			return false
		}
	}
	return true
}

// from returns the scales from row l of B on, and the stride to those of the next row: 0 if rows share
// them.
func (v *vectorScales) from(l int) (scales []byte, stride int) {
	switch v.rows {
	case 0:
		return v.bytes, 0
	case 1:
		return v.bytes[l*v.row:], v.row
	}
	return v.bytes[l/v.rows*v.row:], 0
}

// vectorOnes holds E8M0 scales of 1.
var vectorOnes = func() (ones [vectorBytes / 16]byte) {
	for i := range ones {
		ones[i] = byte(format.E8M0.Bias)
	}
	return ones
}()

// vectorPadded returns a copy of scales padded to a number of bytes, in scratch memory.
func (w *worker) vectorPadded(scales []byte, bytes int) []byte {
	grow(&w.tail, bytes)
	padded := w.tail[:bytes]
	fill(padded, w.job.plan.kernel.vector.padding())
	copy(padded, scales)
	return padded
}

// padding returns a byte of scales that are not NaN, and not reported where that is possible.
func (v *vectorKernel) padding() byte {
	switch v.scale {
	case format.E8M0:
		return byte(format.E8M0.Bias)
	case format.E4M3:
		return byte(format.E4M3.Encode(1))
	}
	return 0
}

func fill(bytes []byte, b byte) {
	for i := range bytes {
		bytes[i] = b
	}
}

// rowScales returns the FP32 scales of rows l0…l1 of B, which has one for each row, or one for all.
func (w *worker) rowScales(l0, l1 int) []float32 {
	t := w.job.plan.b.t
	if t.Format.Block.Rows == 1 {
		return t.Scales32[l0:l1]
	}
	grow(&w.scratch.values, vectorRows)
	scales := w.scratch.values[:l1-l0]
	for i := range scales {
		scales[i] = math.Float32frombits(w.job.plan.b.scaleWord(l0+i, 0))
	}
	return scales
}
