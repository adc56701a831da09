package convert

import (
	"bytes"
	"context"
	"errors"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/microscale-go/microscale/hf"
	"github.com/microscale-go/microscale/quant"
	"github.com/microscale-go/microscale/safetensors"
	"github.com/microscale-go/microscale/verify"
)

// planOf plans the quantization of a small checkpoint: a file if path ends in .safetensors,
// else a directory.
func planOf(t *testing.T, path string) *Plan {
	t.Helper()
	weights := made{"l.0.weight", safetensors.BF16, 1, []int64{64, 64}}
	file := path
	if !strings.HasSuffix(path, ".safetensors") {
		if err := os.MkdirAll(path, 0o777); err != nil {
			t.Fatal(err)
		}
		writeText(t, filepath.Join(path, "config.json"), "{}")
		file = filepath.Join(path, "model.safetensors")
	}
	writeFile(t, file, nil, weights)
	plan, err := PlanQuantize(t.Context(), openModel(t, path).Source, QuantizeOptions{Quantizer: quant.Quantizer{Format: quant.MXFP8}})
	if err != nil {
		t.Fatal(err)
	}
	return plan
}

// writing fills an output without committing it.
func writing(plan *Plan, out *output) ([]verify.Tensor, error) {
	r := newRun(plan, RunOptions{})
	r.out = out
	begin, err := plan.beginning()
	if err == nil {
		err = r.restore(context.Background(), begin)
	}
	if err != nil {
		return nil, err
	}
	tensors, err := r.write(context.Background())
	if err == nil {
		err = r.fillRecords()
	}
	return tensors, err
}

// names returns the names in a directory.
func names(t *testing.T, dir string) string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var all []string
	for _, e := range entries {
		all = append(all, e.Name())
	}
	return strings.Join(all, " ")
}

// TestDestination: rejected destinations. The errors come before any file is made.
func TestDestination(t *testing.T) {
	for _, tc := range []struct {
		name, src, dst string
		force          bool
		want           string
	}{
		{"same", "src", "src", true, "source and destination are the same"},
		{"same by another path", "src", "src/../src/.", true, "source and destination are the same"},
		{"same by a link", "src", "link", true, "source and destination are the same"},
		{"inside", "src", "src/out", false, "are nested"},
		{"inside by a link", "src", "link/new/out", false, "are nested"},
		{"around", "home/src", "home", true, "are nested"},
		{"the file itself", "a.safetensors", "a.safetensors", true, "source and destination are the same"},
		{"the file by a link", "a.safetensors", "b.safetensors", true, "source and destination are the same"},
		{"around the file", "home/a.safetensors", "home", true, "are nested"},
		{"a folder", "src", "taken", false, "the destination exists"},
		{"a file", "src", "file.txt", false, "the destination exists"},
		{"a broken link", "src", "broken", false, "the destination exists"},
		{"force on a folder", "src", "taken", true, "not a checkpoint"},
		{"force on a file", "src", "file.txt", true, "not a checkpoint"},
		{"force on a folder by the name of its file", "src", "text", true, "not a checkpoint"},
		{"force on a file by its name", "a.safetensors", "text.safetensors", true, "not a checkpoint"},
		{"force on a folder by a file", "a.safetensors", "old", true, "not a checkpoint"},
		{"force on a file by a folder", "src", "old.safetensors", true, "not a checkpoint"},
		{"force on a link", "src", "link2", true, "a symbolic link, which is never replaced"},
		{"force on a link to a file", "a.safetensors", "c.safetensors", true, "a symbolic link, which is never replaced"},
		{"force on more than a checkpoint", "src", "more", true, "more/llama/notes.txt is not part of a checkpoint, and would be deleted: " +
			"move it away or choose another destination"},
		{"force on a repository", "src", "repository", true, "repository/.git/HEAD is not part of a checkpoint"},
		{"force on another checkpoint below", "src", "below", true, "below/other/model.safetensors is not part of a checkpoint"},
		{"force on a link in a checkpoint", "src", "linked", true, "linked/data is not part of a checkpoint"},
		{"a partial directory of somebody else", "src", "mine", false, "mine.microscale-partial: the result is written here, but it contains " +
			"the foreign file \"notes.txt\""},
		{"a replaced directory of somebody else", "src", "old", true, "old.microscale-replaced/notes.txt is not part of a checkpoint"},
		{"below a file", "src", "file.txt/out", false, "file.txt: it is not a directory, and the destination would be inside ("},
		{"deep below a file", "src", "file.txt/sub/out", false, "file.txt: it is not a directory"},
		{"its own partial directory", "out.microscale-partial", "out", false, "source and destination are the same"},
		{"its own replaced directory", "out.microscale-replaced", "out", true, "source and destination are the same"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			dir := t.TempDir()
			at := func(name string) string { return dir + string(filepath.Separator) + filepath.FromSlash(name) }
			content := func(name string) string {
				if strings.HasSuffix(name, ".safetensors") && !strings.HasPrefix(name, "text") {
					return "\x02\x00\x00\x00\x00\x00\x00\x00{}"
				}
				return "mine"
			}
			mine := []string{"taken/notes.txt", "more/model.safetensors", "more/llama/notes.txt", "repository/model.safetensors",
				"repository/.git/HEAD",
				"below/model.safetensors", "below/other/model.safetensors", "linked/model.safetensors", "text/model.safetensors",
				"mine.microscale-partial/notes.txt",
				"old.microscale-replaced/notes.txt"}
			for _, d := range append([]string{"home/x", "old/x"}, mine...) {
				if err := os.MkdirAll(filepath.Dir(at(d)), 0o777); err != nil {
					t.Fatal(err)
				}
			}
			for _, name := range append(mine, "file.txt", "old.safetensors", "old/model.safetensors", "text.safetensors") {
				writeText(t, at(name), content(name))
			}
			for link, to := range map[string]string{"link": at("src"), "b.safetensors": at("a.safetensors"), "broken": at("nowhere"),
				"link2": at("old"), "c.safetensors": at("old.safetensors"), "linked/data": at("home")} {
				if err := os.Symlink(to, at(link)); err != nil {
					t.Fatal(err)
				}
			}
			plan := planOf(t, at(tc.src))
			before := names(t, dir)
			admitted := plan.Admit(at(tc.dst), tc.force)
			_, err := plan.Run(context.Background(), at(tc.dst), RunOptions{Force: tc.force})
			if below := tc.name == "below a file"; !below && err != nil && (admitted == nil || admitted.Error() != err.Error()) {
				t.Errorf("Admit: %v, Run: %v", admitted, err)
			}
			if err == nil || !strings.Contains(err.Error(), tc.want) || strings.Contains(err.Error(), "\n") {
				t.Errorf("error %v, want %q", err, tc.want)
			}
			if after := names(t, dir); after != before {
				t.Errorf("the folder has %s, before it had %s", after, before)
			}
			if got := planOf(t, at(tc.src)); got.Bytes() != plan.Bytes() {
				t.Error("the source is not what it was")
			}
			for _, name := range mine {
				if data, err := os.ReadFile(at(name)); err != nil || string(data) != content(name) {
					t.Errorf("%s has %q, %v", name, data, err)
				}
			}
		})
	}
}

// TestForce replaces a checkpoint of either kind, an empty directory, and a checkpoint with
// other weights and auxiliary files of the hub. No other file remains.
func TestForce(t *testing.T) {
	for _, tc := range []struct{ name, src, dst string }{
		{"a folder", "src", "out"}, {"a file", "src.safetensors", "out.safetensors"}, {"an empty folder", "src", "empty"},
		{"a model of the hub", "src", "hub"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			dir := t.TempDir()
			at := func(name string) string { return filepath.Join(dir, name) }
			planOf(t, at("out"))
			planOf(t, at("out.safetensors"))
			planOf(t, at("hub"))
			if err := errors.Join(os.Mkdir(at("empty"), 0o777), os.MkdirAll(at("src/1_Pooling"), 0o777),
				os.Mkdir(at("hub/1_Pooling"), 0o777)); err != nil {
				t.Fatal(err)
			}
			for _, name := range []string{"src/1_Pooling/config.json", "hub/1_Pooling/config.json", "hub/README.md", "hub/.gitattributes",
				"hub/b.safetensors", "hub/b.safetensors.index.json"} {
				writeText(t, at(name), "{}")
			}
			plan := planOf(t, at(tc.src))
			before := names(t, dir)
			if _, err := plan.Run(context.Background(), at(tc.dst), RunOptions{Force: true}); err != nil {
				t.Fatal(err)
			}
			if after := names(t, dir); after != before {
				t.Errorf("the folder has %s, before it had %s", after, before)
			}
			compare(t, plan.source, openModel(t, at(tc.dst)))
			if quantized := openModel(t, at("out")).Quantized() > 0; quantized != (tc.dst == "out") {
				t.Errorf("out is quantized: %v", quantized)
			}
		})
	}
}

// TestForceFails: a failed run leaves the destination unchanged.
func TestForceFails(t *testing.T) {
	dir := t.TempDir()
	plan, dst := planOf(t, filepath.Join(dir, "src")), filepath.Join(dir, "dst")
	planOf(t, dst)
	before := contents(t, dst)
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := plan.Run(ctx, dst, RunOptions{Force: true}); !errors.Is(err, context.Canceled) {
		t.Errorf("error %v", err)
	}
	if after := contents(t, dst); !maps.EqualFunc(before, after, bytes.Equal) || names(t, dir) != "dst src" {
		t.Errorf("the destination has changed, and beside it is %s", names(t, dir))
	}
}

// TestKilled: a run removes the remains of killed runs, and restores the destination that
// --force had moved away.
func TestKilled(t *testing.T) {
	for _, kind := range []string{"", ".safetensors"} {
		t.Run("kind="+kind, func(t *testing.T) {
			dir := t.TempDir()
			plan := planOf(t, filepath.Join(dir, "src"+kind))
			dst := filepath.Join(dir, "dst"+kind)
			for _, folder := range []string{dst + partialSuffix, dst + partialSuffix + "/sub"} {
				if err := os.Mkdir(folder, 0o777); err != nil {
					t.Fatal(err)
				}
			}
			writeText(t, dst+partialSuffix+"/"+markerName, "")
			writeText(t, dst+partialSuffix+"/sub/file", "unfinished")
			writeText(t, dst+partialSuffix+"/single.safetensors", "unfinished")
			if _, err := plan.Run(context.Background(), dst, RunOptions{}); err != nil {
				t.Fatal(err)
			}
			compare(t, plan.source, openModel(t, dst))
			if want := "dst" + kind + " src" + kind; names(t, dir) != want {
				t.Errorf("the folder has %s, want %s", names(t, dir), want)
			}
			if kind == "" && names(t, dst) != "config.json model.safetensors" {
				t.Errorf("the result has %s", names(t, dst))
			}

			if kind != "" {
				return // a file is replaced at once
			}
			if err := os.Rename(dst, dst+replacedSuffix); err != nil {
				t.Fatal(err)
			}
			if _, err := plan.Run(context.Background(), dst, RunOptions{}); err == nil || !strings.Contains(err.Error(), "the destination exists") {
				t.Errorf("with an earlier destination moved away: error %v", err)
			}
			if want := "dst" + kind + " src" + kind; names(t, dir) != want {
				t.Errorf("the folder has %s, want %s", names(t, dir), want)
			}
		})
	}
}

// TestLock: only one run at a time writes to a destination. Another leaves its files alone.
func TestLock(t *testing.T) {
	dir := t.TempDir()
	plan, dst := planOf(t, filepath.Join(dir, "src")), filepath.Join(dir, "dst")
	first, err := plan.newOutput(dst, RunOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if err := first.writeFile("file", []byte("being written")); err != nil {
		t.Fatal(err)
	}
	if _, err := plan.Run(context.Background(), dst, RunOptions{}); err == nil || !strings.Contains(err.Error(),
		"another run is writing to it") {
		t.Errorf("a second run: error %v", err)
	}
	if names(t, dst+partialSuffix) != markerName+" file" {
		t.Errorf("the second run left %s of what the first wrote", names(t, dst+partialSuffix))
	}
	first.abort()
	if _, err := plan.Run(context.Background(), dst, RunOptions{}); err != nil {
		t.Errorf("after the first run: %v", err)
	}
}

// TestForceLate: a file that appears in the destination during the run is not lost.
func TestForceLate(t *testing.T) {
	dir := t.TempDir()
	plan, dst := planOf(t, filepath.Join(dir, "src")), filepath.Join(dir, "dst")
	planOf(t, dst)
	out, err := plan.newOutput(dst, RunOptions{Force: true})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := writing(plan, out); err != nil {
		t.Fatal(err)
	}
	writeText(t, filepath.Join(dst, "notes.txt"), "mine")
	if _, err := out.commit(); err == nil || !strings.HasPrefix(err.Error(), filepath.Join(dst, "notes.txt")+" is not part of a checkpoint") {
		t.Errorf("error %v", err)
	}
	out.abort()
	if names(t, dst) != "config.json model.safetensors notes.txt" || names(t, dir) != "dst src" {
		t.Errorf("the destination has %s, and beside it is %s", names(t, dst), names(t, dir))
	}
}

// TestForceFile: a reader that opens a file while it is replaced gets a complete file, the old
// or the new one.
func TestForceFile(t *testing.T) {
	dir := t.TempDir()
	plan, dst := planOf(t, filepath.Join(dir, "src.safetensors")), filepath.Join(dir, "dst.safetensors")
	planOf(t, dst)
	stop, watched := make(chan struct{}), make(chan int)
	go func() {
		opened := 0
		defer func() { watched <- opened }()
		for {
			f, err := safetensors.Open(dst)
			if err != nil {
				t.Error(err)
				return
			}
			f.Close()
			opened++
			select {
			case <-stop:
				return
			default:
			}
		}
	}()
	for range 20 {
		if _, err := plan.Run(context.Background(), dst, RunOptions{Force: true}); err != nil {
			t.Error(err)
		}
	}
	close(stop)
	if opened := <-watched; opened < 20 {
		t.Errorf("the file was opened only %d times", opened)
	}
}

// TestForceConventions: a forced run replaces a checkpoint of every convention, with the files that describe it and those of
// the tokenizer, by one of every other.
func TestForceConventions(t *testing.T) {
	src, dst := openModel(t, writeModel(t, workersModel(1), madeConfig)), filepath.Join(t.TempDir(), "dst")
	rows := []struct {
		convention string
		format     quant.Format
	}{{"modelopt", quant.NVFP4}, {"compressed-tensors", quant.MXFP8}, {"quark", quant.MXFP4}, {"modelopt", quant.MXFP8}, {"mlx", quant.MXFP4},
		{"deepseek", quant.FP8Block}, {"plain", quant.MXFP8}}
	for i, row := range rows {
		o := QuantizeOptions{Quantizer: quant.Quantizer{Format: row.format}, Convention: row.convention}
		if i > 0 {
			for _, name := range []string{"tokenizer.json", "generation_config.json"} {
				if err := os.WriteFile(filepath.Join(dst, name), []byte("{}"), 0o600); err != nil {
					t.Fatal(err)
				}
			}
		}
		plan, err := PlanQuantize(t.Context(), src.Source, o)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := plan.Run(t.Context(), dst, RunOptions{Force: true}); err != nil {
			t.Errorf("%s over the one before: %v", row.convention, err)
		}
		if _, err := os.Stat(filepath.Join(dst, "tokenizer.json")); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s: files of the replaced checkpoint are left (%v)", row.convention, err)
		}
	}
}

// TestWarnings: a run succeeds if its result is complete and in place, even if old files beside
// it cannot be removed. The warning names the remedy.
func TestWarnings(t *testing.T) {
	for _, tc := range []struct {
		kind, left string
	}{{"", replacedSuffix}, {".safetensors", partialSuffix}} {
		t.Run("kind="+tc.kind, func(t *testing.T) {
			dir := t.TempDir()
			plan, dst := planOf(t, filepath.Join(dir, "src"+tc.kind)), filepath.Join(dir, "dst"+tc.kind)
			planOf(t, dst)
			out, err := plan.newOutput(dst, RunOptions{Force: true})
			if err != nil {
				t.Fatal(err)
			}
			out.remove = func(path string) error {
				if _, err := os.Lstat(path); err != nil {
					return os.RemoveAll(path) // not there yet
				}
				return &os.PathError{Op: "unlinkat", Path: path, Err: syscall.EBUSY}
			}
			if _, err := writing(plan, out); err != nil {
				t.Fatal(err)
			}
			warnings, err := out.commit()
			want := dst + " is complete, but " + dst + tc.left + " could not be removed: remove it yourself"
			if err != nil || len(warnings) != 1 || !strings.HasPrefix(warnings[0], want) {
				t.Errorf("warnings %q, error %v, want %q", warnings, err, want)
			}
			compare(t, plan.source, openModel(t, dst))
			if openModel(t, dst).Quantized() == 0 {
				t.Error("the destination is the earlier one")
			}
			result, err := plan.Run(context.Background(), dst, RunOptions{Force: true})
			if err != nil || len(result.Warnings) != 0 || names(t, dir) != "dst"+tc.kind+" src"+tc.kind {
				t.Errorf("the next run: %+v, %v; the folder has %s", result, err, names(t, dir))
			}
		})
	}
}

// TestForceStuck: a run fails before it touches the destination if the remains of an earlier
// run cannot be removed.
func TestForceStuck(t *testing.T) {
	dir := t.TempDir()
	plan, dst := planOf(t, filepath.Join(dir, "src")), filepath.Join(dir, "dst")
	planOf(t, dst)
	before := contents(t, dst)
	out, err := plan.newOutput(dst, RunOptions{Force: true})
	if err != nil {
		t.Fatal(err)
	}
	out.remove = func(path string) error { return &os.PathError{Op: "unlinkat", Path: path, Err: syscall.EBUSY} }
	if _, err := writing(plan, out); err != nil {
		t.Fatal(err)
	}
	if _, err := out.commit(); !errors.Is(err, syscall.EBUSY) || !strings.HasPrefix(err.Error(), dst+": replace the earlier one: ") {
		t.Errorf("error %v", err)
	}
	out.abort()
	if after := contents(t, dst); !maps.EqualFunc(before, after, bytes.Equal) || names(t, dir) != "dst src" {
		t.Errorf("the destination has changed, and beside it is %s", names(t, dir))
	}
}

// TestCopyInterrupted: copying a large auxiliary file stops when ctx ends.
func TestCopyInterrupted(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "src", "tokenizer.json")
	plan := planOf(t, filepath.Dir(path))
	const size = 40 << 20
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(f.Truncate(size), f.Close()); err != nil {
		t.Fatal(err)
	}
	out, err := plan.newOutput(filepath.Join(dir, "dst"), RunOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer out.abort()
	copied := func() int64 {
		info, err := os.Stat(out.path("tokenizer.json"))
		if err != nil {
			t.Fatal(err)
		}
		return info.Size()
	}
	other := hf.Other{Name: "tokenizer.json", Path: path, Size: size}
	if _, err := out.copyFile(context.Background(), other); err != nil || copied() != size {
		t.Errorf("%d of %d bytes copied, error %v", copied(), size, err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := out.copyFile(ctx, other); !errors.Is(err, context.Canceled) || copied() != 0 {
		t.Errorf("interrupted: %d bytes copied, error %v", copied(), err)
	}
}

// TestExplain: the error for a full disk states the required space.
func TestExplain(t *testing.T) {
	out, full := &output{final: "out", partial: "out.microscale-partial"}, &os.PathError{Op: "write", Path: "x", Err: syscall.ENOSPC}
	for resume, want := range map[bool]string{
		false: "out: the disk is full: the result needs 1234 bytes there; free some or choose another destination (nothing was left behind)",
		true: "out: the disk is full: the result needs 1234 bytes there; free some and resume the run, whose files are in " +
			"out.microscale-partial",
	} {
		if err := explain(full, out, 1234, resume); err.Error() != want {
			t.Errorf("%v, want %s", err, want)
		}
	}
}
