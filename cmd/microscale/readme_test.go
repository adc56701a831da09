package main

import (
	"fmt"
	"html"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"unicode/utf8"
)

const repository = "../.."

// TestReadme compares the generated parts of README.md, each between a comment
// "generated: NAME" and one "end", with what the program prints now.
func TestReadme(t *testing.T) {
	path := filepath.Join(repository, "README.md")
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	readme := string(text)
	_, formats, _ := execute("", "formats", "--markdown")
	blocks, _, _ := strings.Cut(formats, "\n\n")
	_, explained, _ := execute("", strings.Fields("explain --format mxfp4 --profile all 0.1 -0.7 2.5 3.4")...)
	for name, want := range map[string]string{"formats": blocks, "explain": indented(explained)} {
		generated := regexp.MustCompile(`(?s)(<!-- generated: ` + name + ` -->\n).*?(<!-- end -->)`)
		if !generated.MatchString(readme) {
			t.Errorf("README.md has no part that is generated: %s", name)
		}
		readme = generated.ReplaceAllString(readme, "${1}\n"+strings.ReplaceAll(strings.TrimRight(want, "\n"), "$", "$$")+"\n\n${2}")
	}
	if readme == string(text) {
		return
	}
	if !*update {
		t.Fatal("README.md is not what the program prints: run go test ./cmd/microscale -update")
	}
	if err := os.WriteFile(path, []byte(readme), 0o644); err != nil {
		t.Fatal(err)
	}
}

// TestLinks: what README.md and the documents link to is there.
func TestLinks(t *testing.T) {
	documents, err := filepath.Glob(filepath.Join(repository, "docs", "*.md"))
	if err != nil {
		t.Fatal(err)
	}
	links := 0
	for _, path := range append(documents, filepath.Join(repository, "README.md")) {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for _, link := range regexp.MustCompile(`\]\(([^)]+)\)`).FindAllSubmatch(text, -1) {
			target, _, _ := strings.Cut(string(link[1]), "#")
			if target == "" || strings.Contains(target, "://") {
				continue
			}
			links++
			if _, err := os.Stat(filepath.Join(filepath.Dir(path), filepath.FromSlash(target))); err != nil {
				t.Errorf("%s links to %s: %v", filepath.Base(path), target, err)
			}
		}
	}
	if links == 0 {
		t.Error("no links were found")
	}
}

// times are the parts of the output of quantize that change from run to run.
var times = regexp.MustCompile(` in [^,]+, [0-9.]+ [kMG]?B/s of source`)

// TestPicture compares the picture of the README with the table that its first
// command prints.
func TestPicture(t *testing.T) {
	line := firstCommand(t)
	dst := filepath.Join(t.TempDir(), "sample-mxfp8")
	args := strings.Fields(strings.ReplaceAll(line, "sample-mxfp8", dst))
	status, out, stderr := execute("", args...)
	if status != exitDone {
		t.Fatal(stderr)
	}
	out = times.ReplaceAllString(strings.ReplaceAll(out, dst, "sample-mxfp8"), "")
	picture := terminalPicture("$ microscale "+line, out)
	path := filepath.Join(repository, "docs", "quantize.svg")
	have, err := os.ReadFile(path)
	if err == nil && string(have) == picture {
		return
	}
	if !*update {
		t.Fatalf("docs/quantize.svg is not what %q prints: run go test ./cmd/microscale -update", line)
	}
	if err := os.WriteFile(path, []byte(picture), 0o644); err != nil {
		t.Fatal(err)
	}
}

// firstCommand returns the arguments of the README's first command.
func firstCommand(t *testing.T) string {
	t.Helper()
	readme, err := os.ReadFile(filepath.Join(repository, "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	found := regexp.MustCompile("```sh\ngo run ./cmd/microscale (.*)\n```").FindSubmatch(readme)
	if found == nil {
		t.Fatal("README.md does not begin with a command that runs ./cmd/microscale")
	}
	return string(found[1])
}

// indented returns text as a Markdown code block by indentation.
func indented(text string) string {
	lines := strings.Split(strings.TrimRight(text, "\n"), "\n")
	for i, l := range lines {
		if l != "" {
			lines[i] = "    " + l
		}
	}
	return strings.Join(lines, "\n")
}

// terminalPicture draws a command and its output as an SVG.
func terminalPicture(command, output string) string {
	const width, height, margin = 7.83, 18, 16 // of a character of 13 px; of a line
	lines := append([]string{command}, strings.Split(strings.TrimRight(output, "\n"), "\n")...)
	longest := 0
	for _, l := range lines {
		longest = max(longest, utf8.RuneCountInString(l))
	}
	w, h := int(float64(longest)*width)+2*margin, len(lines)*height+2*margin
	var b strings.Builder
	fmt.Fprintf(&b, "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%d\" viewBox=\"0 0 %d %d\">\n", w, h, w, h)
	fmt.Fprintf(&b, "<rect width=\"%d\" height=\"%d\" rx=\"8\" fill=\"#0f1419\"/>\n", w, h)
	b.WriteString("<g font-family=\"ui-monospace,SFMono-Regular,Menlo,Consolas,'DejaVu Sans Mono',monospace\" font-size=\"13\" fill=\"#d5d8da\" xml:space=\"preserve\">\n")
	for i, l := range lines {
		fill := ""
		if i == 0 {
			fill = " fill=\"#7fd962\""
		}
		fmt.Fprintf(&b, "<text x=\"%d\" y=\"%d\" textLength=\"%.0f\"%s>%s</text>\n", margin, margin+13+i*height, float64(utf8.RuneCountInString(l))*width, fill, html.EscapeString(l))
	}
	b.WriteString("</g>\n</svg>\n")
	return b.String()
}
