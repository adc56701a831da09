package quant

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/microscale-go/microscale/format"
	"github.com/microscale-go/microscale/internal/slow"
	"github.com/microscale-go/microscale/tensor"
)

// everyBehavior calls f with each combination of options that is valid for a format.
func everyBehavior(f Format, do func(q Quantizer)) {
	roundings := []format.Rounding{format.NearestEven, format.HalfAway, format.HalfTowardZero, format.TowardZero, format.Up, format.Stochastic}
	for rule := range scaleRules {
		for arithmetic := range arithmetics {
			for _, search := range Searches() {
				for _, rounding := range roundings {
					for _, variant := range []Quantizer{{}, {ExactRatio: true, PowerOfTwo: f.Scale == format.F32}, {EvenMantissa: 1},
						{SmallestDivisor: 0x1p-126, UnitZeroScale: true}, {ExactRatio: true, SmallestDivisor: 1}} {
						q := variant
						q.Format, q.Rule, q.Arithmetic, q.Search, q.Rounding = f, ScaleRule(rule), Arithmetic(arithmetic), search, rounding
						if search.fourOverSix() {
							q.TopScale = FourOverSixTop
						}
						isE8M0 := f.Scale == format.E8M0
						ownHalf := f.same(Q8_0) && q.Arithmetic != HalfScale || !f.same(Q8_0) && q.Arithmetic == HalfScale
						if isE8M0 && arithmetic > 0 || !isE8M0 && (rule > 0 || variant.EvenMantissa > 0 || variant.SmallestDivisor > 0 || ownHalf) ||
							q.Validate() != nil {
							continue
						}
						do(q)
					}
				}
			}
		}
	}
}

// boundSource returns rows of magnitudes around 2^exponent: normal ones, ones that differ
// by many binades, ties, zeros, and a row of one large element.
func boundSource(random *rand.Rand, exponent int) tensor.Dense {
	x := tensor.New(34, 160)
	for i := range x.Rows {
		row := x.Row(i)
		for j := range row {
			v := random.NormFloat64()
			switch i % 6 {
			case 1:
				v *= math.Exp2(-40 * random.Float64())
			case 2:
				v = math.Copysign(math.Exp2(float64(random.IntN(9)-8))*(1+float64(random.IntN(16))/16), v)
			case 3:
				v = 0
			case 4:
				if j != 7 {
					v *= 1e-6
				}
			case 5:
				v *= math.Exp2(float64(-j / 4))
			}
			row[j] = float32(math.Max(math.Min(math.Ldexp(v, exponent), maxFloat32), -maxFloat32))
		}
	}
	return x
}

// blocksOfTensor calls do with the rows of each block of a rowwise tensor.
func blocksOfTensor(q *Tensor, do func(line, block, r0, r1, c0, c1 int)) {
	rows, cols := q.StoredRows(), q.StoredCols()
	band, width := q.Format.Block.Rows, q.Format.Block.Cols
	if band == 0 {
		band = rows
	}
	if width == 0 {
		width = cols
	}
	for r := 0; r < rows; r += band {
		for c := 0; c < cols; c += width {
			do(r, c/width, r, min(r+band, rows), c, min(c+width, cols))
		}
	}
}

// TestBound checks that no quantization is beyond the bound, under any combination of rules. Each
// combination takes two of the exponents, in a short run one, drawn with a fixed seed, and with -full all:
// under an emulator every seventh combination is tried. A format has up to 275, so that each rule, arithmetic,
// search and rounding meets all exponents.
func TestBound(t *testing.T) {
	exponents := []int{-160, -140, -127, -118, -60, -40, -10, 0, 9, 60, 118, 126}
	sources := make([]tensor.Dense, len(exponents))
	for i, exponent := range exponents {
		sources[i] = boundSource(rand.New(rand.NewPCG(uint64(exponent+200), 1)), exponent)
	}
	for _, f := range append(Formats(), Q8_0) {
		if !f.Scaled() {
			continue
		}
		t.Run("format="+f.Name, func(t *testing.T) {
			t.Parallel()
			bound := f.Bound()
			draw, stride, n := rand.New(rand.NewPCG(3, 7)), slow.Stride(1, 7), 0
			everyBehavior(f, func(q Quantizer) {
				first := draw.IntN(len(sources))
				if n++; n%stride > 0 {
					return
				}
				for i, x := range sources {
					if other := (first + 5) % len(sources); !*slow.FullRun && i != first && (i != other || testing.Short()) {
						continue
					}
					got, err := q.Rowwise(x, With{Threads: 1, Random: &Stream{Seed: 5}})
					if err != nil {
						t.Fatal(err)
					}
					checkBound(t, &bound, x, got, func() string {
						return fmt.Sprintf("%s rule=%s arithmetic=%d search=%s rounding=%s variant=%v/%v/%d/%g 2^%d", f, q.Rule, q.Arithmetic, q.Search,
							q.Rounding, q.ExactRatio, q.PowerOfTwo, q.EvenMantissa, q.SmallestDivisor, exponents[i])
					})
				}
			})
		})
	}
}

func checkBound(t *testing.T, bound *Bound, x tensor.Dense, got *Tensor, at func() string) {
	t.Helper()
	y := got.Dequantize(1)
	scales := make([]float32, got.scaleCols())
	if got.Format.Global {
		amax, _ := denseSource(x).amaxBits(0, x.Rows)
		if !bound.Global(got.Global, math.Float32frombits(amax)) {
			t.Fatalf("%s: global scale %g of amax %g", at(), got.Global, math.Float32frombits(amax))
		}
	}
	blocksOfTensor(got, func(line, block, r0, r1, c0, c1 int) {
		got.RowScales(scales, line)
		scale, amax := scales[block], uint32(0)
		if !bound.Bounds(scale, got.global()) {
			return
		}
		for r := r0; r < r1; r++ {
			a, _ := denseSource(x.View(r, r+1, c0, c1)).amaxBits(0, 1)
			amax = max(amax, a)
			if n, first := bound.Beyond(x.Row(r)[c0:c1], y.Row(r)[c0:c1], scale); n > 0 {
				t.Fatalf("%s: row %d, columns from %d: %d elements beyond, the first %g as %g under %g", at(), r, c0, n, x.Row(r)[c0+first],
					y.Row(r)[c0+first], scale)
			}
		}
		if !bound.Scale(scale, got.global(), math.Float32frombits(amax)) {
			t.Fatalf("%s: row %d, columns from %d: scale %g (global %g) of amax %g", at(), r0, c0, scale, got.global(), math.Float32frombits(amax))
		}
	})
}

// TestBoundExact checks that elements without an error are within the bound, under any scale.
func TestBoundExact(t *testing.T) {
	bound := Q8_0.Bound()
	for _, tc := range []struct{ x, scale float32 }{{-16, 0.125}, {74, -1}, {-128, 1}} {
		if n, _ := bound.Beyond([]float32{tc.x}, []float32{tc.x}, tc.scale); n != 0 {
			t.Errorf("%g under the scale %g is beyond the bound", tc.x, tc.scale)
		}
	}
	if n, _ := bound.Beyond([]float32{-16}, []float32{-17}, 0.125); n != 1 {
		t.Errorf("-17 for -16 under the scale 0.125 is within the bound")
	}
}
