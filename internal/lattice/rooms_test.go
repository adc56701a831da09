package lattice

import (
	"fmt"
	"go/parser"
	"go/token"
	"maps"
	"path"
	"slices"
	"strings"
	"testing"
)

// room returns the first element of a package's path: a directory at the top of the module.
func room(name string) string {
	first, _, _ := strings.Cut(name, "/")
	return first
}

// directions returns a sentence for each import that goes back up, and for each pair of rooms that import each other.
// All is found with the imports of tests.
func directions(found, all imports) (problems []string) {
	rooms := map[[2]string]string{}
	for _, p := range slices.Sorted(maps.Keys(found)) {
		for _, i := range found[p] {
			name, ours := strings.CutPrefix(i, module+"/")
			if !ours {
				continue
			}
			if room(p) == "internal" && public(name) {
				problems = append(problems, fmt.Sprintf("%s imports %s: internal is below every public package", p, name))
			}
			if public(p) && room(name) == "cmd" {
				problems = append(problems, fmt.Sprintf("%s imports %s, which is part of the program", p, name))
			}
			if a, b := room(p), room(name); a != b {
				rooms[[2]string{a, b}] = p + " imports " + name
				if back, ok := rooms[[2]string{b, a}]; ok {
					problems = append(problems, fmt.Sprintf("%s and %s import each other: %s imports %s, %s", a, b, p, name, back))
				}
			}
		}
	}
	users := map[string][]string{}
	for p, list := range all {
		for _, i := range list {
			if name, ours := strings.CutPrefix(i, module+"/"); ours && name != p {
				users[name] = append(users[name], p)
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(users)) {
		if room(name) == "internal" && !slices.ContainsFunc(users[name], func(p string) bool { return room(p) != "cmd" }) {
			problems = append(problems, fmt.Sprintf("only the program imports %s: move it below cmd/microscale/internal", name))
		}
	}
	return problems
}

// TestDirections checks that imports go one way, and that what only the program uses is below it.
func TestDirections(t *testing.T) {
	all := imports{}
	walk(t, func(name string, data []byte) {
		if path.Ext(name) != ".go" || strings.Contains(name, "testdata/") {
			return
		}
		file, err := parser.ParseFile(token.NewFileSet(), name, data, parser.ImportsOnly)
		if err != nil {
			t.Error(err)
			return
		}
		for _, i := range file.Imports {
			all[path.Dir(name)] = append(all[path.Dir(name)], strings.Trim(i.Path.Value, `"`))
		}
	})
	for _, p := range directions(readImports(t), all) {
		t.Error(p)
	}
}

// TestDirectionFaults plants every fault that TestDirections detects.
func TestDirectionFaults(t *testing.T) {
	for _, tc := range []struct {
		found imports
		want  string
	}{
		{imports{"a": {module + "/internal/x"}, "cmd/m": {module + "/internal/x", module + "/a"}}, ""},
		{imports{"internal/x": {module + "/a"}, "b": {module + "/internal/x"}}, "internal/x imports a"},
		{imports{"a": {module + "/cmd/m/internal/x"}}, "a imports cmd/m/internal/x, which is part of the program"},
		{imports{"a/x": {module + "/b"}, "b/y": {module + "/a"}}, "b and a import each other"},
		{imports{"cmd/m": {module + "/internal/x"}}, "only the program imports internal/x"},
	} {
		got := strings.Join(directions(tc.found, tc.found), "\n")
		if (tc.want == "") != (got == "") || !strings.Contains(got, tc.want) {
			t.Errorf("%v: got %q, want one with %q", tc.found, got, tc.want)
		}
	}
}

// maxShare is the largest part of the lines of code, without tests, that a room may have.
const maxShare = 0.30

// TestRoomSizes checks that no room outgrows the others.
func TestRoomSizes(t *testing.T) {
	lines, total := map[string]int{}, 0
	walk(t, func(name string, data []byte) {
		if path.Ext(name) == ".go" && !strings.HasSuffix(name, "_test.go") && !strings.Contains(name, "testdata/") {
			n := strings.Count(string(data), "\n")
			lines[room(name)] += n
			total += n
		}
	})
	for r, n := range lines {
		if share := float64(n) / float64(total); share > maxShare {
			t.Errorf("%s has %.0f %% of %d lines, want at most %.0f %%", r, 100*share, total, 100*maxShare)
		}
	}
}
