package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/microscale-go/microscale/gguf"
)

// TestQuantizeRules: rules of flags and of a plan file, which --plan-out writes, give the same files; the output names the formats.
func TestQuantizeRules(t *testing.T) {
	dir := t.TempDir()
	file, a, b := filepath.Join(dir, "plan.toml"), filepath.Join(dir, "a"), filepath.Join(dir, "b")
	args := []string{"quantize", "sample:", a, "--format", "nvfp4", "--rule", "self_attn=fp8-row", "--rule", `layers\.0\.=keep`}
	execute := func(want int, args ...string) (stdout, stderr string) {
		t.Helper()
		var out, errs strings.Builder
		if got := run(args, nil, &out, &errs); got != want {
			t.Fatalf("%q: exit status %d, want %d: %s", args, got, want, errs.String())
		}
		return out.String(), errs.String()
	}
	execute(exitDone, append(args, "--dry-run", "--plan-out", file)...)
	out, _ := execute(exitDone, append(args, "--json")...)
	var got struct {
		Format  string
		Formats []struct {
			Format  string
			Weights int
		}
	}
	if err := json.Unmarshal([]byte(out), &got); err != nil {
		t.Fatal(err)
	}
	if got.Format != "fp8-row, nvfp4" || len(got.Formats) != 2 || got.Formats[0].Weights != 24 || got.Formats[1].Weights != 15 {
		t.Errorf("%+v", got)
	}
	if out, _ := execute(exitDone, "quantize", "sample:", b, "--plan", file); !strings.Contains(out, "39 of 57 weights in fp8-row (24, ") {
		t.Errorf("the output is %s", out)
	}
	for _, name := range []string{"config.json", "model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"} {
		x, err := os.ReadFile(filepath.Join(a, name))
		if err != nil {
			t.Fatal(err)
		}
		y, err := os.ReadFile(filepath.Join(b, name))
		if err != nil {
			t.Fatal(err)
		}
		if name == "config.json" && string(x) != string(y) || len(x) != len(y) { // files record a hash of the options, too
			t.Errorf("%s differs", name)
		}
	}
	if _, errs := execute(exitUsage, append(args, "--plan-out", file)...); !strings.Contains(errs, "--plan-out writes the plan of --dry-run") {
		t.Errorf("stderr is %s", errs)
	}
	if _, errs := execute(exitUsage, "quantize", "sample:", b, "--rule", "a"); !strings.Contains(errs, "REGEXP=FORMAT") {
		t.Errorf("stderr is %s", errs)
	}
	if _, errs := execute(exitUsage, "quantize", "sample:", b, "--rule", "a=keep"); !strings.Contains(errs, "every rule keeps weights") {
		t.Errorf("stderr is %s", errs)
	}
	if err := os.WriteFile(file, []byte(`format = "nvfp4:NVFP4A16"`), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, errs := execute(exitFailed, "quantize", "sample:", b, "--plan", file); !strings.Contains(errs, "give --scheme NVFP4A16") {
		t.Errorf("stderr is %s", errs)
	}
}

// TestGGUFTexts: a mixture has no scheme of one format in a GGUF file, and one without block formats is not named after none.
func TestGGUFTexts(t *testing.T) {
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	done(t, "quantize", "sample:", at("mixed"), "--format", "mxfp4", "--rule", "o_proj=nvfp4", "--convention", "plain")
	for want, args := range map[string][]string{
		" 42 weights of mxfp4, nvfp4 relabeled from plain to gguf\n": {"convert", at("mixed"), at("mixed.gguf")},
		" 57 weights, none in a block format (gguf)\n":               {"quantize", "sample:", at("bf16.gguf"), "--format", "bf16"},
		" 57 weights, none in a block format (gguf), ":               {"quantize", "sample:", at("no.gguf"), "--format", "bf16", "--dry-run"},
	} {
		if out := done(t, args...); !strings.Contains(out, want) {
			t.Errorf("%v: want %q in %s", args, want, out)
		}
	}
}

// TestMixtures: a mixture of llama-quantize has the number of its name, and makes way for rules and exclusions, but not for a format.
func TestMixtures(t *testing.T) {
	dir := t.TempDir()
	src, dst := filepath.Join(dir, "src.gguf"), filepath.Join(dir, "dst.gguf")
	done(t, "quantize", "sample:", src, "--format", "bf16")
	args := []string{"quantize", src, dst, "--plan", "Q4_K_M", "--exclude", "attn", "--rule", `ffn_down=q8_0`}
	var out, errs strings.Builder
	if got := run(args, nil, &out, &errs); got != exitDone || strings.Contains(errs.String(), "method nearest") ||
		!strings.Contains(errs.String(), "quantize no weight: others come before them, or their weights are excluded") {
		t.Fatalf("exit status %d: %s", got, &errs)
	}
	f, err := gguf.Open(dst)
	if err != nil {
		t.Fatal(err)
	}
	if got := f.Count("general.file_type"); got != 15 { // LLAMA_FTYPE_MOSTLY_Q4_K_M
		t.Errorf("general.file_type is %d", got)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	for want, args := range map[string][]string{
		"--format and the mixture --plan q4_k_m exclude each other": {"--plan", "q4_k_m", "--format", "q6_k"},
		"Q4_K_M is a mixture of formats: use --plan q4_k_m":         {"--format", "Q4_K_M"},
	} {
		errs.Reset()
		if got := run(append([]string{"quantize", src, dst}, args...), nil, &out, &errs); got != exitUsage ||
			!strings.Contains(errs.String(), want) {
			t.Errorf("%v: exit status %d: %s", args, got, &errs)
		}
	}
}

// TestMixtureShards: workers write the two files of a mixture as one run does, and a model of two formats writes text.
func TestMixtureShards(t *testing.T) {
	at, model, _ := modelAndText(t)
	quantize := func(src, dst string, more ...string) {
		t.Helper()
		done(t, append([]string{"quantize", src, dst, "--format", "mxfp4", "--rule", "o_proj=mxfp8"}, more...)...)
	}
	quantize("sample:", at("whole"))
	for _, worker := range []string{"0/2", "1/2"} {
		quantize("sample:", at("parts"), "--shard", worker)
	}
	done(t, "merge", at("parts"))
	files, err := filepath.Glob(filepath.Join(at("whole"), "*.safetensors"))
	if err != nil || len(files) != 2 {
		t.Fatalf("%v, %v: want two files", files, err)
	}
	for _, path := range append(files, filepath.Join(at("whole"), "config.json")) {
		if !bytes.Equal(content(t, path), content(t, filepath.Join(at("parts"), filepath.Base(path)))) {
			t.Errorf("%s: two workers write other bytes than one", filepath.Base(path))
		}
	}
	quantize(model, at("model-mixed"))
	if out := done(t, "run", at("model-mixed"), "The ", "--max-tokens", "4", "--top-k", "0"); out == "" {
		t.Error("no text")
	}
}
