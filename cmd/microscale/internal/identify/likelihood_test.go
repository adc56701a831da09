package identify

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/microscale-go/microscale/format"
)

// TestAbove: integrated densities are the known probabilities, of Student's t with 3 degrees of freedom and of the normal distribution, and
// 1 and 0 outside the range of the integral.
func TestAbove(t *testing.T) {
	student := func(x float64) float64 {
		a := x / math.Sqrt(3)
		return 1 - 2/math.Pi*(a/(1+a*a)+math.Atan(a))
	}
	gauss := above(func(x float64) float64 { return math.Exp(-x * x / 2) })
	for _, x := range []float64{0, 1e-9, 1e-3, 0.1, 0.7, 1, 2.5, 6, 30, 500, 1e7} {
		if got, want := shapes[1](x), student(x); math.Abs(got-want) > 2e-5*want+1e-12 {
			t.Errorf("Student's t above %g: %g, want %g", x, got, want)
		}
		if got, want := gauss(x), normal(x); math.Abs(got-want) > 2e-5 {
			t.Errorf("normal distribution above %g: %g, want %g", x, got, want)
		}
	}
}

// TestBlockLikelihood: the probability of a block is that of its elements, with the largest in [low, 2·low): as the product over elements
// below 2·low, less that with those of the largest magnitude below low. A block that low excludes is rare.
func TestBlockLikelihood(t *testing.T) {
	e := format.E2M1
	r := rand.New(rand.NewPCG(1, 1))
	edges := []float64{0}
	for n := range magnitudes(e) - 1 {
		edges = append(edges, (valueOf(e, n)+valueOf(e, n+1))/2/4)
	}
	edges = append(edges, math.Inf(1))
	excluded := 0
	for range 200 {
		one := codes{elements: make([]uint32, magnitudes(e))}
		elements := make([]int, 1+r.IntN(8))
		for i := range elements {
			elements[i] = 1 + r.IntN(magnitudes(e)-1)
			one.elements[elements[i]]++
			one.top = max(one.top, elements[i])
		}
		low, shape := []float64{0.875, 1, 1.25, 1.75}[r.IntN(4)], shapes[r.IntN(len(shapes))]
		body, top := bodies([]codes{one}, edges, shape), tops([]codes{one}, edges, low, shape)
		for _, i := range []int{-narrowest - perOctave, -narrowest, widths - 1} {
			got := math.Exp(body[0][i] + top[0][i])
			whole, below := 1.0, 1.0
			for _, n := range elements {
				p := func(to float64) float64 { return max(shape(edges[n]/width(i))-shape(max(edges[n], to)/width(i)), 0) }
				whole *= p(min(edges[n+1], 2*low))
				if n == one.top {
					below *= p(min(edges[n+1], low))
				} else {
					below *= p(edges[n+1])
				}
			}
			want := whole - below
			if edges[one.top] >= 2*low || edges[one.top+1] <= low {
				want = rare * math.Exp(body[0][i])
				excluded++
			}
			if math.Abs(got-want) > 1e-6*want+1e-15*whole {
				t.Fatalf("%v, low %g, width %g: %g, want %g", elements, low, width(i), got, want)
			}
		}
	}
	if excluded == 0 {
		t.Error("no block was excluded")
	}
}

// TestMixed: blocks that are most likely at one width have their largest likelihood under one distribution of widths, also where their
// scales differ and so the width beside them. Those of two widths lose a factor of two each.
func TestMixed(t *testing.T) {
	peak := func(at int) (p []float64) {
		for i := range widths {
			p = append(p, -5*math.Abs(float64(i-at)))
		}
		return p
	}
	flat := make([]float64, widths)
	for _, tc := range []struct {
		code byte
		at   int
		want float64
	}{{120, 40, 0}, {121, 40 - perOctave, 0}, {119, 40 + perOctave, 0}, {120, 41, -2 * math.Ln2}, {121, 40, -2 * math.Ln2}} {
		got := mixed([]codes{{code: 120}, {code: tc.code}}, [][]float64{peak(40), peak(tc.at)}, [][]float64{flat, flat})
		if math.Abs(got-tc.want) > 0.02 {
			t.Errorf("code %d, width %d: %g, want %g", tc.code, tc.at, got, tc.want)
		}
	}
}
