package main

import (
	"bytes"
	"path/filepath"
	"testing"

	"github.com/microscale-go/microscale/safetensors"
)

// broken writes a checkpoint in NVFP4 whose query projection has another global scale than its set, and which lacks an entry of its
// ignore list.
func broken(t *testing.T, dir string) {
	t.Helper()
	done(t, "quantize", "sample:", dir, "--format", "nvfp4")
	path := filepath.Join(dir, "model-00001-of-00002.safetensors")
	f, err := safetensors.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	global, ok := f.Lookup("model.layers.0.self_attn.q_proj.weight_global_scale")
	if err := f.Close(); err != nil || !ok {
		t.Fatalf("no global scale (%v)", err)
	}
	data := content(t, path)
	data[f.DataStart()+global.End-1]++ // four times as large
	writeFile(t, path, data)
	config := filepath.Join(dir, "config.json")
	writeFile(t, config, bytes.Replace(content(t, config), []byte("lm_head"), []byte("head"), 1))
}

// copies are conversions of checkpoints of two files that keep most bytes: their sources, and their commands.
var copies = []struct {
	name   string
	source func(t *testing.T, dir string)
	args   func(src, dst string) []string
}{
	{"cast", func(t *testing.T, dir string) { done(t, "quantize", "sample:", dir, "--format", "mxfp4") },
		func(src, dst string) []string { return []string{"convert", src, dst, "--cast", "nvfp4"} }},
	{"repair", broken, func(src, dst string) []string { return []string{"repair", src, dst, "--for", "vllm"} }},
}

// TestKillCopies kills casts and repairs (-9) at random moments, and resumes: the files are those of an uninterrupted run.
func TestKillCopies(t *testing.T) {
	for _, tc := range copies {
		t.Run(tc.name, func(t *testing.T) {
			src := filepath.Join(t.TempDir(), "src")
			tc.source(t, src)
			killRuns(t, filepath.Dir(src), func(dst string) []string { return append(tc.args(src, dst), "--resume", "--threads", "1") })
		})
	}
}

// TestCopiesShards: two workers write the files of a cast and of a repair as one run does.
func TestCopiesShards(t *testing.T) {
	for _, tc := range copies {
		t.Run(tc.name, func(t *testing.T) {
			dir := t.TempDir()
			src, whole, parts := filepath.Join(dir, "src"), filepath.Join(dir, "whole"), filepath.Join(dir, "parts")
			tc.source(t, src)
			done(t, tc.args(src, whole)...)
			for _, worker := range []string{"0/2", "1/2"} {
				done(t, append(tc.args(src, parts), "--shard", worker)...)
			}
			done(t, "merge", parts)
			sameFiles(t, whole, parts)
		})
	}
}
