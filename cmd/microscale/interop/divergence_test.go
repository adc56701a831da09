package interop

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/microscale-go/microscale/cmd/microscale/internal/evaluation"
	"github.com/microscale-go/microscale/cmd/microscale/internal/evaluation/windows"
	"github.com/microscale-go/microscale/convert"
	"github.com/microscale-go/microscale/internal/slow"
	"github.com/microscale-go/microscale/profile"
	"github.com/microscale-go/microscale/quant"
	"github.com/microscale-go/microscale/safetensors"
)

// newEvaluation returns an evaluation of SmolLM2 on the license.
func newEvaluation(t *testing.T, method string) evaluation.Evaluation {
	t.Helper()
	m, err := windows.LookupMethod(method)
	if err != nil {
		t.Fatal(err)
	}
	return evaluation.Evaluation{Model: smollm2(t), Text: filepath.Join("..", "..", "..", "LICENSE"), Method: m, Context: 512,
		Stderr: io.Discard}
}

func runEvaluation(t *testing.T, e evaluation.Evaluation) evaluation.Document {
	t.Helper()
	r, err := e.Run(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return r.Document()
}

// requireLoss compares the loss of SmolLM2 on the license with that of transformers in F32.
func requireLoss(t *testing.T, d evaluation.Document, nll float64, scored int) {
	t.Helper()
	if d.Tokens != 2214 || d.Windows != 4 || d.Scored != scored || math.Abs(float64(d.NLL)-nll) > 1e-4 {
		t.Errorf("%s: %d tokens, %d windows, %d scored, %.6f nats, want %.6f of %d", d.Method, d.Tokens, d.Windows, d.Scored, float64(d.NLL), nll,
			scored)
	}
}

// TestEvaluation compares the losses and divergences of SmolLM2 on 94 tokens, in a format of each kind of scale, with
// those of the computation that TestTorchDivergence and TestSmolLM2Formats check on more. One layer in memory at a time
// gives the same bits. TestSmolLM2 compares, with -full, the loss of the whole text with that of transformers.
func TestEvaluation(t *testing.T) {
	slow.Long(t, "it evaluates a real model in several formats")
	e := newEvaluation(t, "llama.cpp")
	e.Text = filepath.Join(t.TempDir(), "text")
	if err := os.WriteFile(e.Text, read(t, "../../..", "LICENSE")[:1000], 0o600); err != nil {
		t.Fatal(err)
	}
	int4, err := quant.Lookup("int4-g64")
	if err != nil {
		t.Fatal(err)
	}
	wants := []struct {
		format  quant.Format
		nll, kl float64
	}{
		{quant.MXFP8, 2.91635, 0.02871},
		{quant.NVFP4, 2.96900, 0.28020},
		{quant.FP8Block, 2.86330, 0.02083},
		{int4, 3.04286, 0.52862},
	}
	for _, want := range wants {
		e.Formats = append(e.Formats, want.format)
	}
	e.Context = 96
	d := runEvaluation(t, e)
	if d.Windows != 2 || d.Scored != 94 || math.Abs(float64(d.NLL)-2.84747) > 1e-4 {
		t.Errorf("%d windows, %d scored, %.6f nats, want 2.84747 of 94", d.Windows, d.Scored, float64(d.NLL))
	}
	for i, f := range d.Formats {
		if math.Abs(float64(f.NLL)-wants[i].nll) > 1e-4 || math.Abs(float64(f.KL.Mean)-wants[i].kl) > 2e-5 {
			t.Errorf("%s: %.6f nats, divergence %.6f, want %.5f and %.5f", f.Format, float64(f.NLL), float64(f.KL.Mean), wants[i].nll, wants[i].kl)
		}
	}
	e.Formats, e.Stream = e.Formats[:1], filepath.Join(t.TempDir(), "scratch")
	if s := runEvaluation(t, e); s.LossDocument != d.LossDocument || s.Formats[0].KL != d.Formats[0].KL {
		t.Errorf("with one layer in memory: %+v and %+v, in memory: %+v and %+v", s.LossDocument, s.Formats[0], d.LossDocument, d.Formats[0])
	}
}

// TestTorchDivergence compares the divergence of SmolLM2 in two formats from the original with a
// computation of PyTorch on the dequantized weights.
func TestTorchDivergence(t *testing.T) {
	interpreter := withTorch(t, "transformers does not compute divergences", architecturesWith...)
	root := t.TempDir()
	e := newEvaluation(t, "llama.cpp")
	text := string(read(t, "../../..", "LICENSE"))[:4500]
	e.Context, e.Text = 256, filepath.Join(root, "text")
	if err := os.WriteFile(e.Text, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	e.Formats = []quant.Format{quant.NVFP4, quant.MXFP8}
	original := filepath.Join(root, "original")
	writeDecoded(t, e.Model, original, safetensors.F32)
	args := []string{filepath.Join(root, "tokens.json"), fmt.Sprint(e.Context), filepath.Join(root, "result.json"), original}
	for _, f := range e.Formats {
		quantized, decoded := filepath.Join(root, f.Name), filepath.Join(root, f.Name+"-decoded")
		quantizeTo(t, original, quantized, f)
		writeDecoded(t, quantized, decoded, safetensors.F32)
		args = append(args, decoded)
	}
	tokens, err := json.Marshal(tokensOf(t, e.Model, text))
	if err == nil {
		err = os.WriteFile(args[0], tokens, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	got := runEvaluation(t, e)
	script(t, interpreter, "divergence.py", args...)
	var wants []struct {
		NLL, KL, Max float64
		SameTop      float64 `json:"same_top"`
		Scored       int
	}
	if err := json.Unmarshal(read(t, root, "result.json"), &wants); err != nil || len(wants) != len(got.Formats) {
		t.Fatalf("%v (%v)", wants, err)
	}
	for i, f := range got.Formats {
		want := wants[i]
		t.Logf("%s: KL %.8f, PyTorch's %.8f; %.6f nats, PyTorch's %.6f", f.Format, float64(f.KL.Mean), want.KL, float64(f.NLL), want.NLL)
		if math.Abs(float64(f.KL.Mean)-want.KL) > 1e-5 || math.Abs(float64(f.NLL)-want.NLL) > 1e-4 ||
			math.Abs(float64(f.KL.Max)-want.Max) > 1e-3 {
			t.Errorf("%s: got %+v, want %+v", f.Format, f, want)
		}
		if got.Scored != want.Scored || math.Abs(float64(f.SameTop)-want.SameTop) > 1e-3 {
			t.Errorf("%s: same top %g of %d, want %g of %d", f.Format, float64(f.SameTop), got.Scored, want.SameTop, want.Scored)
		}
	}
}

// writeDecoded writes the values of a checkpoint as a Hugging Face directory.
func writeDecoded(t *testing.T, path, dir string, dtype safetensors.Dtype) {
	t.Helper()
	source, err := convert.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer source.Close()
	plan, err := convert.PlanDequantize(t.Context(), source, dtype)
	if err == nil {
		_, err = plan.Run(t.Context(), dir, convert.RunOptions{})
	}
	if err != nil {
		t.Fatal(err)
	}
}

// quantizeTo quantizes a checkpoint by the profile of the format.
func quantizeTo(t *testing.T, src, dst string, f quant.Format) {
	t.Helper()
	source, err := convert.Open(src)
	if err != nil {
		t.Fatal(err)
	}
	defer source.Close()
	q, err := profile.For(f).Quantizer(f)
	if err != nil {
		t.Fatal(err)
	}
	plan, err := convert.PlanQuantize(t.Context(), source, convert.QuantizeOptions{Quantizer: q})
	if err == nil {
		_, err = plan.Run(t.Context(), dst, convert.RunOptions{})
	}
	if err != nil {
		t.Fatal(err)
	}
}

// TestSmolLM2Formats evaluates SmolLM2 in every format, and compares the table of docs/results.md and
// the output of eval in README.md with the result.
func TestSmolLM2Formats(t *testing.T) {
	slow.Full(t, "it evaluates a real model in every format")
	e := newEvaluation(t, "llama.cpp")
	for _, f := range quant.Formats() {
		if f.Scaled() {
			e.Formats = append(e.Formats, f)
		}
	}
	r, err := e.Run(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	d := r.Document()
	requireLoss(t, d, 2.767366, 1020)
	var table strings.Builder
	table.WriteString("| format | bits/weight | perplexity | KL divergence, mean | median | 99 % | same top | RMS of Δp | size MB " +
		"|\n|---|--:|--:|--:|--:|--:|--:|--:|--:|\n")
	fmt.Fprintf(&table, "| original | | %.3f | | | | | | |\n", float64(d.Perplexity))
	for _, f := range d.Formats {
		fmt.Fprintf(&table, "| %s | %.4g | %.3f | %.5f ± %.5f | %.5f | %.4f | %.1f %% | %.4f | %.1f |\n", f.Format, float64(f.Bits),
			float64(f.Perplexity),
			float64(f.KL.Mean), float64(f.KL.Error), float64(f.KL.Median), float64(f.KL.P99), 100*float64(f.SameTop), float64(f.DeltaP.RMS),
			float64(f.Size)/1e6)
	}
	sameGenerated(t, filepath.Join("docs", "results.md"), "smollm2 formats", table.String(), sameFigures)
	compareReadme(t, r, e)
}

// compareReadme compares the output of eval in README.md, which shows three of the formats, except for
// the time and the widths of columns. With -update, it runs eval of the three.
func compareReadme(t *testing.T, r *evaluation.Evaluated, e evaluation.Evaluation) {
	t.Helper()
	shown := []quant.Format{quant.MXFP8, quant.NVFP4, quant.MXFP4}
	if *update {
		var err error
		e.Formats = shown
		if r, err = e.Run(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	r.Model = filepath.Base(r.Model)
	var text bytes.Buffer
	if err := r.Print(&text, false); err != nil {
		t.Fatal(err)
	}
	printed := "$ microscale eval " + r.Model + " --text LICENSE --formats mxfp8,nvfp4,mxfp4\n" + strings.Replace(text.String(), e.Text,
		"LICENSE", 1)
	printed = strings.ReplaceAll("    "+strings.ReplaceAll(strings.TrimSpace(printed), "\n", "\n    ")+"\n", "    \n", "\n")
	rows := func(text string) string {
		var all []string
		for line := range strings.Lines(scoredIn.ReplaceAllString(text, "scored")) {
			words := strings.Fields(line)
			if len(words) == 0 || strings.Trim(words[0], "─") == "" {
				continue
			}
			other := slices.ContainsFunc(quant.Formats(), func(f quant.Format) bool { return f.Name == words[0] })
			for _, f := range shown {
				other = other && f.Name != words[0]
			}
			if !other {
				all = append(all, strings.Join(words, " "))
			}
		}
		slices.Sort(all) // the formats have another order
		return strings.Join(all, "\n")
	}
	sameGenerated(t, "README.md", "smollm2 eval", printed, func(a, b string) bool { return sameFigures(rows(a), rows(b)) })
}

// scoredIn matches the time in the output of eval.
var scoredIn = regexp.MustCompile(`scored, in .*`)
