package train

import (
	"context"
	"encoding/json"
	"errors"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
)

// TestWriteCheckpoint: what was written is read to the bit, the one before is
// gone, and what a killed process left is neither taken nor in the way.
func TestWriteCheckpoint(t *testing.T) {
	out := t.TempDir()
	data := []float32{1, float32(math.Copysign(0, -1)), math.Float32frombits(1), math.MaxFloat32, 0.1}
	tensors := []named{{"weight/a", data}, {"m/a", []float32{2}}, {scalesPrefix + "x", []float32{3, 4}}}
	for step := range 3 {
		left := filepath.Join(out, checkpointFolder, "step-00000002.partial")
		write(t, filepath.Join(left, stateName), []byte("{"))
		if at, err := latest(out); err != nil || strings.HasSuffix(at, partialSuffix) {
			t.Fatalf("the last checkpoint is %q, %v", at, err)
		}
		s := &state{Version: stateVersion, Step: step, Configuration: json.RawMessage("{}"), TrainLoss: make([]float64, step)}
		for i := range s.TrainLoss {
			s.TrainLoss[i] = 1 / float64(i+3)
		}
		if err := writeCheckpoint(out, s, tensors); err != nil {
			t.Fatal(err)
		}
		dir, err := latest(out)
		if err != nil {
			t.Fatal(err)
		}
		got, err := readState(dir)
		if err != nil || got.Step != step || !slices.Equal(got.TrainLoss, s.TrainLoss) {
			t.Fatalf("step %d: read %+v, %v", step, got, err)
		}
		read := []named{{"weight/a", make([]float32, len(data))}, {"m/a", make([]float32, 1)}}
		scales, err := readTensors(filepath.Join(dir, tensorsName), read)
		if err != nil || len(scales) != 1 || !slices.Equal(scales["x"], []float32{3, 4}) {
			t.Fatal(scales, err)
		}
		for i, v := range read[0].data {
			if math.Float32bits(v) != math.Float32bits(data[i]) {
				t.Errorf("value %d is %g, want %g", i, v, data[i])
			}
		}
		entries, err := os.ReadDir(filepath.Join(out, checkpointFolder))
		if err != nil || len(entries) != 1 {
			t.Errorf("step %d: %v are there, %v", step, entries, err)
		}
	}
	for _, other := range [][]named{
		{{"weight/a", make([]float32, 5)}},
		{{"weight/a", make([]float32, 4)}, {"m/a", make([]float32, 1)}},
		{{"weight/b", make([]float32, 5)}, {"m/a", make([]float32, 1)}},
	} {
		dir, _ := latest(out)
		if _, err := readTensors(filepath.Join(dir, tensorsName), other); err == nil || !strings.Contains(err.Error(), "another model") {
			t.Errorf("error %v", err)
		}
	}
}

// TestDamaged overwrites, flips, adds and removes bytes of a checkpoint's tensors:
// the run does not resume from it, and the line says from which it can.
func TestDamaged(t *testing.T) {
	c := tiny(t, "delayed")
	c.Steps, c.CheckpointEvery, c.Out = 3, 0, filepath.Join(t.TempDir(), "out")
	ctx, cancel := context.WithCancel(context.Background())
	if _, err := Run(ctx, c, Hooks{Step: func(StepEvent) { cancel() }}); !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	dir, err := latest(c.Out)
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(dir, tensorsName)
	whole, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	c.Resume = true
	refused := func(what string, want ...string) {
		t.Helper()
		_, err := Run(context.Background(), c, Hooks{})
		for _, w := range want {
			if err == nil || !strings.Contains(err.Error(), w) || strings.Contains(err.Error(), "\n") {
				t.Errorf("%s: error %v, want %q", what, err, w)
			}
		}
	}
	for _, at := range []int{0, 8, len(whole) / 2, len(whole) - 1} {
		damaged := slices.Clone(whole)
		damaged[at] ^= 1
		write(t, file, damaged)
		refused("a bit", file+": the file is damaged: its CRC-32C is ", "start anew")
	}
	write(t, file, whole[:len(whole)-4])
	refused("the end is missing", file+": the file is damaged")
	write(t, file, append(slices.Clone(whole), 0))
	refused("a byte more", file+": the file is damaged")
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	refused("it is gone", file+": no such file", "start anew")

	write(t, file, whole)
	later := filepath.Join(filepath.Dir(dir), stepPrefix+"00000002")
	for _, name := range []string{stateName, tensorsName} {
		data, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		write(t, filepath.Join(later, name), data)
	}
	write(t, filepath.Join(later, tensorsName), whole[1:])
	refused("of two", filepath.Join(later, tensorsName)+": the file is damaged", "remove "+later+" to resume from "+dir+", which is good")
	if err := os.RemoveAll(later); err != nil {
		t.Fatal(err)
	}
	mustRun(t, c)
}

func TestReadStateErrors(t *testing.T) {
	for text, want := range map[string]string{
		"":               "not the state of a training run",
		"[]":             "not the state of a training run",
		`{"version": 1}`: "version 1 of the layout",
		`{"version": 2, "step": 3, "train_loss": [1]}`: "1 losses after 3 steps",
	} {
		dir := t.TempDir()
		write(t, filepath.Join(dir, stateName), []byte(text))
		if _, err := readState(dir); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: error %v, want %q", text, err, want)
		}
	}
}

func TestDifference(t *testing.T) {
	const a = `{"model": {"hidden size": 128, "layers": 4}, "recipe": {"Name": "mxfp8"}, "list": [1, 2], "old": true}`
	for _, tc := range []struct{ b, want string }{
		{a, ""},
		{`{"model":{"hidden size":128,"layers":4},"recipe":{"Name":"mxfp8"},"list":[1,2],"old":true}`, ""},
		{strings.Replace(a, "4", "5", 1), "model.layers is 4 there and 5 here"},
		{strings.Replace(a, "mxfp8", "bf16", 1), `recipe.Name is "mxfp8" there and "bf16" here`},
		{strings.Replace(a, "[1", "[3", 1), "list is [1,2] there and [3,2] here"},
		{strings.Replace(a, `, "old": true`, "", 1), "old is true there and not set here"},
		{strings.Replace(a, `"old"`, `"new"`, 1), "new is not set there and true here"},
	} {
		got, err := difference(json.RawMessage(a), json.RawMessage(tc.b))
		if err != nil || got != tc.want {
			t.Errorf("%s: %q, %v, want %q", tc.b, got, err, tc.want)
		}
	}
	if _, err := difference(json.RawMessage("{"), json.RawMessage("{}")); err == nil {
		t.Error("half an object is none")
	}
}

func TestStoreError(t *testing.T) {
	err := storeError(&os.PathError{Op: "write", Path: "x", Err: syscall.ENOSPC}, "out", "the checkpoint of step 3")
	if want := "out: the disk is full: the checkpoint of step 3 was not written"; !strings.HasPrefix(err.Error(), want) {
		t.Errorf("%q, want %q", err, want)
	}
	err = storeError(&os.PathError{Op: "write", Path: "x", Err: syscall.EACCES}, "out", "the model")
	if want := "x: the model was not written: permission denied"; err.Error() != want || !errors.Is(err, syscall.EACCES) {
		t.Errorf("%q, want %q", err, want)
	}
}
