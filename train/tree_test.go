package train

import (
	"math"
	"math/bits"
	"testing"

	"github.com/microscale-go/microscale/comm"
	"github.com/microscale-go/microscale/comm/commtest"
	"github.com/microscale-go/microscale/nn"
)

// TestGradientTree compares the sum over microbatches with comm.Sum, bit by bit, for every number of
// them, in two steps of one tree.
func TestGradientTree(t *testing.T) {
	const n = 600
	for count := 1; count <= 17; count++ {
		params := []*nn.Param{newParam("a", 1, n), newParam("b", 2, n)}
		var tree gradientTree
		for step := range 2 {
			parts := make([][][]float32, len(params)) // by parameter and microbatch
			for m := range count {
				if m > 0 {
					tree.push(params, 1)
				}
				for i, p := range params {
					values := commtest.Values(100*step+10*m+i, len(p.Grad.Data))
					for j, v := range values {
						p.Grad.Data[j] += v // as backward passes do
					}
					parts[i] = append(parts[i], values)
				}
			}
			for i, p := range params {
				tree.finish(i, p)
				want := make([]float32, len(p.Grad.Data))
				comm.Sum(want, parts[i]...)
				if at := differs(p.Grad.Data, want); at >= 0 {
					t.Fatalf("%d microbatches, step %d, %s: element %d is %g, want %g", count, step, p.Name, at, p.Grad.Data[at], want[at])
				}
				clear(p.Grad.Data)
			}
			tree.reset()
		}
		// Before microbatch count−1 is pushed there were runs of up to half their number.
		digits := bits.Len(uint(count)) - 1
		if got := tree.bytes(); got != digits*3*n*4 {
			t.Errorf("%d microbatches: the tree has %d bytes, want those of %d gradients", count, got, digits)
		}
	}
}

// differs returns the first index at which the bits of a and b differ, −1 if there is none.
func differs(a, b []float32) int {
	for i := range a {
		if math.Float32bits(a[i]) != math.Float32bits(b[i]) {
			return i
		}
	}
	return -1
}

// TestMicrobatchGradients checks that the gradients of a step are the sum of those that each of its
// microbatches has alone. A sum that accumulates in one buffer differs from it.
func TestMicrobatchGradients(t *testing.T) {
	for _, name := range []string{"bf16", "nvfp4"} {
		c := tiny(t, name)
		c.Batch, c.Microbatches = 8, 8
		r, err := newRun(c, groups{data: c.Parallel})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := r.backward(r.scope(0), false); err != nil {
			t.Fatal(err)
		}
		tokens, targets, err := c.Data.Training(c.Seed, 0, c.Batch, c.Sequence)
		if err != nil {
			t.Fatal(err)
		}
		parts := make([][][]float32, len(r.params))
		alone, err := newRun(c, groups{data: c.Parallel})
		if err != nil {
			t.Fatal(err)
		}
		for m := range c.Microbatches {
			scope := alone.scope(0)
			scope.Random.Microbatch = m
			at := m * c.Sequence
			if _, err := alone.model.Train(&scope, tokens[at:at+c.Sequence], targets[at:at+c.Sequence], 1, 1.0/8); err != nil {
				t.Fatal(err)
			}
			for i, p := range alone.params {
				parts[i] = append(parts[i], p.Grad.Clone().Data)
				p.ZeroGrad()
			}
		}
		folded := 0 // parameters whose sum in order has other bits
		for i, p := range r.params {
			want, fold := make([]float32, len(p.Grad.Data)), make([]float32, len(p.Grad.Data))
			comm.Sum(want, parts[i]...)
			for _, part := range parts[i] {
				for j, v := range part {
					fold[j] += v
				}
			}
			if at := differs(p.Grad.Data, want); at >= 0 {
				t.Fatalf("%s: %s: element %d is %g, want %g", name, p.Name, at, p.Grad.Data[at], want[at])
			}
			if differs(fold, want) >= 0 {
				folded++
			}
		}
		if folded == 0 {
			t.Errorf("%s: the order of additions does not matter here", name)
		}
	}
}
