package main

import (
	"flag"
	"fmt"
	"html"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/microscale-go/microscale/internal/report"
	"github.com/microscale-go/microscale/internal/study"
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
	_, clients, _ := execute("", "formats", "--clients", "--markdown")
	_, explained, _ := execute("", strings.Fields("explain --format mxfp4 --profile all 0.1 -0.7 2.5 3.4")...)
	_, stops, _ := execute("", strings.Fields("mma --model hopper-wgmma --a e4m3 --explain --c 16384 1:1:32")...)
	for name, want := range map[string]string{"formats": blocks, "clients": clients, "explain": indented(explained), "mma": indented(stops)} {
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

// TestReadmeSequence runs the examples of README.md in their order, each in the directory
// in which those before left their results. A stand-in has the names of MiniLM's weights:
// interop/minilm_test.go runs that example on the model itself. What is read from the hub
// stands apart: nothing else needs its result. With -short the training is shorter.
func TestReadmeSequence(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(repository, "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	t.Chdir(t.TempDir())
	const minilm = "all-MiniLM-L6-v2"
	directory(t, minilm, weight{name: "encoder.layer.0.attention.self.query.weight", shape: []int64{64, 64}}, weight{name: "pooler.dense.weight", shape: []int64{64, 64}})
	steps := regexp.MustCompile(`--steps \d+`)
	var ran []string
	for _, example := range regexp.MustCompile(`(?m)^    \$ microscale (.*)$`).FindAllStringSubmatch(string(text), -1) {
		line := example[1]
		if strings.Contains(line, "hf://") {
			continue
		}
		ran = append(ran, line)
		if !*long {
			line = steps.ReplaceAllString(line, "--steps 3")
		}
		status, stdout, stderr := execute("", strings.Fields(line)...)
		if status != exitDone || stdout+stderr == "" || strings.Contains(stdout, "nothing was done") {
			t.Fatalf("microscale %s: exit status %d\n%s%s", line, status, stdout, stderr)
		}
	}
	for _, command := range []string{"train", "quantize", "eval", "explain", "convert", "verify"} {
		if !slices.ContainsFunc(ran, func(line string) bool { return strings.HasPrefix(line, command+" ") }) {
			t.Errorf("README.md has no example of %s", command)
		}
	}
	if !slices.ContainsFunc(ran, func(line string) bool { return strings.Contains(line, minilm) }) || !slices.ContainsFunc(ran, steps.MatchString) {
		t.Errorf("the examples are %q", ran)
	}
}

// times are the parts of the output of quantize that change from run to run.
var times = regexp.MustCompile(` in [^,]+, [0-9.]+ [kMG]?B/s of source`)

// TestPicture compares the picture of the README with the table that the command
// in it prints.
func TestPicture(t *testing.T) {
	const line = "quantize sample: sample-mxfp8 --format mxfp8"
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

var record = flag.Bool("record", false, "with -run TestRecorded: write into README.md what its first command prints here")

// TestRecorded: the README begins with the command compare, and what it shows of
// that is shaped as what the program prints now: the same columns, and the recipes
// that are compared by default. Its figures are of one machine (see -record).
func TestRecorded(t *testing.T) {
	path := filepath.Join(repository, "README.md")
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	first := regexp.MustCompile("```sh\n(.*)\n```").FindSubmatch(text)
	if first == nil || string(first[1]) != "go run ./cmd/microscale compare" {
		t.Fatalf("the first command of README.md is %q", first)
	}
	shown := regexp.MustCompile(`(?s)<!-- recorded: compare -->\n\n(.*?)\n\n<!-- end -->`)
	if *record {
		dir := filepath.Join(t.TempDir(), "comparison")
		status, stdout, stderr := execute("", "compare", "--out", dir)
		if status != exitDone {
			t.Fatal(stderr)
		}
		stdout = strings.ReplaceAll(stdout, dir, "comparison")
		text = shown.ReplaceAllLiteral(text, []byte("<!-- recorded: compare -->\n\n"+indented(stdout)+"\n\n<!-- end -->"))
		if err := os.WriteFile(path, text, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	recorded := shown.FindSubmatch(text)
	if recorded == nil {
		t.Fatal("README.md does not show what compare prints")
	}
	cmd := compareCommand()
	c := &report.Comparison{Subtitle: "853 k parameters"}
	for _, name := range strings.Split(cmd.Flags().Lookup("recipes").Value.String(), ",") {
		c.Recipes = append(c.Recipes, report.Recipe{Name: name})
	}
	var printed strings.Builder
	if err := study.PrintComparison(&printed, c, filepath.Join(cmd.Flags().Lookup("out").DefValue, study.ReportName)); err != nil {
		t.Fatal(err)
	}
	got, want := strings.Split(string(recorded[1]), "\n"), strings.Split(indented(printed.String()), "\n")
	if len(got) != len(want) {
		t.Fatalf("README.md shows %d lines of compare, which prints %d:\n%s", len(got), len(want), printed.String())
	}
	for i := range want {
		g, w := strings.Fields(got[i]), strings.Fields(want[i])
		whole := i < 2 || i == len(want)-1 // titles, and where the report is
		if whole && !slices.Equal(g, w) || !whole && len(w) > 0 && strings.Trim(w[0], "─") != "" && (len(g) == 0 || g[0] != w[0]) {
			t.Errorf("line %d of README.md is %q, which compare prints as %q", i+1, got[i], want[i])
		}
	}
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
