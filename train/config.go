// Package train trains a language model under a recipe: text, optimizer,
// schedule, loop, and checkpoints that resume to the bit.
//
//	Corpus → windows of (seed, step) → llama.Model.Train (microbatches, gradients summed in FP32)
//	       → norm, clip → AdamW on FP32 master weights → the next step
//
// Everything that a step does follows from the configuration and the number of
// the step: the same seed gives the same losses to the bit, on any number of
// threads, in one run or resumed.
package train

import (
	"fmt"

	"github.com/microscale-go/microscale/llama"
	"github.com/microscale-go/microscale/recipe"
)

// Config is a run. DefaultConfig has one that works.
type Config struct {
	Model   llama.Config
	Options llama.Options
	Recipe  recipe.Recipe
	Corpus  *Corpus

	Steps        int
	Batch        int // sequences in a step
	Microbatches int // parts of the batch, whose gradients are summed; divides it
	Sequence     int // tokens in a sequence

	// HoldQuantized has the weights that the recipe quantizes be held as codes and
	// scales between steps, as Megatron-LM's --fp8-param-gather does: the optimizer
	// alone has the FP32 master weights, and the model that is saved has the values
	// of the codes.
	HoldQuantized bool

	Optimizer    AdamW
	LearningRate float64 // the peak
	Schedule     Schedule
	Warmup       float64 // fraction of the steps
	Clip         float64 // largest norm of the gradients; 0: any

	Seed    uint64 // of the model, the windows and the random bits
	Threads int    // goroutines; 0: one per processor

	ValidationTokens int // read at each validation, the same ones every time
	ValidateEvery    int // steps; 0: at the end only

	Out             string   // directory of checkpoints and of the model; "": nothing is written
	CheckpointEvery int      // steps; 0: at the start and when interrupted
	Resume          bool     // resume from the checkpoint in Out; start where an earlier run left none
	Force           bool     // replace the run in Out, or the model that it left
	Arguments       []string // kept in the checkpoint for who resumes (see Stored)
}

// DefaultConfig returns a small model, of about a million parameters, and a run
// that teaches it something in a minute or two.
func DefaultConfig() Config {
	return Config{
		Model: llama.Config{
			VocabSize: 256, HiddenSize: 128, IntermediateSize: 384, NumHiddenLayers: 4, NumAttentionHeads: 4, NumKeyValueHeads: 2,
		},
		Steps: 300, Batch: 8, Microbatches: 1, Sequence: 128,
		Optimizer: DefaultAdamW, LearningRate: 1e-3, Schedule: Cosine, Warmup: 0.1, Clip: 1,
		Seed: 1, ValidationTokens: 8192, ValidateEvery: 50, CheckpointEvery: 50,
	}
}

// Validate reports what makes a configuration unusable. Numbers are named by
// the flags that set them.
func (c *Config) Validate() error {
	for _, n := range []struct {
		name         string
		value, least int
	}{
		{"steps", c.Steps, 1}, {"batch", c.Batch, 1}, {"microbatches", c.Microbatches, 1}, {"sequence", c.Sequence, 1},
		{"eval-tokens", c.ValidationTokens, c.Sequence}, {"eval-every", c.ValidateEvery, 0}, {"checkpoint-every", c.CheckpointEvery, 0},
	} {
		if n.value < n.least {
			return fmt.Errorf("%s is %d: at least %d is needed", n.name, n.value, n.least)
		}
	}
	for _, n := range []struct {
		name        string
		value, most float64
		open        bool // 0 is not allowed
	}{
		{"learning-rate", c.LearningRate, 1e30, true}, {"warmup", c.Warmup, 1, false}, {"clip", c.Clip, 1e30, false}, {"weight-decay", c.Optimizer.Decay, 1e30, false},
	} {
		if !(n.value >= 0 && n.value <= n.most) || n.open && n.value == 0 {
			return fmt.Errorf("%s is %g: a number from 0 to %g is needed", n.name, n.value, n.most)
		}
	}
	if c.Batch%c.Microbatches != 0 {
		return fmt.Errorf("microbatches is %d, which does not divide the batch of %d sequences", c.Microbatches, c.Batch)
	}
	if first, last, n := c.Options.FirstBF16, c.Options.LastBF16, c.Model.NumHiddenLayers; first < 0 || first > n {
		return fmt.Errorf("num-layers-at-start-in-bf16 is %d, of %d layers: give from 0 to %d", first, n, n)
	} else if last < 0 || last > n-first {
		return fmt.Errorf("num-layers-at-end-in-bf16 is %d, of %d layers, %d of them kept in BF16 at the start: give from 0 to %d", last, n, first, n-first)
	}
	if err := c.divisible(); err != nil {
		return err
	}
	if c.HoldQuantized && !holds(c.Recipe) {
		return fmt.Errorf("fp8-param: the recipe %s does not quantize weights to values that they could be held in: leave it out", c.Recipe.Name)
	}
	return nil
}

// holds reports whether the recipe quantizes weights to values that they can be held in.
func holds(r recipe.Recipe) bool {
	w := r.Weight.Rowwise
	return w.Format.Scaled() && !w.Hadamard
}

// Under returns c with the recipe r, as one of several that are compared: those that
// do not quantize weights do not hold them quantized.
func (c Config) Under(r recipe.Recipe) Config {
	c.Recipe, c.HoldQuantized = r, c.HoldQuantized && holds(r)
	return c
}

// divisible reports a width of the model that the recipe cannot quantize.
func (c *Config) divisible() error {
	m := c.Model.WithDefaults()
	if c.Options.FirstBF16+c.Options.LastBF16 == m.NumHiddenLayers {
		return nil
	}
	rows, cols := c.Recipe.Divisor()
	n := max(rows, cols)
	q, kv := m.NumAttentionHeads*m.HeadDim, m.NumKeyValueHeads*m.HeadDim
	for _, w := range []struct {
		name        string
		value, wide int
		of          string
	}{
		{"hidden", m.HiddenSize, m.HiddenSize, "the model is"},
		{"intermediate", m.IntermediateSize, m.IntermediateSize, "the feed-forward layers are"},
		{"heads", m.NumAttentionHeads, q, "queries together are"},
		{"kv-heads", m.NumKeyValueHeads, q + 2*kv, "queries, keys and values together are"},
	} {
		if w.wide%n != 0 {
			return fmt.Errorf("%s is %d: %s %d wide, and the recipe %s takes multiples of %d", w.name, w.value, w.of, w.wide, c.Recipe.Name, n)
		}
	}
	return nil
}
