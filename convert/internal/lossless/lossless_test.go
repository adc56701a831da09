package lossless

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/microscale-go/microscale/format"
	"github.com/microscale-go/microscale/quant"
)

// newTensor returns a tensor of zeros.
func newTensor(t testing.TB, f quant.Format, rows, cols int) *quant.Tensor {
	t.Helper()
	q, err := quant.NewTensor(f, rows, cols)
	if err != nil {
		t.Fatal(err)
	}
	return q
}

// casterOf returns the caster of a row, to a global scale.
func casterOf(c Cast, global float32) *Caster {
	return New(c, func(code byte) float32 {
		if c.To.Global {
			return float32(c.To.Scale.Decode(uint32(code)) * global)
		}
		return c.To.Scale.Decode(uint32(code))
	})
}

// set sets the codes of a tensor, a byte for each element.
func set(q *quant.Tensor, codes []byte) {
	cols := q.Format.PaddedCols(q.Cols())
	for i := range q.Rows() {
		row := make([]byte, cols)
		copy(row, codes[i*q.Cols():(i+1)*q.Cols()])
		join(q.Format.Element, q.Codes[i*q.RowBytes():(i+1)*q.RowBytes()], row)
	}
}

// same compares bits, and takes all NaN for equal.
func same(a, b float32) bool {
	return math.Float32bits(a) == math.Float32bits(b) || a != a && b != b
}

// castable reports whether some scale of a format, with some code for each value, decodes to the values: it tries
// all scales of one byte with all codes. An FP32 scale gives the smallest value with some code, so that it is near a
// quotient of that value.
func castable(f quant.Format, global float32, values []float32) bool {
	var distinct []float32
	for _, v := range values {
		if !slices.ContainsFunc(distinct, func(x float32) bool { return same(v, x) }) {
			distinct = append(distinct, v)
		}
	}
	holds := func(scale float32) bool {
		if f.Global {
			scale = float32(scale * global)
		}
		for _, v := range distinct {
			found := false
			for code := 0; code < 1<<f.Element.Bits() && !found; code++ {
				found = same(v, float32(scale*f.Element.Decode(uint32(code))))
			}
			if !found {
				return false
			}
		}
		return true
	}
	if f.ByteScales() {
		for code := range 1 << f.Scale.Bits() {
			if s := f.Scale.Decode(uint32(code)); s == s && s >= 0 && holds(s) {
				return true
			}
		}
		return false
	}
	least := float32(math.Inf(1))
	for _, v := range distinct {
		if m := float32(math.Abs(float64(v))); m > 0 && m < least {
			least = m
		}
	}
	for code := 1; code <= int(f.Element.MaxCode()); code++ {
		near := float32(float64(least) / float64(f.Element.Decode(uint32(code))))
		for range 2 {
			near = math.Nextafter32(near, 0)
		}
		for range 5 {
			if holds(near) {
				return true
			}
			near = math.Nextafter32(near, math.MaxFloat32)
		}
	}
	return math.IsInf(float64(least), 1)
}

// check casts src, and compares every block of the result with castable. It returns the number of inexact blocks.
func check(t *testing.T, c Cast, src *quant.Tensor, global float32) int {
	t.Helper()
	dst := newTensor(t, c.To, src.Rows(), src.Cols())
	if c.To.Global {
		dst.Global = global
	}
	inexact, err := casterOf(c, global).Tile(dst, src, false)
	if err != nil {
		t.Fatal(err)
	}
	want, got := src.Dequantize(1), dst.Dequantize(1)
	high, wide := c.To.Block.Rows, c.To.Block.Cols
	if high == 0 {
		high = src.Rows()
	}
	if wide == 0 {
		wide = src.Cols()
	}
	for row := 0; row < src.Rows(); row += high {
		for col := 0; col < src.Cols(); col += wide {
			var values []float32
			equal, nan := true, true
			for i := row; i < min(row+high, src.Rows()); i++ {
				for j := col; j < min(col+wide, src.Cols()); j++ {
					v := want.Row(i)[j]
					values = append(values, v)
					equal = equal && same(v, got.Row(i)[j])
					nan = nan && v != v
				}
			}
			at := slices.IndexFunc(inexact, func(b Block) bool { return b.Row == row && b.Col == col/wide })
			switch {
			case at < 0 && !equal:
				t.Fatalf("%s to %s: the block at %d, %d is exact and decodes to other values: %v and %v", c.From, c.To, row, col, values,
					got.Row(row)[col:min(col+wide, src.Cols())])
			case at >= 0 && inexact[at].Why != NotNumber && castable(c.To, global, values):
				t.Fatalf("%s to %s, global %g: the block at %d, %d has an exact cast and is reported: %s; %v", c.From, c.To, global, row, col,
					inexact[at].Why, values)
			case at >= 0 && c.Always:
				t.Fatalf("%s to %s: a block is not exact: %v", c.From, c.To, values)
			}
		}
	}
	return len(inexact)
}

// TestEnumerated casts MXFP4 to NVFP4 and MXFP8 for every set of magnitudes under scales around the limits of
// E4M3 and at the ends of E8M0.
func TestEnumerated(t *testing.T) {
	for _, to := range []quant.Format{quant.NVFP4, quant.MXFP8} {
		c, ok := Lookup(quant.MXFP4, to)
		if !ok {
			t.Fatal("no row")
		}
		exact, all := 0, 0
		for _, g := range []int{-126, -20, 0, 119} {
			var scales []byte
			for k := max(g-14, -127); k <= min(g+14, 127); k++ {
				scales = append(scales, byte(k+127))
			}
			src := newTensor(t, quant.MXFP4, 256*len(scales), 32)
			var codes []byte
			for i, scale := range scales {
				for magnitudes := range 256 {
					src.Scales[i*256+magnitudes] = scale
					for j := range 32 {
						code := byte(j & 7)
						if magnitudes>>code&1 == 0 {
							code = 0
						}
						codes = append(codes, code|byte(j>>3&1)<<3) // both halves have both signs
					}
				}
			}
			set(src, codes)
			n := check(t, c, src, float32(math.Ldexp(1, g)))
			exact, all = exact+2*src.Rows()-n, all+2*src.Rows()
		}
		t.Logf("mxfp4 to %s: %d of %d blocks are exact", to, exact, all)
		if to == quant.NVFP4 && (exact == 0 || exact == all) {
			t.Error("the cases do not show both kinds")
		}
	}
}

// edgeCodes are sets of codes that random tensors draw from: all of them, few bits, one value, zeros.
func edgeCodes(r *rand.Rand, f *format.Scalar) []byte {
	all := make([]byte, 0, 256)
	for code := range 1 << f.Bits() {
		if v := f.Decode(uint32(code)); v == v {
			all = append(all, byte(code))
		}
	}
	switch r.IntN(6) {
	case 0:
		return all
	case 1: // powers of two
		return slices.DeleteFunc(all, func(c byte) bool { v := f.Decode(uint32(c)); m, _ := math.Frexp(math.Abs(float64(v))); return m != 0.5 })
	case 2: // three times a power of two
		return slices.DeleteFunc(all, func(c byte) bool {
			v := f.Decode(uint32(c))
			m, _ := math.Frexp(math.Abs(float64(v)))
			return m != 0.75
		})
	case 3:
		return []byte{all[r.IntN(len(all))], 0}
	case 4: // near each other
		at := r.IntN(len(all))
		return all[at:min(at+4, len(all))]
	}
	return []byte{0, byte(1<<(f.Bits()-1)) & byte(f.EncodeWith(float32(math.Copysign(0, -1)), format.Conversion{}, 0))}
}

// random returns a tensor whose blocks have scales and codes near the conditions of casts.
func random(t *testing.T, r *rand.Rand, f quant.Format, rows, cols int) *quant.Tensor {
	q := newTensor(t, f, rows, cols)
	base, narrow := r.IntN(11)-5, 1+r.IntN(24)
	power := func() float64 { return math.Ldexp(1, base+r.IntN(narrow)-narrow/2) }
	for i := range q.Scales {
		switch q.Scales[i] = byte(f.Scale.Encode(float32(power()))); {
		case r.IntN(50) == 0 && f.Scale == format.E8M0:
			q.Scales[i] = []byte{0, 254, 255, 127}[r.IntN(4)]
		case f.Scale == format.E4M3 && r.IntN(3) == 0:
			q.Scales[i] = byte(r.IntN(127))
		}
	}
	constant, odd := r.IntN(3) == 0, [3]float64{1, 3, 1.0 / 3}[r.IntN(3)]
	for i := range q.Scales32 {
		switch q.Scales32[i] = float32(odd * power()); {
		case constant:
			q.Scales32[i] = q.Scales32[0]
		case r.IntN(8) == 0:
			q.Scales32[i] = float32(r.ExpFloat64())
		case r.IntN(200) == 0:
			q.Scales32[i] = float32(math.NaN())
		}
	}
	q.Global = []float32{1, 0.25, 0.1, 3}[r.IntN(4)]
	codes := make([]byte, rows*cols)
	for i := 0; i < len(codes); {
		from := edgeCodes(r, f.Element)
		for range min(16*(1+r.IntN(4)), len(codes)-i) {
			codes[i] = from[r.IntN(len(from))]
			i++
		}
	}
	set(q, codes)
	return q
}

// TestRandom casts random tensors by every row of the table.
func TestRandom(t *testing.T) {
	for _, c := range Table() {
		t.Run(fmt.Sprintf("%s to %s", c.From, c.To), func(t *testing.T) {
			r := rand.New(rand.NewPCG(27, uint64(len(c.From.Name)*100+len(c.To.Name))))
			exact, inexact := 0, 0
			rounds, rows, cols := 60, 3, 72
			if c.To.Block.Rows > 32 || c.From.Block.Rows > 32 {
				rounds, rows, cols = 6, 130, 136
			} else if c.From.Block.Rows > 1 {
				rows = 33
			}
			for range rounds {
				src := random(t, r, c.From, rows, cols)
				n := check(t, c, src, []float32{1, 0.25, 0.1, 3, 0.75}[r.IntN(5)])
				inexact += n
				dst := newTensor(t, c.To, rows, cols)
				a, b := dst.ScaleShape()
				exact += a*b - n
			}
			if exact == 0 || inexact == 0 && !c.Always {
				t.Errorf("%d blocks are exact and %d are not: the cases do not show both", exact, inexact)
			}
			t.Logf("%d blocks are exact, %d are not", exact, inexact)
		})
	}
}
