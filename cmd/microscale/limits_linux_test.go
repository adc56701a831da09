package main

import (
	"strings"
	"syscall"
	"testing"
)

// TestSpecialFiles checks that an endless device and a pipe without a writer are errors
// of one line, wherever a small file is read.
func TestSpecialFiles(t *testing.T) {
	t.Chdir(t.TempDir())
	directory(t, "src", twoWeights()...)
	for _, name := range []string{"pipe.toml", "model.safetensors.index.json"} {
		if err := syscall.Mkfifo(name, 0o666); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("HF_HOME", t.TempDir())
	t.Setenv("HF_TOKEN", "")
	for _, line := range []string{
		"train --recipe pipe.toml", "compare --recipes pipe.toml", "eval src --recipe pipe.toml",
		"train --data pipe.toml", "train --data /dev/zero",
		"quantize src dst --format nvfp4 --calibration /dev/zero", "quantize src dst --format nvfp4 --calibration pipe.toml",
		"inspect pipe.toml", "inspect .",
	} {
		status, stdout, stderr := execute("", strings.Fields(line)...)
		if status == exitDone || stdout != "" || !strings.Contains(stderr, "not a regular file") && !strings.Contains(stderr,
			"neither a file nor a directory") {
			t.Errorf("%s: exit status %d, %q", line, status, stderr)
		}
	}
}
