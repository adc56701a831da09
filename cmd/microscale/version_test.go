package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"testing"

	"github.com/spf13/pflag"
)

func TestVersionCommand(t *testing.T) {
	status, stdout, stderr := execute("", "version", "--json")
	var v versionDocument
	if err := json.Unmarshal([]byte(stdout), &v); status != exitDone || err != nil {
		t.Fatalf("exit status %d, %v: %s%s", status, err, stdout, stderr)
	}
	if v.Version == "" || v.Go != runtime.Version() || v.Platform != runtime.GOOS+"/"+runtime.GOARCH || v.Kernels == "" {
		t.Errorf("got %+v", v)
	}
}

// TestMan checks that every listed command has a page with all its flags, and that tables of the help
// keep their lines.
func TestMan(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "man1")
	if status, _, stderr := execute("", "man", dir); status != exitDone {
		t.Fatalf("exit status %d: %s", status, stderr)
	}
	table := ".PP\n.nf\n  quantized       every scale and decoded element is within the bound of the\n                  format:"
	if page, err := os.ReadFile(filepath.Join(dir, "microscale-verify.1")); !strings.Contains(string(page), table) {
		t.Errorf("the page of verify lacks %q: %v", table, err)
	}
	escaped := func(text string) string { return strings.ReplaceAll(text, "-", `\-`) }
	started := false
	for _, cmd := range rootCommand(&started).Commands() {
		page, err := os.ReadFile(filepath.Join(dir, "microscale-"+cmd.Name()+".1"))
		switch {
		case !cmd.IsAvailableCommand() && err == nil:
			t.Errorf("the unlisted command %s has a page", cmd.Name())
		case cmd.IsAvailableCommand() && (err != nil || !strings.Contains(string(page), escaped(cmd.Short))):
			t.Errorf("the page of %s is missing or lacks %q: %v", cmd.Name(), cmd.Short, err)
		}
		cmd.Flags().VisitAll(func(f *pflag.Flag) {
			if cmd.IsAvailableCommand() && !f.Hidden && !strings.Contains(string(page), escaped("--"+f.Name)) {
				t.Errorf("the page of %s lacks --%s", cmd.Name(), f.Name)
			}
		})
	}
}

// TestNotices checks that NOTICES.md names the modules of go.mod and no others.
func TestNotices(t *testing.T) {
	mod, err := os.ReadFile(filepath.Join("..", "..", "go.mod"))
	if err != nil {
		t.Fatal(err)
	}
	notices, err := os.ReadFile(filepath.Join("..", "..", "NOTICES.md"))
	if err != nil {
		t.Fatal(err)
	}
	required, named := map[string]bool{}, map[string]bool{}
	for _, m := range regexp.MustCompile(`(?m)^\t(\S+) v`).FindAllStringSubmatch(string(mod), -1) {
		required[m[1]] = true
	}
	for _, m := range regexp.MustCompile(`(?m)^\| ([^ |]+\.[^ |]+/[^ |]+) (?:\(in tests\) )?\|`).FindAllStringSubmatch(string(notices), -1) {
		named[m[1]] = true
	}
	for m := range required {
		if !named[m] {
			t.Errorf("NOTICES.md lacks %s", m)
		}
	}
	for m := range named {
		if !required[m] {
			t.Errorf("NOTICES.md names %s, which go.mod does not require", m)
		}
	}
	if len(required) < 10 {
		t.Errorf("go.mod requires %d modules", len(required))
	}
}
