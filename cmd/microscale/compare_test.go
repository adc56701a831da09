package main

import (
	"bytes"
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/microscale-go/microscale/cmd/microscale/internal/flags"
	"github.com/microscale-go/microscale/cmd/microscale/internal/training"
	"github.com/microscale-go/microscale/internal/slow"
	"github.com/microscale-go/microscale/quant"
)

// smallest is a comparison that takes less than a second.
const smallest = "compare --data synthetic: --hidden 128 --layers 1 --heads 2 --kv-heads 1 --intermediate 128 --sequence 32 --batch 4 " +
	"--steps 5 --eval-tokens 128 --eval-every 2"

// compared is the part of the document of compare that tests read.
type compared struct {
	Recipes []map[string]any
	Formats []map[string]any
	Report  string

	Parameters int
}

func compareJSON(t *testing.T, args ...string) compared {
	t.Helper()
	status, stdout, stderr := execute("", append(strings.Fields(smallest), append(args, "--json")...)...)
	if status != exitDone {
		t.Fatalf("exit status %d: %s", status, stderr)
	}
	var c compared
	if err := json.Unmarshal([]byte(stdout), &c); err != nil {
		t.Fatal(err)
	}
	return c
}

func TestCompareJSON(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "out")
	c := compareJSON(t, "--recipes", "mxfp8,nvfp4", "--out", dir)
	var names []string
	base := c.Recipes[0]["val_loss"].(float64)
	for _, r := range c.Recipes {
		names = append(names, r["recipe"].(string))
		for _, key := range []string{"steps", "train_loss", "val_loss", "gap_percent", "seconds_per_step", "tokens_per_second", "saturated",
			"flushed"} {
			if _, ok := r[key].(float64); !ok {
				t.Errorf("%v: %s is %v", r["recipe"], key, r[key])
			}
		}
		if gap := 100 * (r["val_loss"].(float64)/base - 1); math.Abs(gap-r["gap_percent"].(float64)) > 1e-9 {
			t.Errorf("%v: the gap is %v %%, want %v", r["recipe"], r["gap_percent"], gap)
		}
		if n := len(r["train_losses"].([]any)); n != 5 {
			t.Errorf("%v: %d training losses, want 5", r["recipe"], n)
		}
		if n := len(r["val_losses"].([]any)); n != 3 {
			t.Errorf("%v: %d validation losses, want those of steps 2, 4 and 5", r["recipe"], n)
		}
	}
	if got := strings.Join(names, " "); got != "bf16 mxfp8 nvfp4" {
		t.Errorf("compared %s: the baseline comes first, asked for or not", got)
	}
	for _, r := range c.Recipes {
		if _, ok := r["busy"].(bool); !ok {
			t.Errorf("%v: busy is %v", r["recipe"], r["busy"])
		}
		m := r["memory"].(map[string]any)
		sum := 0.0
		for _, kind := range []string{"masters", "gradients", "moments", "rowwise", "columnwise", "activations", "scratch"} {
			if m[kind].(float64) <= 0 {
				t.Errorf("%v: %s take %v bytes", r["recipe"], kind, m[kind])
			}
			sum += m[kind].(float64)
		}
		if n := float64(c.Parameters); m["masters"] != 4*n || m["gradients"] != 4*n || m["moments"] != 8*n || m["all"] != sum {
			t.Errorf("%v: of %v parameters, memory is %v", r["recipe"], n, m)
		}
	}
	for _, kind := range []string{"rowwise", "columnwise"} {
		bytes := func(i int) float64 { return c.Recipes[i]["memory"].(map[string]any)[kind].(float64) }
		if !(bytes(0) > bytes(1) && bytes(1) > bytes(2) && bytes(2) > 0) {
			t.Errorf("%s copies of weights take %v, %v and %v bytes", kind, bytes(0), bytes(1), bytes(2))
		}
	}
	var formats []string
	for _, f := range c.Formats {
		formats = append(formats, f["format"].(string))
		if loss, perplexity := f["val_loss"].(float64), f["perplexity"].(float64); math.Abs(math.Exp(loss)/perplexity-1) > 1e-12 ||
			math.Abs(loss-base) > 0.5 {
			t.Errorf("%v: loss %v, perplexity %v; as trained %v", f["format"], loss, perplexity, base)
		}
	}
	for _, f := range quant.Formats() {
		if f.Scaled() != slices.Contains(formats, f.Name) {
			t.Errorf("among the formats after training: %s is %v", f, !f.Scaled())
		}
	}
	page, err := os.ReadFile(c.Report)
	if err != nil || c.Report != filepath.Join(dir, training.ReportName) {
		t.Fatalf("the report is said to be in %s: %v", c.Report, err)
	}
	for _, want := range []string{`<section id="sqnr">`, "highest dB", `<section id="memory">`, "synthetic:",
		"microscale compare --data synthetic: "} {
		if !bytes.Contains(page, []byte(want)) {
			t.Errorf("the report lacks %q", want)
		}
	}
	if entries, _ := os.ReadDir(dir); len(entries) != 1 {
		t.Errorf("%d files beside the report", len(entries)-1)
	}
}

// TestAccumulate: compare trains each recipe but the baseline with each accumulator, with the losses of
// train --accumulate, and eval takes one.
func TestAccumulate(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: this test trains models")
	}
	c := compareJSON(t, "--recipes", "tensorwise", "--accumulate", "fp32,hopper-wgmma,hopper-wgmma:128", "--out",
		filepath.Join(t.TempDir(), "out"))
	var names []string
	losses := map[string][]any{}
	for _, r := range c.Recipes {
		name := r["recipe"].(string)
		names = append(names, name)
		losses[name] = r["train_losses"].([]any)
	}
	if got := strings.Join(names, " "); got != "bf16 tensorwise tensorwise+hopper-wgmma tensorwise+hopper-wgmma:128" {
		t.Fatalf("compared %s", got)
	}
	dir := filepath.Join(t.TempDir(), "model")
	line := strings.Replace(smallest, "compare", "train --recipe tensorwise --json --out "+dir, 1)
	for i, accumulate := range []string{"fp32", "hopper-wgmma", "hopper-wgmma:128"} {
		status, stdout, stderr := execute("", append(strings.Fields(line), "--force", "--accumulate", accumulate)...)
		if status != exitDone {
			t.Fatal(stderr)
		}
		var trained struct {
			Accumulate []string
			Losses     []any `json:"train_losses"`
		}
		if err := json.Unmarshal([]byte(stdout), &trained); err != nil {
			t.Fatal(err)
		}
		if want := []string{accumulate, accumulate, accumulate}; !slices.Equal(trained.Accumulate, want) {
			t.Errorf("train --accumulate %s: the document has %q", accumulate, trained.Accumulate)
		}
		if want := losses[names[i+1]]; !slices.Equal(trained.Losses, want) {
			t.Errorf("train --accumulate %s: got losses %v, and %v by compare", accumulate, trained.Losses, want)
		}
		if i > 0 && slices.Equal(trained.Losses, losses["tensorwise"]) {
			t.Errorf("train --accumulate %s: got the losses of FP32", accumulate)
		}
	}

	seen := map[float64]string{}
	for _, accumulate := range []string{"fp32", "hopper-wgmma", "hopper-wgmma:64"} {
		status, stdout, stderr := execute("", "eval", dir, "--data", "synthetic:", "--tokens", "64", "--recipe", "tensorwise", "--accumulate",
			accumulate, "--json")
		var e struct {
			Accumulate string
			NLL        float64 `json:"nll"`
		}
		if err := json.Unmarshal([]byte(stdout), &e); err != nil || status != exitDone || e.Accumulate != accumulate {
			t.Fatalf("eval --accumulate %s: got %s %v %s", accumulate, stdout, err, stderr)
		}
		if other, ok := seen[e.NLL]; ok {
			t.Errorf("eval: %s and %s have the same loss, %v", other, accumulate, e.NLL)
		}
		seen[e.NLL] = accumulate
	}
	small := filepath.Join(t.TempDir(), "small")
	if status, _, stderr := execute("", "quantize", dir, small, "--format", "mxfp8"); status != exitDone {
		t.Fatal(stderr)
	}
	eval := []string{"eval", small, "--data", "synthetic:", "--tokens", "64", "--accumulate"}
	if status, stdout, stderr := execute("", append(eval, "blackwell-mxf8f6f4", "--activations")...); status != exitDone ||
		!strings.Contains(stdout, "added as blackwell-mxf8f6f4 does") {
		t.Errorf("got %s%s", stdout, stderr)
	}
	for want, args := range map[string][]string{
		"has quantized weights, which a matrix unit multiplies by quantized activations: add --activations": append(eval, "blackwell-mxf8f6f4"),
		"mxfp8 × mxfp8: ampere-mma: unsupported operands e4m3×e4m3": append(eval, "ampere-mma",
			"--activations"),
		`unknown model "b200"`: append(eval, "b200"),
		"recipe bf16: wgrad: accumulate with blackwell-mxf4: bf16 × bf16": {"eval", dir, "--data", "synthetic:", "--accumulate",
			"blackwell-mxf4"},
		"recipe nvfp4+hopper-wgmma: fprop: accumulate with hopper-wgmma": {"compare", "--data", "synthetic:", "--recipes", "nvfp4",
			"--accumulate", "hopper-wgmma", "--out", filepath.Join(dir, "never")},
		"fp32 is named twice":                            {"compare", "--accumulate", "fp32,fp32"},
		`unknown model "x"`:                              {"train", "--accumulate", "x"},
		"the recipe accumulates in FP32: set accumulate": {"train", "--use-split-accumulator", "all"},
	} {
		if status, _, stderr := execute("", args...); status == exitDone || !strings.Contains(stderr, want) || strings.Count(stderr, "\n") > 2 {
			t.Errorf("%v: got %s, want an error with %q", args, stderr, want)
		}
	}
}

// TestCompareSame checks that the same seed gives the same losses, with any number of
// threads and with held quantized weights, in compare and in train.
func TestCompareSame(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: this test trains a dozen models")
	}
	losses := func(args ...string) []any {
		c := compareJSON(t, append(args, "--recipes", "mxfp8", "--out", filepath.Join(t.TempDir(), "out"))...)
		return append(slices.Clone(c.Recipes[1]["train_losses"].([]any)), c.Recipes[1]["val_loss"])
	}
	one, two, other := losses("--threads", "1"), losses("--threads", "2"), losses("--seed", "2")
	if !slices.Equal(one, two) {
		t.Errorf("one thread gives %v, two give %v", one, two)
	}
	if held := losses("--fp8-param"); !slices.Equal(one, held) {
		t.Errorf("with weights held quantized %v, else %v", held, one)
	}
	if slices.Equal(one, other) {
		t.Error("another seed gives the same losses")
	}
	line := strings.Replace(smallest, "compare", "train --recipe mxfp8 --json --out "+filepath.Join(t.TempDir(), "model"), 1)
	status, stdout, stderr := execute("", strings.Fields(line)...)
	if status != exitDone {
		t.Fatal(stderr)
	}
	var trained map[string]any
	if err := json.Unmarshal([]byte(stdout), &trained); err != nil {
		t.Fatal(err)
	}
	if got := append(slices.Clone(trained["train_losses"].([]any)), trained["val_loss"]); !slices.Equal(got, one) {
		t.Errorf("train gives %v, compare %v", got, one)
	}
}

// TestCompareSeeds checks that each seed is a run, that the gap is the mean over seeds,
// and that the table fits.
func TestCompareSeeds(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: this test trains a dozen models")
	}
	dir := filepath.Join(t.TempDir(), "out")
	c := compareJSON(t, "--recipes", "nvfp4", "--seeds", "2", "--out", dir)
	second := compareJSON(t, "--recipes", "nvfp4", "--seed", "2", "--out", dir)
	end := func(recipe, run int) float64 {
		return c.Recipes[recipe]["runs"].([]any)[run].(map[string]any)["val_loss"].(float64)
	}
	var gaps [2]float64
	for run := range gaps {
		gaps[run] = 100 * (end(1, run)/end(0, run) - 1)
	}
	r := c.Recipes[1]
	if got, want := r["gap_percent"].(float64), (gaps[0]+gaps[1])/2; math.Abs(got-want) > 1e-9 {
		t.Errorf("the gap is %v %%, want %v", got, want)
	}
	if got, want := r["gap_standard_error_percent"].(float64), math.Abs(gaps[0]-gaps[1])/2; math.Abs(got-want) > 1e-9 {
		t.Errorf("its standard error is %v %%, want %v", got, want)
	}
	if got, want := r["val_loss"].(float64), (end(1, 0)+end(1, 1))/2; math.Abs(got-want) > 1e-9 {
		t.Errorf("the validation loss is %v, want the mean %v", got, want)
	}
	for i := range c.Recipes {
		if got, want := end(i, 1), second.Recipes[i]["val_loss"]; got != want {
			t.Errorf("%v: the second run ends at %v, with --seed 2 it is %v", c.Recipes[i]["recipe"], got, want)
		}
	}
	if second.Recipes[1]["gap_standard_error_percent"] != nil {
		t.Error("one seed has a standard error")
	}
	for _, key := range []string{"gap_window_error_percent", "gap_noise_percent"} {
		if got, ok := second.Recipes[1][key].(float64); !ok || got <= 0 || second.Recipes[0][key] != nil {
			t.Errorf("%s is %v, and %v of the baseline", key, second.Recipes[1][key], second.Recipes[0][key])
		}
	}
	status, stdout, stderr := execute("", append(strings.Fields(smallest), "--recipes", "nvfp4", "--seeds", "2", "--out", dir)...)
	if status != exitDone {
		t.Fatal(stderr)
	}
	if !strings.Contains(stdout, ", seeds 1 to 2, ") || !strings.Contains(stdout, " ±") {
		t.Errorf("the table is\n%s", stdout)
	}
	for line := range strings.Lines(stdout) {
		if n := utf8.RuneCountInString(line); n > 81 && !strings.HasPrefix(line, "report: ") {
			t.Errorf("a line of %d columns: %s", n-1, line)
		}
	}
}

// TestCompareText checks that the table fits 80 columns, and that the last line has the
// report.
func TestCompareText(t *testing.T) {
	slow.Race(t, slow.Repeats)
	dir := filepath.Join(t.TempDir(), "out")
	for range 2 { // an earlier report is replaced
		status, stdout, stderr := execute("", append(strings.Fields(smallest), "--recipes", "tensorwise", "--out", dir)...)
		if status != exitDone {
			t.Fatal(stderr)
		}
		lines := strings.Split(strings.TrimRight(stdout, "\n"), "\n")
		if last := lines[len(lines)-1]; last != "report: "+filepath.Join(dir, training.ReportName) {
			t.Errorf("the last line is %q", last)
		}
		if !strings.HasPrefix(lines[0], "recipe ") || !strings.HasPrefix(lines[3], "bf16 ") || !strings.HasPrefix(lines[4], "tensorwise ") {
			t.Errorf("the table is\n%s", stdout)
		}
		for _, l := range lines[:len(lines)-1] {
			if n := utf8.RuneCountInString(l); n > 80 {
				t.Errorf("a line of %d columns: %s", n, l)
			}
		}
		if !strings.Contains(stderr, "tensorwise: 5 steps, validation loss ") {
			t.Errorf("standard error has no progress: %s", stderr)
		}
	}
}

// TestCompareDiverged checks the report of recipes that diverge.
func TestCompareDiverged(t *testing.T) {
	slow.Race(t, slow.Repeats)
	dir := filepath.Join(t.TempDir(), "out")
	line := append(strings.Fields(smallest), "--recipes", "bf16,mxfp8", "--learning-rate", "1e25", "--out", dir)
	const want = "no recipe finished (bf16, mxfp8): try a lower --learning-rate"
	status, stdout, stderr := execute("", line...)
	if status != exitFailed || !strings.Contains(stderr, want) {
		t.Errorf("exit status %d: %s", status, stderr)
	}
	if !strings.Contains(stdout, "\n164 k parameters, ") {
		t.Errorf("how many parameters is not there:\n%s", stdout)
	}
	status, document, stderr := execute("", append(line, "--json")...)
	if c := parsed[training.ComparisonDocument](t, document); status != exitFailed || !strings.Contains(stderr, want) ||
		c.Parameters != 164224 || len(c.Recipes) != 2 {
		t.Errorf("exit status %d: %s, and the document is %+v", status, stderr, c)
	}
	for _, name := range []string{"bf16", "mxfp8"} {
		if !strings.Contains(stdout, "\n"+name+" did not finish: ") {
			t.Errorf("nothing says that %s did not finish:\n%s", name, stdout)
		}
	}
	if page, err := os.ReadFile(filepath.Join(dir, training.ReportName)); err != nil || !bytes.Contains(page, []byte("did not finish")) {
		t.Errorf("the report does not say so: %v", err)
	}
}

func TestCompareUsage(t *testing.T) {
	dir := t.TempDir()
	full := filepath.Join(dir, "full")
	file := filepath.Join(dir, "file")
	other := filepath.Join(dir, "other")
	for name, text := range map[string]string{filepath.Join(full, "thesis.txt"): "x", file: "x",
		filepath.Join(other, training.ReportName): "<html>mine</html>"} {
		if err := os.MkdirAll(filepath.Dir(name), 0o777); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, []byte(text), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	for _, tc := range []struct {
		args   string
		status int
		want   string
	}{
		{"--recipes bf16,mxfp9", exitUsage, `--recipes: unknown recipe "mxfp9": did you mean mxfp8 or mxfp6 or mxfp4?`},
		{"--recipes mxfp8,mxfp8", exitUsage, "--recipes: mxfp8 is named twice"},
		{"--out=", exitUsage, "--out is empty: name a directory"},
		{"mxfp8", exitUsage, `unexpected argument "mxfp8": use --data for text`},
		{"--seeds 0", exitUsage, "--seeds: got 0, want 1 to 1048576"},
		{"--steps 0", exitUsage, "--steps is 0, want at least 1"},
		{"--out " + full, exitFailed, "full: the directory holds other files, such as thesis.txt; name another"},
		{"--out " + file, exitFailed, "file: not a directory; name another"},
		{"--out " + other, exitFailed, "report.html is not a report of microscale"},
		{"--out " + filepath.Join(file, "below"), exitFailed, "below: not a directory; name another"},
		{"--hidden 40 --recipes nvfp4 --out " + filepath.Join(dir, "new"), exitUsage,
			"--hidden is 40: the width of the model is 40, want a multiple of 16 for the recipe nvfp4"},
		{"--recipes f32 --fp8-param", exitUsage, "--fp8-param is true, but the recipe bf16 does not quantize weights"},
	} {
		t.Run(tc.args, func(t *testing.T) {
			status, _, stderr := execute("", append(strings.Fields(smallest), strings.Fields(tc.args)...)...)
			if status != tc.status || !strings.Contains(stderr, tc.want) {
				t.Errorf("exit status %d, standard error %q, want %d and %q", status, stderr, tc.status, tc.want)
			}
		})
	}
	if text, err := os.ReadFile(filepath.Join(other, training.ReportName)); err != nil || string(text) != "<html>mine</html>" {
		t.Errorf("somebody's report.html was changed: %q, %v", text, err)
	}
}

func TestCommandLine(t *testing.T) {
	cmd := compareCommand()
	if err := cmd.ParseFlags([]string{"--steps=12", "--recipes", "bf16,mxfp8", "--data", "a b", "--data", "c", "--data", "it's;$HOME",
		"--data=", "--json", "my model"}); err != nil {
		t.Fatal(err)
	}
	if got, want := flags.CommandLine(cmd), `compare 'my model' --data 'a b' --data c --data 'it'\''s;$HOME' --data '' --json=true `+
		`--recipes bf16,mxfp8 --steps 12`; got != want {
		t.Errorf("the command line is %s, want %s", got, want)
	}
}
