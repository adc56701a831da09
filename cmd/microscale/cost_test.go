package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestCostChart draws the speedups, and checks that a device without rates is an error.
func TestCostChart(t *testing.T) {
	path := filepath.Join(t.TempDir(), "cost.svg")
	status, _, stderr := execute("", "cost", "--params", "8e9", "--device", "b200", "--svg", path)
	picture, err := os.ReadFile(path)
	if status != exitDone || err != nil || !bytes.Contains(picture, []byte(">nvfp4<")) || !bytes.Contains(picture, []byte(">mxfp8<")) {
		t.Errorf("exit status %d, %v, %s", status, err, stderr)
	}
	status, _, stderr = execute("", "cost", "--params", "8e9", "--device", "rtx-pro-6000", "--svg", path)
	if status != exitFailed || !strings.Contains(stderr, "no line has a finite point") {
		t.Errorf("exit status %d, %s", status, stderr)
	}
}
