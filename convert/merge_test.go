package convert

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/microscale-go/microscale/safetensors"
)

// workersModel is a checkpoint of several shards, with fused siblings in different shards.
func workersModel(shards int) map[string][]made {
	model := map[string][]made{}
	for i := range shards {
		name := fmt.Sprintf("model-%05d-of-%05d.safetensors", i+1, shards)
		next := (i + 1) % shards // whose siblings are here
		model[name] = []made{
			{fmt.Sprintf("model.layers.%d.self_attn.q_proj.weight", i), safetensors.BF16, 0.01 * float32(i+1), []int64{64, 128}},
			{fmt.Sprintf("model.layers.%d.self_attn.k_proj.weight", next), safetensors.BF16, 0.3, []int64{32, 128}},
			{fmt.Sprintf("model.layers.%d.mlp.down_proj.weight", i), safetensors.BF16, 0.02, []int64{128, int64(64 * (i + 1))}},
			{fmt.Sprintf("model.layers.%d.norm.weight", i), safetensors.BF16, 1, []int64{128}},
		}
	}
	return model
}

// work runs one worker.
func work(t *testing.T, src, format, dst string, index, count int) *Result {
	t.Helper()
	plan, err := planFor(t, src, format).Worker(index, count)
	if err != nil {
		t.Fatal(err)
	}
	result, err := plan.Run(context.Background(), dst, RunOptions{Resume: index%2 == 1})
	if err != nil {
		t.Fatal(err)
	}
	return result
}

// TestMerge: any number of workers in any order yields the bytes and the reported errors of a
// single run.
func TestMerge(t *testing.T) {
	many, one := writeModel(t, workersModel(5), madeConfig),
		writeModel(t, map[string][]made{"model.safetensors": workersModel(1)["model-00001-of-00001.safetensors"]}, madeConfig)
	for _, tc := range []struct {
		name, src, format string
		workers           int
	}{
		{"two", many, "nvfp4", 2}, {"three", many, "mxfp8", 3}, {"five", many, "fp8-tensor", 5}, {"more than files", many, "nvfp4", 8},
		{"one", many, "mxfp4", 1}, {"one shard", one, "nvfp4", 2}, {"a file", filepath.Join(one, "model.safetensors"), "mxfp8", 3},
	} {
		t.Run(tc.name, func(t *testing.T) {
			dir, suffix := t.TempDir(), filepath.Ext(tc.src)
			whole, dst := filepath.Join(dir, "whole"+suffix), filepath.Join(dir, "dst"+suffix)
			want, err := planFor(t, tc.src, tc.format).Run(context.Background(), whole, RunOptions{})
			if err != nil {
				t.Fatal(err)
			}
			read, most, written := 0, 0, map[string]bool{}
			for i := tc.workers - 1; i >= 0; i-- {
				result := work(t, tc.src, tc.format, dst, i, tc.workers)
				weights, err := filepath.Glob(filepath.Join(dir, "*-part-*", "*.safetensors"))
				if err != nil {
					t.Fatal(err)
				}
				for _, path := range weights {
					written[path] = true
				}
				read += len(result.Tensors)
				most = max(most, len(result.Tensors))
				if i%2 == 1 { // the same again does nothing
					if again := work(t, tc.src, tc.format, dst, i, tc.workers); !again.Finished || len(again.Tensors) != len(result.Tensors) {
						t.Errorf("worker %d again: %+v", i, again)
					}
				}
			}
			if files := len(planFor(t, tc.src, tc.format).files); len(written) != files {
				t.Errorf("the workers wrote %d files of weights, want %d: %v", len(written), files, written)
			}
			if read != len(want.Tensors) {
				t.Errorf("the workers converted %d weights of %d", read, len(want.Tensors))
			}
			got, err := Merge(context.Background(), dst, RunOptions{})
			if err != nil {
				t.Fatal(err)
			}
			if again, err := Merge(context.Background(), dst, RunOptions{}); err != nil || !again.Finished || len(again.Warnings) > 0 {
				t.Errorf("merged again: %+v, error %v", again, err)
			}
			sameResult(t, dst, whole)
			sameReport(t, got.Tensors, want.Tensors)
			if tc.name == "five" && most == len(want.Tensors) {
				t.Error("one worker did everything")
			}
		})
	}
}

// TestMergeRejects: missing, damaged and inconsistent parts.
func TestMergeRejects(t *testing.T) {
	src := writeModel(t, workersModel(3), madeConfig)
	part := func(dst string, i int) string { return partDir(dst, i, 3) }
	for _, tc := range []struct {
		name   string
		change func(dst string) error
		want   string
	}{
		{"nothing", func(dst string) error { return os.RemoveAll(part(dst, 0)) }, "the part of worker 0 of 3 is missing"},
		{"a worker", func(dst string) error { return os.RemoveAll(part(dst, 2)) }, "the part of worker 2 of 3 is missing"},
		{"the end of a journal", func(dst string) error {
			return os.Truncate(filepath.Join(part(dst, 1), markerName), 900)
		}, "the part of worker 1 of 3 is incomplete"},
		{"a journal", func(dst string) error { return os.Remove(filepath.Join(part(dst, 1), markerName)) },
			"the part of worker 1 of 3 is incomplete"},
		{"a file", func(dst string) error {
			return os.Remove(filepath.Join(part(dst, 1), "model-00002-of-00003.safetensors"))
		}, "model-00002-of-00003.safetensors is missing from the part of worker 1"},
		{"the index", func(dst string) error { return os.Remove(filepath.Join(part(dst, 0), safetensors.IndexName)) },
			safetensors.IndexName + " is missing"},
		{"the end of a file", func(dst string) error {
			return os.Truncate(filepath.Join(part(dst, 1), "model-00002-of-00003.safetensors"), 3000)
		}, "the part of worker 1 of 3 is damaged"},
		{"the size of a file", func(dst string) error { // its tensors match their checksums
			return lengthenHeader(filepath.Join(part(dst, 1), "model-00002-of-00003.safetensors"))
		}, " bytes, want "},
		{"the same plan", func(dst string) error {
			return os.RemoveAll(part(dst, 1))
		}, "have different sources or options"},
		{"one number of workers", func(dst string) error { return os.Mkdir(partDir(dst, 0, 2), 0o777) },
			"parts of several runs, with 2 and with 3 workers"},
		{"its own number", func(dst string) error {
			return errors.Join(os.RemoveAll(part(dst, 2)), os.Rename(part(dst, 1), part(dst, 2)))
		}, "part-2-of-3: its journal belongs to worker 1 of 3: rename it to"},
		{"its own number of workers", func(dst string) error {
			return errors.Join(os.RemoveAll(part(dst, 2)), os.Rename(part(dst, 0), partDir(dst, 0, 2)), os.Rename(part(dst, 1), partDir(dst, 1, 2)))
		}, "part-0-of-2: its journal belongs to worker 0 of 3: rename it to"},
		{"a number of workers", func(dst string) error {
			return errors.Join(os.RemoveAll(part(dst, 0)), os.RemoveAll(part(dst, 1)), os.RemoveAll(part(dst, 2)),
				os.Mkdir(partDir(dst, 0, maxWorkers+1), 0o777))
		}, "no parts ("},
		{"a free name", func(dst string) error { return os.Mkdir(dst, 0o777) }, "the destination exists"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			dst := filepath.Join(t.TempDir(), "dst")
			for i := range 3 {
				work(t, src, "nvfp4", dst, i, 3)
			}
			if err := tc.change(dst); err != nil {
				t.Fatal(err)
			}
			if tc.name == "the same plan" {
				work(t, src, "mxfp8", dst, 1, 3)
			}
			if _, err := Merge(context.Background(), dst, RunOptions{}); err == nil || !strings.Contains(err.Error(), tc.want) ||
				strings.Contains(err.Error(), "\n") {
				t.Errorf("error %v, want %q", err, tc.want)
			}
		})
	}
	if _, err := planFor(t, src, "nvfp4").Worker(0, maxWorkers+1); err == nil || !strings.Contains(err.Error(), "65537 workers") {
		t.Errorf("more workers than there may be: %v", err)
	}
	if _, err := Merge(context.Background(), filepath.Join(t.TempDir(), "dst"), RunOptions{}); err == nil || !strings.Contains(err.Error(),
		"no parts (") {
		t.Errorf("without parts: %v", err)
	}
	damaged := filepath.Join(t.TempDir(), "dst")
	if _, err := planFor(t, src, "nvfp4").Run(context.Background(), damaged, RunOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(filepath.Join(damaged, "model-00002-of-00003.safetensors")); err != nil {
		t.Fatal(err)
	}
	if _, err := Merge(context.Background(), damaged, RunOptions{}); err == nil || !strings.Contains(err.Error(), "no parts (") {
		t.Errorf("without parts, at what is not whole: %v", err)
	}
}

// lengthenHeader pads the header of a safetensors file with eight more spaces.
func lengthenHeader(path string) error {
	data, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	n := binary.LittleEndian.Uint64(data)
	binary.LittleEndian.PutUint64(data, n+8)
	return os.WriteFile(path, slices.Insert(data, int(8+n), []byte("        ")...), 0o600)
}

// TestMergeCopies merges the parts of workers that read copies of a source, of which the files have other times, and
// rejects those of sources with other bytes.
func TestMergeCopies(t *testing.T) {
	model := workersModel(3)
	src := writeModel(t, model, madeConfig)
	whole := filepath.Join(t.TempDir(), "whole")
	if _, err := planFor(t, src, "nvfp4").Run(context.Background(), whole, RunOptions{}); err != nil {
		t.Fatal(err)
	}
	copied, changed := filepath.Join(t.TempDir(), "copy"), filepath.Join(t.TempDir(), "changed")
	for _, dir := range []string{copied, changed} {
		if err := os.CopyFS(dir, os.DirFS(src)); err != nil {
			t.Fatal(err)
		}
		entries, err := os.ReadDir(dir)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range entries {
			if err := os.Chtimes(filepath.Join(dir, e.Name()), time.Time{}, time.Unix(1e9, 0)); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := change(filepath.Join(changed, "model-00001-of-00003.safetensors"), func(data []byte) { data[len(data)-1] ^= 1 }); err != nil {
		t.Fatal(err)
	}
	for _, second := range []string{copied, changed} {
		dst := filepath.Join(t.TempDir(), "dst")
		for i, from := range []string{src, second, src} {
			work(t, from, "nvfp4", dst, i, 3)
		}
		_, err := Merge(context.Background(), dst, RunOptions{})
		if second == changed {
			if !errors.Is(err, ErrChanged) || !strings.Contains(err.Error(), "workers 0 and 1 have different sources") {
				t.Errorf("sources with other bytes: %v", err)
			}
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		sameResult(t, dst, whole)
	}
}

// TestMergeAmax rejects parts whose workers read other values of a weight than the one that converts it, where no
// sample of the source shows it.
func TestMergeAmax(t *testing.T) {
	src, dst := writeModel(t, workersModel(3), madeConfig), filepath.Join(t.TempDir(), "dst")
	for i := range 3 {
		work(t, src, "nvfp4", dst, i, 3)
	}
	m, err := findParts(dst)
	if err != nil {
		t.Fatal(err)
	}
	defer m.unlock()
	shared := 0
	for weight := range m.parts[1].swept {
		if _, ok := m.parts[0].swept[weight]; ok {
			shared++
			m.parts[1].swept[weight]++
		}
	}
	if err := m.check(t.Context(), nil); shared == 0 || !errors.Is(err, ErrChanged) {
		t.Errorf("%d amaxes that differ: %v", shared, err)
	}
}

// TestMergeTogether: of several merges at a time, as when every worker merges at its end, one joins the parts. The others
// find the result, or the lock of the first; none reports that parts are missing.
func TestMergeTogether(t *testing.T) {
	src := writeModel(t, workersModel(3), madeConfig)
	for range 5 {
		dst := filepath.Join(t.TempDir(), "dst")
		for i := range 3 {
			work(t, src, "nvfp4", dst, i, 3)
		}
		var wg sync.WaitGroup
		var merged atomic.Int32
		for range 4 {
			wg.Go(func() {
				result, err := Merge(context.Background(), dst, RunOptions{})
				switch {
				case err != nil && !strings.Contains(err.Error(), "or another merge uses"):
					t.Errorf("error %v", err)
				case err == nil && !result.Finished:
					merged.Add(1)
				}
			})
		}
		wg.Wait()
		if merged.Load() != 1 || !isSound(dst) {
			t.Errorf("%d merges joined the parts, want 1", merged.Load())
		}
	}
}

// TestMergeForeign: files and links of others in any part are an error, and stay.
func TestMergeForeign(t *testing.T) {
	src := writeModel(t, workersModel(3), madeConfig)
	for i := range 3 {
		for what, put := range map[string]func(dir, weights string) (string, error){
			"a file": func(dir, _ string) (string, error) {
				path := filepath.Join(dir, "notes.txt")
				return path, os.WriteFile(path, []byte("precious"), 0o600)
			},
			"a directory": func(dir, _ string) (string, error) {
				path := filepath.Join(dir, "other")
				return path, os.Mkdir(path, 0o700)
			},
			"a linked journal": func(dir, _ string) (string, error) {
				path := filepath.Join(dir, markerName)
				kept := filepath.Join(filepath.Dir(dir), "kept")
				return path, errors.Join(os.Rename(path, kept), os.Symlink(kept, path))
			},
			"a linked part": func(dir, _ string) (string, error) {
				kept := filepath.Join(filepath.Dir(dir), "kept")
				return dir, errors.Join(os.Rename(dir, kept), os.Symlink(kept, dir))
			},
			"a link": func(dir, weights string) (string, error) {
				path := filepath.Join(dir, weights)
				kept := filepath.Join(filepath.Dir(dir), "kept")
				return path, errors.Join(os.Rename(path, kept), os.Symlink(kept, path))
			},
		} {
			dst := filepath.Join(t.TempDir(), "dst")
			for k := range 3 {
				work(t, src, "nvfp4", dst, k, 3)
			}
			path, err := put(partDir(dst, i, 3), fmt.Sprintf("model-%05d-of-00003.safetensors", i+1))
			if err != nil {
				t.Fatal(err)
			}
			if _, err := Merge(context.Background(), dst, RunOptions{}); err == nil || !strings.HasPrefix(err.Error(), path+": ") {
				t.Errorf("%s in part %d: error %v, want one for %s", what, i, err, path)
			}
			if _, err := os.Lstat(path); err != nil {
				t.Errorf("%s in part %d: %v", what, i, err)
			}
			if err := os.RemoveAll(path); err != nil {
				t.Fatal(err)
			}
			if strings.HasPrefix(what, "a link") {
				continue
			}
			if _, err := Merge(context.Background(), dst, RunOptions{}); err != nil {
				t.Errorf("%s in part %d: after it was removed: %v", what, i, err)
			}
		}
	}
}

// TestMergeCopied: a file with the name of another worker's in the part of worker 0 is an error, as no merge leaves both,
// and a file in place of a part.
func TestMergeCopied(t *testing.T) {
	src, dst := writeModel(t, workersModel(3), madeConfig), filepath.Join(t.TempDir(), "dst")
	for k := range 3 {
		work(t, src, "nvfp4", dst, k, 3)
	}
	copied := filepath.Join(partDir(dst, 0, 3), "model-00002-of-00003.safetensors")
	if err := os.WriteFile(copied, []byte("precious"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Merge(t.Context(), dst, RunOptions{}); err == nil || !strings.Contains(err.Error(), copied+": not a file of worker 0") {
		t.Errorf("a file of the same name: error %v", err)
	}
	if data, err := os.ReadFile(copied); err != nil || string(data) != "precious" {
		t.Errorf("it is %q (%v)", data, err)
	}
	if err := errors.Join(os.Remove(copied), os.RemoveAll(partDir(dst, 2, 3)), os.WriteFile(partDir(dst, 2, 3), nil, 0o600)); err != nil {
		t.Fatal(err)
	}
	if _, err := Merge(t.Context(), dst, RunOptions{}); err == nil || !strings.Contains(err.Error(),
		partDir(dst, 2, 3)+": a link or a file, want a directory") {
		t.Errorf("a file in place of a part: error %v", err)
	}
}

// TestMergeKeeps: a merge that completes a killed one removes the parts, but no files that others put there meanwhile.
func TestMergeKeeps(t *testing.T) {
	src, dst := writeModel(t, workersModel(3), madeConfig), filepath.Join(t.TempDir(), "dst")
	for k := range 3 {
		work(t, src, "nvfp4", dst, k, 3)
	}
	m, err := findParts(dst)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := m.join(false); err != nil {
		t.Fatal(err)
	}
	m.unlock()
	notes := filepath.Join(partDir(dst, 1, 3), "notes.txt")
	if err := os.WriteFile(notes, []byte("precious"), 0o600); err != nil {
		t.Fatal(err)
	}
	result, err := Merge(t.Context(), dst, RunOptions{})
	if err != nil || !result.Finished || len(result.Warnings) != 1 || !strings.Contains(result.Warnings[0],
		notes+": not a file of the result") {
		t.Errorf("%+v (%v)", result, err)
	}
	if _, err := os.Stat(notes); err != nil {
		t.Error(err)
	}
	if _, err := os.Lstat(partDir(dst, 2, 3)); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the other part is left (%v)", err)
	}
}

// TestMergeCrafted checks that a merge moves no files that a journal names outside the parts.
func TestMergeCrafted(t *testing.T) {
	for _, f := range []partFile{{Name: "../secret", Size: -1}, {Name: "/secret", Size: -1}, {Name: "", Size: -1},
		{Name: "a", Size: -1, Worker: 1}, {Name: "a", Size: -1, Worker: -1}} {
		dst := filepath.Join(t.TempDir(), "dst")
		dir := partDir(dst, 0, 1)
		if err := os.Mkdir(dir, 0o777); err != nil {
			t.Fatal(err)
		}
		j, err := openJournal(filepath.Join(dir, markerName), 0)
		if err != nil {
			t.Fatal(err)
		}
		begin := &beginning{Version: journalVersion, Workers: 1, Files: []partFile{f}}
		if err := errors.Join(j.append(record{Begin: begin}, record{Complete: true}), j.close()); err != nil {
			t.Fatal(err)
		}
		if _, err := Merge(t.Context(), dst, RunOptions{}); !errors.Is(err, ErrDamaged) || !strings.Contains(err.Error(), "outside the result") {
			t.Errorf("%+v: error %v", f, err)
		}
	}
}

// TestMergeKilled: a merge completes after one that was killed at any of its steps.
func TestMergeKilled(t *testing.T) {
	many, dir := writeModel(t, workersModel(3), madeConfig), t.TempDir()
	one := filepath.Join(writeModel(t, map[string][]made{"model.safetensors": workersModel(1)["model-00001-of-00001.safetensors"]},
		madeConfig), "model.safetensors")
	for _, src := range []string{many, one} {
		suffix := filepath.Ext(src)
		whole := filepath.Join(dir, "whole"+suffix)
		if _, err := planFor(t, src, "nvfp4").Run(context.Background(), whole, RunOptions{}); err != nil {
			t.Fatal(err)
		}
		for step, name := range []string{"moving", "moved", "named", "removing", "removed"} {
			dst := filepath.Join(dir, name+suffix)
			for i := range 3 {
				work(t, src, "nvfp4", dst, i, 3)
			}
			m, err := findParts(dst)
			if err != nil {
				t.Fatal(err)
			}
			switch step {
			case 0:
				f := m.parts[0].beginning.Files[len(m.parts[0].beginning.Files)-1]
				err = os.Rename(filepath.Join(m.dir(f.Worker), m.name(f)), filepath.Join(m.dir(0), m.name(f)))
			case 1:
				err = m.gather()
			default:
				_, err = m.join(false)
			}
			if step >= 3 {
				err = errors.Join(err, os.RemoveAll(m.dir(1)))
			}
			if step == 4 { // but for the directory of the first
				err = errors.Join(err, os.RemoveAll(m.dir(2)), os.Mkdir(m.dir(0), 0o777))
			}
			m.unlock()
			if err != nil {
				t.Fatal(err)
			}
			result, err := Merge(context.Background(), dst, RunOptions{})
			if err != nil || result.Finished != (step >= 2) {
				t.Fatalf("%s: %+v (%v)", name, result, err)
			}
			sameResult(t, dst, whole)
		}
	}
}

// TestResumeDamagedPart: resuming a finished worker whose part was damaged rewrites the part,
// as the error of Merge advises.
func TestResumeDamagedPart(t *testing.T) {
	for name, damage := range map[string]func(path string) error{
		"zeros": func(path string) error { return change(path, func(data []byte) { clear(data[len(data)/2:]) }) },
		"cut":   func(path string) error { return os.Truncate(path, 3000) },
	} {
		t.Run(name, func(t *testing.T) {
			src, dst := writeModel(t, workersModel(3), madeConfig), filepath.Join(t.TempDir(), "dst")
			for i := range 3 {
				work(t, src, "nvfp4", dst, i, 3)
			}
			if err := damage(filepath.Join(partDir(dst, 1, 3), "model-00002-of-00003.safetensors")); err != nil {
				t.Fatal(err)
			}
			if _, err := Merge(context.Background(), dst, RunOptions{}); err == nil || !strings.Contains(err.Error(),
				"the part of worker 1 of 3 is damaged") {
				t.Fatalf("merge: error %v", err)
			}
			plan, err := planFor(t, src, "nvfp4").Worker(1, 3)
			if err != nil {
				t.Fatal(err)
			}
			if result, err := plan.Run(context.Background(), dst, RunOptions{Resume: true}); err != nil || result.Finished {
				t.Errorf("worker 1: %+v, error %v", result, err)
			}
			if _, err := Merge(context.Background(), dst, RunOptions{}); err != nil {
				t.Errorf("merge after worker 1 ran again: %v", err)
			}
		})
	}
}

// TestMergeBeforeAll: Merge keeps the parts until that of worker 0 exists, even if the
// destination has the same files.
func TestMergeBeforeAll(t *testing.T) {
	src, dst := writeModel(t, workersModel(3), madeConfig), filepath.Join(t.TempDir(), "dst")
	if _, err := planFor(t, src, "nvfp4").Run(context.Background(), dst, RunOptions{}); err != nil {
		t.Fatal(err)
	}
	for i := 2; i >= 0; i-- {
		plan, err := planFor(t, src, "nvfp4").Worker(i, 3)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := plan.Run(context.Background(), dst, RunOptions{Force: true}); err != nil {
			t.Fatal(err)
		}
		result, err := Merge(context.Background(), dst, RunOptions{Force: true})
		if i > 0 && (err == nil || !strings.Contains(err.Error(), "the part of worker 0 of 3 is missing")) {
			t.Fatalf("without worker 0: %+v, error %v", result, err)
		}
		if i == 0 && (err != nil || result.Finished) {
			t.Errorf("with all: %+v, error %v", result, err)
		}
	}
}

// TestMergeUploaded: a merge of parts without their weights asks for each file, and makes a checkpoint of what the parts have.
func TestMergeUploaded(t *testing.T) {
	src, dst := writeModel(t, workersModel(3), madeConfig), filepath.Join(t.TempDir(), "dst")
	asked := map[string]int{}
	for i := range 2 {
		work(t, src, "nvfp4", dst, i, 2)
		weights, err := filepath.Glob(filepath.Join(partDir(dst, i, 2), "*.safetensors"))
		if err != nil {
			t.Fatal(err)
		}
		for _, path := range weights {
			asked[filepath.Base(path)] = i
			if err := os.Remove(path); err != nil {
				t.Fatal(err)
			}
		}
	}
	missing := errors.New("missing")
	fail := func(int, string, int64) error { return missing }
	if _, err := Merge(t.Context(), dst, RunOptions{Uploaded: fail}); !errors.Is(err, missing) {
		t.Errorf("a missing file: %v", err)
	}
	result, err := Merge(t.Context(), dst, RunOptions{Uploaded: func(worker int, name string, size int64) error {
		if want, ok := asked[name]; !ok || want != worker || size <= 0 {
			t.Errorf("asked for %s of worker %d with %d bytes", name, worker, size)
		}
		delete(asked, name)
		return nil
	}})
	if err != nil || len(asked) > 0 || len(result.Tensors) == 0 {
		t.Fatalf("%v; not asked for %v", err, asked)
	}
	left, err := filepath.Glob(dst + "*")
	if err != nil || len(left) != 1 {
		t.Errorf("beside the result: %v, %v", left, err)
	}
	for name, want := range map[string]bool{"config.json": true, safetensors.IndexName: true, "model-00001-of-00003.safetensors": false} {
		if _, err := os.Stat(filepath.Join(dst, name)); (err == nil) != want {
			t.Errorf("%s: %v", name, err)
		}
	}
}
