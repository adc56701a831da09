package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

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

// TestKill kills the command at moments spread over its run, more of them near the end.
// DST must be absent, or complete and verified. The next run to the same destination
// must succeed and leave nothing else.
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

// TestInterrupt checks that Ctrl-C, and a terminal that is closed, end the command with one line and no
// files.
func TestInterrupt(t *testing.T) {
	dir := t.TempDir()
	src, dst := filepath.Join(dir, "src.safetensors"), filepath.Join(dir, "dst.safetensors")
	largeFile(t, src, 48)
	before := snapshot(t, dir)
	signals := []syscall.Signal{syscall.SIGINT, syscall.SIGTERM}
	if !signal.Ignored(syscall.SIGHUP) { // as under nohup
		signals = append(signals, syscall.SIGHUP)
	}
	for _, sent := range signals {
		cmd, stdout, stderr := process(t, "quantize", src, dst, "--format", "nvfp4")
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		waitFor(t, func() bool {
			_, err := os.Stat(dst + ".microscale-partial")
			return err == nil
		})
		if err := cmd.Process.Signal(sent); err != nil {
			t.Fatal(err)
		}
		_ = cmd.Wait() // the status tells
		fails(t, cmd.ProcessState.ExitCode(), stdout.String(), stderr.String(), "interrupted: nothing was written to "+dst)
		if after := snapshot(t, dir); after != before {
			t.Errorf("the folder is now\n%s\nbefore it was\n%s", after, before)
		}
	}
}

// TestInterruptNohup checks that a closed terminal does not end a command under nohup.
func TestInterruptNohup(t *testing.T) {
	nohup, err := exec.LookPath("nohup")
	if err != nil {
		t.Skip("there is no nohup")
	}
	dir := t.TempDir()
	src, dst := filepath.Join(dir, "src.safetensors"), filepath.Join(dir, "dst.safetensors")
	largeFile(t, src, 48)
	cmd, stdout, stderr := process(t, "quantize", src, dst, "--format", "nvfp4")
	cmd.Path, cmd.Args = nohup, append([]string{nohup}, cmd.Args...)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	waitFor(t, func() bool {
		_, err := os.Stat(dst + ".microscale-partial")
		return err == nil
	})
	if err := cmd.Process.Signal(syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil {
		t.Fatalf("%v: %s %s", err, stdout, stderr)
	}
	done(t, "verify", src, dst)
}

// TestInterruptSample interrupts the creation of one sample, and of the first of two. No
// files may be left.
func TestInterruptSample(t *testing.T) {
	for _, tc := range []struct {
		line    string
		samples int // folders of samples when the signal is sent
	}{{"inspect sample:", 1}, {"quantize sample: DST --format mxfp8", 1}, {"dequantize sample: DST", 1}, {"verify sample: sample:", 1},
		{"verify sample: sample:", 2}} {
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
			fails(t, cmd.ProcessState.ExitCode(), stdout.String(), stderr.String(), "microscale: interrupted: the sample was not created")
			if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
				t.Errorf("it left %v, %v", left, err)
			}
		})
	}
}

// TestClosedPipe: a command whose output is no longer read ends as others do, by SIGPIPE, and leaves no files.
func TestClosedPipe(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("TMPDIR", dir)
	cmd, _, stderr := process(t, "quantize", "sample:", filepath.Join(dir, "dst"), "--format", "mxfp8", "--dry-run", "--json")
	cmd.Stdout = nil
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil || out.Close() != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait() // the status tells
	if status, ok := cmd.ProcessState.Sys().(syscall.WaitStatus); !ok || status.Signal() != syscall.SIGPIPE || stderr.Len() > 0 {
		t.Errorf("it ended with %v, %q", cmd.ProcessState, stderr)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("it left %v, %v", left, err)
	}
}

// TestInterruptBench interrupts a benchmark of checkpoints before and after it has
// created one. No files may be left.
func TestInterruptBench(t *testing.T) {
	for _, tc := range []struct {
		signal syscall.Signal
		made   string // when the signal is sent
	}{{syscall.SIGINT, "src"}, {syscall.SIGTERM, "dst"}} {
		dir := t.TempDir()
		cmd, stdout, stderr := process(t, "bench", "checkpoint", "--size", "0.5", "--dir", dir)
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		waitFor(t, func() bool {
			folders, err := filepath.Glob(filepath.Join(dir, "microscale-bench-*", tc.made))
			return err == nil && len(folders) > 0
		})
		if err := cmd.Process.Signal(tc.signal); err != nil {
			t.Fatal(err)
		}
		_ = cmd.Wait() // the status tells
		if status := cmd.ProcessState.ExitCode(); status != exitFailed || stdout.Len() > 0 || !strings.Contains(stderr.String(),
			"interrupted: the measurement is incomplete") {
			t.Errorf("exit status %d, standard output %q, standard error %q", status, stdout, stderr)
		}
		if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
			t.Errorf("it left %v, %v", left, err)
		}
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

// TestInterruptRaw checks that Ctrl-C ends a command that waits for its input.
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

// TestInterruptTokenize interrupts a command that waits for standard input: it ends at once.
func TestInterruptTokenize(t *testing.T) {
	path := filepath.Join(t.TempDir(), "tokenizer.json")
	const file = `{"model": {"vocab": {"a": 0}}, "pre_tokenizer": {"type": "ByteLevel"}, "decoder": {"type": "ByteLevel"}}`
	if err := os.WriteFile(path, []byte(file), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd, _, _ := process(t, "tokenize", path)
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if _, err := in.Write(make([]byte, 1<<20)); err != nil { // more than a pipe holds: it reads
		t.Fatal(err)
	}
	if err := cmd.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	defer time.AfterFunc(20*time.Second, func() { _ = cmd.Process.Kill() }).Stop()
	_ = cmd.Wait() // the status tells
	if status, ok := cmd.ProcessState.Sys().(syscall.WaitStatus); !ok || status.Signal() != syscall.SIGINT {
		t.Errorf("it ended with %v", cmd.ProcessState)
	}
}

// TestTwoRuns runs twice to one destination at a time. One run must fail in one line,
// and the other must complete.
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
		if text := r.stderr.String(); !strings.Contains(text, "another run is writing to it") && !strings.Contains(text,
			"the destination exists") {
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
