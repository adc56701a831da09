package evaluation

import (
	"bytes"
	"errors"
	"io"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/microscale-go/microscale/calibration"
	"github.com/microscale-go/microscale/checkpoint/llamacpp"
	"github.com/microscale-go/microscale/cmd/microscale/internal/evaluation/windows"
	"github.com/microscale-go/microscale/gguf"
	"github.com/microscale-go/microscale/tensor"
)

// TestImportance: an importance matrix has the statistics of the same text, by the names of the GGUF file, and no other file is left.
func TestImportance(t *testing.T) {
	dir := t.TempDir()
	c := Calibration{Evaluation: newEvaluation(t), Out: filepath.Join(dir, "s.safetensors")}
	c.Stream = filepath.Join(dir, "scratch")
	want := collected(t, c)
	if err := os.Remove(c.Out); err != nil {
		t.Fatal(err)
	}
	c.Out = filepath.Join(dir, "imatrix.gguf")
	if _, err := c.Run(t.Context()); err != nil {
		t.Fatal(err)
	}
	if entries, err := os.ReadDir(dir); err != nil || len(entries) != 1 {
		t.Errorf("%v are left (%v)", entries, err)
	}
	in, ok := want.Of("model.layers.1.mlp.down_proj")
	if !ok {
		t.Fatal("no input")
	}
	compareImportance(t, c.Out, "blk.1.ffn_down.weight", 1, 0, in)
	if _, err := c.Run(t.Context()); err == nil {
		t.Error("an importance matrix was replaced")
	}
}

// TestImportanceKilled: after a run that was killed when it had the statistics, the text is not read again; after one that was killed when
// the importance matrix was written, no other file is left. A file that exists is an error before the work, also beside activations.
func TestImportanceKilled(t *testing.T) {
	dir := t.TempDir()
	var messages bytes.Buffer
	c := Calibration{Evaluation: newEvaluation(t), Out: filepath.Join(dir, "imatrix.gguf")}
	c.Stream, c.Stderr = filepath.Join(dir, "scratch"), &messages
	own := c
	own.Out, own.Stderr = c.Out+windows.OwnName+"statistics.safetensors", io.Discard
	statistics := func() {
		s, _, err := own.Statistics(t.Context())
		if err == nil {
			err = s.Close()
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	statistics()
	if _, err := c.Run(t.Context()); err != nil || messages.Len() > 0 {
		t.Errorf("statistics were there: %q, %v", messages.String(), err)
	}
	statistics()
	if _, err := c.Run(t.Context()); err == nil || !strings.Contains(err.Error(), " exists: ") {
		t.Errorf("got %v", err)
	}
	if entries, err := os.ReadDir(dir); err != nil || len(entries) != 1 {
		t.Errorf("%v are left (%v)", entries, err)
	}
	c.Out = filepath.Join(dir, "amax.toml")
	if err := errors.Join(os.WriteFile(c.Out, nil, 0o600), os.Mkdir(c.Stream, 0o700),
		os.WriteFile(filepath.Join(c.Stream, "state.json"), nil, 0o600)); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Run(t.Context()); err == nil || !strings.Contains(err.Error(), " exists: ") || messages.Len() > 0 {
		t.Errorf("beside activations: %q, %v", messages.String(), err)
	}
}

// compareImportance compares an entry of an importance matrix with an input.
func compareImportance(t *testing.T, path, name string, matrices, index int, want *calibration.Input) {
	t.Helper()
	s, err := calibration.Read(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	got, err := s.Importance(name, want.Width(), matrices, index)
	if err != nil || got == nil || got.Tokens != max(1, want.Tokens) {
		t.Fatalf("%s: got %v, %v", name, got, err)
	}
	for i, v := range want.Square {
		if math.Abs(float64(got.Square[i]-v)) > 0x1p-22*float64(v) {
			t.Errorf("%s, matrix %d, column %d: mean square %g, want %g", name, index, i, got.Square[i], v)
		}
	}
}

// TestImportanceExperts: a tensor of all experts has a row for each, that of all for one without tokens.
func TestImportanceExperts(t *testing.T) {
	dir := t.TempDir()
	l, err := gguf.NewLayout([]gguf.Spec{{Name: "blk.0.ffn_up_exps.weight", Shape: []int64{3, 1, 2}}},
		[]gguf.Pair{{Key: "general.architecture", Value: "unheard-of"}})
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "model.gguf")
	if err := os.WriteFile(path, append(l.HeaderBytes(), make([]byte, l.FileSize()-int64(len(l.HeaderBytes())))...), 0o666); err != nil {
		t.Fatal(err)
	}
	file, err := gguf.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = file.Close() })
	_, model, err := llamacpp.OpenRaw(file)
	if err != nil {
		t.Fatal(err)
	}
	names := []string{"blk.0.ffn_up_exps.0", "blk.0.ffn_up_exps.1", "blk.0.ffn_up_exps.2"}
	var layer []calibration.Linear
	for _, name := range names {
		layer = append(layer, calibration.Linear{Name: name, Width: 2, Modules: []string{name}, Kind: "up"})
	}
	collector := &calibration.Collector{Dir: filepath.Join(dir, "scratch"), Out: filepath.Join(dir, "s.safetensors"),
		Layers: [][]calibration.Linear{layer}}
	if err := os.Mkdir(collector.Dir, 0o777); err != nil {
		t.Fatal(err)
	}
	for i, name := range names[:2] {
		x := tensor.New(i+1, 2)
		for j := range x.Data {
			x.Data[j] = float32(i + j + 1)
		}
		if err := collector.Add(name, x); err != nil {
			t.Fatal(err)
		}
	}
	if err := collector.Finish(t.Context(), 0); err != nil {
		t.Fatal(err)
	}
	if err := collector.Join(t.Context()); err != nil {
		t.Fatal(err)
	}
	s, err := calibration.Read(collector.Out)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	out := filepath.Join(dir, "imatrix.gguf")
	r := &Evaluated{document: document{path: "text.txt"}}
	if err := writeImportance(out, s, model, r); err != nil {
		t.Fatal(err)
	}
	for i, name := range names {
		in, _ := s.Of(name)
		compareImportance(t, out, "blk.0.ffn_up_exps.weight", 3, i, in)
	}
	if err := writeImportance(out, s, model, r); err == nil {
		t.Errorf("a file was replaced: %v", fs.ErrExist)
	}
}
