package main

import (
	"fmt"
	"path/filepath"
	"reflect"
	"slices"
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
	status, stdout, stderr = execute("",
		strings.Fields("train --data synthetic: --layers 1 --hidden 32 --intermediate 64 --heads 2 --kv-heads 1 --sequence 32 --recipe mxfp8 "+
			"--steps 3 --batch 4 --microbatches 2 --learning-rate 2e-3 --eval-tokens 64 --fp8-param --json --out "+filepath.Join(dir, "b"))...)
	if status != exitDone {
		t.Fatal(stderr)
	}
	if want := parsed[lossesOf](t, stdout); fmt.Sprint(got.Losses) != fmt.Sprint(want.Losses) || got.Parallel.Ranks != 2 ||
		len(got.Losses) != 3 {
		t.Errorf("got %+v by the file, %+v by flags", got, want)
	}
	for text, want := range map[string]string{
		"steps = 1\ntrain_iters = 2": "run.toml: steps and train_iters set the same flag, --steps: omit one",
		"[a]\nlr = 1\n[b]\nlr = 2":   "run.toml: a.lr and b.lr set the same flag, --learning-rate: omit one",
		"[model]\nstepps = 1":        `run.toml: unknown key "model.stepps": did you mean steps?`,
		"hidden_siz = 1":             `run.toml: unknown key "hidden_siz": did you mean hidden-size?`,
		"pipeline_model_parallel_size = 2": `run.toml: unknown key "pipeline_model_parallel_size": use the names of flags of ` +
			`microscale train`,
		"help = true":                            `run.toml: unknown key "help": `,
		"steps = -1":                             `run.toml: steps: "-1" is not an integer of 0 or more, or is out of range`,
		"lr = \"high\"":                          `run.toml: lr: "high" is not a number, or is out of range`,
		"lr = [1e-3, 2e-3]":                      `run.toml: lr: "0.001,0.002" is not a number, or is out of range`,
		"schedule = \"cosin\"":                   `run.toml: schedule: unknown schedule "cosin": did you mean cosine?`,
		"steps":                                  "run.toml: line 1: ",
		"micro_batch_size = 3\nbatch = 8":        "run.toml: micro_batch_size: got 3, want a divisor of the batch of 8 sequences",
		"micro_batch_size = 0":                   "run.toml: micro_batch_size: got 0, want a divisor of the batch of 8 sequences",
		"microbatches = 2\nmicro-batch-size = 2": "run.toml: microbatches and micro-batch-size set the same flag, --microbatches: omit one",
		"data = [{a = 1}]":                       "run.toml: data: got a table, a list of lists or a date, want a string, ",
		"data = [[\"a\"]]":                       "run.toml: data: got a table, a list of lists or a date, want a string, ",
		"seed = 2026-01-02":                      "run.toml: seed: got a table, a list of lists or a date, want a string, ",
		"threads = 1048577":                      "--threads: got 1048577, want 0 to 1048576 (in " + path + ": threads)",
		"lr = 0":                                 "--learning-rate is 0, want a number from 0 to 1e+30 (in " + path + ": lr)",
		"grad_reduce_in_bf16 = \"yes\"":          `run.toml: grad_reduce_in_bf16: got "yes", want true or false`,
	} {
		writeFile(t, path, []byte(text))
		status, _, stderr := execute("", "train", "--config", path, "--out", filepath.Join(dir, "c"))
		if status != exitUsage || !strings.Contains(stderr, want) || strings.Count(stderr, "\n") != 2 {
			t.Errorf("%q: exit status %d: %s", text, status, stderr)
		}
	}
}

// TestConfigChecks requires the checks of flags for those of a file, too.
func TestConfigChecks(t *testing.T) {
	path := filepath.Join(t.TempDir(), "run.toml")
	writeFile(t, path, []byte("resume = true\nforce = true\n"))
	other := filepath.Join(t.TempDir(), "other.toml")
	writeFile(t, other, []byte("tensor_model_parallel_size = 0\n"))
	for want, line := range map[string]string{
		"--resume and --force exclude each other: omit one (in " + path + ": resume, force)": "train --config " + path,
		"--tp: got 0, want 1 to 1048576 (in " + other + ": tensor_model_parallel_size)":      "train --config " + other,
		"--config is empty: name a TOML file":                                                "compare --config=",
	} {
		status, _, stderr := execute("", strings.Fields(line)...)
		if status != exitUsage || !strings.Contains(stderr, want) {
			t.Errorf("%s: exit status %d: %s", line, status, stderr)
		}
	}
}

// TestConfigMegatron trains by arguments of Megatron-LM whose values differ from those of flags. The
// size of microbatches applies to the batch of the command line.
func TestConfigMegatron(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "run.toml")
	writeFile(t, path, []byte(`
micro_batch_size = 2
grad_reduce_in_bf16 = true
distributed_timeout_minutes = 3
fp8 = "e4m3"
fp8_recipe = "delayed"
fp8_margin = 1
fp8_amax_history_len = 2
fp8_amax_compute_algo = "most_recent"
high_precision = ["dgrad", "wgrad"]
`))
	line := strings.Fields("train --data synthetic: --layers 1 --hidden 32 --intermediate 64 --heads 2 --kv-heads 1 --sequence 32 --steps " +
		"2 --batch 4 --eval-tokens 64 --dp 2 --json")
	var got [2]any
	for i, more := range []string{"--config " + path, "--microbatches 2 --grad-reduce bf16 --recipe delayed --fp8-format e4m3 --margin 1 " +
		"--amax-history-len 2 --amax-compute-algo most_recent --high-precision dgrad,wgrad"} {
		status, stdout, stderr := execute("", slices.Concat(line, strings.Fields(more), []string{"--out", filepath.Join(dir, fmt.Sprint(i))})...)
		if status != exitDone {
			t.Fatal(stderr)
		}
		document := parsed[map[string]any](t, stdout)
		got[i] = []any{document["train_losses"], document["bytes_sent_per_step"], document["recipe"]}
	}
	if !reflect.DeepEqual(got[0], got[1]) {
		t.Errorf("got %v by the file, %v by flags", got[0], got[1])
	}
}

// TestConfigTensor trains ranks that share layers by a file with names of Megatron-LM.
func TestConfigTensor(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "run.toml")
	writeFile(t, path, []byte("tensor_model_parallel_size = 2\nsequence_parallel = true\ntp_only_amax_red = true\nfp8_recipe = \"delayed\"\n"))
	line := strings.Fields("train --data synthetic: --layers 1 --hidden 64 --intermediate 64 --heads 2 --kv-heads 2 --sequence 32 --steps " +
		"2 --batch 2 --eval-tokens 64 --json")
	status, stdout, stderr := execute("", append(line, "--config", path, "--out", filepath.Join(dir, "a"))...)
	if status != exitDone {
		t.Fatal(stderr)
	}
	got := parsed[lossesOf](t, stdout)
	status, stdout, stderr = execute("", append(line, "--recipe", "delayed", "--tp", "2", "--sequence-parallel", "--tp-only-amax-red", "--out",
		filepath.Join(dir, "b"))...)
	if status != exitDone {
		t.Fatal(stderr)
	}
	if want := parsed[lossesOf](t, stdout); fmt.Sprint(got) != fmt.Sprint(want) || got.Parallel.Ranks != 2 {
		t.Errorf("got %+v by the file, %+v by flags", got, want)
	}
	for want, flags := range map[string]string{
		"--tp is 3: ": "--tp 3",
		"--dp: 3 ranks divide a batch, want a divisor of 2, the number": "--dp 3",
		"--sequence is 32, want a multiple of 64":                       "--recipe mxfp8 --tp 2 --sequence-parallel",
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

// TestMegatronFlags trains by arguments of Megatron-LM on the command line and by flags: the losses are the
// same. What has no effect is reported, with its file and key.
func TestMegatronFlags(t *testing.T) {
	dir := t.TempDir()
	line := strings.Fields("train --data synthetic: --layers 1 --heads 2 --kv-heads 1 --eval-tokens 64 --json")
	train := func(arguments string) (losses []float64, stderr string) {
		t.Helper()
		status, stdout, stderr := execute("", slices.Concat(line, strings.Fields(arguments),
			[]string{"--force", "--out", filepath.Join(dir, "out")})...)
		if status != exitDone {
			t.Fatalf("%s: exit status %d: %s", arguments, status, stderr)
		}
		return parsed[lossesOf](t, stdout).Losses, stderr
	}
	for theirs, ours := range map[string]string{
		"--fp8-format hybrid --fp8-recipe mxfp8 --use-distributed-optimizer --fp8-param-gather --reuse-grad-buf-for-mxfp8-param-ag " +
			"--overlap-param-gather --data-parallel-size 2 " +
			"--micro-batch-size 1 --global-batch-size 4 --train-iters 2 --hidden-size 32 --ffn-hidden-size 64 --seq-length 32 --lr 2e-3 " +
			"--grad-reduce-in-bf16 --bf16": "--fp8-format hybrid --recipe mxfp8 " +
			"--distributed-optimizer --fp8-param-gather --dp 2 --microbatches 4 --batch 4 --steps 2 --hidden 32 --intermediate 64 --sequence 32 " +
			"--learning-rate 2e-3 --grad-reduce bf16",
		"--fp4-format e2m1 --fp4-recipe nvfp4 --train-iters 2 --hidden-size 64 --ffn-hidden-size 64 --seq-length 32": "--recipe nvfp4 " +
			"--steps 2 --hidden 64 --intermediate 64 --sequence 32",
		"--fp4-format e2m1 --train-iters 2 --hidden-size 64 --ffn-hidden-size 64 --seq-length 32": "--recipe nvfp4 " +
			"--steps 2 --hidden 64 --intermediate 64 --sequence 32",
	} {
		got, _ := train(theirs)
		if want, _ := train(ours); !slices.Equal(got, want) || len(got) != 2 {
			t.Errorf("%s: got losses %v, want %v", theirs, got, want)
		}
	}
	const small = "--steps 1 --hidden 32 --intermediate 64 --sequence 32 --batch 2 "
	path := filepath.Join(dir, "run.toml")
	inert := filepath.Join(dir, "inert.toml")
	writeFile(t, inert, []byte("tp_only_amax_red = true\n"))
	writeFile(t, path, []byte("fp8_margin = 0\nfp8_interval = 1\nfp4_recipe = \"nvfp4\"\nfp4 = \"e2m1\"\nhidden_size = 64\n"))
	for arguments, want := range map[string]string{
		small + "--fp8-recipe mxfp8 --fp8-amax-history-len 1": "microscale: --amax-history-len has no effect: recipe mxfp8: " +
			"amax_history_len: only the recipe delayed has this setting\n",
		small + "--tp-only-amax-red --sequence-parallel": "microscale: --tp-only-amax-red has no effect: only the recipe delayed has amaxes " +
			"to reduce\nmicroscale: --sequence-parallel has no effect: no ranks share a layer (--tp)\n",
		small + "--dp 2 --use-distributed-optimizer --overlap-param-gather": "microscale: --overlap-param-gather has " +
			"no effect: only --fp8-param-gather",
		small + "--config " + inert: inert + ": tp_only_amax_red has no " +
			"effect: only the recipe delayed",
		small + "--no-fp8-wgrad": "microscale: --no-fp8-wgrad has no " +
			"effect: Transformer Engine ignores it; use --high-precision wgrad\n",
		"--steps 1 --intermediate 64 --sequence 32 --batch 2 --config " + path: path + ": fp8_margin has no effect: " +
			"recipe nvfp4: margin: only the recipe delayed",
		"--steps 1 --intermediate 64 --sequence 32 --batch 2 --micro-batch-size 1 --config " + path: "microscale: fp8_interval has no " +
			"effect: Transformer Engine ignores it since version 1.8\n",
	} {
		if _, stderr := train(arguments); !strings.Contains(stderr, want) {
			t.Errorf("%s: got %s, want %s", arguments, stderr, want)
		}
	}
	writeFile(t, path, []byte("[fp8]\nfp8_amax_compute_algo = \"last\"\n"))
	for arguments, want := range map[string]string{
		"--micro-batch-size 1 --microbatches 1 --batch 2": "--micro-batch-size and --microbatches set the same flag: omit one",
		"--micro-batch-size 3 --batch 2":                  "--micro-batch-size: got 3, want a divisor of the batch of 2 sequences",
		"--fp4-format e2m1 --fp8-recipe mxfp8":            "--fp4-format and --recipe set the same flag: omit one",
		"--fp4-format e3m0":                               `--fp4-format: got "e3m0", want e2m1`,
		"--config " + path: path + `: fp8.fp8_amax_compute_algo: recipe mxfp8: amax_compute_algo: unknown ` +
			`amax algorithm "last": use one of max, most_recent`,
	} {
		status, _, stderr := execute("", slices.Concat(line, strings.Fields(arguments))...)
		if status != exitUsage || !strings.Contains(stderr, want) {
			t.Errorf("%s: exit status %d: %s, want %s", arguments, status, stderr, want)
		}
	}
}
