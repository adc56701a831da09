package lattice

import (
	"bytes"
	"fmt"
	"go/importer"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestSignatures checks that an importer can name every type of a public signature: of exported functions, variables
// and constants, and of the exported fields and methods of exported types.
func TestSignatures(t *testing.T) {
	list, load := compiled(t)
	for _, name := range list {
		p, err := load(name)
		if err != nil {
			t.Fatal(err)
		}
		for _, problem := range hidden(p) {
			t.Error(problem)
		}
	}
	if len(list) < 20 {
		t.Errorf("only %d public packages were read", len(list))
	}
}

// public reports whether other modules can import a package of this module.
func public(name string) bool {
	return name != "." && !strings.HasPrefix(name+"/", "internal/") && !strings.HasPrefix(name+"/", "cmd/")
}

// compiled returns the public packages, and a function that reads their types from the build cache.
func compiled(t *testing.T) (list []string, load func(name string) (*types.Package, error)) {
	t.Helper()
	gotool, err := exec.LookPath("go")
	if err != nil {
		t.Skipf("no go command: %v", err)
	}
	cmd := exec.Command(gotool, "list", "-export", "-deps", "-f", "{{.ImportPath}} {{.Export}}", "./...")
	cmd.Dir = root
	var problem bytes.Buffer
	cmd.Stderr = &problem
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list: %v\n%s", err, problem.Bytes())
	}
	exports := map[string]string{}
	for line := range strings.Lines(string(out)) {
		if path, file, _ := strings.Cut(strings.TrimSpace(line), " "); file != "" {
			exports[path] = file
			if name, ok := strings.CutPrefix(path, module+"/"); ok && public(name) {
				list = append(list, name)
			}
		}
	}
	from := importer.ForCompiler(token.NewFileSet(), "gc", func(path string) (io.ReadCloser, error) {
		return os.Open(filepath.FromSlash(exports[path]))
	})
	return list, func(name string) (*types.Package, error) { return from.Import(module + "/" + name) }
}

// hidden returns a sentence for each type of a public signature of p that importers cannot name.
func hidden(p *types.Package) (problems []string) {
	seen := map[types.Type]bool{}
	var walk func(where string, t types.Type)
	name := func(where string, o *types.TypeName) {
		if o.Pkg() == nil {
			return
		}
		path, ours := strings.CutPrefix(o.Pkg().Path(), module+"/")
		if ours && (!public(path) || !o.Exported()) {
			problems = append(problems, fmt.Sprintf("%s needs %s.%s, which importers cannot name", where, path, o.Name()))
		}
	}
	walk = func(where string, t types.Type) {
		if seen[t] {
			return
		}
		seen[t] = true
		switch t := t.(type) {
		case *types.Named:
			name(where, t.Obj())
			for a := range t.TypeArgs().Types() {
				walk(where, a)
			}
		case *types.Alias:
			name(where, t.Obj())
			walk(where, t.Rhs())
		case *types.Pointer:
			walk(where, t.Elem())
		case *types.Slice:
			walk(where, t.Elem())
		case *types.Array:
			walk(where, t.Elem())
		case *types.Chan:
			walk(where, t.Elem())
		case *types.Map:
			walk(where, t.Key())
			walk(where, t.Elem())
		case *types.Signature:
			for v := range t.Params().Variables() {
				walk(where, v.Type())
			}
			for v := range t.Results().Variables() {
				walk(where, v.Type())
			}
		case *types.Struct:
			for f := range t.Fields() {
				if f.Exported() {
					walk(where+"."+f.Name(), f.Type())
				}
			}
		case *types.Interface:
			for m := range t.ExplicitMethods() {
				if m.Exported() {
					walk(where+"."+m.Name(), m.Type())
				}
			}
		}
	}
	for _, n := range p.Scope().Names() {
		o := p.Scope().Lookup(n)
		if !o.Exported() {
			continue
		}
		where := strings.TrimPrefix(p.Path(), module+"/") + "." + n
		clear(seen)
		named, _ := o.Type().(*types.Named)
		if _, isType := o.(*types.TypeName); !isType || named == nil || named.Obj() != o {
			walk(where, o.Type())
			continue
		}
		walk(where, named.Underlying())
		for m := range named.Methods() {
			if m.Exported() {
				walk(where+"."+m.Name(), m.Type())
			}
		}
	}
	slices.Sort(problems)
	return slices.Compact(problems)
}
