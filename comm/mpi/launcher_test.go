package mpi

import (
	"strings"
	"testing"
)

func TestLauncher(t *testing.T) {
	for _, c := range []struct {
		environment map[string]string
		want        Launcher
	}{
		{nil, Launcher{}},
		{map[string]string{"SLURM_NTASKS": "4"}, Launcher{}}, // a batch script outside of a step
		{map[string]string{"OMPI_COMM_WORLD_SIZE": "4", "OMPI_COMM_WORLD_RANK": "3", "PMIX_RANK": "1"},
			Launcher{Name: "Open MPI's mpirun", Rank: 3, Size: 4, kind: openMPI}},
		{map[string]string{"PMI_SIZE": "3", "PMI_RANK": "1", "PMI_FD": "6"}, Launcher{Name: "MPICH's mpirun", Rank: 1, Size: 3, kind: mpich,
			control: 6}},
		{map[string]string{"SLURM_STEP_NUM_TASKS": "2"}, Launcher{Name: "Slurm", Size: 2, kind: anyKind}},
		{map[string]string{"SLURM_STEP_NUM_TASKS": "2", "PMIX_RANK": "0"}, Launcher{Name: "Slurm", Size: 2, kind: openMPI}},
		{map[string]string{"SLURM_STEP_NUM_TASKS": "2", "PMI_SIZE": "2"}, Launcher{Name: "MPICH's mpirun", Size: 2, kind: mpich}},
		{map[string]string{"SLURM_STEP_NUM_TASKS": "2", "SLURM_PROCID": "1"}, Launcher{Name: "Slurm", Rank: 1, Size: 2}},
		// neither is possible
		{map[string]string{"PMI_SIZE": "3", "PMI_RANK": "3", "PMI_FD": "1"}, Launcher{Name: "MPICH's mpirun", Size: 3, kind: mpich}},
		{map[string]string{"PMI_SIZE": "many"}, Launcher{}},
	} {
		l := findLauncher(func(name string) (string, bool) { v, ok := c.environment[name]; return v, ok })
		if l != c.want {
			t.Errorf("%v: got %+v, want %+v", c.environment, l, c.want)
		}
	}
	if err := (Launcher{}).checkSize(1, "lib"); err != nil {
		t.Error(err)
	}
	if err := (Launcher{Name: "Slurm", Size: 2}).checkSize(1, "lib"); err == nil || !strings.Contains(err.Error(),
		"Slurm started 2 processes, but lib is in a job of 1") {
		t.Error(err)
	}
}
