package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/microscale-go/microscale/internal/slow"
)

// injected are the commands of TestInject. SRC, QUANTIZED and DST stand for directories
// of the test.
var injected = []struct {
	name, args string
	quick      bool   // also without -full
	parts      string // a command that two workers run before
}{
	{"quantize", "quantize SRC DST --format nvfp4", true, ""},
	{"quantize a file", "quantize SRC/model-00001-of-00002.safetensors DST.safetensors --format mxfp8", false, ""},
	{"quantize to GGUF", "quantize sample: DST.gguf --format mxfp4 --convention gguf", false, ""},
	{"convert", "convert QUANTIZED DST --convention modelopt", false, ""},
	{"dequantize", "dequantize QUANTIZED DST --dtype f32", false, ""},
	{"merge", "merge DST", false, "quantize SRC DST --format nvfp4"},
	{"merge a file", "merge DST.safetensors", false, "quantize SRC/model-00001-of-00002.safetensors DST.safetensors --format mxfp8"},
}

// injectedCalls are the system calls that fail, with their errors.
var injectedCalls = []struct{ call, errno string }{
	{"write", "ENOSPC"}, {"pwrite64", "ENOSPC"}, {"ftruncate", "ENOSPC"}, {"fsync", "EIO"},
	{"renameat2", "EIO"}, {"renameat", "EIO"}, {"unlinkat", "EIO"}, {"mkdirat", "EIO"},
}

// TestInject makes the writing system calls fail, or kill the process, one after the
// other. DST must be absent or complete, a failed run must print one line, and the same
// command with --resume must produce the same bytes. With -full, it runs every command.
func TestInject(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: this test starts processes")
	}
	strace, err := exec.LookPath("strace")
	if err != nil {
		t.Skip("strace is not installed")
	}
	dir := t.TempDir()
	source := filepath.Join(dir, "src")
	if err := os.Mkdir(source, 0o777); err != nil {
		t.Fatal(err)
	}
	for i := range 2 {
		weightsFile(t, filepath.Join(source, fmt.Sprintf("model-%05d-of-00002.safetensors", i+1)),
			weight{name: fmt.Sprintf("l.%d.self_attn.q_proj.weight", i), shape: []int64{256, 512}}, weight{name: fmt.Sprintf("l.%d.norm.weight", i),
				shape: []int64{512}})
	}
	writeFile(t, filepath.Join(source, "config.json"), []byte(`{"torch_dtype": "bfloat16"}`))
	writeFile(t, filepath.Join(source, "tokenizer.json"), []byte("{}"))
	quantized := filepath.Join(dir, "quantized")
	done(t, "quantize", source, quantized, "--format", "nvfp4", "--scheme", "nvfp4", "--calibration", "constant")
	runs, failed, killed := 0, 0, 0
	for _, c := range injected {
		if !c.quick && !*slow.FullRun {
			continue
		}
		words := func(text, dst string) []string {
			return strings.Fields(strings.NewReplacer("SRC", source, "QUANTIZED", quantized, "DST", dst).Replace(text))
		}
		prepare := func(t *testing.T, dst string) {
			for i := range 2 {
				if c.parts != "" {
					done(t, append(words(c.parts, dst), "--resume", "--shard", fmt.Sprintf("%d/2", i))...)
				}
			}
		}
		result := filepath.Ext(words(c.args, "dst")[min(2, len(words(c.args, "dst"))-1)])
		if c.parts != "" {
			result = filepath.Ext(words(c.args, "dst")[1])
		}
		whole := filepath.Join(dir, "whole-"+strings.ReplaceAll(c.name, " ", "-"))
		prepare(t, whole)
		done(t, words(c.args, whole)...)
		want := strings.ReplaceAll(snapshot(t, whole+result), whole, "")
		for _, call := range injectedCalls {
			for _, fault := range []string{"error=" + call.errno, "signal=SIGKILL"} {
				most := 1
				if *slow.FullRun {
					most = 5
				}
				for when := 1; when <= most; when++ {
					t.Run(fmt.Sprintf("%s/%s/%s/%d", c.name, call.call, fault, when), func(t *testing.T) {
						work := t.TempDir()
						dst := filepath.Join(work, "dst")
						prepare(t, dst)
						args := words(c.args, dst)
						if c.parts == "" {
							args = append(args, "--resume")
						}
						cmd, stdout, stderr := process(t, args...)
						line := []string{strace, "-f", "-qqq", "-o", os.DevNull, "-e", "trace=" + call.call, "-e",
							fmt.Sprintf("inject=%s:%s:when=%d", call.call, fault, when)}
						if call.call == "write" { // not those of the runtime
							for _, name := range []string{".microscale", "config.json", "tokenizer.json", "model.safetensors.index.json"} {
								for _, at := range []string{".microscale-partial", ".microscale-part-0-of-2"} {
									line = append(line, "-P", filepath.Join(dst+result+at, name))
								}
							}
						}
						cmd.Path, cmd.Args = strace, append(line, cmd.Args...)
						err := cmd.Run()
						runs++
						if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
							failed++
							if exit.ExitCode() != exitFailed {
								killed++
							} else if fault == "signal=SIGKILL" || !singleLine(stderr.String()) || stdout.Len() > 0 {
								t.Errorf("exit status %d, %q, %q", exit.ExitCode(), stdout, stderr)
							}
						} else if err != nil {
							t.Fatal(err)
						}
						if _, err := os.Lstat(dst + result); err == nil {
							if got := strings.ReplaceAll(snapshot(t, dst+result), dst, ""); !sameButMarker(got, want) {
								t.Errorf("after the fault DST has\n%s\nwant\n%s", got, want)
							}
						}
						again, _, stderr := process(t, args...)
						if err := again.Run(); err != nil {
							t.Fatalf("again: %v: %s", err, stderr)
						}
						if got := strings.ReplaceAll(snapshot(t, dst+result), dst, ""); got != want {
							t.Errorf("again, DST has\n%s\nwant\n%s", got, want)
						}
						if left, err := filepath.Glob(dst + "*"); err != nil || len(left) != 1 {
							t.Errorf("there are %q, %v", left, err)
						}
					})
				}
			}
		}
	}
	t.Logf("%d runs, %d failed, %d of them killed", runs, failed, killed)
	if failed == 0 {
		t.Error("no run failed")
	}
}

// singleLine reports whether the output of a run is one line beside warnings.
func singleLine(text string) bool {
	lines := 0
	for line := range strings.Lines(text) {
		if !strings.HasPrefix(line, "microscale: warning: ") {
			lines++
		}
	}
	return lines == 1 && strings.HasSuffix(text, "\n")
}

// sameButMarker compares snapshots apart from the journal, which a run that is killed
// after it renamed its result leaves to the next run.
func sameButMarker(got, want string) bool {
	var kept bytes.Buffer
	for line := range strings.Lines(got) {
		if !strings.HasPrefix(line, "/"+markerName+" ") {
			kept.WriteString(line)
		}
	}
	return strings.TrimSuffix(kept.String(), "\n") == strings.TrimSuffix(want, "\n")
}
