package main

import (
	"bytes"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/microscale-go/microscale/cmd/microscale/internal/conversion"
	"github.com/microscale-go/microscale/cmd/microscale/internal/evaluation"
)

// budgetModel makes a model of three layers, and a text of 34 windows.
func budgetModel(t *testing.T) (at func(name string) string, model, text string) {
	t.Helper()
	dir := t.TempDir()
	at = func(name string) string { return filepath.Join(dir, name) }
	model, text = at("model"), at("text")
	done(t, tinyRun("--layers", "3", "--steps", "30", "--out", model)...)
	var lines strings.Builder
	for i := range 14 {
		fmt.Fprintf(&lines, "%d: All that is gold does not glitter, not all those who wander are lost.\n", i*i)
	}
	if err := os.WriteFile(text, []byte(lines.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	return at, model, text
}

// TestQuantizeBudget divides bits: with the same bytes for any number of threads, by a plan file that leads to the same result, into the
// conventions that mix formats.
func TestQuantizeBudget(t *testing.T) {
	at, model, text := budgetModel(t)
	args := func(dst string, more ...string) []string {
		return append([]string{"quantize", model, dst, "--budget", "6.5", "--text", text, "--method", "search", "--json"}, more...)
	}
	got := parsed[conversion.Document](t, done(t, args(at("one"), "--threads", "1", "--plan-out", at("plan.toml"))...))
	b := got.Budget
	if b == nil || b.Kept != conversion.MixtureKept || b.Mixture.Bits > 6.5 || b.Uniform.Bits > 6.5 || !(b.Difference[2] < 0) ||
		b.Mixture.KL >= b.Uniform.KL {
		t.Fatalf("got %+v, want a mixture that is better than one format", b)
	}
	if len(got.Formats) < 2 {
		t.Errorf("formats %v", got.Formats)
	}
	want := content(t, at("one/model.safetensors"))
	for _, dir := range []string{"three.microscale-budget", "three.microscale-statistics"} { // as a killed run may leave them
		if err := os.Mkdir(at(dir), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	done(t, args(at("three"), "--threads", "3")...)
	done(t, "quantize", model, at("by-plan"), "--plan", at("plan.toml"), "--text", text, "--method", "search")
	for _, dst := range []string{"three", "by-plan"} {
		if !bytes.Equal(content(t, at(dst+"/model.safetensors")), want) {
			t.Errorf("%s: other bytes", dst)
		}
	}
	if left, _ := filepath.Glob(at("*.microscale-*")); left != nil {
		t.Errorf("left %v", left)
	}
	done(t, "verify", model, at("one"))
	checkMeasured(t, b, at("one"), model, text)
	for _, c := range [][]string{{"--convention", "modelopt", "--method", "nearest"}, {"--for", "vllm", "--method", "gptq"}} {
		dst := at(strings.Join(c, ""))
		got := parsed[conversion.Document](t, done(t, args(dst, c...)...))
		done(t, "verify", model, dst)
		checkMeasured(t, got.Budget, dst, model, text)
	}
	done(t, args(at("x.gguf"), "--formats", "nvfp4,mxfp4,bf16")...)
}

// checkMeasured compares the divergence that a budget states with that of the result in the same windows: all but the four that
// measure groups.
func checkMeasured(t *testing.T, b *conversion.Budget, dst, model, text string) {
	t.Helper()
	receipt := filepath.Join(t.TempDir(), "receipt")
	done(t, "eval", dst, "--reference", model, "--text", text, "--method", "all", "--context", "32", "--receipt", receipt)
	r, err := evaluation.ReadReceipt(receipt)
	if err != nil {
		t.Fatal(err)
	}
	sum, n := 0.0, len(r.Windows)
	for i, w := range r.Windows {
		if !slices.Contains([]int{n / 8, 3 * n / 8, 5 * n / 8, 7 * n / 8}, i) {
			sum += w.KL
		}
	}
	want := float64(b.Mixture.KL)
	if b.Kept != conversion.MixtureKept {
		want = float64(b.Uniform.KL)
	}
	if got := sum / float64(b.Windows); n != b.Windows+4 || math.Abs(got-want) > 1e-6*want {
		t.Errorf("%s: divergence %g in %d windows, the budget states %g in %d", dst, got, n-4, want, b.Windows)
	}
}

// TestQuantizeBudgetFixed divides bits beside rules, and prints the plan of a dry run, whose measurements the run that follows takes.
func TestQuantizeBudgetFixed(t *testing.T) {
	at, model, text := budgetModel(t)
	args := []string{"quantize", model, at("dst"), "--budget", "6", "--text", text, "--method", "search", "--rule", "o_proj=fp8-row", "--rule",
		"layers.1.mlp=keep", "--exclude", "layers.2.mlp"}
	status, out, stderr := execute("", append(args, "--dry-run", "--plan-out", at("plan.toml"))...)
	if status != exitDone || !strings.Contains(out, "budget of 6 bits per weight") || !strings.Contains(out, "nothing was written") ||
		strings.Count(stderr, "predicted:") != 3 || !strings.Contains(stderr, "is kept for the next run in") {
		t.Error(out, stderr)
	}
	kept, err := filepath.Glob(at("dst.microscale-*"))
	if err != nil || len(kept) != 2 {
		t.Fatalf("%v, %v: want statistics and the divergences of groups", kept, err)
	}
	before := content(t, at("dst.microscale-budget.json"))
	for _, method := range []string{"search", "nearest"} { // of another run, with statistics or without
		other := append(slices.Clone(args), "--text", at("model/config.json"), "--method", method)
		if status, _, stderr := execute("", other...); status == exitDone || !strings.Contains(stderr, "dst.microscale-budget.json") ||
			!strings.Contains(stderr, "an interrupted run had another") || !strings.Contains(stderr, "text or tokenizer: repeat its command") {
			t.Errorf("method %s: status %d: %s", method, status, stderr)
		}
	}
	if !bytes.Equal(content(t, at("dst.microscale-budget.json")), before) {
		t.Error("another text replaces what was measured")
	}
	if status, _, stderr := execute("", args...); status != exitDone || strings.Contains(stderr, "predicted:") {
		t.Errorf("status %d: %s", status, stderr)
	}
	if left, _ := filepath.Glob(at("dst.*")); left != nil {
		t.Errorf("%v is left", left)
	}
	plan := string(content(t, at("plan.toml")))
	for _, want := range []string{"fp8-row", "keep", "nvfp4"} {
		if !strings.Contains(plan, want) {
			t.Errorf("no %s in %s", want, plan)
		}
	}
}

// TestQuantizeBudgetErrors has budgets that cannot be measured or kept.
func TestQuantizeBudgetErrors(t *testing.T) {
	at, model, text := budgetModel(t)
	short := at("short")
	if err := os.WriteFile(short, []byte(strings.Repeat("a short text ", 9)), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		args string
		want string
	}{
		{"--budget 6", "--budget needs --text FILE"},
		{"--budget -1 --text " + text, "--budget -1"},
		{"--budget 4 --text " + text, "the smallest formats take 4.5"},
		{"--budget 16 --text " + text, "the largest format needs 16"},
		{"--budget 6 --format nvfp4 --text " + text, "exclude each other"},
		{"--budget 6 --formats nvfp4 --text " + text, "at least two formats"},
		{"--budget 6 --formats f32,nvfp4 --text " + text, "f32 has no scales"},
		{"--budget 4.4 --formats mxfp4,nvfp4 --for mlx --text " + text, "mix mxfp4 and nvfp4"},
		{"--budget 6 --include lm_head --text " + text, "no linear layer of the decoder"},
		{"--budget 6 --method search --text " + short, "want at least 8: use a longer text"},
		{"--budget 8.3 --formats fp8-row,mxfp8 --text " + text + " --method nearest --for vllm", ""},
		{"--formats nvfp4,mxfp4 --format nvfp4", "--budget"},
	} {
		args := append([]string{"quantize", model, at("dst"), "--force"}, strings.Fields(c.args)...)
		if c.want == "" {
			done(t, args...)
			continue
		}
		if status, _, got := execute("", args...); status == exitDone || !strings.Contains(got, c.want) {
			t.Errorf("%s: got %s, want %s", c.args, got, c.want)
		}
		if left, _ := filepath.Glob(at("dst.*")); left != nil {
			t.Errorf("%s: work was done: %v", c.args, left)
		}
	}
}
