package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/microscale-go/microscale/internal/slow"
)

// launchers are the commands that start processes of an MPI job.
var launchers = [][]string{
	{"mpirun.openmpi", "--allow-run-as-root", "--oversubscribe", "--bind-to", "none", "--mca", "mpi_yield_when_idle", "1"},
	{"mpirun.mpich"},
}

// launched returns a command line as n processes of this test under a launcher.
func launched(t *testing.T, launcher []string, n int, args ...string) (cmd *exec.Cmd, stdout, stderr *strings.Builder) {
	t.Helper()
	cmd, stdout, stderr = process(t, args...)
	if _, err := exec.LookPath(launcher[0]); err != nil {
		t.Skipf("%s is not installed: Debian's packages openmpi-bin and mpich have both launchers", launcher[0])
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	t.Cleanup(cancel)
	line := slices.Concat(launcher[1:], []string{"-np", fmt.Sprint(n)}, cmd.Args)
	whole := exec.CommandContext(ctx, launcher[0], line...)
	whole.Stdout, whole.Stderr, whole.WaitDelay = cmd.Stdout, cmd.Stderr, 5*time.Second
	return whole, stdout, stderr
}

// rankedRun is a run of four microbatches.
func rankedRun(recipe, out string, more ...string) []string {
	return tinyRun(append([]string{"--recipe", recipe, "--microbatches", "4", "--eval-every", "2", "--json", "--out", out}, more...)...)
}

// A lossDocument is what runs on any ranks have in common.
type lossDocument struct {
	TrainLosses []float64 `json:"train_losses"`
	ValLosses   []struct {
		Step int
		Loss float64
	} `json:"val_losses"`
}

// TestTrainRanks trains on goroutine ranks and under each launcher with 1, 2 and 4 processes: the
// losses are those of one process, bit by bit, and only rank 0 prints. Jobs alternate between two
// recipes, so that each meets both launchers and every number of processes.
func TestTrainRanks(t *testing.T) {
	for r, recipe := range []string{"bf16", "nvfp4"} {
		status, stdout, stderr := execute("", rankedRun(recipe, filepath.Join(t.TempDir(), "out"))...)
		if status != exitDone {
			t.Fatal(stderr)
		}
		want := fmt.Sprint(parsed[lossDocument](t, stdout))
		check := func(t *testing.T, what, stdout string) {
			t.Helper()
			if got := fmt.Sprint(parsed[lossDocument](t, stdout)); got != want {
				t.Errorf("%s, %s: got\n%s\nwant\n%s", recipe, what, got, want)
			}
		}
		for _, n := range []string{"1", "2", "4"} {
			status, stdout, stderr := execute("", rankedRun(recipe, filepath.Join(t.TempDir(), "out"), "--dp", n)...)
			if status != exitDone {
				t.Fatal(stderr)
			}
			check(t, n+" goroutines", stdout)
		}
		for i, l := range launchers {
			t.Run(recipe+"/"+l[0], func(t *testing.T) {
				for j, n := range []int{1, 2, 4} {
					if (i+j)%2 != r {
						continue
					}
					cmd, stdout, stderr := launched(t, l, n, rankedRun(recipe, filepath.Join(t.TempDir(), "out"))...)
					if err := cmd.Run(); err != nil {
						t.Fatalf("%d processes: %v: %s", n, err, stderr)
					}
					check(t, fmt.Sprintf("%d processes of %s", n, l[0]), stdout.String())
				}
			})
		}
	}
}

// TestTrainTensorRanks trains with two ranks that share every layer as goroutines, and as processes of
// each launcher that divide the tokens, too: all have the same losses.
func TestTrainTensorRanks(t *testing.T) {
	run := func(more ...string) []string {
		return tinyRun(append([]string{"--recipe", "mxfp8", "--hidden", "64", "--intermediate", "64", "--heads", "2", "--kv-heads", "2",
			"--sequence", "64", "--microbatches", "2", "--tp", "2", "--json", "--out", filepath.Join(t.TempDir(), "out")}, more...)...)
	}
	status, stdout, stderr := execute("", run()...)
	if status != exitDone {
		t.Fatal(stderr)
	}
	want := fmt.Sprint(parsed[lossDocument](t, stdout))
	if !strings.Contains(stdout, `"activations"`) {
		t.Errorf("no bytes of activations:\n%s", stdout)
	}
	for _, l := range launchers {
		t.Run(l[0], func(t *testing.T) {
			for _, n := range []int{2, 4} {
				cmd, stdout, stderr := launched(t, l, n, run("--sequence-parallel")...)
				if err := cmd.Run(); err != nil {
					t.Fatalf("%d processes: %v: %s", n, err, stderr)
				}
				if got := fmt.Sprint(parsed[lossDocument](t, stdout.String())); got != want {
					t.Errorf("%d processes: got\n%s\nwant\n%s", n, got, want)
				}
			}
		})
	}
}

// TestTrainRankErrors checks errors that all ranks have: rank 0 prints one line. The launchers take
// them in turns: which process prints does not depend on the error.
func TestTrainRankErrors(t *testing.T) {
	for i, l := range launchers {
		t.Run(l[0], func(t *testing.T) {
			for j, tc := range []struct {
				want string
				more []string
			}{
				{"microscale: --microbatches is 3, want 2, 4, 8 or so on: each of 2 ranks computes a power of two of them",
					[]string{"--batch", "3", "--microbatches", "3"}},
				{"microscale: --dp is 4 and --tp is 1, but ", []string{"--dp", "4"}},
				{"none: no such file or directory: use a file", []string{"--data", filepath.Join(t.TempDir(), "none")}},
				{"microscale: load MPI: libm.so.6 has no function MPI_Init_thread: use", []string{"--mpi-library", "libm.so.6"}},
			} {
				if j%2 != i {
					continue
				}
				want, more := tc.want, tc.more
				cmd, stdout, stderr := launched(t, l, 2, tinyRun(append(more, "--out", filepath.Join(t.TempDir(), "out"))...)...)
				err := cmd.Run()
				if err == nil || stdout.Len() > 0 || !strings.Contains(stderr.String(), want) {
					t.Errorf("%v: %v, stdout %q, stderr:\n%s", more, err, stdout, stderr)
				}
				if n := strings.Count(stderr.String(), "microscale: "); n != 1 || strings.Count(stderr.String(), "Run 'microscale train --help'") > n {
					t.Errorf("%v: %d messages:\n%s", more, n, stderr)
				}
			}
		})
	}
}

// TestRankMisuse starts processes with errors of the command line before the start: rank 0 prints one, with
// status 2, also if only another rank has it.
func TestRankMisuse(t *testing.T) {
	for i, l := range launchers {
		t.Run(l[0], func(t *testing.T) {
			for j, tc := range []struct {
				want        string
				first, rest []string // of rank 0 and rank 1
			}{
				{`microscale: unknown flag --stepz: did you mean --step`, []string{"train", "--stepz", "2"}, nil},
				{`microscale: --out is empty: name a directory, or omit it`, []string{"compare", "--out="}, nil},
				{`microscale: --dp: got 0, want 1 to 1048576`, []string{"train", "--dp", "0"}, nil},
				{`microscale: rank 1: --seed: "x" is not an integer of 0 or more`, []string{"train"}, []string{"train", "--seed", "x"}},
			} {
				if j%2 != i {
					continue
				}
				if tc.rest == nil {
					tc.rest = tc.first
				}
				cmd, stdout, stderr := launched(t, l, 1, tc.first...)
				other, _, _ := process(t, tc.rest...)
				cmd.Args = slices.Concat(cmd.Args, []string{":", "-np", "1"}, other.Args)
				err := cmd.Run()
				if exit, ok := errors.AsType[*exec.ExitError](err); !ok || exit.ExitCode() != exitUsage || stdout.Len() > 0 {
					t.Errorf("%v: %v, stdout %q", tc.rest, err, stdout)
				}
				if text := stderr.String(); strings.Count(text, "microscale: ") != 1 || strings.Count(text, "--help' for usage") != 1 ||
					!strings.Contains(text, tc.want) {
					t.Errorf("%v: got\n%s\nwant %s once", tc.rest, text, tc.want)
				}
			}
		})
	}
}

// TestRankHelp checks that rank 0 alone prints help.
func TestRankHelp(t *testing.T) {
	t.Setenv("OMPI_COMM_WORLD_SIZE", "2")
	for rank, want := range []bool{true, false} { // whether it prints
		t.Setenv("OMPI_COMM_WORLD_RANK", fmt.Sprint(rank))
		for _, argument := range []string{"--help", "--help-all"} {
			status, stdout, stderr := execute("", "train", argument)
			if status != exitDone || (stdout != "") != want || stderr != "" {
				t.Errorf("rank %d, %s: exit status %d, got %d bytes of help, %s", rank, argument, status, len(stdout), stderr)
			}
		}
	}
}

// TestCompareRanks divides the formats of a comparison between two processes: the results are those of one.
func TestCompareRanks(t *testing.T) {
	line := func() []string {
		return append(strings.Fields(smallest+" --recipes bf16 --microbatches 2 --json --out"), filepath.Join(t.TempDir(), "out"))
	}
	type document struct {
		Formats []struct {
			Format string
			Loss   float64 `json:"val_loss"`
		}
	}
	want := parsed[document](t, done(t, line()...))
	cmd, stdout, stderr := launched(t, launchers[1], 2, line()...)
	if err := cmd.Run(); err != nil {
		t.Fatalf("%v: %s", err, stderr)
	}
	if got := parsed[document](t, stdout.String()); len(want.Formats) == 0 || !slices.Equal(got.Formats, want.Formats) {
		t.Errorf("got  %v\nwant %v", got, want)
	}
}

// TestTrainRanksDiffer starts two processes with different command lines: rank 0 prints one line that
// names the difference, and nothing is written. The launchers take the flags in turns.
func TestTrainRanksDiffer(t *testing.T) {
	for i, l := range launchers {
		t.Run(l[0], func(t *testing.T) {
			for j, tc := range []struct {
				want string
				more []string
			}{
				{`--grad-reduce is "fp32" on rank 0 and "bf16" on rank 1`, []string{"--grad-reduce", "bf16"}},
				{`--distributed-optimizer is "false" on rank 0 and "true" on rank 1`, []string{"--distributed-optimizer"}},
				{`--resume is "false" on rank 0 and "true" on rank 1`, []string{"--resume"}},
				{`--checkpoint-every is "50" on rank 0 and "7" on rank 1`, []string{"--checkpoint-every", "7"}},
			} {
				if j%2 != i {
					continue
				}
				want, more := tc.want, tc.more
				out := filepath.Join(t.TempDir(), "out")
				cmd, stdout, stderr := launched(t, l, 1, rankedRun("mxfp8", out)...)
				other, _, _ := process(t, rankedRun("mxfp8", out, more...)...)
				cmd.Args = slices.Concat(cmd.Args, []string{":", "-np", "1"}, other.Args)
				if err := cmd.Run(); err == nil || strings.Count(stdout.String(), `"error"`) != 1 || strings.Count(stderr.String(),
					"microscale: ") != 1 || !strings.Contains(stderr.String(), "microscale: the ranks of the job differ: "+want) {
					t.Errorf("%v: %v, stdout %q, stderr:\n%s", more, err, stdout, stderr)
				}
				if _, err := os.Stat(out); err == nil {
					t.Errorf("%v: %s was written", more, out)
				}
			}
		})
	}
}

// ranksOf returns the processes whose command line has an argument, without launchers.
func ranksOf(argument string) (pids []int) {
	entries, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, path := range entries {
		line, err := os.ReadFile(path)
		words := bytes.Split(line, []byte{0})
		if err != nil || !strings.Contains(string(words[0]), "microscale.test") || !slices.ContainsFunc(words,
			func(w []byte) bool { return string(w) == argument }) {
			continue
		}
		pid, err := strconv.Atoi(filepath.Base(filepath.Dir(path)))
		if err == nil {
			pids = append(pids, pid)
		}
	}
	return pids
}

// TestTrainRankFaults kills (-9) or stops one of four processes during a run with a distributed
// optimizer. The whole job ends within 10 s, and resumes from the last checkpoint with two ranks.
func TestTrainRankFaults(t *testing.T) {
	slow.Long(t, "it kills ranks of training again and again")
	status, stdout, stderr := execute("", rankedRun("mxfp8", filepath.Join(t.TempDir(), "out"), "--fp8-param", "--steps", "30")...)
	if status != exitDone {
		t.Fatal(stderr)
	}
	want := fmt.Sprint(parsed[lossDocument](t, stdout))
	for _, l := range launchers {
		t.Run(l[0], func(t *testing.T) {
			for name, signal := range map[string]syscall.Signal{"killed": syscall.SIGKILL, "hangs": syscall.SIGSTOP} {
				out := filepath.Join(t.TempDir(), "out")
				line := rankedRun("mxfp8", out, "--distributed-optimizer", "--fp8-param-gather", "--steps", "30", "--checkpoint-every", "1",
					"--timeout", "6s")
				cmd, _, stderr := launched(t, l, 4, line...)
				if err := cmd.Start(); err != nil {
					t.Fatal(err)
				}
				reached := func() bool {
					steps, _ := filepath.Glob(filepath.Join(out, "checkpoint", "step-*[1-9]"))
					return len(steps) > 0
				}
				for start := time.Now(); !reached() && time.Since(start) < time.Minute; {
					time.Sleep(2 * time.Millisecond)
				}
				pids := ranksOf(out)
				if len(pids) != 4 {
					t.Fatalf("%s: %d processes: %s", name, len(pids), stderr)
				}
				if err := syscall.Kill(pids[len(pids)-1], signal); err != nil {
					t.Fatal(err)
				}
				start := time.Now()
				err := cmd.Wait()
				took := time.Since(start)
				if err == nil || took > 10*time.Second {
					t.Errorf("%s: %v after %v: %s", name, err, took, stderr)
				}
				if n := strings.Count(stderr.String(), "no answer from rank"); signal == syscall.SIGSTOP && n != 1 {
					t.Errorf("%s: %d messages:\n%s", name, n, stderr)
				}
				for _, pid := range ranksOf(out) { // a stopped process
					_ = syscall.Kill(pid, syscall.SIGKILL)
				}
				status, stdout, again := execute("", rankedRun("mxfp8", out, "--fp8-param", "--steps", "30", "--resume", "--dp", "2")...)
				if status != exitDone {
					t.Fatalf("%s: resume: %s", name, again)
				}
				if got := fmt.Sprint(parsed[lossDocument](t, stdout)); got != want {
					t.Errorf("%s: got losses\n%s\nwant\n%s", name, got, want)
				}
				t.Logf("%s: the job ended after %v", name, took)
			}
		})
	}
}
