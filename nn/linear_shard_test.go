package nn

import (
	"math/rand/v2"
	"testing"

	"github.com/microscale-go/microscale/comm"
	"github.com/microscale-go/microscale/internal/slow"
	"github.com/microscale-go/microscale/quant"
	"github.com/microscale-go/microscale/recipe"
	"github.com/microscale-go/microscale/tensor"
)

// shards quantizes a weight in parts, as ranks do, and joins them.
func shards(t *testing.T, l *Linear, s *Scope, w tensor.Dense, ranks int) (row, col *quant.Tensor) {
	t.Helper()
	block, ok := s.Recipe.ShardRows()
	if !ok {
		t.Fatalf("%s: the rows cannot be divided", s.Recipe.Name)
	}
	rounded := w.Clone()
	s.Round(rounded)
	amax := quant.Amax(rounded, 1)
	cuts := comm.Cut(w.Rows, ranks, block)
	var rows, cols []*quant.Tensor
	before := l.delayed[Weight]
	before.history = append([]float32(nil), before.history...)
	for i := range ranks {
		l.delayed[Weight] = before // each rank has its own
		l.delayed[Weight].history = append([]float32(nil), before.history...)
		r, c, err := l.QuantizeRows(s, w.View(cuts[i], cuts[i+1], 0, w.Cols), cuts[i], amax)
		if err != nil {
			t.Fatal(err)
		}
		if cuts[i] == cuts[i+1] {
			continue
		}
		rows = append(rows, r)
		if c != nil {
			cols = append(cols, c)
		}
	}
	row = must(quant.Concat(rows...))
	if len(cols) > 0 {
		col = must(quant.Concat(cols...))
	}
	return row, col
}

// TestQuantizeRows checks for every recipe that the parts of a weight, divided among 1 to 7 ranks,
// are byte by byte the quantized weight, and that a layer which holds them computes the bits of one
// with master weights. The recipes whose weights cannot be divided are listed.
func TestQuantizeRows(t *testing.T) {
	slow.Purego(t, slow.OwnProducts)
	slow.Race(t, slow.Repeats)
	slow.Emulated(t, slow.OwnProducts)
	rng := rand.New(rand.NewPCG(5, 6))
	const tokens, in, out = 128, 128, 320
	x, dy := matrix(rng, tokens, in, 1), matrix(rng, tokens, out, 1e-3)
	cannot := map[string]bool{"f32": true, "bf16": true} // not quantized
	stride := 1
	if testing.Short() {
		stride = 3
	}
	for _, r := range recipe.Recipes() {
		t.Run(r.Name, func(t *testing.T) {
			if _, ok := r.ShardRows(); ok == cannot[r.Name] {
				t.Fatalf("weights can be divided: %t", ok)
			} else if !ok {
				return
			}
			for ranks := 1; ranks <= 7; ranks += stride {
				s := &Scope{Recipe: r, Random: Random{Seed: 3, Step: 4}}
				plain, held := NewLinear("proj", in, out, false), NewLinear("proj", in, out, false)
				plain.Weight.InitNormal(0.02, 1)
				masters := plain.Weight.Value.Clone()
				held.ReleaseMasters()
				for step := range 2 {
					y, saved, err := plain.Forward(s, x)
					if err != nil {
						t.Fatal(err)
					}
					dx, err := plain.Backward(s, saved, dy)
					if err != nil {
						t.Fatal(err)
					}
					row, col := shards(t, held, s, masters, ranks)
					if !sameBits(row, plain.weight.rowwise) || col != nil && !sameBits(col, plain.weight.columnwise) {
						t.Fatalf("%d ranks, step %d: the parts differ from the quantized weight", ranks, step)
					}
					fetched := 0
					held.HoldCopies(s, func() (*quant.Tensor, *quant.Tensor, error) { fetched++; return row, col, nil })
					gotY, saved, err := held.Forward(s, x)
					if err != nil {
						t.Fatal(err)
					}
					gotDX, err := held.Backward(s, saved, dy)
					if err != nil {
						t.Fatal(err)
					}
					for _, l := range []*Linear{plain, held} {
						l.EndForward(s)
						l.EndBackward(s)
					}
					if !sameData(gotY, y) || !sameData(gotDX, dx) || fetched != 1 {
						t.Fatalf("%d ranks, step %d: products differ, or copies were fetched %d times", ranks, step, fetched)
					}
				}
				held.SettleWeight(1)
				if !sameData(held.Params()[0].Value, held.held.codes.Dequantize(1)) {
					t.Errorf("%d ranks: the settled weight is not the decoded one", ranks)
				}
			}
		})
	}
}

// TestShardRows checks recipes whose weights cannot be divided.
func TestShardRows(t *testing.T) {
	for name, w := range map[string]recipe.Operand{
		"per row":  {Rowwise: quant.Quantizer{Format: quant.FP8Row}, Columnwise: quant.Quantizer{Format: quant.FP8Row}},
		"hadamard": {Rowwise: quant.Quantizer{Format: quant.NVFP4}, Columnwise: quant.Quantizer{Format: quant.NVFP4, Hadamard: true}},
	} {
		r := recipe.Recipe{Weight: w}
		if rows, ok := r.ShardRows(); ok {
			t.Errorf("%s: rows can be divided at multiples of %d", name, rows)
		}
	}
	for name, want := range map[string]int{"delayed": 1, "tensorwise": 1, "blockwise": 128, "mxfp8": 32, "nvfp4": 16} {
		r, err := recipe.Lookup(name)
		if err != nil {
			t.Fatal(err)
		}
		if got, ok := r.ShardRows(); got != want || !ok {
			t.Errorf("%s: got %d, %t, want %d", name, got, ok, want)
		}
	}
}

func sameData(a, b tensor.Dense) bool {
	for i := range a.Rows {
		for j, v := range a.Row(i) {
			if v != b.At(i, j) {
				return false
			}
		}
	}
	return a.Rows == b.Rows && a.Cols == b.Cols
}
