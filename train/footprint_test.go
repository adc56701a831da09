package train

import (
	"context"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/microscale-go/microscale/comm"
	"github.com/microscale-go/microscale/decoder"
	"github.com/microscale-go/microscale/internal/memory"
	"github.com/microscale-go/microscale/internal/slow"
	"github.com/microscale-go/microscale/nn"
)

// TestFootprint compares the prediction with the memory that a run reports: the model is exact, and
// activations are at least half of the saved ones, but not more.
func TestFootprint(t *testing.T) {
	slow.Purego(t, slow.NoKernels)
	slow.Race(t, slow.Repeats)
	for _, name := range []string{"bf16", "f32", "mxfp8", "nvfp4"} {
		for _, recompute := range []bool{false, true} {
			c := tiny(t, name)
			c.Steps, c.Options.Recompute = 1, recompute
			c.ValidationTokens = c.Sequence // one window: less than a microbatch
			result := mustRun(t, c)
			f := c.footprint()
			if want := float64(20 * result.Parameters); f.model != want { // weights, two moments, gradients of two microbatches
				t.Errorf("%s: model: got %g predicted bytes, want %g", name, f.model, want)
			}
			kept := float64(result.Memory.Activations()) // recomputed: of the layer that is computed again, too
			if f.activations > kept || !recompute && f.activations < kept/2 {
				t.Errorf("%s, recompute %t: activations: got %g predicted bytes, the run saved %g", name, recompute, f.activations, kept)
			}
		}
	}
}

// TestFootprintQuantized checks that the prediction does not exceed the memory of a run with quantized
// weights and activations.
func TestFootprintQuantized(t *testing.T) {
	slow.Purego(t, slow.NoKernels)
	slow.Race(t, slow.Repeats)
	for _, change := range []func(*Config){
		func(c *Config) { c.HoldQuantized = true },
		func(c *Config) { c.Recipe.StoreQuantized = true },
		func(c *Config) { c.Recipe.Attention.DotProduct = true },
	} {
		c := tiny(t, "tensorwise")
		c.Steps, c.ValidationTokens = 1, c.Sequence
		c.Model.HiddenSize, c.Model.IntermediateSize = 512, 512 // logits are a small part
		change(&c)
		result := mustRun(t, c)
		f, m := c.footprint(), result.Memory
		if held := float64(m.Masters + m.Gradients + m.Moments); f.model != held {
			t.Errorf("%+v: model: got %g predicted bytes, want %g", c.Recipe.Attention, f.model, held)
		}
		// Inputs of linear layers and of the last norm, a ninth of two layers', are not predicted.
		if saved := float64(m.Activations() - m.Linear); f.activations > saved || f.activations < 0.8*saved {
			t.Errorf("%+v: activations: got %g predicted bytes, the run saved %g", c.Recipe.Attention, f.activations, saved)
		}
	}
}

// TestMemoryCheck checks the errors for sizes that exceed the memory of the machine, and that nothing
// is written.
func TestMemoryCheck(t *testing.T) {
	defer func() { available = memory.Available }()
	for _, tc := range []struct {
		want string
		set  func(*Config)
	}{
		{"Config.Model.HiddenSize is 1048576: the run needs at least ", func(c *Config) { c.Model.HiddenSize = 1 << 20 }},
		{"Config.Model.IntermediateSize is 1048576: ", func(c *Config) { c.Model.IntermediateSize = 1 << 20; c.Model.HiddenSize = 1 << 16 }},
		{"Config.Model.NumHiddenLayers is 65536: ", func(c *Config) { c.Model.NumHiddenLayers = 1 << 16; c.Model.HiddenSize = 1 << 12 }},
		{"Config.Model.NumHiddenLayers is 65536: ", func(c *Config) { // products beyond int64
			c.Model.HiddenSize, c.Model.IntermediateSize, c.Model.NumHiddenLayers = 1<<20, 1<<20, 1<<16
		}},
		{"Config.Batch is 1099511627776: ", func(c *Config) { c.Batch = 1 << 40 }},
		{"Config.Batch is 4611686018427387904: ", func(c *Config) { c.Batch, c.Microbatches = 1<<62, 1<<40 }},
	} {
		c := DefaultConfig()
		c.Recipe, c.Data = tiny(t, "bf16").Recipe, newCorpus(make([]byte, 1<<16), "test")
		c.Out = filepath.Join(t.TempDir(), "out")
		tc.set(&c)
		c.Model.NumAttentionHeads, c.Model.NumKeyValueHeads = 2, 2
		_, err := Run(context.Background(), c)
		if err == nil || !strings.HasPrefix(err.Error(), tc.want) || !strings.Contains(err.Error(), " are available: lower it") {
			t.Errorf("got %v, want %s", err, tc.want)
		}
		if _, err := os.Stat(c.Out); !os.IsNotExist(err) {
			t.Errorf("%s: the directory was created", tc.want)
		}
	}
	c := tiny(t, "bf16")
	f := c.footprint()
	available = func() int64 { return int64(math.Ceil(f.model + f.activations)) }
	mustRun(t, c)
	available = func() int64 { return int64(f.model) }
	if _, err := Run(context.Background(), c); err == nil || !strings.Contains(err.Error(), "lower it") {
		t.Errorf("one byte too few: got %v", err)
	}
	model, err := decoder.New(c.Model, c.Options, 1)
	if err != nil {
		t.Fatal(err)
	}
	available = func() int64 { return 1000 }
	tokens, targets, err := c.Data.Validation(16, c.Sequence)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Evaluate(context.Background(), model, nn.Scope{Recipe: c.Recipe}, tokens, targets, c.Sequence); err == nil ||
		!strings.Contains(err.Error(), "shorter sequences") {
		t.Errorf("evaluation: got %v", err)
	}
}

// TestFootprintTensor compares the prediction for ranks that share layers with what a rank holds: each has
// half of every matrix, and the norms, which are not predicted twice.
func TestFootprintTensor(t *testing.T) {
	c := divisible(t, "bf16")
	c.Steps, c.Parallel.Tensor, c.ValidationTokens = 1, 2, c.Sequence
	results, err := runRanks(2, c, nil)
	if err != nil {
		t.Fatal(err)
	}
	err = comm.Run(2, comm.Options{}, func(g *comm.Group) error {
		own := c
		own.Parallel.Group = g
		m := results[g.Rank()].Memory
		held := float64(m.Masters + m.Gradients + m.Moments)
		if f := own.footprint(); f.model > held || f.model < 0.95*held {
			t.Errorf("rank %d: got %g predicted bytes of the model, the run held %g", g.Rank(), f.model, held)
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}
