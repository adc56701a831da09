package report

import (
	"math"
	"reflect"
	"strings"
	"testing"
)

// madeSpeed returns speeds by size: bf16 takes the given seconds, mxfp8 3 s and 1 s to
// quantize.
func madeSpeed(sizes []int, bf16 []float64) *Speed {
	s := &Speed{Title: "T", Baseline: "bf16", Bandwidth: 1e10, Ceilings: []Ceiling{{"slow", 1e11}, {"fast", 1.02e11}}, Series: []Series{
		{Name: "bf16", Few: []Rate{{1e9, 0.5}}}, {Name: "mxfp8", Few: []Rate{{2e9, 1}}},
	}}
	for i, n := range sizes {
		work := 2 * float64(n) * float64(n) * float64(n)
		s.Series[0].Points = append(s.Series[0].Points, SpeedPoint{Size: n, Product: bf16[i], Rate: Rate{work / bf16[i], float64(n) / 4}})
		s.Series[1].Points = append(s.Series[1].Points, SpeedPoint{Size: n, Product: 3, Quantize: 1, Rate: Rate{work / 3, float64(n) / 3}})
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
		{"quantizing-counts", []float64{3.5, 3.5, 3.5}, 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := madeSpeed([]int{256, 512, 1024}, tc.bf16)
			f := &s.Series[1]
			if got := s.PaysFrom(f); got != tc.want {
				t.Errorf("pays from: got %d, want %d", got, tc.want)
			}
			if product, total := s.Speedup(f.Points[1]); product != tc.bf16[1]/3 || total != tc.bf16[1]/4 {
				t.Errorf("speedup: got %v and %v, want %v and %v", product, total, tc.bf16[1]/3, tc.bf16[1]/4)
			}
			want := math.Inf(1) // 1024³ units of work saved per second quantized
			if saved := tc.bf16[2] - 3; saved > 0 {
				want = 1024 / saved
			}
			if got := s.BreakEven(f); got != want {
				t.Errorf("estimate: got %v, want %v", got, want)
			}
		})
	}
}

// TestBreakEven checks that the estimate solves the equation of its model.
func TestBreakEven(t *testing.T) {
	const perProduct, perSaved, perElement = 3e-9, 2e-9, 1e-6 // bf16 takes 3 ns per step of the product, mxfp8 1 ns
	at := func(n float64) (bf16, product, quantize float64) {
		return perProduct * n * n * n, (perProduct - perSaved) * n * n * n, perElement * n * n
	}
	s := madeSpeed([]int{4096}, []float64{1})
	s.Series[0].Points[0].Product, s.Series[1].Points[0].Product, s.Series[1].Points[0].Quantize = at(4096)
	n := s.BreakEven(&s.Series[1])
	if a, b, q := at(n); math.Abs(a/(b+q)-1) > 1e-12 {
		t.Errorf("size %g: got %g s and %g s, want equal times", n, a, b+q)
	}
}

func TestSpeedTables(t *testing.T) {
	s := madeSpeed([]int{256, 512}, []float64{3, 6})
	s.Series[0].Points[0].Operations, s.Series[0].Points[1].Operations = 1e9, 2e9
	s.Series[1].Points[0].Operations, s.Series[1].Points[1].Operations = 1e9, 123.4e9
	want := [][]string{
		{"bf16", "GOP/s", "1.00", "2.00", ""},
		{"mxfp8", "GOP/s", "1.00", "123", ""},
		{"", "× bf16", "1.00", "2.00", ""},
		{"", "× with q.", "0.75", "1.50", "512"},
		{"", "q. share", "25%", "25%", ""},
	}
	if got := s.Table().Rows; !reflect.DeepEqual(got, want) {
		t.Errorf("table: got\n%q, want\n%q", got, want)
	}
	want = [][]string{{"mxfp8", "512", "171", "2.00", "1.50", "25%"}}
	if got := s.PaysTable().Rows; !reflect.DeepEqual(got, want) {
		t.Errorf("table of sizes: got %q, want %q", got, want)
	}
	if got, want := s.Verdict(), []string{
		"At size 512, bf16 multiplies 2.00 billion operations per second.",
		"With both operands quantized from BF16 for each product, it pays to use mxfp8 from 512 (1.50 times as fast at 512).",
	}; !reflect.DeepEqual(got, want) {
		t.Errorf("verdict: got %q, want %q", got, want)
	}
}

// TestSpeedBusy checks that the page reports measurements that were disturbed.
func TestSpeedBusy(t *testing.T) {
	s := madeSpeed([]int{256}, []float64{3})
	quiet := len(s.Verdict())
	s.Busy = true
	if v := s.Verdict(); len(v) != quiet+1 || !strings.HasPrefix(v[quiet], "Other programs used the processors") {
		t.Errorf("got verdict %q", v)
	}
}

// TestSpeedPage checks the charts of the page, and pages without data.
func TestSpeedPage(t *testing.T) {
	for _, tc := range []struct {
		name   string
		s      *Speed
		charts int
	}{
		{"sizes", madeSpeed([]int{256, 512}, []float64{3, 6}), 5},
		{"one-size", madeSpeed([]int{256}, []float64{3}), 5},
		{"no-limits", &Speed{Baseline: "bf16", Series: madeSpeed([]int{256}, []float64{3}).Series}, 4},
		{"nothing", &Speed{}, 0},
		{"no-points", &Speed{Baseline: "a", Series: []Series{{Name: "a"}}}, 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			b, err := tc.s.HTML()
			if err != nil {
				t.Fatal(err)
			}
			page := string(b)
			if got := strings.Count(page, "<svg "); got != tc.charts {
				t.Errorf("got %d charts, want %d", got, tc.charts)
			}
			if !strings.Contains(page, Generator) || !strings.Contains(page, "default-src 'none'") || strings.Contains(page, "<script") {
				t.Error("the page is not marked, or not closed")
			}
			if tc.name == "sizes" {
				for _, want := range []string{"Share of quantizing", "Roofline", ">512<", "slow 100", "fast 102"} {
					if !strings.Contains(page, want) {
						t.Errorf("got no %q in the page", want)
					}
				}
			}
		})
	}
}
