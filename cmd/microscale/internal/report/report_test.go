package report

import (
	"math"
	"reflect"
	"strings"
	"testing"
)

// two returns a comparison of a baseline and another recipe, for results computed by hand.
func two() *Comparison {
	return &Comparison{
		Title: "T", Baseline: "bf16", Token: "byte",
		Recipes: []Recipe{
			{Name: "bf16", Steps: 2, TrainLoss: 2, ValidationLoss: 2, SecondsPerStep: 0.1, Memory: Memory{Masters: 4_000_000, Gradients: 4_000_000,
				Moments: 8_000_000, Rowwise: 1_000_000, Columnwise: 1_000_000, Activations: 12_345_678, Scratch: 500_000},
				Train: []Point{{1, 4}, {2, 2}}, Validation: []Point{{2, 2}}},
			{Name: "mxfp8", Steps: 2, TrainLoss: 2.1, ValidationLoss: 2.05, SecondsPerStep: 0.1234, Memory: Memory{Rowwise: 1_031_250}, Busy: true,
				Train: []Point{{1, 5}, {2, 2.1}}, Validation: []Point{{2, 2.05}},
				Operands: []Operand{
					{Step: 1, Module: "b", Name: "input", Direction: "rowwise", SQNR: 31, Amax: 3, Elements: 100, Saturated: 1},
					{Step: 1, Module: "b", Name: "input", Direction: "columnwise", SQNR: 30, Amax: 4, Elements: 300, Flushed: 8},
				}},
		},
		Formats: []Format{{Name: "mxfp8", Bits: 8.25, Loss: 2.001}, {Name: "mxfp4", Bits: 4.25, Loss: 2.1},
			{Name: "nvfp4", Bits: 4.5, Loss: 2.05}},
	}
}

func TestTable(t *testing.T) {
	c := two()
	c.Recipes = append(c.Recipes, Recipe{Name: "mxfp4", Failed: "the loss was NaN at step 1", TrainLoss: math.NaN(),
		ValidationLoss: math.NaN(), SecondsPerStep: math.NaN()})
	want := [][]string{
		{"bf16", "2.0000", "2.0000", "", "", "0.100", "2.00", "12.3", "30.8", "–", "–"},
		{"mxfp8", "2.1000", "2.0500", "+2.50%", "±0.66%", "0.123", "1.03", "–", "1.03", "0.25%", "2%"},
		{"mxfp4", "–", "–", "–", "", "–", "–", "–", "–", "–", "–"},
	}
	if got := c.Table().Rows; !reflect.DeepEqual(got, want) {
		t.Errorf("table: got\n%q, want\n%q", got, want)
	}
	want = [][]string{
		{"bf16", "4.00", "4.00", "8.00", "1.00", "1.00", "12.3", "0.500", "30.8"},
		{"mxfp8", "–", "–", "–", "1.03", "–", "–", "–", "1.03"},
	}
	if got := c.MemoryTable().Rows; !reflect.DeepEqual(got, want) {
		t.Errorf("the table of memory is\n%q, want\n%q", got, want)
	}
	want = [][]string{
		{"as trained", "", "2.0000", "7.3891", "", ""},
		{"mxfp8", "8.25", "2.0010", "7.3964", "+0.10%", "–"},
		{"mxfp4", "4.25", "2.1000", "8.1662", "+10.5%", "–"},
		{"nvfp4", "4.5", "2.0500", "7.7679", "+5.13%", "–"},
	}
	if got := c.FormatTable().Rows; !reflect.DeepEqual(got, want) {
		t.Errorf("table of formats: got\n%q, want\n%q", got, want)
	}
}

func TestVerdict(t *testing.T) {
	c := two()
	c.Recipes = append(c.Recipes, Recipe{Name: "nvfp4", ValidationLoss: 1.999999}, Recipe{Name: "mxfp4", Failed: "the loss was NaN at step 1",
		ValidationLoss: 1},
		Recipe{Name: "tensorwise", ValidationLoss: 1.99})
	want := []string{
		"After 2 steps, bf16 has a validation loss of 2.0000 nats per byte: a perplexity of 7.39.",
		"Relative to bf16, mxfp8 ends 2.50% above.",
		"The gaps of tensorwise and nvfp4 are within the noise of 1 seed (less than 0.66%): they show no difference from bf16. More seeds " +
			"(--seeds) show smaller ones.",
		"mxfp4 did not finish: the loss was NaN at step 1.",
		"Quantizing the model of bf16 after training changes its perplexity by +0.10% (mxfp8) to +10.5% (mxfp4).",
		"Other programs used the processors during most steps of mxfp8: their times are longer than on an idle machine.",
	}
	if got := c.Verdict(); !reflect.DeepEqual(got, want) {
		t.Errorf("verdict: got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	for i := range c.Formats {
		c.Formats[i].Loss = 2 + 0.0003*float64(i)
	}
	if got, want := c.Verdict()[4], "Quantized after training, the model of bf16 shows no loss in any format: the changes of perplexity "+
		"are below 0.1% or two standard errors."; got != want {
		t.Errorf("verdict without losses in formats: got %q, want %q", got, want)
	}
	c.Formats[1].Loss = 2.01 // 1 %, with an error of 0.4 %
	for i := range c.Formats {
		c.Formats[i].Windows = []float64{c.Formats[i].Loss - 0.004, c.Formats[i].Loss + 0.004}
	}
	c.Recipes[0].Windows = []float64{2, 2}
	if got, want := c.Verdict()[4], "Quantizing the model of bf16 after training changes its perplexity by"; !strings.HasPrefix(got, want) {
		t.Errorf("verdict with a loss beyond its error: got %q, want %q", got, want)
	}
	for i := range c.Formats {
		c.Formats[i].Windows = []float64{c.Formats[i].Loss - 0.006, c.Formats[i].Loss + 0.006}
	}
	if got, want := c.Verdict()[4], "Quantized after training, the model of bf16 shows no loss"; !strings.HasPrefix(got, want) {
		t.Errorf("verdict with a loss within its error: got %q, want %q", got, want)
	}
	c.Recipes[0].Failed, c.Recipes[0].ValidationLoss = "the loss was NaN at step 2", math.NaN()
	want = []string{"bf16 did not finish: the loss was NaN at step 2.", "mxfp4 did not finish: the loss was NaN at step 1.",
		"Other programs used the processors during most steps of mxfp8: their times are longer than on an idle machine."}
	if got := c.Verdict(); !reflect.DeepEqual(got, want) {
		t.Errorf("verdict without a baseline: got %q, want %q", got, want)
	}
}

// TestSeeds checks that losses are means over seeds, and gaps those of runs of the same seed.
func TestSeeds(t *testing.T) {
	c := two()
	c.Recipes[0].Runs = []Run{{1, 2, 2}, {2, 3, 4}, {3, 4, 5}}
	c.Recipes[1].Runs = []Run{{1, 2.1, 2.04}, {3, 4.3, 5}} // gaps of 2 % and 0 %
	if got, want := c.Gap(&c.Recipes[1]), 0.01; math.Abs(got-want) > 1e-12 {
		t.Errorf("gap: got %g, want %g", got, want)
	}
	if got, want := c.GapError(&c.Recipes[1]), 0.01; math.Abs(got-want) > 1e-12 {
		t.Errorf("standard error: got %g, want %g, half of the difference", got, want)
	}
	if got, want := c.Table().Rows[1][:4], []string{"mxfp8", "3.2000", "3.5200", "+1.00% ±1.00%"}; !reflect.DeepEqual(got, want) {
		t.Errorf("row: got %q, want %q", got, want)
	}
	v := c.Verdict()
	if got, want := v[1], "The gap of mxfp8 is within the noise of 3 seeds (less than 2.00%): it shows no difference from bf16. More "+
		"seeds (--seeds) show smaller ones."; got != want {
		t.Errorf("verdict: got %q, want %q", got, want)
	}
	if last := v[len(v)-1]; !strings.HasPrefix(last, "Losses and gaps are means over 3 seeds, ") {
		t.Errorf("end of the verdict: got %q", last)
	}
	if got := c.FormatTable().Rows[0][2]; got != "2.0000" {
		t.Errorf("loss of the quantized model as trained: got %s, want that of the first seed", got)
	}
	c.Recipes[1].Runs = c.Recipes[1].Runs[:1]
	if got := c.GapError(&c.Recipes[1]); !math.IsNaN(got) {
		t.Errorf("standard error of one pair: got %g, want NaN", got)
	}
}

func TestCurves(t *testing.T) {
	base := []Point{{1, 4}, {2, 2}, {3, 1}, {4, math.NaN()}}
	if got, want := gaps([]Point{{2, 3}, {3, 1}, {5, 1}}, base), []Point{{2, 0.5}, {3, 0}}; !reflect.DeepEqual(got, want) {
		t.Errorf("gaps: got %v, want %v", got, want)
	}
	for n, want := range map[int][]Point{1: base[:3], 2: {{2, 3}, {3, 1.5}}, 3: {{3, 7. / 3}}, 9: {{3, 7. / 3}}} {
		if got := smooth(base[:3], n); !reflect.DeepEqual(got, want) {
			t.Errorf("averages of %d: got %v, want %v", n, got, want)
		}
	}
	if got := smooth(nil, 5); got != nil {
		t.Errorf("averages of no points: got %v", got)
	}
}

// TestSQNRTable checks medians, extremes and shares, and that operands without error are
// omitted.
func TestSQNRTable(t *testing.T) {
	c := &Comparison{Recipes: []Recipe{{Name: "bf16", Operands: []Operand{{Module: "m", Name: "input", SQNR: math.Inf(1)}}},
		{Name: "nvfp4", Operands: []Operand{
			{Step: 9, Module: "10.q", Name: "input", Direction: "rowwise", SQNR: 20, Elements: 100, Saturated: 1},
			{Step: 9, Module: "2.q", Name: "input", Direction: "rowwise", SQNR: 21, Elements: 100},
			{Step: 7, Module: "2.q", Name: "input", Direction: "rowwise", SQNR: 19.04, Elements: 100, Flushed: 6},
			{Step: 1, Module: "2.q", Name: "input", Direction: "columnwise", SQNR: 25, Elements: 100},
			{Step: 1, Module: "0.q", Name: "input", Direction: "rowwise", SQNR: math.Inf(1)}, {Step: 1, Module: "0.q", Name: "weight",
				Direction: "rowwise", SQNR: 3, Elements: 8},
		}}}}
	table, recipes := c.SQNRTable()
	want := [][]string{
		{"nvfp4", "input", "20.0", "25.0", "19.0", "2.q, step 7", "25.0", "0.25%", "1.5%"},
		{"nvfp4", "weight", "3.0", "–", "3.0", "0.q, step 1", "3.0", "0", "0"},
	}
	if !reflect.DeepEqual(table.Rows, want) || !reflect.DeepEqual(recipes, []int{1, 1}) {
		t.Errorf("got %q of recipes %v, want %q", table.Rows, recipes, want)
	}
}

// TestNoise checks which standard error counts, and that a gap within it is no claim.
func TestNoise(t *testing.T) {
	c := two()
	r := &c.Recipes[1] // a gap of 2.5 %
	near := func(what string, got, want float64) {
		t.Helper()
		if math.Abs(got-want) > 1e-12 {
			t.Errorf("%s: got %g, want %g", what, got, want)
		}
	}
	near("one seed, no windows", c.Noise(r), 2*seedDeviation)
	if c.Within(r) {
		t.Error("a gap of 2.5 % is within the noise")
	}
	c.Recipes[0].Windows, r.Windows = []float64{1, 2, 3}, []float64{1.1, 2.1, 3.1}
	near("equal differences", c.WindowError(r), 0)
	near("equal differences, noise", c.Noise(r), 2*seedDeviation)
	r.Windows = []float64{1.2, 2, 2.9} // differences of 0.2, 0 and -0.1: standard deviation 0.1528
	deviation := math.Sqrt((math.Pow(0.2-0.1/3, 2) + math.Pow(0.1/3, 2) + math.Pow(0.1+0.1/3, 2)) / 2)
	near("windows", c.WindowError(r), deviation/math.Sqrt(3)/2) // relative to a loss of 2
	near("windows, noise", c.Noise(r), 2*deviation/math.Sqrt(3)/2)
	if !c.Within(r) {
		t.Error("a gap of 2.5 % is beyond the noise of windows that differ more")
	}
	r.Windows = r.Windows[:2]
	if got := c.WindowError(r); !math.IsNaN(got) {
		t.Errorf("windows that are not paired: got %g, want NaN", got)
	}
	c.Recipes[0].Runs, r.Runs = []Run{{1, 2, 2}, {2, 2, 2}, {3, 2, 2}, {4, 2, 2}}, []Run{{1, 2, 2.02}, {2, 2, 2.02}, {3, 2, 2.02},
		{4, 2, 2.02}}
	near("four equal seeds", c.Noise(r), seedDeviation)
	near("four equal seeds, curves of the first", c.curveNoise(), 2*seedDeviation)
	if c.Within(r) {
		t.Error("a gap of 1 % of four seeds is within the noise")
	}
	c.Formats[0].Windows, c.Recipes[0].Windows = []float64{1.01, 2.03}, []float64{1, 2}
	near("format", c.costError(&c.Formats[0]), 0.01)
}

// TestZoom checks from which step validation losses are drawn.
func TestZoom(t *testing.T) {
	for n, want := range map[int]int{0: 0, 3: 0, 4: 20, 6: 40, 10: 60} {
		c := two()
		c.Recipes[0].Validation, c.Recipes[1].Validation = nil, nil
		for i := range n {
			c.Recipes[1].Validation = append(c.Recipes[1].Validation, Point{10 * (i + 1), 3})
		}
		if got := c.zoom(); got != want {
			t.Errorf("%d validations: got step %d, want %d", n, got, want)
		}
		if got := after(c.Recipes[1].Validation, want); len(got) < min(n, 3) {
			t.Errorf("%d validations: got %d points", n, len(got))
		}
	}
}

// TestMemoryPanel checks that the stacks end at the totals of the table, in its order.
func TestMemoryPanel(t *testing.T) {
	c := two()
	p, keys, err := c.memoryPanel()
	if err != nil {
		t.Fatal(err)
	}
	if len(keys) != len(memoryColumns)-1 || keys[0].Name != "masters" || keys[5].Name != "activations" {
		t.Errorf("got keys %+v", keys)
	}
	if got, want := p.plot.X.Max, 1.08*30.845678; math.Abs(got-want) > 1e-9 {
		t.Errorf("got an axis up to %g, want %g", got, want)
	}
	svg, err := p.svg()
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{">30.8<", ">1.03<", ">mxfp8<"} {
		if !strings.Contains(string(svg), want) {
			t.Errorf("got no %s in the chart", want)
		}
	}
}

func TestOutline(t *testing.T) {
	got := outline(map[int]int64{-127: 3, -3: 1000, -1: 3000, 5: 2, 6: 1})
	want := [][2]float64{{-3.5, 0}, {-3.5, 1000. / 4006}, {-2.5, 1000. / 4006}, {-2.5, 0}, {-1.5, 0}, {-1.5, 3000. / 4006},
		{-0.5, 3000. / 4006}, {-0.5, 0}}
	if len(got) != len(want) {
		t.Fatalf("outline: got %v, want %v, without the tails", got, want)
	}
	for i, w := range want {
		if got[i].X != w[0] || got[i].Y != w[1] {
			t.Errorf("point %d of the outline: got %v, want %v", i, got[i], w)
		}
	}
}

func TestRoundTicks(t *testing.T) {
	for _, tc := range []struct {
		least, most float64
		want        string
	}{
		{0, 300, "0 50 100 150 200 250 300"}, {1.87, 5.2, "2 3 4 5"}, {-0.013, 0.021, "−0.01 0.00 0.01 0.02"}, {0, 12, "0 2 4 6 8 10 12"},
		{0, 1, "0.0 0.2 0.4 0.6 0.8 1.0"}, {-1e-9, 0.5, "0.0 0.1 0.2 0.3 0.4 0.5"}, {3, 3, "3.00"},
		{5.5448, 5.5454, "5.5448 5.5449 5.5450 5.5451 5.5452 5.5453 5.5454"},
	} {
		var labels []string
		for _, tick := range roundTicks(tc.least, tc.most) {
			labels = append(labels, tick.Label)
		}
		if got := strings.Join(labels, " "); got != tc.want {
			t.Errorf("ticks from %g to %g: got %q, want %q", tc.least, tc.most, got, tc.want)
		}
	}
}
