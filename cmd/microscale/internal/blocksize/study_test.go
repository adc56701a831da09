package blocksize

import (
	"math"
	"strings"
	"testing"

	"github.com/microscale-go/microscale/internal/slow"
	"github.com/microscale-go/microscale/quant"
)

// references are SQNRs in dB that a separate program (NumPy, float64) measured: means over four
// seeds of 2^20 values.
var references = []struct {
	format quant.Format
	block  int
	rule   quant.ScaleRule
	sqnr   [8]float64 // in the order of the table of distributions
}{
	{quant.MXFP8, 8, quant.Floor, [8]float64{29.32, 29.01, 29.07, 28.68, 28.54, 26.21, 28.16, 28.28}},
	{quant.MXFP8, 32, quant.Floor, [8]float64{30.65, 30.01, 30.02, 29.41, 29.27, 26.22, 28.44, 28.49}},
	{quant.MXFP8, 128, quant.Floor, [8]float64{31.41, 30.95, 30.71, 30.07, 30.01, 26.22, 28.81, 28.58}},
	{quant.MXFP8, 8, quant.RatioCeil, [8]float64{31.52, 31.53, 31.53, 31.50, 31.54, 32.54, 31.54, 31.57}},
	{quant.MXFP8, 128, quant.RatioCeil, [8]float64{31.52, 31.53, 31.53, 31.50, 31.54, 32.54, 31.54, 31.57}},
	{quant.MXFP8, 32, quant.Even, [8]float64{31.18, 30.83, 30.83, 30.51, 30.42, 30.80, 29.89, 29.98}},
	{quant.MXFP8E5M2, 16, quant.Floor, [8]float64{25.18, 25.08, 25.11, 24.96, 24.92, 24.32, 24.73, 24.70}},
	{quant.MXFP6E2M3, 8, quant.Floor, [8]float64{31.04, 30.79, 30.85, 30.49, 30.39, 31.26, 29.92, 29.96}},
	{quant.MXFP6E2M3, 128, quant.RatioCeil, [8]float64{30.83, 29.33, 28.98, 26.57, 26.31, 32.15, 23.29, 22.76}},
	{quant.MXFP6E2M3, 32, quant.Ceil, [8]float64{28.76, 27.25, 27.31, 25.58, 25.03, 32.15, 23.17, 24.30}},
	{quant.MXFP6E3M2, 64, quant.Floor, [8]float64{25.48, 25.33, 25.30, 25.16, 25.14, 24.32, 24.82, 24.73}},
	{quant.MXFP4, 8, quant.Floor, [8]float64{18.38, 18.04, 18.12, 17.72, 17.49, 16.83, 17.10, 17.58}},
	{quant.MXFP4, 32, quant.Floor, [8]float64{18.80, 17.95, 18.00, 17.00, 16.57, 16.83, 15.45, 16.71}},
	{quant.MXFP4, 32, quant.RatioCeil, [8]float64{18.76, 17.59, 17.54, 16.46, 15.93, 20.10, 15.27, 17.57}},
	{quant.MXFP4, 128, quant.RatioCeil, [8]float64{18.08, 16.28, 15.84, 13.65, 13.21, 20.10, 11.37, 14.26}},
	{quant.MXINT8, 16, quant.Floor, [8]float64{42.78, 41.44, 41.56, 40.14, 39.79, 48.06, 38.35, 38.23}},
	{quant.MXINT8, 64, quant.RatioCeil, [8]float64{40.98, 38.59, 38.47, 35.91, 35.64, 44.78, 32.84, 32.37}},
	{quant.NVFP4, 8, 0, [8]float64{21.37, 21.94, 21.89, 22.46, 22.47, 20.59, 23.17, 24.82}},
	{quant.NVFP4, 16, 0, [8]float64{20.44, 20.65, 20.70, 20.86, 20.66, 19.86, 20.84, 22.99}},
	{quant.NVFP4, 128, 0, [8]float64{19.26, 18.32, 18.16, 16.44, 15.94, 19.16, 13.65, 16.11}},
	{quant.FP8Tensor, 0, 0, [8]float64{31.55, 31.53, 31.53, 31.56, 31.54, 31.87, 31.57, 31.61}},
	{quant.FP8Vec128, 128, 0, [8]float64{31.80, 32.10, 32.19, 33.01, 33.05, 31.97, 36.19, 38.39}},
}

// TestReferences measures cases on the references' data, which agree to a hundredth of a
// decibel: all with -full, else three of two distributions.
func TestReferences(t *testing.T) {
	slow.Long(t, "it measures every format over many values")
	for i, tc := range references {
		switch {
		case *slow.FullRun:
		case i != 1 && tc.block != 16 && (tc.format.Name != quant.MXFP4.Name || tc.block != 128):
			continue
		}
		c := Config{Formats: []quant.Format{tc.format}, Blocks: []int{tc.block}, Rules: []quant.ScaleRule{tc.rule},
			Distributions: distributions[:8], Rows: 256, Seeds: 4}
		if !*slow.FullRun {
			c.Distributions = []Distribution{distributions[0], distributions[5]}
		}
		results, err := c.Run()
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range results {
			k := 0
			for distributions[k].Name != r.Distribution {
				k++
			}
			if math.Abs(r.SQNR-tc.sqnr[k]) > 0.0101 {
				t.Errorf("%s B=%d %s on %s: got %.3f dB, want %.2f", r.Format, r.Block, r.Rule, r.Distribution, r.SQNR, tc.sqnr[k])
			}
		}
	}
}

// find returns the result of a format under a rule.
func find(t *testing.T, results []Result, name, rule string) Result {
	t.Helper()
	for _, r := range results {
		if r.Format == name && (rule == "" || r.Rule == rule) {
			return r
		}
	}
	t.Fatalf("no result of %s %s", name, rule)
	return Result{}
}

func close(t *testing.T, what string, got, want, tolerance float64) {
	t.Helper()
	if !(math.Abs(got-want) <= tolerance) {
		t.Errorf("%s: got %.5g, want %.5g ± %g", what, got, want, tolerance)
	}
}

// TestCounts checks shares of saturated and flushed elements of normal values, as measured by
// a separate program.
func TestCounts(t *testing.T) {
	c := Config{Formats: []quant.Format{quant.MXFP8, quant.MXFP4}, Blocks: []int{32}, Rules: []quant.ScaleRule{quant.Floor, quant.RatioCeil},
		Distributions: distributions[:1], Rows: 64, Seeds: 1}
	results, err := c.Run()
	if err != nil {
		t.Fatal(err)
	}
	close(t, "E4M3 saturated by floor", find(t, results, "mxfp8", "floor").Saturated, 0.0085, 0.0003)
	close(t, "E4M3 saturated by rceil", find(t, results, "mxfp8", "rceil").Saturated, 0, 0)
	close(t, "E2M1 saturated by floor", find(t, results, "mxfp4", "floor").Saturated, 0.0230, 0.0005)
	close(t, "E2M1 flushed by floor", find(t, results, "mxfp4", "floor").Flushed, 0.088, 0.001)
	close(t, "E2M1 flushed by rceil", find(t, results, "mxfp4", "rceil").Flushed, 0.107, 0.001)
	c.Formats, c.Blocks = []quant.Format{quant.NVFP4}, []int{16}
	if results, err = c.Run(); err != nil {
		t.Fatal(err)
	}
	close(t, "NVFP4 flushed", results[0].Flushed, 0.068, 0.001)
}

// TestSeeds: the result of several seeds is the mean of theirs, and the maximum of their errors.
func TestSeeds(t *testing.T) {
	c := Config{Formats: []quant.Format{quant.MXFP4}, Blocks: []int{32}, Rules: []quant.ScaleRule{quant.Floor},
		Distributions: distributions[:1], Rows: 2, Seeds: 2}
	results, err := c.Run()
	if err != nil {
		t.Fatal(err)
	}
	got := results[0]
	var each [2]Result
	for i := range each {
		if each[i], err = got.Case.measure(distributions[0].Sample(c.Rows, uint64(i)+1)); err != nil {
			t.Fatal(err)
		}
	}
	a, b := each[0], each[1]
	if a.Bias == b.Bias || a.MaxError == b.MaxError {
		t.Fatalf("both seeds have the same result: %+v", a)
	}
	close(t, "SQNR", got.SQNR, (a.SQNR+b.SQNR)/2, 1e-9)
	close(t, "mean SQNR of blocks", got.BlockSQNR, (a.BlockSQNR+b.BlockSQNR)/2, 1e-9)
	close(t, "bias", got.Bias, (a.Bias+b.Bias)/2, 1e-12)
	close(t, "saturated", got.Saturated, (a.Saturated+b.Saturated)/2, 1e-12)
	close(t, "flushed", got.Flushed, (a.Flushed+b.Flushed)/2, 1e-12)
	close(t, "largest error", got.MaxError, max(a.MaxError, b.MaxError), 0)
}

// TestRanges checks where block scaling pays: blocks of 32 with separate magnitudes. The
// mean SQNR over blocks falls where one scale, or an E4M3 scale, underflows; that of the tensor
// stays.
func TestRanges(t *testing.T) {
	formats := []quant.Format{quant.FP8Tensor, quant.FP8Vec128, quant.MXFP8, quant.MXFP4}
	c := Config{Formats: formats, Blocks: []int{32}, Rules: []quant.ScaleRule{quant.RatioCeil}, Distributions: distributions[8:], Rows: 64,
		Seeds: 1}
	results, err := c.Run()
	if err != nil {
		t.Fatal(err)
	}
	c.Formats, c.Blocks = []quant.Format{quant.NVFP4}, []int{16}
	nvfp4, err := c.Run()
	if err != nil {
		t.Fatal(err)
	}
	for i, tc := range []struct {
		name       string
		at12, at20 float64
		tolerance  float64
	}{{"fp8-tensor", 20.01, 12.06, 0.8}, {"fp8-vec128", 27.28, 20.37, 0.3}, {"mxfp8", 31.75, 31.74, 0.05}, {"mxfp4", 18.81, 18.80, 0.05}} {
		close(t, tc.name+" at 12", results[i].BlockSQNR, tc.at12, tc.tolerance)
		close(t, tc.name+" at 20", results[len(formats)+i].BlockSQNR, tc.at20, tc.tolerance)
	}
	close(t, "nvfp4 at 12", nvfp4[0].BlockSQNR, 15.14, 0.8)
	close(t, "per-tensor zeros at 12", results[0].Flushed, 0.33, 0.03)
	close(t, "nvfp4 zeros at 12", nvfp4[0].Flushed, 0.30, 0.03)
	close(t, "per-tensor SQNR at 20", results[len(formats)].SQNR, 31.5, 0.5)
}

// TestDirectCast reproduces [ZH]'s 352: 800 − 448. With a scale, the error is half of the
// largest step of 32 under the scale of 800/448.
func TestDirectCast(t *testing.T) {
	results, err := DirectCast(64)
	if err != nil {
		t.Fatal(err)
	}
	direct, scaled := find(t, results, "e4m3 cast", ""), find(t, results, "fp8-tensor", "")
	if direct.MaxError != 352 {
		t.Errorf("direct cast: got a largest error of %v, want 352", direct.MaxError)
	}
	if bound := 16.0 * 800 / 448; scaled.MaxError > bound || scaled.MaxError < bound/2 {
		t.Errorf("scaled cast: got a largest error of %v, want up to %v", scaled.MaxError, bound)
	}
	if direct.Saturated == 0 || scaled.Saturated != 0 || direct.SQNR > scaled.SQNR-1 {
		t.Errorf("got %.2g and %.2g saturated, %.2f and %.2f dB", direct.Saturated, scaled.Saturated, direct.SQNR, scaled.SQNR)
	}
}

// TestOneOutlier checks that an outlier of 5000 costs the elements of its tensor, row or block,
// and no others.
func TestOneOutlier(t *testing.T) {
	const rows = 16
	results, err := OneOutlier(rows)
	if err != nil {
		t.Fatal(err)
	}
	tensor, row, block := find(t, results, "fp8-tensor", ""), find(t, results, "fp8-row", ""), find(t, results, "mxfp8", "")
	// Under 5000/448, normal values times 0.1 lie among the subnormals of E4M3: 2^-9 × 11.2
	// rounds away what is below 0.0109.
	close(t, "flushed in the tensor", tensor.Flushed, math.Erf(0.109/math.Sqrt2), 0.01)
	close(t, "flushed in the row", row.Flushed, tensor.Flushed/rows, 0.01)
	if block.Flushed > 32.0/(rows*rowElements) || block.BlockSQNR < 31 || tensor.BlockSQNR > 25 {
		t.Errorf("got %.2g flushed and %.2f dB with blocks, %.2f dB without", block.Flushed, block.BlockSQNR, tensor.BlockSQNR)
	}
}

func TestErrors(t *testing.T) {
	for want, c := range map[string]Config{
		"rows: got 0, want 1 to 65536": {Formats: []quant.Format{quant.MXFP8}, Blocks: []int{32}, Rules: []quant.ScaleRule{0}},
		"do not fill whole bytes": {Formats: []quant.Format{quant.MXFP4}, Blocks: []int{7}, Rules: []quant.ScaleRule{0}, Rows: 1,
			Seeds: 1},
		"blocks: 16 is given twice: omit one": {Formats: []quant.Format{quant.MXFP8}, Blocks: []int{16, 8, 16}, Rules: []quant.ScaleRule{0},
			Rows: 1, Seeds: 1},
		"seeds: got 0, want 1": {Formats: []quant.Format{quant.MXFP8}, Blocks: []int{16}, Rules: []quant.ScaleRule{0}, Rows: 1},
		"blocks: got 0, want 1": {Formats: []quant.Format{quant.MXFP8}, Blocks: []int{0}, Rules: []quant.ScaleRule{0}, Rows: 1,
			Seeds: 1},
	} {
		if _, err := c.Run(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %s", err, want)
		}
	}
	if _, err := Lookup("zzz"); err == nil || !strings.HasPrefix(err.Error(), `unknown distribution "zzz": use one of gauss, `) {
		t.Errorf("got %v", err)
	}
}

// TestChart checks that the chart has one line for each format and rule.
func TestChart(t *testing.T) {
	study := Study{Results: []Result{
		{Case: Case{Format: "a", Rule: "floor", Block: 16}, Distribution: "gauss", SQNR: 1},
		{Case: Case{Format: "a", Rule: "floor", Block: 32}, Distribution: "gauss", SQNR: 2},
		{Case: Case{Format: "b", Rule: "-", Block: 16}, Distribution: "gauss", SQNR: 3},
	}}
	svg, err := study.Chart()
	if err != nil {
		t.Fatal(err)
	}
	if a, b := strings.Count(string(svg), "a floor"), strings.Count(string(svg), ">b<"); a != 1 || b != 1 {
		t.Errorf("got %d and %d lines, want one each in\n%s", a, b, svg)
	}
}
