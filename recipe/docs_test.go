package recipe

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write the tables of docs/recipes.md")

// TestDocument compares the tables of docs/recipes.md, between comments of "generated: NAME"
// and "end", with those of this package.
func TestDocument(t *testing.T) {
	path := filepath.Join("..", "docs", "recipes.md")
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	document := string(text)
	for name, table := range map[string]string{"operands": operandTable(), "switches": switchTable()} {
		part := regexp.MustCompile(`(?s)(<!-- generated: ` + name + ` -->\n).*?(<!-- end -->)`)
		if !part.MatchString(document) {
			t.Errorf("docs/recipes.md: got no generated part %s", name)
		}
		document = part.ReplaceAllStringFunc(document, func(s string) string {
			p := part.FindStringSubmatch(s)
			return p[1] + "\n" + table + "\n" + p[2]
		})
	}
	if document == string(text) {
		return
	}
	if !*update {
		t.Fatal("docs/recipes.md is out of date: run go test ./recipe -update")
	}
	if err := os.WriteFile(path, []byte(document), 0o644); err != nil { //nolint:gosec // a document
		t.Fatal(err)
	}
}

func operandTable() string {
	var b strings.Builder
	b.WriteString("| recipe | X rowwise | W rowwise | dY rowwise | W columnwise | X columnwise | dY columnwise " +
		"|\n|---|---|---|---|---|---|---|\n")
	for _, r := range Recipes() {
		columnwise := func(o Operand) string {
			if o.Shared() {
				return "the same codes"
			}
			return inWords(describe(o.Columnwise))
		}
		fmt.Fprintf(&b, "| `%s` | %s | %s | %s | %s | %s | %s |\n", r.Name,
			inWords(describe(r.Input.Rowwise)), inWords(describe(r.Weight.Rowwise)), inWords(describe(r.Grad.Rowwise)),
			columnwise(r.Weight), columnwise(r.Input), columnwise(r.Grad))
	}
	return b.String()
}

func inWords(s string) string {
	return strings.NewReplacer(" sr", " SR", " rht", " RHT", " pow2", ", 2ⁿ scales").Replace(s)
}

func switchTable() string {
	var b strings.Builder
	b.WriteString("| switch | takes | |\n|---|---|---|\n")
	for _, s := range new(Recipe).Switches() {
		fmt.Fprintf(&b, "| `%s` | %s | %s |\n", s.Name, strings.ReplaceAll(s.Values, " | ", ", "), s.Doc)
	}
	return b.String()
}
