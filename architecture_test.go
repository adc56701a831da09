package microscale_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestArchitecture checks that the files that docs/changing.md names exist, and that the picture of docs/architecture.md has
// every package of the lattice and fits on a page with the rest.
func TestArchitecture(t *testing.T) {
	data, err := os.ReadFile(filepath.Join("docs", "architecture.md"))
	if err != nil {
		t.Fatal(err)
	}
	page := string(data)
	if lines := strings.Count(page, "\n"); lines > 80 {
		t.Errorf("docs/architecture.md has %d lines, want one page of at most 80", lines)
	}
	table, err := os.ReadFile(filepath.Join("docs", "changing.md"))
	if err != nil {
		t.Fatal(err)
	}
	files := 0
	for _, m := range regexp.MustCompile("`([a-z]+/[a-zA-Z0-9_./]*)`").FindAllStringSubmatch(string(table), -1) {
		files++
		if _, err := os.Stat(filepath.FromSlash(m[1])); err != nil {
			t.Errorf("the table names %s: %v", m[1], err)
		}
	}
	if files < 20 {
		t.Errorf("got %d files in the table, want at least 20", files)
	}
	picture, _, _ := strings.Cut(page, "## Five ideas")
	group := regexp.MustCompile(`(\S*)/\{([^}]*)\}`)
	for _, m := range group.FindAllStringSubmatch(picture, -1) {
		for _, name := range strings.Split(m[2], ",") {
			picture += " " + m[1] + "/" + strings.TrimSpace(name) + " "
		}
	}
	lattice, err := os.ReadFile(filepath.Join("internal", "lattice", "lattice_test.go"))
	if err != nil {
		t.Fatal(err)
	}
	_, order, _ := strings.Cut(string(lattice), "const order = `\n")
	order, _, _ = strings.Cut(order, "`")
	for line := range strings.Lines(order) {
		name, _, listed := strings.Cut(line, ":")
		if listed && name != "." && !regexp.MustCompile(`[\s,]`+name+`[\s,]`).MatchString(picture) {
			t.Errorf("the picture lacks %s", name)
		}
	}
}
