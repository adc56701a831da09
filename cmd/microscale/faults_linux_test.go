package main

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/microscale-go/microscale/cmd/microscale/internal/conversion"
	"github.com/microscale-go/microscale/cmd/microscale/internal/flags"
	"github.com/microscale-go/microscale/internal/slow"
	"github.com/microscale-go/microscale/train"
)

// TestKillResume kills quantize (-9) at random moments, several times in a row, and
// resumes. The files and the error table equal those of an uninterrupted run. It runs
// four rounds; with -full twenty, of a file large enough that killed runs have a journal.
func TestKillResume(t *testing.T) {
	dir := t.TempDir()
	src, whole := filepath.Join(dir, "src.safetensors"), filepath.Join(dir, "whole.safetensors")
	rounds, weights := 4, 64
	if *slow.FullRun {
		rounds, weights = 20, 256
	}
	largeFile(t, src, weights)
	var want, got conversion.Document
	for _, format := range []string{"nvfp4", "fp8-row"} {
		cmd, stdout, stderr := process(t, "quantize", src, whole, "--format", format, "--json", "--force")
		start := time.Now()
		if err := cmd.Run(); err != nil {
			t.Fatalf("%v: %s", err, stderr)
		}
		took := time.Since(start)
		if err := json.Unmarshal([]byte(stdout.String()), &want); err != nil {
			t.Fatal(err)
		}
		bytesWant, err := os.ReadFile(whole)
		if err != nil {
			t.Fatal(err)
		}
		killed, resumed, round := 0, 0, 0
		for ; round < rounds/2 || killed == 0 && round < 100; round++ { // a run may be over before its moment
			dst := filepath.Join(dir, "dst.safetensors")
			killed += kill(t, 1+round%3, took, "quantize", src, dst, "--format", format, "--resume")
			cmd, stdout, stderr := process(t, "quantize", src, dst, "--format", format, "--resume", "--json")
			if err := cmd.Run(); err != nil {
				t.Fatalf("%v: %s", err, stderr)
			}
			got = conversion.Document{}
			if err := json.Unmarshal([]byte(stdout.String()), &got); err != nil {
				t.Fatal(err)
			}
			if got.Resumed {
				resumed++
			}
			if !got.Finished && fmt.Sprint(got.Tensors) != fmt.Sprint(want.Tensors) {
				t.Errorf("%s: the errors are\n%v, not\n%v", format, got.Tensors, want.Tensors)
			}
			if data, err := os.ReadFile(dst); err != nil || !bytes.Equal(data, bytesWant) {
				t.Errorf("%s: the files differ (%v)", format, err)
			}
			if left, _ := filepath.Glob(dst + ".*"); len(left) > 0 {
				t.Errorf("%v is left", left)
			}
			if err := os.Remove(dst); err != nil {
				t.Fatal(err)
			}
		}
		t.Logf("%s: %d of %d rounds resumed from a journal, after %d kills in runs of %v", format, resumed, round, killed, took)
		if killed == 0 || *slow.FullRun && resumed == 0 {
			t.Errorf("%s: %d runs were killed, and %d resumed from a journal", format, killed, resumed)
		}
	}
}

// TestKillText kills quantize --text (-9) at random moments, while it collects statistics and quantizes, and resumes. The file equals
// that of an uninterrupted run, and nothing else is left.
func TestKillText(t *testing.T) {
	model, text := killModel(t)
	killRuns(t, filepath.Dir(model), func(dst string) []string { return quantizeText(model, text, dst, "--format", "nvfp4") })
}

// quantizeText resumes a quantization by a text.
func quantizeText(model, text, dst string, more ...string) []string {
	return append([]string{"quantize", model, dst, "--text", text, "--resume", "--threads", "2"}, more...)
}

// TestKillStatistics does the same while statistics are collected alone.
func TestKillStatistics(t *testing.T) {
	slow.Full(t, "TestKillText does the same")
	model, text := killModel(t)
	for name, more := range map[string][]string{"s.safetensors": {"--hessian"}, "imatrix.gguf": nil} {
		killRuns(t, t.TempDir(), func(dst string) []string {
			if err := os.MkdirAll(dst, 0o700); err != nil {
				t.Fatal(err)
			}
			return append([]string{"calibrate", model, "--text", text, "--context", "32", "--out", filepath.Join(dst, name), "--threads", "2"},
				more...)
		})
	}
}

// TestKillSolve does the same while columns are quantized by GPTQ.
func TestKillSolve(t *testing.T) {
	slow.Full(t, "TestKillText does the same")
	model, text := killModel(t, "--hidden", "192", "--intermediate", "768", "--steps", "1")
	statistics := filepath.Join(t.TempDir(), "s.safetensors")
	done(t, "calibrate", model, "--text", text, "--hessian", "--out", statistics)
	killRuns(t, filepath.Dir(model), func(dst string) []string {
		return []string{"quantize", model, dst, "--format", "nvfp4", "--calibration", statistics, "--method", "gptq", "--resume",
			"--threads", "2"}
	})
}

// TestKillDistill does the same while scales are trained, those of blocks, too.
func TestKillDistill(t *testing.T) {
	slow.Long(t, "it kills trainings again and again")
	model, text := killModel(t, "--layers", "1")
	killRuns(t, filepath.Dir(model), func(dst string) []string {
		return quantizeText(model, text, dst, "--format", "nvfp4", "--distill", fmt.Sprint(train.BlockSteps))
	})
}

// TestKillBudget does the same while it measures, compares and writes mixtures.
func TestKillBudget(t *testing.T) {
	slow.Long(t, "it kills measurements again and again, which write a file for each group of weights and layer")
	model, text := killModel(t)
	killRuns(t, filepath.Dir(model), func(dst string) []string {
		return quantizeText(model, text, dst, "--budget", "6.5", "--method", "search")
	})
}

// killModel makes a model and a text.
func killModel(t *testing.T, more ...string) (model, text string) {
	t.Helper()
	dir := t.TempDir()
	model, text = filepath.Join(dir, "model"), filepath.Join(dir, "text")
	done(t, tinyRun(append([]string{"--layers", "4", "--out", model}, more...)...)...)
	if err := os.WriteFile(text, []byte(strings.Repeat("Not all those who wander are lost.\n", 100)), 0o600); err != nil {
		t.Fatal(err)
	}
	return model, text
}

// killRuns kills and resumes a command that writes a checkpoint below dir: three rounds, with -full until 50 runs were killed. Its files
// equal those of an uninterrupted run.
func killRuns(t *testing.T, dir string, args func(dst string) []string) {
	t.Helper()
	whole, dst := filepath.Join(dir, "whole"), filepath.Join(dir, "dst")
	cmd, _, stderr := process(t, args(whole)...)
	start := time.Now()
	if err := cmd.Run(); err != nil {
		t.Fatalf("%v: %s", err, stderr)
	}
	took, killed, round, rounds, wanted := time.Since(start), 0, 0, 3, 1
	if *slow.FullRun {
		wanted = 50
	}
	for ; (round < rounds || killed < wanted) && round < 100*wanted && !t.Failed(); round++ {
		killed += kill(t, 1+round%3, took, args(dst)...)
		cmd, _, stderr := process(t, args(dst)...)
		if err := cmd.Run(); err != nil && !complete(stderr) {
			t.Fatalf("after %d kills: %v: %s", killed, err, stderr)
		}
		sameFiles(t, whole, dst)
		if err := os.RemoveAll(dst); err != nil {
			t.Fatal(err)
		}
	}
	t.Logf("%d kills in %d rounds, runs of %v", killed, round, took)
	if killed < wanted {
		t.Errorf("%d runs were killed, want %d", killed, wanted)
	}
}

// sameFiles checks that a directory has the files of another, and that nothing of its run is left.
func sameFiles(t *testing.T, want, got string) {
	t.Helper()
	for _, dirs := range [][2]string{{want, got}, {got, want}} {
		entries, err := os.ReadDir(dirs[0])
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range entries {
			if a, err := os.ReadFile(filepath.Join(dirs[1], e.Name())); err != nil || !bytes.Equal(a, content(t, filepath.Join(dirs[0], e.Name()))) {
				t.Errorf("%s differs (%v)", e.Name(), err)
			}
		}
	}
	if left, _ := filepath.Glob(got + ".*"); len(left) > 0 {
		t.Errorf("%v is left", left)
	}
}

// kill runs a command that takes a time some times, and kills each run at a random moment. It returns how many had not
// ended.
func kill(t *testing.T, times int, takes time.Duration, args ...string) (killed int) {
	t.Helper()
	for range times {
		cmd, _, stderr := process(t, args...)
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Duration(rand.Float64() * float64(takes)))
		_ = cmd.Process.Kill() // it may have ended
		err := cmd.Wait()
		switch {
		case err == nil || complete(stderr):
		case cmd.ProcessState.Sys().(syscall.WaitStatus).Signaled():
			killed++
		default:
			t.Fatalf("%v: %s", err, stderr)
		}
	}
	return killed
}

// complete reports whether the error of a run is that an earlier one completed: calibrate does not replace its file.
func complete(stderr *strings.Builder) bool {
	return strings.Contains(stderr.String(), "write the calibration: ") && strings.Contains(stderr.String(), " exists: name another file")
}

// halted starts a conversion and stops it as soon as it writes. The function that it
// returns continues the process and waits for its end.
func halted(t *testing.T, src, dst string, args ...string) (end func() (status int, stderr string)) {
	t.Helper()
	cmd, _, stderr := process(t, append([]string{"quantize", src, dst, "--format", "nvfp4"}, args...)...)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	for begun := time.Now(); ; {
		if found, _ := filepath.Glob(dst + ".microscale-partial/*.safetensors"); len(found) > 0 {
			break
		}
		if time.Since(begun) > time.Minute {
			t.Fatalf("nothing is written: %s", stderr)
		}
	}
	if err := cmd.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	return func() (int, string) {
		_ = cmd.Process.Signal(syscall.SIGCONT)
		_ = cmd.Wait() // the status says it
		return cmd.ProcessState.ExitCode(), stderr.String()
	}
}

// TestTwoProcesses checks that a second run to a destination is an error, whatever its
// flags, and that the first one completes.
func TestTwoProcesses(t *testing.T) {
	dir := t.TempDir()
	src, dst := filepath.Join(dir, "src.safetensors"), filepath.Join(dir, "dst.safetensors")
	largeFile(t, src, 24)
	end := halted(t, src, dst)
	for _, extra := range [][]string{nil, {"--resume"}, {"--force"}} {
		status, stdout, stderr := execute("", append([]string{"quantize", src, dst, "--format", "nvfp4"}, extra...)...)
		fails(t, status, stdout, stderr, "another run is writing to it")
	}
	if status, stderr := end(); status != exitDone {
		t.Errorf("the first run: exit status %d: %s", status, stderr)
	}
	done(t, "verify", src, dst)
}

// TestSourceCut truncates the source while it is read.
func TestSourceCut(t *testing.T) {
	dir := t.TempDir()
	src, dst := filepath.Join(dir, "src.safetensors"), filepath.Join(dir, "dst.safetensors")
	largeFile(t, src, 24)
	end := halted(t, src, dst)
	if err := os.Truncate(src, 10000); err != nil {
		t.Fatal(err)
	}
	status, stderr := end()
	fails(t, status, "", stderr, src+": the file changed or was replaced while it was read")
	if left, _ := filepath.Glob(dst + "*"); len(left) > 0 {
		t.Errorf("%v is left", left)
	}
}

// TestDiskResume fills a filesystem, checks that the finished part is still there,
// enlarges the filesystem and resumes. A filesystem that is not writable is an error.
func TestDiskResume(t *testing.T) {
	const unwritable = "unwritable"
	if flag.NArg() > 0 {
		dir, args := flag.Arg(1), flag.Args()[2:]
		if flag.Arg(0) == unwritable {
			mount(dir, syscall.MS_RDONLY, "1m")
			os.Exit(run(args, os.Stdin, os.Stdout, os.Stderr))
		}
		mount(dir, 0, "1m")
		if status := run(args, os.Stdin, os.Stdout, os.Stderr); status != exitFailed {
			fmt.Fprintln(os.Stderr, "the first run succeeded")
			os.Exit(status)
		}
		if left, _ := filepath.Glob(filepath.Join(dir, "*.microscale-partial", markerName)); len(left) != 1 {
			fmt.Fprintln(os.Stderr, "nothing was left to go on from")
		}
		mount(dir, syscall.MS_REMOUNT, "64m")
		status := run(args, os.Stdin, os.Stdout, os.Stderr)
		if status == exitDone {
			status = run([]string{"verify", args[1], args[2]}, os.Stdin, os.Stdout, os.Stderr)
		}
		os.Exit(status)
	}
	dir := t.TempDir()
	src, disk := filepath.Join(dir, "src.safetensors"), filepath.Join(dir, "disk")
	largeFile(t, src, 4)
	if err := os.Mkdir(disk, 0o777); err != nil {
		t.Fatal(err)
	}
	dst := filepath.Join(disk, "dst.safetensors")
	for _, kind := range []string{"full", unwritable} {
		t.Run(kind, func(t *testing.T) {
			status, stdout, stderr := mounting(t, kind, disk, "quantize", src, dst, "--format", "mxfp8", "--resume")
			if kind == unwritable {
				fails(t, status, stdout, stderr, disk+": this directory is not writable (read-only file system)")
				return
			}
			want := "microscale: " + dst + ": the disk is full: the result needs "
			if status != exitDone || !strings.HasPrefix(stderr, want) || strings.Count(stderr, "\n") != 1 || !strings.Contains(stderr,
				"free some and resume the run, whose files are in") {
				t.Errorf("exit status %d: %s", status, stderr)
			}
		})
	}
}

// markerName is the journal in a partial directory.
const markerName = ".microscale"

// TestWorkers runs four processes for the parts of a checkpoint at once, as a launcher
// does, and merges them. The bytes equal those of one process.
func TestWorkers(t *testing.T) {
	dir := t.TempDir()
	src, whole, dst := filepath.Join(dir, "src"), filepath.Join(dir, "whole"), filepath.Join(dir, "dst")
	if err := os.Mkdir(src, 0o777); err != nil {
		t.Fatal(err)
	}
	const shards = 3
	for i := range shards {
		weightsFile(t, filepath.Join(src, fmt.Sprintf("model-%05d-of-%05d.safetensors", i+1, shards)),
			weight{name: fmt.Sprintf("l.%d.self_attn.q_proj.weight", i), shape: []int64{256, 512}},
			weight{name: fmt.Sprintf("l.%d.self_attn.k_proj.weight", (i+1)%shards), shape: []int64{128, 512}})
	}
	writeFile(t, filepath.Join(src, "config.json"), []byte(`{"torch_dtype": "bfloat16"}`))
	done(t, "quantize", src, whole, "--format", "nvfp4")
	const workers = 4
	var running []func()
	for i := range workers {
		cmd, _, stderr := process(t, "quantize", src, dst, "--format", "nvfp4", "--resume", "--shard", fmt.Sprintf("auto/%d", workers))
		cmd.Env = append(os.Environ(), fmt.Sprintf("%s=%d", flags.IndexVariables[i%len(flags.IndexVariables)], i))
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		running = append(running, func() {
			if err := cmd.Wait(); err != nil {
				t.Errorf("worker %d: %v: %s", i, err, stderr)
			}
		})
	}
	for _, wait := range running {
		wait()
	}
	if out := done(t, "merge", dst); !strings.Contains(out, "dst is complete: 6 weights") {
		t.Errorf("merge prints %q", out)
	}
	sameFiles(t, whole, dst)
}

// TestShardFlag checks invalid values of --shard.
func TestShardFlag(t *testing.T) {
	for _, name := range flags.IndexVariables {
		t.Setenv(name, "")
	}
	for value, want := range map[string]string{
		"2/2": `worker "2" of 2 workers: want 0 to 1`, "1": "want I/N or auto/N", "-1/2": "want 0 to 1", "x/2": `worker "x" of 2`,
		"0/0": "want I/N", "auto/2": "none of JOB_COMPLETION_INDEX",
	} {
		status, _, stderr := execute("", "quantize", "sample:", filepath.Join(t.TempDir(), "dst"), "--format", "mxfp8", "--shard", value)
		if status != exitUsage || !strings.Contains(stderr, want) {
			t.Errorf("--shard %s: exit status %d, %q, want %q", value, status, stderr, want)
		}
	}
	t.Setenv("SLURM_PROCID", "7")
	if status, _, stderr := execute("", "quantize", "sample:", "dst", "--format", "mxfp8", "--shard", "auto/4"); status != exitUsage ||
		!strings.Contains(stderr, `SLURM_PROCID "7" of 4 workers: want 0 to 3`) {
		t.Errorf("exit status %d, %q", status, stderr)
	}
}
