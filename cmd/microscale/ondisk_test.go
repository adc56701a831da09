package main

import (
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/microscale-go/microscale/cmd/microscale/internal/store/storetest"
)

// TestOnDisk checks that flags and arguments that name files and directories on disk reject URLs, and that these flags and those that name
// models are not empty, before any work.
func TestOnDisk(t *testing.T) {
	t.Chdir(t.TempDir())
	const url = "s3://weights/x"
	cases := [][]string{{"DIR", "demo", url}, {"DIR", "man", url}, {"MODEL", "tokenize", url}, {"FILE", "tokenize", "model", url},
		{"DST", "push", url, "hf://owner/name"}, {"DST", "quantize", "sample:", "hf://owner/name", "--format", "nvfp4"},
		{"DST", "dequantize", "sample:", "file:///x"}}
	var given, models [][]string
	var visit func(cmd *cobra.Command)
	visit = func(cmd *cobra.Command) {
		arguments := strings.Fields(cmd.Use)[1:]
		if count := slices.IndexFunc(arguments, func(a string) bool { return strings.HasPrefix(a, "-") }); count >= 0 {
			arguments = arguments[:count]
		}
		var required []string
		cmd.Flags().VisitAll(func(f *pflag.Flag) {
			if f.Annotations[cobra.BashCompOneRequiredFlag] != nil {
				required = append(required, "--"+f.Name+"=x")
			}
		})
		cmd.Flags().VisitAll(func(f *pflag.Flag) {
			placeholder, _ := pflag.UnquoteUsage(f)
			words := slices.Concat([]string{"--" + f.Name}, strings.Fields(cmd.CommandPath())[1:], slices.Repeat([]string{"x"}, len(arguments)),
				required)
			switch {
			case f.Name == "config":
			case slices.Contains([]string{"FILE", "DIR", "RECEIPT"}, placeholder):
				cases = append(cases, append(words, "--"+f.Name+"="+url))
			case slices.Contains([]string{"MODEL", "ORIGINAL", "OWNER/NAME"}, placeholder):
				models = append(models, words)
			}
		})
		for _, sub := range cmd.Commands() {
			visit(sub)
		}
	}
	started := false
	visit(rootCommand(&started))
	if len(cases) < 25 || len(models) < 7 {
		t.Errorf("got %d and %d cases, want all flags of files and of models", len(cases), len(models))
	}
	for _, c := range cases {
		status, _, stderr := execute("", c[1:]...)
		if want := "microscale: " + c[0] + ": "; status != exitUsage || !strings.HasPrefix(stderr, want) ||
			!strings.Contains(stderr, "is a URL, want a path on disk: name a local one") {
			t.Errorf("%q: exit status %d:\n%s", c[1:], status, stderr)
		}
		if strings.HasPrefix(c[0], "--") {
			given = append(given, c[:len(c)-1])
		}
	}
	for _, c := range append(given, models...) {
		empty := append(slices.Clone(c[1:]), c[0]+"=")
		if status, _, stderr := execute("", empty...); status != exitUsage || !strings.HasPrefix(stderr, "microscale: "+c[0]+" is empty") {
			t.Errorf("%q: exit status %d:\n%s", empty, status, stderr)
		}
	}
	if entries, err := os.ReadDir("."); err != nil || len(entries) > 0 {
		t.Errorf("got the files %v, %v", entries, err)
	}
}

// TestEvalStore checks that eval reads a byte-level model in a store.
func TestEvalStore(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "model")
	done(t, "train", "--steps", "1", "--layers", "1", "--hidden", "32", "--heads", "2", "--intermediate", "32", "--sequence", "32",
		"--batch", "1", "--data", "synthetic:", "--eval-tokens", "64", "--out", dir)
	s := storetest.New(t)
	upload(t, s, dir, "model")
	there := done(t, "eval", "s3://weights/model", "--data", "synthetic:", "--tokens", "32", "--sequence", "32", "--json")
	here := done(t, "eval", dir, "--data", "synthetic:", "--tokens", "32", "--sequence", "32", "--json")
	loss := func(text string) string {
		_, text, _ = strings.Cut(text, `"nll"`)
		text, _, _ = strings.Cut(text, ",")
		return text
	}
	if a, b := loss(there), loss(here); a == "" || a != b {
		t.Errorf("the loss of the model in the store is %q, want %q", a, b)
	}
}

// TestRemedies checks errors that name what to do, once.
func TestRemedies(t *testing.T) {
	t.Chdir(t.TempDir())
	s := storetest.New(t)
	s.Put("taken/model.safetensors", []byte("x"))
	for want, args := range map[string][]string{
		"or --resume to continue an upload that ended early\n": {"quantize", "sample:",
			"s3://weights/taken", "--format", "nvfp4"},
		"--sarif: \"x.json\" is not true or false: omit it, the flag needs no value\n": {"lint", "sample:", "--sarif=x.json"},
		"--out x.DAT: importance matrices are only written as GGUF files: let the name end in .gguf\n": {"calibrate", "sample:", "--text", "x",
			"--out", "x.DAT"},
	} {
		if _, _, stderr := execute("", args...); !strings.Contains(stderr, want) {
			t.Errorf("%q:\n%s", args, stderr)
		}
	}
}

// TestUploadResumed checks that a run that uploads what an earlier one converted says so.
func TestUploadResumed(t *testing.T) {
	t.Chdir(t.TempDir())
	directory(t, "local", twoWeights()...)
	s := storetest.New(t)
	s.Fault = func(w http.ResponseWriter, r *http.Request) bool {
		if strings.HasSuffix(r.URL.Path, "/config.json") && r.Method == http.MethodPut {
			storetest.Fail(w, http.StatusForbidden, "AccessDenied")
			return true
		}
		return false
	}
	args := []string{"quantize", "local", "s3://weights/out", "--format", "nvfp4", "--resume"}
	if status, stdout, stderr := execute("", args...); status != exitFailed {
		t.Fatalf("exit status %d without config.json:\n%s%s", status, stdout, stderr)
	}
	s.Fault = nil
	if text := done(t, args...); !strings.Contains(text, "s3://weights/out is complete: the result of an earlier run was uploaded; ") {
		t.Errorf("got\n%s", text)
	}
}
