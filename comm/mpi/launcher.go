// Package mpi is the transport of package comm over MPI: Open MPI, MPICH and its relatives, or
// any library with the ABI of MPI 5. It calls the library of the system without cgo.
//
// A process that a launcher started (mpirun, srun, the MPI operator of Kubernetes) loads the library of
// that launcher at run time. With another library, every process would be rank 0 of a separate job. MPI
// only moves bytes between two ranks, with Isend, Irecv and Test. One goroutine, locked to its thread,
// makes all calls.
//
// The build tag nompi leaves the calls out. A binary with them needs a C library at run time.
package mpi

import (
	"fmt"
	"os"
	"strconv"
	"time"
)

// A Launcher describes the job of this process, as its launcher reports it in the environment.
type Launcher struct {
	Name string // of the launcher; empty if there is none
	Rank int    // of this process
	Size int    // processes of the job

	kind    kind // of its libraries
	control int  // file descriptor of the connection to the launcher that ends the job; 0: none
}

// launchers lists the variables that launchers set, the most specific first. size holds the number
// of processes, rank the index of this one; both are set only in processes of a job.
var launchers = []struct {
	name, rank, size string
	kind             kind
}{
	{"Open MPI's mpirun", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", openMPI},
	{"MPICH's mpirun", "PMI_RANK", "PMI_SIZE", mpich},
	{"Slurm", "SLURM_PROCID", "SLURM_STEP_NUM_TASKS", anyKind},
}

// pmix is set by launchers that support PMIx, which Open MPI uses.
const pmix = "PMIX_RANK"

// FindLauncher reads what launchers leave in the environment.
func FindLauncher() Launcher { return findLauncher(os.LookupEnv) }

func findLauncher(lookup func(string) (string, bool)) Launcher {
	for _, l := range launchers {
		text, ok := lookup(l.size)
		n, err := strconv.Atoi(text)
		if !ok || err != nil || n < 1 {
			continue
		}
		if _, ok := lookup(pmix); ok && l.kind == anyKind {
			l.kind = openMPI
		}
		found := Launcher{Name: l.name, Size: n, kind: l.kind}
		text, _ = lookup(l.rank)
		if rank, err := strconv.Atoi(text); err == nil && rank < n {
			found.Rank = max(0, rank)
		}
		text, _ = lookup(pmiConnection)
		if fd, err := strconv.Atoi(text); err == nil && fd > 2 && l.kind == mpich {
			found.control = fd
		}
		return found
	}
	return Launcher{}
}

// pmiConnection is the variable with the file descriptor of the connection to MPICH's launcher. Its
// protocol is PMI-1 of MPICH: lines of text.
const pmiConnection = "PMI_FD"

// pmiAbort is the line with which a process ends its job.
const pmiAbort = "cmd=abort exitcode=%d\n"

// messageTime is the time that a launcher needs to forward the output of a process. MPICH's drops
// what it has not forwarded when the job ends.
const messageTime = 200 * time.Millisecond

// Turn is the time that a launcher may need to end a job. If all ranks have the same error, the first
// prints it and ends the job; the others wait for their turn and are ended before it comes.
const Turn = 2 * time.Second

// waitTurn delays the return of an error that other processes probably have, too. Open MPI's launcher ends the others a
// second after the first exit, later on a busy machine.
func (l Launcher) waitTurn() {
	if l.Rank > 0 {
		time.Sleep(time.Duration(2+min(l.Rank, 3)) * Turn)
	}
}

// End ends the job that this process could not join, and this process. Call it after the error of
// Connect was printed. Open MPI's launcher ends the job if a process exits with a status other than
// 0. MPICH's does not before MPI_Init, so End sends the request for it. Slurm's srun needs
// --kill-on-bad-exit.
func (l Launcher) End(code int) {
	if l.control > 0 {
		time.Sleep(messageTime)
		fmt.Fprintf(os.NewFile(uintptr(l.control), pmiConnection), pmiAbort, code) // on an error, the exit status reports the failure
		time.Sleep(messageTime)
	}
	os.Exit(code)
}

// checkSize returns an error if MPI joined fewer processes than the launcher started.
func (l Launcher) checkSize(size int, library string) error {
	if l.Name == "" || l.Size == size {
		return nil
	}
	return fmt.Errorf("join MPI job: %s started %d processes, but %s is in a job of %d: use the library and the launcher of one MPI "+
		"(mpirun.openmpi with libmpi.so.40, mpirun.mpich with libmpich.so.12, srun --mpi=pmix or pmi2)",
		l.Name, l.Size, library, size)
}

// A kind is a family of libraries with one ABI.
type kind int

const (
	anyKind kind = iota
	openMPI
	mpich
	standard
)
