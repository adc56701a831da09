package train

import (
	"math"
	"testing"

	"github.com/microscale-go/microscale/decoder"
	"github.com/microscale-go/microscale/nn"
	"github.com/microscale-go/microscale/recipe"
)

// TestEvaluate checks that the loss of each sequence is that of the sequence by itself, and that
// the loss is the mean over the targets that count.
func TestEvaluate(t *testing.T) {
	c := tiny(t, "bf16")
	model, err := decoder.New(c.Model, c.Options, 1)
	if err != nil {
		t.Fatal(err)
	}
	bf16, err := recipe.Lookup("bf16")
	if err != nil {
		t.Fatal(err)
	}
	s := nn.Scope{Recipe: bf16, Threads: 1}
	const sequences = evaluationBatch + 3 // a whole batch and a partial one
	n := c.Sequence
	tokens, targets, err := c.Data.Validation(sequences, n)
	if err != nil {
		t.Fatal(err)
	}
	for i := range n {
		targets[i], targets[n+i] = -1, -1 // two sequences without targets
	}
	for i := range n / 2 {
		targets[2*n+i] = -1
	}
	e, err := Evaluate(t.Context(), model, s, tokens, targets, n)
	if err != nil {
		t.Fatal(err)
	}
	if len(e.Sequences) != sequences || !math.IsNaN(e.Sequences[0]) || !math.IsNaN(e.Sequences[1]) {
		t.Fatalf("got losses %v", e.Sequences)
	}
	var sum float64
	for i := 2; i < sequences; i++ {
		alone, err := model.Loss(&s, tokens[i*n:(i+1)*n], targets[i*n:(i+1)*n], 1)
		if err != nil {
			t.Fatal(err)
		}
		if math.Abs(alone/e.Sequences[i]-1) > 1e-12 { // under bf16 the sequences share no scale
			t.Errorf("sequence %d: got a loss of %v, want %v", i, e.Sequences[i], alone)
		}
		sum += e.Sequences[i] * float64(counted(targets[i*n:(i+1)*n]))
	}
	if mean := sum / float64(counted(targets)); math.Abs(mean/e.Loss-1) > 1e-12 {
		t.Errorf("got a loss of %v, want the mean over the targets, %v", e.Loss, mean)
	}
	for i := range targets {
		targets[i] = -1
	}
	if _, err := Evaluate(t.Context(), model, s, tokens, targets, n); err == nil {
		t.Error("no target that counts: got no error")
	}
}
