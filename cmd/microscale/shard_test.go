package main

import (
	"path/filepath"
	"strings"
	"testing"
)

// TestIdleWorkers checks that every worker prints a note if some have nothing to do, and
// none otherwise. A second merge does nothing.
func TestIdleWorkers(t *testing.T) {
	dir := t.TempDir()
	src, dst := filepath.Join(dir, "src"), filepath.Join(dir, "dst")
	directory(t, src, twoWeights()...)
	const want = "note: 3 workers for 1 file: 2 workers (0, 2) have nothing to convert, but merge needs all 3 parts\n"
	for _, index := range []string{"0/3", "1/3", "2/3"} {
		status, _, stderr := execute("", "quantize", src, dst, "--format", "mxfp8", "--shard", index)
		if status != exitDone || strings.Count(stderr, want) != 1 {
			t.Errorf("worker %s: exit status %d, %q", index, status, stderr)
		}
	}
	done(t, "merge", dst)
	if text := done(t, "merge", dst); !strings.Contains(text, "is complete: nothing was merged") {
		t.Errorf("merged again: %s", text)
	}
	if _, _, stderr := execute("", "quantize", "sample:", filepath.Join(dir, "other"), "--format", "mxfp8", "--shard", "0/2",
		"--dry-run"); strings.Contains(stderr, "note:") {
		t.Errorf("two workers of two files: %q", stderr)
	}
}
