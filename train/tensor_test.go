package train

import (
	"context"
	"errors"
	"math"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/microscale-go/microscale/comm"
	"github.com/microscale-go/microscale/decoder"
	"github.com/microscale-go/microscale/format"
	"github.com/microscale-go/microscale/hardware/cost"
	"github.com/microscale-go/microscale/internal/slow"
	"github.com/microscale-go/microscale/nn"
	"github.com/microscale-go/microscale/recipe"
)

// divisible returns a run whose layers two ranks can share.
func divisible(t *testing.T, name string) Config {
	t.Helper()
	c := tiny(t, name)
	n, _ := c.Recipe.PartMultiple()
	n = max(32, n)
	c.Model = decoder.Config{VocabSize: 256, HiddenSize: n, IntermediateSize: 2 * n, NumHiddenLayers: 2, NumAttentionHeads: 4,
		NumKeyValueHeads: 2, HeadDim: n, MaxPositionEmbeddings: 32}
	c.Steps, c.Batch, c.Microbatches = 3, 4, 2
	return c
}

// TestTensor trains with two ranks that share every layer, and with four of which each pair has half
// of the microbatches, with the plain optimizer, and with the distributed one or with gathered quantized
// weights, in turn: TestDistributedOptimizer and TestParamGatherRanks have every combination. All have the
// same losses and weights, but for delayed scaling, whose scales depend on the division of the microbatches.
func TestTensor(t *testing.T) {
	for n, r := range recipes() {
		c := divisible(t, r.Name)
		c.Parallel.Tensor = 2
		want, err := runRanks(2, c, nil)
		if err != nil {
			t.Fatalf("%s: %v", r.Name, err)
		}
		for i, change := range []func(c *Config){
			func(*Config) {},
			func(c *Config) { c.Parallel.DistributedOptimizer = true },
			func(c *Config) {
				c.HoldQuantized = c.Recipe.HoldsWeights()
				c.Parallel.DistributedOptimizer = true
				c.Parallel.OverlapParamGather, c.Parallel.ReuseGradBuffer = c.HoldQuantized, c.HoldQuantized
			},
			func(c *Config) {
				c.HoldQuantized = c.Recipe.HoldsWeights()
				c.Parallel.DistributedOptimizer, c.Parallel.GatherBF16 = true, c.HoldQuantized
			},
		} {
			if i > 0 && i != 1+n%3 {
				continue
			}
			own := c
			change(&own)
			got, err := runRanks(4, own, nil)
			if err != nil {
				t.Fatalf("%s, %d: %v", r.Name, i, err)
			}
			if r.Name == "delayed" && i == 0 {
				want = got
			}
			for rank, g := range got {
				if !same(g, want[0]) {
					t.Errorf("%s, %d: rank %d has losses\n%v %v\nwant\n%v %v", r.Name, i, rank, g.TrainLoss, g.Validation, want[0].TrainLoss,
						want[0].Validation)
				}
				if !own.HoldQuantized { // which settles on decoded weights
					sameWeights(t, r, g, want[0])
				}
			}
		}
	}
}

// TestTensorSequence divides the tokens, too, of microbatches that give each rank a multiple of 64 of
// them: losses and weights are those of ranks that do not, under every recipe and option.
func TestTensorSequence(t *testing.T) {
	for i, r := range recipes() {
		c := divisible(t, r.Name)
		n, _ := c.Recipe.PartMultiple()
		c.Sequence = 2 * max(32, n)
		c.Model.MaxPositionEmbeddings, c.ValidationTokens = c.Sequence, 4*c.Sequence
		c.Parallel.Tensor, c.Options.Recompute = 2, r.Name == "mxfp8"
		want, err := runRanks(2, c, nil)
		if err != nil {
			t.Fatalf("%s: %v", r.Name, err)
		}
		c.Parallel.Sequence = true
		for _, ranks := range []int{2, 4} {
			if ranks == 4 && i%2 == 1 {
				continue // TestTensor has four ranks under each recipe
			}
			if ranks == 4 {
				c.HoldQuantized = c.Recipe.HoldsWeights()
				c.Parallel.DistributedOptimizer = true
			}
			got, err := runRanks(ranks, c, nil)
			if err != nil {
				t.Fatalf("%s, %d ranks: %v", r.Name, ranks, err)
			}
			if r.Name == "delayed" && ranks == 4 {
				continue // scales depend on the division of the microbatches
			}
			if !same(got[0], want[0]) {
				t.Errorf("%s, %d ranks: got losses\n%v %v\nwant\n%v %v", r.Name, ranks, got[0].TrainLoss, got[0].Validation, want[0].TrainLoss,
					want[0].Validation)
			}
			if ranks == 2 {
				sameWeights(t, r, got[0], want[0])
				if a, b := got[0].Memory.Activations(), want[0].Memory.Activations(); a >= b {
					t.Errorf("%s: %d bytes of activations, %d without divided tokens", r.Name, a, b)
				}
			}
		}
	}
}

// TestTensorTraffic compares the bytes of activations that ranks count with the formulas of package cost
// for the layers, and with those of embedding, head, loss and norms.
func TestTensorTraffic(t *testing.T) {
	slow.Purego(t, slow.NoKernels)
	slow.Race(t, slow.Repeats)
	for _, name := range []string{"bf16", "tensorwise", "mxfp8", "nvfp4", "mxfp4-rht-sr"} {
		c := divisible(t, name)
		c.Sequence, c.Model.MaxPositionEmbeddings, c.ValidationTokens = 64, 64, 64
		const ranks = 2
		c.Parallel.Tensor = ranks
		for _, sequence := range []bool{false, true} {
			c.Parallel.Sequence = sequence
			got, err := runRanks(ranks, c, nil)
			if err != nil {
				t.Fatal(err)
			}
			tokens, h, layers := c.Batch/c.Microbatches*c.Sequence, c.Model.HiddenSize, c.Model.NumHiddenLayers
			model := cost.Config{Recipe: c.Recipe, Tokens: tokens, Width: h}
			gathers, sums := model.LayerTraffic(ranks, sequence)
			one := (ranks - 1) * float64(2*tokens*h)                          // activations in BF16
			want := float64(layers)*(gathers+sums) + 4*one                    // output of the embedding, dX of the head
			want += ranks * (ranks - 1) * (16*float64(tokens) + gatherHeader) // sums of the loss
			want += ranks * (ranks - 1) * 4 * float64(tokens)                 // maxima of its rows
			if sequence {
				// Half of the sums; the gradient of the embedding, and twice the input of the head.
				want += -2*one + 3*one
				want += float64(2*layers+1) * ranks * (ranks - 1) * (float64(4*h*(tokens/ranks/64)) + gatherHeader)
			}
			if got := float64(got[0].Traffic[nn.TrafficActivations]); got != float64(c.Microbatches)*want {
				t.Errorf("%s, sequence %t: counted %.0f bytes, want %.0f", name, sequence, got, float64(c.Microbatches)*want)
			}
			if n, ok := got[0].Traffic[nn.TrafficAmaxes]; ok != (name == "tensorwise" || name == "nvfp4") {
				t.Errorf("%s, sequence %t: %d bytes of amaxes: only scales of whole tensors need them", name, sequence, n)
			}
		}
	}
}

// gatherHeader is what comm.Group.GatherAll sends of lengths before the data.
const gatherHeader = 16

// TestTensorFloat32 compares ranks that share every layer with one process, without low precision, on
// sequences of equal length and on padded ones: float32 sums in another order change losses and the
// norm of gradients by rounding errors.
func TestTensorFloat32(t *testing.T) {
	slow.Race(t, slow.Repeats)
	for _, padded := range []bool{false, true} {
		c := divisible(t, "f32")
		if padded {
			c.Data = lines(t, 200)
		}
		norms := map[bool][]float64{} // by whether ranks share layers
		shared := false
		c.Progress = func(e Event) {
			if e.Kind == Step {
				norms[shared] = append(norms[shared], e.GradientNorm)
			}
		}
		want := mustRun(t, c)
		shared = true
		for _, sequence := range []bool{false, true} {
			norms[shared] = nil
			c.Parallel.Tensor, c.Parallel.Sequence = 2, sequence
			got, err := runRanks(2, c, nil)
			if err != nil {
				t.Fatal(err)
			}
			near := func(what string, got, want float64) {
				if !(math.Abs(got-want) <= 0x1p-20*want) {
					t.Errorf("padded %t, sequence %t: %s is %v, want %v", padded, sequence, what, got, want)
				}
			}
			for i, l := range got[0].TrainLoss {
				near("the loss", l, want.TrainLoss[i])
				near("the norm", norms[true][i], norms[false][i])
			}
			_, a := got[0].FinalLoss()
			_, b := want.FinalLoss()
			near("the validation loss", a, b)
		}
	}
}

// TestTensorCheckpointRanks writes checkpoints of ranks that share layers, with moments that tell which
// element they belong to, and restores them with other divisions, one process included. Every rank
// has the weights and moments of its part.
func TestTensorCheckpointRanks(t *testing.T) {
	type division struct {
		ranks, tensor int
		distributed   bool
	}
	divisions := []division{{2, 2, false}, {4, 2, false}, {4, 2, true}, {1, 1, false}, {2, 1, true}}
	c := divisible(t, "mxfp8")
	c.HoldQuantized = true
	fresh, err := newRun(c, groups{})
	if err != nil {
		t.Fatal(err)
	}
	for _, from := range divisions {
		c := c
		c.Out = filepath.Join(t.TempDir(), "out")
		of := func(d division, f func(r *run) error) {
			t.Helper()
			err := comm.Run(d.ranks, comm.Options{Timeout: time.Minute}, func(g *comm.Group) error {
				own := c
				own.Parallel.Group, own.Parallel.Tensor, own.Parallel.DistributedOptimizer = g, d.tensor, d.distributed
				split, err := own.Parallel.split()
				if err != nil {
					return err
				}
				r, err := prepare(own, split)
				if err != nil {
					return err
				}
				if r.state.Configuration, err = r.identity(); err != nil {
					return err
				}
				return f(r)
			})
			if err != nil {
				t.Fatalf("%v → %v: %v", from, d, err)
			}
		}
		// Moments are the index of the element in the whole parameter.
		each := func(r *run, f func(i, at, k int)) {
			for i, p := range r.own {
				rows, columns := r.place(i)
				for k := range p.Grad.Rows * p.Grad.Cols {
					f(i, (rows.From+k/p.Grad.Cols)*r.params[i].Located().Cols+columns.From+k%p.Grad.Cols, k)
				}
			}
		}
		of(from, func(r *run) error {
			each(r, func(i, at, k int) { r.moments[i].m[k], r.moments[i].v[k] = float32(at), float32(-at) })
			return r.checkpoint()
		})
		for _, to := range divisions {
			of(to, func(r *run) error {
				each(r, func(i, _, k int) { r.own[i].Value.Data[k] = 0 })
				if err := r.restore(filepath.Join(c.Out, checkpointFolder, stepPrefix+"00000000")); err != nil {
					return err
				}
				each(r, func(i, at, k int) {
					if want := fresh.params[i].Value.Data[at]; r.own[i].Value.Data[k] != want || r.moments[i].m[k] != float32(at) ||
						r.moments[i].v[k] != float32(-at) {
						t.Fatalf("%v → %v: %s, element %d: weight %g, want %g, moments %g and %g", from, to, r.params[i].Name, at, r.own[i].Value.Data[k],
							want, r.moments[i].m[k], r.moments[i].v[k])
					}
				})
				return nil
			})
		}
	}
}

// TestTensorResume interrupts runs of ranks that share layers and resumes them, also with other numbers
// of ranks that divide the microbatches: the losses are those of one run.
func TestTensorResume(t *testing.T) {
	c := divisible(t, "nvfp4")
	c.Parallel.Tensor, c.HoldQuantized = 2, true
	want, err := runRanks(2, c, nil)
	if err != nil {
		t.Fatal(err)
	}
	c.Out, c.CheckpointEvery, c.Resume = t.TempDir(), 0, true
	for _, ranks := range []int{2, 4} {
		ctx, cancel := context.WithCancel(context.Background())
		c.Progress = onStep(0, cancel)
		err := comm.Run(ranks, comm.Options{Timeout: time.Minute}, func(g *comm.Group) error {
			own := c
			own.Parallel.Group = g
			_, err := Run(ctx, own)
			return err
		})
		cancel()
		if interrupted := (*Interrupted)(nil); !errors.As(err, &interrupted) {
			t.Fatalf("%d ranks: %v", ranks, err)
		}
	}
	c.Parallel.DistributedOptimizer = true
	got, err := runRanks(4, c, nil)
	if err != nil {
		t.Fatal(err)
	}
	if !same(got[0], want[0]) {
		t.Errorf("got losses\n%v %v\nwant\n%v %v", got[0].TrainLoss, got[0].Validation, want[0].TrainLoss, want[0].Validation)
	}
}

// TestTensorDelayedRanks checks that tp-only reduction of amaxes gives pairs of ranks scales of their own,
// and that the ranks of a pair have the same.
func TestTensorDelayedRanks(t *testing.T) {
	c := divisible(t, "delayed")
	c.Parallel.Tensor = 2
	all, err := runRanks(4, c, nil)
	if err != nil {
		t.Fatal(err)
	}
	c.Parallel.TensorAmaxOnly = true
	states := make([]map[string][]float32, 4)
	only, err := runRanks(4, c, nil)
	if err != nil {
		t.Fatal(err)
	}
	for rank, r := range only {
		states[rank] = r.Model.State()
	}
	differs := func(a, b map[string][]float32) bool {
		for name, values := range a {
			for i, v := range values {
				if v != b[name][i] {
					return true
				}
			}
		}
		return len(a) == 0
	}
	if differs(states[0], states[1]) || differs(states[2], states[3]) || !differs(states[0], states[2]) {
		t.Error("scales differ within a pair of ranks, or are the same in both pairs")
	}
	if differs(all[0].Model.State(), all[3].Model.State()) {
		t.Error("scales differ between ranks that reduce amaxes over all")
	}
	if a, b := only[0].Traffic[trafficAmax], all[0].Traffic[trafficAmax]; a >= b {
		t.Errorf("%d bytes of amaxes, %d over all ranks", a, b)
	}
}

// TestTensorDiverged checks that ranks that share layers all stop at a loss that is not finite.
func TestTensorDiverged(t *testing.T) {
	c := divisible(t, "bf16")
	c.Parallel.Tensor, c.LearningRate, c.Clip, c.Steps = 2, 1e30, 0, 8
	_, err := runRanks(4, c, nil)
	if diverged := (*Diverged)(nil); !errors.As(err, &diverged) || diverged.Tensor == "" {
		t.Errorf("got %v, want a tensor that is not finite", err)
	}
}

// TestTensorErrors checks models and options that ranks cannot share.
func TestTensorErrors(t *testing.T) {
	for want, change := range map[string]func(c *Config){
		"Parallel.Tensor is 3, want a divisor of the number of ranks, 2": func(c *Config) {
			c.Parallel.Tensor = 3
		},
		"num_key_value_heads is 1, want a multiple of the 2 ranks": func(c *Config) {
			c.Model.NumKeyValueHeads = 1
		},
		"num_key_value_heads is 2, which gives each of 2 ranks 16 columns, want a multiple of 32": func(c *Config) {
			c.Model.HeadDim = 16
			c.Model.NumAttentionHeads = 8
		},
		"Sequence is 32, want a multiple of 64: each of 2 ranks has 32 tokens of a block": func(c *Config) {
			c.Parallel.Sequence = true
		},
		"Parallel.Tensor is 2, but the recipe mxfp8 has scales of whole rows or columns, or rounds weigh": func(c *Config) {
			c.Recipe.Weight.Rowwise.Rounding = format.Stochastic
		},
	} {
		c := divisible(t, "mxfp8")
		c.Parallel.Tensor = 2
		change(&c)
		if _, err := runRanks(2, c, nil); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want %q", err, want)
		}
	}
}

// TestInertOptions checks that options without effect under a recipe or a number of ranks change no loss.
func TestInertOptions(t *testing.T) {
	for name, change := range map[string]func(c *Config){
		"amaxes of nvfp4":      func(c *Config) { c.Parallel.TensorAmaxOnly = true },
		"tokens of one rank":   func(c *Config) { c.Parallel.Sequence, c.Parallel.Tensor = true, 1 },
		"a gather of all rows": func(c *Config) { c.Parallel.OverlapParamGather, c.Parallel.DistributedOptimizer = true, true },
	} {
		c := divisible(t, "nvfp4")
		c.Parallel.Tensor, c.Microbatches = 2, 4
		if name != "amaxes of nvfp4" {
			c.Parallel.Tensor = 1
		}
		want, err := runRanks(4, c, nil)
		if err != nil {
			t.Fatal(err)
		}
		change(&c)
		if got, err := runRanks(4, c, nil); err != nil || !same(got[0], want[0]) {
			t.Errorf("%s: other losses (%v)", name, err)
		}
	}
}

// TestTensorExempt checks that ranks can have parts of blocks if no layer is quantized.
func TestTensorExempt(t *testing.T) {
	c := divisible(t, "mxfp8")
	c.Parallel.Tensor, c.Model.IntermediateSize = 2, 40
	if err := c.checkTensor(2); err == nil {
		t.Error("20 columns on each rank, with blocks of 32: no error")
	}
	c.Options.FirstBF16, c.Options.LastBF16 = c.Model.NumHiddenLayers-1, 1
	if err := c.checkTensor(2); err != nil {
		t.Error(err)
	}
}

// TestPartMultiple checks the multiples at which recipes can be divided.
func TestPartMultiple(t *testing.T) {
	for name, want := range map[string]int{"f32": 1, "tensorwise": 16, "blockwise": 128, "mxfp8": 32, "nvfp4": 16} {
		r, err := recipe.Lookup(name)
		if err != nil {
			t.Fatal(err)
		}
		if got, ok := r.PartMultiple(); got != want || !ok {
			t.Errorf("%s: got %d, %t, want %d", name, got, ok, want)
		}
	}
}
