package evaluation

import (
	"encoding/json"
	"errors"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/microscale-go/microscale/cmd/microscale/internal/evaluation/windows"
	"github.com/microscale-go/microscale/cmd/microscale/internal/input"
	"github.com/microscale-go/microscale/convert"
	"github.com/microscale-go/microscale/quant"
)

// TestPaired compares the interval with the table of Student's distribution: 3.1824 for three degrees of freedom.
func TestPaired(t *testing.T) {
	var a, b []WindowReceipt
	for _, d := range []float64{1, 2, 4, 5} {
		a, b = append(a, WindowReceipt{Scored: 8, KL: d + 3}), append(b, WindowReceipt{Scored: 8, KL: 3})
	}
	got := paired(a, b, func(w WindowReceipt) float64 { return w.KL })
	deviation := math.Sqrt(float64(4+1+1+4) / 3)
	half := 3.18245 * deviation / 2
	if got.Mean != 3 || math.Abs(got.High-3-half) > 1e-4 || math.Abs(3-got.Low-half) > 1e-4 {
		t.Errorf("got %+v, want 3 ± %g", got, half)
	}
	a[0].Scored, b[0].Scored = 80, 80 // mean (80·1 + 8·11)/104
	if got := paired(a, b, func(w WindowReceipt) float64 { return w.KL }); math.Abs(got.Mean-168.0/104) > 1e-12 {
		t.Errorf("weighted: got %+v", got)
	}
	for i := range a {
		a[i], b[i] = WindowReceipt{Scored: 8, KL: []float64{3, 4, 9, 8}[i]}, WindowReceipt{Scored: 8, KL: []float64{8, 10, 14, 16}[i]}
	}
	half = 3.18245 * math.Sqrt(float64(1+1+4+0)/3/4) / 12 // a less half of b is −1, −1, 2, 0, and the mean of b is 12
	if got := ratio(a, b); got.Mean != 0.5 || math.Abs(got.High-0.5-half) > 1e-6 || math.Abs(0.5-got.Low-half) > 1e-6 {
		t.Errorf("ratio: got %+v, want 0.5 ± %g", got, half)
	}
	if got := ratio(a, make([]WindowReceipt, 4)); !math.IsNaN(got.Mean) {
		t.Errorf("ratio to no divergence: got %+v", got)
	}
	for _, tc := range []struct {
		ratio      Paired
		text, json string
	}{{Paired{0.5, 0.25, 0.75}, "; 0.500 [0.250, 0.750] of its divergence", `"kl_ratio":{"mean":0.5,"low":0.25,"high":0.75}`},
		{Paired{math.NaN(), math.NaN(), math.NaN()}, "no difference is shown", `"kl_ratio":{"mean":null,"low":null,"high":null}`}} {
		against := &Against{Model: "m", Windows: 4, Ratio: tc.ratio}
		if data, err := json.Marshal(against.document()); err != nil || !strings.Contains(string(data), tc.json) ||
			!strings.HasSuffix(against.String(), tc.text) {
			t.Errorf("got %q, %s (%v), want %q, %s", against, data, err, tc.text, tc.json)
		}
	}
}

// TestReceipts evaluates two models, and compares them window by window.
func TestReceipts(t *testing.T) {
	dir := t.TempDir()
	e := newEvaluation(t)
	e.Reference, e.Model = e.Model, writeModel(t, 2)
	receipt := filepath.Join(dir, "other.json")
	e.Receipts = []string{receipt}
	other := run(t, e)
	first, err := ReadReceipt(receipt)
	if err != nil {
		t.Fatal(err)
	}
	sum, scored := 0.0, 0
	for _, w := range first.Windows {
		sum, scored = sum+w.KL*float64(w.Scored), scored+w.Scored
	}
	if d := other.Document(); len(first.Windows) != d.Windows || scored != d.Scored ||
		math.Abs(sum/float64(scored)-float64(d.KL.Mean)) > 1e-9 {
		t.Errorf("the receipt has a divergence of %g over %d tokens in %d windows, the result %+v", sum/float64(scored), scored,
			len(first.Windows), d)
	}
	if err := CheckNew("the receipt", receipt); err == nil || !strings.Contains(err.Error(), "exists") {
		t.Errorf("got %v", err)
	}
	e.Against, e.Receipts = first, nil
	if got := run(t, e).against; got == nil || got.KL != (Paired{}) || got.NLL != (Paired{}) || got.Ratio != (Paired{1, 1, 1}) ||
		!strings.Contains(got.String(), "includes zero") {
		t.Errorf("against itself: %v", got)
	}
	e.Model = e.Reference // no divergence
	r := run(t, e)
	if a := r.Document().Against; a == nil || math.Abs(float64(a.KL.Mean)+float64(other.Document().KL.Mean)) > 1e-6 || !(a.KL.High < 0) ||
		a.Windows != len(first.Windows) {
		t.Errorf("got %+v", a)
	}
	if text := r.against.String(); !strings.Contains(text, "nats per token: lower") || strings.Contains(text, "note") {
		t.Errorf("got %q", text)
	}
	var b strings.Builder
	if err := r.Print(&b, false); err != nil || !strings.Contains(b.String(), r.against.String()) {
		t.Errorf("%v, %s", err, b.String())
	}
	first.Machine = "another"
	if a, err := first.Compare(first); err != nil || a.Note != "" {
		t.Errorf("got %v, %v", a, err)
	}
	e.Against = first
	if a := run(t, e).against; !strings.Contains(a.Note, "another") {
		t.Errorf("got the note %q", a.Note)
	}
	e.Text = writeText(t, strings.Repeat("Another text, of other tokens.\n", 10))
	if _, err := e.Run(t.Context()); err == nil || !strings.Contains(err.Error(),
		"is of another text or tokenizer: only evaluations of the same") {
		t.Errorf("got %v", err)
	}
	for text, want := range map[string]string{"{}": "not a receipt", "x": "not a receipt", `{"version": 9, "windows": [{}]}`: "version 9"} {
		path := filepath.Join(dir, "bad")
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := ReadReceipt(path); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v", text, err)
		}
	}
}

// TestContentOfParts: the content of a GGUF model is that of all its files.
func TestContentOfParts(t *testing.T) {
	source, err := input.Open(t.Context(), newEvaluation(t).Model)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = source.Close() })
	plan, err := convert.PlanQuantize(t.Context(), source, convert.QuantizeOptions{Quantizer: quant.Quantizer{Format: quant.MXFP4},
		Convention: "gguf"})
	if err == nil {
		plan, err = plan.Split(10_000)
	}
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(t.TempDir(), "split")
	if _, err := plan.Run(t.Context(), dir, convert.RunOptions{}); err != nil {
		t.Fatal(err)
	}
	parts, err := filepath.Glob(filepath.Join(dir, "*.gguf"))
	if err != nil || len(parts) < 2 {
		t.Fatalf("%v, %v", parts, err)
	}
	seen := map[string]int{}
	for i := range len(parts) + 1 {
		c, err := input.Open(t.Context(), parts[0])
		if err != nil {
			t.Fatal(err)
		}
		content, err := ContentOf(t.Context(), c)
		if err := errors.Join(err, c.Close()); err != nil {
			t.Fatal(err)
		}
		if before, ok := seen[content]; ok {
			t.Errorf("the content is that before the change of file %d", before)
		}
		if seen[content] = i; i == len(parts) {
			break
		}
		data, err := os.ReadFile(parts[i])
		if err != nil {
			t.Fatal(err)
		}
		data[len(data)-40] ^= 1 // of the last tensor
		if err := os.WriteFile(parts[i], data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// TestBeside compares two models with an original at once: each as alone, by layer, in a page and in a receipt of its own.
func TestBeside(t *testing.T) {
	e := newEvaluation(t)
	e.Layers, e.Reference, e.Model = true, e.Model, writeModel(t, 2)
	second := filepath.Join(t.TempDir(), "second")
	quantize(t, e.Reference, second, quant.NVFP4, nil)
	first, alone := run(t, e).Document(), e
	alone.Model = second
	receipts := t.TempDir()
	alone.Receipts = []string{filepath.Join(receipts, "alone")}
	want := run(t, alone).Document()
	e.Receipts = []string{filepath.Join(receipts, "first"), filepath.Join(receipts, "second")}
	e.Beside, e.Stream = []string{second}, filepath.Join(t.TempDir(), "scratch")
	r := run(t, e)
	got := r.Document()
	if got.KL != first.KL || len(got.Beside) != 1 || got.Beside[0].Model != second || got.Beside[0].KL != want.KL ||
		got.Beside[0].NLL != want.NLL || !reflect.DeepEqual(got.Beside[0].Layers, want.Layers) {
		t.Errorf("got %+v, want %+v and %+v", got, first, want)
	}
	var b strings.Builder
	if err := r.Print(&b, false); err != nil || strings.Count(b.String(), filepath.Base(second)) != 2 {
		t.Errorf("%v, %s", err, b.String())
	}
	page, err := r.page("eval").HTML()
	if err != nil || strings.Count(string(page), second) < 3 {
		t.Errorf("the page names %s %d times (%v)", second, strings.Count(string(page), second), err)
	}
	a, errA := ReadReceipt(alone.Receipts[0])
	c, errC := ReadReceipt(e.Receipts[1])
	if err := errors.Join(errA, errC); err != nil || !reflect.DeepEqual(a, c) {
		t.Errorf("got the receipt %+v, want %+v (%v)", c, a, err)
	}
	if c, err = ReadReceipt(e.Receipts[0]); err != nil || c.Model != e.Model || reflect.DeepEqual(a.Windows, c.Windows) {
		t.Errorf("got the receipt %+v (%v)", c, err)
	}
}

// TestBase writes the probabilities of an original, and compares a model with them and with the original.
func TestBase(t *testing.T) {
	e := newEvaluation(t)
	var err error
	if e.Method, err = windows.LookupMethod(windows.LlamaCPP); err != nil {
		t.Fatal(err)
	}
	original := e
	original.Base = filepath.Join(t.TempDir(), "base")
	free := freeBytes
	defer func() { freeBytes = free }()
	freeBytes = func(string) float64 { return 1000 }
	if _, err := original.Run(t.Context()); err == nil || !strings.Contains(err.Error(), "has 1.00 kB free: name a file on another") {
		t.Errorf("on a full disk: got %v", err)
	}
	freeBytes = free
	run(t, original)
	e.Reference, e.Model = e.Model, writeModel(t, 2)
	want := run(t, e).Document()
	e.Reference = original.Base
	if _, err := e.Run(t.Context()); err == nil || !strings.Contains(err.Error(), "omit the text") {
		t.Errorf("got %v", err)
	}
	receipt := filepath.Join(t.TempDir(), "receipt")
	e.Text, e.Stream, e.Receipts = "", filepath.Join(t.TempDir(), "scratch"), []string{receipt}
	got := run(t, e).Document()
	if got.LossDocument.NLL != want.LossDocument.NLL || math.Abs(float64(got.KL.Mean-want.KL.Mean)) > 1e-4 || got.Scored != want.Scored ||
		got.Context != want.Context || got.Bytes != got.Tokens {
		t.Errorf("got %+v %+v, want %+v %+v", got, got.KL, want, want.KL)
	}
	if r, err := ReadReceipt(receipt); err != nil || len(r.Windows) != want.Windows || len(r.Same["reference"]) != 64 {
		t.Errorf("got the receipt %+v, %v", r, err)
	}
	e.Layers = true
	if _, err := e.Run(t.Context()); err == nil || !strings.Contains(err.Error(), "not its layers") {
		t.Errorf("got %v", err)
	}
}

// TestReceiptDivergence checks the mean over windows of different sizes, and that one window has no interval.
func TestReceiptDivergence(t *testing.T) {
	r := &Receipt{Windows: []WindowReceipt{{Scored: 30, KL: 0.1}, {Scored: 10, KL: 0.3}}}
	kl, low, high, tokens := r.Divergence()
	if math.Abs(kl-0.15) > 1e-12 || !(low < kl && kl < high) || tokens != 40 {
		t.Errorf("got %g [%g, %g] of %d", kl, low, high, tokens)
	}
	r.Windows = r.Windows[:1]
	if kl, low, high, _ = r.Divergence(); kl != 0.1 || !math.IsNaN(low) || !math.IsNaN(high) {
		t.Errorf("one window: got %g [%g, %g]", kl, low, high)
	}
}
