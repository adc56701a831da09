package train

import (
	"encoding/json"
	"errors"
	"hash/crc32"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/microscale-go/microscale/internal/slow"
	"github.com/microscale-go/microscale/nn"
)

// TestWriteCheckpoint checks that a checkpoint keeps every bit and replaces the previous one, and
// that a run ignores and removes the files of a killed process.
func TestWriteCheckpoint(t *testing.T) {
	out := t.TempDir()
	data := []float32{1, float32(math.Copysign(0, -1)), math.Float32frombits(1), math.MaxFloat32, 0.1}
	tensors := []named{{"weight/a", data}, {"m/a", []float32{2}}, {scalesPrefix + "x", []float32{3, 4}}}
	for step := range 3 {
		left := filepath.Join(out, checkpointFolder, "step-00000002.partial")
		write(t, filepath.Join(left, stateName), []byte("{"))
		s := &state{Step: step, Configuration: json.RawMessage("{}"), TrainLoss: make([]float64, step)}
		for i := range s.TrainLoss {
			s.TrainLoss[i] = 1 / float64(i+3)
		}
		if err := new(Parallel).writeCheckpoint(out, s, tensorFile{Name: tensorsName}, tensors); err != nil {
			t.Fatal(err)
		}
		found, err := look(out)
		if err != nil || found.dir == "" {
			t.Fatal(found, err)
		}
		dir := found.dir
		got, err := readState(dir)
		if err != nil || got.Step != step || !slices.Equal(got.TrainLoss, s.TrainLoss) {
			t.Fatalf("step %d: got %+v, %v", step, got, err)
		}
		read := []wanted{whole("weight/a", len(data)), whole("m/a", 1)}
		scales, err := got.restore(dir, read)
		if err != nil || len(scales) != 1 || !slices.Equal(scales["x"], []float32{3, 4}) {
			t.Fatal(scales, err)
		}
		for i, v := range read[0].data {
			if math.Float32bits(v) != math.Float32bits(data[i]) {
				t.Errorf("value %d: got %g, want %g", i, v, data[i])
			}
		}
		entries, err := os.ReadDir(filepath.Join(out, checkpointFolder))
		if err != nil || len(entries) != 1 {
			t.Errorf("step %d: got checkpoints %v, %v, want one", step, entries, err)
		}
	}
	for _, other := range [][]wanted{
		{whole("weight/a", 5)},
		{whole("weight/a", 4), whole("m/a", 1)},
		{whole("weight/b", 5), whole("m/a", 1)},
	} {
		found, err := look(out)
		if err != nil {
			t.Fatal(err)
		}
		none := *found.state
		none.Files = nil
		if _, err := none.restore(found.dir, []wanted{whole("weight/a", 4)}); err == nil || !strings.Contains(err.Error(), "elements of tensor") {
			t.Errorf("a checkpoint without files: error %v", err)
		}
		if _, err := found.state.restore(found.dir, other); err == nil || !strings.Contains(err.Error(), "another model") {
			t.Errorf("error %v", err)
		}
	}
}

// whole returns a wanted tensor of n values.
func whole(name string, n int) wanted {
	return wanted{name, name, span{0, n}, span{0, 1}, nn.Place{Rows: n, Cols: 1}, make([]float32, n)}
}

func TestReadStateErrors(t *testing.T) {
	const losses = `{"step":3,"train_loss":[1]}`
	sum := checksumText(crc32.Checksum([]byte(losses), castagnoli))
	for text, want := range map[string]string{
		"":                 "the end of the file is missing",
		"[]\n":             "not the state of a training run",
		`{"version": 2}`:   "got version 2, want 6",
		`{"version": 6}`:   "not the state of a training run",
		"{\"version\": 5,": "the end of the file is missing",
		`{"version": 6, "crc32c": "` + sum + `", "state": ` + losses + `}`:                                  "got 1 losses after 3 steps",
		`{"version": 6, "crc32c": "` + sum + `", "state": ` + strings.Replace(losses, "1", "2", 1) + `}`:    "the file is damaged: got CRC-32C ",
		`{"version": 6, "crc32c": "` + sum + `", "state": ` + strings.ReplaceAll(losses, ",", " ,\n") + `}`: "got 1 losses after 3 steps",
	} {
		dir := t.TempDir()
		write(t, filepath.Join(dir, stateName), []byte(text))
		if _, err := readState(dir); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: got error %v, want %q", text, err, want)
		}
	}
}

// TestStateChecksum flips every bit of a state, and checks that readState returns an error.
func TestStateChecksum(t *testing.T) {
	slow.Purego(t, slow.NoKernels)
	dir := t.TempDir()
	path := filepath.Join(dir, stateName)
	text, err := (&state{Step: 1, Configuration: json.RawMessage(`{"a": "<b>"}`), Arguments: []string{"seed", "1"},
		TrainLoss: []float64{1.0 / 3}}).marshal()
	if err != nil {
		t.Fatal(err)
	}
	write(t, path, text)
	whole, err := readState(dir)
	if err != nil {
		t.Fatal(err)
	}
	for i := range text {
		for bit := range 8 {
			damaged := slices.Clone(text)
			damaged[i] ^= 1 << bit
			write(t, path, damaged)
			if got, err := readState(dir); err == nil && !reflect.DeepEqual(got, whole) {
				t.Errorf("bit %d of byte %d: got %+v, want an error", bit, i, got)
			}
		}
	}
}

func TestDifference(t *testing.T) {
	const a = `{"model": {"hidden size": 128, "layers": 4}, "recipe": {"Name": "mxfp8"}, "list": [1, 2], "old": true}`
	for _, tc := range []struct{ b, want string }{
		{a, ""},
		{`{"model":{"hidden size":128,"layers":4},"recipe":{"Name":"mxfp8"},"list":[1,2],"old":true}`, ""},
		{strings.Replace(a, "4", "5", 1), "model.layers is 4 in the checkpoint and 5 in the configuration"},
		{strings.Replace(a, "mxfp8", "bf16", 1), `recipe.Name is "mxfp8" in the checkpoint and "bf16" in the configuration`},
		{strings.Replace(a, "[1", "[3", 1), "list is [1,2] in the checkpoint and [3,2] in the configuration"},
		{strings.Replace(a, `, "old": true`, "", 1), "old is true in the checkpoint and not set in the configuration"},
		{strings.Replace(a, `"old"`, `"new"`, 1), "new is not set in the checkpoint and true in the configuration"},
	} {
		got, err := difference(json.RawMessage(a), json.RawMessage(tc.b))
		if err != nil || got != tc.want {
			t.Errorf("%s: got %q, %v, want %q", tc.b, got, err, tc.want)
		}
	}
	if _, err := difference(json.RawMessage("{"), json.RawMessage("{}")); err == nil {
		t.Error("half an object: got no error")
	}
}

func TestStoreError(t *testing.T) {
	err := storeError(&os.PathError{Op: "write", Path: "x", Err: syscall.ENOSPC}, "out", "the checkpoint of step 3")
	if want := "out: the disk is full: the checkpoint of step 3 was not written"; !strings.HasPrefix(err.Error(), want) {
		t.Errorf("got %q, want %q", err, want)
	}
	err = storeError(&os.PathError{Op: "write", Path: "x", Err: syscall.EACCES}, "out", "the model")
	if want := "x: the model was not written: permission denied"; err.Error() != want || !errors.Is(err, syscall.EACCES) {
		t.Errorf("got %q, want %q", err, want)
	}
}
