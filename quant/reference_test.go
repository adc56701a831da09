package quant

import (
	"math"

	"github.com/microscale-go/microscale/format"
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

// minPower returns the least k from -127 to 127 with f·2^k ≥ a, or 127.
func minPower(f, a float64) int {
	k := -127
	for k < 127 && math.Ldexp(f, k) < a {
		k++
	}
	return k
}

// maxPower returns the greatest k from -127 to 127 with f·2^k ≤ a, or -127.
func maxPower(f, a float64) int {
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
	if a == 0 && q.UnitZeroScale {
		return 0
	}
	switch q.Rule {
	case Floor:
		return maxPower(top, a)
	case Ceil:
		return minPower(top, a)
	case Round:
		if a == 0 || math.IsInf(a, 0) {
			return maxPower(top, a)
		}
		k := int(math.Round(math.Log2(a / float64(max))))
		if k < -127 {
			k = -127
		}
		return k
	case Even:
		mantissa := map[*format.Scalar]int{format.E4M3: 3, format.E5M2: 2, format.E3M2: 2, format.E2M3: 3, format.E2M1: 1,
			format.INT8: 6}[q.Format.Element]
		if q.EvenMantissa != 0 {
			mantissa = q.EvenMantissa
		}
		if a == 0 || math.IsInf(a, 0) {
			return maxPower(top, a)
		}
		step := math.Exp2(math.Floor(math.Log2(a)) - float64(mantissa))
		return maxPower(top, math.Floor(a/step+0.5)*step)
	}
	if q.ExactRatio {
		return minPower(float64(max), a)
	}
	return minPower(1, float64(mul32(amax, div32(1, max))))
}

// A definition is a quantization of rows by the definitions of the standards: codes one to a
// byte, scales as bytes or FP32 values.
type definition struct {
	codes    []byte
	scales   []byte
	scales32 []float32
	global   float32
}

// definitionOf quantizes rows of width elements.
func definitionOf(q Quantizer, lines, width int, at func(l, c int) float32, element func(l, c int) uint64, with With) definition {
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
	r := definition{codes: make([]byte, lines*stored), global: 1}

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
					if q.NonFinite >= PoisonNaN && q.Rule != RatioCeil { // as 2^128
						k = 128 - int(math.Floor(math.Log2(float64(f.Element.Max()))))
						if q.Rule == Round {
							k--
						}
						k = min(k, 127)
					}
				}
				divisor := k
				if k == -127 {
					divisor = map[float32]int{0: -127, 0x1p-126: -126, 1: 0}[q.SmallestDivisor]
				}
				scaled = func(x float32) float32 { return float32(math.Ldexp(float64(x), -divisor)) }
				if hasNaN && q.NonFinite == PoisonZero {
					poison, scaled = false, func(x float32) float32 { return x / float32(math.Inf(1)) }
					r.scales = append(r.scales, 255)
					break
				}
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
					code := referenceCode(f.Element, y, q.Rounding, random)
					if f.Element.Decode(uint32(code)) == 0 && (q.NegativeZero == DropNegativeZero || q.NegativeZero == DropZeroInput && y == 0) {
						code = 0
					}
					r.codes[l*stored+c] = code
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
	case q.Arithmetic.FixesGlobal() || !usable:
		return 1, 1
	case q.Arithmetic == EncodeFirst:
		encode = min(div32(2688, amax), math.MaxFloat32)
		return encode, div32(1, encode)
	case q.Arithmetic == DecodeFirstBF16:
		encode = roundBF16(mul32(2688, roundBF16(div32(1, amax))))
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
	case BlockNearest:
		s := e4m3(div32(amax, 6))
		if s == 0 {
			return 0, times(0)
		}
		return s, over(value(s))
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
