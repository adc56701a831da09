package main

import (
	"bytes"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/microscale-go/microscale/checkpoint"
	"github.com/microscale-go/microscale/cmd/microscale/internal/conversion"
	"github.com/microscale-go/microscale/hf"
	"github.com/microscale-go/microscale/safetensors"
)

// codesOf returns the bytes of each tensor of a checkpoint that is not a scale, by name, and the global scale of each weight.
func codesOf(t *testing.T, dir string) (codes map[string]string, globals map[string]float32) {
	t.Helper()
	source, err := hf.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer source.Close()
	codes, globals = map[string]string{}, map[string]float32{}
	for _, w := range checkpoint.Read(source).Weights {
		part, _ := w.Part(checkpoint.Codes)
		data := make([]byte, part.Bytes())
		if err := source.ReadTensorAt(part.Name, data, 0); err != nil {
			t.Fatal(err)
		}
		codes[w.Name], globals[w.Name] = string(data), w.Global
	}
	return codes, globals
}

// TestDistill: the divergence of the windows that are held out falls; only scales change, siblings share their global scale, and the
// result is valid; threads, a resumed run and a repeated one change no byte.
func TestDistill(t *testing.T) {
	at, model, text := modelAndText(t)
	plain := at("plain")
	done(t, "quantize", model, plain, "--format", "nvfp4", "--text", text)
	distill := func(dst string, more ...string) string {
		t.Helper()
		return done(t, append([]string{"quantize", model, dst, "--format", "nvfp4", "--text", text, "--distill", "100"}, more...)...)
	}
	weights := func(dst string) []byte { return content(t, filepath.Join(dst, "model.safetensors")) }
	one := at("one")
	d := parsed[conversion.Document](t, distill(one, "--threads", "1", "--json"))
	if d.Distilled == nil || !d.Distilled.Kept || d.Distilled.Steps != 100 || !(d.Distilled.After < 0.95*d.Distilled.Before) {
		t.Fatalf("got %+v", d.Distilled)
	}
	codes, _ := codesOf(t, plain)
	got, globals := codesOf(t, one)
	for name, want := range codes {
		if got[name] != want {
			t.Errorf("%s: codes changed", name)
		}
	}
	for _, siblings := range [][]string{{"self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"}, {"mlp.gate_proj", "mlp.up_proj"}} {
		for _, s := range siblings {
			if a, b := globals["model.layers.0."+siblings[0]+".weight"], globals["model.layers.0."+s+".weight"]; a != b || a == 0 {
				t.Errorf("%s: global scale %g, that of %s is %g", s, b, siblings[0], a)
			}
		}
	}
	if out := done(t, "verify", model, one); !strings.Contains(out, "14 weights calibrated") {
		t.Error(out)
	}
	if out := done(t, "inspect", one); !strings.Contains(out, "method gptq, scales distilled in 100 steps if that gained, seed 0") {
		t.Error(out)
	}
	if out := distill(at("three"), "--threads", "3"); !bytes.Equal(weights(at("three")), weights(one)) ||
		!strings.Contains(out, "distilled in 100 steps") {
		t.Errorf("threads change the result: %s", out)
	}
	done(t, "calibrate", model, "--text", text, "--hessian", "--out", at("s.safetensors"))
	distill(at("statistics"), "--calibration", at("s.safetensors"), "--method", "gptq")
	if c, g := codesOf(t, at("statistics")); !maps.Equal(c, got) || !maps.Equal(g, globals) {
		t.Error("statistics of the same text, collected before, change weights")
	}
	distill(at("seeded"), "--seed", "1")
	if bytes.Equal(weights(at("seeded")), weights(one)) {
		t.Error("the seed changes nothing")
	}
	if out := distill(one, "--resume"); !strings.Contains(out, "nothing was done") {
		t.Error(out)
	}
	if left, _ := filepath.Glob(at("*.microscale*")); left != nil {
		t.Errorf("%v is left", left)
	}
	norms := at("norms")
	distill(norms, "--distill-norms")
	if out := distill(norms, "--distill-norms", "--resume"); !strings.Contains(out, "nothing was done") {
		t.Error(out)
	}
	if out := done(t, "verify", model, norms); !strings.Contains(out, "5 weights without a bound of an element, as norms that were trained") {
		t.Error(out)
	}
	if before, _ := codesOf(t, plain); true {
		after, _ := codesOf(t, norms)
		for name := range before {
			if (before[name] != after[name]) != strings.Contains(name, "norm.") {
				t.Errorf("with norms, %s: changed is %v", name, before[name] != after[name])
			}
		}
	}
}

// TestDistillErrors: flags and models without distillation are one line, before any work.
func TestDistillErrors(t *testing.T) {
	at, model, text := modelAndText(t)
	if err := os.WriteFile(at("short"), bytes.Repeat([]byte("ab"), 20), 0o600); err != nil {
		t.Fatal(err)
	}
	done(t, "quantize", model, at("fp8"), "--format", "fp8-row", "--convention", "plain")
	for want, args := range map[string][]string{
		"--distill: scales of fp8-row": {at("fp8"), at("no"), "--text", text, "--distill", "3", "--requantize", "--rule",
			"self_attn=keep"},
		"add --text":                            {model, at("no"), "--distill", "3"},
		"--seed has no effect without":          {model, at("no"), "--text", text, "--seed", "3"},
		"--distill-norms has no effect without": {model, at("no"), "--text", text, "--distill-norms"},
		"got 0 steps, want at least one":        {model, at("no"), "--text", text, "--distill", "0"},
		"got -1 steps, want at least one":       {model, at("no"), "--text", text, "--distill", "-1"},
		"exclude each other":                    {model, at("no"), "--text", text, "--distill", "3", "--force"},
		"has no statistics":                     {model, at("no"), "--text", text, "--distill", "3", "--calibration", "constant"},
		"trains on the text":                    {model, at("no"), "--text", text, "--calibration", at("s.safetensors")},
		"writes a directory":                    {model, at("no.safetensors"), "--text", text, "--distill", "3"},
		"--distill: scales of int8-row":         {model, at("no"), "--text", text, "--distill", "3", "--rule", "self_attn=int8-row"},
		"changes nothing here":                  {model, at("no"), "--text", text, "--distill", "300", "--format", "mxfp4"},
		"holds a part of the text out":          {model, at("no"), "--text", at("short"), "--distill", "3"},
	} {
		status, _, stderr := execute("", append([]string{"quantize", "--format", "nvfp4"}, args...)...)
		if status == exitDone || !strings.Contains(stderr, want) {
			t.Errorf("%v: status %d, %q, want %q", args, status, stderr, want)
		}
		if left, _ := filepath.Glob(at("no*")); left != nil {
			t.Errorf("%v: work was done: %v", args, left)
		}
	}
}

// TestOtherRun: what an interrupted run with another text or other options has measured is not replaced, and a run without its training
// reports what is left. Two runs do not read texts for one destination.
func TestOtherRun(t *testing.T) {
	at, model, text := modelAndText(t)
	other, dst := at("other"), at("dst")
	if err := os.WriteFile(other, bytes.Repeat([]byte("ab"), 200), 0o600); err != nil {
		t.Fatal(err)
	}
	quantize := func(more ...string) (status int, stderr string) {
		status, _, stderr = execute("", append([]string{"quantize", model, dst, "--format", "nvfp4"}, more...)...)
		return status, stderr
	}
	blocked := dst + distilledSuffix + ".partial"
	if err := os.MkdirAll(filepath.Join(blocked, "file"), 0o700); err != nil { // the training cannot write its state
		t.Fatal(err)
	}
	if status, stderr := quantize("--text", other, "--distill", "3"); status == exitDone {
		t.Fatal(stderr)
	}
	if err := os.RemoveAll(blocked); err != nil {
		t.Fatal(err)
	}
	layout, err := safetensors.NewLayout(nil, map[string]string{"key": "seed 1"})
	if err != nil {
		t.Fatal(err)
	}
	state, err := safetensors.Create(dst+distilledSuffix, layout)
	if err == nil {
		err = state.Close()
	}
	if err != nil {
		t.Fatal(err)
	}
	status, stderr := quantize("--text", other, "--distill", "3")
	if status == exitDone || !strings.Contains(stderr,
		"an interrupted run had another model and another quantized model and "+
			"another seed and another text or tokenizer and another training and another version of this program: ") ||
		!strings.Contains(stderr, "undistilled and "+dst+distilledSuffix) {
		t.Errorf("status %d, %q", status, stderr)
	}
	if err := os.Remove(dst + distilledSuffix); err != nil {
		t.Fatal(err)
	}
	statistics := dst + ".microscale-statistics.safetensors"
	before := content(t, statistics)
	for want, list := range map[string][][]string{
		"dst: an interrupted run had another text or tokenizer: repeat its command to resume it, or, to start anew, remove " + statistics +
			" and " + dst + undistilledSuffix: {{"--text", text, "--resume"}, {"--text", text, "--distill", "3"},
			{"--text", text, "--distill", "3", "--resume"}},
		"dst: an interrupted run had another kind of statistics: ": {{"--text", other, "--distill", "3", "--method", "search"}},
		"has method gptq, scales distilled in 3 steps if that gained, seed 0, and this run method gptq, scales distilled in 4 steps if that " +
			"gained, seed 0: choose another name, or repeat the command of the interrupted run, or remove " + dst + undistilledSuffix +
			" to start anew": {{"--text", other, "--distill", "4", "--resume"}},
	} {
		for _, args := range list {
			status, stderr := quantize(args...)
			if status == exitDone || !strings.Contains(stderr, want) || !strings.Contains(stderr, statistics) {
				t.Errorf("%v: status %d, %q, want %q", args, status, stderr, want)
			}
			if !bytes.Equal(content(t, statistics), before) {
				t.Fatalf("%v: the statistics changed", args)
			}
		}
	}
	held, err := claim(dst)
	if err != nil {
		t.Fatal(err)
	}
	if status, stderr := quantize("--text", other, "--resume"); status == exitDone || !strings.Contains(stderr,
		"dst: another run is writing to it ("+dst+".microscale-running is locked): wait for it, or choose another destination\n") {
		t.Errorf("status %d, %q", status, stderr)
	}
	held.release()
	status, stderr = quantize("--text", other, "--resume")
	if status != exitDone || !strings.Contains(stderr, "an interrupted run with --distill left "+dst+undistilledSuffix+
		", which nothing needs") {
		t.Errorf("status %d, %q", status, stderr)
	}
	if left, _ := filepath.Glob(dst + ".*"); len(left) != 1 {
		t.Errorf("%v is left", left)
	}
}
