package main

import (
	"bytes"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/microscale-go/microscale/internal/slow"
)

// faultyRun is a run with few operations of every kind.
func faultyRun(out string, more ...string) []string {
	return tinyRun(append([]string{"--layers", "1", "--steps", "2", "--checkpoint-every", "1", "--out", out}, more...)...)
}

// savedModel returns the files of a finished run.
func savedModel(t *testing.T, out string) string {
	t.Helper()
	var all bytes.Buffer
	entries, err := os.ReadDir(out)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		data, err := os.ReadFile(filepath.Join(out, e.Name()))
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(&all, "%s %d\n%s\n", e.Name(), len(data), data)
	}
	return all.String()
}

// resumeTraining repeats the command with --resume, as a job that creates the directory first, and compares
// the files of the run.
func resumeTraining(t *testing.T, out, want string) {
	t.Helper()
	if err := os.MkdirAll(out, 0o777); err != nil {
		t.Fatal(err)
	}
	status, _, stderr := execute("", faultyRun(out, "--resume")...)
	if status != exitDone {
		t.Fatalf("the same command with --resume: exit status %d: %s", status, stderr)
	}
	if got := savedModel(t, out); got != want {
		t.Errorf("the files differ from those of a run that was not disturbed")
	}
}

// TestTrainKills kills a run (-9) at random moments, 30 times, and resumes it. The model
// equals that of an uninterrupted run.
func TestTrainKills(t *testing.T) {
	dir := t.TempDir()
	whole := filepath.Join(dir, "whole")
	cmd, _, stderr := process(t, faultyRun(whole)...)
	start := time.Now()
	if err := cmd.Run(); err != nil {
		t.Fatalf("%v: %s", err, stderr)
	}
	took, want := time.Since(start), savedModel(t, whole)
	kills := 0
	for round := 0; kills < 30; round++ {
		out := filepath.Join(dir, fmt.Sprint(round))
		if err := os.Mkdir(out, 0o777); err != nil {
			t.Fatal(err)
		}
		for range 1 + round%4 {
			cmd, _, stderr := process(t, faultyRun(out, "--resume")...)
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Duration(rand.Float64() * float64(took)))
			_ = cmd.Process.Kill() // it may have ended
			err := cmd.Wait()
			if err == nil {
				break
			}
			if !cmd.ProcessState.Sys().(syscall.WaitStatus).Signaled() {
				t.Fatalf("%v: %s", err, stderr)
			}
			kills++
		}
		resumeTraining(t, out, want)
		if round > 300 {
			t.Fatalf("%d kills in %d rounds", kills, round)
		}
	}
}

// TestTrainFaults makes operations of a run on its directory fail (EIO), or kills the
// run at them, with strace. A failed run must print one line, and the same command with
// --resume must produce the model of an uninterrupted run. It injects every
// 29th operation of each kind, with -full every one, as the nightly workflow does.
func TestTrainFaults(t *testing.T) {
	if flag.NArg() > 0 {
		runtime.LockOSThread() // strace counts the operations of each thread
		os.Exit(run(flag.Args(), os.Stdin, os.Stdout, os.Stderr))
	}
	slow.Long(t, "it kills training again and again")
	if testing.Short() {
		t.Skip("-short: this test starts processes")
	}
	strace, err := exec.LookPath("strace")
	if err != nil {
		t.Skip("strace is not installed")
	}
	dir := t.TempDir()
	out, log := filepath.Join(dir, "out"), filepath.Join(dir, "log")
	paths := []string{out}
	for _, folder := range []string{"checkpoint", "checkpoint.discarded"} {
		paths = append(paths, filepath.Join(out, folder))
		for step := range 3 {
			for _, suffix := range []string{"", ".partial"} {
				at := filepath.Join(out, folder, fmt.Sprintf("step-%08d%s", step, suffix))
				paths = append(paths, at, filepath.Join(at, "state.json"), filepath.Join(at, "state.safetensors"))
			}
		}
	}
	for _, name := range []string{"model.safetensors", "generation_config.json", "config.json"} {
		paths = append(paths, filepath.Join(out, name), filepath.Join(out, name+".partial"))
	}
	const calls = "write,pwrite64,ftruncate,fsync,mkdirat,openat,renameat,unlinkat"
	traced := func(inject ...string) (stderr string, err error) {
		args := []string{"-f", "-qq", "-o", log, "-e", "trace=" + calls}
		for _, p := range paths {
			args = append(args, "-P", p)
		}
		for _, i := range inject {
			args = append(args, "-e", "inject="+i)
		}
		cmd, _, text := process(t, faultyRun(out)...)
		cmd.Args[1] = "-test.run=^TestTrainFaults$"
		cmd.Args = slices.Concat([]string{strace}, args, []string{"--"}, cmd.Args)
		cmd.Path = strace
		err = cmd.Run()
		return text.String(), err
	}
	if stderr, err := traced(); err != nil {
		t.Skipf("strace cannot trace here: %v: %s", err, stderr)
	}
	want := savedModel(t, out)
	text, err := os.ReadFile(log)
	if err != nil {
		t.Fatal(err)
	}
	stride, offset := 29, 0
	if *slow.FullRun {
		stride = 1
	}
	tried := 0
	for call := range strings.SplitSeq(calls, ",") {
		count := strings.Count(string(text), " "+call+"(")
		if count == 0 && call != "write" {
			t.Errorf("the run makes no %s", call)
		}
		for _, fault := range []string{"error=EIO", "signal=KILL"} {
			offset++ // so that calls of few operations are reached, too
			for n := 1 + offset%min(stride, max(count, 1)); n <= count; n += stride {
				tried++
				if err := os.RemoveAll(out); err != nil {
					t.Fatal(err)
				}
				name := fmt.Sprintf("%s:%s:when=%d", call, fault, n)
				stderr, err := traced(name)
				if err == nil && fault == "signal=KILL" {
					t.Errorf("%s: the run was not killed", name)
				}
				if lines := strings.Split(strings.TrimSpace(stderr), "\n"); err != nil && strings.HasPrefix(fault, "error") &&
					!strings.HasPrefix(lines[len(lines)-1], "microscale: ") || strings.Contains(stderr, "goroutine ") {
					t.Errorf("%s: %v: %s", name, err, stderr)
				}
				if t.Run(name, func(t *testing.T) { resumeTraining(t, out, want) }); t.Failed() {
					t.Fatalf("%s: the run said %q (%v)", name, stderr, err)
				}
			}
		}
	}
	t.Logf("%d faults at the operations of\n%s", tried, countedCalls(string(text), calls))
}

func countedCalls(log, calls string) string {
	var b strings.Builder
	for call := range strings.SplitSeq(calls, ",") {
		fmt.Fprintf(&b, "%s: %d\n", call, strings.Count(log, " "+call+"("))
	}
	return b.String()
}

// TestResumeRanks interrupts runs of several ranks, and follows the advice of each: the command line has no other flags,
// and the run has the ranks and the losses of an uninterrupted one.
func TestResumeRanks(t *testing.T) {
	for _, flags := range []string{"--tp 2", "--dp 2 --grad-reduce bf16", "--tp 2 --dp 2"} {
		args := append(strings.Fields("train --data synthetic: --hidden 64 --layers 2 --heads 2 --kv-heads 2 --intermediate 64 --sequence 32 "+
			"--batch 4 --steps 12 --eval-tokens 512 --threads 1 --checkpoint-every 1 --recipe mxfp8"), strings.Fields(flags)...)
		dir := t.TempDir()
		out, whole := filepath.Join(dir, "out"), filepath.Join(dir, "whole")
		done(t, append(args, "--out", whole)...)
		cmd, _, stderr := process(t, append(args, "--out", out)...)
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); time.Sleep(time.Millisecond) {
			if found, _ := filepath.Glob(filepath.Join(out, "checkpoint", "step-*", "state.json")); len(found) > 0 {
				break
			}
		}
		if err := cmd.Process.Signal(os.Interrupt); err != nil {
			t.Fatal(err)
		}
		if err := cmd.Wait(); err == nil {
			t.Skipf("%s: the run was complete before it was interrupted", flags)
		}
		_, advice, ok := strings.Cut(strings.TrimSpace(stderr.String()), "to resume, run microscale ")
		if !ok {
			t.Fatalf("%s: got %s", flags, stderr)
		}
		status, _, again := execute("", strings.Fields(advice)...)
		if status != exitDone {
			t.Errorf("%s: %s: status %d, %s", flags, advice, status, again)
			continue
		}
		const name = "model.safetensors"
		got, err := os.ReadFile(filepath.Join(out, name))
		if err != nil {
			t.Fatal(err)
		}
		want, err := os.ReadFile(filepath.Join(whole, name))
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(got, want) {
			t.Errorf("%s: %s differs from that of an uninterrupted run", flags, name)
		}
	}
}
