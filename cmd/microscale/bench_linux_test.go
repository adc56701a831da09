package main

import (
	"os"
	"testing"
)

// TestBenchCheckpointSpace checks that a checkpoint that exceeds the free disk space is an
// error before anything is written.
func TestBenchCheckpointSpace(t *testing.T) {
	dir := t.TempDir()
	status, stdout, stderr := execute("", "bench", "checkpoint", "--size", "9e5", "--dir", dir)
	fails(t, status, stdout, stderr, "a checkpoint and a copy of it take 1.80 PB, and "+dir+" has ")
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("it left %v, %v", left, err)
	}
}
