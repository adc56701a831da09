package main

import (
	"path/filepath"
	"strings"
	"testing"
)

// TestQuantizeSequential: with any number of threads the same tensors, which are not those of gptq alone, and nothing is left.
func TestQuantizeSequential(t *testing.T) {
	at, model, text := modelAndText(t)
	run := func(name string, flags ...string) string {
		t.Helper()
		done(t, append([]string{"quantize", model, at(name), "--format", "nvfp4", "--text", text}, flags...)...)
		return recordedTensors(t, filepath.Join(at(name), "model.safetensors"))
	}
	one := run("one", "--sequential", "--threads", "1")
	if three := run("three", "--sequential", "--threads", "3"); three != one {
		t.Error("three threads give other tensors")
	}
	if run("plain") == one {
		t.Error("the tensors are those of gptq alone")
	}
	if left, _ := filepath.Glob(at("one") + ".*"); left != nil {
		t.Errorf("%v is left", left)
	}
	for _, flags := range [][]string{{"--method", "search", "--text", text}, {"--threads", "1"},
		{"--text", text, "--budget", "5", "--formats", "nvfp4,mxfp8"}} {
		args := append([]string{"quantize", model, at("wrong"), "--sequential"}, flags...)
		if flags[len(flags)-2] != "--formats" {
			args = append(args, "--format", "nvfp4")
		}
		if status, _, stderr := execute("", args...); status != exitUsage || !strings.Contains(stderr, "--sequential") {
			t.Errorf("%v: status %d, %s", flags, status, stderr)
		}
	}
}
