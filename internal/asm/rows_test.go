package asm

import (
	"go/ast"
	"go/build"
	"go/parser"
	"go/token"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/microscale-go/microscale/internal/cpu"
)

// TestRows checks the kernel tables of all packages: what a row says it needs is the union of what its generated
// functions need, those that it reaches by way of other functions included, and generated functions are
// reached by rows, and by rows only. A row is a literal or a call that has constants named …Needs among its elements.
func TestRows(t *testing.T) {
	for _, arch := range []*Arch{AMD64, ARM64} {
		folders := map[string]map[string]cpu.Set{}
		for _, generate := range generators {
			for _, f := range generate() {
				if f.arch != arch {
					continue
				}
				if folders[f.pkg] == nil {
					folders[f.pkg] = map[string]cpu.Set{}
				}
				for _, fn := range f.funcs {
					if !fn.routine {
						folders[f.pkg][fn.name] = fn.allNeeds()
					}
				}
			}
		}
		rows := 0
		for _, folder := range slices.Sorted(maps.Keys(folders)) {
			rows += testRows(t, arch, folder, folders[folder])
		}
		t.Logf("%s: %d rows in %d packages", arch.Name, rows, len(folders))
		if rows < 8 {
			t.Errorf("%s: got %d rows", arch.Name, rows)
		}
	}
}

// A rowChecker has the functions of a package, and what they mention.
type rowChecker struct {
	generated map[string]cpu.Set
	mentions  map[string][]string // by function: functions of the package, outside rows
	inRows    map[string]bool
	rows      int
	errorf    func(format string, args ...any)
}

// testRows checks a package and returns the number of its rows.
func testRows(t *testing.T, arch *Arch, folder string, generated map[string]cpu.Set) int {
	c := &rowChecker{generated: generated, mentions: map[string][]string{}, inRows: map[string]bool{},
		errorf: func(format string, args ...any) {
			t.Helper()
			t.Errorf(arch.Name+" "+folder+": "+format, args...)
		}}
	var files []*ast.File
	dir := filepath.Join("..", "..", filepath.FromSlash(folder))
	context := build.Default
	context.GOARCH = arch.Name
	names, err := filepath.Glob(filepath.Join(dir, "*.go"))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		if match, err := context.MatchFile(dir, filepath.Base(name)); err != nil {
			t.Fatal(err)
		} else if !match || strings.HasSuffix(name, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, file)
	}
	type body struct {
		name string
		node ast.Node
	}
	var bodies []body
	for _, file := range files {
		for _, d := range file.Decls {
			switch d := d.(type) {
			case *ast.FuncDecl:
				name := d.Name.Name
				if d.Recv != nil {
					name = "." + name // those of all types are one
				}
				if name == "init" {
					name = "func init"
				}
				c.mentions[name] = append(c.mentions[name], []string{}...)
				if d.Body != nil {
					bodies = append(bodies, body{name, d.Body})
				}
			case *ast.GenDecl:
				if d.Tok == token.VAR {
					bodies = append(bodies, body{"a variable", d})
				}
			}
		}
	}
	var rows []func()
	for _, b := range bodies {
		rows = append(rows, c.collect(b.name, b.node)...)
	}
	for _, check := range rows {
		check()
	}
	for name, needs := range generated {
		if needs != 0 && !c.inRows[name] {
			c.errorf("%s is in no row of a kernel table", name)
		}
	}
	for name := range c.mentions {
		if _, kernel := generated[name]; !kernel && c.reach([]string{name}) != 0 && !c.inRows[name] {
			c.errorf("%s reaches generated functions that no row names, or not only rows do", name)
		}
	}
	return c.rows
}

// collect records what a declaration mentions outside rows, and returns the checks of its rows.
func (c *rowChecker) collect(name string, node ast.Node) (checks []func()) {
	walk(node, func(n ast.Node) bool {
		elements := elementsOf(n)
		var stated cpu.Set
		isRow := false
		for _, e := range elements {
			if s, ok := c.needs(e); ok {
				stated |= s
				isRow = true
			}
		}
		if isRow {
			checks = append(checks, func() { c.check(n, elements, stated) })
		}
		return !isRow
	}, func(m string) {
		if m != name {
			c.mentions[name] = append(c.mentions[name], m)
		}
	})
	return checks
}

// check compares a row with what it reaches.
func (c *rowChecker) check(row ast.Node, elements []ast.Expr, stated cpu.Set) {
	c.rows++
	var names []string
	for _, e := range elements {
		if _, ok := c.needs(e); ok {
			continue
		}
		walk(e, func(ast.Node) bool { return true }, func(m string) { names = append(names, m) })
	}
	if call, ok := row.(*ast.CallExpr); ok {
		walk(call.Fun, func(ast.Node) bool { return true }, func(m string) { names = append(names, m) })
	}
	for _, n := range c.closure(names) {
		c.inRows[n] = true
	}
	if got := c.reach(names); got != stated {
		c.errorf("the row of %v says that it needs %s: got %s",
			slices.DeleteFunc(names, func(n string) bool { _, ok := c.generated[n]; return !ok }), stated, got)
	}
}

// closure returns the functions of the package among names, and those that they mention.
func (c *rowChecker) closure(names []string) (all []string) {
	seen := map[string]bool{}
	left := slices.Clone(names)
	for len(left) > 0 {
		n := left[len(left)-1]
		left = left[:len(left)-1]
		if m, known := c.mentions[n]; known && !seen[n] {
			seen[n] = true
			all = append(all, n)
			left = append(left, m...)
		}
	}
	return all
}

// reach returns the needs of the generated functions in the closure of names.
func (c *rowChecker) reach(names []string) (needs cpu.Set) {
	for _, n := range c.closure(names) {
		needs |= c.generated[n]
	}
	return needs
}

// needs returns the features of an expression of constants named …Needs.
func (c *rowChecker) needs(e ast.Expr) (s cpu.Set, ok bool) {
	switch e := e.(type) {
	case *ast.KeyValueExpr:
		return c.needs(e.Value)
	case *ast.Ident:
		name, isNeeds := strings.CutSuffix(e.Name, "Needs")
		s, ok = c.generated[name]
		return s, ok && isNeeds
	case *ast.BinaryExpr:
		a, okA := c.needs(e.X)
		b, okB := c.needs(e.Y)
		return a | b, okA && okB && e.Op == token.OR
	}
	return 0, false
}

// elementsOf returns the elements of a literal, or the arguments of a call.
func elementsOf(n ast.Node) []ast.Expr {
	switch n := n.(type) {
	case *ast.CompositeLit:
		return n.Elts
	case *ast.CallExpr:
		return n.Args
	}
	return nil
}

// walk visits the nodes below n for which inside holds, and calls mention with the name of each function that an
// identifier may be, which no local variable is, and of each method, which begins with a point.
func walk(n ast.Node, inside func(ast.Node) bool, mention func(name string)) {
	ast.Inspect(n, func(n ast.Node) bool {
		if n == nil || !inside(n) {
			return false
		}
		switch n := n.(type) {
		case *ast.KeyValueExpr:
			walk(n.Value, inside, mention)
			return false
		case *ast.SelectorExpr:
			mention("." + n.Sel.Name)
			walk(n.X, inside, mention)
			return false
		case *ast.Ident:
			if n.Obj == nil || n.Obj.Kind == ast.Fun {
				mention(n.Name)
			}
		}
		return true
	})
}
