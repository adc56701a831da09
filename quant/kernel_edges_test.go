package quant

import (
	"math"
	"math/rand/v2"
	"runtime/debug"
	"testing"

	"github.com/microscale-go/microscale/format"
	"github.com/microscale-go/microscale/internal/cpu"
	"github.com/microscale-go/microscale/internal/cpu/cputest"
	"github.com/microscale-go/microscale/internal/slow"
	"github.com/microscale-go/microscale/tensor"
)

// TestKernelsEncode encodes all values of the element format, the midpoints between them and
// the neighbors of those, times every power of two, with an amax that fixes the scale.
func TestKernelsEncode(t *testing.T) {
	eachKernel(t, func(t *testing.T) {
		for _, f := range []Format{MXFP8, MXFP8E5M2, MXFP6E3M2, MXFP6E2M3, MXFP4, MXINT8, NVFP4, FP8Vec128} {
			t.Run("format="+f.Name, func(t *testing.T) {
				steps := stepsOf(f.Element)
				var x []float32
				for k := -135; k <= 127; k += 3 {
					for i, v := range steps {
						if i%(f.Block.Cols-1) == 0 {
							x = append(x, float32(math.Ldexp(float64(f.Element.Max()), k)))
						}
						x = append(x, float32(math.Ldexp(v, k))*float32(1-i%2*2))
					}
					for len(x)%f.Block.Cols != 0 {
						x = append(x, 0)
					}
				}
				for i, v := range x {
					if math.IsInf(float64(v), 0) {
						x[i] = maxFloat32
					}
				}
				amax := float32(448 * 6) // NVFP4: a global scale of one
				with := With{}
				if f.Global {
					with.Amax = &amax
				}
				got, err := Quantizer{Format: f}.Rowwise(tensor.Of(1, len(x), x), with)
				if err != nil {
					t.Fatal(err)
				}
				plainly(t, func() {
					want, err := Quantizer{Format: f}.Rowwise(tensor.Of(1, len(x), x), with)
					if err != nil {
						t.Fatal(err)
					}
					sameTensor(t, got, want)
				})
			})
		}
	})
}

// stepsOf returns the magnitudes of a format, the midpoints between them, and
// the float32 neighbors of both.
func stepsOf(s *format.Scalar) []float64 {
	var steps []float64
	for c := range s.MaxCode() {
		low, high := s.Decode(c), s.Decode(c+1)
		for _, v := range []float32{low, (low + high) / 2, high} {
			for _, near := range []float32{math.Nextafter32(v, 0), v, math.Nextafter32(v, maxFloat32)} {
				steps = append(steps, float64(near))
			}
		}
	}
	return steps
}

// amaxBlocks returns blocks of n elements whose amaxes are at the edges of every binade and about
// each significand at which a scale rule changes. In a short run, three of four binades in the
// middle of the range are left out: there a rule does not depend on the exponent.
func amaxBlocks(n int) (x []float32) {
	r := rand.New(rand.NewPCG(3, 4))
	for e := range 255 {
		if testing.Short() && e > 16 && e < 240 && e%4 > 0 {
			continue
		}
		for _, m := range []uint32{0, 1 << 17, 1 << 18, 1 << 19, 3 << 19, 1 << 21, 1 << 22, 0x600000, 0x700000, 0x780000, 0x7c0000,
			r.Uint32() & mantissaMask} {
			for d := range uint32(3) {
				v := math.Float32frombits((uint32(e)<<mantissaBits + m + d - 1) & absMask)
				if v == v {
					from := len(x)
					x = append(x, make([]float32, n)...)
					x[from+r.IntN(n)] = v
				}
			}
		}
	}
	return x
}

// TestKernelsScales compares the scales of amaxes at the edges of every binade and about each
// significand at which a scale rule changes.
func TestKernelsScales(t *testing.T) {
	blocks := map[int][]float32{}
	eachKernel(t, func(t *testing.T) {
		for i, q := range kernelQuantizers() {
			extent := q.Format.Block.Cols
			if q.Format.Block.Rows != 1 || extent == 0 || i%slow.Stride(1, 4) > 0 {
				continue
			}
			if blocks[extent] == nil {
				blocks[extent] = amaxBlocks(extent)
			}
			x := blocks[extent]
			amax := float32(1000)
			with := With{}
			if q.Format.Global {
				with.Amax = &amax
			}
			got, err := q.Rowwise(tensor.Of(1, len(x), x), with)
			if err != nil {
				t.Fatal(err)
			}
			plainly(t, func() {
				want, err := q.Rowwise(tensor.Of(1, len(x), x), with)
				if err != nil {
					t.Fatal(err)
				}
				t.Run(quantizerName(q), func(t *testing.T) { sameTensor(t, got, want) })
			})
		}
	})
}

// decodeTensor returns a tensor of random codes and scales of every kind.
func decodeTensor(t *testing.T, f Format, rows, cols int, r *rand.Rand) *Tensor {
	t.Helper()
	q, err := NewTensor(f, rows, cols)
	if err != nil {
		t.Fatal(err)
	}
	for i := range q.Codes {
		q.Codes[i] = byte(r.Uint32())
	}
	for i := range q.Scales {
		q.Scales[i] = byte(r.Uint32())
	}
	for i := range q.Scales32 {
		q.Scales32[i] = math.Float32frombits(r.Uint32())
	}
	if f.Global {
		q.Global = r.Float32()
	}
	return q
}

// TestKernelsDequantize decodes all codes under all scales, in rows of every length. The bits
// of a NaN may differ.
func TestKernelsDequantize(t *testing.T) {
	eachKernel(t, func(t *testing.T) {
		r := rand.New(rand.NewPCG(5, 6))
		for _, f := range Formats() {
			if !f.Scaled() {
				continue
			}
			t.Run("format="+f.Name, func(t *testing.T) {
				for cols := 0; cols < 4000; cols += 1 + cols/3 {
					q := decodeTensor(t, f, 3, cols, r)
					got := q.Dequantize(1)
					plainly(t, func() {
						for i, want := range q.Dequantize(1).Data {
							if g := got.Data[i]; math.Float32bits(g) != math.Float32bits(want) && (g == g || want == want) {
								t.Fatalf("element %d of %d per row is %v, want %v", i, cols, g, want)
							}
						}
					})
				}
			})
		}
	})
}

// TestCallsInTurn checks that a call takes nothing but memory from the call before, which had
// another quantizer: the results are those of RowwiseColumnwise, which begins anew.
func TestCallsInTurn(t *testing.T) {
	slow.Emulated(t, "what a call leaves to the next is memory, which no kernel decides")
	const rows, cols = 128, 192
	x := benchMatrix(rows, cols)
	x.Data[7], x.Data[cols+40] = float32(math.NaN()), float32(math.Inf(1))
	var list []Quantizer
	for _, f := range []Format{BF16, F32, MXINT8, MXFP8, MXFP4, NVFP4, FP8Row, FP8Tensor, FP8Vec128} {
		list = append(list, Quantizer{Format: f})
	}
	list = append(list, Quantizer{Format: MXFP4, Search: LeastSquares}, Quantizer{Format: NVFP4, Search: FourOverSixMSE},
		Quantizer{Format: MXFP8, Rule: Floor}, Quantizer{Format: MXFP8, NonFinite: Poison},
		Quantizer{Format: MXFP4, NegativeZero: DropNegativeZero})
	for _, q := range list {
		rowwise, columnwise, err := RowwiseColumnwise(x, Copy{Quantizer: q}, Copy{Quantizer: q})
		if err != nil {
			t.Fatal(err)
		}
		for _, before := range list {
			must(t)(before.Rowwise(x, With{Threads: 1}))
			sameTensor(t, must(t)(q.Rowwise(x, With{Threads: 1})), rowwise)
			must(t)(before.Columnwise(x, With{Threads: 1}))
			sameTensor(t, must(t)(q.Columnwise(x, With{Threads: 1})), columnwise)
			if t.Failed() {
				t.Fatalf("%+v after %+v", q, before)
			}
		}
	}
}

// TestAllocations checks that the number of allocations does not depend on the number of rows,
// with and without partial blocks.
func TestAllocations(t *testing.T) {
	slow.Race(t, slow.Allocations)
	slow.Emulated(t, "allocations are those of every processor")
	defer debug.SetGCPercent(debug.SetGCPercent(-1)) // pools keep their scratch
	const few, many, cols = 128, 384, 200
	x, values := benchMatrix(many, cols), tensor.New(many, cols)
	raw := tensor.OfBF16(many, cols, make([]byte, 2*len(x.Data)))
	if err := tensor.ToBytes(raw.Data, x.Data, format.BF16); err != nil {
		t.Fatal(err)
	}
	cputest.Vectors(t, func(t *testing.T, _ cpu.Tier) {
		for _, f := range Formats() {
			counts := map[int][3]float64{}
			for _, rows := range []int{few, many} {
				q, part, rawPart := Quantizer{Format: f}, x.View(0, rows, 0, cols), tensor.OfBF16(rows, cols, raw.Data[:2*rows*cols])
				with := With{Threads: 1}
				with.Into = must(t)(q.Rowwise(part, with))
				const runs = 3
				counts[rows] = [3]float64{
					testing.AllocsPerRun(runs, func() { must(t)(q.Rowwise(part, with)) }),
					testing.AllocsPerRun(runs, func() { must(t)(q.RowwiseBF16(rawPart, with)) }),
					testing.AllocsPerRun(runs, func() { with.Into.DequantizeRows(values.View(0, rows, 0, cols), 0, 1) }),
				}
			}
			if counts[few] != counts[many] {
				t.Errorf("format=%s: %v allocations (float32, BF16, back) for %d rows, %v for %d", f, counts[few], few, counts[many], many)
			}
		}
	})
}
