package quant

import (
	"bytes"
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/microscale-go/microscale/internal/slow"
	"github.com/microscale-go/microscale/tensor"
)

// inputMoments returns mean squares of n inputs and their means, of which some are as large as they can be, and some are zero.
func inputMoments(n int, r *rand.Rand) With {
	w := With{Importance: importances(n), Mean: make([]float32, n)}
	for i, square := range w.Importance {
		w.Mean[i] = float32(math.Sqrt(float64(square))) * []float32{0, 1, -1, 0.5, r.Float32()}[r.IntN(5)]
	}
	return w
}

// TestMeanThreads compares searches with means with the reference, by the plain twin and by kernels, whole and divided, in both
// directions, with NaN and Inf.
func TestMeanThreads(t *testing.T) {
	for i, q := range searchQuantizers() {
		if q.Format.Block.Rows != 1 || i%slow.Stride(1, 3) > 0 {
			continue
		}
		x := searchSource(12, 176, true)
		for d, n := range map[Direction]int{Rowwise: x.Cols, Columnwise: x.Rows} {
			with := inputMoments(n, rand.New(rand.NewPCG(3, uint64(n))))
			want := made(q.Reference(x, d, with))
			check := func(t *testing.T) {
				for _, threads := range []int{1, 3} {
					with.Threads = threads
					got := made(quantizeOne(q, x, d, with))
					if !bytes.Equal(got.ScaleBytes(), want.ScaleBytes()) || !bytes.Equal(got.Codes, want.Codes) {
						t.Errorf("%s, %s, %d threads: differs from the reference", searchName(q), d, threads)
					}
				}
			}
			plainly(t, func() { check(t) })
			eachKernel(t, check)
		}
	}
}

// TestMeanOfTiles quantizes rows in tiles, which are independent.
func TestMeanOfTiles(t *testing.T) {
	x, amax := searchSource(64, 256, false), float32(0)
	amax = Amax(x, 1)
	q, with := Quantizer{Format: NVFP4, Search: LeastSquares}, inputMoments(x.Cols, rand.New(rand.NewPCG(5, 6)))
	want := made(q.Rowwise(x, with))
	var parts []*Tensor
	for r := 0; r < x.Rows; r += 5 {
		with.Amax = &amax
		parts = append(parts, made(q.Rowwise(x.View(r, min(r+5, x.Rows), 0, x.Cols), with)))
	}
	if got := made(Concat(parts...)); !bytes.Equal(got.Scales, want.Scales) || !bytes.Equal(got.Codes, want.Codes) {
		t.Error("tiles differ from the whole")
	}
}

// TestMeanIsExhaustive tries the candidates of every block after those before it, in float64; of FP32 scales, that of the rule alone.
func TestMeanIsExhaustive(t *testing.T) {
	int4, err := Lookup("int4-g32")
	if err != nil {
		t.Fatal(err)
	}
	r := rand.New(rand.NewPCG(8, 9))
	x := tensor.New(24, 144)
	for i := range x.Data {
		x.Data[i] = float32(r.NormFloat64())
	}
	for _, q := range []Quantizer{{Format: NVFP4}, {Format: NVFP4, TopScale: 256}, {Format: MXFP4}, {Format: MXINT8}, {Format: int4},
		{Format: FP8Vec128}} {
		with := inputMoments(x.Cols, r)
		plain := made(q.Rowwise(x, With{}))
		q.Search = LeastSquares
		got := made(q.Rowwise(x, with))
		element, moved := q.Format.Element, 0
		for row := range x.Rows {
			drift := 0.0
			for c0 := 0; c0 < x.Cols; c0 += q.Format.Block.Cols {
				c1 := min(c0+q.Format.Block.Cols, x.Cols)
				sums := func(scale float32) (all, sum float64) {
					squares := 0.0
					for c := c0; c < c1; c++ {
						e := float64(scale*element.Decode(element.Encode(x.At(row, c)/scale))) - float64(x.At(row, c))
						m := float64(with.Mean[c])
						squares += max(0, float64(with.Importance[c])-m*m) * e * e
						sum += m * e
					}
					return squares + (drift+sum)*(drift+sum), drift + sum
				}
				scale, rule := got.Scale(row, c0), plain.Scale(row, c0)
				best, after := sums(scale)
				for _, times := range []float32{0.5, 0.8125, 0.875, 0.9375, 1, 1.0625, 1.125, 1.25, 1.375, 1.5, 1.625, 2} {
					near := rule * times
					if q.Format.Scale == MXFP4.Scale && times != 0.5 && times != 1 && times != 2 || q.Format.Global && !isCode(got, near) ||
						!q.Format.Global && q.Format.Scale != MXFP4.Scale && times != 1 {
						continue // no candidate
					}
					if e, _ := sums(near); e < best*(1-1e-4)-1e-9 && withinCodes(got, rule, near) {
						t.Errorf("%s: row %d, column %d has scale %g of error %g, and %g has %g", searchName(q), row, c0, scale, best, near, e)
					}
				}
				if drift = after; scale != rule {
					moved++
				}
			}
		}
		if moved == 0 && q.Format.Element.Bits() == 4 {
			t.Errorf("%s: no scale differs from that of the rule", searchName(q))
		}
	}
}

// isCode reports whether a scale of a tensor with a global scale has a code.
func isCode(t *Tensor, scale float32) bool {
	return scaleFormat.Decode(scaleFormat.Encode(scale/t.Global))*t.Global == scale
}

// withinCodes reports whether a scale is among the candidates about that of the rule.
func withinCodes(t *Tensor, rule, near float32) bool {
	if !t.Format.Global {
		return true
	}
	d := int(scaleFormat.Encode(near/t.Global)) - int(scaleFormat.Encode(rule/t.Global))
	return codeSteps[0] <= d && d <= codeSteps[len(codeSteps)-1]
}

// TestMeanOfZeros: means of zero leave the search by mean squares, but for the rounding of its sums.
func TestMeanOfZeros(t *testing.T) {
	x := searchSource(16, 128, false)
	with := With{Importance: importances(x.Cols)}
	q := Quantizer{Format: NVFP4, Search: LeastSquares}
	want := made(q.Rowwise(x, with)).Dequantize(1)
	with.Mean = make([]float32, x.Cols)
	got := made(q.Rowwise(x, with)).Dequantize(1)
	for row := x.Rows / 2; row < x.Rows; row++ { // those above have squares beyond float32
		for c0 := 0; c0 < x.Cols; c0 += 16 {
			var a, b float64
			for c := c0; c < c0+16; c++ {
				a += float64(with.Importance[c]) * square(float64(got.At(row, c))-float64(x.At(row, c)))
				b += float64(with.Importance[c]) * square(float64(want.At(row, c))-float64(x.At(row, c)))
			}
			if a > b*(1+1e-5) {
				t.Errorf("row %d, column %d: error %g, and %g without means", row, c0, a, b)
			}
		}
	}
}

// TestSearchLanes: the candidates of a block that are codes have a lane each.
func TestSearchLanes(t *testing.T) {
	x, amax := tensor.New(1, 32), float32(1)
	for _, f := range []Format{NVFP4, MXFP4, MXFP8} {
		o, q := new(output), Quantizer{Format: f, Search: LeastSquares}
		o.prepare(&q, denseSource(x), Rowwise, With{Amax: &amax, Importance: make([]float32, x.Cols), Mean: make([]float32, x.Cols)})
		s := o.newScaleSearch()
		if n := s.below + 1 + s.above; n > s.rows.lanes || s.rows.lanes > maxLanes {
			t.Errorf("%s: %d candidates have %d lanes, at most %d", f, n, s.rows.lanes, maxLanes)
		}
		for n := range maxLanes + 1 {
			if lanes := o.newRowSearch(n).lanes; lanes < n {
				t.Errorf("%s: %d candidates have %d lanes", f, n, lanes)
			}
		}
	}
}

func TestMeanErrors(t *testing.T) {
	for _, tc := range []struct {
		q    Quantizer
		with With
		want string
	}{
		{Quantizer{Format: NVFP4}, With{Mean: make([]float32, 16)}, "got 16 values with 0 of With.Importance"},
		{Quantizer{Format: NVFP4x16}, With{Mean: make([]float32, 16), Importance: make([]float32, 16)}, "blocks within rows"},
		{Quantizer{Format: NVFP4}, With{Mean: append(make([]float32, 15), float32(math.Inf(1))), Importance: make([]float32, 16)}, "not finite"},
	} {
		tc.q.Search = LeastSquares
		if _, err := tc.q.Rowwise(tensor.New(1, 16), tc.with); err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: got %v, want %q", tc.q.Format, err, tc.want)
		}
	}
}
