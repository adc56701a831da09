package decoder

import (
	"math"
	"testing"
	"time"

	"github.com/microscale-go/microscale/comm"
	"github.com/microscale-go/microscale/nn"
)

// TestWhole joins the parts of a model that two ranks have: the whole has the weights of a model of one
// process and the settings of the parts, and the logits of the parts are those of the whole but for the
// order of float32 sums.
func TestWhole(t *testing.T) {
	c := Config{VocabSize: 64, HiddenSize: 32, IntermediateSize: 64, NumHiddenLayers: 2, NumAttentionHeads: 4, NumKeyValueHeads: 2,
		MaxPositionEmbeddings: 16}
	one, err := New(c, Options{}, 3)
	if err != nil {
		t.Fatal(err)
	}
	tokens := []int32{1, 63, 0, 32, 31, 7, 7, 40}
	want, err := one.Logits(t.Context(), tokens, 1)
	if err != nil {
		t.Fatal(err)
	}
	err = comm.Run(2, comm.Options{Timeout: time.Minute}, func(g *comm.Group) error {
		part, err := New(c, Options{Ranks: nn.Ranks{Group: g}}, 3)
		if err != nil {
			return err
		}
		part.Inference.Threads = 3
		logits, err := part.Logits(t.Context(), tokens, 1)
		if err != nil {
			return err
		}
		whole, err := part.Whole()
		if err != nil {
			return err
		}
		if whole.Inference.Threads != 3 || whole.Options.Ranks.Size() != 1 {
			t.Errorf("rank %d: the whole model has %d threads and %d ranks", g.Rank(), whole.Inference.Threads, whole.Options.Ranks.Size())
		}
		for i, p := range whole.Params() {
			for row := range p.Value.Rows {
				for j, v := range p.Value.Row(row) {
					if v != one.Params()[i].Value.Row(row)[j] {
						t.Errorf("rank %d: %s differs at row %d, column %d", g.Rank(), p.Name, row, j)
						return nil
					}
				}
			}
		}
		for i := range want.Rows {
			for j, v := range want.Row(i) {
				if d := math.Abs(float64(logits.Row(i)[j] - v)); d > 1e-5 {
					t.Errorf("rank %d: logit %d of token %d differs by %g", g.Rank(), j, i, d)
					return nil
				}
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}
