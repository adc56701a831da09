package measure_test

import (
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/microscale-go/microscale/format"
	"github.com/microscale-go/microscale/internal/slow"
	"github.com/microscale-go/microscale/measure"
	"github.com/microscale-go/microscale/quant"
	"github.com/microscale-go/microscale/tensor"
)

const (
	sqnrElements = 1 << 20
	sqnrShort    = 1 << 17 // with -short, for cases with many rows
	sqnrRow      = 4096
	sqnrSeed     = 1
)

// uniform returns number i of a stateless SplitMix64 stream, in (0, 1).
func uniform(seed, i uint64) float64 {
	z := seed + (i+1)*0x9e3779b97f4a7c15
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	z ^= z >> 31
	return (float64(z>>11) + 0.5) * 0x1p-53
}

// samples returns n values of a standard normal distribution and of a uniform distribution
// over (-1, 1).
func samples(n int) (gauss, unif tensor.Dense) {
	gauss, unif = tensor.New(n/sqnrRow, sqnrRow), tensor.New(n/sqnrRow, sqnrRow)
	for i := range gauss.Data {
		u, v := uniform(sqnrSeed, uint64(2*i)), uniform(sqnrSeed, uint64(2*i+1))
		gauss.Data[i] = float32(math.Sqrt(-2*math.Log(u)) * math.Cos(2*math.Pi*v))
		unif.Data[i] = float32(2*u - 1)
	}
	return gauss, unif
}

// measured returns the error of x under q, in blocks of 32.
func measured(t *testing.T, q quant.Quantizer, x tensor.Dense) measure.Result {
	t.Helper()
	with := quant.With{}
	if q.Rounding == format.Stochastic {
		with.Random = &quant.Stream{Seed: sqnrSeed}
	}
	quantized, err := q.Rowwise(x, with)
	if err != nil {
		t.Fatal(err)
	}
	got := quantized.Dequantize(0)
	a := measure.New(32)
	for r := range x.Rows {
		row := measure.Row{Want: x.Row(r), Got: got.Row(r), Extent: q.Format.Block.Cols}
		if row.Extent > 0 {
			for c := 0; c < x.Cols; c += row.Extent {
				row.Limits = append(row.Limits, float32(quantized.Scale(r, c)*q.Format.Element.Max()))
			}
		}
		a.AddRow(row)
	}
	return a.Result()
}

// element returns f with another element format.
func element(f quant.Format, e *format.Scalar) quant.Format {
	f.Name, f.Element = f.Name+"/"+e.Name, e
	return f
}

// TestSQNR compares every format and rule with an independent computation (NumPy, float64,
// mean of four seeds), to 0.1 dB.
func TestSQNR(t *testing.T) {
	gauss, unif := samples(sqnrElements)
	const sr = format.Stochastic
	for i, tc := range []struct {
		quantizer   quant.Quantizer
		gauss, unif float64
	}{
		{quant.Quantizer{Format: quant.BF16}, 55.59, 56.62},
		{quant.Quantizer{Format: quant.MXFP8, Rule: quant.Floor}, 30.65, 26.22},
		{quant.Quantizer{Format: quant.MXFP8, Rule: quant.RatioCeil}, 31.52, 32.54},
		{quant.Quantizer{Format: quant.MXFP8, Rule: quant.Ceil}, 31.52, 32.54},
		{quant.Quantizer{Format: quant.MXFP8, Rule: quant.Even}, 31.18, 30.80},
		{quant.Quantizer{Format: quant.MXFP8E5M2, Rule: quant.Floor}, 25.36, 24.32},
		{quant.Quantizer{Format: quant.MXFP8E5M2, Rule: quant.RatioCeil}, 25.54, 26.51},
		{quant.Quantizer{Format: quant.MXFP8E5M2, Rule: quant.Ceil}, 25.54, 26.51},
		{quant.Quantizer{Format: quant.MXFP8E5M2, Rule: quant.Even}, 25.54, 26.51},
		{quant.Quantizer{Format: quant.MXFP6E2M3, Rule: quant.Floor}, 30.94, 31.26},
		{quant.Quantizer{Format: quant.MXFP6E2M3, Rule: quant.RatioCeil}, 30.96, 32.19},
		{quant.Quantizer{Format: quant.MXFP6E2M3, Rule: quant.Ceil}, 28.76, 32.15},
		{quant.Quantizer{Format: quant.MXFP6E2M3, Rule: quant.Even}, 30.99, 32.27},
		{quant.Quantizer{Format: quant.MXFP6E3M2, Rule: quant.Floor}, 25.36, 24.32},
		{quant.Quantizer{Format: quant.MXFP6E3M2, Rule: quant.RatioCeil}, 25.54, 26.51},
		{quant.Quantizer{Format: quant.MXFP6E3M2, Rule: quant.Ceil}, 25.54, 26.51},
		{quant.Quantizer{Format: quant.MXFP6E3M2, Rule: quant.Even}, 25.54, 26.51},
		{quant.Quantizer{Format: quant.MXFP4, Rule: quant.Floor}, 18.80, 16.83},
		{quant.Quantizer{Format: quant.MXFP4, Rule: quant.RatioCeil}, 18.76, 20.10},
		{quant.Quantizer{Format: quant.MXFP4, Rule: quant.Ceil}, 16.82, 20.10},
		{quant.Quantizer{Format: quant.MXFP4, Rule: quant.Even}, 19.03, 20.11},
		{quant.Quantizer{Format: quant.MXINT8, Rule: quant.Floor}, 41.66, 48.06},
		{quant.Quantizer{Format: quant.MXINT8, Rule: quant.RatioCeil}, 41.61, 45.96},
		{quant.Quantizer{Format: quant.NVFP4}, 20.44, 19.86},
		{quant.Quantizer{Format: quant.NVFP4, Arithmetic: quant.DecodeFirst}, 20.44, 19.86},
		{quant.Quantizer{Format: quant.NVFP4, TopScale: quant.FourOverSixTop}, 20.43, 19.88},
		{quant.Quantizer{Format: quant.NVFP4, TopScale: quant.FourOverSixTop, Search: quant.FourOverSixMSE}, 21.22, 21.19},
		{quant.Quantizer{Format: quant.NVFP4, TopScale: quant.FourOverSixTop, Search: quant.FourOverSixMAE}, 21.08, 21.07},
		{quant.Quantizer{Format: quant.FP8Tensor}, 31.55, 31.87},
		{quant.Quantizer{Format: quant.FP8Tensor, PowerOfTwo: true}, 31.52, 32.54},
		{quant.Quantizer{Format: quant.FP8Vec128}, 31.80, 31.97},
		{quant.Quantizer{Format: quant.FP8Vec128, PowerOfTwo: true}, 31.52, 32.54},
		{quant.Quantizer{Format: element(quant.FP8Tensor, format.E5M2)}, 25.56, 25.85},
		{quant.Quantizer{Format: element(quant.FP8Tensor, format.E5M2), PowerOfTwo: true}, 25.54, 26.51},
		{quant.Quantizer{Format: element(quant.FP8Vec128, format.E5M2)}, 25.80, 25.95},
		{quant.Quantizer{Format: element(quant.FP8Vec128, format.E5M2), PowerOfTwo: true}, 25.54, 26.51},
		{quant.Quantizer{Format: quant.MXFP8, Rule: quant.RatioCeil, Rounding: sr}, 28.50, 29.52},
		{quant.Quantizer{Format: quant.MXFP4, Rule: quant.RatioCeil, Rounding: sr}, 15.67, 17.09},
		{quant.Quantizer{Format: quant.MXFP4, Rule: quant.Floor, Rounding: sr}, 15.99, 15.87},
		{quant.Quantizer{Format: quant.NVFP4, Rounding: sr}, 17.25, 16.77},
	} {
		if i%slow.Stride(1, 5) > 0 {
			continue
		}
		t.Run(name(tc.quantizer), func(t *testing.T) {
			wantSQNR(t, tc.quantizer, gauss, tc.gauss)
			wantSQNR(t, tc.quantizer, unif, tc.unif)
		})
	}
}

func wantSQNR(t *testing.T, q quant.Quantizer, x tensor.Dense, want float64) {
	t.Helper()
	if got := measured(t, q, x).SQNR; math.Abs(got-want) > 0.1 {
		t.Errorf("SQNR: got %.2f dB, want %.2f", got, want)
	}
}

// blockSizes are the nonstandard block sizes of the published studies; TestSQNR has the
// standard ones.
var blockSizes = [...]int{8, 16, 64, 128}

// TestSQNRBlockSizes compares other block sizes with the same independent computation. For
// E4M3, the size matters under Floor but not under RatioCeil.
func TestSQNRBlockSizes(t *testing.T) {
	n := sqnrElements
	if testing.Short() {
		n = sqnrShort
	}
	gauss, unif := samples(n)
	type sizes [len(blockSizes)]struct{ gauss, unif float64 }
	for _, tc := range []struct {
		quantizer quant.Quantizer
		want      sizes
	}{
		{quant.Quantizer{Format: quant.MXFP8, Rule: quant.Floor}, sizes{{29.32, 26.21}, {29.93, 26.22}, {31.24, 26.22}, {31.41, 26.22}}},
		{quant.Quantizer{Format: quant.MXFP8, Rule: quant.RatioCeil}, sizes{{31.52, 32.54}, {31.52, 32.54}, {31.52, 32.54}, {31.52, 32.54}}},
		{quant.Quantizer{Format: quant.MXFP8E5M2, Rule: quant.Floor}, sizes{{25.01, 24.32}, {25.18, 24.32}, {25.48, 24.32}, {25.52, 24.32}}},
		{quant.Quantizer{Format: quant.MXFP8E5M2, Rule: quant.RatioCeil}, sizes{{25.54, 26.51}, {25.54, 26.51}, {25.54, 26.51}, {25.54, 26.51}}},
		{quant.Quantizer{Format: quant.MXFP6E2M3, Rule: quant.Floor}, sizes{{31.04, 31.26}, {31.00, 31.26}, {30.90, 31.26}, {30.87, 31.26}}},
		{quant.Quantizer{Format: quant.MXFP6E2M3, Rule: quant.RatioCeil}, sizes{{31.24, 32.36}, {31.10, 32.27}, {30.88, 32.15}, {30.83, 32.15}}},
		{quant.Quantizer{Format: quant.MXFP6E3M2, Rule: quant.Floor}, sizes{{25.01, 24.32}, {25.18, 24.32}, {25.48, 24.32}, {25.52, 24.32}}},
		{quant.Quantizer{Format: quant.MXFP6E3M2, Rule: quant.RatioCeil}, sizes{{25.54, 26.51}, {25.54, 26.51}, {25.54, 26.51}, {25.54, 26.51}}},
		{quant.Quantizer{Format: quant.MXFP4, Rule: quant.Floor}, sizes{{18.38, 16.83}, {18.59, 16.83}, {18.94, 16.83}, {18.97, 16.83}}},
		{quant.Quantizer{Format: quant.MXFP4, Rule: quant.RatioCeil}, sizes{{19.17, 20.15}, {18.96, 20.11}, {18.50, 20.10}, {18.08, 20.10}}},
		{quant.Quantizer{Format: quant.MXINT8, Rule: quant.Floor}, sizes{{44.11, 48.08}, {42.78, 48.06}, {41.01, 48.06}, {40.80, 48.06}}},
		{quant.Quantizer{Format: quant.MXINT8, Rule: quant.RatioCeil}, sizes{{44.05, 47.45}, {42.72, 46.86}, {40.98, 44.78}, {40.79, 43.55}}},
		{quant.Quantizer{Format: quant.NVFP4}, sizes{{21.37, 20.59}, {20.44, 19.86}, {19.50, 19.24}, {19.26, 19.16}}},
	} {
		for i, size := range blockSizes {
			q := tc.quantizer
			q.Format.Block.Cols = size
			t.Run(fmt.Sprintf("%s/block=%d", name(q), size), func(t *testing.T) {
				wantSQNR(t, q, gauss, tc.want[i].gauss)
				wantSQNR(t, q, unif, tc.want[i].unif)
			})
		}
	}
}

// name names the fields of q that a row of TestSQNR sets.
func name(q quant.Quantizer) string {
	parts := []string{"format=" + q.Format.Name}
	if q.Format.Scale == format.E8M0 {
		parts = append(parts, "rule="+q.Rule.String())
	}
	if q.Arithmetic != quant.EncodeFirst {
		parts = append(parts, "decode-first")
	}
	if q.PowerOfTwo {
		parts = append(parts, "power-of-two")
	}
	if q.TopScale > 0 {
		parts = append(parts, fmt.Sprintf("top=%g", q.TopScale), q.Search.String())
	}
	if q.Rounding != format.NearestEven {
		parts = append(parts, q.Rounding.String())
	}
	return strings.Join(parts, "/")
}

// TestRates compares the percentages of saturated and flushed elements of normal data with the
// same independent computation.
func TestRates(t *testing.T) {
	gauss, _ := samples(sqnrElements)
	for _, tc := range []struct {
		quantizer quant.Quantizer
		saturated *float64 // nil: not computed there
		flushed   float64
	}{
		{quant.Quantizer{Format: quant.MXFP8, Rule: quant.Floor}, new(0.85), 0},
		{quant.Quantizer{Format: quant.MXFP8}, new(0.0), 0},
		{quant.Quantizer{Format: quant.MXFP4, Rule: quant.Floor}, new(2.30), 8.8},
		{quant.Quantizer{Format: quant.MXFP4}, new(0.0), 10.7},
		{quant.Quantizer{Format: quant.NVFP4}, nil, 6.8},
	} {
		t.Run(name(tc.quantizer), func(t *testing.T) {
			r := measured(t, tc.quantizer, gauss)
			percent := func(n int64) float64 { return 100 * float64(n) / float64(r.Elements) }
			if got := percent(r.Saturated); tc.saturated != nil && math.Abs(got-*tc.saturated) > 0.01 {
				t.Errorf("got %.3f %% saturated, want %.2f", got, *tc.saturated)
			}
			if got := percent(r.Flushed); math.Abs(got-tc.flushed) > 0.1 {
				t.Errorf("got %.3f %% flushed, want %.1f", got, tc.flushed)
			}
		})
	}
}
