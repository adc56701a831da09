package train

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/microscale-go/microscale/comm"
	"github.com/microscale-go/microscale/internal/slow"
	"github.com/microscale-go/microscale/quant"
	"github.com/microscale-go/microscale/recipe"
)

// TestDistributedOptimizer checks that ranks which optimize different rows have the losses of one
// rank, bit by bit, and its weights, under every recipe but delayed scaling, with and without
// quantized weights. Under delayed scaling, losses are those of the plain optimizer.
func TestDistributedOptimizer(t *testing.T) {
	for _, r := range recipes() {
		for _, hold := range []bool{false, true} {
			if hold && !r.HoldsWeights() {
				continue
			}
			c := tiny(t, r.Name)
			c.Steps, c.Batch, c.Microbatches, c.HoldQuantized = 4, 8, 4, hold
			want := mustRun(t, c)
			for _, ranks := range []int{2, 4} {
				if hold != (ranks == 4) && r.HoldsWeights() {
					continue // held weights among four ranks, others among two
				}
				if r.Name == "delayed" {
					plain, err := runRanks(ranks, c, nil)
					if err != nil {
						t.Fatal(err)
					}
					want = plain[0]
				}
				sharded := c
				sharded.Parallel.DistributedOptimizer = true
				got, err := runRanks(ranks, sharded, nil)
				if err != nil {
					t.Fatalf("%s, %d ranks: %v", r.Name, ranks, err)
				}
				for rank, g := range got {
					if !same(g, want) {
						t.Errorf("%s, quantized %t, rank %d of %d: got losses\n%v %v\nwant\n%v %v", r.Name, hold, rank, ranks, g.TrainLoss, g.Validation,
							want.TrainLoss, want.Validation)
					}
					sameWeights(t, r, g, want)
				}
			}
		}
	}
}

// sameWeights compares the weights of two models as modules use them.
func sameWeights(t *testing.T, r recipe.Recipe, got, want *Result) {
	t.Helper()
	wire := comm.BF16
	if r.Name == "f32" {
		wire = comm.F32
	}
	for i, p := range got.Model.Params() {
		a, b := slices.Clone(p.Value.Data), slices.Clone(want.Model.Params()[i].Value.Data)
		comm.Round(a, a, wire)
		comm.Round(b, b, wire)
		if at := differs(a, b); at >= 0 || len(a) != len(b) {
			t.Errorf("%s: %s differs at element %d", r.Name, p.Name, at)
		}
	}
}

// TestParamGatherRanks runs every combination of the options of the gather of quantized weights, with a
// validation and a checkpoint after every step, and with NaN in the memory of gradients when it is
// handed over. Losses are those of one rank, and memory is what the options promise.
func TestParamGatherRanks(t *testing.T) {
	for _, name := range []string{"mxfp8", "nvfp4", "tensorwise", "blockwise"} {
		if testing.Short() && name != "mxfp8" {
			continue
		}
		c := tiny(t, name)
		c.HoldQuantized, c.ValidateEvery = true, 1
		c.Steps = 4
		want := mustRun(t, c)
		c.Parallel.DistributedOptimizer = true
		for i := range 8 {
			c.Parallel.OverlapParamGather, c.Parallel.ReuseGradBuffer, c.Parallel.GatherBF16 = i&1 > 0, i&2 > 0, i&4 > 0
			c.Out, c.CheckpointEvery = filepath.Join(t.TempDir(), "out"), 1
			poisoned := 0
			results := make([]*Result, 2)
			err := comm.Run(2, comm.Options{Timeout: time.Minute}, func(g *comm.Group) (err error) {
				own := c
				own.Parallel.Group = g
				r, err := prepare(own, groups{data: own.Parallel})
				if err != nil {
					return err
				}
				r.handOver = func(x []float32) {
					for i := range x {
						x[i] = float32(math.NaN())
					}
					if g.Rank() == 0 {
						poisoned++
					}
				}
				results[g.Rank()], err = r.run(context.Background())
				return err
			})
			if err != nil {
				t.Fatalf("%s, %+v: %v", name, c.Parallel, err)
			}
			if (poisoned > 0) != c.Parallel.ReuseGradBuffer {
				t.Errorf("%s: the memory of gradients was handed over %d times", name, poisoned)
			}
			for rank, g := range results {
				if !same(g, want) {
					t.Errorf("%s, rank %d, overlap %t, reuse %t, bf16 %t: got losses\n%v %v\nwant\n%v %v", name, rank, i&1 > 0, i&2 > 0, i&4 > 0,
						g.TrainLoss, g.Validation, want.TrainLoss, want.Validation)
				}
				sameWeights(t, c.Recipe, g, want)
			}
		}
	}
}

// TestGatherMemory checks the memory that the options save: masters and moments by the number of
// ranks, and the memory of messages with ReuseGradBuffer.
func TestGatherMemory(t *testing.T) {
	slow.Purego(t, slow.NoKernels)
	slow.Race(t, slow.Repeats)
	c := tiny(t, "mxfp8")
	c.HoldQuantized, c.Steps = true, 2
	c.Model.IntermediateSize, c.Model.NumHiddenLayers = 512, 4
	run := func(change func(p *Parallel)) *Result {
		t.Helper()
		own := c
		change(&own.Parallel)
		got, err := runRanks(4, own, func(_ int, c *Config) { c.Microbatches = 4 })
		if err != nil {
			t.Fatal(err)
		}
		return got[0]
	}
	plain := run(func(*Parallel) {}).Memory
	sharded := run(func(p *Parallel) { p.DistributedOptimizer = true }).Memory
	overlap := run(func(p *Parallel) { p.DistributedOptimizer, p.OverlapParamGather = true, true }).Memory
	reuse := run(func(p *Parallel) {
		p.DistributedOptimizer, p.OverlapParamGather, p.ReuseGradBuffer = true, true, true
	}).Memory
	t.Logf("plain %+v\nsharded %+v\noverlap %+v\nreuse %+v", plain, sharded, overlap, reuse)
	if sharded.Moments > plain.Moments*2/5 || sharded.Masters > plain.Masters*2/5 {
		t.Errorf("masters %d and moments %d on one of 4 ranks, %d and %d whole", sharded.Masters, sharded.Moments, plain.Masters, plain.Moments)
	}
	if sharded.Total() >= plain.Total() {
		t.Errorf("total %d with the distributed optimizer, %d without", sharded.Total(), plain.Total())
	}
	codes := overlap.Rowwise + overlap.Columnwise // of all linear layers
	if head := 2 * 256 * 32 * 2; overlap.Staging < codes-head || overlap.Staging > codes || sharded.Staging > overlap.Staging/4 ||
		reuse.Staging != 0 {
		t.Errorf("messages of weights: %d at once, %d if one at a time, %d in the memory of gradients; codes and scales have %d bytes",
			overlap.Staging, sharded.Staging, reuse.Staging, codes)
	}
	if reuse.Total() != overlap.Total()-overlap.Staging {
		t.Errorf("total %d with the memory of gradients, %d without", reuse.Total(), overlap.Total())
	}
}

// TestOwners checks that every row of every parameter belongs to exactly one rank, at whole blocks of
// quantized weights, for 1 to 9 ranks.
func TestOwners(t *testing.T) {
	slow.Purego(t, slow.NoKernels)
	for _, name := range []string{"bf16", "mxfp8", "blockwise", "nvfp4"} {
		c := tiny(t, name)
		c.HoldQuantized = c.Recipe.HoldsWeights()
		for ranks := 1; ranks <= 9; ranks++ {
			c.Batch, c.Microbatches = ranks, ranks
			c.Parallel.DistributedOptimizer = true
			err := comm.Run(ranks, comm.Options{}, func(g *comm.Group) error {
				own := c
				own.Parallel.Group = g
				r, err := newRun(own, groups{data: own.Parallel})
				if err != nil {
					return err
				}
				block, _ := c.Recipe.ShardRows()
				for i, cuts := range r.cuts {
					if cuts[0] != 0 || cuts[ranks] != r.params[i].Grad.Rows || !slices.IsSorted(cuts) {
						return errors.New(r.params[i].Name + " is not divided")
					}
					if r.spans[i] != (span{cuts[g.Rank()], cuts[g.Rank()+1]}) && ranks > 1 {
						return errors.New(r.params[i].Name + " has another span")
					}
				}
				for _, s := range r.shards {
					for _, cut := range s.cuts[:ranks] {
						if cut%block != 0 && cut != s.cuts[ranks] {
							return errors.New(s.linear.Name + " is cut within a block")
						}
					}
				}
				return nil
			})
			if err != nil {
				t.Errorf("%s, %d ranks: %v", name, ranks, err)
			}
		}
	}
}

// TestReshard interrupts a run of some ranks and resumes it with others, with and without the
// distributed optimizer: the losses are those of one run.
func TestReshard(t *testing.T) {
	slow.Purego(t, slow.NoKernels)
	for _, name := range []string{"bf16", "mxfp8", "nvfp4"} {
		c := tiny(t, name)
		c.Steps, c.Batch, c.Microbatches, c.HoldQuantized = 14, 8, 4, name == "mxfp8"
		want := mustRun(t, c)
		c.Out, c.CheckpointEvery, c.Resume = t.TempDir(), 0, true
		var got *Result
		for _, job := range []struct {
			ranks   int
			sharded bool
		}{{4, true}, {2, true}, {1, false}, {4, false}, {2, true}, {4, true}} {
			ctx, cancel := context.WithCancel(context.Background())
			own := c
			own.Parallel.DistributedOptimizer = job.sharded
			own.Progress = onStep(0, cancel)
			err := comm.Run(job.ranks, comm.Options{Timeout: time.Minute}, func(g *comm.Group) error {
				own := own
				own.Parallel.Group = g
				_, err := Run(ctx, own)
				return err
			})
			cancel()
			var i *Interrupted
			if !errors.As(err, &i) {
				t.Fatalf("%s: %d ranks: %v", name, job.ranks, err)
			}
			files, err := filepath.Glob(filepath.Join(c.Out, checkpointFolder, "*", "*.safetensors"))
			n := 1
			if job.sharded {
				n = job.ranks
			}
			if err != nil || len(files) != n {
				t.Errorf("%s: %d ranks: files %v, %v, want %d", name, job.ranks, files, err, n)
			}
		}
		c.Parallel.DistributedOptimizer = true
		results, err := runRanks(2, c, nil)
		if err != nil {
			t.Fatal(err)
		}
		if got = results[0]; !same(got, want) {
			t.Errorf("%s: got losses\n%v %v\nwant\n%v %v", name, got.TrainLoss, got.Validation, want.TrainLoss, want.Validation)
		}
	}
}

// TestShardedWriteFails takes the directory of one rank away before the second checkpoint. All ranks
// return an error, nothing of that checkpoint is left, and the run resumes from the first with the
// losses of one run.
func TestShardedWriteFails(t *testing.T) {
	slow.Purego(t, slow.NoKernels)
	c := tiny(t, "bf16")
	c.Steps, c.ValidateEvery = 4, 0
	want := mustRun(t, c)
	for _, broken := range []int{0, 1} {
		dir := t.TempDir()
		c.Out, c.CheckpointEvery, c.Resume = filepath.Join(dir, "out"), 1, false
		c.Parallel.DistributedOptimizer = true
		link := filepath.Join(dir, "link")
		if err := errors.Join(os.Mkdir(c.Out, 0o777), os.Symlink(c.Out, link)); err != nil {
			t.Fatal(err)
		}
		c.Progress = onStep(2, func() { // rank 1 waits for rank 0, whose next work is the checkpoint
			if err := os.Remove(link); err != nil {
				t.Error(err)
			}
		})
		var errs [2]error
		_ = comm.Run(2, comm.Options{Timeout: 10 * time.Second}, func(g *comm.Group) error {
			own := c
			own.Parallel.Group = g
			if g.Rank() == broken {
				own.Out = link
			}
			_, errs[g.Rank()] = Run(context.Background(), own)
			return nil
		})
		for rank, err := range errs {
			text := fmt.Sprint(err)
			if agreed := (*comm.AgreedError)(nil); !errors.As(err, &agreed) || !strings.Contains(text, "the checkpoint of step 2 was not written") ||
				!strings.Contains(text, "the checkpoint of step 1 is kept") {
				t.Errorf("rank %d cannot write: rank %d: got %v", broken, rank, err)
			}
		}
		if files, err := filepath.Glob(filepath.Join(c.Out, checkpointFolder, "*")); err != nil || len(files) != 1 ||
			filepath.Base(files[0]) != stepPrefix+"00000001" {
			t.Errorf("rank %d cannot write: got checkpoints %v, %v", broken, files, err)
		}
		c.Resume, c.Progress = true, nil
		got, err := runRanks(2, c, nil)
		if err != nil {
			t.Fatal(err)
		}
		if !same(got[1], want) {
			t.Errorf("rank %d could not write: resumed losses %v, want %v", broken, got[1].TrainLoss, want.TrainLoss)
		}
	}
}

// TestParallelOptions checks options that conflict.
func TestParallelOptions(t *testing.T) {
	for want, change := range map[string]func(c *Config){
		"Parallel.OverlapParamGather is true, but applies": func(c *Config) {
			c.Parallel.OverlapParamGather = true
		},
		"Parallel.ReuseGradBuffer is true, but applies": func(c *Config) {
			c.Parallel.ReuseGradBuffer = true
			c.HoldQuantized = true
		},
		"Microbatches is 2, want 4, 8, 16 or so on: each of 4 ranks computes a power of two of them": func(*Config) {},
		"Microbatches is 6, want 2, 4, 8 or so on": func(c *Config) {
			c.Batch,
				c.Microbatches = 6, 6
		},
		"Parallel.GatherBF16 is true, but applies": func(c *Config) {
			c.Parallel.GatherBF16 = true
			c.Parallel.DistributedOptimizer = true
		},
	} {
		c := tiny(t, "mxfp8")
		change(&c)
		ranks := 2
		if strings.HasPrefix(want, "Microbatches is 2") {
			ranks = 4
		}
		if _, err := runRanks(ranks, c, nil); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want %q", err, want)
		}
	}
}

// TestGatherBF16Amax: a weight that is gathered in BF16 is quantized by the amax of its BF16 values, also
// under a recipe that does not round weights to BF16 before.
func TestGatherBF16Amax(t *testing.T) {
	c := tiny(t, "tensorwise")
	c.Recipe.Activations = quant.F32
	c.Parallel.DistributedOptimizer, c.Parallel.GatherBF16, c.HoldQuantized = true, true, true
	err := comm.Run(2, comm.Options{Timeout: time.Minute}, func(g *comm.Group) error {
		own := c
		own.Parallel.Group = g
		r, err := prepare(own, groups{data: own.Parallel})
		if err != nil {
			return err
		}
		s := r.scope(0)
		amaxes, err := r.shardAmaxes(&s)
		if err != nil {
			return err
		}
		for i, u := range r.shards {
			fetch, err := r.gatherBF16(&s, u, amaxes[i])
			if err != nil {
				return err
			}
			got, _, err := fetch()
			if err != nil {
				return err
			}
			want := []float32{amaxes[i]}
			comm.Round(want, want, comm.BF16)
			if want[0] == amaxes[i] {
				t.Errorf("weight %d: amax %g has the precision of BF16, and shows nothing", i, amaxes[i])
			}
			if got.Amax != want[0] {
				t.Errorf("weight %d: quantized by the amax %g, want %g", i, got.Amax, want[0])
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}
