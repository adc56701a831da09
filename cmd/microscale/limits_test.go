package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestLimits checks that files of the wrong kind or size, and sizes beyond the machine,
// are immediate errors of one line, and that nothing is written.
func TestLimits(t *testing.T) {
	t.Chdir(t.TempDir())
	directory(t, "src", twoWeights()...)
	writeFile(t, "deep.toml", []byte("base = \"mxfp8\"\n"+strings.Repeat("a.", 30_000)+"a = 1\n"))
	writeFile(t, "braces.toml", []byte("base = \"mxfp8\"\nx = "+strings.Repeat("{a=", 10_000)+"1"+strings.Repeat("}", 10_000)+"\n"))
	writeFile(t, "large.toml", []byte("base = \"mxfp8\"\n"+strings.Repeat("#", 100_000)))
	writeFile(t, "empty.toml", nil)
	if err := os.Truncate("empty.toml", 100<<30); err != nil { // without blocks on the disk
		t.Fatal(err)
	}
	for _, tc := range []struct {
		line string
		want string
	}{
		{"train --recipe deep.toml", "recipe file deep.toml: line 2: more than 16 levels of nesting"},
		{"train --recipe braces.toml", "recipe file braces.toml: line 2: more than 16 levels of nesting"},
		{"train --recipe large.toml", "recipe file large.toml: the file is larger than the limit of 64 KiB"},
		{"train --recipe empty.toml", "recipe file empty.toml: the file is larger than the limit of 64 KiB"},
		{"train --recipe src.toml", "recipe file src.toml: no such file"},
		{"quantize src dst --format nvfp4 --calibration deep.toml", "deep.toml: not a calibration: line 2: more than 16 levels of nesting"},
		{"quantize src dst --format nvfp4 --calibration empty.toml", "empty.toml: read the calibration: the file is larger than the limit " +
			"of 64 MiB"},
		{"quantize src dst --format nvfp4 --calibration src", "src: read the calibration: not a regular file"},
		{"train --data synthetic: --hidden 1048576", "hidden is 1048576: the run needs at least "},
		{"train --data synthetic: --layers 65536 --hidden 4096", "layers is 65536: the run needs at least "},
		{"train --data synthetic: --batch 100000000000000", "batch is 100000000000000: the run needs at least "},
		{"compare --data synthetic: --hidden 1048576", "hidden is 1048576: the run needs at least "},
	} {
		start := time.Now()
		status, stdout, stderr := execute("", strings.Fields(tc.line)...)
		if !strings.HasPrefix(stderr, "microscale: ") || status == exitDone || stdout != "" || !strings.Contains(stderr, tc.want) {
			t.Errorf("%s: exit status %d, %q, want %q", tc.line, status, stderr, tc.want)
		}
		if took := time.Since(start); took > 10*time.Second {
			t.Errorf("%s: %v", tc.line, took)
		}
	}
	entries, err := filepath.Glob("*")
	if err != nil || len(entries) != 5 {
		t.Errorf("%q are there, %v", entries, err)
	}
}
