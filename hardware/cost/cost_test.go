package cost

import (
	"math"
	"strings"
	"testing"

	"github.com/microscale-go/microscale/hardware/device"
	"github.com/microscale-go/microscale/quant"
	"github.com/microscale-go/microscale/recipe"
)

func estimate(t *testing.T, params float64, recipeName, deviceName string, tokens, width int) *Estimate {
	t.Helper()
	r, err := recipe.Lookup(recipeName)
	if err != nil {
		t.Fatal(err)
	}
	d, err := device.Lookup(deviceName)
	if err != nil {
		t.Fatal(err)
	}
	e, err := New(Config{params, r, d, tokens, width, nil})
	if err != nil {
		t.Fatal(err)
	}
	return e
}

// value returns a figure by the start of its section's title and its name.
func (e *Estimate) value(t *testing.T, section, name string) float64 {
	t.Helper()
	for _, s := range e.Sections {
		for _, f := range s.Figures {
			if strings.HasPrefix(s.Title, section) && f.Name == name {
				if f.Formula == "" {
					t.Errorf("%s: %s has no formula", section, name)
				}
				return f.Value
			}
		}
	}
	t.Fatalf("%s has no figure %q", section, name)
	return 0
}

func near(t *testing.T, what string, got, want, tolerance float64) {
	t.Helper()
	if !(math.Abs(got/want-1) <= tolerance) {
		t.Errorf("%s: got %.6g, want %.6g", what, got, want)
	}
}

// TestWeights checks bytes worked out by hand. A model of 2^30 parameters has 64 matrices of
// 4096×4096. The billion parameters of [ML] take 1.03125 GB in one copy of MXFP8 and 2.0625
// in both, more than BF16's 2.
func TestWeights(t *testing.T) {
	const n = 1 << 30
	for _, tc := range []struct {
		recipe, device, name string
		want                 float64
	}{
		{"mxfp8", "b200", "rowwise codes", n},
		{"mxfp8", "b200", "rowwise scales", n / 32},
		{"mxfp8", "b200", "rowwise padding", 0},
		{"mxfp8", "b200", "columnwise codes", n},
		{"mxfp8", "b200", "copies", 2.0625 * n},
		{"mxfp8", "b200", "copies / BF16", 1.03125},
		{"tensorwise", "h100", "copies", 2*n + 2*4*64}, // transposed codes, and a scale with each copy
		{"tensorwise", "b200", "copies", n + 4*64},     // one copy for both directions
		{"tensorwise", "b200", "columnwise copy", 0},
		{"bf16", "b200", "copies", 0},
		// 16×16 blocks of weights: scales are repeated for the 16 rows of a block.
		{"nvfp4", "b200", "rowwise scales", n/256 + 4*64},
		{"nvfp4", "b200", "rowwise padding", n/16 - n/256},
		{"nvfp4", "b200", "copies", 2 * (n/2 + n/16 + 4*64)},
		{"mxfp8", "b200", "master weights", 4 * n},
		{"mxfp8", "b200", "moments of AdamW", 8 * n},
	} {
		e := estimate(t, n, tc.recipe, tc.device, 8192, 4096)
		if got := e.value(t, "Weights", tc.name); math.Abs(got-tc.want) > 1e-6*math.Abs(tc.want) {
			t.Errorf("%s on %s: %s is %.9g, want %.9g", tc.recipe, tc.device, tc.name, got, tc.want)
		}
	}
	e := estimate(t, 1e9, "mxfp8", "b200", 8192, 4096)
	near(t, "a billion parameters", e.value(t, "Weights", "copies"), 2.0625e9, 1e-9)
	// 1000 rows of 32 blocks are padded to 1024, and 32 rows of 1000 columns to 128 and 32.
	e = estimate(t, 1000*1000, "mxfp8", "b200", 1000, 1000)
	near(t, "padding", e.value(t, "Weights", "rowwise padding"), 1024*32-1000*32, 1e-9)
}

// TestActivations checks what linear layers keep: the columnwise copy, 51.6 % of BF16.
func TestActivations(t *testing.T) {
	const n = 1 << 30
	e := estimate(t, n, "mxfp8", "b200", 8192, 4096)
	near(t, "BF16", e.value(t, "Activations", "BF16"), 64*8192*4096*2, 1e-9)
	near(t, "MXFP8", e.value(t, "Activations", "recipe / BF16"), 1.03125/2, 1e-9)
	// The columnwise copy of 1000×1024 inputs has 1024 rows of 32 blocks, the last one partial.
	e = estimate(t, 1024*1024, "mxfp8", "b200", 1000, 1024)
	near(t, "partial blocks", e.value(t, "Activations", "recipe"), 1024*1024+1024*32, 1e-12)
	near(t, "BF16's share", estimate(t, n, "bf16", "b200", 8192, 4096).value(t, "Activations", "recipe / BF16"), 1, 1e-9)
	near(t, "tensorwise on B200", estimate(t, n, "tensorwise", "b200", 8192, 4096).value(t, "Activations", "recipe / BF16"), 0.5, 1e-6)
}

// TestStep checks operations, traffic and times of a step, worked out by hand.
func TestStep(t *testing.T) {
	const n, tokens = 1 << 30, 8192
	const section = "A training step"
	e := estimate(t, n, "mxfp8", "b200", tokens, 4096)
	operations := 6.0 * tokens * n
	near(t, "operations", e.value(t, section, "operations of products"), operations, 1e-9)
	near(t, "time of products", e.value(t, section, "time of products"), operations/4500e12, 1e-9)
	near(t, "time in BF16", e.value(t, section, "time of products in BF16"), operations/2250e12, 1e-9)
	elements := 64.0 * (2*tokens*4096 + 4096*4096)
	near(t, "quantizers read", e.value(t, section, "quantizers read"), 2*elements, 1e-9)
	near(t, "quantizers write", e.value(t, section, "quantizers write"), 2.0625*elements, 1e-9)
	near(t, "time of quantizers", e.value(t, section, "time of quantizers"), (2+2.0625)*elements/7.7e12, 1e-9)
	near(t, "operations of quantizers", e.value(t, section, "operations of quantizers"), 6*elements, 1e-9)
	traffic := 64 * (1.03125*(2*tokens*4096+4096*4096)*2 + 2*2*tokens*4096 + 4*4096*4096)
	near(t, "traffic of products", e.value(t, section, "products read and write"), traffic, 1e-9)
	if amax := e.value(t, section, "of which for amax"); amax != 0 {
		t.Errorf("got %g B read for amax, want 0: blocks need no separate read", amax)
	}
	// Current scaling reads each source twice; delayed scaling once.
	near(t, "amax of current scaling", estimate(t, n, "tensorwise", "h100", tokens, 4096).value(t, section, "of which for amax"), 2*elements,
		1e-9)
	if amax := estimate(t, n, "delayed", "h100", tokens, 4096).value(t, section, "of which for amax"); amax != 0 {
		t.Errorf("got %g B read for amax under delayed scaling, want 0", amax)
	}
	// A memory-bound product: one token reads all weights.
	one := estimate(t, n, "bf16", "b200", 1, 4096)
	near(t, "one token", one.value(t, section, "time of products"), 64*3*(2*4096*4096.0)/7.7e12, 0.4)
	for _, tc := range []struct{ recipe, device, why string }{{"mxfp8", "h100", "no unit for mxfp8"},
		{"mxfp8", "rtx-pro-6000", "unknown rate"}} {
		e := estimate(t, n, tc.recipe, tc.device, tokens, 4096)
		if v := e.value(t, section, "time of products"); !math.IsNaN(v) {
			t.Errorf("%s on %s: got %g s, want none", tc.recipe, tc.device, v)
		}
		why := ""
		for _, f := range e.Sections[2].Figures {
			if f.Name == "time of products" {
				why = f.Formula
			}
		}
		if !strings.Contains(why, tc.why) {
			t.Errorf("%s on %s: got %q, want %q", tc.recipe, tc.device, why, tc.why)
		}
		for _, f := range e.Sections[3].Figures {
			if !math.IsNaN(f.Value) || tc.device == "h100" && !strings.Contains(f.Formula, tc.why) {
				t.Errorf("%s on %s: got size %g for %s (%s), want none: %s", tc.recipe, tc.device, f.Value, f.Name, f.Formula, tc.why)
			}
		}
	}
}

// TestThresholds reproduces the sizes of [ZH] at the rates of HGX B200: about 1800 if the
// operands are quantized before each product (MXFP8, and NVFP4 with a read for the amax of the
// tensor), rounded up to 2048; and 1024 if the global scale of NVFP4 is calibrated.
func TestThresholds(t *testing.T) {
	d, err := device.Lookup("b200")
	if err != nil {
		t.Fatal(err)
	}
	size := func(f quant.Format, reads int, name string) float64 {
		for _, x := range Thresholds(d, f, reads) {
			if x.Name == name {
				return x.Size
			}
		}
		t.Fatalf("no threshold %q", name)
		return 0
	}
	near(t, "NVFP4, forward", size(quant.NVFP4, 2, "forward"), 1800, 0.02)
	near(t, "MXFP8, forward", size(quant.MXFP8, 1, "forward"), 1800, 0.02)
	if next := math.Exp2(math.Ceil(math.Log2(size(quant.MXFP8, 1, "forward")))); next != 2048 {
		t.Errorf("MXFP8: got %g as the next power of two, want 2048", next)
	}
	near(t, "NVFP4, calibrated", size(quant.NVFP4, 1, "forward"), 1024, 0.03)
	// At a threshold, both take the same time.
	for _, f := range []quant.Format{quant.MXFP8, quant.MXFP4} {
		s := size(f, 1, "forward")
		near(t, f.Name+" at its threshold", speedup(d, f, []float64{s})[0], 1, 0.25) // the roofline adds traffic below the peak
		if v := speedup(d, f, []float64{s / 4, 16 * s}); v[0] >= 1 || v[1] <= 1.5 {
			t.Errorf("%s: got speedups %v below and above the threshold", f, v)
		}
	}
	near(t, "MXFP8 at 16384", speedup(d, quant.MXFP8, []float64{16384})[0], 1.8, 0.05)
}

// TestRanges checks [MF]'s effective ranges as corrected in docs/errata.md.
func TestRanges(t *testing.T) {
	low, high := effectiveRange(quant.MXFP8)
	if low != -136 || high != 135+math.Log2(1.75) {
		t.Errorf("MXFP8: got 2^%g to 2^%g, want 2^-136 to 1.75·2^135", low, high)
	}
}

// TestErrorModel checks [MF]'s model against its formula, and the means of the largest
// of B Gaussian values against a midpoint sum of 200,000 steps in another program.
func TestErrorModel(t *testing.T) {
	for n, want := range map[int]float64{8: 1.7834, 16: 2.0772, 32: 2.3471, 64: 2.5961, 128: 2.8276, 256: 3.0442} {
		if got := ExpectedMaximum(n); math.Abs(got-want) > 0.0001 {
			t.Errorf("largest of %d: got %.5f, want %.4f", n, got, want)
		}
	}
	for n, want := range map[int][2]float64{8: {-0.225, -0.240}, 128: {0.183, 0.205}, 32: {0, 0}} {
		a, m := scaleError(n)
		if math.Abs(a-want[0]) > 0.001 || math.Abs(m-want[1]) > 0.0015 {
			t.Errorf("B = %d: got %+.4f and %+.4f, want %+.3f and %+.3f", n, a, m, want[0], want[1])
		}
	}
	bound, worst := elementError(quant.MXFP8)
	if bound != 1.0/16 || math.Abs(worst-1.0/17) > 1e-15 {
		t.Errorf("E4M3: got %g and %g, want 1/16 and 1/17", bound, worst)
	}
}

// TestTables checks cells of the documents' tables.
func TestTables(t *testing.T) {
	cells := map[string]bool{}
	for _, table := range Tables() {
		for _, row := range table.Rows {
			if len(row) != len(table.Columns) {
				t.Errorf("%s: got %d cells for %d columns", table.Title, len(row), len(table.Columns))
			}
			cells[row[0]+": "+strings.Join(row[1:], " ")] = true
		}
	}
	for _, want := range []string{
		"mxfp6-e2m3: 6.25 0.78125 2.56 4.167% 1.5625", "mxfp4: 4.25 0.53125 3.765 6.25% 1.0625",
		"bf16: 4096 9.83 2517", "mxfp8: 8192 19.7 5033", "mxfp6-e2m3: 16384 39.3 10066", "mxfp4: 16384 39.3 10066",
		"mxfp8: 2^-136 2^135.8 81.8", "128: +18.3% +20.5% 6.25% 19.4%",
	} {
		if !cells[want] {
			t.Errorf("no row %q", want)
		}
	}
}

func TestErrors(t *testing.T) {
	for _, c := range []Config{{Params: 0, Tokens: 1, Width: 1}, {Params: math.Inf(1), Tokens: 1, Width: 1}, {Params: 1, Tokens: 0, Width: 1},
		{Params: 1, Tokens: 1, Width: -2}} {
		if _, err := New(c); err == nil || !strings.Contains(err.Error(), "want 1 ") {
			t.Errorf("%+v: got %v", c, err)
		}
	}
}

// TestFaster: the formats of a chart are those that a device runs at a higher rate than BF16. FNUZ
// codes count as FP8.
func TestFaster(t *testing.T) {
	for name, want := range map[string]string{
		"h100": "fp8-tensor", "mi300x": "fp8-tensor", "rtx-pro-6000": "",
		"b200": "fp8-tensor, mxfp8, mxfp6-e2m3, mxfp4, nvfp4", "mi355x": "fp8-tensor, mxfp8, mxfp6-e2m3, mxfp4",
	} {
		d, err := device.Lookup(name)
		if err != nil {
			t.Fatal(err)
		}
		var names []string
		for _, f := range faster(d) {
			names = append(names, f.Name)
		}
		if got := strings.Join(names, ", "); got != want {
			t.Errorf("%s: got %s, want %s", name, got, want)
		}
	}
}

// TestRateText checks that products with different peaks are named apart, and equal ones once.
func TestRateText(t *testing.T) {
	for _, high := range []bool{false, true} {
		c := estimate(t, 1<<30, "mxfp8", "b200", 8192, 4096).Config
		c.Recipe.HighPrecision[recipe.Wgrad] = high
		text := rateText(c.Device, c.operands())
		if n := strings.Count(text, " at "); !strings.HasPrefix(text, "fprop at 4.5e+15 FLOP/s (") ||
			strings.Contains(text, "), wgrad at 2.25e+15 FLOP/s (") != high || n != 1 && !high {
			t.Errorf("wgrad in high precision %v: %s", high, text)
		}
	}
}
