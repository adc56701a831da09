// Package mpi is the transport of package comm over MPI: Open MPI, MPICH and its relatives, or
// any library with the ABI of MPI 5. It calls the library of the system without cgo.
//
// A process that a launcher (mpirun, srun, the MPI operator of Kubernetes) started finds its
// library at run time: that of its launcher, since with another one every process would be rank
// 0 of a job of its own. MPI moves bytes between two ranks and nothing else: Isend, Irecv and
// Test. One goroutine with a thread of its own makes all calls.
//
// The build tag nompi leaves the calls out. A binary with them needs a C library at run time.
package mpi

import (
	"fmt"
	"os"
	"strconv"
)

// A Launcher is what the environment says about the job that this process belongs to.
type Launcher struct {
	Name string // of the launcher; empty if there is none
	Size int    // processes of the job

	kind kind // of its libraries
}

// launchers lists the variables that launchers set, the most specific first. size is the number
// of processes, present only in processes of a job.
var launchers = []struct {
	name, size string
	kind       kind
}{
	{"Open MPI's mpirun", "OMPI_COMM_WORLD_SIZE", openMPI},
	{"MPICH's mpirun", "PMI_SIZE", mpich},
	{"Slurm", "SLURM_STEP_NUM_TASKS", anyKind},
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
		return Launcher{Name: l.name, Size: n, kind: l.kind}
	}
	return Launcher{}
}

// checkSize returns an error if MPI joined fewer processes than the launcher started.
func (l Launcher) checkSize(size int, library string) error {
	if l.Name == "" || l.Size == size {
		return nil
	}
	return fmt.Errorf("%s started %d processes, but %s is in a job of %d: the library and the launcher must belong together (mpirun.openmpi with libmpi.so.40, mpirun.mpich with libmpich.so.12, srun --mpi=pmix or pmi2)",
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
