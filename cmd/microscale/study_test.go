package main

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"
)

// TestStudyChart draws a line for each format and rule.
func TestStudyChart(t *testing.T) {
	path := filepath.Join(t.TempDir(), "study.svg")
	status, _, stderr := execute("", "study", "block-size", "--rows", "1", "--svg", path)
	picture, err := os.ReadFile(path)
	for _, name := range []string{">mxfp8 rceil<", ">mxfp4 floor<", ">nvfp4<", ">128<"} {
		if status != exitDone || err != nil || !bytes.Contains(picture, []byte(name)) {
			t.Errorf("exit status %d, %v, %s, no %s", status, err, stderr, name)
		}
	}
}
