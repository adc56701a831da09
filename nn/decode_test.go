package nn

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"unsafe"

	"github.com/microscale-go/microscale/internal/cpu"
	"github.com/microscale-go/microscale/internal/cpu/cputest"
	"github.com/microscale-go/microscale/internal/guard"
	"github.com/microscale-go/microscale/internal/slow"
	"github.com/microscale-go/microscale/quant"
	"github.com/microscale-go/microscale/tensor"
)

// TestDecode compares attention token by token, and by a few tokens, with that of the whole
// sequence, whose scores are products of stacked queries.
func TestDecode(t *testing.T) {
	slow.Emulated(t, slow.OwnProducts)
	const tokens = 150
	for name, a := range map[string]*Attention{
		"groups of 4":   {Heads: 8, KVHeads: 2, HeadDim: 64},
		"one head each": {Heads: 2, KVHeads: 2, HeadDim: 16},
		"odd width":     {Heads: 3, KVHeads: 1, HeadDim: 22},
		"window":        {Heads: 4, KVHeads: 2, HeadDim: 32, Window: 37, Scale: 0.5},
		"sinks":         {Heads: 4, KVHeads: 2, HeadDim: 32, Softcap: 2, Sinks: newParam("sinks", 1, 4)},
	} {
		for _, recipe := range []string{"f32", "bf16"} {
			t.Run(name+"/"+recipe, func(t *testing.T) {
				rng := rand.New(rand.NewPCG(1, 5))
				if a.Sinks != nil {
					copy(a.Sinks.Value.Data, matrix(rng, 1, 4, 1).Data)
				}
				a.Rotary = NewRotary(RotaryConfig{HeadDim: a.HeadDim, Positions: tokens, Base: 1e4})
				s := *scopeOf(t, recipe)
				s.Inference = true
				x := matrix(rng, tokens, a.Width(), 1)
				for i := range x.Data {
					x.Data[i] /= 64
				}
				s.Round(x)
				want, _, err := a.Forward(&s, x.Clone(), 1)
				if err != nil {
					t.Fatal(err)
				}
				tolerance := float64(quant.Amax(want, 1)) * map[string]float64{"f32": 4e-6, "bf16": 0x1p-8}[recipe] // of BF16: a unit
				for _, step := range []int{1, 3, decodeTokens} {
					var cache Cache
					for from := 0; from < tokens; from += step {
						to := min(from+step, tokens)
						s.Threads = 1 + from%2
						o, err := a.Extend(&s, x.View(from, to, 0, x.Cols).Clone(), &cache)
						if err != nil {
							t.Fatal(err)
						}
						for i := range o.Rows {
							for j, got := range o.Row(i) {
								if w := want.At(from+i, j); !(math.Abs(float64(got-w)) <= tolerance) {
									t.Fatalf("by %d, token %d, element %d: got %g, want %g", step, from+i, j, got, w)
								}
							}
						}
					}
				}
			})
		}
	}
}

// TestDecodeThreads checks that the number of threads changes no bit.
func TestDecodeThreads(t *testing.T) {
	slow.Emulated(t, slow.OwnProducts)
	rng := rand.New(rand.NewPCG(1, 6))
	a := &Attention{Heads: 8, KVHeads: 4, HeadDim: 64}
	s := *scopeOf(t, "f32")
	s.Inference = true
	x := matrix(rng, 701, a.Width(), 1)
	var results [2][]float32
	for threads := range results {
		s.Threads = threads + 1
		var cache Cache
		if _, err := a.Extend(&s, x.View(0, 700, 0, x.Cols).Clone(), &cache); err != nil {
			t.Fatal(err)
		}
		o, err := a.Extend(&s, x.View(700, 701, 0, x.Cols).Clone(), &cache)
		if err != nil {
			t.Fatal(err)
		}
		results[threads] = slices.Clone(o.Data)
	}
	if !slices.Equal(results[0], results[1]) {
		t.Error("the result depends on the number of threads")
	}
}

// TestDecodeKernels compares the kernels of every tier with the portable code, bit by bit, in
// guarded memory.
func TestDecodeKernels(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 7))
	guarded := func(m tensor.Dense) []float32 {
		raw := guard.Bytes(t, 4*len(m.Data), guard.End)
		x := unsafe.Slice((*float32)(unsafe.Pointer(&raw[0])), len(m.Data))
		copy(x, m.Data)
		return x
	}
	for _, c := range []struct{ n, dim, stride int }{{1, 16, 16}, {3, 64, 64}, {8, 128, 300}, {5, 80, 83}} {
		rows := guarded(matrix(rng, 1, (c.n-1)*c.stride+c.dim, 1))
		q, p, start := guarded(matrix(rng, 1, c.dim, 1)), guarded(matrix(rng, 1, c.n, 1)), matrix(rng, 1, c.dim, 1)
		run := func() (s, sum []float32) {
			s, sum = guarded(tensor.New(1, c.n)), guarded(start)
			scores(s, q, rows, c.stride)
			addRows(sum, p, rows, c.stride)
			return s, sum
		}
		cputest.Force(t, cpu.Plain)
		wantScores, wantSum := run()
		cputest.Run(t, func(t *testing.T, _ cpu.Tier) {
			t.Run(fmt.Sprintf("n=%d/dim=%d", c.n, c.dim), func(t *testing.T) {
				s, sum := run()
				if !slices.Equal(s, wantScores) {
					t.Errorf("scores: got %v, want %v", s, wantScores)
				}
				if !slices.Equal(sum, wantSum) {
					t.Errorf("addRows: got %v, want %v", sum, wantSum)
				}
			})
		})
	}
}
