package calibration

import (
	"slices"
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
		one := p.Weight(1, 100, false)
		if !(one > 0 && p.Weight(3, 100, false) > 2.9*one && p.Weight(1, 300, false) > 2.9*one) || (p.Input(100, false) > 0) != (m == Solve) ||
			(p.Product > 0) != (m == Solve) {
			t.Errorf("%s: got %+v", m, p)
		}
	}
	p := Pace{Element: 1, Spread: 2, Factor: 3, Product: 4}
	got := []float64{p.Weight(2, 10, false), p.Weight(2, 10, true), p.Input(2, false), p.Input(2, true)}
	if want := []float64{2 * (10 + 100), 2 * (10 + 100 + 400), 24, 24 + 64}; !slices.Equal(got, want) {
		t.Errorf("got %g, want %g", got, want)
	}
}

// TestSolvingSeconds: formats that the method does not support are skipped, and without others the forecast is 0.
func TestSolvingSeconds(t *testing.T) {
	c := &Collector{Hessian: true, Pairs: true, Threads: 1, Layers: [][]Linear{{{Name: "in", Width: 64, Rows: 64}}}}
	if got := c.SolvingSeconds([]quant.Format{quant.FP8Block}); got != 0 {
		t.Errorf("fp8-block128: got %g seconds", got)
	}
	if got := c.SolvingSeconds([]quant.Format{quant.FP8Block, quant.NVFP4}); !(got > 0) {
		t.Errorf("fp8-block128 and nvfp4: got %g seconds", got)
	}
	p := Pace{Element: 1, Spread: 2, Factor: 3, Product: 4}
	for kind, want := range map[string]float64{"": 5*(10+100+400) + 1000*(3+8), "up": 5*(10+100) + 1000*3} { // experts have no aims
		c.Layers = [][]Linear{{{Name: "in", Width: 10, Rows: 5, Kind: kind}}}
		if got := c.seconds(p); got != want {
			t.Errorf("kind %q: got %g seconds, want %g", kind, got, want)
		}
	}
}
