package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestMutants lists the mutants of a function.
func TestMutants(t *testing.T) {
	const text = `package p

func f(n int) int {
	defer close()
	if ok(n) && n < 3 {
		n++
	}
	for {
		n = n + 2
		print(n)
		break
	}
	if !done {
		return n
	}
	return -1
}
`
	all, err := mutantsOf("p.go", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, m := range all {
		got = append(got, m.String())
	}
	want := strings.Split(strings.TrimSpace(`
p.go:4: "defer close()" → nothing
p.go:5: "&&" → "||"
p.go:5: "<" → "<="
p.go:5: "3" → "4"
p.go:6: "++" → "--"
p.go:9: "n = n + 2" → nothing
p.go:9: "+" → "-"
p.go:9: "2" → "3"
p.go:10: "print(n)" → nothing
p.go:11: "break" → "continue"
p.go:13: "!done" → "!(!done)"
p.go:16: "1" → "2"`), "\n")
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	if _, err := mutantsOf("p.go", []byte("package")); err == nil {
		t.Error("a file with an error has mutants")
	}
}

// TestMutate tests the mutants of a package of which one function is tested.
func TestMutate(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: this test compiles packages")
	}
	dir := t.TempDir()
	for name, text := range map[string]string{
		"go.mod": "module m\n\ngo 1.26\n",
		"m.go":   "package m\n\nfunc tested(n int) bool { return n < 3 }\n\nfunc untested(n int) int { return n + 1 }\n",
		"m_test.go": "package m\n\nimport \"testing\"\n\nfunc Test(t *testing.T) {\n\tif !tested(2) || tested(3) {\n\t\tt.Fatal()\n\t}\n\t_ " +
			"= untested(1)\n}\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	t.Chdir(dir)
	before, err := os.ReadFile("m.go")
	if err != nil {
		t.Fatal(err)
	}
	if survivors, err := mutate(".", options{}); err != nil || survivors != 2 {
		t.Errorf("%d survivors (%v), want the 2 of the untested function", survivors, err)
	}
	if after, err := os.ReadFile("m.go"); err != nil || string(after) != string(before) {
		t.Errorf("the source changed: %v", err)
	}
}

// TestNoResult: go test that cannot run is an error, not a mutant that a test noticed.
func TestNoResult(t *testing.T) {
	t.Setenv("GOTMPDIR", filepath.Join(t.TempDir(), "missing"))
	if result, err := test(".", "^$", nil, 0); err == nil || !strings.Contains(err.Error(), "missing") {
		t.Errorf("the result is %q, %v", result, err)
	}
}
