package mma_test

import (
	"fmt"
	"math"
	"math/big"
	"testing"

	"github.com/microscale-go/microscale/format"
	"github.com/microscale-go/microscale/internal/slow"
	"github.com/microscale-go/microscale/mma"
	"github.com/microscale-go/microscale/mma/mmatest"
)

// The references use rational arithmetic on the values of the operands, not on their codes.

func rational(x float64) *big.Rat { return new(big.Rat).SetFloat64(x) }

func power(e int) *big.Rat { return rational(math.Ldexp(1, e)) }

// log2 returns ⌊log2 |x|⌋ of a number other than zero.
func log2(x *big.Rat) int {
	n := x.Num().BitLen() - x.Denom().BitLen()
	if new(big.Rat).Abs(x).Cmp(power(n)) < 0 {
		n--
	}
	return n
}

// quotient returns x/2^unit as an integer. how is the rounding: "down", "toward zero" or "nearest".
func quotient(x *big.Rat, unit int, how string) *big.Int {
	q := new(big.Rat).Quo(x, power(unit))
	floor := new(big.Int).Div(q.Num(), q.Denom()) // the divisor is positive, so this is the floor
	rest := new(big.Rat).Sub(q, new(big.Rat).SetInt(floor))
	half := rest.Cmp(big.NewRat(1, 2))
	up := map[string]bool{"down": false, "toward zero": x.Sign() < 0 && rest.Sign() > 0, "nearest": half > 0 || half == 0 &&
		floor.Bit(0) == 1}[how]
	if up {
		floor.Add(floor, big.NewInt(1))
	}
	return floor
}

// cut returns x rounded to a multiple of 2^unit.
func cut(x *big.Rat, unit int, how string) *big.Rat {
	return new(big.Rat).Mul(new(big.Rat).SetInt(quotient(x, unit, how)), power(unit))
}

// rounded returns x as a float with the given fraction bits.
func rounded(x *big.Rat, out *mma.Type, fraction int, how string) float64 {
	if x.Sign() == 0 {
		return 0
	}
	smallest, largest := 1-out.Scalar.Bias, out.Scalar.Bias
	y := cut(x, max(log2(x), smallest)-fraction, how)
	if y.Sign() != 0 && log2(y) > largest {
		return math.Inf(y.Sign())
	}
	v, _ := y.Float64()
	return v
}

// exponent returns the exponent of an operand: for subnormals, that of the smallest normal.
func exponent(t *mma.Type, code uint64) int {
	v := t.Value(code)
	if t.Scalar == format.E8M0 || v == 0 {
		return math.Ilogb(v)
	}
	return max(math.Ilogb(v), math.Ilogb(float64(t.Scalar.SmallestNormal())))
}

// A reference computes one fused addition. The constants of the rules are typed a second time here.
type reference func(u *mma.Unit, c mmatest.Case) float64

// aligned adds terms truncated to multiples of 2^(E-fraction).
func aligned(terms []*big.Rat, exponents []int, fraction int) (*big.Rat, int) {
	largest := exponents[0]
	for _, e := range exponents {
		largest = max(largest, e)
	}
	sum := new(big.Rat)
	for _, x := range terms {
		sum.Add(sum, cut(x, largest-fraction, "toward zero"))
	}
	return sum, largest
}

// terms returns the exact products and their exponents. zero is the exponent of zero products.
func terms(u *mma.Unit, c mmatest.Case, zero int) (products []*big.Rat, exponents []int) {
	for i := range c.A {
		p := new(big.Rat).Mul(rational(u.A.Value(c.A[i])), rational(u.B.Value(c.B[i])))
		e := zero
		if p.Sign() != 0 {
			e = exponent(u.A, c.A[i]) + exponent(u.B, c.B[i])
			if u.Scale != nil {
				sa, sb := uint64(c.ScaleA[i/u.Block]), uint64(c.ScaleB[i/u.Block])
				e += exponent(u.Scale, sa) + exponent(u.Scale, sb)
				p.Mul(p, rational(u.Scale.Value(sa)))
				p.Mul(p, rational(u.Scale.Value(sb)))
			}
		}
		products, exponents = append(products, p), append(exponents, e)
	}
	return products, exponents
}

func nvidia(group, fraction, zero, mantissa int, how string) reference {
	return func(u *mma.Unit, c mmatest.Case) float64 {
		v := u.Out.Value(c.C)
		products, exponents := terms(u, c, zero)
		for i := 0; i < len(products); i += group {
			e := zero
			if v != 0 {
				e = max(math.Ilogb(v), 1-u.Out.Scalar.Bias)
			}
			sum, _ := aligned(append(products[i:i+group:i+group], rational(v)), append(exponents[i:i+group:i+group], e), fraction)
			if v = rounded(sum, u.Out, mantissa, how); math.IsInf(v, 0) {
				return v
			}
		}
		return v
	}
}

func nvidiaFP4(u *mma.Unit, c mmatest.Case) float64 {
	const zero, fraction = -139, 35
	products, _ := terms(u, c, 0)
	var dots []*big.Rat
	var exponents []int
	for first := 0; first < len(products); first += 16 {
		dot, e := new(big.Rat), zero
		for i, p := range products[first : first+16] {
			dot.Add(dot, p)
			if p.Sign() != 0 {
				e = exponent(u.Scale, uint64(c.ScaleA[(first+i)/u.Block])) + exponent(u.Scale, uint64(c.ScaleB[(first+i)/u.Block]))
			}
		}
		dots, exponents = append(dots, dot), append(exponents, e)
	}
	v, e := u.Out.Value(c.C), zero
	if v != 0 {
		e = max(math.Ilogb(v), -126)
	}
	sum, _ := aligned(append(dots, rational(v)), append(exponents, e), fraction)
	return rounded(sum, u.Out, 23, "toward zero")
}

func amdExact(group int) reference {
	return func(u *mma.Unit, c mmatest.Case) float64 {
		v := u.Out.Value(c.C)
		products, _ := terms(u, c, 0)
		for i := 0; i < len(products); i += group {
			sum := rational(v)
			for _, p := range products[i : i+group] {
				sum.Add(sum, p)
			}
			if v = rounded(sum, u.Out, 23, "nearest"); math.IsInf(v, 0) {
				return v
			}
		}
		return v
	}
}

func amdAligned(group, halves int) reference {
	const none = -1000
	return func(u *mma.Unit, c mmatest.Case) float64 {
		v := u.Out.Value(c.C)
		products, exponents := terms(u, c, none)
		for first := 0; first < len(products); first += group {
			var sums []*big.Rat
			var es []int
			for h := range halves {
				var half []*big.Rat
				var halfExponents []int
				for i := first + h; i < first+group; i += halves {
					if products[i].Sign() != 0 && log2(products[i]) >= 128 {
						return math.Inf(products[i].Sign())
					}
					half, halfExponents = append(half, products[i]), append(halfExponents, exponents[i])
				}
				sum, e := aligned(half, halfExponents, 24)
				sums, es = append(sums, sum), append(es, e)
			}
			largest := max(es[0], es[halves-1])
			dot := new(big.Rat)
			for _, s := range sums {
				dot.Add(dot, cut(s, largest-24, "down"))
			}
			ec := -126
			if v != 0 {
				ec = max(math.Ilogb(v), -126)
			}
			e := max(largest, ec)
			total := cut(dot, e-32, "down")
			if halves == 1 || ec >= e-25 {
				total.Add(total, cut(rational(v), e-24, "down"))
			}
			if total.Sign() != 0 {
				total = cut(total, max(log2(total), -126)-31, "down")
			}
			if v = rounded(total, u.Out, 23, "nearest"); math.IsInf(v, 0) {
				return v
			}
		}
		return v
	}
}

// emulatedFP8 is FP8 mma.sync on sm_90 and sm_100: two groups of 16 from zero,
// then C in an IEEE addition.
func emulatedFP8(zero, mantissa int, how string) reference {
	return func(u *mma.Unit, c mmatest.Case) float64 {
		products, exponents := terms(u, c, zero)
		v := 0.0
		for odd := range 2 {
			e := zero
			if v != 0 {
				e = max(math.Ilogb(v), 1-u.Out.Scalar.Bias)
			}
			half, halfExponents := []*big.Rat{rational(v)}, []int{e}
			for k := range products {
				if k/2%2 == odd {
					half, halfExponents = append(half, products[k]), append(halfExponents, exponents[k])
				}
			}
			sum, _ := aligned(half, halfExponents, 25)
			if v = rounded(sum, u.Out, mantissa, how); math.IsInf(v, 0) {
				return v
			}
		}
		sum := rational(v)
		return rounded(sum.Add(sum, rational(u.Out.Value(c.C))), u.Out, u.Out.Scalar.Mantissa, "nearest")
	}
}

// TestReference compares the units with the references, for finite operands.
func TestReference(t *testing.T) {
	cases := 2000
	if testing.Short() {
		cases = 300 / slow.Stride(1, 4)
	}
	for _, tc := range []struct {
		model, operands, out, scale string
		want                        reference
	}{
		{"volta-mma", "f16", "f32", "-", nvidia(4, 23, -131, 23, "toward zero")},
		{"volta-mma", "f16", "f16", "-", nvidia(4, 23, -19, 10, "nearest")},
		{"turing-mma", "f16", "f32", "-", nvidia(8, 24, -132, 23, "toward zero")},
		{"ampere-mma", "f16", "f16", "-", nvidia(8, 24, -20, 10, "nearest")},
		{"ampere-mma", "bf16", "f32", "-", nvidia(8, 24, -132, 23, "toward zero")},
		{"ampere-mma", "tf32", "f32", "-", nvidia(4, 24, -132, 23, "toward zero")},
		{"ada-mma", "e5m2×e4m3", "f32", "-", nvidia(16, 13, -132, 13, "toward zero")},
		{"ada-mma", "e4m3", "f16", "-", nvidia(16, 13, -20, 10, "nearest")},
		{"hopper-mma", "bf16", "f32", "-", nvidia(16, 25, -133, 23, "toward zero")},
		{"hopper-mma", "e4m3×e5m2", "f32", "-", emulatedFP8(-133, 23, "toward zero")},
		{"blackwell-mma", "e4m3", "f16", "-", emulatedFP8(-21, 10, "nearest")},
		{"blackwell-mma", "tf32", "f32", "-", nvidia(8, 25, -133, 23, "toward zero")},
		{"rtxblackwell-mma", "e3m2×e2m1", "f16", "-", nvidia(32, 25, -21, 10, "nearest")},
		{"hopper-wgmma", "e4m3×e5m2", "f32", "-", nvidia(32, 13, -133, 13, "toward zero")},
		{"blackwell-f8f6f4", "e2m3×e5m2", "f32", "-", nvidia(32, 25, -133, 23, "toward zero")},
		{"blackwell-mxf8f6f4", "e4m3×e3m2", "f32", "ue8m0", nvidia(32, 25, -133, 23, "toward zero")},
		{"blackwell-mxf4", "e2m1", "f32", "ue8m0", nvidiaFP4},
		{"blackwell-mxf4nvf4", "e2m1", "f32", "ue8m0", nvidiaFP4},
		{"blackwell-mxf4nvf4", "e2m1", "f32", "ue4m3", nvidiaFP4},
		{"cdna1-mfma", "f16", "f32", "-", amdExact(4)},
		{"cdna1-mfma", "bf16", "f32", "-", amdExact(2)},
		{"cdna1-mfma", "f32", "f32", "-", amdExact(1)},
		{"cdna3-mfma", "f16", "f32", "-", amdAligned(8, 1)},
		{"cdna3-mfma", "bf16", "f32", "-", amdAligned(8, 1)},
		{"cdna3-mfma", "tf32", "f32", "-", amdAligned(4, 1)},
		{"cdna3-mfma", "e4m3fnuz×e5m2fnuz", "f32", "-", amdAligned(16, 2)},
		{"cdna4-mfma-scale", "e5m2×e2m3", "f32", "ue8m0", amdAligned(32, 2)},
	} {
		t.Run(fmt.Sprintf("%s/%s/%s/%s", tc.model, tc.operands, tc.out, tc.scale), func(t *testing.T) {
			u := unit(t, tc.model, tc.operands, tc.out, tc.scale)
			source := mmatest.Source(33)
			compared := 0
			for range cases {
				c := mmatest.Hard(u, u.K, &source)
				if !finiteCase(u, c) {
					continue
				}
				compared++
				want := tc.want(u, c)
				if got := u.Out.Value(c.Dot(u)); got != want && !(math.IsInf(want, 0) && got != got) { // the sum may reach the opposite infinity later
					t.Fatalf("got %v, want %v as the reference, for %+v", got, want, c)
				}
			}
			if compared < cases/2 {
				t.Errorf("compared only %d cases", compared)
			}
		})
	}
}

// finiteCase reports whether every operand of c is finite.
func finiteCase(u *mma.Unit, c mmatest.Case) bool {
	isFinite := func(t *mma.Type, code uint64) bool {
		v := t.Value(code)
		return v-v == 0
	}
	ok := isFinite(u.Out, c.C)
	for i := range c.A {
		ok = ok && isFinite(u.A, c.A[i]) && isFinite(u.B, c.B[i])
	}
	for i := range c.ScaleA {
		ok = ok && !u.Scale.Scalar.IsNaN(uint32(c.ScaleA[i])) && !u.Scale.Scalar.IsNaN(uint32(c.ScaleB[i]))
	}
	return ok
}
