package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/microscale-go/microscale/cmd/microscale/internal/conversion"
	"github.com/microscale-go/microscale/cmd/microscale/internal/evaluation"
	"github.com/microscale-go/microscale/safetensors"
)

// modelAndText returns the paths of a tiny model and of a text, and of further names beside them.
func modelAndText(t *testing.T) (at func(name string) string, model, text string) {
	t.Helper()
	dir := t.TempDir()
	at = func(name string) string { return filepath.Join(dir, name) }
	model, text = at("model"), at("text")
	done(t, tinyRun("--out", model)...)
	if err := os.WriteFile(text, []byte(strings.Repeat("All that is gold does not glitter.\n", 30)), 0o600); err != nil {
		t.Fatal(err)
	}
	return at, model, text
}

// TestStatistics collects statistics and quantizes with each method, weights alone and activations too.
func TestStatistics(t *testing.T) {
	at, model, text := modelAndText(t)
	s := at("s.safetensors")
	done(t, "calibrate", model, "--text", text, "--hessian", "--out", s, "--threads", "1")
	done(t, "calibrate", model, "--text", text, "--hessian", "--out", at("again.safetensors"), "--threads", "3")
	if !bytes.Equal(content(t, s), content(t, at("again.safetensors"))) {
		t.Error("threads change the statistics")
	}
	for more, want := range map[string]bool{"--json": true, "--method=nearest": false} {
		const note = "only the amaxes of activations are used"
		out := done(t, "quantize", model, at("plain"), "--format", "nvfp4", "--calibration", s, "--dry-run", more)
		if strings.Contains(out, note) != want {
			t.Errorf("%s: %s", more, out)
		}
	}
	fold := []string{"fold", model, at("folded"), "--format", "nvfp4", "--calibration", s, "--statistics", at("f.safetensors")}
	if out := done(t, fold...); !strings.Contains(out, "inputs folded, in") {
		t.Errorf("fold: %s", out)
	}
	status, stdout, stderr := execute("", fold...)
	fails(t, status, stdout, stderr, at("f.safetensors")+" exists: name another file")
	statistics := content(t, at("f.safetensors"))
	for out, want := range map[string]string{s: "exists: name another file",
		filepath.Join(model, "model.safetensors"):    "exists: name another file",
		filepath.Join(at("folded"), "s.safetensors"): "is DST or in it", filepath.Join(at("none"), "s.safetensors"): "create the directory"} {
		for _, flag := range []string{"--force", "--resume"} {
			before, _ := os.ReadFile(out)
			_, _, stderr := execute("", append(fold, flag, "--statistics", out)...)
			if after, _ := os.ReadFile(out); !strings.Contains(stderr, want) || !bytes.Equal(before, after) {
				t.Errorf("%s, %s: got %q, want %q and the file as it was", flag, out, stderr, want)
			}
		}
	}
	fold[2] = at("not")
	_, _, stderr = execute("", append(fold, "--statistics", at("new.safetensors"), "--calibration",
		withoutAmaxes(t, s, at("old.safetensors")))...)
	if _, err := os.Stat(at("not")); err == nil || !strings.Contains(stderr, "has no amaxes of its columns: collect the statistics again") {
		t.Errorf("statistics without amaxes of columns: got %q, %v", stderr, err)
	}
	fold[2] = at("folded")
	if done(t, append(fold, "--resume")...); !bytes.Equal(content(t, at("f.safetensors")), statistics) {
		t.Error("another run writes other statistics")
	}
	done(t, "calibrate", at("folded"), "--text", text, "--hessian", "--out", at("anew.safetensors"))
	for _, name := range []string{"f", "anew"} {
		done(t, "quantize", at("folded"), at(name), "--format", "nvfp4", "--scheme", "NVFP4", "--method", "gptq", "--calibration",
			at(name+".safetensors"))
	}
	if !bytes.Equal(content(t, filepath.Join(at("f"), "model.safetensors")), content(t, filepath.Join(at("anew"), "model.safetensors"))) {
		t.Error("statistics that fold writes give other codes than those of the folded model")
	}
	whole, folded := done(t, "eval", model, "--tokens", "64", "--json"), done(t, "eval", at("folded"), "--tokens", "64", "--json")
	if a, b := parsed[evaluation.Document](t, whole), parsed[evaluation.Document](t, folded); a.NLL != b.NLL {
		t.Errorf("the folded model has the loss %v, want %v", b.NLL, a.NLL)
	}
	amaxes := parsed[conversion.InspectDocument](t, done(t, "inspect", amaxOnly(t, model, text, at("amax")), "--json"))
	for _, method := range []string{"search", "gptq"} {
		for name, more := range map[string][]string{"weights": nil, "scheme": {"--scheme", "NVFP4"}, "activations": {"--activations", s},
			"text": {"--activations", text}} {
			dst := at(method + "-" + name)
			out := done(t, append([]string{"quantize", model, dst, "--format", "nvfp4", "--method", method, "--calibration", s}, more...)...)
			if !strings.Contains(out, "method "+method) || strings.Contains(out, "gain dB") {
				t.Errorf("%s: %s", dst, out)
			}
			if out := done(t, "inspect", dst); !strings.Contains(out, "method "+method) {
				t.Errorf("%s: inspect does not name the method: %s", dst, out)
			}
			got := parsed[conversion.InspectDocument](t, done(t, "inspect", dst, "--json"))
			if want := map[bool]string{true: "NVFP4A16", false: "NVFP4"}[more == nil]; got.Method != method || got.Scheme != want {
				t.Errorf("%s: method %q, scheme %q, want %s", dst, got.Method, got.Scheme, want)
			}
			if more != nil && (len(got.Weights) != len(amaxes.Weights) || !bytes.Equal(content(t, filepath.Join(dst, "config.json")),
				content(t, filepath.Join(at("amax"), "config.json")))) {
				t.Errorf("%s: other tensors or another configuration than to nearest", dst)
			}
			done(t, "verify", model, dst)
			if more == nil {
				continue
			}
			if d := parsed[evaluation.Document](t, done(t, "eval", dst, "--activations", "--tokens", "64", "--json")); d.StoredScales != 14 {
				t.Errorf("%s: eval uses %d stored scales, want 14", dst, d.StoredScales)
			}
		}
	}
	for _, name := range []string{"activations", "text"} {
		if file := "model.safetensors"; !bytes.Equal(content(t, filepath.Join(at("gptq-"+name), file)),
			content(t, filepath.Join(at("gptq-scheme"), file))) {
			t.Errorf("%s: other bytes than by the scheme", name)
		}
	}
	out := done(t, "quantize", model, at("dry"), "--format", "nvfp4", "--activations", text, "--dry-run")
	if _, err := os.Stat(at("dry")); err == nil || !strings.Contains(out, "nothing was written") {
		t.Errorf("%v, %s", err, out)
	}
}

// withoutAmaxes writes statistics as older programs did, to a file whose path it returns: without amaxes of columns.
func withoutAmaxes(t *testing.T, statistics, path string) string {
	t.Helper()
	f, err := safetensors.Open(statistics)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	const key = "microscale.calibration"
	header := parsed[map[string]any](t, f.Metadata()[key])
	delete(header, "names")
	text, err := json.Marshal(header)
	if err != nil {
		t.Fatal(err)
	}
	var specs []safetensors.Spec
	for _, info := range f.Tensors() {
		if !strings.HasSuffix(info.Name, ".amax") {
			specs = append(specs, safetensors.Spec{Name: info.Name, Dtype: info.Dtype, Shape: info.Shape})
		}
	}
	layout, err := safetensors.NewLayout(specs, map[string]string{key: string(text)})
	if err != nil {
		t.Fatal(err)
	}
	w, err := safetensors.Create(path, layout)
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range specs {
		info, _ := f.Lookup(s.Name)
		data := make([]byte, info.Bytes())
		err = errors.Join(err, f.ReadTensorAt(data, info, 0), w.WriteTensorAt(s.Name, data, 0))
	}
	if err := errors.Join(err, w.Close()); err != nil {
		t.Fatal(err)
	}
	return path
}

// amaxOnly quantizes to nearest with activations.
func amaxOnly(t *testing.T, model, text, dst string) string {
	t.Helper()
	done(t, "quantize", model, dst, "--format", "nvfp4", "--activations", text, "--threads", "1")
	return dst
}

func content(t *testing.T, path string) []byte {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// TestQuantizeText quantizes by a text in one command: with the tensors of calibrate and quantize, whatever the number of threads, and
// leaving nothing beside the result. To resume what is finished takes no calibration.
func TestQuantizeText(t *testing.T) {
	at, model, text := modelAndText(t)
	s := at("s.safetensors")
	done(t, "calibrate", model, "--text", text, "--hessian", "--out", s)
	for _, method := range []string{"", "search"} {
		two, flag := at("two"+method), []string{}
		if method != "" {
			flag = []string{"--method", method}
		}
		if method == "" {
			method = "gptq"
		}
		done(t, "quantize", model, two, "--format", "mxfp4", "--calibration", s, "--method", method)
		for _, threads := range []string{"1", "3"} {
			one := at("one-" + method + threads)
			out := done(t, append([]string{"quantize", model, one, "--format", "mxfp4", "--text", text, "--threads", threads}, flag...)...)
			if !strings.Contains(out, "method "+method) || recordedTensors(t, filepath.Join(one, "model.safetensors")) !=
				recordedTensors(t, filepath.Join(two, "model.safetensors")) {
				t.Errorf("%s, %s threads: other tensors than in two commands: %s", method, threads, out)
			}
			if left, _ := filepath.Glob(one + ".*"); left != nil {
				t.Errorf("%v is left", left)
			}
			again := []string{"quantize", model, one, "--format", "mxfp4", "--text", text, "--resume", "--method", method}
			if status, out, stderr := execute("", again...); status != exitDone || !strings.Contains(out, "nothing was done") || stderr != "" {
				t.Errorf("resumed: status %d, %s%s", status, out, stderr)
			}
			again[6] = filepath.Join(model, "config.json")
			if status, _, stderr := execute("", again...); status == exitDone || !strings.Contains(stderr, "is not the finished result") {
				t.Errorf("another text: status %d, %s", status, stderr)
			}
		}
	}
	write := func(name string, data []byte) string {
		t.Helper()
		if err := os.WriteFile(at(name), data, 0o600); err != nil {
			t.Fatal(err)
		}
		return at(name)
	}
	for want, flags := range map[string][]string{
		"there is no text: name a file or a dir":                            {"--text", write("empty", nil)},
		"lm_head is no linear layer of the deco":                            {"--text", text, "--include", "lm_head"},
		"short: the text has 5 tokens, want at least 32: use a longer text": {"--text", write("short", []byte("short"))},
		"binary: the text is binary, or not UTF-8: name a file of":          {"--text", write("binary", []byte("a\xff\x00"))},
		"all tokens of the text are the same":                               {"--text", write("same", bytes.Repeat([]byte{'x'}, 3000))},
		"line 1: it is not a JSON object":                                   {"--text", write("bad.jsonl", []byte("hello\n"))},
		"no such file":                                                      {"--text", at("none")},
		"than the 1.00 MB allowed: use --method search, or allow more":      {"--text", text, "--memory", "1MB"},
		"than the 1.00 MB allowed: allow more":                              {"--text", text, "--memory", "1MB", "--method", "search"},
		"conversations need a model with a chat": {"--text", write("c.jsonl",
			[]byte(`{"messages": [{"role": "user", "content": "hello"}]}`))},
	} {
		status, stdout, stderr := execute("", append([]string{"quantize", model, at("no"), "--format", "mxfp4"}, flags...)...)
		lines := strings.Split(strings.TrimSpace(stderr), "\n")
		if status != exitFailed || stdout != "" || !strings.Contains(lines[len(lines)-1], want) || len(lines) > 2 {
			t.Errorf("%v: status %d, %q, want %q", flags, status, stderr, want)
		}
		if left, _ := filepath.Glob(at("no*")); left != nil {
			t.Errorf("%v: %v is left", flags, left)
		}
	}
	for want, flags := range map[string][]string{
		"--scale-search has no effect with method gptq": {"--scale-search"},
		"omit --text":                               {"--method", "nearest"},
		"--text and --calibration exclude":          {"--calibration", s},
		"supports formats with a scale of one byte": {"--format", "fp8-row"},
	} {
		if status, _, stderr := execute("", append([]string{"quantize", model, at("no"), "--format", "mxfp4", "--text", text},
			flags...)...); status == exitDone || !strings.Contains(stderr, want) {
			t.Errorf("%v: status %d, %q", flags, status, stderr)
		}
	}
}

// TestQuantizeTextGGUF: method gptq gives a GGUF file the codes of a directory.
func TestQuantizeTextGGUF(t *testing.T) {
	at, model, text := modelAndText(t)
	for _, dst := range []string{"dir", "file.gguf"} {
		done(t, "quantize", model, at(dst), "--format", "mxfp4", "--text", text, "--method", "gptq")
	}
	out := done(t, "diff", at("dir"), at("file.gguf"))
	if !strings.Contains(out, "14 layout only") {
		t.Error(out)
	}
	done(t, "convert", at("dir"), at("converted.gguf"), "--convention", "gguf")
	for _, name := range []string{"dir", "file.gguf", "converted.gguf"} {
		if out := done(t, "verify", model, at(name)); !strings.Contains(out, "14 weights calibrated") {
			t.Errorf("%s: verify does not know that its codes are not the nearest:\n%s", name, out)
		}
		if out := done(t, "identify", at(name)); !strings.Contains(out, "unknown: by its metadata, method gptq") {
			t.Errorf("%s: identify names a rule although a method chose the scales:\n%s", name, out)
		}
	}
}
