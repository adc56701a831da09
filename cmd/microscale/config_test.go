package main

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"
)

// TestConfig trains by a file with names of Megatron-LM and with the same flags: the losses are the
// same. Flags of the command line have precedence.
func TestConfig(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "run.toml")
	writeFile(t, path, []byte(`
data = ["synthetic:"]
[model]
num_layers = 1
hidden_size = 32
ffn_hidden_size = 64
num_attention_heads = 2
num_query_groups = 1
seq-length = 32
[training]
fp8_recipe = "mxfp8"
train_iters = 9
global_batch_size = 4
microbatches = 2
lr = 2e-3
eval_tokens = 64
[parallel]
data_parallel_size = 2
use_distributed_optimizer = true
fp8_param_gather = true
`))
	status, stdout, stderr := execute("", "train", "--config", path, "--steps", "3", "--json", "--out", filepath.Join(dir, "a"))
	if status != exitDone {
		t.Fatal(stderr)
	}
	got := parsed[lossesOf](t, stdout)
	status, stdout, stderr = execute("", strings.Fields("train --data synthetic: --layers 1 --hidden 32 --intermediate 64 --heads 2 --kv-heads 1 --sequence 32 --recipe mxfp8 --steps 3 --batch 4 --microbatches 2 --learning-rate 2e-3 --eval-tokens 64 --fp8-param --json --out "+filepath.Join(dir, "b"))...)
	if status != exitDone {
		t.Fatal(stderr)
	}
	if want := parsed[lossesOf](t, stdout); fmt.Sprint(got.Losses) != fmt.Sprint(want.Losses) || got.Parallel.Ranks != 2 || len(got.Losses) != 3 {
		t.Errorf("got %+v by the file, %+v by flags", got, want)
	}
	for text, want := range map[string]string{
		"steps = 1\ntrain_iters = 2": "run.toml: steps and train_iters set the same flag, --steps: omit one",
		"stepps = 1":                 `run.toml: unknown key "stepps": use the names of flags of microscale train`,
		"steps = -1":                 "run.toml: steps: ",
		"steps":                      "run.toml: line 1: ",
	} {
		writeFile(t, path, []byte(text))
		status, _, stderr := execute("", "train", "--config", path, "--out", filepath.Join(dir, "c"))
		if status != exitFailed || !strings.Contains(stderr, want) || strings.Count(stderr, "\n") != 1 {
			t.Errorf("%q: exit status %d: %s", text, status, stderr)
		}
	}
}

// TestConfigTensor trains ranks that share layers by a file with names of Megatron-LM.
func TestConfigTensor(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "run.toml")
	writeFile(t, path, []byte("tensor_model_parallel_size = 2\nsequence_parallel = true\ntp_only_amax_red = true\nfp8_recipe = \"delayed\"\n"))
	line := strings.Fields("train --data synthetic: --layers 1 --hidden 64 --intermediate 64 --heads 2 --kv-heads 2 --sequence 32 --steps 2 --batch 2 --eval-tokens 64 --json")
	status, stdout, stderr := execute("", append(line, "--config", path, "--out", filepath.Join(dir, "a"))...)
	if status != exitDone {
		t.Fatal(stderr)
	}
	got := parsed[lossesOf](t, stdout)
	status, stdout, stderr = execute("", append(line, "--recipe", "delayed", "--tp", "2", "--sequence-parallel", "--tp-only-amax-red", "--out", filepath.Join(dir, "b"))...)
	if status != exitDone {
		t.Fatal(stderr)
	}
	if want := parsed[lossesOf](t, stdout); fmt.Sprint(got) != fmt.Sprint(want) || got.Parallel.Ranks != 2 {
		t.Errorf("got %+v by the file, %+v by flags", got, want)
	}
	for want, flags := range map[string]string{
		"--tp is 3: ": "--tp 3",
		"--sequence-parallel is true, but no ranks":                               "--sequence-parallel",
		"--tp-only-amax-red is true, but the recipe mxfp8 has no delayed scaling": "--recipe mxfp8 --tp-only-amax-red",
		"--sequence is 32, want a multiple of 64":                                 "--recipe mxfp8 --tp 2 --sequence-parallel",
	} {
		status, _, stderr := execute("", append(append(line, strings.Fields(flags)...), "--out", filepath.Join(dir, "c"))...)
		if status == exitDone || !strings.Contains(stderr, want) || strings.Count(stderr, "microscale: ") != 1 {
			t.Errorf("%s: exit status %d: %s", flags, status, stderr)
		}
	}
}

type lossesOf struct {
	Losses   []float64 `json:"train_losses"`
	Parallel struct{ Ranks int }
}
