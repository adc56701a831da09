package lattice

import (
	"go/ast"
	"go/doc"
	"go/parser"
	"go/token"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestExamples checks that every public package has an Example whose output go test compares.
func TestExamples(t *testing.T) {
	for name := range readImports(t) {
		if strings.HasPrefix(name, "internal/") || strings.HasPrefix(name, "cmd/") {
			continue
		}
		paths, err := filepath.Glob(filepath.Join(root, filepath.FromSlash(name), "*_test.go"))
		if err != nil {
			t.Fatal(err)
		}
		var files []*ast.File
		for _, path := range paths {
			file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.ParseComments)
			if err != nil {
				t.Fatal(err)
			}
			files = append(files, file)
		}
		checked := slices.ContainsFunc(doc.Examples(files...), func(e *doc.Example) bool { return e.Output != "" })
		if !checked {
			t.Errorf("%s has no Example with output", name)
		}
	}
}
