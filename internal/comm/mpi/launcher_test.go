package mpi

import (
	"strings"
	"testing"
)

func TestLauncher(t *testing.T) {
	for _, c := range []struct {
		environment map[string]string
		name        string
		size        int
		kind        kind
	}{
		{nil, "", 0, anyKind},
		{map[string]string{"SLURM_NTASKS": "4"}, "", 0, anyKind}, // a batch script outside of a step
		{map[string]string{"OMPI_COMM_WORLD_SIZE": "4", "PMIX_RANK": "1"}, "Open MPI's mpirun", 4, openMPI},
		{map[string]string{"PMI_SIZE": "3", "PMI_RANK": "0"}, "MPICH's mpirun", 3, mpich},
		{map[string]string{"SLURM_STEP_NUM_TASKS": "2"}, "Slurm", 2, anyKind},
		{map[string]string{"SLURM_STEP_NUM_TASKS": "2", "PMIX_RANK": "0"}, "Slurm", 2, openMPI},
		{map[string]string{"SLURM_STEP_NUM_TASKS": "2", "PMI_SIZE": "2"}, "MPICH's mpirun", 2, mpich},
		{map[string]string{"PMI_SIZE": "many"}, "", 0, anyKind},
	} {
		l := findLauncher(func(name string) (string, bool) { v, ok := c.environment[name]; return v, ok })
		if l.Name != c.name || l.Size != c.size || l.kind != c.kind {
			t.Errorf("%v: got %+v", c.environment, l)
		}
	}
	if err := (Launcher{}).checkSize(1, "lib"); err != nil {
		t.Error(err)
	}
	if err := (Launcher{Name: "Slurm", Size: 2}).checkSize(1, "lib"); err == nil || !strings.Contains(err.Error(), "Slurm started 2 processes, but lib is in a job of 1") {
		t.Error(err)
	}
}
