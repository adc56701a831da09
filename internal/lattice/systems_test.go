package lattice

import (
	"bytes"
	"encoding/json"
	"errors"
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/microscale-go/microscale/internal/slow"
)

// systems are those that the program is built for beside that of the tests: GOOS, GOARCH and build tags.
var systems = [][3]string{
	{"linux", "arm64", ""},
	{"darwin", "arm64", ""},
	{"windows", "amd64", ""},
	{"freebsd", "amd64", "nompi"},
	{"js", "wasm", ""},
	{"linux", "amd64", "purego"},
}

// TestSystems checks the types of all packages for each system, from source. A build compiles the standard library again
// for each, which takes a minute of processor time where this takes seconds.
func TestSystems(t *testing.T) {
	slow.Long(t, "it checks the standard library once for each system")
	read := source{token.NewFileSet(), map[string]*ast.File{}}
	for _, s := range systems {
		t.Run(strings.TrimSuffix(strings.Join(s[:], "/"), "/"), func(t *testing.T) {
			for _, problem := range read.problems(t, root, s) {
				t.Error(problem)
			}
		})
	}
}

// TestProblems plants what TestSystems finds: a package that only one system can compile, and a function without a body.
func TestProblems(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{
		"go.mod":   "module example.org/m\n\ngo 1.26\n",
		"a.go":     "package m\n\nimport \"example.org/m/b\"\n\nvar A = b.B\n",
		"b/b.go":   "//go:build linux\n\npackage b\n\nimport \"golang.org/x/missing\"\n\nvar B = missing.M\n",
		"c/c.go":   "package c\n\nfunc C() int { return d() + e() }\n\nfunc e() int\n",
		"c/d.go":   "//go:build !windows\n\npackage c\n\nfunc d() int { return 1 }\n",
		"c/e_w.s":  "//go:build !windows\n\nTEXT ·e(SB), 4, $0-8\n\tRET\n",
		"ok/ok.go": "package ok\n",
	} {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o777); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	read := source{token.NewFileSet(), map[string]*ast.File{}}
	got := strings.Join(read.problems(t, dir, [3]string{"windows", "amd64", ""}), "\n")
	for _, want := range []string{"example.org/m/b", "undefined: d", "function e has no body"} {
		if !strings.Contains(got, want) {
			t.Errorf("got %s, want a line with %q", got, want)
		}
	}
	if strings.Contains(got, "m/ok") {
		t.Errorf("got %s", got)
	}
}

// source holds the files that were read, by their paths: most of them belong to several systems.
type source struct {
	set   *token.FileSet
	files map[string]*ast.File
}

// file reads a file, without the bodies of its functions unless they will be checked.
func (s source) file(t *testing.T, path string, bodies bool) *ast.File {
	t.Helper()
	if f := s.files[path]; f != nil {
		return f
	}
	f, err := parser.ParseFile(s.set, path, nil, parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range f.Decls {
		if f, ok := d.(*ast.FuncDecl); ok && !bodies {
			f.Body = nil
		}
	}
	s.files[path] = f
	return f
}

// problems lists what keeps the packages of the module in dir from being compiled for a system.
func (s source) problems(t *testing.T, dir string, system [3]string) (list []string) {
	t.Helper()
	gotool, err := exec.LookPath("go")
	if err != nil {
		t.Skipf("no go command: %v", err)
	}
	cmd := exec.Command(gotool, "list", "-e", "-deps", "-tags", system[2],
		"-json=ImportPath,Name,Dir,GoFiles,SFiles,ImportMap,Module,Error", "./...")
	cmd.Dir, cmd.Env = dir, append(os.Environ(), "GOOS="+system[0], "GOARCH="+system[1], "CGO_ENABLED=0")
	var message bytes.Buffer
	cmd.Stderr = &message
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list: %v\n%s", err, message.Bytes())
	}
	checked := map[string]*types.Package{"unsafe": types.Unsafe}
	sizes := types.SizesFor("gc", system[1])
	for decoder := json.NewDecoder(bytes.NewReader(out)); ; { // packages follow what they import
		var p struct {
			ImportPath, Name, Dir string
			GoFiles, SFiles       []string
			ImportMap             map[string]string
			Module                *struct{ Main bool }
			Error                 *struct{ Err string }
		}
		if err := decoder.Decode(&p); errors.Is(err, io.EOF) {
			return list
		} else if err != nil {
			t.Fatal(err)
		}
		ours := p.Module != nil && p.Module.Main
		if p.Error != nil {
			list = append(list, p.ImportPath+": "+p.Error.Err)
		}
		if p.ImportPath == "unsafe" {
			continue
		}
		var files []*ast.File
		for _, name := range p.GoFiles {
			f := s.file(t, filepath.Join(p.Dir, name), ours)
			files = append(files, f)
			for _, d := range f.Decls {
				if f, ok := d.(*ast.FuncDecl); ok && ours && f.Body == nil && len(p.SFiles) == 0 {
					list = append(list, p.ImportPath+": function "+f.Name.Name+" has no body")
				}
			}
		}
		config := types.Config{
			IgnoreFuncBodies: !ours, Sizes: sizes,
			Importer: importing(func(path string) (*types.Package, error) {
				if to := p.ImportMap[path]; to != "" {
					path = to
				}
				if checked[path] == nil {
					return nil, errors.New("it cannot be imported")
				}
				return checked[path], nil
			}),
			Error: func(err error) {
				if ours {
					list = append(list, p.ImportPath+": "+err.Error())
				}
			},
		}
		checked[p.ImportPath], _ = config.Check(p.ImportPath, s.set, files, nil)
	}
}

// importing is a types.Importer.
type importing func(path string) (*types.Package, error)

func (f importing) Import(path string) (*types.Package, error) { return f(path) }
