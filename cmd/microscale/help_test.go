package main

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/microscale-go/microscale/internal/slow"
)

// TestHelp checks that every command has help, and runs the examples that need no
// files.
func TestHelp(t *testing.T) {
	slow.Race(t, slow.Repeats)
	started := false
	root := rootCommand(&started)
	for _, cmd := range root.Commands() {
		if cmd.GroupID == "" {
			continue // cobra's own
		}
		if cmd.Example == "" {
			t.Errorf("%s has no example", cmd.Name())
		}
		path := strings.Fields(cmd.CommandPath())[1:]
		status, stdout, _ := execute("", append(path, "--help")...)
		if status != exitDone || !strings.Contains(stdout, cmd.Example) {
			t.Errorf("%s --help: exit status %d, without its examples: %s", cmd.Name(), status, stdout)
		}
		if cmd.GroupID != "Numbers" && cmd.GroupID != "Hardware" {
			continue // examples that name files
		}
		for _, example := range strings.Split(cmd.Example, "\n") {
			if strings.Contains(example, " --tensor ") {
				continue // it names a file
			}
			line, redirection, _ := strings.Cut(strings.TrimPrefix(strings.TrimSpace(example), "microscale "), "<")
			stdin := ""
			if redirection != "" {
				stdin = strings.Repeat("\x00", 140) // whole patterns of cast, and one case of mma
			}
			if status, stdout, stderr := execute(stdin, strings.Fields(line)...); status != exitDone || stdout == "" {
				t.Errorf("the example %q ends with status %d: %s", example, status, stderr)
			}
		}
	}
}

// TestHelpTopic checks that help for what is no command fails.
func TestHelpTopic(t *testing.T) {
	slow.Race(t, slow.Repeats)
	for line, want := range map[string]string{
		"help quantise":         "did you mean quantize?",
		"help study blok-size":  "did you mean block-size?",
		"help quantize sample:": "microscale quantize has no command",
	} {
		if status, stdout, stderr := execute("", strings.Fields(line)...); status != exitUsage || stdout != "" || !strings.Contains(stderr,
			want) {
			t.Errorf("%s: status %d, got %q and %q, want %s", line, status, stdout, stderr, want)
		}
	}
}

// TestHelpWriteError checks that help and version that cannot be written are failures.
func TestHelpWriteError(t *testing.T) {
	slow.Race(t, slow.Repeats)
	closed, err := os.Create(filepath.Join(t.TempDir(), "closed"))
	if err != nil {
		t.Fatal(err)
	}
	if err := closed.Close(); err != nil {
		t.Fatal(err)
	}
	for _, line := range []string{"--help", "", "help mma", "mma --help-all", "study", "--version"} {
		var stderr strings.Builder
		status := run(strings.Fields(line), strings.NewReader(""), closed, &stderr)
		if got := stderr.String(); status != exitFailed || !strings.HasPrefix(got, "microscale: ") || strings.Count(got, "\n") != 1 {
			t.Errorf("%q: status %d, want %d and one line; got %q", line, status, exitFailed, got)
		}
	}
}

// TestPlaceholders checks that the placeholders of all flags are ASCII: pflag aligns the help
// by bytes.
func TestPlaceholders(t *testing.T) {
	var visit func(cmd *cobra.Command)
	visit = func(cmd *cobra.Command) {
		cmd.Flags().VisitAll(func(f *pflag.Flag) {
			if name, _ := pflag.UnquoteUsage(f); len(name) != utf8.RuneCountInString(name) {
				t.Errorf("%s --%s %s: the help is not aligned", cmd.CommandPath(), f.Name, name)
			}
		})
		for _, sub := range cmd.Commands() {
			visit(sub)
		}
	}
	visit(rootCommand(new(bool)))
}

// TestSuggestions checks that every flag that takes names suggests those that are like
// an unknown one.
func TestSuggestions(t *testing.T) {
	for _, tc := range []struct{ line, want string }{
		{"quantze", `unknown command "quantze": did you mean quantize?`},
		{"bench gem", `unknown command "gem": did you mean gemm or gemv?`},
		{"quantize a b --formt mxfp8", `unknown flag --formt: did you mean --format?`},
		{"quantize a b --format mxpf8", `--format: unknown block format "mxpf8": did you mean mxfp8`},
		{"quantize a b --format W8A16", `--format: W8A16 is a scheme: use --scheme W8A16 with --format int8-g128 or int8-row`},
		{"quantize a b --format int8-g64", `--format: unknown block format "int8-g64": did you mean int8-g128 or int8-row?`},
		{"quantize a b --format mxfp8 --profile torcha", `--profile: unknown profile "torcha": did you mean torchao`},
		{"quantize a b --format mxfp8 --scale-rule flor", `--scale-rule: unknown scale rule "flor": did you mean floor?`},
		{"quantize a b --format mxfp8 --scale-search=mes", `--scale-search: unknown scale search "mes": did you mean mse?`},
		{"quantize a b --format mxfp8 --for vllmm", `--for: unknown client "vllmm": did you mean vllm?`},
		{"quantize a b --format mxfp8 --convention modelop", `--convention: unknown convention "modelop": did you mean modelopt?`},
		{"quantize a b --format nvfp4 --scheme NVFP4A6", `--scheme: unknown scheme "NVFP4A6": did you mean NVFP4A16?`},
		{"verify a b --client vllm,sglan", `--client: unknown client "sglan": did you mean sglang?`},
		{"train --recipe nvpf4", `--recipe: unknown recipe "nvpf4": did you mean nvfp4?`},
		{"train --schedule cosin", `--schedule: unknown schedule "cosin": did you mean cosine?`},
		{"train --recipe delayed --amax-compute-algo mx", `did you mean max?`},
		{"compare --recipes bf16,blockwis", `--recipes: unknown recipe "blockwis": did you mean blockwise?`},
		{"eval a --recipe bf17", `--recipe: unknown recipe "bf17": did you mean bf16?`},
		{"cast --to e4m 1", `--to: unknown scalar format "e4m": did you mean e4m3`},
		{"cast --to e4m3 --rounding stochastc 1", `--rounding: unknown rounding "stochastc": did you mean stochastic?`},
		{"cast --to e4m3 --overflow saturat 1", `--overflow: unknown overflow "saturat": did you mean saturate`},
		{"explain --format mxfp4 --profile ocpp 1", `--profile: unknown profile "ocpp": did you mean ocp?`},
		{"mma --model hoper", `--model: unknown model "hoper": did you mean hopper-mma or hopper-wgmma?`},
		{"mma --a e4m", `--a: unknown operand type "e4m": did you mean e4m3`},
		{"check --device h20", `--device: unknown device "h20": did you mean h200?`},
		{"layout --format mxfp8 --check swizled", `did you mean swizzled?`},
		{"cost --recipe mxpf8", `--recipe: unknown recipe "mxpf8": did you mean mxfp8?`},
		{"study block-size --distribution gaus", `did you mean gauss?`},
		{"bench gemm --format mxfp8 --kernel avx51", `--kernel: unknown kernel tier "avx51": did you mean avx512f or avx512vnni or ` +
			`avx512vbmi or avx512?`},
		{"bench all --formats mxpf8", `did you mean mxfp8`},
		{"run a --inputs mxint9", `--inputs: unknown format of inputs "mxint9": did you mean mxint8`},
		{"run a --kv-format mxpf8", `--kv-format: unknown block format "mxpf8": did you mean mxfp8`},
	} {
		status, _, stderr := execute("", strings.Fields(tc.line)...)
		if status != exitUsage || !strings.Contains(stderr, tc.want) {
			t.Errorf("%s: exit status %d, %q, want %q", tc.line, status, stderr, tc.want)
		}
	}
}

// TestHelpFlags checks that --help shows at most a dozen flags of every command, that
// --help-all shows all of them, and that lines have at most 80 columns.
func TestHelpFlags(t *testing.T) {
	slow.Race(t, slow.Repeats)
	const maxFlags = 12
	var started bool
	var visit func(cmd *cobra.Command)
	visit = func(cmd *cobra.Command) {
		path := strings.Fields(cmd.CommandPath())[1:]
		status, help, stderr := execute("", slices.Concat(path, []string{"--help"})...)
		allStatus, all, allStderr := execute("", slices.Concat(path, []string{"--help-all"})...)
		if status != exitDone || allStatus != exitDone || stderr+allStderr != "" {
			t.Fatalf("%s: exit status %d and %d: %s%s", cmd.CommandPath(), status, allStatus, stderr, allStderr)
		}
		flag := regexp.MustCompile(`(?m)^  (?:-\w, |    )--([\w-]+)`)
		shown, want := flag.FindAllStringSubmatch(help, -1), []string{}
		cmd.Flags().VisitAll(func(f *pflag.Flag) {
			if !f.Hidden {
				want = append(want, f.Name)
			}
		})
		var listed []string
		for _, m := range flag.FindAllStringSubmatch(all, -1) {
			listed = append(listed, m[1])
		}
		slices.Sort(want)
		slices.Sort(listed)
		if len(shown) > maxFlags {
			t.Errorf("%s --help shows %d flags, want at most %d", cmd.CommandPath(), len(shown), maxFlags)
		}
		if !slices.Equal(listed, want) {
			t.Errorf("%s --help-all shows %q, want %q", cmd.CommandPath(), listed, want)
		}
		if hidden := len(want) > len(shown); hidden != strings.Contains(help, " --help-all' for ") {
			t.Errorf("%s: with %d flags of %d shown, the help ends with %q", cmd.CommandPath(), len(shown), len(want), help[max(0, len(help)-80):])
		}
		for l := range strings.Lines(all) {
			if n := utf8.RuneCountInString(strings.TrimRight(l, "\n")); n > 80 && !slices.Contains(path, "completion") { // cobra's text
				t.Errorf("%s --help-all: a line of %d columns: %s", cmd.CommandPath(), n, l)
			}
		}
		for _, c := range cmd.Commands() {
			visit(c)
		}
	}
	root := rootCommand(&started)
	addCompletion(root)
	visit(root)
}
