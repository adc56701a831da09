package convert

import (
	"context"
	"io/fs"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/microscale-go/microscale/internal/slow"
	"github.com/microscale-go/microscale/quant"
)

// TestPowerLoss makes the states in which a power failure may leave a partial directory. The
// journal ends at any record, with its next line complete, truncated, or filled with zeros.
// Files beyond the last record are unchanged, filled with zeros, truncated, empty or missing.
// The same command yields the same bytes, with --resume and without.
func TestPowerLoss(t *testing.T) {
	slow.Race(t, slow.Repeats)
	src := writeModel(t, tiledModel(), madeConfig)
	writeText(t, filepath.Join(src, "tokenizer.json"), "{}")
	if err := os.Mkdir(filepath.Join(src, "1_Pooling"), 0o777); err != nil {
		t.Fatal(err)
	}
	writeText(t, filepath.Join(src, "1_Pooling", "config.json"), "[]")
	for _, tc := range []struct {
		name  string
		tiles int // after which the run is interrupted
		plan  func(t *testing.T) *Plan
	}{
		{"dst", 14, func(t *testing.T) *Plan { return planFor(t, src, "nvfp4") }},
		{"dst.safetensors", 2, func(t *testing.T) *Plan { return planFor(t, filepath.Join(src, shard2), "mxfp8") }},
		{"dst.gguf", 14, func(t *testing.T) *Plan {
			plan, err := PlanQuantize(t.Context(), openSample(t).Source, QuantizeOptions{Quantizer: quant.Quantizer{Format: quant.MXFP4},
				Convention: "gguf"})
			if err != nil {
				t.Fatal(err)
			}
			return plan
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if tc.name == "dst.gguf" && testing.Short() {
				t.Skip("slow")
			}
			dir := t.TempDir()
			whole, left, dst := filepath.Join(dir, "whole-"+tc.name), filepath.Join(dir, "left"), filepath.Join(dir, tc.name)
			if _, err := tc.plan(t).Run(context.Background(), whole, RunOptions{}); err != nil {
				t.Fatal(err)
			}
			want := treeOf(t, whole)
			if !interrupted(t, tc.plan(t), dst, tc.tiles) {
				t.Fatal("the run came to its end")
			}
			if err := os.Rename(dst+partialSuffix, left); err != nil {
				t.Fatal(err)
			}
			data := readFile(t, filepath.Join(left, markerName))
			lines := strings.SplitAfter(string(data), "\n")
			random, trials := rand.New(rand.NewPCG(3, 4)), 2
			if testing.Short() {
				trials = 1
			}
			tried := 0
			for n := range lines {
				for trial := range trials {
					for _, resume := range []bool{true, false} {
						if resume || trial == 0 {
							lose(t, tc.plan(t), left, dst+partialSuffix, lines, n, random)
							if _, err := tc.plan(t).Run(context.Background(), dst, RunOptions{Resume: resume}); err != nil {
								t.Fatalf("%d of %d lines, resume %v: %v", n, len(lines), resume, err)
							}
							if !maps.Equal(treeOf(t, dst), want) {
								t.Fatalf("%d of %d lines, resume %v: other bytes", n, len(lines), resume)
							}
							if left := names(t, dir); strings.Contains(left, partialSuffix) {
								t.Fatalf("left: %s", left)
							}
							if err := os.RemoveAll(dst); err != nil {
								t.Fatal(err)
							}
							tried++
						}
					}
				}
			}
			t.Logf("%d states", tried)
		})
	}
}

// lose copies the files of a run in a state that a power failure might leave, with n records in
// the journal.
func lose(t *testing.T, plan *Plan, left, partial string, lines []string, n int, random *rand.Rand) {
	t.Helper()
	if err := os.CopyFS(partial, os.DirFS(left)); err != nil {
		t.Fatal(err)
	}
	text := strings.Join(lines[:n], "")
	if next := lines[n]; len(next) > 0 {
		switch random.IntN(3) {
		case 0:
			text += next[:random.IntN(len(next))]
		case 1:
			text += strings.Repeat("\x00", len(next)-1) + "\n" + strings.Join(lines[n+1:], "")
		}
	}
	marker := filepath.Join(partial, markerName)
	writeText(t, marker, text)
	records, _, err := readJournal(marker)
	if err != nil {
		t.Fatal(err)
	}
	r := newRun(plan, RunOptions{})
	if len(records) > 0 {
		if !r.take(records[1:]) {
			t.Fatal("the journal does not fit")
		}
	} else if random.IntN(2) == 0 {
		if err := os.Remove(marker); err != nil {
			t.Fatal(err)
		}
	}
	var kept []string
	for _, f := range plan.files {
		if r.begun(f.name) {
			name := f.name
			if plan.single {
				name = singleName
			}
			kept = append(kept, name)
		}
	}
	err = fs.WalkDir(os.DirFS(partial), ".", func(name string, e fs.DirEntry, err error) error {
		_, carried := r.auxiliary[name]
		if err != nil || e.IsDir() || name == markerName || slices.Contains(kept, name) || carried {
			return err
		}
		path := filepath.Join(partial, name)
		info, err := e.Info()
		if err != nil {
			return err
		}
		switch random.IntN(5) {
		case 0:
			return os.Remove(path)
		case 1:
			return os.Truncate(path, 0)
		case 2:
			return os.WriteFile(path, make([]byte, info.Size()), 0o666)
		case 3:
			return os.Truncate(path, info.Size()/2)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// treeOf returns the contents of a file, or of all files of a directory, by name.
func treeOf(t *testing.T, root string) map[string]string {
	t.Helper()
	tree := map[string]string{}
	err := filepath.WalkDir(root, func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		name, err := filepath.Rel(root, path)
		tree[name] = string(readFile(t, path))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return tree
}

// sameTree reports whether two files, or all files of two directories, are the same.
func sameTree(t *testing.T, a, b string) bool {
	t.Helper()
	return maps.Equal(treeOf(t, a), treeOf(t, b))
}

// TestKillCreate: a run that was killed while it created an output file left it empty. The next
// run creates it again.
func TestKillCreate(t *testing.T) {
	src, dir := writeModel(t, tiledModel(), madeConfig), t.TempDir()
	whole, dst := filepath.Join(dir, "whole"), filepath.Join(dir, "dst")
	if _, err := planFor(t, src, "nvfp4").Run(context.Background(), whole, RunOptions{}); err != nil {
		t.Fatal(err)
	}
	for _, keep := range []bool{true, false} {
		if !interrupted(t, planFor(t, src, "nvfp4"), dst, 0) {
			t.Fatal("the run came to its end")
		}
		if err := os.Truncate(filepath.Join(dst+partialSuffix, shard2), 0); err != nil {
			t.Fatal(err)
		}
		if _, err := planFor(t, src, "nvfp4").Run(context.Background(), dst, RunOptions{Resume: keep}); err != nil {
			t.Fatal(err)
		}
		sameResult(t, dst, whole)
		if err := os.RemoveAll(dst); err != nil {
			t.Fatal(err)
		}
	}
}

// TestPlantedLink: nothing is written through a link in the partial directory, or in place of
// it.
func TestPlantedLink(t *testing.T) {
	for _, name := range []string{shard1, markerName, "config.json", "."} {
		t.Run(name, func(t *testing.T) {
			src, dst := writeModel(t, tiledModel(), madeConfig), filepath.Join(t.TempDir(), "dst")
			partly(t, src, dst, 12)
			path := filepath.Join(dst+partialSuffix, name)
			elsewhere := filepath.Join(t.TempDir(), "elsewhere")
			if err := os.Rename(path, elsewhere); err != nil {
				t.Fatal(err)
			}
			if err := os.Symlink(elsewhere, path); err != nil {
				t.Fatal(err)
			}
			read := func() string {
				if name == "." {
					return names(t, elsewhere)
				}
				return string(readFile(t, elsewhere))
			}
			before := read()
			for _, resume := range []bool{true, false} {
				if _, err := planFor(t, src, "nvfp4").Run(context.Background(), dst, RunOptions{Resume: resume}); err == nil ||
					!strings.Contains(err.Error(), "link or special file") {
					t.Errorf("resume %v: error %v", resume, err)
				}
			}
			if read() != before {
				t.Error("what the link leads to has changed")
			}
		})
	}
}

// TestDropPartial: resuming a complete result removes the partial directory of a killed run
// beside it, unless that is of another result.
func TestDropPartial(t *testing.T) {
	src, dir := writeModel(t, tiledModel(), madeConfig), t.TempDir()
	dst := filepath.Join(dir, "dst")
	for _, format := range []string{"nvfp4", "mxfp8"} {
		partly(t, src, dst, 12)
		if err := os.Rename(dst+partialSuffix, dst+"-left"); err != nil {
			t.Fatal(err)
		}
		if _, err := planFor(t, src, format).Run(context.Background(), dst, RunOptions{}); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(dst+"-left", dst+partialSuffix); err != nil {
			t.Fatal(err)
		}
		if result, err := planFor(t, src, format).Run(context.Background(), dst, RunOptions{Resume: true}); err != nil || !result.Finished {
			t.Fatal(err)
		}
		want := "dst"
		if format != "nvfp4" {
			want += " dst" + partialSuffix
		}
		if names(t, dir) != want {
			t.Errorf("%s: the folder has %s, want %s", format, names(t, dir), want)
		}
		if err := os.RemoveAll(dst); err != nil {
			t.Fatal(err)
		}
	}
}
