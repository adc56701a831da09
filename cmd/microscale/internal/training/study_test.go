package training

import (
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/microscale-go/microscale/recipe"
	"github.com/microscale-go/microscale/train"
)

// TestTrain trains a small model and saves it.
func TestTrain(t *testing.T) {
	c := train.DefaultConfig()
	c.Model.HiddenSize, c.Model.IntermediateSize, c.Model.NumHiddenLayers, c.Model.MaxPositionEmbeddings = 64, 64, 1, 32
	c.Steps, c.Sequence, c.Batch, c.ValidationTokens = 3, 32, 2, 64
	corpus, err := train.OpenCorpus("synthetic:")
	if err != nil {
		t.Fatal(err)
	}
	bf16, err := recipe.Lookup("bf16")
	if err != nil {
		t.Fatal(err)
	}
	c.Data, c.Recipe = corpus, bf16
	c.Out, err = NewDirectory(filepath.Join(t.TempDir(), "model"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Train(t.Context(), c, train.Run, io.Discard); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(c.Out, "model.safetensors")); err != nil {
		t.Error(err)
	}
}

// TestNewDirectory numbers directories that exist.
func TestNewDirectory(t *testing.T) {
	name := filepath.Join(t.TempDir(), "run")
	for _, want := range []string{name, name + "-2", name + "-3"} {
		if got, err := NewDirectory(name); got != want || err != nil {
			t.Errorf("%s, %v, want %s", got, err, want)
		}
	}
}
