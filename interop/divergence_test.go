package interop

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"testing"

	"github.com/microscale-go/microscale/convert"
	"github.com/microscale-go/microscale/hf"
	"github.com/microscale-go/microscale/internal/assess"
	"github.com/microscale-go/microscale/internal/checkpoint"
	"github.com/microscale-go/microscale/internal/evaluate"
	"github.com/microscale-go/microscale/profile"
	"github.com/microscale-go/microscale/quant"
	"github.com/microscale-go/microscale/safetensors"
)

// newEvaluation returns an evaluation of SmolLM2 on the license.
func newEvaluation(t *testing.T, method string) assess.Evaluation {
	t.Helper()
	m, err := evaluate.LookupMethod(method)
	if err != nil {
		t.Fatal(err)
	}
	return assess.Evaluation{Model: smollm2(t), Text: filepath.Join("..", "LICENSE"), Method: m, Context: 512, Stderr: io.Discard}
}

func runEvaluation(t *testing.T, e assess.Evaluation) assess.Document {
	t.Helper()
	r, err := e.Run(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return r.Document()
}

// TestEvaluation compares the losses of SmolLM2 by two methods with those of transformers in F32. One
// layer in memory at a time gives the same bits.
func TestEvaluation(t *testing.T) {
	for method, want := range map[string]struct {
		nll    float64
		scored int
	}{"llama.cpp": {2.767366, 1020}, "all": {2.882594, 2044}} {
		e := newEvaluation(t, method)
		d := runEvaluation(t, e)
		if d.Tokens != 2214 || d.Windows != 4 || d.Scored != want.scored || math.Abs(float64(d.NLL)-want.nll) > 1e-4 {
			t.Errorf("%s: %d tokens, %d windows, %d scored, %.6f nats, want %.6f", method, d.Tokens, d.Windows, d.Scored, float64(d.NLL), want.nll)
		}
		e.Stream = filepath.Join(t.TempDir(), "scratch")
		if s := runEvaluation(t, e); s.LossDocument != d.LossDocument {
			t.Errorf("%s with one layer in memory: %+v, in memory: %+v", method, s.LossDocument, d.LossDocument)
		}
	}
}

// TestTorchDivergence compares the divergence of SmolLM2 in two formats from the original with a
// computation of PyTorch on the dequantized weights.
func TestTorchDivergence(t *testing.T) {
	interpreter := withTorch(t, "transformers does not compute divergences", architecturesWith...)
	root := t.TempDir()
	e := newEvaluation(t, "llama.cpp")
	e.Formats = []quant.Format{quant.NVFP4, quant.MXFP8}
	original := filepath.Join(root, "original")
	writeDecoded(t, e.Model, original)
	args := []string{filepath.Join(root, "tokens.json"), fmt.Sprint(e.Context), original}
	for _, f := range e.Formats {
		quantized, decoded := filepath.Join(root, f.Name), filepath.Join(root, f.Name+"-decoded")
		quantizeTo(t, original, quantized, f)
		writeDecoded(t, quantized, decoded)
		args = append(args, decoded)
	}
	tokens, err := json.Marshal(tokensOf(t, e.Model, string(read(t, "..", "LICENSE"))))
	if err == nil {
		err = os.WriteFile(args[0], tokens, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	got := runEvaluation(t, e)
	lines := bufio.NewScanner(bytes.NewReader(scriptOutput(t, interpreter, "divergence.py", args...)))
	for _, f := range got.Formats {
		var want struct {
			NLL, KL, Max float64
			SameTop      float64 `json:"same_top"`
			Scored       int
		}
		if !lines.Scan() {
			t.Fatalf("%s: no output (%v)", f.Format, lines.Err())
		}
		if err := json.Unmarshal(lines.Bytes(), &want); err != nil {
			t.Fatal(err)
		}
		t.Logf("%s: KL %.8f, PyTorch's %.8f; %.6f nats, PyTorch's %.6f", f.Format, float64(f.KL.Mean), want.KL, float64(f.NLL), want.NLL)
		if math.Abs(float64(f.KL.Mean)-want.KL) > 1e-5 || math.Abs(float64(f.NLL)-want.NLL) > 1e-4 || math.Abs(float64(f.KL.Max)-want.Max) > 1e-3 {
			t.Errorf("%s: got %+v, want %+v", f.Format, f, want)
		}
		if got.Scored != want.Scored || math.Abs(float64(f.SameTop)-want.SameTop) > 1e-3 {
			t.Errorf("%s: same top %g of %d, want %g of %d", f.Format, float64(f.SameTop), got.Scored, want.SameTop, want.Scored)
		}
	}
}

// writeDecoded writes the values of a checkpoint as a Hugging Face directory in F32.
func writeDecoded(t *testing.T, path, dir string) {
	t.Helper()
	source, err := convert.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer source.Close()
	plan, err := convert.PlanDequantize(t.Context(), source, safetensors.F32)
	if source.Config == nil { // a GGUF file
		dst := dir
		dir = filepath.Join(dir, "model.safetensors")
		err = errors.Join(err, os.MkdirAll(dst, 0o700), os.WriteFile(filepath.Join(dst, hf.ConfigName), checkpoint.Read(source).Configuration, 0o600))
	}
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
