package train

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"path/filepath"
	"testing"
)

// TestInterruptedRun: a run that is interrupted names its checkpoint, or none where it
// writes nothing; another run does not begin in its directory.
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
		t.Errorf("a second run in the directory: %v", err)
	}
	after := filesOf(t, out)
	if len(before) == 0 || len(after) != len(before) {
		t.Errorf("the directory has %d files, and had %d", len(after), len(before))
	}
	for name, data := range before {
		if !bytes.Equal(after[name], data) {
			t.Errorf("%s has changed", name)
		}
	}
}
