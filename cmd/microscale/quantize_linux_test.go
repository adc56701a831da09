package main

import (
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/microscale-go/microscale/internal/ramdisk"
	"github.com/microscale-go/microscale/internal/slow"
)

// TestFullDisk quantizes into a private filesystem of one megabyte: one line, exit
// status 1, no files.
func TestFullDisk(t *testing.T) {
	if flag.NArg() > 0 {
		fullDisk(flag.Arg(0), "1m", flag.Args()[1:])
	}
	dir := t.TempDir()
	src, disk := filepath.Join(dir, "src.safetensors"), filepath.Join(dir, "disk")
	folder := filepath.Join(dir, "folder")
	largeFile(t, src, 4)
	if err := os.Mkdir(disk, 0o777); err != nil {
		t.Fatal(err)
	}
	directory(t, folder, weight{name: "l.0.proj.weight", shape: []int64{2048, 1024}})
	for _, tc := range []struct{ name, src, format, dst string }{
		{"a file", src, "mxfp8", "dst.safetensors"}, {"a sweep first", src, "fp8-tensor", "dst.safetensors"},
		{"a folder", folder, "mxfp8", "dst"}, {"a folder below", folder, "mxfp8", "a/b/dst"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			dst := filepath.Join(disk, tc.dst)
			status, stdout, stderr := mounting(t, disk, "quantize", tc.src, dst, "--format", tc.format)
			fails(t, status, stdout, stderr, dst+": the disk is full", "bytes")
		})
	}
}

// TestForceBusy replaces a checkpoint that cannot be removed because a filesystem is
// mounted in it. The run succeeds with a warning that names what is left.
func TestForceBusy(t *testing.T) {
	if flag.NArg() > 0 {
		mount(filepath.Join(flag.Arg(0), "busy"), 0, "1m")
		os.Exit(run(flag.Args()[1:], os.Stdin, os.Stdout, os.Stderr))
	}
	dir := t.TempDir()
	src, dst := filepath.Join(dir, "src"), filepath.Join(dir, "dst")
	directory(t, src, twoWeights()...)
	directory(t, dst, twoWeights()...)
	if err := os.Mkdir(filepath.Join(dst, "busy"), 0o777); err != nil {
		t.Fatal(err)
	}
	status, stdout, stderr := mounting(t, dst, "quantize", src, dst, "--format", "mxfp8", "--force", "--json")
	want := "microscale: warning: " + dst + " is complete, but " + dst + ".microscale-replaced could not be removed: remove it yourself ("
	if status != exitDone || !strings.HasPrefix(stderr, want) || strings.Count(stderr, "\n") != 1 {
		t.Errorf("exit status %d, standard error %q, want %q", status, stderr, want)
	}
	if !strings.HasPrefix(stdout, "{") {
		t.Errorf("standard output %q, want a document", stdout)
	}
	done(t, "verify", src, dst)
}

// TestMemory quantizes a checkpoint of one gigabyte, with -full of two, and compares its peak
// resident memory and time with those of cp. By hand:
//
//	go test ./cmd/microscale -run TestMemory -full -v -timeout 30m
func TestMemory(t *testing.T) {
	slow.Long(t, "it writes gigabytes")
	ramdisk.Leave(t)
	dir := t.TempDir()
	src := filepath.Join(dir, "src")
	var size int64
	if err := os.Mkdir(src, 0o777); err != nil {
		t.Fatal(err)
	}
	shards, layers := 2, 4
	lines := []string{"--format mxfp8", "--format nvfp4", "--format fp8-block128 --threads 16", "--format nvfp4 --threads 64"}
	if *slow.FullRun {
		shards = 4
		lines = append(lines, "--format mxfp4", "--format fp8-tensor", "--format fp8-block128", "--format mxfp8 --threads 1")
	}
	for shard := range shards {
		var weights []weight
		for layer := shard * layers; layer < (shard+1)*layers; layer++ {
			weights = append(weights, llamaLayer(layer)...)
		}
		if shard == 0 {
			weights = append(weights, weight{name: "model.embed_tokens.weight", shape: []int64{32000, 2048}})
		}
		path := filepath.Join(src, fmt.Sprintf("model-%05d-of-%05d.safetensors", shard+1, shards))
		weightsFile(t, path, weights...)
		info, err := os.Stat(path)
		if err != nil {
			t.Fatal(err)
		}
		size += info.Size()
	}
	writeFile(t, filepath.Join(src, "config.json"), []byte(`{"torch_dtype": "bfloat16"}`))
	dst := filepath.Join(dir, "dst")
	report := func(name string, cmd *exec.Cmd) int64 {
		start := time.Now()
		peak := peakOf(t, cmd)
		took := time.Since(start).Seconds()
		cpu := (cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()).Seconds()
		t.Logf("%-33s %6.2f s  %5.0f MB/s of source  %6.2f s of processors  %4.0f MB of memory", name, took, float64(size)/1e6/took, cpu,
			float64(peak)/1e6)
		if err := os.RemoveAll(dst); err != nil {
			t.Fatal(err)
		}
		return peak
	}
	t.Logf("source of %.3f GB", float64(size)/1e9)
	for range 2 { // the first warms the cache
		report("cp, sync", exec.Command("sh", "-c", fmt.Sprintf("cp -r %q %q && sync %q/*", src, dst, dst)))
	}
	for _, line := range lines {
		cmd, _, _ := process(t, append([]string{"quantize", src, dst}, strings.Fields(line)...)...)
		const limit = 300e6
		if got := report(line, cmd); got == 0 || got > limit {
			t.Errorf("%s takes %d bytes of memory, more than %g", line, got, float64(limit))
		}
	}
}

// llamaLayer returns the weights of a layer of a model of 1.2 billion parameters.
func llamaLayer(layer int) []weight {
	var all []weight
	for _, w := range []struct {
		name       string
		rows, cols int64
	}{
		{"self_attn.q_proj", 2048, 2048}, {"self_attn.k_proj", 512, 2048}, {"self_attn.v_proj", 512, 2048}, {"self_attn.o_proj", 2048, 2048},
		{"mlp.gate_proj", 8192, 2048}, {"mlp.up_proj", 8192, 2048}, {"mlp.down_proj", 2048, 8192},
	} {
		all = append(all, weight{name: fmt.Sprintf("model.layers.%d.%s.weight", layer, w.name), shape: []int64{w.rows, w.cols}})
	}
	return all
}
