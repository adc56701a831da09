package measure

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/microscale-go/microscale/internal/cpu"
	"github.com/microscale-go/microscale/internal/cpu/cputest"
)

var (
	inf = float32(math.Inf(1))
	nan = float32(math.NaN())
)

// result measures got against want in blocks of the given length.
func result(block int, want, got []float32) Result {
	a := New(block)
	a.Add(want, got)
	return a.Result()
}

// same compares figures, with NaN equal to NaN.
func same(a, b float64) bool {
	return a == b || a != a && b != b || math.Abs(a-b) <= 1e-12*math.Abs(b)
}

// TestByHand compares every figure with one computed by hand.
func TestByHand(t *testing.T) {
	for _, tc := range []struct {
		name      string
		block     int
		want, got []float32
		result    Result
	}{
		{
			// Σx² = 25, e = (0, 1), Σe² = 1.
			"one block", 2, []float32{3, -4}, []float32{3, -3},
			Result{Elements: 2, SQNR: 10 * math.Log10(25), MeanBlockSQNR: 10 * math.Log10(25),
				Cosine: 21 / (5 * math.Sqrt(18)), MaxRelative: 0.25, Bias: 1.0 / 7},
		},
		{
			// Blocks (10, 0 | 1, 0 | 2): Σe² = 1, 0.25, 0. The exact last block is left out of the mean.
			"three blocks", 2, []float32{10, 0, 1, 0, 2}, []float32{9, 0, 0.5, 0, 2},
			Result{Elements: 5, SQNR: 10 * math.Log10(105/1.25), MeanBlockSQNR: (20 + 10*math.Log10(4)) / 2,
				Cosine: 94.5 / math.Sqrt(105*85.25), MaxRelative: 0.5, Bias: -1.5 / 13},
		},
		{
			"flushed", 1, []float32{1, -1, 0}, []float32{0, -1, 0},
			Result{Elements: 3, SQNR: 10 * math.Log10(2), MeanBlockSQNR: 0,
				Cosine: math.Sqrt(0.5), MaxRelative: 1, Bias: -0.5, Flushed: 1},
		},
		{
			"exact", 2, []float32{1, -2, 0}, []float32{1, -2, 0},
			Result{Elements: 3, SQNR: math.Inf(1), MeanBlockSQNR: math.Inf(1), Cosine: 1},
		},
		{
			"zeros", 2, []float32{0, 0}, []float32{0, 0},
			Result{Elements: 2, SQNR: math.Inf(1), MeanBlockSQNR: math.Inf(1), Cosine: 1},
		},
		{
			"zeros became something", 2, []float32{0, 0}, []float32{0, 1},
			Result{Elements: 2, SQNR: math.Inf(-1), MeanBlockSQNR: math.NaN(), Cosine: math.NaN(), Bias: math.Inf(1)},
		},
		{
			"nothing", 2, nil, nil,
			Result{SQNR: math.Inf(1), MeanBlockSQNR: math.Inf(1), Cosine: 1},
		},
		{
			// Only (3, 3) and (4, 5) count.
			"not finite", 8, []float32{3, nan, inf, 1, 1, 4}, []float32{3, 0, inf, nan, -inf, 5},
			Result{Elements: 6, SQNR: 10 * math.Log10(25), MeanBlockSQNR: 10 * math.Log10(25),
				Cosine: 29 / (5 * math.Sqrt(34)), MaxRelative: 0.25, Bias: 1.0 / 7, NonFinite: 2, NonFiniteWant: 2},
		},
		{
			"exact but not finite", 8, []float32{3, 4}, []float32{3, nan},
			Result{Elements: 2, SQNR: math.NaN(), MeanBlockSQNR: math.NaN(), Cosine: math.NaN(), Bias: math.NaN(), NonFinite: 1},
		},
		{
			"copy of what is not finite", 8, []float32{3, nan, -inf}, []float32{3, nan, -inf},
			Result{Elements: 3, SQNR: math.Inf(1), MeanBlockSQNR: math.Inf(1), Cosine: 1, NonFiniteWant: 2},
		},
		{
			"largest floats", 1, []float32{math.MaxFloat32}, []float32{-math.MaxFloat32},
			Result{Elements: 1, SQNR: 10 * math.Log10(0.25), MeanBlockSQNR: 10 * math.Log10(0.25),
				Cosine: -1, MaxRelative: 2, Bias: -2},
		},
	} {
		t.Run(tc.name, func(t *testing.T) { compare(t, result(tc.block, tc.want, tc.got), tc.result) })
	}
}

func compare(t *testing.T, got, want Result) {
	t.Helper()
	for _, f := range []struct {
		name      string
		got, want float64
	}{
		{"SQNR", got.SQNR, want.SQNR},
		{"mean block SQNR", got.MeanBlockSQNR, want.MeanBlockSQNR},
		{"cosine", got.Cosine, want.Cosine},
		{"maximal relative error", got.MaxRelative, want.MaxRelative},
		{"bias", got.Bias, want.Bias},
		{"elements", float64(got.Elements), float64(want.Elements)},
		{"saturated", float64(got.Saturated), float64(want.Saturated)},
		{"flushed", float64(got.Flushed), float64(want.Flushed)},
		{"not finite", float64(got.NonFinite), float64(want.NonFinite)},
		{"wanted not finite", float64(got.NonFiniteWant), float64(want.NonFiniteWant)},
	} {
		if !same(f.got, f.want) {
			t.Errorf("%s: got %v, want %v", f.name, f.got, f.want)
		}
	}
}

// TestSaturated puts elements at, above and far above the limit.
func TestSaturated(t *testing.T) {
	beyond := math.Nextafter32(448, inf)
	a := New(32)
	saturate := func(limit float32, want ...float32) {
		a.AddRow(Row{Want: want, Got: make([]float32, len(want)), Limits: []float32{limit}, Extent: 16})
	}
	saturate(448, 448, -448, beyond, -beyond, 1e30, 0, nan, inf, -inf)
	saturate(inf, 1e30)
	saturate(1, 2, 1)
	if got := a.Result().Saturated; got != 4 {
		t.Errorf("got %d saturated elements, want 4", got)
	}
}

// TestPrecision compares the sums with float64 at all magnitudes, for usual errors, errors as large as the
// values, and results near zero. At most 14 roundings to float32 affect a ratio of sums.
func TestPrecision(t *testing.T) {
	random := rand.New(rand.NewPCG(3, 4))
	for exponent := -140; exponent < 128; exponent += 3 {
		for _, of := range []float64{0x1p-20, 0.1, 1, 8, 0} {
			want, got := make([]float32, 1<<10), make([]float32, 1<<10)
			var signal, noise, power, product float64
			for i := range want {
				want[i] = float32(math.Ldexp(random.Float64()-0.5, exponent))
				got[i] = want[i]
				if of == 0 {
					got[i] /= 1 << 12
				} else if random.IntN(3) > 0 {
					got[i] = float32(float64(want[i]) * (1 + of*(random.Float64()-0.5)))
				}
				x, y := float64(want[i]), float64(got[i])
				if math.IsInf(y, 0) {
					got[i], y = want[i], x
				}
				signal, noise, power, product = signal+x*x, noise+(y-x)*(y-x), power+y*y, product+x*y
			}
			const rounded = 14.0 / (1 << 24)
			r := result(32, want, got)
			if sqnr := decibel(signal / noise); math.Abs(r.SQNR-sqnr) > decibel(1+rounded) && r.SQNR != sqnr {
				t.Errorf("2^%d, errors of %g: got an SQNR of %.9g dB, want %.9g", exponent, of, r.SQNR, sqnr)
			}
			// 1 - cosine is at most about noise/signal. The sums of the test are rounded as well.
			if cosine := product / math.Sqrt(signal) / math.Sqrt(power); math.Abs(r.Cosine-cosine) > min(1, noise/signal)*rounded+
				float64(len(want))*0x1p-53 && signal > 0 {
				t.Errorf("2^%d, errors of %g: got a cosine of %.9g, want %.9g", exponent, of, r.Cosine, cosine)
			}
		}
	}
}

// TestTiles cuts rows at block boundaries in several ways: blocks, counts and maxima are
// equal, and sums agree up to rounding.
func TestTiles(t *testing.T) {
	const rows, cols, block = 7, 75, 8
	random := rand.New(rand.NewPCG(1, 2))
	want, got := make([]float32, rows*cols), make([]float32, rows*cols)
	for i := range want {
		want[i] = float32(random.NormFloat64())
		got[i] = want[i] * (1 + float32(random.IntN(3)-1)*0.1)
	}
	whole := New(block)
	for r := range rows {
		whole.Add(want[r*cols:(r+1)*cols], got[r*cols:(r+1)*cols])
	}
	for _, tile := range []int{block, 3 * block, 9 * block} {
		merged := New(block)
		for r := range rows {
			for c := 0; c < cols; c += tile {
				part := New(block)
				from, to := r*cols+c, r*cols+min(c+tile, cols)
				part.Add(want[from:to], got[from:to])
				merged.Merge(part)
			}
		}
		compare(t, merged.Result(), whole.Result())
		if merged.blocks != whole.blocks {
			t.Errorf("tiles of %d: got %d blocks, want %d", tile, merged.blocks, whole.blocks)
		}
	}
}

// TestMergeCounts checks the counts that are zero in TestTiles.
func TestMergeCounts(t *testing.T) {
	a, b := New(4), New(4)
	a.Add([]float32{1, nan, 1}, []float32{0, 1, inf})
	b.Add([]float32{1, nan, 1}, []float32{0, 1, inf})
	b.AddRow(Row{Want: []float32{2, 2, 2}, Got: []float32{2, 2, 2}, Limits: []float32{1}, Extent: 3})
	a.Merge(b)
	r := a.Result()
	if r.Elements != 9 || r.Flushed != 2 || r.NonFinite != 2 || r.NonFiniteWant != 2 || r.Saturated != 3 {
		t.Errorf("merged counts: got %+v", r)
	}
}

// TestMisuse checks the panics on misuse.
func TestMisuse(t *testing.T) {
	for name, f := range map[string]func(){
		"block of none":     func() { New(0) },
		"not created":       func() { new(Accumulator).Add(make([]float32, 2), make([]float32, 2)) },
		"lengths differ":    func() { New(1).Add(make([]float32, 2), make([]float32, 1)) },
		"block lengths too": func() { New(1).Merge(New(2)) },
		"half an element":   func() { New(1).AddRow(Row{WantBF16: make([]byte, 3), Got: make([]float32, 1)}) },
		"limits missing": func() {
			New(1).AddRow(Row{Want: make([]float32, 3), Got: make([]float32, 3), Limits: make([]float32, 1), Extent: 2})
		},
	} {
		t.Run(name, func(t *testing.T) {
			defer func() {
				if recover() == nil {
					t.Error("got no panic")
				}
			}()
			f()
		})
	}
}

// TestEmptyBF16 checks that an empty WantBF16 counts as none.
func TestEmptyBF16(t *testing.T) {
	want, got := slices.Repeat([]float32{1}, kernelBlock+1), slices.Repeat([]float32{0.5}, kernelBlock+1)
	a := New(kernelBlock)
	a.AddRow(Row{Want: want, WantBF16: []byte{}, Got: got})
	if r, plain := a.Result(), result(kernelBlock, want, got); r != plain {
		t.Errorf("got %+v, want %+v", r, plain)
	}
}

// TestWorstAgain checks that a ratio two ulp above the worst one of the blocks before counts.
func TestWorstAgain(t *testing.T) {
	const above = 0.5 + 0x1p-23 // two ulp
	want, got := slices.Repeat([]float32{1}, 2*kernelBlock), slices.Repeat([]float32{0.5}, kernelBlock)
	got = append(got, slices.Repeat([]float32{1 - above}, kernelBlock)...)
	cputest.Run(t, func(t *testing.T, _ cpu.Tier) {
		if r := result(kernelBlock, want, got); r.MaxRelative != above {
			t.Errorf("got a maximum of %b, want %b", r.MaxRelative, above)
		}
	})
}

// TestExactLarge checks an exact block whose squares overflow float32, beside one with errors.
func TestExactLarge(t *testing.T) {
	const large = 1e30
	want := append(slices.Repeat([]float32{large}, kernelBlock), slices.Repeat([]float32{large}, kernelBlock)...)
	got := slices.Clone(want)
	got[kernelBlock] = 0
	cputest.Run(t, func(t *testing.T, _ cpu.Tier) {
		if r := result(kernelBlock, want, got); !same(r.SQNR, 10*math.Log10(2*kernelBlock)) {
			t.Errorf("got an SQNR of %g dB, want that of one element of %d", r.SQNR, 2*kernelBlock)
		}
	})
}

func BenchmarkAdd(b *testing.B) {
	want, got := make([]float32, 4096), make([]float32, 4096)
	for i := range want {
		want[i], got[i] = float32(i%61-30), float32(i%61-30)*1.01
	}
	a := New(32)
	b.SetBytes(int64(4 * len(want)))
	for b.Loop() {
		a.Add(want, got)
	}
}
