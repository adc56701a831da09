package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/microscale-go/microscale/cmd/microscale/internal/push/pushtest"
)

// TestPush pushes a checkpoint with a card, which keeps metadata and text of the original's card.
func TestPush(t *testing.T) {
	s := pushtest.New(t)
	src, out := filepath.Join(t.TempDir(), "src"), filepath.Join(t.TempDir(), "out")
	directory(t, src, twoWeights()...)
	card := "---\nlicense: mit\ntags:\n- small\n---\n# The original\n\nText.\n"
	if err := os.WriteFile(filepath.Join(src, "README.md"), []byte(card), 0o600); err != nil {
		t.Fatal(err)
	}
	done(t, "quantize", src, out, "--format", "nvfp4")
	args := []string{"push", out, "hf://me/small", "--base", "them/small", "--source", src}
	want := []string{"license: mit", "base_model: them/small", "base_model_relation: quantized", "- small\n", "- nvfp4\n", "# small\n",
		"| nvfp4 | ", ", converted with [Microscale](",
		"## Error\n", "## Card of the original\n\n# The original\n\nText.\n"}
	planned := done(t, append(args, "--dry-run")...)
	if s.Repository("me/small") != nil {
		t.Error("--dry-run made a repository")
	}
	if !strings.Contains(planned, "a public repository if it does not exist") {
		t.Errorf("--dry-run says\n%s", planned)
	}
	done(t, args...)
	r := s.Repository("me/small")
	if r == nil || r.Private {
		t.Fatalf("got %+v", r)
	}
	for _, text := range want {
		if !strings.Contains(planned, text) || !strings.Contains(string(r.Files["README.md"]), text) {
			t.Errorf("the card lacks %q:\n%s", text, r.Files["README.md"])
		}
	}
	entries, err := os.ReadDir(out)
	if err != nil || len(entries) != len(r.Files) {
		t.Fatal(len(entries), len(r.Files), err)
	}
	for _, e := range entries {
		data, err := os.ReadFile(filepath.Join(out, e.Name()))
		if err != nil || e.Name() != "README.md" && !bytes.Equal(data, r.Files[e.Name()]) {
			t.Errorf("%s differs (%v)", e.Name(), err)
		}
	}
	puts := s.Puts()
	if text := done(t, "push", out, "hf://me/small", "--no-card"); !strings.Contains(text, "the hub has it already") || s.Puts() != puts {
		t.Errorf("again:\n%s", text)
	}
	if got := s.Repository("me/small").Files["README.md"]; string(got) != card {
		t.Errorf("--no-card: got\n%s", got)
	}
	receipt := filepath.Join(t.TempDir(), "receipt.json")
	another := `{"version": 1, "sha256": "of another", "windows": [{"scored": 8, "kl": 0.5}]}`
	if err := os.WriteFile(receipt, []byte(another), 0o600); err != nil {
		t.Fatal(err)
	}
	status, stdout, stderr := execute("", "push", out, "hf://me/small", "--receipt", receipt)
	if fails(t, status, stdout, stderr, "microscale: "); !strings.Contains(stderr, "the receipt is of another model") {
		t.Errorf("a receipt of another model: %s", stderr)
	}
	status, stdout, stderr = execute("", "push", t.TempDir(), "hf://me/small")
	if fails(t, status, stdout, stderr, "microscale: "); !strings.Contains(stderr, "the directory is empty") {
		t.Errorf("an empty directory: %s", stderr)
	}
}
