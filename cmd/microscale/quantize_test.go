package main

import (
	"encoding/json"
	"flag"
	"maps"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/microscale-go/microscale/cmd/microscale/internal/conversion"
	"github.com/microscale-go/microscale/cmd/microscale/internal/ranks"
	"github.com/microscale-go/microscale/hf"
	"github.com/microscale-go/microscale/quant"
)

// process returns the command as a separate process: this test program, which runs the
// command line behind its flags.
func process(t testing.TB, args ...string) (cmd *exec.Cmd, stdout, stderr *strings.Builder) {
	t.Helper()
	if testing.Short() {
		t.Skip("-short: this test starts processes")
	}
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd = exec.Command(program, append([]string{processFlag, "--"}, args...)...)
	stdout, stderr = new(strings.Builder), new(strings.Builder)
	cmd.Stdout, cmd.Stderr = stdout, stderr
	return cmd, stdout, stderr
}

// processFlag runs TestProcess alone.
const processFlag = "-test.run=^TestProcess$"

// TestProcess is the command in a separate process if there are arguments. Without any,
// it checks the exit status of such processes.
func TestProcess(t *testing.T) {
	if flag.NArg() > 0 {
		ranks.Exit(run(flag.Args(), os.Stdin, os.Stdout, os.Stderr))
	}
	for _, tc := range []struct {
		line string
		want int
	}{{"formats", exitDone}, {"inspect no-such-file", exitFailed}, {"formast", exitUsage}} {
		cmd, _, stderr := process(t, strings.Fields(tc.line)...)
		_ = cmd.Run() // the status tells
		if got := cmd.ProcessState.ExitCode(); got != tc.want {
			t.Errorf("%s: exit status %d, want %d: %s", tc.line, got, tc.want, stderr)
		}
	}
}

// TestQuantizeUsage checks wrong command lines.
func TestQuantizeUsage(t *testing.T) {
	dir := t.TempDir()
	src, dst := filepath.Join(dir, "src"), filepath.Join(dir, "dst")
	directory(t, src, twoWeights()...)
	for _, tc := range []struct{ line, want string }{
		{"quantize SRC DST", "--format is missing"},
		{"quantize SRC --format mxfp8", "got 1 argument, want SRC and DST\n"},
		{"quantize SRC DST DST --format mxfp8", "got 3 arguments, want SRC and DST"},
		{"quantize SRC DST --format mxfp9", `--format: unknown block format "mxfp9"`},
		{"quantize SRC DST --format mxfp8 --convention none", `--convention: unknown convention "none": use one of compressed-tensors, modelopt`},
		{"quantize SRC DST --format fp8-row --scale-rule floor", "has no E8M0 scales; omit the flag"},
		{"quantize SRC DST --format nvfp4 --scale-rule floor", "has no E8M0 scales; omit the flag"},
		{"quantize SRC DST --format nvfp4 --profile ocp", "profile ocp does not define nvfp4"},
		{"quantize SRC DST --format mxfp8 --include (", `--include: "(" is not a regular expression: missing closing )`},
		{"quantize SRC DST --format mxfp8 --power-of-two-scales", "--power-of-two-scales: mxfp8 has no FP32 scales; omit the flag"},
		{"quantize SRC DST --format mxfp8 --threads -1", `--threads: "-1" is not an integer of 0 or more`},
		{"dequantize SRC DST --dtype e4m3", "--dtype: "},
		{"dequantize SRC", "got 1 argument, want SRC and DST"},
		{"verify SRC", "got 1 argument, want SRC and DST"},
		{"inspect", "got 0 arguments, want SRC"},
	} {
		t.Run(tc.line, func(t *testing.T) {
			before := snapshot(t, dir)
			status, stdout, stderr := execute("", strings.Fields(strings.NewReplacer("SRC", src, "DST", dst).Replace(tc.line))...)
			if status != exitUsage || stdout != "" || !strings.Contains(stderr, tc.want) {
				t.Errorf("exit status %d, %q, %q, want %q", status, stdout, stderr, tc.want)
			}
			if after := snapshot(t, dir); after != before {
				t.Errorf("the folder is now\n%s\nbefore it was\n%s", after, before)
			}
		})
	}
}

// TestEmptyArguments checks that the error names an empty argument.
func TestEmptyArguments(t *testing.T) {
	for _, tc := range []struct {
		args []string
		want string
	}{
		{[]string{"quantize", "", "x", "--format", "mxfp8"}, "SRC is empty"}, {[]string{"quantize", "sample:", "", "--format", "mxfp8"},
			"DST is empty"},
		{[]string{"dequantize", "x", ""}, "DST is empty"}, {[]string{"verify", "", ""}, "SRC is empty"},
		{[]string{"inspect", ""}, "SRC is empty"},
	} {
		if status, stdout, stderr := execute("", tc.args...); status != exitUsage || stdout != "" || !strings.Contains(stderr, tc.want) {
			t.Errorf("%q: exit status %d, %q, %q, want %q", tc.args, status, stdout, stderr, tc.want)
		}
	}
}

// TestQuantizeRejects checks sources and destinations that quantize and dequantize
// reject: one line, nothing at or beside the destination, and an unchanged source.
func TestQuantizeRejects(t *testing.T) {
	weights := func(patterns map[int]uint16) []weight {
		return []weight{
			{"l.0.proj.weight", []int64{64, 128}, patterns}, {"l.0.other.weight", []int64{64, 128}, nil}, {"lm_head.weight", []int64{8, 64}, nil},
		}
	}
	named := func(names ...string) (all []weight) {
		for _, name := range names {
			all = append(all, weight{name, []int64{32, 32}, nil})
		}
		return all
	}
	config := func(path, text string) func(*testing.T, string) {
		return func(t *testing.T, dir string) {
			directory(t, filepath.Join(dir, "src"), twoWeights()...)
			writeFile(t, filepath.Join(dir, "src", path), []byte(text))
		}
	}
	model := func(all ...weight) func(*testing.T, string) {
		return func(t *testing.T, dir string) { directory(t, filepath.Join(dir, "src"), all...) }
	}
	quantized := func(flags ...string) func(*testing.T, string) {
		return func(t *testing.T, dir string) {
			directory(t, filepath.Join(dir, "original"), twoWeights()...)
			done(t, append([]string{"quantize", filepath.Join(dir, "original"), filepath.Join(dir, "src")}, flags...)...)
		}
	}
	for _, tc := range []struct {
		name  string
		setup func(t *testing.T, dir string)
		args  string
		want  []string
	}{
		{"NaN", model(weights(map[int]uint16{5: bf16NaN, 77: bf16NaN})...), "--format mxfp8",
			[]string{"NaN or Inf in l.0.proj.weight (2 of 8192 values)", "--allow-nonfinite"}},
		{"Inf", model(weights(map[int]uint16{5: bf16Inf | 0x8000})...), "--format nvfp4",
			[]string{"NaN or Inf in l.0.proj.weight (1 of 8192 values)"}},
		{"NaN and all formats", model(weights(map[int]uint16{5: bf16NaN, 6: bf16Inf})...), "--format fp8-tensor",
			[]string{"l.0.proj.weight (2 of 8192 values)"}},
		{"NaN in what stays", model(weight{"l.0.proj.weight", []int64{64, 64}, nil}, weight{"lm_head.weight", []int64{8, 64},
			map[int]uint16{0: bf16NaN}}), "--format mxfp8", []string{"NaN or Inf in lm_head.weight (1 of 512 values)"}},
		{"NaN in a vector", model(weight{"l.0.proj.weight", []int64{64, 64}, nil}, weight{"l.0.bias", []int64{64}, map[int]uint16{63: bf16Inf}}),
			"--format mxfp8", []string{"NaN or Inf in l.0.bias (1 of 64 values)"}},
		{"NaN in many", model(
			weight{"a.weight", []int64{32, 32}, map[int]uint16{0: bf16NaN}}, weight{"b.weight", []int64{32, 32}, map[int]uint16{0: bf16NaN}},
			weight{"c.weight", []int64{32, 32}, map[int]uint16{0: bf16NaN}}, weight{"d.weight", []int64{32, 32}, map[int]uint16{0: bf16NaN}}),
			"--format mxfp8", []string{"a.weight (1 of 1024 values)", "b.weight", "c.weight", "and 1 more tensors"}},
		{"quantized already", quantized("--format", "mxfp8"), "--format mxfp4", []string{"already quantized (compressed-tensors, mxfp8)",
			"--requantize"}},
		{"quantized already, plain", quantized("--format", "mxint8"), "--format mxfp4", []string{"already quantized (plain, mxint8)"}},
		{"quantized by another method", config(hf.ConfigName, `{"quantization_config":{"quant_method":"gptq","bits":4}}`), "--format mxfp8",
			[]string{"already quantized", `"gptq"`}},
		{"quantized by no method", config(hf.ConfigName, `{"quantization_config":{"bits":4}}`), "--format mxfp8", []string{"already quantized"}},
		{"quantization that is no object", config(hf.ConfigName, `{"quantization_config":[1]}`), "--format mxfp8",
			[]string{"already quantized", "quantization_config"}},
		{"bare codes", func(t *testing.T, dir string) {
			writeFile(t, filepath.Join(dir, "src"), container(`{"l.0.proj.weight":{"dtype":"F8_E4M3","shape":[32,32],"data_offsets":[0,1024]}}`,
				1024))
		}, "--format mxfp8", []string{"already quantized", "l.0.proj.weight", "F8_E4M3 codes, but its scales (l.0.proj.weight_scale) are " +
			"missing"}},
		{"codes of GPTQ without configuration", func(t *testing.T, dir string) {
			writeFile(t, filepath.Join(dir, "src"),
				container(`{"l.0.proj.qweight":{"dtype":"I32","shape":[32,32],"data_offsets":[0,4096]},"l.0.proj.g_idx":{"dtype":"I32","shape":[4],`+
					`"data_offsets":[4096,4112]}}`, 4112))
		}, "--format mxfp8", []string{"already quantized by GPTQ or AWQ (l.0.proj.qweight), which is not supported: start from the original " +
			"checkpoint"}},
		{"nothing to quantize", model(named("model.embed_tokens.weight", "lm_head.weight")...), "--format mxfp8",
			[]string{"no weight would be quantized", "embedding (1)", "output head (1)"}},
		{"everything excluded", model(twoWeights()...), "--format mxfp8 --exclude .", []string{"no weight would be quantized", "excluded"}},
		{"widths of no block", model(weight{"l.0.proj.weight", []int64{32, 100}, nil}), "--format mxfp8", []string{"no weight would be quantized",
			"100 columns are not a multiple of 32"}},
		{"a format that the convention lacks", model(twoWeights()...), "--format mxfp6-e2m3 --convention compressed-tensors",
			[]string{"compressed-tensors does not support mxfp6-e2m3", "choose convention plain"}},
		{"a format without scales", model(twoWeights()...), "--format bf16", []string{"bf16 has no scales"}},
		{"a destination that exists", func(t *testing.T, dir string) {
			model(twoWeights()...)(t, dir)
			directory(t, filepath.Join(dir, "dst"), twoWeights()...)
		}, "--format mxfp8", []string{"dst: the destination exists", "--force"}},
		{"a destination that exists, without writing", func(t *testing.T, dir string) {
			model(twoWeights()...)(t, dir)
			directory(t, filepath.Join(dir, "dst"), twoWeights()...)
		}, "--format mxfp8 --dry-run", []string{"dst: the destination exists", "--force"}},
		{"a pattern of no weight", model(twoWeights()...), "--format mxfp8 --exclude q_prj",
			[]string{"the exclude pattern 'q_prj' matches no weight of"}},
		{"a destination below a file", func(t *testing.T, dir string) {
			model(twoWeights()...)(t, dir)
			writeFile(t, filepath.Join(dir, "dst"), nil)
		}, "DST/a/b --format mxfp8", []string{"dst"}},
		{"a source that is not there", func(*testing.T, string) {}, "--format mxfp8", []string{"src: no such file"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			dir := t.TempDir()
			tc.setup(t, dir)
			before := snapshot(t, dir)
			dst, flags := filepath.Join(dir, "dst"), strings.Fields(tc.args)
			if below, ok := strings.CutPrefix(flags[0], "DST"); ok {
				dst, flags = dst+below, flags[1:]
			}
			status, stdout, stderr := execute("", append([]string{"quantize", filepath.Join(dir, "src"), dst}, flags...)...)
			fails(t, status, stdout, stderr, tc.want...)
			if after := snapshot(t, dir); after != before {
				t.Errorf("the folder is now\n%s\nbefore it was\n%s", after, before)
			}
		})
	}
}

// TestDequantizeRejects checks sources without quantized weights.
func TestDequantizeRejects(t *testing.T) {
	dir := t.TempDir()
	src := filepath.Join(dir, "src")
	directory(t, src, twoWeights()...)
	before := snapshot(t, dir)
	status, stdout, stderr := execute("", "dequantize", src, filepath.Join(dir, "dst"))
	fails(t, status, stdout, stderr, "not quantized")
	if after := snapshot(t, dir); after != before {
		t.Errorf("the folder is now\n%s\nbefore it was\n%s", after, before)
	}
}

// TestAllowNonFinite checks that --allow-nonfinite copies NaN and Inf, and that verify
// counts them without reporting a problem.
func TestAllowNonFinite(t *testing.T) {
	for _, f := range []string{"mxfp8", "fp8-row", "mxfp8-e5m2"} {
		t.Run("format="+f, func(t *testing.T) {
			dir := t.TempDir()
			src, dst := filepath.Join(dir, "src"), filepath.Join(dir, "dst")
			directory(t, src, weight{"l.0.proj.weight", []int64{64, 128}, map[int]uint16{9: bf16NaN}}, weight{"lm_head.weight", []int64{8, 64},
				map[int]uint16{7: bf16Inf, 8: bf16Huge}})
			done(t, "quantize", src, dst, "--format", f, "--allow-nonfinite")
			var doc conversion.VerifyDocument
			if status := document(t, &doc, "verify", src, dst); status != exitDone || !doc.OK {
				t.Fatalf("exit status %d, %+v", status, doc)
			}
			for _, r := range doc.Tensors {
				if r.NonFiniteSrc != 1 || r.NonFinite != 0 {
					t.Errorf("%+v", r)
				}
			}
		})
	}
}

// TestFormats runs quantize, verify and dequantize in every format. quantize and verify
// must report the same errors.
func TestFormats(t *testing.T) {
	dir := t.TempDir()
	src := filepath.Join(dir, "src")
	directory(t, src, weight{"l.0.proj.weight", []int64{130, 256}, nil}, weight{"l.0.odd.weight", []int64{7, 100}, nil},
		weight{"lm_head.weight", []int64{8, 64}, nil})
	for _, f := range quant.Formats() {
		if !f.Scaled() {
			continue
		}
		t.Run("format="+f.Name, func(t *testing.T) {
			dst, back := filepath.Join(dir, f.Name), filepath.Join(dir, f.Name+"-back")
			var made conversion.Document
			document(t, &made, "quantize", src, dst, "--format", f.Name)
			var found conversion.VerifyDocument
			if status := document(t, &found, "verify", src, dst); status != exitDone || !found.OK {
				t.Fatalf("exit status %d, %+v", status, found.Problems)
			}
			for i, want := range found.Tensors {
				got := made.Tensors[i]
				if math.Abs(float64(got.SQNR-want.SQNR)) > 1e-5 || got.Saturated != want.Saturated || got.Flushed != want.Flushed ||
					got.Name != want.Name || got.Format != want.Format {
					t.Errorf("quantize said %+v, verify %+v", got, want)
				}
			}
			done(t, "dequantize", dst, back, "--dtype", "bf16")
			if status := document(t, &found, "verify", dst, back); status != exitDone || !found.OK || found.Compared.Rounded == 0 {
				t.Errorf("decoded: exit status %d, %+v", status, found)
			}
		})
	}
}

// TestThreadsFlag checks that the number of threads changes no byte.
func TestThreadsFlag(t *testing.T) {
	dir := t.TempDir()
	src := filepath.Join(dir, "src.safetensors")
	weightsFile(t, src, weight{"l.0.proj.weight", []int64{1500, 1024}, nil}, weight{"l.0.other.weight", []int64{70, 320}, nil})
	want := map[string]string{}
	for _, threads := range []string{"1", "2", "5"} {
		for _, f := range []string{"nvfp4", "fp8-tensor", "fp8-block128"} {
			dst := filepath.Join(dir, "out"+threads+f+".safetensors")
			done(t, "quantize", src, dst, "--format", f, "--threads", threads)
			data, err := os.ReadFile(dst)
			if err != nil {
				t.Fatal(err)
			}
			if want[f] == "" {
				want[f] = string(data)
			}
			if string(data) != want[f] {
				t.Errorf("%s with %s threads has other bytes than with 1", f, threads)
			}
		}
	}
}

// TestQuantizeJSON checks the fields that readers of the document rely on.
func TestQuantizeJSON(t *testing.T) {
	dir := t.TempDir()
	src := filepath.Join(dir, "src")
	directory(t, src, twoWeights()...)
	var doc map[string]any
	document(t, &doc, "quantize", src, filepath.Join(dir, "dst"), "--format", "mxfp8")
	want := []string{"bytes", "convention", "destination", "extra", "format", "profile", "quantized", "seconds", "skipped", "source",
		"source_bytes", "tensors"}
	if got := slices.Sorted(maps.Keys(doc)); !slices.Equal(got, want) {
		t.Errorf("the document has %q, want %q", got, want)
	}
	if data, err := json.Marshal(doc["tensors"]); err != nil || !strings.Contains(string(data), `"sqnr_db":null`) {
		t.Errorf("%s, %v", data, err)
	}
}
