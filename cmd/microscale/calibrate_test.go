package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/microscale-go/microscale/cmd/microscale/internal/conversion"
	"github.com/microscale-go/microscale/cmd/microscale/internal/evaluation"
)

// TestStatistics collects statistics and quantizes with each method, weights alone and activations too.
func TestStatistics(t *testing.T) {
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	model, text, s := at("model"), at("text"), at("s.safetensors")
	done(t, tinyRun("--out", model)...)
	if err := os.WriteFile(text, []byte(strings.Repeat("All that is gold does not glitter.\n", 30)), 0o600); err != nil {
		t.Fatal(err)
	}
	done(t, "calibrate", model, "--text", text, "--hessian", "--out", s, "--threads", "1")
	done(t, "calibrate", model, "--text", text, "--hessian", "--out", at("again.safetensors"), "--threads", "3")
	if !bytes.Equal(content(t, s), content(t, at("again.safetensors"))) {
		t.Error("threads change the statistics")
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
			if d := parsed[evaluation.ByteDocument](t, done(t, "eval", dst, "--activations", "--tokens", "64", "--json")); d.StoredScales != 14 {
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
