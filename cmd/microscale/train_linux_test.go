package main

import (
	"flag"
	"path/filepath"
	"strings"
	"testing"
)

// TestTrainFullDisk trains into a filesystem of one megabyte, which holds one checkpoint
// but not two. The run fails with one line and keeps the first checkpoint.
func TestTrainFullDisk(t *testing.T) {
	if flag.NArg() > 0 {
		fullDisk(flag.Arg(0), "1m", flag.Args()[1:])
	}
	disk := t.TempDir()
	out := filepath.Join(disk, "out")
	line := tinyRun("--hidden", "64", "--intermediate", "128", "--layers", "1", "--checkpoint-every", "2", "--out", out)
	status, stdout, stderr := mounting(t, append([]string{disk}, line...)...)
	fails(t, status, "", stderr, out+": the disk is full: the checkpoint of step 2 was not written", "the checkpoint of step 0 is kept")
	step := filepath.Join(out, "checkpoint", "step-00000000")
	for _, name := range []string{"state.json", "state.safetensors"} {
		if !strings.Contains(stdout, filepath.Join(step, name)+"\n") {
			t.Errorf("%s is not left:\n%s", name, stdout)
		}
	}
	if n := strings.Count(stdout, "\n"); n != 5 { // out, checkpoint, and the step with its files
		t.Errorf("what is left is\n%s", stdout)
	}
}

// TestCompareFullDisk compares without space for the report: one line, and no directory.
func TestCompareFullDisk(t *testing.T) {
	if flag.NArg() > 0 {
		fullDisk(flag.Arg(0), "16k", flag.Args()[1:])
	}
	disk := t.TempDir()
	line := append(strings.Fields(smallest), "--recipes", "bf16", "--out", filepath.Join(disk, "some", "where"))
	status, stdout, stderr := mounting(t, append([]string{disk}, line...)...)
	if status != exitFailed || !strings.Contains(stderr, "microscale: write the report: ") || !strings.Contains(stderr,
		"no space left on device") {
		t.Errorf("exit status %d: %s", status, stderr)
	}
	if strings.Contains(stdout, disk) || !strings.Contains(stdout, "\nbf16 ") {
		t.Errorf("it prints the table and lists what is left:\n%s", stdout)
	}
}
