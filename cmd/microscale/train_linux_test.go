package main

import (
	"flag"
	"path/filepath"
	"strings"
	"testing"
)

// TestTrainFullDisk trains into a filesystem of one megabyte, which has room for
// one checkpoint and not for the next: one line, and that one is kept.
func TestTrainFullDisk(t *testing.T) {
	if flag.NArg() > 0 {
		fullDisk(flag.Arg(0), flag.Args()[1:])
	}
	disk := t.TempDir()
	out := filepath.Join(disk, "out")
	line := tinyRun("--hidden", "64", "--intermediate", "128", "--layers", "1", "--checkpoint-every", "2", "--out", out)
	cmd, stdout, stderr := process(t, append([]string{disk}, line...)...)
	cmd.Args[1] = "-test.run=^TestTrainFullDisk$"
	cmd.SysProcAttr = ownMounts()
	err := cmd.Run()
	switch {
	case cmd.ProcessState == nil:
		t.Skipf("a process with mounts of its own cannot be started: %v", err)
	case cmd.ProcessState.ExitCode() == exitNoMount:
		t.Skipf("a filesystem cannot be mounted: %s", stderr)
	}
	left := stdout.String()
	fails(t, cmd.ProcessState.ExitCode(), "", stderr.String(), out+": the disk is full: the checkpoint of step 2 was not written", "the one of step 0 is kept")
	step := filepath.Join(out, "checkpoint", "step-00000000")
	for _, name := range []string{"state.json", "state.safetensors"} {
		if !strings.Contains(left, filepath.Join(step, name)+"\n") {
			t.Errorf("%s is not left:\n%s", name, left)
		}
	}
	if n := strings.Count(left, "\n"); n != 5 { // out, checkpoint, and the step with its files
		t.Errorf("what is left is\n%s", left)
	}
}
