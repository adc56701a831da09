package quant

import (
	"fmt"
	"math"
	"math/rand/v2"
	"reflect"
	"testing"

	"github.com/microscale-go/microscale/format"
	"github.com/microscale-go/microscale/tensor"
)

// The reference quantizers follow the definitions with straightforward loops:
// scales by search in float64, where powers of two and their multiples are exact,
// elements by comparing distances to the neighboring codes. What libraries round
// to float32 on the way is rounded here through float64, which changes nothing
// for one product or quotient.

func mul32(a, b float32) float32 { return float32(float64(a) * float64(b)) }
func div32(a, b float32) float32 { return float32(float64(a) / float64(b)) }

// referenceCode returns the code of y: the nearer of its two neighbors, or the
// one that the rounding asks for.
func referenceCode(s *format.Scalar, y float32, r format.Rounding, random uint32) byte {
	if y != y {
		if s.HasNaN() {
			return byte(1)<<(s.Bits()-1) - 1
		}
		return byte(s.MaxCode())
	}
	a := math.Abs(float64(y))
	value := func(c uint32) float64 { return float64(s.Decode(c)) }
	code := uint32(0)
	for code < s.MaxCode() && value(code+1) <= a {
		code++
	}
	if code < s.MaxCode() {
		below, above := a-value(code), value(code+1)-a
		up := false
		switch r {
		case format.NearestEven:
			up = below > above || below == above && code%2 == 1
		case format.HalfAway:
			up = below >= above
		case format.HalfTowardZero:
			up = below > above
		case format.TowardZero:
		case format.Up:
			up = below > 0 && y > 0
		case format.Stochastic:
			up = math.Floor(below/(below+above)*0x1p32)+float64(random) >= 0x1p32
		}
		if up {
			code++
		}
	}
	if !math.Signbit(float64(y)) {
		return byte(code)
	}
	if s.Integer {
		return byte(-code)
	}
	return byte(code | 1<<(s.Bits()-1))
}

// leastPower returns the least k from -127 to 127 with f·2^k ≥ a, or 127.
func leastPower(f, a float64) int {
	k := -127
	for k < 127 && math.Ldexp(f, k) < a {
		k++
	}
	return k
}

// mostPower returns the greatest k from -127 to 127 with f·2^k ≤ a, or -127.
func mostPower(f, a float64) int {
	k := 127
	for k > -127 && math.Ldexp(f, k) > a {
		k--
	}
	return k
}

// referenceE8M0 returns the scale of a block as a power of two.
func referenceE8M0(q Quantizer, amax float32) int {
	max := q.Format.Element.Max()
	top := math.Exp2(math.Floor(math.Log2(float64(max)))) // of which all maxima are less than twice
	a := float64(amax)
	switch q.Rule {
	case Floor:
		return mostPower(top, a)
	case Ceil:
		return leastPower(top, a)
	case Round:
		if a == 0 || math.IsInf(a, 0) {
			return mostPower(top, a)
		}
		k := int(math.Round(math.Log2(a / float64(max))))
		if k < -127 {
			k = -127
		}
		return k
	case Even:
		mantissa := map[*format.Scalar]int{format.E4M3: 3, format.E5M2: 2, format.E3M2: 2, format.E2M3: 3, format.E2M1: 1, format.INT8: 6}[q.Format.Element]
		if q.EvenMantissa != 0 {
			mantissa = q.EvenMantissa
		}
		if a == 0 || math.IsInf(a, 0) {
			return mostPower(top, a)
		}
		step := math.Exp2(math.Floor(math.Log2(a)) - float64(mantissa))
		return mostPower(top, math.Floor(a/step+0.5)*step)
	}
	if q.ExactRatio {
		return leastPower(float64(max), a)
	}
	return leastPower(1, float64(mul32(amax, div32(1, max))))
}

// A reference is one quantization of lines by the definitions: codes one per
// byte, scales as their bytes or FP32 values.
type reference struct {
	codes    []byte
	scales   []byte
	scales32 []float32
	global   float32
}

// referenceOf quantizes lines × width elements.
func referenceOf(q Quantizer, lines, width int, at func(l, c int) float32, element func(l, c int) uint64, with With) reference {
	extent := func(n, all int) int {
		if n == 0 {
			return max(all, 1)
		}
		return n
	}
	f := q.Format
	blockLines, blockWidth := extent(f.Block.Rows, lines), extent(f.Block.Cols, width)
	stored := width
	if f.Block.Cols > 0 {
		stored = (width + blockWidth - 1) / blockWidth * blockWidth
	}
	r := reference{codes: make([]byte, lines*stored), global: 1}

	whole := float32(0)
	for l := range lines {
		for c := range width {
			if a := float32(math.Abs(float64(at(l, c)))); a > whole {
				whole = a
			}
		}
	}
	if with.Amax != nil {
		whole = *with.Amax
	}
	encode, decode := float32(1), float32(1)
	if f.Global {
		encode, decode = referenceGlobal(q, whole)
		r.global = decode
	}

	for l0 := 0; l0 < lines; l0 += blockLines {
		for c0 := 0; c0 < width; c0 += blockWidth {
			amax, hasNaN := float32(0), false
			for l := l0; l < min(l0+blockLines, lines); l++ {
				for c := c0; c < min(c0+blockWidth, width); c++ {
					a := float32(math.Abs(float64(at(l, c))))
					hasNaN = hasNaN || a != a
					if a > amax {
						amax = a
					}
				}
			}
			if f.PerTensor() && with.Amax != nil {
				amax = whole
			}
			isInf := math.IsInf(float64(amax), 0)
			poison := hasNaN && q.NonFinite != Tolerate || isInf && q.NonFinite == Poison
			var scaled func(x float32) float32
			switch f.Scale {
			case format.E8M0:
				k := referenceE8M0(q, amax)
				if isInf {
					k = 127
				}
				scaled = func(x float32) float32 { return float32(math.Ldexp(float64(x), -k)) }
				if poison {
					r.scales = append(r.scales, 255)
				} else {
					r.scales = append(r.scales, byte(k+127))
				}
			case format.E4M3:
				var s byte
				s, scaled = referenceE4M3(q, amax, encode, decode)
				if poison {
					s = 0x7f
				}
				r.scales = append(r.scales, s)
			default:
				var s float32
				s, scaled = referenceFP32(q, amax)
				if poison {
					s = float32(math.NaN())
				}
				r.scales32 = append(r.scales32, s)
			}
			for l := l0; l < min(l0+blockLines, lines); l++ {
				for c := c0; c < min(c0+blockWidth, width); c++ {
					y, random := float32(math.NaN()), uint32(0)
					if !poison {
						y = scaled(at(l, c))
					}
					if q.Rounding == format.Stochastic {
						random = with.Random.At(element(l, c))
					}
					r.codes[l*stored+c] = referenceCode(f.Element, y, q.Rounding, random)
				}
			}
		}
	}
	return r
}

func roundBF16(x float32) float32 {
	if x != x {
		return x // adding to its bits would carry out of them
	}
	b := math.Float32bits(x)
	return math.Float32frombits((b + 0x7fff + b>>16&1) &^ 0xffff)
}

// referenceGlobal returns the encode and decode scale of a whole NVFP4 tensor.
func referenceGlobal(q Quantizer, amax float32) (encode, decode float32) {
	if q.Arithmetic == DecodeFirstBF16 {
		amax = roundBF16(amax)
	}
	usable := amax > 0 && !math.IsInf(float64(amax), 0)
	switch {
	case q.Arithmetic == BlockOnly || !usable:
		return 1, 1
	case q.Arithmetic == EncodeFirst:
		encode = min(div32(2688, amax), math.MaxFloat32)
		return encode, div32(1, encode)
	case q.Arithmetic == DecodeFirstBF16:
		encode = roundBF16(div32(2688, amax))
		if math.IsInf(float64(encode), 0) {
			encode = 1
		}
		return encode, div32(1, encode)
	}
	decode = div32(amax, 2688)
	if decode == 0 {
		return 1, 1
	}
	return div32(1, decode), decode
}

// referenceE4M3 returns the scale of an NVFP4 block and what its elements become.
func referenceE4M3(q Quantizer, amax, encode, decode float32) (byte, func(float32) float32) {
	e4m3 := func(x float32) byte { return referenceCode(format.E4M3, x, format.NearestEven, 0) }
	value := func(c byte) float32 { return format.E4M3.Decode(uint32(c)) }
	times := func(f float32) func(float32) float32 { return func(x float32) float32 { return mul32(x, f) } }
	over := func(f float32) func(float32) float32 { return func(x float32) float32 { return div32(x, f) } }
	switch q.Arithmetic {
	case EncodeFirst:
		s := e4m3(min(mul32(amax, mul32(encode, div32(1, 6))), math.MaxFloat32))
		return s, times(min(div32(1, mul32(value(s), decode)), math.MaxFloat32))
	case EncodeFirst64:
		s := e4m3(max(0x1p-6, min(448, div32(div32(amax, 6), decode))))
		return s, times(div32(encode, value(s)))
	case DecodeFirst:
		t := div32(amax, mul32(6, decode))
		if t == 0 {
			t = 1
		}
		s := e4m3(max(0x1p-9, min(448, t)))
		return s, over(mul32(value(s), decode))
	case DecodeFirstBF16:
		s := e4m3(min(448, mul32(encode, roundBF16(div32(amax, 6)))))
		if s == 0 {
			s = e4m3(0.125)
		}
		return s, over(div32(value(s), encode))
	}
	// ggml: eighths of the binade, half up; the subnormals stop at 7/512, the
	// binade of 448 has that value alone.
	t := div32(amax, 6)
	s := referenceCode(format.E4M3, t, format.HalfAway, 0)
	if t < 0x1p-6 {
		s = min(7, byte(mul32(t, 512)+0.5))
	}
	if s >= 0x78 {
		s = 0x7e
	}
	if s == 0 {
		return 0, times(0)
	}
	return s, over(value(s))
}

// referenceFP32 returns the FP32 scale of a block and what its elements become.
func referenceFP32(q Quantizer, amax float32) (float32, func(float32) float32) {
	max := q.Format.Element.Max()
	if q.Arithmetic == DecodeFirstBF16 {
		amax = roundBF16(amax)
	}
	usable := amax > 0 && !math.IsInf(float64(amax), 0)
	powerBelow := func(x float32) float32 { return float32(math.Exp2(math.Floor(math.Log2(float64(x))))) }
	powerAbove := func(x float32) float32 {
		p := 0x1p-149
		for p < float64(x) {
			p *= 2
		}
		return float32(p)
	}
	switch q.Arithmetic {
	case EncodeFirst, EncodeFirst64:
		encode := float32(1)
		switch {
		case q.Arithmetic == EncodeFirst64:
			encode = float32(float64(max) / math.Max(float64(amax), 1e-12))
		case usable:
			encode = min(div32(max, amax), math.MaxFloat32)
		}
		if q.PowerOfTwo && encode > 0 {
			encode = powerBelow(encode)
		}
		return div32(1, encode), func(x float32) float32 { return mul32(x, encode) }
	case DecodeFirstBF16:
		decode := roundBF16(div32(amax, max))
		if !usable || decode == 0 {
			decode = 0x1p-7
		}
		if q.PowerOfTwo {
			decode = powerAbove(decode)
		}
		return decode, func(x float32) float32 { return roundBF16(div32(x, decode)) }
	}
	decode := div32(amax, max)
	if !usable || decode == 0 {
		decode = 1
	}
	if q.PowerOfTwo {
		decode = powerAbove(decode)
	}
	return decode, func(x float32) float32 { return div32(x, decode) }
}

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
	random := rand.New(rand.NewPCG(uint64(kind), uint64(rows)<<32|uint64(cols)))
	x := tensor.New(rows, cols)
	for i := range x.Data {
		x.Data[i] = kinds[kind].value(random)
	}
	return x
}

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
				Quantizer{Format: f, Rule: Floor, NonFinite: Poison})
		case format.E4M3:
			for q.Arithmetic = EncodeFirst; q.Arithmetic <= BlockOnly; q.Arithmetic++ {
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
	return all
}

func (q Quantizer) testName() string {
	s := fmt.Sprintf("format=%s/rule=%s/arithmetic=%d/rounding=%s", q.Format, q.Rule, q.Arithmetic, q.Rounding)
	for _, option := range []struct {
		set  bool
		name string
	}{{q.ExactRatio, "/exact"}, {q.EvenMantissa > 0, "/mantissa"}, {q.PowerOfTwo, "/pow2"}, {q.NonFinite == Poison, "/poison"}, {q.NonFinite == PoisonNaN, "/poison-nan"}} {
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
					if i >= large && kind != len(q.testName())%len(kinds) {
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
	want := referenceOf(q, lines, width, at, element, with)
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
	if w := Amax(x, 1); got.Amax != w {
		t.Fatalf("%s: amax is %g, want %g", where, got.Amax, w)
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
