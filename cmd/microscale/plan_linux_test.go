package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/microscale-go/microscale/cmd/microscale/internal/host"
	"github.com/microscale-go/microscale/internal/slow"
	"github.com/microscale-go/microscale/safetensors"
)

// sparseCheckpoint writes the headers of a mixture of experts like DeepSeek-V3 with the
// given number of layers, and holes for data. It returns the size in bytes.
func sparseCheckpoint(t *testing.T, dir string, layers int) (size int64) {
	t.Helper()
	const hidden, inner, experts, maxBytes = 7168, 2048, 256, 5e9
	var specs [][]safetensors.Spec
	filled := float64(maxBytes)
	add := func(name string, rows, cols int64) {
		if filled += float64(2 * rows * cols); filled > maxBytes {
			specs, filled = append(specs, nil), float64(2*rows*cols)
		}
		i := len(specs) - 1
		specs[i] = append(specs[i], safetensors.Spec{Name: name, Dtype: safetensors.BF16, Shape: []int64{rows, cols}})
	}
	add("model.embed_tokens.weight", 129280, hidden)
	for l := range layers {
		prefix := fmt.Sprintf("model.layers.%d.", l)
		add(prefix+"self_attn.q_a_proj.weight", 1536, hidden)
		add(prefix+"self_attn.q_b_proj.weight", 24576, 1536)
		add(prefix+"self_attn.kv_a_proj_with_mqa.weight", 576, hidden)
		add(prefix+"self_attn.kv_b_proj.weight", 32768, 512)
		add(prefix+"self_attn.o_proj.weight", hidden, 16384)
		add(prefix+"mlp.gate.weight", experts, hidden)
		for e := range experts {
			expert := fmt.Sprintf("%smlp.experts.%d.", prefix, e)
			add(expert+"gate_proj.weight", inner, hidden)
			add(expert+"up_proj.weight", inner, hidden)
			add(expert+"down_proj.weight", hidden, inner)
		}
	}
	index := safetensors.Index{WeightMap: map[string]string{}}
	for i, list := range specs {
		name := safetensors.ShardName(i+1, len(specs))
		for _, s := range list {
			index.WeightMap[s.Name] = name
		}
		layout, err := safetensors.NewLayout(list, map[string]string{"format": "pt"})
		if err != nil {
			t.Fatal(err)
		}
		path := filepath.Join(dir, name)
		writeFile(t, path, layout.HeaderBytes())
		if err := os.Truncate(path, layout.FileSize()); err != nil {
			t.Fatal(err)
		}
		size += layout.FileSize()
	}
	data, err := index.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	writeFile(t, filepath.Join(dir, safetensors.IndexName), data)
	writeFile(t, filepath.Join(dir, "config.json"), []byte(`{"torch_dtype": "bfloat16", "model_type": "deepseek_v3"}`))
	return size
}

// TestLargePlan plans the conversion of a checkpoint of 100 GB, with -full of more than a
// terabyte, in seconds and less than 400 MB.
func TestLargePlan(t *testing.T) {
	src := filepath.Join(t.TempDir(), "src")
	if err := os.Mkdir(src, 0o777); err != nil {
		t.Fatal(err)
	}
	layers, seconds, memory := 4, 10.0, int64(200e6)
	if *slow.FullRun {
		layers, seconds, memory = 48, 60, 400e6
	}
	size := sparseCheckpoint(t, src, layers)
	for _, extra := range [][]string{{"--json"}, {"--shard", "3/8"}} {
		cmd, stdout, stderr := process(t, append([]string{"quantize", src, src + "-dst", "--format", "nvfp4", "--dry-run"}, extra...)...)
		start := time.Now()
		peak := peakOf(t, cmd)
		took := time.Since(start).Seconds()
		t.Logf("%.2f TB, %v: %.1f s, %.0f MB of memory", float64(size)/1e12, extra, took, float64(peak)/1e6)
		if took > seconds || peak > memory {
			t.Errorf("%.1f s and %d bytes of memory are too many", took, peak)
		}
		if stdout.Len() == 0 {
			t.Errorf("nothing is printed: %s", stderr)
		}
	}
}

// peakOf runs a command and returns the peak resident memory of its process since exec.
// Its rusage would include the memory of this test, which it shares until then.
func peakOf(t *testing.T, cmd *exec.Cmd) (peak int64) {
	t.Helper()
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error)
	go func() { ended <- cmd.Wait() }()
	for {
		select {
		case err := <-ended:
			if err != nil {
				t.Fatalf("%v: %s", err, cmd.Stderr)
			}
			return peak
		case <-time.After(5 * time.Millisecond):
			peak = max(peak, host.Resident(strconv.Itoa(cmd.Process.Pid)))
		}
	}
}
