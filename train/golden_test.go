package train

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io/fs"
	"math"
	"strings"
	"testing"

	"github.com/microscale-go/microscale/recipe"
	"github.com/microscale-go/microscale/tensor"
)

// TestSyntheticText checks that the text of recorded results does not change.
func TestSyntheticText(t *testing.T) {
	text := synthesize(1 << 16)
	sum := sha256.Sum256(text)
	if got := hex.EncodeToString(sum[:8]); got != syntheticSum {
		t.Errorf("hash: got %s, want %s; the text begins with %q", got, syntheticSum, text[:100])
	}
	if line, _, found := strings.Cut(string(text), "\n"); !found || len(line) < 20 || !strings.HasSuffix(line, ". ") {
		t.Errorf("first line: got %q", line)
	}
}

const syntheticSum = "de97f85baac75417"

// TestUnder checks HoldQuantized for recipes that do and do not support it.
func TestUnder(t *testing.T) {
	c := tiny(t, "mxfp8")
	c.HoldQuantized = true
	for name, held := range map[string]bool{"mxfp8": true, "bf16": false} {
		r, err := recipe.Lookup(name)
		if err != nil {
			t.Fatal(err)
		}
		if got := c.Under(r); got.Recipe.Name != name || got.HoldQuantized != held {
			t.Errorf("%s: got recipe %s, HoldQuantized %v, want %v", name, got.Recipe.Name, got.HoldQuantized, held)
		}
	}
}

func TestInterruptedError(t *testing.T) {
	for _, tc := range []struct {
		err  Interrupted
		want string
	}{
		{Interrupted{Step: 3}, "interrupted after 3 steps: nothing was written"},
		{Interrupted{Step: 3, Out: "run"}, "interrupted after 3 steps: the checkpoint is in run"},
	} {
		if got := tc.err.Error(); got != tc.want {
			t.Errorf("got %q, want %q", got, tc.want)
		}
	}
}

// TestUnreadable checks that the error has the path of the file once.
func TestUnreadable(t *testing.T) {
	err := unreadable("texts", &fs.PathError{Op: "open", Path: "texts/a.txt", Err: fs.ErrPermission})
	if got := err.Error(); !strings.HasPrefix(got, "texts/a.txt: cannot be read: permission denied") {
		t.Errorf("got %q", got)
	}
}

func TestFinalLoss(t *testing.T) {
	r := Result{TrainLoss: []float64{3, 2, 1}, Validation: []ValidationPoint{{1, 6}, {2, 5}, {3, 4}}}
	if training, validation := r.FinalLoss(); training != 1 || validation != 4 {
		t.Errorf("got %g and %g, want 1 and 4", training, validation)
	}
}

// TestLook checks the counts of NaN and Inf; the largest float32 is finite.
func TestLook(t *testing.T) {
	inf, nan := float32(math.Inf(-1)), float32(math.NaN())
	var e Diverged
	if e.look("finite", tensor.Of(1, 2, []float32{math.MaxFloat32, -math.MaxFloat32})) || e.Tensor != "" {
		t.Errorf("largest float32: got %+v", e)
	}
	if !e.look("bad", tensor.Of(2, 2, []float32{inf, nan, nan, -2})) || e.Tensor != "bad" || e.Inf != 1 || e.NaN != 2 || e.Amax != 2 {
		t.Errorf("an Inf, two NaN and -2: got %+v", e)
	}
}

// TestValidated checks that every validation is reported, in order.
func TestValidated(t *testing.T) {
	c := tiny(t, "bf16")
	c.ValidateEvery = 1
	var points []ValidationPoint
	c.Progress = func(e Event) {
		if e.Kind == Validation {
			points = append(points, ValidationPoint{e.Step, e.Loss})
		}
	}
	r, err := Run(context.Background(), c)
	if err != nil {
		t.Fatal(err)
	}
	if fmt.Sprint(points) != fmt.Sprint(r.Validation) || len(points) != c.Steps {
		t.Errorf("got events %v and validations %v in %d steps", points, r.Validation, c.Steps)
	}
}
