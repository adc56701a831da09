package main

import (
	"bytes"
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/microscale-go/microscale/cmd/microscale/internal/evaluation"
	"github.com/microscale-go/microscale/internal/slow"
)

// searchedWeight runs a command with --json, and returns the first weight and the search.
func searchedWeight(t *testing.T, args ...string) (search string, sqnr, nearest float64) {
	t.Helper()
	status, out, stderr := execute("", append(args, "--json")...)
	var doc struct {
		Search  string `json:"scale_search"`
		Tensors []struct {
			SQNR    *float64 `json:"sqnr_db"`
			Nearest *float64 `json:"nearest_sqnr_db"`
		} `json:"tensors"`
	}
	if err := json.Unmarshal([]byte(out), &doc); err != nil || status != 0 {
		t.Fatalf("%v: status %d, %v: %s", args, status, err, stderr)
	}
	for _, w := range doc.Tensors {
		if w.SQNR != nil && w.Nearest != nil {
			return doc.Search, *w.SQNR, *w.Nearest
		}
	}
	t.Fatalf("%v: no weight says what it gains: %s", args, out)
	return "", 0, 0
}

// TestScaleSearch checks that quantize and verify report the same gain of a scale
// search, and that inspect names the search.
func TestScaleSearch(t *testing.T) {
	dir := t.TempDir()
	src := filepath.Join(dir, "w.safetensors")
	weightsFile(t, src, twoWeights()...)
	for _, tc := range []struct{ format, flag, name string }{
		{"mxfp4", "--scale-search", "mse"},
		{"nvfp4", "--scale-search=mse", "mse"},
		{"nvfp4", "--scale-search=four-over-six", "four-over-six"},
		{"fp8-block128", "--scale-search", "mse"},
	} {
		dst := filepath.Join(dir, tc.format+tc.name+".safetensors")
		name, sqnr, nearest := searchedWeight(t, "quantize", src, dst, "--format", tc.format, tc.flag)
		if name != tc.name || sqnr < nearest || tc.format != "mxfp4" && sqnr == nearest {
			t.Errorf("%s: the search is called %q and gains %g dB over %g", tc.format, name, sqnr-nearest, nearest)
		}
		_, verified, plain := searchedWeight(t, "verify", src, dst, "--nearest")
		if verified != sqnr || tc.name == "mse" && math.Abs(plain-nearest) > 0.001 { // four-over-six has another global scale
			t.Errorf("%s: verify finds %g and %g dB, quantize %g and %g", tc.format, verified, plain, sqnr, nearest)
		}
		if _, out, _ := execute("", "inspect", dst); !strings.Contains(out, "scale search "+tc.name) {
			t.Errorf("%s: inspect does not name the search: %s", tc.format, out)
		}
	}
	for _, args := range [][]string{
		{"--format", "fp8-tensor", "--scale-search"},
		{"--format", "mxfp4", "--scale-search=four-over-six"},
		{"--format", "mxfp4", "--scale-search=best"},
	} {
		if status, _, stderr := execute("", append([]string{"quantize", src, filepath.Join(dir, "no")}, args...)...); status != 2 ||
			strings.Count(stderr, "\n") > 3 {
			t.Errorf("%v: status %d, %s", args, status, stderr)
		}
	}
}

// TestNearestProfile checks that a checkpoint quantized by a profile gains nothing over
// the rules of that profile, and something over those of others.
func TestNearestProfile(t *testing.T) {
	dir := t.TempDir()
	src, dst := filepath.Join(dir, "w.safetensors"), filepath.Join(dir, "ocp.safetensors")
	weightsFile(t, src, twoWeights()...)
	if status, _, stderr := execute("", "quantize", src, dst, "--format", "mxfp4", "--profile", "ocp"); status != 0 {
		t.Fatal(stderr)
	}
	if _, sqnr, nearest := searchedWeight(t, "verify", src, dst, "--nearest", "--profile", "ocp"); sqnr != nearest {
		t.Errorf("by its own profile: %g and %g dB", sqnr, nearest)
	}
	if _, sqnr, nearest := searchedWeight(t, "verify", src, dst, "--nearest"); sqnr == nearest {
		t.Errorf("by Transformer Engine's: %g dB, the same", sqnr)
	}
	for want, args := range map[string][]string{"--profile applies to --nearest": {"--profile", "ocp"},
		"profile deepseek does not define mxfp4": {"--nearest", "--profile", "deepseek"}} {
		if status, _, stderr := execute("", append([]string{"verify", src, dst}, args...)...); status == 0 || !strings.Contains(stderr, want) {
			t.Errorf("%v: status %d, %s", args, status, stderr)
		}
	}
}

// TestActivationsErrors: what --activations cannot do is an error before the text is read.
func TestActivationsErrors(t *testing.T) {
	dst := filepath.Join(t.TempDir(), "dst")
	for want, line := range map[string]string{
		"stores no scales of activations for mxfp8":    "--format mxfp8",
		"--activations and --calibration both set":     "--format nvfp4 --calibration constant",
		"--activations and --shard exclude each other": "--format nvfp4 --shard 0/2",
		"none.txt: no such file":                       "--format nvfp4",
	} {
		status, stdout, stderr := execute("", append([]string{"quantize", filepath.Join("internal", "demo", "model"), dst, "--activations",
			"none.txt"}, strings.Fields(line)...)...)
		if status == exitDone || stdout != "" || !strings.Contains(stderr, want) {
			t.Errorf("%s: exit status %d, %s", line, status, stderr)
		}
	}
}

// TestCalibrate quantizes with the amaxes of calibrate, and evaluates with the stored
// scales.
func TestCalibrate(t *testing.T) {
	slow.Race(t, slow.Repeats)
	dir := t.TempDir()
	model := filepath.Join(dir, "model")
	if status, _, stderr := execute("", tinyRun("--out", model)...); status != 0 {
		t.Fatal(stderr)
	}
	text := filepath.Join(dir, "text")
	if err := os.WriteFile(text, []byte(strings.Repeat("All that is gold does not glitter.\n", 20)), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"amax.toml", "amax.json"} {
		file := filepath.Join(dir, name)
		args, cache := []string{"calibrate", model, "--text", text, "--out", file}, strings.HasSuffix(name, ".toml")
		if cache {
			args = append(args, "--kv-cache")
		}
		var doc struct {
			Out    string
			Inputs int
		}
		if status := document(t, &doc, args...); status != exitDone || doc.Out != file || doc.Inputs != 8 {
			t.Fatalf("exit status %d, %+v", status, doc)
		}
		status, _, stderr := execute("", args...)
		fails(t, status, "", stderr, file+" exists: name another file, or remove it")
		dst := filepath.Join(dir, name+"-nvfp4")
		direct := []string{"quantize", model, dst + "-direct", "--format", "nvfp4", "--activations", text}
		if cache {
			direct = append(direct, "--kv-cache")
		}
		done(t, direct...)
		if status, _, stderr := execute("", "quantize", model, dst, "--format", "nvfp4", "--calibration", file); status != 0 {
			t.Fatal(stderr)
		}
		if status, _, stderr := execute("", "verify", model, dst); status != 0 {
			t.Error(stderr)
		}
		for _, file := range []string{"model.safetensors", "config.json"} {
			want, err := os.ReadFile(filepath.Join(dst, file))
			if got, other := os.ReadFile(filepath.Join(dst+"-direct", file)); err != nil || other != nil || !bytes.Equal(got, want) {
				t.Errorf("%s differs between --activations and --calibration", file)
			}
		}
		constant := dst + "-cache" // scales of 1 beside those of inputs, unless the file has others
		status, stdout, stderr := execute("", "quantize", model, constant, "--format", "nvfp4", "--calibration", file, "--kv-cache")
		if cache {
			if status == 0 || stdout != "" || !strings.Contains(stderr, "both set KV cache scales: omit one") {
				t.Errorf("exit status %d, %q", status, stderr)
			}
		} else if _, out, _ := execute("", "inspect", constant, "--json"); status != 0 || !strings.Contains(out, "k_scale") {
			t.Errorf("--kv-cache beside a calibration of inputs: %s", stderr)
		}
		_, out, _ := execute("", "inspect", dst, "--json")
		if !strings.Contains(out, `"scheme": "NVFP4"`) {
			t.Errorf("the result does not quantize activations: %s", out)
		}
		caches := 0
		if cache {
			caches = 2
		}
		if d := parsed[evaluation.Document](t, done(t, "eval", dst, "--activations", "--tokens", "256", "--json")); d.StoredScales != 14 ||
			d.TokenScales != 0 || d.KVCaches != caches {
			t.Errorf("%s: eval uses %d stored scales, %d per token and %d caches, want 14, 0 and %d", name, d.StoredScales, d.TokenScales,
				d.KVCaches, caches)
		}
		config, err := os.ReadFile(filepath.Join(dst, "config.json"))
		if err != nil || strings.Contains(string(config), `"kv_cache_scheme": null`) == cache {
			t.Errorf("%s: %v, the configuration is %s", name, err, config)
		}
	}
}
