package main

import (
	"encoding/json"
	"encoding/xml"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/microscale-go/microscale/internal/bench"
	"github.com/microscale-go/microscale/quant"
)

// madeSweep has products whose times are given by size, baselines first, and
// quantizing that takes 1 s.
func madeSweep(sizes []int, seconds [][]float64) sweep {
	s := sweep{formats: append(slices.Clone(baselines), quant.MXFP8, quant.NVFP4)[:len(seconds[0])], sizes: sizes}
	for i, n := range sizes {
		var points []bench.Point
		for j, f := range s.formats {
			points = append(points, bench.Point{
				Gemm:     bench.Result{Op: "gemm", Format: f.Name, M: n, N: n, K: n, Work: 1e9, Unit: bench.Floats, Time: bench.Sample{Median: seconds[i][j]}},
				Quantize: bench.Result{Op: "quantize", Format: f.Name, M: n, K: n, Time: bench.Sample{Median: 1}},
			})
		}
		s.points = append(s.points, points)
	}
	return s
}

func TestPaysFrom(t *testing.T) {
	for _, tc := range []struct {
		name string
		bf16 []float64 // seconds by size; mxfp8 takes 3 s, with quantizing 4 s
		want int
	}{
		{"always", []float64{5, 6, 7}, 256},
		{"from-the-middle", []float64{3, 6, 7}, 512},
		{"not-between", []float64{5, 3, 7}, 1024},
		{"never", []float64{1, 1, 1}, 0},
		{"not-at-the-end", []float64{5, 5, 3}, 0},
		{"equal-is-not-faster", []float64{4, 4, 4}, 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var seconds [][]float64
			for _, x := range tc.bf16 {
				seconds = append(seconds, []float64{x, 10 * x, 3})
			}
			s := madeSweep([]int{256, 512, 1024}, seconds)
			if got := s.paysFrom(2, 0); got != tc.want {
				t.Errorf("pays from %d, want %d", got, tc.want)
			}
			if a, q := s.speed(1, 2, 0, false), s.speed(1, 2, 0, true); a != tc.bf16[1]/3 || q != tc.bf16[1]/4 {
				t.Errorf("speed %v, with quantizing %v", a, q)
			}
			if got := s.speed(1, 2, 1, false); got != 10*tc.bf16[1]/3 {
				t.Errorf("speed relative to the second baseline %v", got)
			}
		})
	}
}

func TestSweepTable(t *testing.T) {
	var b strings.Builder
	s := madeSweep([]int{256, 512}, [][]float64{{2, 4, 1, 4}, {8, 16, 3, 3}})
	if err := s.print(&b, 2); err != nil {
		t.Fatal(err)
	}
	const want = `Products of square matrices of each size on 2 threads.

format              256     512  pays
─────────────────────────────────────
bf16    GFLOP/s   0.500   0.125
f32     GFLOP/s   0.250  0.0625
─────────────────────────────────────
mxfp8   / bf16     2.00    2.67
        / bf16 q   1.00    2.00   512
        / f32      4.00    5.33
        / f32 q    2.00    4.00   256
─────────────────────────────────────
nvfp4   / bf16     0.50    2.67
        / bf16 q   0.40    2.00   512
        / f32      1.00    5.33
        / f32 q    0.80    4.00   512

/ bf16  speed relative to that of the product in bf16
q       the time to quantize one of the two matrices is included
pays    the size from which on it is faster then
`
	if b.String() != want {
		t.Errorf("got\n%s", b.String())
	}
}

// TestSweepWidth: the table of all sizes fits 80 columns.
func TestSweepWidth(t *testing.T) {
	sizes, err := sweepSizes(8192, true)
	if err != nil {
		t.Fatal(err)
	}
	s := madeSweep(sizes, slices.Repeat([][]float64{{0.5, 1, 0.05, 0.06}}, len(sizes)))
	s.formats[3] = quant.FP8Block // the longest name
	var b strings.Builder
	if err := s.print(&b, 1); err != nil {
		t.Fatal(err)
	}
	for l := range strings.Lines(b.String()) {
		if n := len([]rune(strings.TrimRight(l, "\n"))); n > 80 {
			t.Errorf("a line of %d columns: %s", n, l)
		}
	}
}

// TestChart: the picture is XML with the names of the formats and the sizes, for
// one size too.
func TestChart(t *testing.T) {
	for _, s := range []sweep{
		madeSweep([]int{256, 512}, [][]float64{{2, 4, 1, 4}, {8, 16, 3, 3}}),
		madeSweep([]int{256}, [][]float64{{2, 4, 1, 4}}),
	} {
		picture, err := s.chart()
		if err != nil {
			t.Fatal(err)
		}
		var text strings.Builder
		d := xml.NewDecoder(strings.NewReader(string(picture)))
		for {
			token, err := d.Token()
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				t.Fatal(err)
			}
			if c, ok := token.(xml.CharData); ok {
				text.Write(c)
			}
		}
		for _, want := range []string{"mxfp8", "nvfp4", "256", "relative to bf16", "relative to f32", "with quantizing"} {
			if !strings.Contains(text.String(), want) {
				t.Errorf("the chart lacks %q", want)
			}
		}
	}
}

func TestSweepSizes(t *testing.T) {
	for _, tc := range []struct {
		largest int
		large   bool
		want    []int
	}{
		{256, false, []int{256}},
		{8192, false, []int{256, 512, 1024, 2048, 4096, 8192}},
		{8192, true, []int{256, 512, 1024, 2048, 4096, 8192, 16384}},
	} {
		if got, err := sweepSizes(tc.largest, tc.large); err != nil || !slices.Equal(got, tc.want) {
			t.Errorf("sizes up to %d, large %v: %v, %v", tc.largest, tc.large, got, err)
		}
	}
	for _, n := range []int{-1, 0, 255, 300, 8191, 8193, 16384} {
		if sizes, err := sweepSizes(n, false); err == nil {
			t.Errorf("sizes up to %d are %v", n, sizes)
		}
	}
}

// TestBenchAll runs the smallest sweep.
func TestBenchAll(t *testing.T) {
	file := filepath.Join(t.TempDir(), "chart.svg")
	line := []string{"bench", "all", "--largest", "256", "--formats", "mxfp4,nvfp4", "--budget", "1us", "--chart", file}
	status, stdout, stderr := execute("", line...)
	if status != exitDone || !strings.Contains(stdout, "mxfp4") || !strings.Contains(stdout, file) || !strings.Contains(stderr, "measured size 256") {
		t.Fatalf("exit status %d: %s%s", status, stdout, stderr)
	}
	if picture, err := os.ReadFile(file); err != nil || !strings.Contains(string(picture), "<svg") {
		t.Errorf("the chart is not there: %v", err)
	}
	for _, bad := range []string{filepath.Dir(file), filepath.Join(file, "x.svg"), filepath.Join(filepath.Dir(file), "none", "x.svg")} {
		status, stdout, stderr := execute("", append(slices.Clone(line[:len(line)-1]), bad)...)
		if status != exitFailed || stdout != "" || strings.Count(stderr, "\n") != 1 || !strings.Contains(stderr, "cannot draw the chart in "+bad+": ") || strings.Contains(stderr, ".chart-") {
			t.Errorf("a chart in %s: exit status %d, %s%s", bad, status, stdout, stderr)
		}
	}
	status, stdout, stderr = execute("", append(line[:len(line)-1], "", "--json")...)
	var list []benchDocument
	if err := json.Unmarshal([]byte(stdout), &list); status != exitDone || err != nil {
		t.Fatalf("exit status %d: %v, %s", status, err, stderr)
	}
	var ops []string
	for _, r := range list {
		ops = append(ops, r.Op+" "+r.Format)
	}
	if got := strings.Join(ops, ", "); got != "gemm bf16, quantize bf16, gemm f32, quantize f32, gemm mxfp4, quantize mxfp4, gemm nvfp4, quantize nvfp4" {
		t.Errorf("results are %s", got)
	}
}
