//go:build !windows

package convert

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/microscale-go/microscale/internal/slow"
	"github.com/microscale-go/microscale/quant"
	"github.com/microscale-go/microscale/verify"
)

// appearing are the things that may appear at a destination during a run.
var appearing = []struct {
	name string
	make func(path string) error
}{
	{"file", func(path string) error { return os.WriteFile(path, []byte("mine"), 0o666) }},
	{"empty folder", func(path string) error { return os.Mkdir(path, 0o777) }},
	{"link", func(path string) error { return os.Symlink("nowhere", path) }},
}

// TestAppears: a run does not replace what appears at its destination meanwhile. It keeps the
// finished result, and a resumed run renames that.
func TestAppears(t *testing.T) {
	slow.Race(t, slow.Repeats)
	dir := t.TempDir()
	src := writeModel(t, tiledModel(), madeConfig)
	planGGUF := func(t *testing.T) *Plan {
		plan, err := PlanQuantize(t.Context(), openSample(t).Source, QuantizeOptions{Quantizer: quant.Quantizer{Format: quant.MXFP4},
			Convention: "gguf"})
		if err != nil {
			t.Fatal(err)
		}
		return plan
	}
	for _, tc := range []struct {
		dst  string
		plan func(t *testing.T) *Plan
	}{
		{"dst", func(t *testing.T) *Plan { return planFor(t, src, "nvfp4") }},
		{"dst.safetensors", func(t *testing.T) *Plan { return planFor(t, filepath.Join(src, shard1), "nvfp4") }},
		{"dst.gguf", planGGUF},
	} {
		whole := filepath.Join(dir, "whole-"+tc.dst)
		if _, err := tc.plan(t).Run(context.Background(), whole, RunOptions{}); err != nil {
			t.Fatal(err)
		}
		for _, a := range appearing {
			for _, resume := range []bool{false, true} {
				t.Run(tc.dst+"/"+a.name, func(t *testing.T) {
					dst, plan := filepath.Join(t.TempDir(), tc.dst), tc.plan(t)
					_, err := plan.Run(context.Background(), dst, RunOptions{Resume: resume, Progress: func(p verify.Progress) {
						if p.Done == p.Total {
							if err := a.make(dst); err != nil {
								t.Error(err)
							}
						}
					}})
					if err == nil || !strings.HasPrefix(err.Error(), dst+": the destination appeared") || strings.Contains(err.Error(), "\n") {
						t.Errorf("error %v", err)
					}
					if a.name != "file" && !errors.Is(a.make(dst), os.ErrExist) {
						t.Error("what appeared is gone")
					}
					if data, err := os.ReadFile(dst); a.name == "file" && (err != nil || string(data) != "mine") {
						t.Errorf("the file has %d bytes, %v", len(data), err)
					}
					if err := os.Remove(dst); err != nil {
						t.Fatal(err)
					}
					result, err := tc.plan(t).Run(context.Background(), dst, RunOptions{Resume: true})
					if err != nil || !result.Resumed || len(result.Tensors) == 0 {
						t.Fatalf("resumed: %v, %v", result != nil && result.Resumed, err)
					}
					sameResult(t, dst, whole)
				})
			}
		}
	}
}

// TestAppearsMerge is TestAppears for Merge.
func TestAppearsMerge(t *testing.T) {
	dir := writeModel(t, workersModel(3), madeConfig)
	for _, src := range []string{dir, filepath.Join(dir, "model-00001-of-00003.safetensors")} {
		for _, a := range appearing {
			suffix := filepath.Ext(src)
			t.Run(a.name+suffix, func(t *testing.T) {
				dir := t.TempDir()
				whole, dst := filepath.Join(dir, "whole"+suffix), filepath.Join(dir, "dst"+suffix)
				if _, err := planFor(t, src, "mxfp8").Run(context.Background(), whole, RunOptions{}); err != nil {
					t.Fatal(err)
				}
				for i := range 2 {
					work(t, src, "mxfp8", dst, i, 2)
				}
				m, err := findParts(dst)
				if err != nil {
					t.Fatal(err)
				}
				out := m.output(false)
				if err := errors.Join(out.admitName(), m.gather(), a.make(dst)); err != nil {
					t.Fatal(err)
				}
				if _, err := out.commit(); err == nil || !strings.Contains(err.Error(), "the destination appeared") {
					t.Errorf("error %v", err)
				}
				m.unlock()
				if err := os.Remove(dst); err != nil {
					t.Fatal(err)
				}
				if _, err := Merge(context.Background(), dst, RunOptions{}); err != nil {
					t.Fatal(err)
				}
				sameResult(t, dst, whole)
			})
		}
	}
}
