package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/microscale-go/microscale/cmd/microscale/internal/report"
	"github.com/microscale-go/microscale/internal/cpu"
	"github.com/microscale-go/microscale/internal/slow"
	"github.com/microscale-go/microscale/quant"
)

// madeSpeed returns the speeds of formats that take 3 s for a product and 1 s to quantize,
// where bf16 takes 6 s.
func madeSpeed(sizes []int, formats ...quant.Format) *report.Speed {
	s := &report.Speed{Baseline: "bf16"}
	for _, f := range append(slices.Clone(baselines), formats...) {
		series := report.Series{Name: f.Name}
		for _, n := range sizes {
			p := report.SpeedPoint{Size: n, Product: 6, Rate: report.Rate{Operations: 1234.5e9}}
			if f.Scaled() {
				p.Product, p.Quantize = 3, 1
			}
			series.Points = append(series.Points, p)
		}
		s.Series = append(s.Series, series)
	}
	return s
}

// TestSpeedTable checks the printed table, and that all sizes fit in 80 columns.
func TestSpeedTable(t *testing.T) {
	var b strings.Builder
	if err := printSpeed(&b, madeSpeed([]int{256, 512}, quant.MXFP8), "DIR/report.html"); err != nil {
		t.Fatal(err)
	}
	const want = `format              256   512  pays
───────────────────────────────────
bf16    GOP/s      1234  1234
───────────────────────────────────
f32     GOP/s      1234  1234
───────────────────────────────────
mxfp8   GOP/s      1234  1234
        × bf16     2.00  2.00
        × with q.  1.50  1.50   256
        q. share    25%   25%

GOP/s      10⁹ operations per second of the product, operands quantized before
× bf16     speed of the product relative to that
× with q.  the same, quantizing both operands from BF16 included
q. share   share of quantizing in the time of both
pays       smallest size from which on it is faster at every size, with q.

report: DIR/report.html
`
	if b.String() != want {
		t.Errorf("got\n%s", b.String())
	}
	sizes, err := sweepSizes(8192, true)
	if err != nil {
		t.Fatal(err)
	}
	b.Reset()
	if err := printSpeed(&b, madeSpeed(sizes, quant.FP8Block), ""); err != nil { // the longest name
		t.Fatal(err)
	}
	for l := range strings.Lines(b.String()) {
		if n := len([]rune(strings.TrimRight(l, "\n"))); n > 80 {
			t.Errorf("got a line of %d columns: %s", n, l)
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
			t.Errorf("sizes up to %d, large %v: got %v, %v", tc.largest, tc.large, got, err)
		}
	}
	for _, n := range []int{-1, 0, 255, 300, 8191, 8193, 16384} {
		if sizes, err := sweepSizes(n, false); err == nil {
			t.Errorf("sizes up to %d: got %v, want an error", n, sizes)
		}
	}
}

// TestBenchAll runs the smallest sweep, with a page and as JSON.
func TestBenchAll(t *testing.T) {
	slow.Race(t, slow.Repeats)
	dir := filepath.Join(t.TempDir(), "out")
	line := []string{"bench", "all", "--largest", "256", "--formats", "mxfp4,nvfp4", "--budget", "1us", "--out", dir}
	status, stdout, stderr := execute("", line...)
	file := filepath.Join(dir, "report.html")
	if status != exitDone || !strings.Contains(stdout, "mxfp4") || !strings.Contains(stdout, "report: "+file) || !strings.Contains(stderr,
		"measured size 256") {
		t.Fatalf("exit status %d: %s%s", status, stdout, stderr)
	}
	page, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{`<section id="speed">`, `<section id="pays">`, `<section id="roofline">`, `<section id="figures">`,
		`<section id="omitted">`, "microscale bench all --largest 256", "Formats: mxfp8, "} {
		if !strings.Contains(string(page), want) {
			t.Errorf("the report lacks %q", want)
		}
	}
	other := filepath.Join(t.TempDir(), "report.html")
	if err := os.WriteFile(other, []byte("<html>mine</html>"), 0o666); err != nil {
		t.Fatal(err)
	}
	for bad, want := range map[string]string{filepath.Dir(other): "is not a report of microscale",
		file: ": not a directory; name another directory with --out"} {
		status, stdout, stderr := execute("", append(slices.Clone(line[:len(line)-1]), bad)...)
		if status != exitFailed || stdout != "" || strings.Count(stderr, "\n") != 1 || !strings.Contains(stderr, want) {
			t.Errorf("a report in %s: exit status %d, %s%s", bad, status, stdout, stderr)
		}
	}
	shared := filepath.Join(t.TempDir(), "shared.json")
	status, stdout, stderr = execute("", append(line, "--json", "--share", shared)...)
	var doc sweepDocument
	if err := json.Unmarshal([]byte(stdout), &doc); status != exitDone || err != nil {
		t.Fatalf("exit status %d: %v, %s", status, err, stderr)
	}
	text, err := os.ReadFile(shared)
	if err != nil {
		t.Fatal(err)
	}
	var sent sharedDocument
	if err := json.Unmarshal(text, &sent); err != nil {
		t.Fatal(err)
	}
	if sent.Processor == "" || sent.Kind == "" || len(sent.Program.Forms) == 0 != (cpu.Detected() == 0) ||
		sent.Program.Kernels != cpu.Best().String() ||
		len(sent.Results) != len(doc.Results) || sent.Threads != 1 || sent.Report != "" {
		t.Errorf("--share: got %s", text)
	}
	hostName, _ := os.Hostname()
	for _, name := range []string{hostName, filepath.Dir(dir), os.Getenv("USER"), os.Getenv("HOME")} {
		if len(name) > 3 && strings.Contains(string(text), name) {
			t.Errorf("--share: the file has %q", name)
		}
	}
	if status, _, stderr := execute("", append(line, "--share", shared)...); status != exitFailed || !strings.Contains(stderr,
		"exists: name another file") {
		t.Errorf("--share of a file that exists: exit status %d, %s", status, stderr)
	}
	var ops []string
	for _, r := range doc.Results[:6] {
		ops = append(ops, r.Op+" "+r.Format)
	}
	if got := strings.Join(ops, ", "); got != "gemm bf16, gemm f32, gemm mxfp4, quantize mxfp4, gemm nvfp4, quantize nvfp4" {
		t.Errorf("results: got %s", got)
	}
	if doc.Report != file || len(doc.Formats) != 4 {
		t.Fatalf("got report %q and %d formats", doc.Report, len(doc.Formats))
	}
	for i, f := range doc.Formats {
		at := i // of the product; products of formats with scales are followed by their quantizing
		if i > 1 {
			at = 2 * (i - 1)
		}
		p, q := f.Sizes[0], doc.Results[at]
		if p.Size != 256 || p.Product != q.Seconds || i > 1 && p.Quantize != doc.Results[at+1].Seconds || i < 2 && p.Quantize != 0 {
			t.Errorf("%s: got %+v, and the product took %v s", f.Format, p, q.Seconds)
		}
		if total := float64(doc.Formats[0].Sizes[0].Product) / float64(p.Product+p.Quantize); float64(p.Total) != total ||
			(f.PaysFrom != nil) != (i > 1 && total > 1) {
			t.Errorf("%s: got %v times as fast as bf16, want %v, and pays from %v", f.Format, p.Total, total, f.PaysFrom)
		}
	}
}
