package main

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"maps"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/microscale-go/microscale/hf"
	"github.com/microscale-go/microscale/quant"
)

// process returns the command as a process of its own: this test program, which
// runs the command line that it finds behind its flags.
func process(t testing.TB, args ...string) (cmd *exec.Cmd, stdout, stderr *strings.Builder) {
	t.Helper()
	if testing.Short() {
		t.Skip("-short: this test starts processes")
	}
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd = exec.Command(program, append([]string{"-test.run=^TestProcess$", "--"}, args...)...)
	stdout, stderr = new(strings.Builder), new(strings.Builder)
	cmd.Stdout, cmd.Stderr = stdout, stderr
	return cmd, stdout, stderr
}

// TestProcess is the command in a process of its own, where there are arguments.
// Without any it checks the exit status of such processes.
func TestProcess(t *testing.T) {
	if flag.NArg() > 0 {
		os.Exit(run(flag.Args(), os.Stdin, os.Stdout, os.Stderr))
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

// TestQuantizeUsage checks command lines that cannot be meant.
func TestQuantizeUsage(t *testing.T) {
	dir := t.TempDir()
	src, dst := filepath.Join(dir, "src"), filepath.Join(dir, "dst")
	directory(t, src, twoWeights()...)
	for _, tc := range []struct{ line, want string }{
		{"quantize SRC DST", "--format is missing"},
		{"quantize SRC --format mxfp8", "SRC and DST must be given, not 1 argument\n"},
		{"quantize SRC DST DST --format mxfp8", "not 3 arguments"},
		{"quantize SRC DST --format mxfp9", `--format: unknown block format "mxfp9"`},
		{"quantize SRC DST --format mxfp8 --convention none", `--convention: unknown convention "none": use one of compressed-tensors, modelopt`},
		{"quantize SRC DST --format fp8-row --scale-rule floor", "--scale-rule is for formats with e8m0 scales"},
		{"quantize SRC DST --format nvfp4 --scale-rule floor", "--scale-rule is for formats with e8m0 scales"},
		{"quantize SRC DST --format nvfp4 --profile ocp", "profile ocp does not define nvfp4"},
		{"quantize SRC DST --format mxfp8 --include (", `--include: "(" is not a regular expression: missing closing )`},
		{"quantize SRC DST --format mxfp8 --power-of-two-scales", "--power-of-two-scales is for formats with f32 scales, which mxfp8 has not"},
		{"quantize SRC DST --format mxfp8 --threads -1", `--threads: "-1" is not a whole number of 0 or more`},
		{"dequantize SRC DST --dtype e4m3", "--dtype: "},
		{"dequantize SRC", "SRC and DST must be given"},
		{"verify SRC", "SRC and DST must be given"},
		{"inspect", "SRC must be given, not 0 arguments"},
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

// TestEmptyArguments: an argument that is empty is named.
func TestEmptyArguments(t *testing.T) {
	for _, tc := range []struct {
		args []string
		want string
	}{
		{[]string{"quantize", "", "x", "--format", "mxfp8"}, "SRC is empty"}, {[]string{"quantize", "sample:", "", "--format", "mxfp8"}, "DST is empty"},
		{[]string{"dequantize", "x", ""}, "DST is empty"}, {[]string{"verify", "", ""}, "SRC is empty"}, {[]string{"inspect", ""}, "SRC is empty"},
	} {
		if status, stdout, stderr := execute("", tc.args...); status != exitUsage || stdout != "" || !strings.Contains(stderr, tc.want) {
			t.Errorf("%q: exit status %d, %q, %q, want %q", tc.args, status, stdout, stderr, tc.want)
		}
	}
}

// TestQuantizeRefuses has what quantize and dequantize refuse in sound files and
// in destinations: one line, nothing at the destination or beside it, and the
// source as it was.
func TestQuantizeRefuses(t *testing.T) {
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
		{"NaN", model(weights(map[int]uint16{5: bf16NaN, 77: bf16NaN})...), "--format mxfp8", []string{"NaN or Inf in l.0.proj.weight (2 of 8192 values)", "--allow-nonfinite"}},
		{"Inf", model(weights(map[int]uint16{5: bf16Inf | 0x8000})...), "--format nvfp4", []string{"NaN or Inf in l.0.proj.weight (1 of 8192 values)"}},
		{"NaN and all formats", model(weights(map[int]uint16{5: bf16NaN, 6: bf16Inf})...), "--format fp8-tensor", []string{"l.0.proj.weight (2 of 8192 values)"}},
		{"NaN in what stays", model(weight{"l.0.proj.weight", []int64{64, 64}, nil}, weight{"lm_head.weight", []int64{8, 64}, map[int]uint16{0: bf16NaN}}), "--format mxfp8", []string{"NaN or Inf in lm_head.weight (1 of 512 values)"}},
		{"NaN in a vector", model(weight{"l.0.proj.weight", []int64{64, 64}, nil}, weight{"l.0.bias", []int64{64}, map[int]uint16{63: bf16Inf}}), "--format mxfp8", []string{"NaN or Inf in l.0.bias (1 of 64 values)"}},
		{"NaN in many", model(
			weight{"a.weight", []int64{32, 32}, map[int]uint16{0: bf16NaN}}, weight{"b.weight", []int64{32, 32}, map[int]uint16{0: bf16NaN}},
			weight{"c.weight", []int64{32, 32}, map[int]uint16{0: bf16NaN}}, weight{"d.weight", []int64{32, 32}, map[int]uint16{0: bf16NaN}}),
			"--format mxfp8", []string{"a.weight (1 of 1024 values)", "b.weight", "c.weight", "and 1 more tensors"}},
		{"quantized already", quantized("--format", "mxfp8"), "--format mxfp4", []string{"already quantized (compressed-tensors, mxfp8)", "--requantize"}},
		{"quantized already, plain", quantized("--format", "mxint8"), "--format mxfp4", []string{"already quantized (plain, mxint8)"}},
		{"quantized by another method", config(hf.ConfigName, `{"quantization_config":{"quant_method":"gptq","bits":4}}`), "--format mxfp8", []string{"already quantized", `"gptq"`}},
		{"quantized by no method", config(hf.ConfigName, `{"quantization_config":{"bits":4}}`), "--format mxfp8", []string{"already quantized"}},
		{"quantization that is no object", config(hf.ConfigName, `{"quantization_config":[1]}`), "--format mxfp8", []string{"already quantized", "quantization_config"}},
		{"bare codes", func(t *testing.T, dir string) {
			writeFile(t, filepath.Join(dir, "src"), container(`{"l.0.proj.weight":{"dtype":"F8_E4M3","shape":[32,32],"data_offsets":[0,1024]}}`, 1024))
		}, "--format mxfp8", []string{"already quantized", "l.0.proj.weight", "F8_E4M3 codes without scales"}},
		{"codes of GPTQ without configuration", func(t *testing.T, dir string) {
			writeFile(t, filepath.Join(dir, "src"), container(`{"l.0.proj.qweight":{"dtype":"I32","shape":[32,32],"data_offsets":[0,4096]},"l.0.proj.g_idx":{"dtype":"I32","shape":[4],"data_offsets":[4096,4112]}}`, 4112))
		}, "--format mxfp8", []string{"no weight would be quantized", "i32 elements"}},
		{"nothing to quantize", model(named("model.embed_tokens.weight", "lm_head.weight")...), "--format mxfp8", []string{"no weight would be quantized", "1 embedding", "1 output head"}},
		{"everything excluded", model(twoWeights()...), "--format mxfp8 --exclude .", []string{"no weight would be quantized", "excluded"}},
		{"widths of no block", model(weight{"l.0.proj.weight", []int64{32, 100}, nil}), "--format mxfp8", []string{"no weight would be quantized", "100 columns are not a multiple of 32"}},
		{"a format that the convention lacks", model(twoWeights()...), "--format mxfp6-e2m3 --convention compressed-tensors", []string{"compressed-tensors has no layout for mxfp6-e2m3", "--convention plain"}},
		{"a format without scales", model(twoWeights()...), "--format bf16", []string{"bf16 has no scales"}},
		{"a destination that exists", func(t *testing.T, dir string) {
			model(twoWeights()...)(t, dir)
			directory(t, filepath.Join(dir, "dst"), twoWeights()...)
		}, "--format mxfp8", []string{"dst: the destination exists", "--force"}},
		{"a destination that exists, without writing", func(t *testing.T, dir string) {
			model(twoWeights()...)(t, dir)
			directory(t, filepath.Join(dir, "dst"), twoWeights()...)
		}, "--format mxfp8 --dry-run", []string{"dst: the destination exists", "--force"}},
		{"a pattern of no weight", model(twoWeights()...), "--format mxfp8 --exclude q_prj", []string{"--exclude 'q_prj' matches no weight of"}},
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

// TestDequantizeRefuses has sources that there is nothing to decode in.
func TestDequantizeRefuses(t *testing.T) {
	dir := t.TempDir()
	src := filepath.Join(dir, "src")
	directory(t, src, twoWeights()...)
	before := snapshot(t, dir)
	status, stdout, stderr := execute("", "dequantize", src, filepath.Join(dir, "dst"))
	fails(t, status, stdout, stderr, "nothing here is quantized")
	if after := snapshot(t, dir); after != before {
		t.Errorf("the folder is now\n%s\nbefore it was\n%s", after, before)
	}
}

// TestAllowNonFinite: where that is allowed, NaN and Inf go through, and verify
// counts them without taking them for a fault.
func TestAllowNonFinite(t *testing.T) {
	for _, f := range []string{"mxfp8", "fp8-row", "mxfp8-e5m2"} {
		t.Run("format="+f, func(t *testing.T) {
			dir := t.TempDir()
			src, dst := filepath.Join(dir, "src"), filepath.Join(dir, "dst")
			directory(t, src, weight{"l.0.proj.weight", []int64{64, 128}, map[int]uint16{9: bf16NaN}}, weight{"lm_head.weight", []int64{8, 64}, map[int]uint16{7: bf16Inf, 8: bf16Huge}})
			done(t, "quantize", src, dst, "--format", f, "--allow-nonfinite")
			var doc verifyDocument
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

// TestFormats runs the main job in every format: quantize, verify and dequantize.
// What quantize reports is what verify finds.
func TestFormats(t *testing.T) {
	dir := t.TempDir()
	src := filepath.Join(dir, "src")
	directory(t, src, weight{"l.0.proj.weight", []int64{130, 256}, nil}, weight{"l.0.odd.weight", []int64{7, 100}, nil}, weight{"lm_head.weight", []int64{8, 64}, nil})
	for _, f := range quant.Formats() {
		if !f.Scaled() {
			continue
		}
		t.Run("format="+f.Name, func(t *testing.T) {
			dst, back := filepath.Join(dir, f.Name), filepath.Join(dir, f.Name+"-back")
			var made conversionDocument
			document(t, &made, "quantize", src, dst, "--format", f.Name)
			var found verifyDocument
			if status := document(t, &found, "verify", src, dst); status != exitDone || !found.OK {
				t.Fatalf("exit status %d, %+v", status, found.Problems)
			}
			for i, want := range found.Tensors {
				got := made.Tensors[i]
				if math.Abs(float64(got.SQNR-want.SQNR)) > 1e-5 || got.Saturated != want.Saturated || got.Flushed != want.Flushed || got.Name != want.Name || got.Format != want.Format {
					t.Errorf("quantize said %+v, verify %+v", got, want)
				}
			}
			done(t, "dequantize", dst, back, "--dtype", "bf16")
			if status := document(t, &found, "verify", src, back); status != exitDone || !found.OK {
				t.Errorf("decoded: exit status %d, %+v", status, found.Problems)
			}
		})
	}
}

// TestThreadsFlag: the number of threads changes no byte.
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

// largeFile writes a file that takes the command about a second.
func largeFile(t testing.TB, path string, weights int) {
	t.Helper()
	const rows, cols = 1024, 1024
	all := make([]weight, weights)
	for i := range all {
		all[i] = weight{fmt.Sprintf("l.%d.proj.weight", i), []int64{rows, cols}, nil}
	}
	weightsFile(t, path, all...)
}

// TestKill kills the command at moments spread over its run, more of them near
// the end. DST is not there, or it is whole and verifies; the next run to the
// same destination succeeds, and leaves nothing else.
func TestKill(t *testing.T) {
	dir := t.TempDir()
	src, dst := filepath.Join(dir, "src.safetensors"), filepath.Join(dir, "dst.safetensors")
	args := []string{"quantize", src, dst, "--format", "nvfp4", "--force"}
	// start runs the command for at most the given time, and returns how long
	// it ran, and whether it ended by itself.
	start := func(limit time.Duration) (took time.Duration, ended bool) {
		cmd, _, stderr := process(t, args...)
		begin := time.Now()
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		kill := time.AfterFunc(limit, func() { _ = cmd.Process.Kill() }) // or it has ended
		err := cmd.Wait()
		if ended = kill.Stop() || err == nil; ended && err != nil {
			t.Fatalf("%v: %s", err, stderr)
		}
		return time.Since(begin), ended
	}
	const least, most, wanted = 2, 24, 600 * time.Millisecond
	largeFile(t, src, least)
	whole, _ := start(time.Minute)
	largeFile(t, src, min(most, least*int(1+wanted/whole)))
	whole, _ = start(time.Minute)
	want := snapshot(t, dst)
	moments := []float64{0.5, 0.97, 0.05, 0.9, 1, 0.2, 0.94, 0.8, 1.03, 0.01, 0.85}
	runs, killed, finished := 0, 0, 0
	const enough = 8 * time.Second // a slow machine, or the race detector
	for begin := time.Now(); runs < len(moments) && time.Since(begin) < enough; runs++ {
		part := moments[runs]
		if err := os.Remove(dst); err != nil && !errors.Is(err, os.ErrNotExist) {
			t.Fatal(err)
		}
		if took, ended := start(time.Duration(part * float64(whole))); ended {
			whole = took
		} else {
			killed++
		}
		if _, err := os.Lstat(dst); err == nil {
			finished++
			if got := snapshot(t, dst); got != want {
				t.Errorf("killed after %.0f%% of its time, the command left another file than a whole one", 100*part)
			}
		}
	}
	if killed == 0 {
		t.Error("no run was killed before it ended")
	}
	t.Logf("%d of %d runs of %v were killed before they ended; %d had finished the file", killed, runs, whole, finished)
	done(t, args...)
	if got := snapshot(t, dst); got != want {
		t.Error("after killed runs the command writes another file")
	}
	if entries, err := os.ReadDir(dir); err != nil || len(entries) != 2 {
		t.Errorf("beside the source and the result is more: %v, %v", entries, err)
	}
	done(t, "verify", src, dst)
}

// TestInterrupt: Ctrl-C ends the command with one line, and leaves nothing.
func TestInterrupt(t *testing.T) {
	dir := t.TempDir()
	src, dst := filepath.Join(dir, "src.safetensors"), filepath.Join(dir, "dst.safetensors")
	largeFile(t, src, 48)
	before := snapshot(t, dir)
	for _, signal := range []syscall.Signal{syscall.SIGINT, syscall.SIGTERM} {
		cmd, stdout, stderr := process(t, "quantize", src, dst, "--format", "nvfp4")
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		waitFor(t, func() bool {
			_, err := os.Stat(dst + ".microscale-partial")
			return err == nil
		})
		if err := cmd.Process.Signal(signal); err != nil {
			t.Fatal(err)
		}
		_ = cmd.Wait() // the status tells
		fails(t, cmd.ProcessState.ExitCode(), stdout.String(), stderr.String(), "interrupted: nothing was written to "+dst)
		if after := snapshot(t, dir); after != before {
			t.Errorf("the folder is now\n%s\nbefore it was\n%s", after, before)
		}
	}
}

// TestInterruptSample: nothing is left of a sample, or of the first of two, that
// is interrupted while the program makes it.
func TestInterruptSample(t *testing.T) {
	for _, tc := range []struct {
		line    string
		samples int // folders of samples when the signal is sent
	}{{"inspect sample:", 1}, {"quantize sample: DST --format mxfp8", 1}, {"dequantize sample: DST", 1}, {"verify sample: sample:", 1}, {"verify sample: sample:", 2}} {
		t.Run(fmt.Sprintf("%s/samples=%d", tc.line, tc.samples), func(t *testing.T) {
			dir := t.TempDir()
			t.Setenv("TMPDIR", dir)
			dst := filepath.Join(dir, "dst")
			cmd, stdout, stderr := process(t, strings.Fields(strings.ReplaceAll(tc.line, "DST", dst))...)
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			waitFor(t, func() bool {
				folders, err := filepath.Glob(filepath.Join(dir, "microscale-sample-*"))
				return err == nil && len(folders) == tc.samples
			})
			if err := cmd.Process.Signal(os.Interrupt); err != nil {
				t.Fatal(err)
			}
			_ = cmd.Wait() // the status tells
			fails(t, cmd.ProcessState.ExitCode(), stdout.String(), stderr.String(), "microscale: interrupted: the sample was not made")
			if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
				t.Errorf("it left %v, %v", left, err)
			}
		})
	}
}

// waitFor waits until a condition holds.
func waitFor(t *testing.T, condition func() bool) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); !condition(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("a minute was not enough")
		}
	}
}

// TestInterruptRaw: Ctrl-C ends a command that waits for its input.
func TestInterruptRaw(t *testing.T) {
	cmd, _, _ := process(t, "cast", "--raw", "--to", "e4m3")
	cmd.Stdout = nil
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if _, err := in.Write(make([]byte, 1<<16)); err != nil {
		t.Fatal(err)
	}
	if _, err := out.Read(make([]byte, 1)); err != nil { // it has begun
		t.Fatal(err)
	}
	if err := cmd.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait() // the status tells
	if status, ok := cmd.ProcessState.Sys().(syscall.WaitStatus); !ok || status.Signal() != syscall.SIGINT {
		t.Errorf("it ended with %v", cmd.ProcessState)
	}
}

// TestTwoRuns: of two runs to one destination at a time, one refuses in one line
// and the other is not disturbed.
func TestTwoRuns(t *testing.T) {
	dir := t.TempDir()
	src, dst := filepath.Join(dir, "src.safetensors"), filepath.Join(dir, "dst.safetensors")
	largeFile(t, src, 24)
	type result struct {
		cmd            *exec.Cmd
		stdout, stderr *strings.Builder
	}
	var runs []result
	for range 2 {
		cmd, stdout, stderr := process(t, "quantize", src, dst, "--format", "mxfp8")
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		runs = append(runs, result{cmd, stdout, stderr})
	}
	good := 0
	for _, r := range runs {
		if err := r.cmd.Wait(); err == nil {
			good++
			continue
		}
		fails(t, r.cmd.ProcessState.ExitCode(), r.stdout.String(), r.stderr.String(), dst)
		if text := r.stderr.String(); !strings.Contains(text, "another run is writing to it") && !strings.Contains(text, "the destination exists") {
			t.Errorf("the second run says %q", text)
		}
	}
	if good != 1 {
		t.Errorf("%d of 2 runs succeeded, want 1", good)
	}
	done(t, "verify", src, dst)
	if entries, err := os.ReadDir(dir); err != nil || len(entries) != 2 {
		t.Errorf("beside the source and the result is more: %v, %v", entries, err)
	}
}

// TestQuantizeJSON: the document has what its readers rely on.
func TestQuantizeJSON(t *testing.T) {
	dir := t.TempDir()
	src := filepath.Join(dir, "src")
	directory(t, src, twoWeights()...)
	var doc map[string]any
	document(t, &doc, "quantize", src, filepath.Join(dir, "dst"), "--format", "mxfp8")
	want := []string{"bytes", "convention", "destination", "extra", "format", "profile", "quantized", "seconds", "skipped", "source", "source_bytes", "tensors"}
	if got := slices.Sorted(maps.Keys(doc)); !slices.Equal(got, want) {
		t.Errorf("the document has %q, want %q", got, want)
	}
	if data, err := json.Marshal(doc["tensors"]); err != nil || !strings.Contains(string(data), `"sqnr_db":null`) {
		t.Errorf("%s, %v", data, err)
	}
}
