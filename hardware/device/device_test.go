package device

import (
	"math"
	"strings"
	"testing"
)

// TestSources checks that every figure of the table has a source with a reference, or says why
// it is unknown, and that every mode names where its rules come from.
func TestSources(t *testing.T) {
	source := func(what string, s *Source) {
		if s == nil || s.Kind == "" || s.Title == "" || !strings.Contains(s.Ref, "/") {
			t.Errorf("%s: got source %+v, want kind, title and reference", what, s)
		}
	}
	for _, d := range All() {
		for name, f := range map[string]Figure{"BF16": d.BF16, "FP8": d.FP8, "FP6": d.FP6, "FP4": d.FP4, "bandwidth": d.Bandwidth} {
			what := d.Name + " " + name
			switch {
			case f.Known():
				source(what, f.Source)
				if !(f.Value > 0) || math.IsInf(f.Value, 0) {
					t.Errorf("%s: got %v, want a positive figure", what, f.Value)
				}
			case f.Value != 0:
				t.Errorf("%s: got %v without a source", what, f.Value)
			case f.Note == "":
				t.Errorf("%s: unknown without a reason", what)
			}
		}
	}
	for _, d := range All() {
		for i := range d.Arch.Modes {
			source(d.Arch.String(), d.Arch.Modes[i].Source)
		}
	}
}

// TestRates checks relations that hold between dense rates of one device, whatever their sources.
func TestRates(t *testing.T) {
	for _, d := range All() {
		if d.BF16.Known() {
			if r := d.FP8.Value / d.BF16.Value; math.Abs(r-2) > 0.03 {
				t.Errorf("%s: got %.3f times BF16's rate in FP8, want 2", d, r)
			}
		}
		if d.FP6.Known() && d.FP6.Value != d.FP8.Value && d.FP6.Value != d.FP4.Value {
			t.Errorf("%s: FP6 runs at %g, neither FP8's rate nor FP4's", d, d.FP6.Value)
		}
	}
	for name, want := range map[string]float64{"mi355x": 5033e12, "mi350x": 4614e12, "mi300x": 2615e12} {
		d, err := Lookup(name)
		if err != nil {
			t.Fatal(err)
		}
		if math.Abs(d.FP8.Value/want-1) > 0.001 {
			t.Errorf("%s: got %g in FP8, want %g", name, d.FP8.Value, want)
		}
	}
}

func TestLookup(t *testing.T) {
	for name, want := range map[string]string{"h100": "h100", "H100-SXM": "h100", "HGX-B200": "b200", "mi355x": "mi355x"} {
		if d, err := Lookup(name); err != nil || d.Name != want {
			t.Errorf("%s: got %v, %v, want %s", name, d, err, want)
		}
	}
	if _, err := Lookup("a100"); err == nil || !strings.Contains(err.Error(), `unknown device "a100": use one of l40s, h100`) {
		t.Errorf("got %v", err)
	}
}
