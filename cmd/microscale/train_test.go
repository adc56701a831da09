package main

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/microscale-go/microscale/cmd/microscale/internal/console"
	"github.com/microscale-go/microscale/cmd/microscale/internal/evaluation"
	"github.com/microscale-go/microscale/cmd/microscale/internal/training"
	"github.com/microscale-go/microscale/internal/slow"
)

// tinyRun returns the flags of a run with steps of milliseconds.
func tinyRun(more ...string) []string {
	return append(strings.Fields("train --data synthetic: --hidden 32 --layers 2 --heads 2 --kv-heads 1 --intermediate 64 --sequence 32 "+
		"--batch 4 --steps 6 --eval-tokens 512 --threads 1"), more...)
}

func parsed[T any](t *testing.T, text string) (d T) {
	t.Helper()
	if err := json.Unmarshal([]byte(text), &d); err != nil {
		t.Fatalf("%v in %s", err, text)
	}
	return d
}

// TestTrain trains, evaluates, quantizes, evaluates the result, and generates.
func TestTrain(t *testing.T) {
	t.Chdir(t.TempDir())
	first := parsed[map[string]any](t, done(t, tinyRun("--recipe", "nvfp4", "--json", "--eval-every", "4")...))
	again := parsed[map[string]any](t, done(t, tinyRun("--recipe", "nvfp4", "--json", "--eval-every", "4", "--threads", "3")...))
	if first["recipe"] != "nvfp4" || first["steps"] != 6.0 || first["out"] != "trained-nvfp4" || again["out"] != "trained-nvfp4-2" ||
		len(first["val_losses"].([]any)) != 2 {
		t.Errorf("%v\n%v", first, again)
	}
	for _, k := range []string{"train_losses", "val_losses", "train_loss", "val_loss", "parameters", "tokens"} {
		if fmt.Sprint(first[k]) != fmt.Sprint(again[k]) {
			t.Errorf("%s: %v, and on three threads %v", k, first[k], again[k])
		}
	}
	evaluate := func(args ...string) float64 {
		args = append([]string{"eval", "--data", "synthetic:", "--tokens", "512", "--json"}, args...)
		d := parsed[evaluation.Document](t, done(t, args...))
		if d.Tokens != 512 || math.Abs(math.Exp(float64(d.NLL))/float64(d.Perplexity)-1) > 1e-12 {
			t.Errorf("%+v", d)
		}
		return float64(d.NLL)
	}
	loss := first["val_loss"].(float64)
	if got := evaluate("trained-nvfp4", "--recipe", "nvfp4"); got != loss {
		t.Errorf("the model that was saved has a loss of %g, the run ended with %g", got, loss)
	}
	plain := evaluate("trained-nvfp4")
	done(t, "quantize", "trained-nvfp4", "small", "--format", "mxfp4")
	weights, both := evaluate("small"), evaluate("small", "--activations")
	if status, _, stderr := execute("", "eval", "trained-nvfp4", "--activations"); status == 0 || !strings.Contains(stderr,
		"trained-nvfp4 has no quantized weights") {
		t.Errorf("activations of a model that is not quantized: status %d, %s", status, stderr)
	}
	if plain == loss || weights == plain || both == weights || math.Abs(both-plain) > 0.5 {
		t.Errorf("losses %g in bf16, %g with weights in mxfp4, %g with activations too", plain, weights, both)
	}
	const weightFile = "trained-nvfp4-2/model.safetensors"
	file, err := os.ReadFile(weightFile)
	if err != nil {
		t.Fatal(err)
	}
	for i := 8 + binary.LittleEndian.Uint64(file); i < uint64(len(file)); i++ {
		file[i] = 0xff // NaN
	}
	writeFile(t, weightFile, file)
	if status, stdout, stderr := execute("", "eval", "trained-nvfp4-2", "--data", "synthetic:", "--tokens", "512",
		"--json"); status != exitFailed || !strings.Contains(stdout, `"error"`) || !strings.Contains(stderr,
		"trained-nvfp4-2: the loss is NaN nats per byte: ") {
		t.Errorf("weights of NaN: status %d, %s, %s", status, stdout, stderr)
	}
	done(t, "dequantize", "small", "back")
	if got := evaluate("back"); got != weights {
		t.Errorf("a loss of %g when mxfp4 is decoded, %g as codes", got, weights)
	}
	for _, dir := range []string{"trained-nvfp4", "small"} {
		args := []string{"run", dir, "The ", "--max-tokens", "20", "--top-k", "0"}
		one := parsed[console.Document](t, done(t, append(args, "--seed", "3", "--json")...))
		text := done(t, append(args, "--seed", "3", "--threads", "2")...)
		if one.Tokens != 20 || one.PromptTokens != 4 || text != strings.TrimSuffix(one.Text, "\n")+"\n" {
			t.Errorf("%s: %q, and as JSON %+v", dir, text, one)
		}
		if other := done(t, append(args, "--seed", "4")...); other == text {
			t.Errorf("%s: another seed, the same text", dir)
		}
	}
	if out := done(t, tinyRun("--recipe", "bf16", "--out", "a/b")...); !strings.Contains(out, "the model is in a/b") ||
		!strings.Contains(out, "bf16: ") {
		t.Errorf("it prints %q", out)
	}
}

// TestTrainSwitches checks that the flags of recipes and of BF16 layers take effect.
func TestTrainSwitches(t *testing.T) {
	slow.Race(t, slow.Repeats)
	dir := t.TempDir()
	recipe := filepath.Join(dir, "mine.toml")
	writeFile(t, recipe, []byte("base = \"mxfp8\"\nscale_rule = \"floor\"\n"))
	losses := map[string]string{}
	for i, more := range [][]string{
		{"--recipe", "mxfp8"}, {"--recipe", "mxfp8", "--scale-rule", "floor"}, {"--recipe", "mxfp8", "--fp8-format", "hybrid"},
		{"--recipe", "mxfp8", "--high-precision", "wgrad,dgrad"},
		{"--recipe", "mxfp8", "--first-last-layers-bf16"}, {"--recipe", "mxfp8", "--first-last-layers-bf16", "--num-layers-at-start-in-bf16",
			"0"}, {"--recipe", "nvfp4", "--stochastic-rounding=false"}, {"--recipe", "nvfp4"},
		{"--recipe", recipe}, {"--recipe", "mxfp8", "--recompute"}, {"--recipe", "mxfp8", "--fp8-param"},
	} {
		d := parsed[training.Document](t,
			done(t, tinyRun(append(more, "--steps", "3", "--json", "--out", filepath.Join(dir, fmt.Sprint(i)))...)...))
		name := strings.Join(more, " ")
		for other, l := range losses {
			same := l == fmt.Sprint(d.TrainLosses)
			want := strings.Contains(name, "recompute") || strings.Contains(name, "fp8-param")
			if strings.Contains(name, ".toml") {
				want = strings.Contains(other, "floor")
			} else if want {
				want = other == "--recipe mxfp8"
			}
			if same != want && other != "--recipe mxfp8 --recompute" {
				t.Errorf("%s and %s: the same losses: %t", name, other, same)
			}
		}
		losses[name] = fmt.Sprint(d.TrainLosses)
	}
}

// TestTrainSeparator trains on lines of different lengths, with one rank and with two, and resumes.
func TestTrainSeparator(t *testing.T) {
	slow.Race(t, slow.Repeats)
	t.Chdir(t.TempDir())
	var text strings.Builder
	for i := range 200 {
		fmt.Fprintln(&text, strings.Repeat("word ", i%9))
	}
	if err := os.WriteFile("lines.txt", []byte(text.String()), 0o666); err != nil {
		t.Fatal(err)
	}
	run := func(more ...string) map[string]any {
		t.Helper()
		return parsed[map[string]any](t,
			done(t, tinyRun(append(more, "--data", "lines.txt", "--separator", `\n`, "--microbatches", "2", "--json")...)...))
	}
	one, two := run("--out", "one"), run("--out", "two", "--dp", "2")
	for _, k := range []string{"train_losses", "val_losses", "tokens"} {
		if fmt.Sprint(one[k]) != fmt.Sprint(two[k]) {
			t.Errorf("%s: %v, and on two ranks %v", k, one[k], two[k])
		}
	}
	if n := one["tokens"].(float64); n < 6*4 || n > 6*4*32 {
		t.Errorf("got %g tokens", n)
	}
	if status, _, stderr := execute("", tinyRun("--data", "lines.txt", "--separator", "")...); status != 1 || !strings.Contains(stderr,
		"lines.txt: got 2 documents of more than one byte, want at least 16") {
		t.Errorf("status %d, %s", status, stderr)
	}
}

// TestTrainTogether checks that concurrent runs get different directories.
func TestTrainTogether(t *testing.T) {
	t.Chdir(t.TempDir())
	var runs sync.WaitGroup
	for range 4 {
		runs.Go(func() {
			if status, _, stderr := execute("", tinyRun("--steps", "1")...); status != exitDone {
				t.Errorf("exit status %d: %s", status, stderr)
			}
		})
	}
	runs.Wait()
	for _, dir := range []string{"trained-mxfp8", "trained-mxfp8-2", "trained-mxfp8-3", "trained-mxfp8-4"} {
		if _, err := os.Stat(filepath.Join(dir, "model.safetensors")); err != nil {
			t.Error(err)
		}
	}
}

// TestTrainUsage checks wrong command lines, texts and models.
func TestTrainUsage(t *testing.T) {
	slow.Race(t, slow.Repeats)
	t.Chdir(t.TempDir())
	writeFile(t, "tiny.txt", []byte("tiny"))
	writeFile(t, "bad.toml", []byte("base = \"mxfp8\"\nscale_role = \"floor\"\n"))
	done(t, "quantize", "sample:", "sample", "--format", "mxfp8")
	done(t, tinyRun("--steps", "1", "--out", "tiny")...)
	done(t, "quantize", "tiny", "tiny.gguf", "--format", "mxfp4")
	for _, tc := range []struct {
		line   string
		status int
		want   string
	}{
		{"train now", exitUsage, `unexpected argument "now": use --data for text`},
		{"train --recipe mxfp7", exitUsage, `--recipe: unknown recipe "mxfp7": did you mean mxfp8 or mxfp6 or mxfp4?`},
		{"train --recipe bad.toml", exitUsage, `unknown key "scale_role"`},
		{"train --recipe none.toml", exitUsage, `none.toml`},
		{"train --recipe bf16 --scale-rule floor", exitUsage, `--scale-rule: recipe bf16: scale_rule: the recipe has no E8M0 scales`},
		{"train --recipe mxfp8 --fp8-format e5m2", exitUsage, `--fp8-format: `},
		{"train --recipe bf16 --fp8-param", exitUsage, `--fp8-param is true, but the recipe bf16 does not quantize weights`},
		{"train --steps 0", exitUsage, `--steps is 0, want at least 1`},
		{"train --steps -1", exitUsage, `--steps: "-1" is not an integer of 0 or more`},
		{"train --learning-rate fast", exitUsage, `--learning-rate: "fast" is not a number`},
		{"train --learning-rate nan", exitUsage, `--learning-rate is NaN`},
		{"train --weight-decay nan", exitUsage, `--weight-decay is NaN, want a number from 0 to`},
		{"train --weight-decay -1", exitUsage, `--weight-decay is -1, want a number from 0 to`},
		{"train --schedule linear", exitUsage, `--schedule: unknown schedule "linear": use one of cosine, wsd, constant`},
		{"train --microbatches 3", exitUsage, `--microbatches is 3, want a divisor of the batch of 8 sequences`},
		{"train --dp 0", exitUsage, `--dp: got 0, want 1 to 1048576`},
		{"train --tp 0", exitUsage, `--tp: got 0, want 1 to 1048576`},
		{"train --threads 1048577", exitUsage, `--threads: got 1048577, want 0 to 1048576`},
		{"compare --tp 9223372036854775808", exitUsage, `--tp: got 9223372036854775808, want 1 to 1048576`},
		{"train --kv-heads 3", exitUsage, `microscale: --kv-heads is 3, want a divisor of --heads, 4`},
		{"train --kv-heads 0", exitUsage, `microscale: --kv-heads is 0, want a divisor of --heads, 4`},
		{"train --hidden 96 --heads 32", exitUsage, `microscale: --hidden/--heads is 3, want an even number`},
		{"train --hidden 0", exitUsage, `microscale: --hidden is 0`},
		{"train --sequence 18446744073709551615", exitUsage, `microscale: --sequence is 9223372036854775807, want 1 to 1073741824`},
		{"train --layers 65537", exitUsage, `microscale: --layers is 65537, want 1 to 65536`},
		{"train --tp 3", exitUsage, `microscale: --tp is 3: --heads is 4, want a multiple of the 3 ranks that share a layer`},
		{"train --num-layers-at-end-in-bf16 2", exitUsage, `--num-layers-at-end-in-bf16 applies to --first-last-layers-bf16: add that`},
		{"train --resume", exitUsage, `--resume needs --out`},
		{"train --resume --out typo", exitFailed, `typo: there is no such directory: name that of an interrupted run, or create it for a ` +
			`new one`},
		{"train --dp 3", exitUsage, `--dp: 3 ranks divide a batch, want a divisor of 8, the number of its sequences (--batch)`},
		{"train --resume --out .", exitFailed, `.: the directory has no checkpoint`},
		{"train --resume --force --out tiny", exitUsage, `--resume and --force exclude each other`},
		{"train --force", exitUsage, `--force needs --out`},
		{"train --out sample", exitFailed, `sample: the directory has a file that no run writes, README.md: use another directory (--out)`},
		{"train --out tiny.txt", exitFailed, `tiny.txt: cannot write a run to it: not a directory`},
		{"train --data tiny.txt", exitFailed, `tiny.txt: a text of 4 bytes is too short for sequences of 128, want at least 8192 bytes`},
		{"train --data none.txt", exitFailed, `none.txt: no such file or directory`},
		{"train --recipe nvfp4 --data synthetic: --intermediate 72", exitUsage, `--intermediate is 72: the width of the feed-forward layers ` +
			`is 72, want a multiple of 16 for the recipe nvfp4`},
		{"train --hidden 72", exitUsage, `--hidden is 72: the width of the model is 72, want a multiple of 32 for the recipe mxfp8`},
		{"train --hidden 96 --kv-heads 1", exitUsage, `--kv-heads is 1: the width of queries, keys and values together is 144, want a ` +
			`multiple of 32 for the recipe mxfp8`},
		{"train --first-last-layers-bf16 --num-layers-at-start-in-bf16 99", exitUsage,
			`--num-layers-at-start-in-bf16 is 99, want 0 to 4, the number of layers`},
		{"train --first-last-layers-bf16 --num-layers-at-end-in-bf16 4", exitUsage,
			`--num-layers-at-end-in-bf16 is 4, want 0 to 3: 1 of 4 layers are in BF16 at the start`},
		{"train --first-last-layers-bf16 --num-layers-at-end-in-bf16 18446744073709551615", exitUsage, `--num-layers-at-end-in-bf16 is `},
		{"eval tiny.gguf", exitFailed, `; --text evaluates models with a tokenizer`},
		{"eval", exitUsage, `got 0 arguments, want MODEL`},
		{"eval tiny --text tiny/config.json --method none", exitUsage, `--method: unknown method "none": use one of llama.cpp, gptq, ` +
			`strided, all`},
		{"eval tiny --text tiny/config.json --tokens 5", exitUsage, `--tokens does not apply to --text: omit one of them`},
		{"eval tiny --layers", exitUsage, `--layers applies to --text: add it`},
		{"eval tiny --text tiny/config.json --context 999", exitFailed, `a context of 999 tokens: tiny has 32 positions`},
		{"eval tiny --text tiny/config.json --report tiny/config.json", exitFailed, `tiny/config.json is not a report of microscale`},
		{"eval tiny --text tiny/config.json --report none/r.html", exitFailed, `write a report: none: no such file or directory: create the ` +
			`directory`},
		{"calibrate tiny --text tiny/config.json --out none/amax.toml", exitFailed,
			`write the calibration: none: no such file or directory: create the directory`},
		{"calibrate tiny --text tiny/config.json", exitUsage, `--out is missing: name a new file`},
		{"eval nowhere", exitFailed, `nowhere: no such file or directory`},
		{"eval sample", exitFailed, `sample: the vocabulary has 384 tokens, want the 256 bytes of byte-level models`},
		{"run sample x", exitFailed, `sample: tokenizer.json is missing: copy it from the original model`},
		{"eval sample --recipe none.toml", exitUsage, `--recipe: recipe file none.toml: no such file`},
		{"run tiny 123456789012345678901234567890123", exitFailed, `the prompt has 33 tokens, but the context has 32 positions`},
		{"run sample x --temperature -1", exitUsage, `sampling: temperature is -1, want 0 to 1000`},
	} {
		status, stdout, stderr := execute("", strings.Fields(tc.line)...)
		lines := strings.Split(strings.TrimSpace(stderr), "\n")
		if status != tc.status || stdout != "" || !strings.Contains(lines[0], tc.want) || len(lines) != 1+min(status-1, 1) {
			t.Errorf("%s: exit status %d, %q and %q, want %d and %q", tc.line, status, stdout, stderr, tc.status, tc.want)
		}
	}
	if left, err := filepath.Glob("trained-*"); err != nil || len(left) > 0 {
		t.Errorf("%v are left", left)
	}
}

// TestTrainInterrupt checks that Ctrl-C ends a run with one line that names the command
// to resume, and that this command gives the losses of an uninterrupted run.
func TestTrainInterrupt(t *testing.T) {
	dir := t.TempDir()
	out := filepath.Join(dir, "out")
	line := tinyRun("--recipe", "delayed", "--amax-history-len", "4", "--steps", "60", "--eval-every", "0", "--checkpoint-every", "1", "--out")
	cmd, stdout, stderr := process(t, append(slices.Clone(line), out)...)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	waitFor(t, func() bool {
		steps, err := filepath.Glob(filepath.Join(out, "checkpoint", "step-*[1-9]"))
		return err == nil && len(steps) > 0
	})
	if err := cmd.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait() // the status tells
	fails(t, cmd.ProcessState.ExitCode(), stdout.String(), stderr.String(), "interrupted after ", " steps: the checkpoint is in "+out+
		"; to resume, run microscale train --resume --out "+out)

	status, _, problem := execute("", "train", "--resume", "--out", out, "--seed", "2")
	fails(t, status, "", problem, "the checkpoint is of another run: seed is 1 in the checkpoint and 2 in the configuration: resume with "+
		"the same, or use another directory (--out)")

	got := parsed[training.Document](t, done(t, "train", "--resume", "--out", out, "--json", "--threads", "3"))
	want := parsed[training.Document](t, done(t, append(slices.Clone(line), filepath.Join(dir, "other"), "--checkpoint-every", "0",
		"--json")...))
	if got.Recipe != "delayed" || got.Steps != 60 || !slices.Equal(got.TrainLosses, want.TrainLosses) || got.ValLoss != want.ValLoss {
		t.Errorf("resumed %+v\nwant %+v", got, want)
	}

	// A job that restarts ends once the run is done.
	status, stdoutText, problem := execute("", "train", "--resume", "--out", out, "--json")
	if finished := parsed[training.DoneDocument](t, stdoutText); status != exitDone || !finished.Finished || finished.Out != out ||
		!strings.Contains(problem, "the run is complete") {
		t.Errorf("resumed once more: exit status %d: %s%s", status, stdoutText, problem)
	}
}
