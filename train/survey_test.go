package train

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/microscale-go/microscale/hf"
	"github.com/microscale-go/microscale/internal/slow"
)

// A tree has the contents of files by path. A path that ends in a slash is a directory.
type tree map[string][]byte

func (f tree) write(t *testing.T, dir string) {
	t.Helper()
	for name, data := range f {
		path := filepath.Join(dir, filepath.FromSlash(name))
		if strings.HasSuffix(name, "/") || name == "." {
			if err := os.MkdirAll(path, 0o777); err != nil {
				t.Fatal(err)
			}
			continue
		}
		write(t, path, data)
	}
}

func filesOf(t *testing.T, dir string) tree {
	t.Helper()
	f := tree{}
	if _, err := os.Stat(dir); errors.Is(err, fs.ErrNotExist) {
		return f
	}
	err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		name, err := filepath.Rel(dir, path)
		if err == nil {
			f[filepath.ToSlash(name)], err = os.ReadFile(path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// TestStates starts and resumes a run in every state in which a kill, a loss of power or damage can
// leave its directory. The run ends with the bytes of an undisturbed run, or with an error of one line
// and an unchanged directory.
func TestStates(t *testing.T) {
	slow.Purego(t, slow.NoKernels)
	slow.Race(t, slow.Repeats)
	c := tiny(t, "mxfp8")
	c.Steps, c.CheckpointEvery = 3, 0
	whole := c
	whole.Out = filepath.Join(t.TempDir(), "out")
	mustRun(t, whole)
	want := filesOf(t, whole.Out)

	// The files of a checkpoint after step 1.
	stopped := c
	stopped.Out = filepath.Join(t.TempDir(), "out")
	ctx, cancel := context.WithCancel(context.Background())
	stopped.Progress = onStep(0, cancel)
	if _, err := Run(ctx, stopped); !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	files := filesOf(t, stopped.Out)
	const first, second, third = "checkpoint/step-00000001/", "checkpoint/step-00000002/", "checkpoint/step-00000003.partial/"
	state, tensors := files[first+stateName], files[first+tensorsName]
	if len(files) != 2 || state == nil || tensors == nil {
		t.Fatalf("checkpoint: got %d files, want 2", len(files))
	}
	flipped := func(data []byte, at int) []byte {
		data = bytes.Clone(data)
		data[at] ^= 1
		return data
	}
	with := func(base tree, more ...any) tree {
		f := tree{}
		for name, data := range base {
			f[name] = data
		}
		for i := 0; i < len(more); i += 2 {
			f[more[i].(string)] = more[i+1].([]byte)
		}
		return f
	}
	model := with(want)
	loss := bytes.Index(state, []byte(`"train_loss"`)) + 30 // in the digits of the loss

	const (
		anew      = "the run starts from the beginning"
		resumes   = "the run resumes after step 1"
		taken     = "the directory has an unfinished run"
		occupied  = "the directory has a model"
		strange   = "the directory has a file that no run writes, "
		isDone    = "the run is complete: there is nothing to resume"
		notThere  = "the directory has no checkpoint"
		isDamaged = "the file is damaged: got CRC-32C "
		isMissing = ": the file is missing, and there is no other checkpoint: restore the file"
		isTorn    = ": the end of the file is missing, and there is no other checkpoint: restore the file"
	)
	for name, tc := range map[string]struct {
		files  tree
		resume string // the notice, or the error
		start  string // the error without Resume; "": it starts
		force  string // the error with Force; "": it starts
	}{
		"no directory":       {nil, "out: there is no such directory: name that of an interrupted run", "", ""},
		"an empty directory": {tree{".": nil}, anew, "", ""},
		"an empty folder":    {tree{"checkpoint/": nil}, anew, "", ""},
		"an empty partial":   {tree{third: nil}, anew, "", ""},
		"a half partial":     {tree{third + tensorsName: tensors[:len(tensors)/2]}, anew, "", ""},
		"a whole partial":    {tree{third + tensorsName: tensors, third + stateName: state}, anew, "", ""},
		"no state":           {tree{first + tensorsName: tensors}, stateName + isMissing, taken, ""},
		"an empty state":     {tree{first + tensorsName: tensors, first + stateName: {}}, stateName + isTorn, taken, ""},
		"half a state":       {tree{first + tensorsName: tensors, first + stateName: state[:len(state)/2]}, stateName + isTorn, taken, ""},
		"a state of zeros": {tree{first + tensorsName: tensors, first + stateName: make([]byte, len(state))}, stateName + isTorn, taken,
			""},
		"a torn first":  {tree{"checkpoint/step-00000000/" + stateName: {}}, anew, "", ""},
		"no tensors":    {tree{first + stateName: state}, tensorsName + isMissing, taken, ""},
		"empty tensors": {tree{first + stateName: state, first + tensorsName: {}}, tensorsName + isTorn, taken, ""},
		"half the tensors": {tree{first + stateName: state, first + tensorsName: tensors[:len(tensors)/2]}, tensorsName + isTorn, taken,
			""},
		"an empty step":      {tree{first: nil}, stateName + isMissing, taken, ""},
		"a discarded folder": {tree{"checkpoint.discarded/step-00000001/" + stateName: state}, anew, "", ""},
		"a checkpoint":       {files, resumes, taken, ""},
		"beside a partial":   {with(files, third+tensorsName, tensors), resumes, taken, ""},
		"beside a torn one":  {with(files, second+stateName, state[:9]), resumes + " of 3 (", taken, ""},
		"beside a damaged one": {with(files, second+stateName, state, second+tensorsName, flipped(tensors, 99)), resumes + " of 3 (", taken,
			""},
		"beside an unfinished": {with(files, "model.safetensors.partial", tensors[:9]), resumes, taken, ""},
		"beside half a model":  {with(files, "model.safetensors", tensors), resumes, taken, ""},
		"beside the model": {with(files, "model.safetensors", model["model.safetensors"], "generation_config.json",
			model["generation_config.json"], "config.json", model["config.json"]), resumes, taken, ""},
		"beside notes":           {with(files, "notes.txt", []byte("mine")), resumes, taken, "notes.txt: no run writes this"},
		"damaged tensors":        {with(files, first+tensorsName, flipped(tensors, len(tensors)-1)), isDamaged, taken, ""},
		"a damaged state":        {with(files, first+stateName, flipped(state, loss)), isDamaged, taken, ""},
		"a longer file":          {with(files, first+tensorsName, append(bytes.Clone(tensors), 0)), isDamaged, taken, ""},
		"the model":              {model, isDone, occupied, ""},
		"the model and leavings": {with(model, "checkpoint.discarded/step-00000003/"+stateName, state), isDone, occupied, ""},
		"weights alone":          {tree{"model.safetensors": tensors}, notThere, occupied, ""},
		"notes":                  {tree{"notes.txt": []byte("mine")}, notThere, strange + "notes.txt", "notes.txt: no run writes this"},
		"notes in the folder": {tree{"checkpoint/notes.txt": []byte("mine")}, notThere, strange + "notes.txt",
			"notes.txt: no run writes this"},
	} {
		for mode, expect := range map[string]string{"resume": tc.resume, "start": tc.start, "force": tc.force} {
			t.Run(name+"/"+mode, func(t *testing.T) {
				c := c
				c.Out, c.Resume, c.Force = filepath.Join(t.TempDir(), "out"), mode == "resume", mode == "force"
				tc.files.write(t, c.Out)
				notice := ""
				c.Progress = func(e Event) {
					if e.Kind == Resume {
						notice = e.String()
						return
					}
					if s, err := look(c.Out); err != nil || s.dir == "" || len(s.unusable)+len(s.debris) > 0 {
						t.Errorf("during the run the directory has %+v, %v", s, err)
					}
				}
				result, err := Run(context.Background(), c)
				if line := notice; expect != "" {
					if err != nil {
						line = err.Error()
					}
					if !strings.Contains(line, expect) || strings.Contains(line, "\n") {
						t.Errorf("got %q, want %q", line, expect)
					}
				}
				if failed := expect != "" && notice == ""; failed != (err != nil) {
					t.Fatalf("got notice %q, error %v", notice, err)
				}
				got, expected := filesOf(t, c.Out), want
				if err != nil {
					expected = with(tc.files)
					maps.DeleteFunc(expected, func(name string, _ []byte) bool { return name == "." || strings.HasSuffix(name, "/") })
					delete(expected, "checkpoint.discarded/step-00000003/"+stateName)
				} else if len(result.TrainLoss) != c.Steps {
					t.Errorf("got %d losses", len(result.TrainLoss))
				}
				if notes, ok := tc.files["notes.txt"]; ok && err == nil {
					expected = with(want, "notes.txt", notes)
				}
				for name, data := range expected {
					if !bytes.Equal(got[name], data) {
						t.Errorf("%s differs", name)
					}
				}
				if len(got) != len(expected) && mode != "start" {
					t.Errorf("got %d files, want %d", len(got), len(expected))
				}
				if _, err := os.Stat(filepath.Join(c.Out, checkpointFolder)); err == nil && notice != "" {
					t.Error("the directory of checkpoints was not removed")
				}
			})
		}
	}
	if _, err := os.Stat(filepath.Join(whole.Out, hf.ConfigName)); err != nil {
		t.Error(err)
	}
}
