package calibration

import (
	"math"
	"testing"

	"github.com/microscale-go/microscale/quant"
	"github.com/microscale-go/microscale/tensor"
)

// TestFold: powers of two that grow with the magnitude of the column lose no more; a column without magnitude keeps its factor, and so do
// all where they are alike.
func TestFold(t *testing.T) {
	p := random(8, 48, 96, 300, 5)
	weights := []tensor.Dense{p.weight.View(0, 16, 0, 96), p.weight.View(16, 48, 0, 96)}
	for _, f := range []quant.Format{quant.NVFP4, quant.MXFP4} {
		q, err := Search.Quantizer(quant.Quantizer{Format: f})
		if err != nil {
			t.Fatal(err)
		}
		square := p.diagonal()
		powers, gain, err := Fold(q, weights, square, 2)
		if err != nil || !(gain >= 1) || f.Global && !(gain > 1.1) { // a factor of two is a step of a scale of E8M0
			t.Fatalf("%s: got the gain %g (%v), want at least 1, in nvfp4 more than 1.1", f, gain, err)
		}
		for i, a := range powers {
			if fraction, _ := math.Frexp(float64(a)); fraction != 0.5 {
				t.Errorf("%s: column %d has the factor %g, want a power of two", f, i, a)
			}
			for j, b := range powers {
				if square[i] > 0 && square[j] > square[i] && b < a {
					t.Errorf("%s: columns of mean squares %g and %g have the factors %g and %g", f, square[i], square[j], a, b)
				}
			}
		}
		if powers[5] != 1 {
			t.Errorf("%s: a column without magnitude has the factor %g", f, powers[5])
		}
		for i := range square {
			square[i] = 3
		}
		if powers, gain, err := Fold(q, weights, square, 1); err != nil || gain != 1 || powers[0] != 1 {
			t.Errorf("%s: columns alike: got the gain %g and the factor %g (%v)", f, gain, powers[0], err)
		}
	}
}
