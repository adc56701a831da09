package main

import (
	"flag"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/microscale-go/microscale/cmd/microscale/internal/demo"
	"github.com/microscale-go/microscale/cmd/microscale/internal/report"
	"github.com/microscale-go/microscale/cmd/microscale/internal/training"
	"github.com/microscale-go/microscale/internal/slow"
)

const repository = "../.."

// TestReadme compares the generated parts of the documents, between comments
// "generated: NAME" and "end", with the output of the program.
func TestReadme(t *testing.T) {
	printed := func(line string) string {
		t.Helper()
		status, stdout, stderr := execute("", strings.Fields(line)...)
		if status != exitDone {
			t.Fatal(stderr)
		}
		return stdout
	}
	blocks, _, _ := strings.Cut(printed("formats --markdown"), "\n\n")
	for _, tc := range []struct{ document, part, want string }{
		{"README.md", "clients", printed("formats --clients --markdown")},
		{"docs/numbers.md", "formats", blocks},
		{"docs/numbers.md", "explain", indented(printed("explain --format mxfp4 --profile all 0.1 -0.7 2.5 3.4"))},
		{"docs/numbers.md", "mma", indented(printed("mma --model hopper-wgmma --a e4m3 --explain --c 16384 1:1:32"))},
	} {
		t.Run(tc.part, func(t *testing.T) {
			path := filepath.Join(repository, filepath.FromSlash(tc.document))
			text, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			generated := regexp.MustCompile(`(?s)(<!-- generated: ` + tc.part + ` -->\n).*?(<!-- end -->)`)
			if !generated.Match(text) {
				t.Fatalf("%s has no generated part %s", tc.document, tc.part)
			}
			now := generated.ReplaceAllString(string(text), "${1}\n"+strings.ReplaceAll(strings.TrimRight(tc.want, "\n"), "$", "$$")+"\n\n${2}")
			if now == string(text) {
				return
			}
			if !*update {
				t.Fatalf("%s is not what the program prints: run go test ./cmd/microscale -update", tc.document)
			}
			if err := os.WriteFile(path, []byte(now), 0o644); err != nil {
				t.Fatal(err)
			}
		})
	}
}

// TestLinks checks that the targets of links in README.md and the documents exist.
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
			target, anchor, _ := strings.Cut(string(link[1]), "#")
			if strings.Contains(target, "://") {
				continue
			}
			links++
			if target == "" {
				target = filepath.Base(path)
			}
			if anchor != "" && !slices.Contains(anchors(t, filepath.Join(filepath.Dir(path), filepath.FromSlash(target))), anchor) {
				t.Errorf("%s links to %s, which has no heading #%s", filepath.Base(path), target, anchor)
			}
			if _, err := os.Stat(filepath.Join(filepath.Dir(path), filepath.FromSlash(target))); err != nil {
				t.Errorf("%s links to %s: %v", filepath.Base(path), target, err)
			}
		}
	}
	if links == 0 {
		t.Error("no links were found")
	}
}

// anchors returns the anchors of the headings of a Markdown file.
func anchors(t *testing.T, path string) (list []string) {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for _, heading := range regexp.MustCompile(`(?m)^#+ (.*)$`).FindAllStringSubmatch(string(text), -1) {
		words := strings.ReplaceAll(strings.ToLower(heading[1]), " ", "-")
		list = append(list, regexp.MustCompile(`[^\p{L}\p{N}_-]`).ReplaceAllString(words, ""))
	}
	return list
}

// TestReadmeSequence runs the examples of README.md and docs/numbers.md in order, in one
// directory with the repository's LICENSE and the files of demo. A stand-in has the names of the weights
// of MiniLM; interop runs that example on the model, and that of SmolLM2. It skips examples on the hub, whose results no other
// example needs, and of serve, which does not end. Without -full, training and the text of LICENSE are shorter.
func TestReadmeSequence(t *testing.T) {
	slow.Long(t, "it runs the commands of the README, which take a minute")
	if testing.Short() {
		t.Skip("-short: this test runs every example")
	}
	var text []byte
	for _, document := range []string{"README.md", filepath.Join("docs", "numbers.md")} {
		part, err := os.ReadFile(filepath.Join(repository, document))
		if err != nil {
			t.Fatal(err)
		}
		text = append(text, part...)
	}
	license, err := os.ReadFile(filepath.Join(repository, "LICENSE"))
	if err != nil {
		t.Fatal(err)
	}
	t.Chdir(t.TempDir())
	if !*slow.FullRun {
		license = license[:3000]
	}
	writeFile(t, "LICENSE", license)
	if err := demo.Write(t.Context(), "demo"); err != nil {
		t.Fatal(err)
	}
	const minilm = "all-MiniLM-L6-v2"
	directory(t, minilm, weight{name: "encoder.layer.0.attention.self.query.weight", shape: []int64{64, 64}},
		weight{name: "pooler.dense.weight", shape: []int64{64, 64}})
	steps, words := regexp.MustCompile(`--steps \d+`), regexp.MustCompile(`'[^']*'|\S+`)
	var ran []string
	for _, example := range regexp.MustCompile(`(?m)^    \$ microscale (.*)$`).FindAllStringSubmatch(string(text), -1) {
		line := example[1]
		if strings.Contains(line, "hf://") || strings.Contains(line, "SmolLM2") || strings.HasPrefix(line, "serve ") {
			continue
		}
		ran = append(ran, line)
		if !*slow.FullRun {
			line = steps.ReplaceAllString(line, "--steps 3")
		}
		arguments := words.FindAllString(line, -1)
		for i, a := range arguments {
			arguments[i] = strings.Trim(a, "'")
		}
		status, stdout, stderr := execute("", arguments...)
		if status != exitDone || stdout+stderr == "" || strings.Contains(stdout, "nothing was done") {
			t.Fatalf("microscale %s: exit status %d\n%s%s", line, status, stdout, stderr)
		}
	}
	for _, command := range []string{"train", "quantize", "eval", "explain", "convert", "verify"} {
		if !slices.ContainsFunc(ran, func(line string) bool { return strings.HasPrefix(line, command+" ") }) {
			t.Errorf("README.md has no example of %s", command)
		}
	}
	if !slices.ContainsFunc(ran, func(line string) bool { return strings.Contains(line, minilm) }) || !slices.ContainsFunc(ran,
		steps.MatchString) {
		t.Errorf("the examples are %q", ran)
	}
}

var record = flag.Bool("record", false, "with -run TestRecorded: write into README.md what compare prints here")

// TestRecorded checks that README.md begins with the command demo, and that the
// recorded output of compare has the same columns and recipes as that of the program. The figures
// are those of one machine (see -record).
func TestRecorded(t *testing.T) {
	path := filepath.Join(repository, "README.md")
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	first := regexp.MustCompile("```sh\n(.*)\n```").FindSubmatch(text)
	if first == nil || string(first[1]) != "go run ./cmd/microscale demo" {
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
	if err := training.PrintComparison(&printed, c, filepath.Join(cmd.Flags().Lookup("out").DefValue, training.ReportName)); err != nil {
		t.Fatal(err)
	}
	// The lines of the table, and the last one. Between them are lines that depend on the figures.
	got, want := strings.Split(string(recorded[1]), "\n"), strings.Split(indented(printed.String()), "\n")
	if len(got) < len(want) {
		t.Fatalf("README.md shows %d lines of compare, which prints %d:\n%s", len(got), len(want), printed.String())
	}
	if last := len(want) - 1; got[len(got)-1] != want[last] {
		t.Errorf("the last line of README.md is %q, which compare prints as %q", got[len(got)-1], want[last])
	}
	for i := range 3 + len(c.Recipes) {
		g, w := strings.Fields(got[i]), strings.Fields(want[i])
		if i < 2 && !slices.Equal(g, w) || i >= 3 && (len(g) == 0 || g[0] != w[0]) {
			t.Errorf("line %d of README.md is %q, which compare prints as %q", i+1, got[i], want[i])
		}
	}
	if steps := cmd.Flags().Lookup("steps").DefValue; !strings.Contains(string(recorded[1]), " "+steps+" steps ") {
		t.Errorf("README.md shows a run of other than the default %s steps", steps)
	}
}

// indented returns text as an indented Markdown code block.
func indented(text string) string {
	lines := strings.Split(strings.TrimRight(text, "\n"), "\n")
	for i, l := range lines {
		if l != "" {
			lines[i] = "    " + l
		}
	}
	return strings.Join(lines, "\n")
}
