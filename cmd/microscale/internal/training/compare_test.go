package training

import (
	"context"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/microscale-go/microscale/cmd/microscale/internal/report"
	"github.com/microscale-go/microscale/recipe"
	"github.com/microscale-go/microscale/train"
)

// TestCompareInterrupted checks that an interrupted comparison reports the finished
// recipes, and writes nothing before the first one finishes.
func TestCompareInterrupted(t *testing.T) {
	config := train.DefaultConfig()
	config.Model.HiddenSize, config.Model.IntermediateSize, config.Model.NumHiddenLayers = 64, 64, 1
	config.Steps, config.Sequence, config.Batch, config.ValidationTokens = 3, 32, 2, 64
	corpus, err := train.OpenCorpus("synthetic:")
	if err != nil {
		t.Fatal(err)
	}
	config.Data = corpus
	k := &Comparison{Config: config, Corpus: corpus, Trainer: train.Run, Stderr: io.Discard, Divide: undivided}
	var out strings.Builder
	ctx, cancel := context.WithCancel(t.Context())
	dir := filepath.Join(t.TempDir(), "out")
	bf16, err := recipe.Lookup("bf16")
	if err != nil {
		t.Fatal(err)
	}
	canceled, cancelNow := context.WithCancel(t.Context())
	cancelNow()
	stopped := k.train(canceled, bf16, config.Seed)
	if err := k.End(&out, dir, false, stopped); err == nil || !strings.HasPrefix(err.Error(), "interrupted: no recipe finished") {
		t.Errorf("interrupted at the start: %v", err)
	}
	if _, err := os.Stat(dir); err == nil || out.Len() > 0 {
		t.Errorf("interrupted at the start, it left %v and printed %q", err, out.String())
	}
	impossible := &Comparison{Config: config, Corpus: corpus, Trainer: train.Run, Stderr: io.Discard, Divide: undivided}
	impossible.Config.Model.NumAttentionHeads = 3 // which two heads of keys cannot serve
	if err := impossible.End(&out, dir, false, impossible.train(ctx, bf16, config.Seed)); err == nil || !strings.HasPrefix(err.Error(),
		"bf16: ") {
		t.Errorf("where no recipe can begin: %v", err)
	}
	if _, err := os.Stat(dir); err == nil {
		t.Error("where no recipe can begin there is a report")
	}
	if err := k.train(ctx, bf16, config.Seed); err != nil {
		t.Fatal(err)
	}
	cancel()
	if err := k.End(&out, dir, false, k.train(ctx, bf16, config.Seed)); err == nil || !strings.HasPrefix(err.Error(),
		"interrupted: the report has the finished recipes: bf16") {
		t.Errorf("interrupted in the second recipe: %v", err)
	}
	if _, err := os.Stat(filepath.Join(dir, ReportName)); err != nil || !strings.Contains(out.String(), "\nbf16 ") {
		t.Errorf("the report of the first recipe: %v, %q", err, out.String())
	}
	out.Reset()
	if err := os.WriteFile(dir+"-file", nil, 0o666); err != nil {
		t.Fatal(err)
	}
	if err := k.End(&out, dir+"-file", false, nil); err == nil || !strings.HasPrefix(err.Error(), "write the report: ") ||
		!strings.Contains(out.String(), "\nbf16 ") {
		t.Errorf("where the report cannot be written: %v, and printed is %q", err, out.String())
	}
	if err := os.Remove(dir + "-file"); err != nil {
		t.Fatal(err)
	}
}

// undivided computes all tasks in order.
func undivided(n int, task func(int) (report.Format, error)) (list []report.Format, err error) {
	for i := range n {
		f, err := task(i)
		if err != nil {
			return list, err
		}
		list = append(list, f)
	}
	return list, nil
}
