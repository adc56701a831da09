package main

import (
	"bytes"
	"errors"
	"flag"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/microscale-go/microscale/decoder"
	"github.com/microscale-go/microscale/safetensors"
)

// TestDemo runs the first command of README: the model is verified, NVFP4 costs it little, and both models say
// words. Files of others are kept.
func TestDemo(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "it's")
	status, stdout, stderr := execute("", "demo", dir)
	if status != exitDone {
		t.Fatal(stderr)
	}
	for _, want := range []string{"nvfp4 matches " + dir, "14 of 21 weights", "\n$ microscale run '"} {
		if !strings.Contains(stdout, want) {
			t.Errorf("no %q in:\n%s", want, stdout)
		}
	}
	found := regexp.MustCompile(`KL divergence \(nats\) +([0-9.]+) `).FindStringSubmatch(stdout)
	if len(found) != 2 {
		t.Fatalf("no divergence in:\n%s", stdout)
	}
	if kl, err := strconv.ParseFloat(found[1], 64); err != nil || !(kl > 0.001 && kl < 0.2) {
		t.Errorf("the divergence is %s nats", found[1])
	}
	said := stdout[strings.LastIndex(stdout, "max-tokens"):]
	if words := regexp.MustCompile(`\b(the|of|a|and|is|in)\b`).FindAllString(said, -1); len(words) < 3 {
		t.Errorf("the quantized model says %s", said)
	}
	path := filepath.Join(dir, "text.txt")
	if err := os.WriteFile(path, []byte("mine"), 0o600); err != nil {
		t.Fatal(err)
	}
	status, _, stderr = execute("", "demo", dir)
	if text, err := os.ReadFile(path); status != exitFailed || err != nil || string(text) != "mine" || !strings.Contains(stderr,
		"text.txt exists with other contents: name another directory") {
		t.Errorf("with a file of somebody: exit status %d, %s (%v), %q", status, stderr, err, text)
	}
}

// TestDemoJSON: the steps are one document, with the commands to repeat.
func TestDemoJSON(t *testing.T) {
	var doc struct {
		Steps []struct {
			Command string
			Result  map[string]any
		}
	}
	if status := document(t, &doc, "demo", filepath.Join(t.TempDir(), "demo"), "--format", "mxfp4"); status != exitDone ||
		len(doc.Steps) != 5 {
		t.Fatalf("exit status %d, %d steps", status, len(doc.Steps))
	}
	for i, key := range []string{"destination", "ok", "kl", "text", "text"} {
		step := doc.Steps[i]
		if _, ok := step.Result[key]; !ok || !strings.HasPrefix(step.Command, "microscale ") || strings.Contains(step.Command, "--json") {
			t.Errorf("%s: no %q in %v", step.Command, key, step.Result)
		}
	}
}

var demoSource = flag.String("demo-model", "", "with -run TestDemoModel: make the model of demo from the F32 model in directory `DIR`, "+
	"that of the command in package demo")

// TestDemoModel checks that the files of the model are what decoder.Model.Save writes in BF16. With -demo-model, it
// writes them.
func TestDemoModel(t *testing.T) {
	dir := filepath.Join("internal", "demo", "model")
	from, to := dir, filepath.Join(t.TempDir(), "model")
	if *demoSource != "" {
		from = *demoSource
	}
	m, err := decoder.Load(t.Context(), from, decoder.LoadOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(os.MkdirAll(to, 0o777), m.Save(to, safetensors.BF16)); err != nil {
		t.Fatal(err)
	}
	const weights = "model.safetensors"
	for _, name := range []string{weights, "config.json", "generation_config.json"} {
		want, err := os.ReadFile(filepath.Join(to, name))
		if err == nil && *demoSource != "" {
			err = os.WriteFile(filepath.Join(dir, name), want, 0o644)
		}
		if err != nil {
			t.Fatal(err)
		}
		if got, err := os.ReadFile(filepath.Join(dir, name)); err != nil || name != weights && !bytes.Equal(got, want) {
			t.Errorf("%s is not what Save writes (%v)", name, err)
		}
	}
	status, stdout, stderr := execute("", "verify", to, dir) // the order of the weights in the file is another
	if status != exitDone || !strings.Contains(stdout, "21 weights not quantized: identical to the bit") {
		t.Errorf("exit status %d, %s%s", status, stdout, stderr)
	}
}
