package train

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"path/filepath"
	"testing"
)

// TestInterruptedRun checks the error of an interrupted run with and without a directory, and that
// another run does not start in that directory.
func TestInterruptedRun(t *testing.T) {
	out := filepath.Join(t.TempDir(), "out")
	for _, dir := range []string{"", out} {
		c := tiny(t, "bf16")
		c.Out = dir
		ctx, cancel := context.WithCancel(context.Background())
		c.Progress = onStep(2, cancel)
		_, err := Run(ctx, c)
		cancel()
		var interrupted *Interrupted
		if !errors.As(err, &interrupted) || interrupted.Step != 2 || interrupted.Out != dir {
			t.Fatalf("out %q: got %v, want an interruption after step 2", dir, err)
		}
	}
	before := filesOf(t, out)
	c := tiny(t, "bf16")
	c.Out = out
	if _, err := Run(context.Background(), c); !errors.Is(err, fs.ErrExist) {
		t.Errorf("second run in the directory: got %v", err)
	}
	after := filesOf(t, out)
	if len(before) == 0 || len(after) != len(before) {
		t.Errorf("got %d files, want %d", len(after), len(before))
	}
	for name, data := range before {
		if !bytes.Equal(after[name], data) {
			t.Errorf("%s changed", name)
		}
	}
}
