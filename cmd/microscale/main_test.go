package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"io"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/microscale-go/microscale/cmd/microscale/internal/flags"
	"github.com/microscale-go/microscale/cmd/microscale/internal/numbers"
	"github.com/microscale-go/microscale/internal/ramdisk"
	"github.com/microscale-go/microscale/internal/slow"
)

var update = flag.Bool("update", false, "rewrite the outputs in testdata/script")

// suite is the tests of this package.
type suite struct{ *testing.M }

// Run runs the tests and returns their exit status.
func (s suite) Run() int {
	flag.Parse()
	if *slow.FullRun {
		return s.M.Run()
	}
	return ramdisk.Main(s.M)
}

// TestMain runs the tests, or the program: as TestProcess, whose end would leave the copy of it behind that scripts
// run, or in a script.
func TestMain(m *testing.M) {
	if slices.Contains(os.Args, processFlag) {
		os.Exit(m.Run())
	}
	testscript.Main(suite{m}, map[string]func(){"microscale": main})
}

// execute runs a command line in process.
func execute(stdin string, args ...string) (status int, stdout, stderr string) {
	var out, err bytes.Buffer
	status = run(args, strings.NewReader(stdin), &out, &err)
	return status, out.String(), err.String()
}

// TestScript runs the scripts in testdata/script, which compare whole outputs. With microscale in the PATH, the
// command testscript of the same module runs them, too.
func TestScript(t *testing.T) {
	testscript.Run(t, testscript.Params{Dir: filepath.Join("testdata", "script"), UpdateScripts: *update, RequireExplicitExec: true})
}

// TestWidth checks that tables fit the narrowest common terminal.
func TestWidth(t *testing.T) {
	for _, line := range []string{
		"formats", "--help", "cast --help", "explain --help",
		"explain --format mxfp8 0.123456 -0.234567 -1.2e-12 3.56789",
		"explain --format mxfp8 --profile all 0.1 -0.7 2.5 3.4",
		"explain --format nvfp4 --profile all 0.1 -0.7 2.5 3.4",
		"explain --format fp8-tensor --profile all 0.1 -0.7 2.5 3.4",
		"cast --to e4m3 --from bf16 0.123456 -1.23456e-12 1000",
		"study --help", "study block-size --help", "study block-size --rows 1", "cost --tables", "cost --help",
		"cost --params 7e10 --recipe blockwise --device h100 --explain", "layout", "layout --help", "check --help", "check",
		"check --device b200", "check --device mi355x --format mxfp8 --m 8192 --n 4096 --k 14336",
		"mma", "mma --help", "mma --model cdna3-mfma", "mma --model cdna3-mfma --a bf16 --explain 0.123456:1e-30 0.3:-5e20:3",
	} {
		_, out, _ := execute("", strings.Fields(line)...)
		for _, l := range strings.Split(out, "\n") {
			if n := len([]rune(l)); n > 80 {
				t.Errorf("%s: a line of %d columns: %s", line, n, l)
			}
			if strings.TrimRight(l, " ") != l {
				t.Errorf("%s: spaces end the line %q", line, l)
			}
		}
	}
}

// TestUsage checks wrong command lines: exit status 2, nothing on standard output, the
// problem and how to get help on standard error.
func TestUsage(t *testing.T) {
	for _, tc := range []struct{ line, want string }{
		{"formast", `unknown command "formast": did you mean formats?`},
		{"zzz", `unknown command "zzz": use one of `},
		{"formats zzz", `got "zzz", want no arguments`},
		{"study block-size zzz", `got "zzz", want no arguments`},
		{"bench gemm zzz", `got "zzz", want no arguments`},
		{"study zzz", `unknown command "zzz": use one of block-size`},
		{"study blok-size --help", `unknown command "blok-size": did you mean block-size?`},
		{"traim --help", `unknown command "traim": did you mean train?`},
		{"quantise sample: x --format mxfp8", `unknown command "quantise": did you mean quantize?`},
		{"bench gem --format mxfp8", `unknown command "gem": did you mean gemm or gemv?`},
		{"zzz -q", `unknown command "zzz": use one of `},
		{"--zzz", `unknown flag --zzz: microscale --help-all lists the flags`},
		{"bench --help gem", `unknown command "gem": did you mean gemm or gemv?`},
		{"repair sample: x.gguf", "x.gguf: repair writes a directory of safetensors files: use a DST that does not end in .gguf"},
		{"dequantize sample: x.gguf", "x.gguf: dequantize writes no .gguf files: use a DST that does not end in .gguf"},
		{"quantize sample: x.gguf --for vllm --format mxfp4", `--for vllm does not write .gguf files: use a DST that does not end in .gguf`},
		{"formats --jsn", `unknown flag --jsn: did you mean --json?`},
		{"formats --zzzzzz", `unknown flag --zzzzzz: microscale formats --help-all lists the flags`},
		{"formats -z", `unknown shorthand flag: 'z' in -z`},
		{"formats --json --markdown", `--json and --markdown exclude each other`},
		{"cast 1", `--to is missing`},
		{"cast --to", `flag needs an argument: --to`},
		{"cast --to e9m9 1", `--to: unknown scalar format "e9m9": use one of e4m3, `},
		{"cast --to e4m3", `no numbers: give some, or use --raw`},
		{"cast --to e4m3 one", `"one" is not a number`},
		{"cast --to e4m3 1e39", `1e39 is beyond the maximum of float32`},
		{"cast --to e4m3 -1e39", `-1e39 is beyond the maximum of float32`},
		{"cast --to e4m3 1e-50", `1e-50 rounds to 0 in float32, whose minimum is 1.4e-45: use 0`},
		{"cast --to e4m3 -0x1.8p-151", `-0x1.8p-151 rounds to 0 in float32`},
		{"cast --to e4m3 -1e-400", `-1e-400 rounds to 0 in float32`},
		{"explain --format mxfp8 1e-50", `1e-50 rounds to 0 in float32`},
		{"cast --to e4m3 0x123456789", `"0x123456789" is not a bit pattern of f32`},
		{"cast --to e4m3 --from bf16 0x10000", `"0x10000" is not a bit pattern of bf16`},
		{"cast --to e4m3 --from e5m2 1", `--from: unsupported format "e5m2": use one of f32, bf16, fp16`},
		{"cast --to e4m3 --rounding sideways 1", `--rounding: unknown rounding "sideways": use one of nearest-even, `},
		{"cast --to e4m3 --overflow wrap 1", `--overflow: unknown overflow "wrap": use one of saturate, `},
		{"cast --to e4m3 --seed -1 1", `--seed: "-1" is not an integer of 0 or more`},
		{"cast --to e2m1 --codes 0x10", `"0x10" is not a code of e2m1: use 0 to 0xf`},
		{"cast --to e4m3 --raw 1", `--raw reads standard input: omit "1"`},
		{"cast --to e4m3 --raw --json", `--raw and --json exclude each other`},
		{"cast --to e4m3 --raw --codes", `--raw and --codes exclude each other`},
		{"explain 1", `--format is missing`},
		{"explain --format mxfp9 1", `--format: unknown block format "mxfp9": did you mean mxfp8 or mxfp4?`},
		{"explain --format mxfp8", `no values: give some`},
		{"explain --format bf16 1", `use microscale cast --to bf16`},
		{"explain --format mxfp8 --profile zzz 1", `--profile: unknown profile "zzz": use one of te, `},
		{"explain --format nvfp4 --profile ocp 1", `profile ocp does not define nvfp4: use one of te, `},
		{"explain --format nvfp4 --scale-rule floor 1", `--scale-rule: nvfp4 has no E8M0 scales; omit the flag`},
		{"explain --format mxfp8 --scale-rule nearest 1", `--scale-rule: unknown scale rule "nearest": use one of rceil, `},
		{"explain --format mxfp8 --amax 3 1", `--amax: mxfp8 has no tensor scale; omit the flag`},
		{"explain --format nvfp4 --amax -3 1", `--amax: got -3, want a number of 0 or more`},
		{"mma --model hoper", `unknown model "hoper": did you mean hopper-mma or hopper-wgmma?`},
		{"mma --model zzzzzz", `unknown model "zzzzzz": use one of volta-mma, `},
		{"mma --raw --a e4m3", `--model is missing`},
		{"mma --raw --model hopper-wgmma", `--a is missing: name the type of A, such as --a f16`},
		{"mma --raw --model hopper-wgmma --a e9m9", `--a: unknown operand type "e9m9": use one of f64, `},
		{"mma --raw --model hopper-wgmma --a e4m3 --b f16", `hopper-wgmma: unsupported operands e4m3×f16: use f16×f16; `},
		{"mma --raw --model hopper-wgmma --a bf16 --out f16", `hopper-wgmma: unsupported result f16 of bf16×bf16: use f32`},
		{"mma --raw --model hopper-wgmma --a e4m3 --scale ue8m0", `hopper-wgmma: got scales of ue8m0, want none`},
		{"mma --raw --model blackwell-mxf4 --a e2m1 --scale ue4m3", `blackwell-mxf4: unsupported scales ue4m3: use ue8m0`},
		{"mma --raw --model ampere-mma --a f16 --k 24", `--k 24: use a multiple of 16, the K of ampere-mma with f16×f16, or 8`},
		{"mma --raw --model ampere-mma --a f16 --k -16", `--k -16: use a multiple of 16`},
		{"mma --raw --model ampere-mma --a f16 --k 9223372036854775792", `--k 9223372036854775792: use 1048576 at most`},
		{"mma --explain --model ampere-mma --a f16 --k 3200000000 1:1", `--k 3200000000: use 1048576 at most`},
		{"mma --raw --model ampere-mma --a f16 1:1", `--raw reads standard input: omit "1:1"`},
		{"mma --raw --explain --model ampere-mma --a f16", `--raw and --explain exclude each other`},
		{"mma --model ampere-mma --a f16", `nothing to compute: add --raw or --explain`},
		{"mma --explain --model ampere-mma --a f16", `no products: give some`},
		{"mma --explain --model ampere-mma --a f16 1", `"1" is not a product: use A:B`},
		{"mma --explain --model ampere-mma --a f16 1:1:x", `"x" is not a number of products`},
		{"mma --explain --model ampere-mma --a f16 1:1:17", `more products than K = 16`},
		{"mma --explain --model hopper-wgmma --a e4m3 -1:inf", `e4m3 has no inf`},
		{"mma --explain --model hopper-wgmma --a e4m3 1:1000", `1000 is beyond the maximum of e4m3, 448`},
		{"mma --explain --model blackwell-mxf4 --a e2m1 nan:1", `e2m1 has no nan`},
		{"mma --explain --model blackwell-mxf4 --a e2m1 --scales-a 1,2,3 1:1", `--scales-a: got 3 scales, want 1 or 2`},
		{"study block-size --rows 0", `rows: got 0, want 1 to 65536`},
		{"study block-size --rows 99999999999", `rows: got 99999999999, want 1 to 65536`},
		{"study block-size --rows 1 --seeds 0", `seeds: got 0, want 1 or more`},
		{"study block-size --blocks a", `--blocks: "a" is not a list of integers such as 16,32`},
		{"study block-size --blocks=", `--blocks: "" is not a list of integers such as 16,32`},
		{"study block-size --blocks 7", `do not fill whole bytes`},
		{"study block-size --format zzz", `--format: unknown block format "zzz"`},
		{"study block-size --distribution zzz", `--distribution: unknown distribution "zzz": use one of gauss, `},
		{"cost --device b200", `--params is missing: give the number of parameters`},
		{"cost --params 8e9", `--device is missing: name one that microscale check lists`},
		{"cost --params 8e9 --device b200 --ranks 12", `ranks per node: got 8, want a divisor of the 12 ranks`},
		{"cost --params 8e9 --device b200 --ranks 1", `ranks: got 1, want 2 to 1048576`},
		{"cost --params -1 --device b200", `parameters: got -1, want 1 to 1e+18`},
		{"cost --params 8e9 --recipe zzz --device b200", `--recipe: unknown recipe "zzz": use one of `},
		{"layout --draw zzz", `--draw: unknown picture "zzz": use one of blocks, swizzle`},
		{"layout --draw blocks --json", `--draw and --json exclude each other`},
		{"layout --from cublas", `--to is missing: name the layout of standard output`},
		{"layout --find", `--format is missing: name a block format`},
		{"layout --find --format mxfp8 --rows 3", `--rows and --cols are missing or below 1`},
		{"layout --check zzz", `--check: unknown layout "zzz": use one of row-major, `},
		{"layout --check cublas --find", `--find and --check exclude each other`},
		{"check --forward", `--forward applies to --format: add that`},
		{"check --device b200 --weight-format nvfp4", `--weight-format applies to --format: add that`},
		{"check --m 1", `--m applies to --format: add that`},
		{"check --format mxfp8", `--device is missing: name one that microscale check lists`},
		{"check --device a100", `--device: unknown device "a100": use one of l40s, h100, `},
		{"check --device h100 --format mxfp8 --m 1 --n 1", `--k is missing: give the sizes of the layer`},
		{"check --device h100 --format mxfp8 --m 1 --n 0 --k 1", `n: got 0, want 1 to 268435456`},
		{"check --device b200 --format mxfp8 --m 9223372036854775807 --n 32 --k 32", `m: got 9223372036854775807, want 1 to 268435456`},
		{"cost --device b200 --params 8e9 --width 9223372036854775807", `got 9223372036854775807, want 1 to 268435456`},
		{"cost --device b200 --params 1e300", `parameters: got 1e+300, want 1 to 1e+18`},
		{"man", `got 0 arguments, want DIR`},
		{"mma --explain --model ampere-mma --a f16 --scales-b 1 1:1", `--scales-b: ampere-mma has no block scales`},
	} {
		t.Run(tc.line, func(t *testing.T) {
			status, stdout, stderr := execute("", strings.Fields(tc.line)...)
			if status != exitUsage {
				t.Errorf("exit status %d, want %d", status, exitUsage)
			}
			if asJSON := strings.Contains(tc.line, "--json"); stdout != "" && !asJSON || asJSON && !strings.HasPrefix(stdout, "{\n  \"error\": ") {
				t.Errorf("standard output has %q", stdout)
			}
			lines := strings.Split(strings.TrimSuffix(stderr, "\n"), "\n")
			if len(lines) != 2 || !strings.HasPrefix(lines[0], "microscale: ") || !strings.Contains(lines[0], tc.want) {
				t.Errorf("standard error is %q, want one line with %q and one with help", stderr, tc.want)
			}
			if help := lines[len(lines)-1]; !strings.HasPrefix(help, "Run 'microscale ") || !strings.HasSuffix(help,
				" --help' for usage and examples.") {
				t.Errorf("the last line is %q, want how to get help", help)
			}
		})
	}
}

// TestJSON checks that --json prints exactly one document, whatever the values.
func TestJSON(t *testing.T) {
	for _, line := range []string{
		"formats --json",
		"cast --to e4m3 --json nan inf -inf 0 -0 1e-45 3e38 -1.5",
		"cast --to e5m2 --json --overflow nonsaturating nan inf 1e38",
		"cast --to e8m0 --json 0 nan inf",
		"cast --to e5m2 --json --codes 0x7c 0x7f 0",
		"explain --format mxfp8 --json 0",
		"mma --json",
		"mma --model cdna4-mfma-scale --json",
		"mma --model blackwell-mxf8f6f4 --a e5m2 --explain --json inf:1 0x1p-10:3 --scales-a nan",
		"check --json",
		"layout --json",
		"cost --tables --json",
		"study block-size --rows 1 --json",
		"cost --params 8e9 --device rtx-pro-6000 --json",
		"check --json --device rtx-pro-6000",
		"check --json --device b200 --format nvfp4 --m 64 --n 64 --k 64",
		"explain --format mxfp4 --json --profile all nan inf 0 1",
		"explain --format nvfp4 --json --profile all nan inf 0 1",
		"explain --format fp8-row --json --profile all nan inf 0 1",
	} {
		t.Run(line, func(t *testing.T) {
			status, stdout, stderr := execute("", strings.Fields(line)...)
			if status != exitDone {
				t.Fatalf("exit status %d: %s", status, stderr)
			}
			d := json.NewDecoder(strings.NewReader(stdout))
			var document map[string]any
			if err := d.Decode(&document); err != nil {
				t.Fatal(err)
			}
			if err := d.Decode(&document); !errors.Is(err, io.EOF) {
				t.Errorf("after the document there is more: %v", err)
			}
		})
	}
}

// TestJSONErrors checks that --json prints one document even if a command fails.
func TestJSONErrors(t *testing.T) {
	missing := filepath.Join(t.TempDir(), "missing")
	for _, tc := range []struct {
		line   string
		status int
	}{
		{"inspect --json " + missing, exitFailed}, {"quantize --json " + missing + " x --format mxfp8", exitFailed},
		{"verify " + missing + " x --json=true", exitFailed},
		{"zzz --json", exitUsage}, {"cast --to e4m3 --json one", exitUsage}, {"formats --json --zzz", exitUsage},
	} {
		status, stdout, stderr := execute("", strings.Fields(tc.line)...)
		line, _, _ := strings.Cut(strings.TrimPrefix(stderr, "microscale: "), "\n")
		var doc map[string]string
		if err := json.Unmarshal([]byte(stdout), &doc); err != nil || status != tc.status || len(doc) != 1 || doc["error"] != line || line == "" {
			t.Errorf("%s: exit status %d, %q, %q, %v", tc.line, status, stdout, stderr, err)
		}
	}
	if _, stdout, _ := execute("", "inspect", "--", "--json"); stdout != "" {
		t.Errorf("behind -- it is no flag, but standard output has %q", stdout)
	}
	_, stdout, _ := execute("", "cast", "--to", "e4m3", "--json", "-0")
	if !strings.Contains(stdout, `"value": -0.0,`) {
		t.Errorf("-0 is printed as %s", stdout)
	}
}

// TestVersion checks that there is a version.
func TestVersion(t *testing.T) {
	if status, stdout, _ := execute("", "--version"); status != exitDone || !strings.HasPrefix(stdout, "microscale ") ||
		len(stdout) < len("microscale x\n") {
		t.Errorf("exit status %d, version %q", status, stdout)
	}
}

// TestCompletion completes the values of flags as a shell does.
func TestCompletion(t *testing.T) {
	for _, tc := range []struct{ line, want string }{
		{"explain --format mxfp6", "mxfp6-e3m2 mxfp6-e2m3"},
		{"explain --profile a", "all"},
		{"explain --scale-rule f", "floor"},
		{"cast --to e3", "e3m2 e3m4"},
		{"cast --from b", "bf16"},
		{"cast --rounding half", "half-away half-toward-zero"},
		{"cast --overflow n", "nonsaturating"},
		{"form", "formats"},
		{"quantize --power", "--power-of-two-scales"}, // which --help does not show
	} {
		status, stdout, _ := execute("", append([]string{"__complete"}, strings.Fields(tc.line)...)...)
		typed := tc.line[strings.LastIndex(tc.line, " ")+1:]
		var got []string
		for _, l := range strings.Split(stdout, "\n") {
			if name, _, _ := strings.Cut(l, "\t"); name != "" && strings.HasPrefix(name, typed) {
				got = append(got, name)
			}
		}
		if status != exitDone || strings.Join(got, " ") != tc.want {
			t.Errorf("%s completes to %q, want %q", tc.line, got, tc.want)
		}
	}
	_, help, _ := execute("", "completion", "--help")
	for _, shell := range []string{"bash", "zsh", "fish", "powershell"} {
		if !strings.Contains(help, "\n  "+shell+" ") || !strings.Contains(help, "microscale completion "+shell) {
			t.Errorf("completion --help does not list %s with an example:\n%s", shell, help)
		}
	}
	if status, stdout, _ := execute("", "completion", "bash"); status != exitDone || !strings.Contains(stdout, "microscale") {
		t.Errorf("completion bash: exit status %d", status)
	}
}

// TestNegatives checks the places of negative numbers.
func TestNegatives(t *testing.T) {
	_, want, _ := execute("", "cast", "--to", "e4m3", "--from", "bf16", "--seed", "3", "--", "1", "-1.5", "-inf")
	for _, line := range []string{
		"cast 1 -1.5 -inf --to e4m3 --from bf16 --seed 3",
		"cast --to=e4m3 1 -1.5 --from=bf16 -inf --seed=3",
		"cast --to e4m3 --from bf16 --seed 3 1 -1.5 -inf",
		"cast --to e4m3 --from bf16 --seed 3 1 -1.5 -- -inf",
		"cast --to e4m3 --from bf16 --seed 3 1 -- -1.5 -inf",
	} {
		if status, got, stderr := execute("", strings.Fields(line)...); status != exitDone || got != want {
			t.Errorf("%s: exit status %d, %s%s, want %s", line, status, got, stderr, want)
		}
	}
}

func TestNegativesLast(t *testing.T) {
	started := false
	root := rootCommand(&started)
	for _, tc := range []struct{ line, want string }{
		{"cast --to e4m3 1", "cast --to e4m3 1"},
		{"cast -1 --to e4m3 2", "cast --to e4m3 -- -1 2"},
		{"cast -1 --json --to e4m3 2", "cast --json --to e4m3 -- -1 2"},
		{"cast --seed -1 2", "cast --seed -1 2"},
		{"cast -nan -0x1p-3 -.5 -x", "cast -x -- -nan -0x1p-3 -.5"},
		{"zzz -1", "zzz -1"},
	} {
		if got := flags.NegativesLast(root, strings.Fields(tc.line), numbers.IsNumber); !reflect.DeepEqual(got, strings.Fields(tc.want)) {
			t.Errorf("%s becomes %q, want %s", tc.line, got, tc.want)
		}
	}
}

// A full device fails every write.
type full struct{}

var errFull = errors.New("no space left on device")

func (full) Write([]byte) (int, error) { return 0, errFull }

// TestFullOutput checks that a failure to write the output is an error.
func TestFullOutput(t *testing.T) {
	for _, line := range []string{
		"formats", "formats --json", "formats --markdown", "cast --to e4m3 1", "cast --to e4m3 --json 1", "cast --to e4m3 --codes 1",
		"cast --to e4m3 --raw", "explain --format mxfp4 1", "explain --format mxfp4 --profile all 1", "explain --format mxfp4 --json 1",
	} {
		var stderr bytes.Buffer
		status := run(strings.Fields(line), strings.NewReader("1234"), full{}, &stderr)
		if status != exitFailed || strings.Count(stderr.String(), "\n") != 1 || !strings.Contains(stderr.String(), errFull.Error()) {
			t.Errorf("%s: exit status %d, %q", line, status, stderr.String())
		}
	}
}

// TestFlagPlaces checks that the help names the placeholder of each value, not its Go
// type.
func TestFlagPlaces(t *testing.T) {
	var started bool
	var visit func(cmd *cobra.Command)
	visit = func(cmd *cobra.Command) {
		for _, c := range cmd.Commands() {
			visit(c)
		}
		cmd.Flags().VisitAll(func(f *pflag.Flag) {
			if name, _ := pflag.UnquoteUsage(f); !f.Hidden && name != "" && name == strings.ToLower(name) && !strings.Contains(name, "|") {
				t.Errorf("%s: --%s %s", cmd.CommandPath(), f.Name, name)
			}
		})
		if usage := cmd.UsageString(); strings.Contains(usage, "[=true]") {
			t.Errorf("%s: a switch is shown as if it took a value:\n%s", cmd.CommandPath(), usage)
		}
	}
	visit(rootCommand(&started))
}
