package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/microscale-go/microscale/cmd/microscale/internal/conversion"
	"github.com/microscale-go/microscale/cmd/microscale/internal/evaluation"
)

// TestSchemeCost: 4-bit activations are measured as eval --formats measures them, before anything is written; and only they.
func TestSchemeCost(t *testing.T) {
	dir, model := t.TempDir(), filepath.Join("internal", "demo", "model")
	at := func(name string) string { return filepath.Join(dir, name) }
	text, short := at("text"), at("short")
	demo := content(t, filepath.Join("internal", "demo", "text.txt"))
	for name, n := range map[string]int{text: 8 * 128, short: 130} {
		if err := os.WriteFile(name, demo[:n], 0o600); err != nil {
			t.Fatal(err)
		}
	}
	stale := at("low") + schemeSuffix // of a killed run
	if err := os.MkdirAll(filepath.Join(stale, "other"), 0o700); err != nil {
		t.Fatal(err)
	}
	quantize := func(name string, more ...string) *conversion.SchemeCost {
		t.Helper()
		out := done(t, append([]string{"quantize", model, at(name), "--format", "nvfp4", "--json"}, more...)...)
		return parsed[conversion.Document](t, out).SchemeCost
	}
	cost := quantize("low", "--activations", text)
	if cost == nil || cost.Windows != 8 || cost.Tokens != 8*127 || cost.Scheme != "compressed-tensors NVFP4" {
		t.Fatalf("%+v", cost)
	}
	if left, _ := filepath.Glob(at("low") + ".*"); left != nil {
		t.Errorf("%v is left", left)
	}
	for i, activations := range []string{"--activations=false", "--activations"} {
		got := [...]float64{float64(cost.Weights[0]), float64(cost.Activations[0])}[i]
		doc := parsed[evaluation.Document](t, done(t, "eval", model, "--text", text, "--method", "all", "--formats", "nvfp4", "--json",
			activations))
		if want := float64(doc.Formats[0].KL.Mean); got < want*(1-1e-6) || got > want*(1+1e-6) {
			t.Errorf("%s: KL %g, eval has %g", activations, got, want)
		}
	}
	if one := quantize("one", "--activations", short); one == nil || one.Windows != 1 || !(one.Weights[0] > 0) || one.Weights[2] != 0 { // null
		t.Errorf("one window: %v", one)
	}
	if quantize("weights") != nil {
		t.Error("weights alone are measured")
	}
	status, _, stderr := execute("", "quantize", model, at("constant"), "--format", "nvfp4", "--scheme", "NVFP4", "--calibration", "constant")
	if status != exitDone || !strings.Contains(stderr, "not measured without a text; afterwards: microscale eval "+at("constant")) {
		t.Errorf("status %d, %s", status, stderr)
	}
}
