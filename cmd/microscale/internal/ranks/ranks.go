// Package ranks starts the ranks of a command: goroutines of this process, or, under an MPI
// launcher, the processes of its job.
package ranks

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/microscale-go/microscale/cmd/microscale/internal/show"
	"github.com/microscale-go/microscale/comm"
	"github.com/microscale-go/microscale/comm/mpi"
	"github.com/microscale-go/microscale/train"
)

// A Job is the ranks that a command runs on.
type Job struct {
	ranks   int
	local   int         // ranks on this machine
	world   *comm.Group // of an MPI job; nil: the ranks are goroutines
	options comm.Options
	connect time.Duration // that joining may take, if not options.Timeout
	flags   *Flags
}

// transport connects this process with its MPI job.
var transport *mpi.Transport

// unjoined is the launcher of an MPI job that this process could not join.
var unjoined *mpi.Launcher

// Exit ends the process: under an MPI launcher when all processes of the job have called it. If this
// process could not join the job, Exit ends the job.
func Exit(code int) {
	switch {
	case transport != nil:
		transport.Exit(code)
	case unjoined != nil:
		unjoined.End(code)
	}
	os.Exit(code)
}

// Start joins the job of the MPI launcher that started this process, if there is one. Only rank 0
// prints: on the others, the output of cmd is discarded.
func (f *Flags) Start(cmd *cobra.Command) (*Job, error) {
	j := &Job{ranks: max(1, int(*f.dp)) * f.tensor(), options: comm.Options{Timeout: *f.timeout}, flags: f}
	j.local = j.ranks
	if *f.timeout < 0 {
		return nil, show.Misuse("--timeout: got %v, want a positive duration, or 0 for no limit", *f.timeout)
	}
	l := mpi.FindLauncher()
	if l.Size <= 1 {
		return j, nil
	}
	j.ranks, j.local = l.Size, localProcesses(os.LookupEnv)
	if err := j.join(cmd, l, *f.library, nil); err != nil {
		return nil, err
	}
	j.watch(cmd, *f.timeout, "the launcher or --timeout ends the job")
	if want := int(*f.dp) * f.tensor(); cmd.Flags().Changed("dp") && want != l.Size {
		return nil, show.Misuse("--dp is %d and --tp is %d, but %s started %d processes: omit --dp, or start %d", *f.dp, f.tensor(), l.Name,
			l.Size, want)
	}
	return j, nil
}

// watch lets this process end when that of another rank is killed. If the ranks cannot connect, it warns that only ending does.
func (j *Job) watch(cmd *cobra.Command, timeout time.Duration, ending string) {
	if err := transport.Watch(timeout); errors.Is(err, mpi.ErrUnwatched) {
		show.PrintWarnings(cmd.ErrOrStderr(), []string{fmt.Sprintf("%v: if a rank is killed, only %s", err, ending)})
	} else if err != nil {
		j.abort(err)
	}
}

// Connect joins the job of the MPI launcher that started this process, if there is one, for a command with the flag of AddLibrary. The
// ranks wait for each other without a limit: one may compute for hours.
func Connect(cmd *cobra.Command, library string) (*Job, error) {
	l := mpi.FindLauncher()
	j := &Job{ranks: 1, local: 1}
	if l.Size <= 1 {
		return j, nil
	}
	j.ranks, j.local, j.connect = l.Size, localProcesses(os.LookupEnv), defaultTimeout
	if err := j.join(cmd, l, library, nil); err != nil {
		return nil, err
	}
	j.watch(cmd, defaultTimeout, "the launcher ends the job")
	return j, nil
}

// Group returns the ranks of an MPI job; nil: there is one process.
func (j *Job) Group() *comm.Group { return j.world }

// Threads returns the number of threads of a rank for the value of --threads, of which 0 is the default.
func (j *Job) Threads(n int) int {
	if n == 0 && j.world != nil {
		return j.threads()
	}
	return n
}

// Settle returns err if there is one process, or all ranks have it. Otherwise it ends the job.
func (j *Job) Settle(err error) error {
	if agreed := (*comm.AgreedError)(nil); j.world != nil && err != nil && !errors.As(err, &agreed) {
		j.abort(err)
	}
	return err
}

// join connects this process with its MPI job, silences all ranks but the first, and returns the error of the
// handshake.
func (j *Job) join(cmd *cobra.Command, l mpi.Launcher, library string, own error) error {
	t, err := mpi.Connect(library, cmp.Or(j.connect, j.options.Timeout))
	if err != nil {
		unjoined = &l
		return err
	}
	transport, j.world = t, comm.New(t, j.options)
	if t.Rank() > 0 {
		cmd.Root().SetOut(io.Discard)
		cmd.Root().SetErr(io.Discard)
	}
	return j.handshake(cmd, own)
}

// Misused reports err, an error of the command line before Start, to all ranks of the MPI job, so that only
// rank 0 prints it and all end. It does nothing for commands without the flag of AddLibrary, after Start or Connect, and
// outside of a job.
func Misused(cmd *cobra.Command, err error) {
	l := mpi.FindLauncher()
	library, timeout := cmd.Flags().Lookup(libraryFlag), cmd.Flags().Lookup(timeoutFlag)
	if l.Size <= 1 || library == nil || transport != nil || unjoined != nil {
		return
	}
	limit := defaultTimeout
	if timeout != nil {
		if d, err := time.ParseDuration(timeout.Value.String()); err == nil && d > 0 {
			limit = d
		}
	}
	j := &Job{options: comm.Options{Timeout: limit}}
	_ = j.join(cmd, l, library.Value.String(), err) // this process has err anyway
}

// Help returns the writer for help: w, or on the ranks of an MPI job after the first, one that discards it.
func Help(w io.Writer) io.Writer {
	if mpi.FindLauncher().Rank > 0 {
		return io.Discard
	}
	return w
}

// localProcesses returns the number of processes of the job on this machine, as launchers report it.
func localProcesses(lookup func(string) (string, bool)) int {
	for _, name := range []string{"OMPI_COMM_WORLD_LOCAL_SIZE", "MPI_LOCALNRANKS"} {
		text, _ := lookup(name)
		if n, err := strconv.Atoi(text); err == nil && n > 0 {
			return n
		}
	}
	return 1
}

func init() { comm.RegisterError[show.UsageError]() }

// First reports whether this is the process that prints and writes.
func (j *Job) First() bool { return j.world == nil || j.world.Rank() == 0 }

// FromFirst calls f on rank 0 of an MPI job, and returns its result on every rank. The other ranks
// return its error as comm.DecodeError restores it.
func FromFirst[T any](j *Job, f func() (T, error)) (result T, err error) {
	if j.world == nil {
		return f()
	}
	var message struct {
		Result T
		Error  json.RawMessage `json:",omitempty"` // as comm.EncodeError returns it
	}
	var text []byte
	if j.First() {
		result, err = f()
		message.Result, message.Error = result, comm.EncodeError(err)
		var failed error
		if text, failed = json.Marshal(message); failed != nil {
			return result, failed
		}
	}
	all, failed := j.world.GatherAll(text)
	if failed != nil {
		j.abort(failed)
	}
	if j.First() {
		return result, err
	}
	if err := json.Unmarshal(all[0], &message); err != nil {
		return result, err
	}
	return message.Result, comm.DecodeError(message.Error)
}

// Train runs c on all ranks. It returns the result of rank 0 or, in an MPI job, of this process.
func (j *Job) Train(ctx context.Context, c train.Config) (result *train.Result, err error) {
	c.Parallel.Local, c.Parallel.Program = j.local, show.Version()
	if c.Threads == 0 {
		c.Threads = j.threads()
	}
	switch {
	case j.world != nil:
		c.Parallel.Group = j.world
		result, err = train.Run(ctx, c)
		return result, j.Settle(err)
	case j.ranks == 1:
		return train.Run(ctx, c)
	}
	err = comm.Run(j.ranks, j.options, func(g *comm.Group) error {
		own := c
		own.Parallel.Group = g
		r, err := train.Run(ctx, own)
		if g.Rank() == 0 {
			result = r
		}
		return err
	})
	return result, err
}

// threads returns the number of threads of a rank by default: its share of the processors of this machine.
func (j *Job) threads() int { return max(1, runtime.GOMAXPROCS(0)/j.local) }

// abort ends an MPI job because of an error that the other ranks may not have. It does not return.
func (j *Job) abort(err error) {
	switch {
	case errors.Is(err, comm.ErrAborted): // another rank ends the job
		time.Sleep(3 * mpi.Turn)
	case errors.Is(err, comm.ErrTimeout): // the other ranks have it, too
		time.Sleep(time.Duration(min(j.world.Rank(), 3)) * mpi.Turn)
	}
	transport.Abort(err)
}
