package calibration

import (
	"testing"

	"github.com/microscale-go/microscale/quant"
)

// TestPace: more rows, columns and wider inputs take longer by the prediction, and nearest takes nothing.
func TestPace(t *testing.T) {
	for _, m := range Methods() {
		q, err := m.Quantizer(quant.Quantizer{Format: quant.NVFP4})
		if err != nil {
			t.Fatal(err)
		}
		p, err := m.MeasurePace(q)
		if err != nil {
			t.Fatal(err)
		}
		if m == Nearest {
			if p != (Pace{}) {
				t.Errorf("nearest: got %+v", p)
			}
			continue
		}
		one := p.Weight(1, 100)
		if !(one > 0 && p.Weight(3, 100) > 2.9*one && p.Weight(1, 300) > 2.9*one) || (p.Input(100) > 0) != (m == Solve) {
			t.Errorf("%s: got %+v", m, p)
		}
	}
	if p := (Pace{Element: 1, Spread: 2, Factor: 3}); p.Weight(2, 10) != 2*(10+100) || p.Input(2) != 24 {
		t.Errorf("got %g and %g", p.Weight(2, 10), p.Input(2))
	}
}
