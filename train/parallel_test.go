package train

import (
	"context"
	"errors"
	"io/fs"
	"math"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/microscale-go/microscale/comm"
	"github.com/microscale-go/microscale/hardware/cost"
	"github.com/microscale-go/microscale/internal/slow"
	"github.com/microscale-go/microscale/recipe"
)

// runRanks runs c on goroutine ranks, after change, and returns the result of each.
func runRanks(ranks int, c Config, change func(rank int, c *Config)) ([]*Result, error) {
	results := make([]*Result, ranks)
	err := comm.Run(ranks, comm.Options{Timeout: time.Minute}, func(g *comm.Group) (err error) {
		own := c
		own.Parallel.Group = g
		if change != nil {
			change(g.Rank(), &own)
		}
		results[g.Rank()], err = Run(context.Background(), own)
		return err
	})
	return results, err
}

// TestRanks checks that 2 and 4 ranks have the losses and the weights of one rank with the same
// microbatches, bit by bit, under every recipe but delayed scaling. Under delayed scaling the ranks
// have those of each other.
func TestRanks(t *testing.T) {
	for _, r := range recipes() {
		c := tiny(t, r.Name)
		c.Steps, c.Batch, c.Microbatches, c.ValidationTokens = 4, 8, 4, 1024 // two batches of an evaluation
		want := mustRun(t, c)
		for _, ranks := range []int{2, 4} {
			got, err := runRanks(ranks, c, nil)
			if err != nil {
				t.Fatalf("%s, %d ranks: %v", r.Name, ranks, err)
			}
			for rank, g := range got {
				if r.Name == "delayed" {
					want = got[0]
				}
				if !same(g, want) || !slices.Equal(g.Sequences, want.Sequences) {
					t.Errorf("%s, rank %d of %d: got losses\n%v %v\nwant\n%v %v", r.Name, rank, ranks, g.TrainLoss, g.Validation, want.TrainLoss,
						want.Validation)
				}
				for i, p := range g.Model.Params() {
					if at := differs(p.Value.Data, want.Model.Params()[i].Value.Data); at >= 0 {
						t.Errorf("%s, rank %d of %d: %s differs at element %d", r.Name, rank, ranks, p.Name, at)
					}
				}
			}
		}
	}
}

// TestDelayedRanks checks that delayed scaling uses the amaxes of all ranks: all have the same scales
// after steps on different data.
func TestDelayedRanks(t *testing.T) {
	c := tiny(t, "delayed")
	c.Steps, c.Microbatches = 2, 4
	got, err := runRanks(4, c, nil)
	if err != nil {
		t.Fatal(err)
	}
	want := got[0].Model.State()
	if len(want) == 0 {
		t.Fatal("no state")
	}
	for rank, g := range got {
		for name, s := range g.Model.State() {
			if !slices.Equal(s, want[name]) {
				t.Errorf("rank %d: %s: state %v, want %v", rank, name, s, want[name])
			}
		}
	}
}

// TestGradReduce trains with gradients in every format: all ranks have the same weights, the loss is
// near that of FP32, and the error of the gradients is that of the format.
func TestGradReduce(t *testing.T) {
	c := tiny(t, "mxfp8")
	want := mustRun(t, c)
	for name, bounds := range map[string][2]float64{"bf16": {45, 60}, "mxfp8": {25, 40}, "fp8-blocks": {25, 40}} {
		wire, err := comm.ParseWire(name)
		if err != nil {
			t.Fatal(err)
		}
		c.Parallel.GradReduce = wire
		got, err := runRanks(2, c, nil)
		if err != nil {
			t.Fatal(err)
		}
		for i, p := range got[0].Model.Params() {
			if at := differs(p.Value.Data, got[1].Model.Params()[i].Value.Data); at >= 0 {
				t.Errorf("%s: %s differs between the ranks at element %d", name, p.Name, at)
			}
		}
		a, _ := got[0].FinalLoss()
		b, _ := want.FinalLoss()
		if same(got[0], want) || a-b > 0.02 || b-a > 0.02 {
			t.Errorf("%s: final loss %g, in FP32 %g: want another within 0.02", name, a, b)
		}
		if db := got[0].GradSQNR; db < bounds[0] || db > bounds[1] {
			t.Errorf("%s: gradients have %g dB, want %g to %g", name, db, bounds[0], bounds[1])
		}
		t.Logf("%s: final loss %.6f, in FP32 %.6f, gradients %.1f dB, bytes %v", name, a, b, got[0].GradSQNR, got[0].Traffic)
	}
}

// TestHandshake starts ranks that differ.
func TestHandshake(t *testing.T) {
	c := tiny(t, "bf16")
	for want, change := range map[string]func(c *Config){
		`configuration.seed is 1 on rank 0 and 2 on rank 1`:                 func(c *Config) { c.Seed = 2 },
		`configuration.data is `:                                            func(c *Config) { c.Data = newCorpus(synthesize(1<<14), synthetic) },
		`program is "" on rank 0 and "v2" on rank 1`:                        func(c *Config) { c.Parallel.Program = "v2" },
		`grad_reduce is "f32" on rank 0 and "bf16" on rank 1`:               func(c *Config) { c.Parallel.GradReduce = comm.BF16 },
		`distributed_optimizer is false on rank 0 and true on rank 1`:       func(c *Config) { c.Parallel.DistributedOptimizer = true },
		`checkpoint_every is 2 on rank 0 and 3 on rank 1`:                   func(c *Config) { c.CheckpointEvery = 3 },
		`writes_checkpoints is false on rank 0 and true on rank 1`:          func(c *Config) { c.Out = filepath.Join(t.TempDir(), "out") },
		`configuration.recipe.name is "bf16" on rank 0 and "f32" on rank 1`: func(c *Config) { c.Recipe, _ = recipe.Lookup("f32") },
		`rank 1: Config.Steps is 0, want at least 1`:                        func(c *Config) { c.Steps = 0 },
	} {
		_, err := runRanks(2, c, func(rank int, c *Config) {
			if rank == 1 {
				change(c)
			}
		})
		if agreed := (*comm.AgreedError)(nil); !errors.As(err, &agreed) || !strings.Contains(err.Error(), want) {
			if !strings.HasPrefix(want, "rank 1: ") || err == nil || !strings.Contains(err.Error(), strings.TrimPrefix(want, "rank 1: ")) {
				t.Errorf("error %v, want %q", err, want)
			}
		}
	}
}

// TestHandshakeGather starts ranks that differ in one option of the gather of quantized weights.
func TestHandshakeGather(t *testing.T) {
	c := tiny(t, "mxfp8")
	c.HoldQuantized, c.Parallel.DistributedOptimizer = true, true
	for name, option := range map[string]func(p *Parallel){
		"gather_bf16":          func(p *Parallel) { p.GatherBF16 = true },
		"overlap_param_gather": func(p *Parallel) { p.OverlapParamGather = true },
		"reuse_grad_buffer":    func(p *Parallel) { p.ReuseGradBuffer = true },
	} {
		_, err := runRanks(2, c, func(rank int, c *Config) {
			if rank == 1 {
				option(&c.Parallel)
			}
		})
		if agreed := (*comm.AgreedError)(nil); !errors.As(err, &agreed) || !strings.Contains(err.Error(),
			name+" is false on rank 0 and true on rank 1") {
			t.Errorf("error %v, want %s", err, name)
		}
	}
}

// TestAgree checks that a rank with an error returns its own, and the others that of the first rank, with
// its type.
func TestAgree(t *testing.T) {
	var errs [3]error
	busy := &DirectoryError{Problem: "out: another run is writing to it", Busy: true, Remedies: []string{"Out"}}
	if err := comm.Run(3, comm.Options{}, func(g *comm.Group) error {
		p := &Parallel{Group: g}
		errs[g.Rank()] = p.agree([]error{nil, busy, ErrDone}[g.Rank()])
		return p.agree(nil)
	}); err != nil {
		t.Fatal(err)
	}
	if want := "rank 1: " + busy.Error(); errs[0].Error() != want {
		t.Errorf("rank 0: got %v, want %s", errs[0], want)
	}
	if e, ok := errors.AsType[*DirectoryError](errs[0]); !ok || !reflect.DeepEqual(e, busy) {
		t.Errorf("rank 0: got %#v, want %#v", e, busy)
	}
	if e, ok := errors.AsType[*DirectoryError](errs[1]); !ok || e != busy || !errors.Is(errs[2], ErrDone) {
		t.Errorf("got %v, want the errors of the ranks", errs)
	}
	for _, err := range errs {
		if agreed := (*comm.AgreedError)(nil); !errors.As(err, &agreed) {
			t.Errorf("%v is not a comm.AgreedError", err)
		}
	}
}

// TestRanksDirectory starts runs of two ranks in directories that they cannot use: every rank returns a
// *DirectoryError with the same remedies.
func TestRanksDirectory(t *testing.T) {
	c := tiny(t, "bf16")
	c.Steps, c.Out = 1, filepath.Join(t.TempDir(), "out")
	mustRun(t, c)
	resumed := c
	resumed.Resume = true
	for name, tc := range map[string]struct {
		config Config
		want   DirectoryError
		match  error
	}{
		"new":     {c, DirectoryError{Taken: true, Remedies: []string{"Force", "Out"}}, fs.ErrExist},
		"resumed": {resumed, DirectoryError{Done: true}, ErrDone},
	} {
		var errs [2]error
		if err := comm.Run(2, comm.Options{}, func(g *comm.Group) error {
			own := tc.config
			own.Parallel.Group = g
			_, errs[g.Rank()] = Run(t.Context(), own)
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		for rank, err := range errs {
			e, ok := errors.AsType[*DirectoryError](err)
			if !ok || e.Taken != tc.want.Taken || e.Done != tc.want.Done || !slices.Equal(e.Remedies, tc.want.Remedies) ||
				!errors.Is(err, tc.match) {
				t.Errorf("%s, rank %d: got %v, want %+v", name, rank, err, tc.want)
			}
		}
	}
}

// failing are batches that cannot be read in a step.
type failing struct{ Batches }

var errFailing = errors.New("the disk is broken")

func (f failing) Training(seed uint64, step, sequences, length int) (tokens, targets []int32, err error) {
	if sequences > 1 {
		return nil, nil, errFailing
	}
	return f.Batches.Training(seed, step, sequences, length)
}

// TestGradientsError has a rank that cannot read its microbatches. Ranks with other microbatches learn of it
// after their backward pass, with the rank in the error. Ranks that share its layers wait for it in their
// forward pass: it returns at once, which aborts the job.
func TestGradientsError(t *testing.T) {
	for tensor, want := range map[int]string{1: "the job was aborted: rank 1: training data: the disk is broken", 2: "the disk is broken"} {
		c := divisible(t, "bf16")
		c.Parallel.Tensor = tensor
		var errs [2]error
		err := comm.Run(2, comm.Options{Timeout: time.Minute}, func(g *comm.Group) error {
			own := c
			own.Parallel.Group = g
			if g.Rank() == 1 {
				own.Data = failing{c.Data}
			}
			_, err := Run(context.Background(), own)
			errs[g.Rank()] = err
			if g.Rank() == 0 && tensor == 1 {
				return nil // what the exchange told it, and not the abort
			}
			return err
		})
		if !errors.Is(errs[1], errFailing) || errors.Is(errs[1], comm.ErrAborted) || !errors.Is(err, errFailing) {
			t.Errorf("tp %d: rank 1: got %v", tensor, errs[1])
		}
		if !errors.Is(errs[0], comm.ErrAborted) || !strings.Contains(errs[0].Error(), want) {
			t.Errorf("tp %d: rank 0: got %v, want %q", tensor, errs[0], want)
		}
	}
}

// TestDivergedRank has a NaN on rank 1, and wants all ranks to stop with its name.
func TestDivergedRank(t *testing.T) {
	for _, wire := range []string{"fp32", "mxfp8", "fp8-blocks"} {
		c := tiny(t, "bf16")
		c.Parallel.GradReduce, _ = comm.ParseWire(wire)
		var errs [2]error
		err := comm.Run(2, comm.Options{Timeout: time.Minute}, func(g *comm.Group) error {
			own := c
			own.Parallel.Group = g
			r, err := prepare(own, groups{data: own.Parallel})
			if err != nil {
				return err
			}
			if err := r.open(); err != nil {
				return err
			}
			if err := r.step(t.Context()); err != nil {
				return err
			}
			if g.Rank() == 1 {
				r.params[len(r.params)-2].Value.Data[3] = float32(math.NaN())
			}
			errs[g.Rank()] = r.step(t.Context())
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		for rank, err := range errs {
			var d *Diverged
			if !errors.As(err, &d) || d.Step != 2 || d.Rank != 1 || !strings.Contains(err.Error(),
				"the first tensor with NaN or Inf on rank 1 is model.norm.weight: 1 NaN, 0 Inf") {
				t.Errorf("%s: rank %d: %v", wire, rank, err)
			}
		}
	}
}

// TestTraffic compares the bytes that are counted with the formulas of microscale cost: gradients are reduced to
// parts, and gathered without the distributed optimizer, in the bytes of their format; of weights, both
// MXFP8 copies have 33/32 of the bytes of BF16. NVFP4 has 9/32 with a scale for 16 elements; weights have
// one for 16×16, and no second copy: 129/512.
func TestTraffic(t *testing.T) {
	slow.Purego(t, slow.NoKernels)
	slow.Race(t, slow.Repeats)
	bf16 := 2.0
	for _, tc := range []struct {
		recipe, wire string
		bytes        float64 // of a gradient
		weight       float64 // of a weight, in bytes of BF16
	}{
		{"bf16", "fp32", 4, 0}, {"bf16", "bf16", 2, 0}, {"mxfp8", "mxfp8", 2 * 33. / 64, 33. / 32},
		{"nvfp4", "fp8-blocks", 2 * 33. / 64, 129. / 512},
		{"tensorwise", "bf16", 2, 1. / 2}, {"blockwise", "bf16", 2, 1./2 + 1./8192}, {"mxfp4", "mxfp8", 2 * 33. / 64, 17. / 32},
	} {
		c := tiny(t, tc.recipe)
		c.Model.HiddenSize, c.Model.IntermediateSize, c.Model.NumAttentionHeads, c.Model.NumKeyValueHeads = 128, 128, 2, 1
		c.Steps, c.ValidateEvery, c.ValidationTokens, c.Batch, c.Microbatches = 2, 0, 32, 4, 4
		c.Parallel.GradReduce, _ = comm.ParseWire(tc.wire)
		for _, ranks := range []int{2, 4} {
			if ranks == 4 && tc.recipe != "nvfp4" {
				continue // ranks and bytes are factors of the formulas
			}
			for _, sharded := range []bool{false, true} {
				c.HoldQuantized, c.Parallel.DistributedOptimizer = sharded && tc.weight > 0, sharded
				got, err := runRanks(ranks, c, nil)
				if err != nil {
					t.Fatal(err)
				}
				n, linear, weights := float64(got[0].Parameters), 0.0, 0.0
				for _, l := range got[0].Model.Linears() {
					rows, cols := l.Weight.Grad.Rows, l.Weight.Grad.Cols
					linear += float64(rows * cols)
					weights += cost.WeightBytes(c.Recipe, rows, cols)
				}
				if c.HoldQuantized && weights != linear*tc.weight*bf16 {
					t.Errorf("%s: weights have %g bytes, want %g of BF16's", tc.recipe, weights, tc.weight)
				}
				want := map[string]float64{trafficGradients: 2 * float64(ranks-1) * n * tc.bytes}
				if sharded {
					want[trafficGradients] /= 2
					if !c.HoldQuantized {
						linear, weights = 0, 0
					}
					want[trafficWeights], want[trafficParameters] = float64(ranks-1)*weights, float64(ranks-1)*(n-linear)*bf16
				}
				for _, purpose := range []string{trafficGradients, trafficWeights, trafficParameters} {
					if got := float64(got[0].Traffic[purpose]); got != want[purpose] {
						t.Errorf("%s, gradients in %s, %d ranks, distributed %t: %s: counted %.0f bytes, want %.0f", tc.recipe, tc.wire, ranks, sharded,
							purpose, got, want[purpose])
					}
				}
			}
		}
	}
}
