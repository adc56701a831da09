//go:build (linux || darwin) && (amd64 || arm64) && !nompi

package mpi

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/microscale-go/microscale/comm"
	"github.com/microscale-go/microscale/comm/commtest"
)

var (
	rankMode    = flag.String("rank", "", "be one process of a job: check, fail, panic, killed, exit, hang, short, late")
	culpritRank = flag.Int("culprit", 2, "with -rank: the process that fails")
	libraryFile = flag.String("library", "", "with -rank: the MPI library")
)

func TestMain(m *testing.M) {
	flag.Parse()
	if *rankMode != "" {
		beRank(*rankMode)
	}
	os.Exit(m.Run())
}

// beRank is what the processes of a job run.
func beRank(mode string) {
	l := FindLauncher()
	timeout := time.Minute
	if mode == "late" {
		timeout = 3 * time.Second
		if l.Rank == l.Size-1 {
			time.Sleep(time.Minute)
		}
	}
	t, err := Connect(*libraryFile, timeout)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		l.End(1)
	}
	defer func() {
		if v := recover(); v != nil {
			t.Abort(fmt.Errorf("panic: %v", v))
		}
	}()
	g := comm.New(t, comm.Options{Timeout: 20 * time.Second})
	if mode == "hang" {
		g = comm.New(t, comm.Options{Timeout: 500 * time.Millisecond})
	}
	if err := t.Watch(timeout); err != nil {
		t.Abort(err)
	}
	culprit := g.Rank() == *culpritRank
	switch {
	case mode == "check":
		sum, err := commtest.Check(g)
		if err != nil {
			t.Abort(err)
		}
		fmt.Printf("rank %d of %d: %x\n", g.Rank(), g.Size(), sum)
		t.Exit(0)
	case mode == "short":
		dst, src := make([][]byte, g.Size()), make([][]byte, g.Size())
		for i := range dst {
			dst[i], src[i] = make([]byte, 100), make([]byte, 100)
		}
		if culprit {
			src[0] = src[0][:99]
		}
		if err := g.AllToAll(dst, src); err != nil {
			t.Abort(err)
		}
	case culprit && mode == "fail":
		t.Abort(errors.New("it failed"))
	case culprit && mode == "panic":
		panic("it failed")
	case culprit && mode == "killed":
		if err := syscall.Kill(os.Getpid(), syscall.SIGKILL); err != nil {
			t.Abort(err)
		}
	case culprit && mode == "exit":
		os.Exit(3)
	case culprit && mode == "hang":
		time.Sleep(time.Minute)
	}
	if err := g.For("gradients").AllReduce(make([]float32, 1000), comm.F32); err != nil {
		t.Abort(err)
	}
	t.Exit(0)
}

// jobs are the launchers that are tested, and their arguments.
var jobs = []struct {
	launcher  string
	arguments []string
}{
	{"mpirun.openmpi", []string{"--allow-run-as-root", "--oversubscribe", "--bind-to", "none", "--mca", "mpi_yield_when_idle", "1"}},
	{"mpirun.mpich", nil},
}

// run starts n processes of this test under a launcher, and returns what they print.
func run(t *testing.T, job, n int, arguments ...string) (output string, err error) {
	t.Helper()
	return runUnder(t, jobs[job].launcher, jobs[job].arguments, n, arguments...)
}

// runUnder is run with arguments for the launcher.
func runUnder(t *testing.T, launcher string, options []string, n int, arguments ...string) (output string, err error) {
	t.Helper()
	if _, err := exec.LookPath(launcher); err != nil {
		t.Skipf("%s is not installed: Debian's packages openmpi-bin and mpich have both launchers", launcher)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 90*time.Second)
	defer cancel()
	line := append(slices.Clone(options), "-np", fmt.Sprint(n), os.Args[0])
	cmd := exec.CommandContext(ctx, launcher, append(line, arguments...)...)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	cmd.WaitDelay = 5 * time.Second
	err = cmd.Run()
	if ctx.Err() != nil {
		t.Fatalf("%s did not end:\n%s", launcher, out.String())
	}
	return out.String(), err
}

// TestJobs runs every operation in jobs of 1, 2 and 4 processes. Sums have the bits of goroutine
// ranks.
func TestJobs(t *testing.T) {
	for job := range jobs {
		t.Run(jobs[job].launcher, func(t *testing.T) {
			for _, n := range []int{1, 2, 4} {
				var want string
				var once sync.Once
				if err := comm.Run(n, comm.Options{}, func(g *comm.Group) error {
					sum, err := commtest.Check(g)
					once.Do(func() { want = fmt.Sprintf(" of %d: %x\n", n, sum) })
					return err
				}); err != nil {
					t.Fatal(err)
				}
				out, err := run(t, job, n, "-rank", "check")
				if err != nil || strings.Count(out, want) != n {
					t.Errorf("%d processes: %v, want %d times %q, got:\n%s", n, err, n, want, out)
				}
			}
		})
	}
}

// TestFaults has one process of three fail, and wants the job to end within 10 s, with a message.
func TestFaults(t *testing.T) {
	messages := map[string]string{
		"fail":   "rank 2: it failed",
		"panic":  "rank 2: panic: it failed",
		"killed": "",
		"hang":   "reduce-scatter of gradients in world[0 1 2]: no answer from rank 2 within 500ms",
		"short":  "rank 2 sends 99 bytes, rank 0 expects 100",
	}
	for job := range jobs {
		t.Run(jobs[job].launcher, func(t *testing.T) {
			for mode, message := range messages {
				start := time.Now()
				out, err := run(t, job, 3, "-rank", mode)
				if took := time.Since(start); err == nil || !strings.Contains(out, message) || took > 10*time.Second {
					t.Errorf("%s: %v after %v, want a message with %q, got:\n%s", mode, err, took, message, out)
				}
			}
		})
	}
}

// TestLost ends one process of three under launchers that let the others wait, as Slurm's does with PMI-2. The
// job ends within 10 s, before any timeout, with one message that names the rank.
func TestLost(t *testing.T) {
	for job, c := range []struct {
		options       []string // of the launcher
		mode, culprit string
	}{
		{[]string{"--mca", "orte_abort_on_non_zero_status", "0"}, "killed", "2"},
		{[]string{"-disable-auto-cleanup"}, "exit", "0"}, // the launcher ends the job anyway if a process was killed
	} {
		launcher := jobs[job].launcher
		t.Run(launcher, func(t *testing.T) {
			start := time.Now()
			out, err := runUnder(t, launcher, slices.Concat(jobs[job].arguments, c.options), 3, "-rank", c.mode, "-culprit", c.culprit)
			took := time.Since(start)
			if err == nil || strings.Count(out, "microscale: ") != 1 || !strings.Contains(out, "lost rank "+c.culprit+" (process ") ||
				took > 10*time.Second {
				t.Errorf("%v after %v, got:\n%s", err, took, out)
			}
		})
	}
}

// TestUnjoined starts processes that cannot join their job: with the library of another launcher, with
// which every process would be alone, without a library, and with a process that never comes. One
// process prints an error, and the job ends.
func TestUnjoined(t *testing.T) {
	other := []string{"libmpich.so.12", "libmpi.so.40"}
	for job := range jobs {
		t.Run(jobs[job].launcher, func(t *testing.T) {
			for want, arguments := range map[string][]string{
				"started 3 processes, but " + other[job] + " is in a job of 1": {"check", "-library", other[job]},
				"load MPI: libc.so.6 has no function MPI_Init_thread":          {"check", "-library", "libc.so.6"},
				"MPI_Init of rank 0: no answer from the other processes":       {"late"},
			} {
				out, err := run(t, job, 3, append([]string{"-rank"}, arguments...)...)
				if n := strings.Count(out, "MPI job:") + strings.Count(out, "load MPI:"); err == nil || n != 1 || !strings.Contains(out, want) {
					t.Errorf("%v: %v, %d messages, got:\n%s", arguments, err, n, out)
				}
			}
		})
	}
}

// TestNoLibrary names files that are no MPI libraries.
func TestNoLibrary(t *testing.T) {
	for name, want := range map[string]string{"libnone.so": "load MPI: ", "libc.so.6": "libc.so.6 has no function MPI_Init_thread: use"} {
		if _, err := load(name, Launcher{}); err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: %v", name, err)
		}
	}
}
