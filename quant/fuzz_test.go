package quant

import (
	"encoding/binary"
	"math"
	"testing"

	"github.com/microscale-go/microscale/format"
	"github.com/microscale-go/microscale/tensor"
)

// FuzzQuantize takes any float32 bits through any behavior and back: nothing
// panics, values are scale times code, and of all codes the one chosen is the
// nearest.
func FuzzQuantize(f *testing.F) {
	add := func(behavior, cols byte, x ...float32) {
		b := make([]byte, 0, 4*len(x))
		for _, v := range x {
			b = binary.LittleEndian.AppendUint32(b, math.Float32bits(v))
		}
		f.Add(behavior, cols, b)
	}
	add(0, 4, 1, -2, 3, 448)
	add(1, 33, 0, negZero, nan, inf)
	add(40, 1, math.MaxFloat32, -math.MaxFloat32, 0x1p-149, -0x1p-126)
	add(60, 3, 6, 2688, 1e-30, -1e30, 0.25, 2.5)
	add(90, 200, 1.75, 1.7500001, 1.9375, 3.5)
	f.Add(byte(7), byte(0), []byte{1, 2, 3})
	f.Add(byte(53), byte(1), []byte("000\x80")) // the smallest scale, by which torchao does not divide

	all := behaviors()
	f.Fuzz(func(t *testing.T, behavior, cols byte, raw []byte) {
		q := all[int(behavior)%len(all)]
		values := make([]float32, len(raw)/4)
		for i := range values {
			values[i] = math.Float32frombits(binary.LittleEndian.Uint32(raw[4*i:]))
		}
		width := max(1, int(cols))
		x := tensor.Of(len(values)/width, width, values[:len(values)/width*width])
		for _, d := range []Direction{Rowwise, Columnwise} {
			r, err := direction(q, x, d, With{Random: &Stream{Seed: uint64(cols)}})
			if err != nil {
				t.Fatalf("%s: %v", q.testName(), err)
			}
			checkNearest(t, q, r, x)
		}
	})
}

// checkNearest checks the decoded values of a tensor against its source.
func checkNearest(t *testing.T, q Quantizer, r *Tensor, x tensor.Dense) {
	t.Helper()
	y := r.Dequantize(1)
	if y.Rows != x.Rows || y.Cols != x.Cols {
		t.Fatalf("%s: %d×%d decodes to %d×%d", q.testName(), x.Rows, x.Cols, y.Rows, y.Cols)
	}
	element := q.Format.Element
	if !q.Format.Scaled() || q.Rounding > format.HalfTowardZero {
		return
	}
	c := codes(r)
	for i := range x.Rows {
		for j := range x.Cols {
			l, p := i, j
			if r.Direction == Columnwise {
				l, p = j, i
			}
			scale, code := r.Scale(l, p), uint32(c[l*r.paddedCols()+p])
			got := y.At(i, j)
			if want := mul32(scale, element.Decode(code)); math.Float32bits(got) != math.Float32bits(want) && (got == got || want == want) {
				t.Fatalf("%s: (%d, %d) decodes to %g, want %g·%g", q.testName(), i, j, got, scale, element.Decode(code))
			}
			v := float64(x.At(i, j))
			if math.IsNaN(v) || math.IsInf(v, 0) || math.IsNaN(float64(scale)) || math.IsInf(float64(scale), 0) {
				continue
			}
			if q.SmallestDivisor != 0 && q.Format.Scale == format.E8M0 && scale == 0x1p-127 {
				continue // elements are divided by another power of two
			}
			if q.Format.Scale != format.E8M0 && scale < 0x1p-126 {
				continue // its reciprocal is beyond float32, or it has few bits itself
			}
			// Without Arithmetic, factors are powers of two and this is exact. With
			// it, a quotient near a tie may fall to either side: of x itself, or of
			// BF16's nearest to it.
			slack := 0.0
			switch {
			case q.Format.Scale == format.E8M0:
			case q.Arithmetic == DecodeFirstBF16:
				slack = math.Abs(v) * 0x1p-7
			default:
				slack = math.Abs(v)*0x1p-18 + math.SmallestNonzeroFloat32
			}
			least := math.Inf(1)
			for other := range uint32(1) << element.Bits() {
				if u := float64(element.Decode(other)); u == u && math.Abs(u) <= float64(element.Max()) {
					least = min(least, math.Abs(float64(scale)*u-v))
				}
			}
			if e := math.Abs(float64(scale)*float64(element.Decode(code)) - v); e > least+slack {
				t.Fatalf("%s: %g at (%d, %d) became %g·%g, off by %g where %g is possible", q.testName(), v, i, j, scale, element.Decode(code), e,
					least)
			}
		}
	}
}
