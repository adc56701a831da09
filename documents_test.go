package microscale_test

import (
	"go/ast"
	"go/doc"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestDocuments: the examples and commands that docs/documents.md names exist, and go test compares the
// output of the examples.
func TestDocuments(t *testing.T) {
	text, err := os.ReadFile(filepath.Join("docs", "documents.md"))
	if err != nil {
		t.Fatal(err)
	}
	checked := map[string]map[string]bool{} // by package, the names of examples with output
	named := 0
	for _, m := range regexp.MustCompile("`([\\w/]+)\\.(Example\\w*)`").FindAllStringSubmatch(string(text), -1) {
		name, example := m[1], m[2]
		if checked[name] == nil {
			checked[name] = examplesOf(t, name)
		}
		if named++; !checked[name][example] {
			t.Errorf("package %s has no %s with an output", name, example)
		}
	}
	for _, m := range regexp.MustCompile("`microscale ([a-z]+)").FindAllStringSubmatch(string(text), -1) {
		if _, err := os.Stat(filepath.Join("cmd", "microscale", m[1]+".go")); err != nil {
			t.Errorf("no command %s: %v", m[1], err)
		}
	}
	if named < 30 {
		t.Errorf("got %d examples, want those of every document", named)
	}
	for _, document := range []string{"TE", "ML", "MF", "ZH", "CS"} {
		if !strings.Contains(string(text), "| "+document+" |") {
			t.Errorf("no example of document %s", document)
		}
	}
}

// examplesOf returns the examples of a package whose output go test compares.
func examplesOf(t *testing.T, name string) map[string]bool {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join(name, "*_test.go"))
	if err != nil {
		t.Fatal(err)
	}
	examples := map[string]bool{}
	for _, path := range paths {
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.ParseComments)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range doc.Examples([]*ast.File{file}...) {
			examples["Example"+e.Name] = e.Output != ""
		}
	}
	return examples
}
