package quant

import (
	"fmt"
	"math"
	"math/rand/v2"
	"reflect"
	"sync"
	"testing"

	"github.com/microscale-go/microscale/format"
	"github.com/microscale-go/microscale/internal/slow"
	"github.com/microscale-go/microscale/tensor"
)

// The kinds of random matrices, weighted to the edges.
var kinds = []struct {
	name  string
	value func(r *rand.Rand) float32
}{
	{"normal", func(r *rand.Rand) float32 { return float32(r.NormFloat64() * math.Exp2(float64(r.IntN(12)))) }},
	{"bits", func(r *rand.Rand) float32 { return finite(r.Uint32()) }},
	{"ties", tie},
	{"tiny", func(r *rand.Rand) float32 { return finite(r.Uint32() & 0x83ffffff) }},
	{"edges", edge},
	{"nonfinite", func(r *rand.Rand) float32 {
		switch r.IntN(96) {
		case 0:
			return float32(math.Inf(1 - 2*r.IntN(2)))
		case 1:
			return math.Float32frombits(0x7fc00000 | r.Uint32())
		}
		return edge(r)
	}},
}

// finite returns the float32 of bits, brought below Inf.
func finite(bits uint32) float32 {
	if bits&exponentMask == exponentMask {
		bits &^= 1 << 23
	}
	return math.Float32frombits(bits)
}

// tie returns small multiples of 1/8, which lie on and between the codes of
// every format, times a power of two.
func tie(r *rand.Rand) float32 {
	return float32(r.IntN(129)-64) / 8 * float32(int(1)<<(4*r.IntN(4)))
}

// edge returns zeros, powers of two, the multiples 1.5, 1.75, 1.875, 1.9375 of
// them, the limits of float32, and the neighbors of all these.
func edge(r *rand.Rand) float32 {
	if r.IntN(4) == 0 {
		return math.Float32frombits(r.Uint32() & 1 << 31)
	}
	mantissas := []uint32{0, 0, 0x400000, 0x600000, 0x700000, 0x780000, 0x7e0000, 0x7fffff}
	exponent := []uint32{0, 1, 2, 8, 9, 120, 127, 128, 135, 140, 247, 254}[r.IntN(12)]
	bits := exponent<<23 | mantissas[r.IntN(len(mantissas))]
	bits = max(bits, 1) + uint32(r.IntN(3)) - 1
	return finite(min(bits, 0x7f7fffff) | r.Uint32()&1<<31)
}

func randomMatrix(kind, rows, cols int) tensor.Dense {
	randomMatrices.Lock()
	defer randomMatrices.Unlock()
	key := [3]int{kind, rows, cols}
	if x, ok := randomMatrices.made[key]; ok {
		return x.Clone()
	}
	random := rand.New(rand.NewPCG(uint64(kind), uint64(rows)<<32|uint64(cols)))
	x := tensor.New(rows, cols)
	for i := range x.Data {
		x.Data[i] = kinds[kind].value(random)
	}
	randomMatrices.made[key] = x.Clone()
	return x
}

// randomMatrices holds the matrices that randomMatrix has made: hundreds of quantizers take the same.
var randomMatrices = struct {
	sync.Mutex
	made map[[3]int]tensor.Dense
}{made: map[[3]int]tensor.Dense{}}

// behaviors returns the quantizers to compare with the reference: every format
// with every rule or arithmetic that it knows, and the other fields one by one.
func behaviors() []Quantizer {
	var all []Quantizer
	formats := append(Formats(),
		Format{Name: "mxfp4 of all rows", Element: format.E2M1, Scale: format.E8M0, Block: Shape{0, 8}},
		Format{Name: "mxfp6 of whole tensors", Element: format.E2M3, Scale: format.E8M0, Block: Shape{5, 64}},
		Format{Name: "mxfp8 of whole tensors", Element: format.E4M3, Scale: format.E8M0},
		Format{Name: "nvfp4 of 8 by 24", Element: format.E2M1, Scale: format.E4M3, Block: Shape{8, 24}, Global: true})
	for _, f := range formats {
		q := Quantizer{Format: f}
		switch f.Scale {
		case format.E8M0:
			for _, q.Rule = range ScaleRules() {
				all = append(all, q)
			}
			all = append(all, Quantizer{Format: f, ExactRatio: true}, Quantizer{Format: f, Rule: Even, EvenMantissa: 1},
				Quantizer{Format: f, Rule: Floor, NonFinite: Poison},
				Quantizer{Format: f, Rule: Floor, NonFinite: PoisonZero, SmallestDivisor: 0x1p-126},
				Quantizer{Format: f, NonFinite: PoisonNaN, SmallestDivisor: 1}, Quantizer{Format: f, UnitZeroScale: true})
		case format.E4M3:
			for q.Arithmetic = EncodeFirst; q.Arithmetic <= BlockNearest; q.Arithmetic++ {
				all = append(all, q)
			}
			all = append(all, Quantizer{Format: f, Arithmetic: EncodeFirst64, NonFinite: PoisonNaN})
		case format.F32:
			for q.Arithmetic = EncodeFirst; q.Arithmetic <= DecodeFirstBF16; q.Arithmetic++ {
				all = append(all, q, Quantizer{Format: f, Arithmetic: q.Arithmetic, PowerOfTwo: true})
			}
			all = append(all, Quantizer{Format: f, Arithmetic: EncodeFirst64, NonFinite: PoisonNaN})
		}
	}
	for r := format.HalfAway; r <= format.Stochastic; r++ {
		for _, f := range []Format{MXFP8, MXFP6E3M2, MXFP4, MXINT8, NVFP4, FP8Vec128, FP8Tensor} {
			all = append(all, Quantizer{Format: f, Rounding: r})
		}
	}
	for _, zero := range []NegativeZero{DropZeroInput, DropNegativeZero} {
		for _, f := range []Format{MXFP8, MXFP6E3M2, MXFP4, MXINT8, NVFP4, FP8Vec128, FP8Tensor} {
			all = append(all, Quantizer{Format: f, NegativeZero: zero})
		}
	}
	return all
}

func (q Quantizer) testName() string {
	s := fmt.Sprintf("format=%s/rule=%s/arithmetic=%d/rounding=%s", q.Format, q.Rule, q.Arithmetic, q.Rounding)
	for _, option := range []struct {
		set  bool
		name string
	}{{q.ExactRatio, "/exact"}, {q.EvenMantissa > 0, "/mantissa"}, {q.PowerOfTwo, "/pow2"}, {q.NonFinite == Poison, "/poison"},
		{q.NonFinite == PoisonNaN, "/poison-nan"}, {q.NonFinite == PoisonZero, "/poison-zero"}, {q.SmallestDivisor == 0x1p-126, "/normal"},
		{q.SmallestDivisor == 1, "/one"},
		{q.UnitZeroScale, "/zero-scale"}} {
		if option.set {
			s += option.name
		}
	}
	return s
}

// TestReference compares every behavior with the reference, in both directions,
// on shapes with and without tails.
func TestReference(t *testing.T) {
	shapes := [][2]int{{0, 0}, {0, 7}, {7, 0}, {1, 1}, {3, 33}, {17, 100}, {130, 257}}
	large := 6 // from which each behavior takes one kind alone
	if testing.Short() {
		shapes, large = shapes[:6], 5
	}
	for _, q := range behaviors() {
		t.Run(q.testName(), func(t *testing.T) {
			for kind := range kinds {
				for i, shape := range shapes {
					if i >= large && kind != len(q.testName())%len(kinds) || (i+kind)%slow.Stride(1, 4) > 0 {
						continue
					}
					for _, d := range []Direction{Rowwise, Columnwise} {
						x := randomMatrix(kind, shape[0], shape[1])
						compareReference(t, q, x, d, kinds[kind].name)
					}
				}
			}
		})
	}
}

func compareReference(t *testing.T, q Quantizer, x tensor.Dense, d Direction, kind string) {
	t.Helper()
	with := With{Random: &Stream{Seed: 5, Step: 2, Tensor: 9}, FirstRow: 3}
	got, err := direction(q, x, d, with)
	if err != nil {
		t.Fatal(err)
	}
	lines, width, at := x.Rows, x.Cols, x.At
	element := func(l, c int) uint64 { return uint64(3+l)*uint64(x.Cols) + uint64(c) }
	if d == Columnwise {
		lines, width = width, lines
		at = func(l, c int) float32 { return x.At(c, l) }
		element = func(l, c int) uint64 { return uint64(3+c)*uint64(x.Cols) + uint64(l) }
	}
	want := definitionOf(q, lines, width, at, element, with)
	where := fmt.Sprintf("%s, %d×%d of kind %s", d, x.Rows, x.Cols, kind)
	if got.Global != want.global {
		t.Fatalf("%s: global scale is %g, want %g", where, got.Global, want.global)
	}
	if len(got.Scales) != len(want.scales) || len(got.Scales32) != len(want.scales32) {
		t.Fatalf("%s: %d and %d scales, want %d and %d", where, len(got.Scales), len(got.Scales32), len(want.scales), len(want.scales32))
	}
	for i, s := range got.Scales {
		if s != want.scales[i] {
			t.Fatalf("%s: scale %d is %#02x, want %#02x", where, i, s, want.scales[i])
		}
	}
	for i, s := range got.Scales32 {
		if w := want.scales32[i]; s != w && (s == s || w == w) {
			t.Fatalf("%s: scale %d is %g, want %g", where, i, s, w)
		}
	}
	for i, c := range codes(got) {
		if c != want.codes[i] {
			t.Fatalf("%s: code %d is %#02x, want %#02x", where, i, c, want.codes[i])
		}
	}
	if w, err := q.Reference(x, d, with); err != nil || !same(got, w) {
		t.Fatalf("%s: not what Reference returns (error %v)", where, err)
	}
	if w := Amax(x, 1); got.Amax != w {
		t.Fatalf("%s: amax is %g, want %g", where, got.Amax, w)
	}
}

// TestReferenceOptions compares every path with Reference where the definitions
// of this file's neighbor end: searches, the Hadamard transform, signs of zeros,
// and scales and amax that the caller gives, with and without NaN.
func TestReferenceOptions(t *testing.T) {
	var all []Quantizer
	for _, f := range Formats() {
		if !f.Scaled() {
			continue
		}
		for _, q := range []Quantizer{
			{Format: f, Search: LeastSquares},
			{Format: f, Search: LeastSquares, PowerOfTwo: true},
			{Format: f, Search: LeastSquares, Arithmetic: DecodeFirst},
			{Format: f, Search: FourOverSixMAE, TopScale: FourOverSixTop},
			{Format: f, Search: FourOverSixMSE, TopScale: FourOverSixTop},
			{Format: f, Hadamard: true},
			{Format: f, Hadamard: true, Rounding: format.Stochastic},
			{Format: f, NegativeZero: DropZeroInput},
			{Format: f, NegativeZero: DropNegativeZero},
			{Format: f, NonFinite: Poison, NegativeZero: DropNegativeZero, ElementNaN: format.OppositeZero},
		} {
			if q.Validate() == nil {
				all = append(all, q)
			}
		}
	}
	if len(all) < 60 {
		t.Fatalf("%d quantizers are valid", len(all))
	}
	given, inverse := float32(3), float32(160)
	shapes := [][2]int{{33, 80}, {1, 16}, {64, 144}}
	if testing.Short() {
		shapes = shapes[:1]
	}
	for i, q := range all {
		for _, with := range []With{{}, {Amax: &given}, {Amax: &given, NaN: true}, {Inverse: &inverse}} {
			with.Random, with.FirstRow = &Stream{Seed: 3, Step: 1, Tensor: 4}, 5
			if q.check(with) != nil {
				continue
			}
			for kind := range kinds {
				if (i+kind)%slow.Stride(1, 8) > 0 {
					continue
				}
				for n, shape := range shapes {
					if n > 0 && kind != i%len(kinds) {
						continue // each quantizer takes the others of one kind
					}
					for _, d := range []Direction{Rowwise, Columnwise} {
						x := randomMatrix(kind, shape[0], shape[1])
						got, err := direction(q, x, d, with)
						want, err2 := q.Reference(x, d, with)
						if (err == nil) != (err2 == nil) {
							t.Fatalf("%+v: error %v, want %v", q, err, err2)
						}
						if err == nil && !same(got, want) {
							t.Fatalf("%s of %d×%d, kind %s: %+v with %+v differs from Reference", d, shape[0], shape[1], kinds[kind].name, q, with)
						}
					}
				}
			}
		}
	}
}

// direction quantizes x in direction d.
func direction(q Quantizer, x tensor.Dense, d Direction, with With) (*Tensor, error) {
	if d == Columnwise {
		return q.Columnwise(x, with)
	}
	return q.Rowwise(x, with)
}

// TestReferenceCode: the reference's own elements agree with the ties that the
// specification prints.
func TestReferenceCode(t *testing.T) {
	for y, want := range map[float32]byte{0.25: 0, 0.75: 2, 1.25: 2, 1.75: 4, 2.5: 4, 3.5: 6, 5: 6, 5.5: 7, 100: 7, -0.25: 8, -5: 14} {
		if got := referenceCode(format.E2M1, y, format.NearestEven, 0); got != want {
			t.Errorf("%g is %#x, want %#x", y, got, want)
		}
	}
	if got := referenceCode(format.INT8, -1, format.NearestEven, 0); got != 0xc0 {
		t.Errorf("int8 of -1 is %#x, want 0xc0", got)
	}
}

// same reports whether two tensors are the same in every bit.
func same(a, b *Tensor) bool {
	return reflect.DeepEqual(a.Format.Block, b.Format.Block) && a.Format.Name == b.Format.Name && a.Direction == b.Direction &&
		reflect.DeepEqual(a.Shape, b.Shape) && string(a.Codes) == string(b.Codes) && string(a.ScaleBytes()) == string(b.ScaleBytes()) &&
		a.Global == b.Global && a.Amax == b.Amax
}
