package main

import (
	"path/filepath"
	"strings"
	"testing"
)

// TestShardVariables: launchers that agree say which worker this is, and those that
// do not are an error that names both.
func TestShardVariables(t *testing.T) {
	for _, tc := range []struct {
		values  [3]string // of indexVariables
		worker  string
		refused []string
	}{
		{[3]string{"", "1", ""}, "1/4", nil},
		{[3]string{"2", "", "2"}, "2/4", nil},
		{[3]string{"0", "3", ""}, "", []string{`JOB_COMPLETION_INDEX says worker "0"`, `SLURM_PROCID worker "3"`}},
		{[3]string{"", "0", "1"}, "", []string{"SLURM_PROCID", "OMPI_COMM_WORLD_RANK", "give it as I/N"}},
		{[3]string{}, "", []string{"none of JOB_COMPLETION_INDEX"}},
	} {
		for i, name := range indexVariables {
			t.Setenv(name, tc.values[i])
		}
		var s shardFlag
		err := s.Set("auto/4")
		if (err != nil) != (tc.refused != nil) || s.String() != tc.worker {
			t.Errorf("%q: %q, error %v", tc.values, s.String(), err)
		}
		for _, want := range tc.refused {
			if err != nil && !strings.Contains(err.Error(), want) {
				t.Errorf("%q: error %v, want %q", tc.values, err, want)
			}
		}
		if s = (shardFlag{}); s.Set("3/4") != nil || s.index != 3 {
			t.Errorf("%q: 3/4 is taken for %s", tc.values, s.String())
		}
	}
}

// TestIdleWorkers: every worker is told at the start that some have nothing to do,
// and where none is idle nothing is said. A merge after the last does nothing.
func TestIdleWorkers(t *testing.T) {
	dir := t.TempDir()
	src, dst := filepath.Join(dir, "src"), filepath.Join(dir, "dst")
	directory(t, src, twoWeights()...)
	const want = "note: a worker writes whole files, and there is 1 file: 2 of the workers (0, 2) have nothing to convert, though merge wants all 3 parts\n"
	for _, index := range []string{"0/3", "1/3", "2/3"} {
		status, _, stderr := execute("", "quantize", src, dst, "--format", "mxfp8", "--shard", index)
		if status != exitDone || strings.Count(stderr, want) != 1 {
			t.Errorf("worker %s: exit status %d, %q", index, status, stderr)
		}
	}
	done(t, "merge", dst)
	if text := done(t, "merge", dst); !strings.Contains(text, "is whole already: there was nothing to join") {
		t.Errorf("merged again: %s", text)
	}
	if _, _, stderr := execute("", "quantize", "sample:", filepath.Join(dir, "other"), "--format", "mxfp8", "--shard", "0/2", "--dry-run"); strings.Contains(stderr, "note:") {
		t.Errorf("two workers of two files: %q", stderr)
	}
}
