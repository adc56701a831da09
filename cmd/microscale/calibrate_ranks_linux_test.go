package main

import (
	"bytes"
	"errors"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/microscale-go/microscale/internal/slow"
)

// TestCalibrateRanks collects statistics, and quantizes by a text, under each launcher with 2 or 4 processes: the bytes are those of one
// process, and only rank 0 prints.
func TestCalibrateRanks(t *testing.T) {
	at, model, text := modelAndText(t)
	calibrate := func(out string) []string {
		return []string{"calibrate", model, "--text", text, "--hessian", "--context", "32", "--out", at(out)}
	}
	quantize := func(dst string) []string {
		return []string{"quantize", model, at(dst), "--format", "nvfp4", "--text", text}
	}
	done(t, calibrate("one.safetensors")...)
	want := content(t, at("one.safetensors"))
	done(t, quantize("one")...)
	for i, l := range launchers {
		t.Run(l[0], func(t *testing.T) {
			cmd, _, stderr := launched(t, l, 2, "calibrate", model, "--no-such-flag")
			if err := cmd.Run(); err == nil || strings.Count(stderr.String(), "microscale: ") != 1 {
				t.Errorf("misuse: %v: %s", err, stderr)
			}
			name := l[0] + ".safetensors"
			var stdout *strings.Builder
			cmd, stdout, stderr = launched(t, l, 2+2*i, calibrate(name)...)
			if err := cmd.Run(); err != nil || strings.Count(stdout.String(), "\n") != 1 || strings.Count(stderr.String(), "predicted:") != 1 {
				t.Fatalf("%v: %s\n%s", err, stdout, stderr)
			}
			if !bytes.Equal(content(t, at(name)), want) {
				t.Error("other statistics than those of one process")
			}
			cmd, _, stderr = launched(t, l, 4-2*i, quantize(l[0])...)
			if err := cmd.Run(); err != nil {
				t.Fatalf("%v: %s", err, stderr)
			}
			if file := "model.safetensors"; !bytes.Equal(content(t, filepath.Join(at(l[0]), file)), content(t, filepath.Join(at("one"), file))) {
				t.Error("other weights than those of one process")
			}
			cmd, _, stderr = launched(t, l, 2, append(quantize(l[0]), "--resume")...) // nothing is left to do
			if err := cmd.Run(); err != nil {
				t.Fatalf("--resume of a complete checkpoint: %v: %s", err, stderr)
			}
			misuse := []struct {
				want string
				args []string
			}{
				{"--sequential cannot be divided", append(quantize("no"), "--sequential")},
				{"ranks divide statistics, not amaxes or importance matrices", []string{"calibrate", model, "--text", text, "--out", at("no.gguf")}},
			}[i]
			cmd, stdout, stderr = launched(t, l, 2, misuse.args...)
			if err := cmd.Run(); err == nil || stdout.Len() > 0 || strings.Count(stderr.String(), "microscale: ") != 1 ||
				!strings.Contains(stderr.String(), misuse.want) {
				t.Errorf("%v: %v, %s%s", misuse.args, err, stdout, stderr)
			}
			if left, _ := filepath.Glob(at("*.microscale-*")); left != nil {
				t.Errorf("%v is left", left)
			}
		})
	}
}

// TestCalibrateRankKilled kills (-9) one of four processes while they collect statistics: the job ends with one line, and the same command
// resumes it to the bytes of one process.
func TestCalibrateRankKilled(t *testing.T) {
	slow.Long(t, "it kills ranks")
	at, model, text := budgetModel(t)
	line := func(out string) []string {
		return []string{"calibrate", model, "--text", text, "--hessian", "--context", "16", "--out", at(out)}
	}
	done(t, line("one.safetensors")...)
	for i, l := range launchers {
		t.Run(l[0], func(t *testing.T) {
			out := l[0] + ".safetensors"
			cmd, _, stderr := launched(t, l, 4, line(out)...)
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			var pids []int
			for start := time.Now(); len(pids) < 4 && time.Since(start) < time.Minute; {
				if parts, _ := filepath.Glob(at(out + ".microscale-partial.microscale-rank3/*-[12].f32")); parts != nil {
					pids = ranksOf(at(out))
				}
				time.Sleep(time.Millisecond)
			}
			if len(pids) != 4 {
				t.Fatalf("%d processes: %s", len(pids), stderr)
			}
			if err := syscall.Kill(pids[i], syscall.SIGKILL); err != nil && !errors.Is(err, syscall.ESRCH) {
				t.Fatal(err)
			}
			err := cmd.Wait()
			if exit := (*exec.ExitError)(nil); err != nil && (!errors.As(err, &exit) || strings.Count(stderr.String(), "microscale: ") > 1) {
				t.Errorf("%v: %s", err, stderr)
			}
			t.Logf("%v: %s", err, stderr)
			if err != nil {
				cmd, _, stderr = launched(t, l, 4, line(out)...)
				if err := cmd.Run(); err != nil {
					t.Fatalf("%v: %s", err, stderr)
				}
			}
			if !bytes.Equal(content(t, at(out)), content(t, at("one.safetensors"))) {
				t.Error("other statistics than those of one process")
			}
			if left, _ := filepath.Glob(at("*.microscale-*")); left != nil {
				t.Errorf("%v is left", left)
			}
		})
	}
}
