// Package train trains a language model under a recipe: data, optimizer, schedule, loop, and
// checkpoints that resume bit-exactly.
//
//	Batches → microbatches of (seed, step) → decoder.Model.Train (one gradient each, in FP32)
//	        → sum in a binary tree over the index of the microbatch
//	        → gradient norm, clipping → AdamW on FP32 master weights → the next step
//
// A step depends only on the configuration and its number: the same seed gives bit-identical losses
// for any number of threads, in one run or resumed.
package train

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/microscale-go/microscale/decoder"
	"github.com/microscale-go/microscale/internal/configjson"
	"github.com/microscale-go/microscale/internal/naming"
	"github.com/microscale-go/microscale/nn"
	"github.com/microscale-go/microscale/recipe"
)

// Config describes a run. DefaultConfig returns one that needs only Recipe and Data.
type Config struct {
	Model   decoder.Config
	Options decoder.Options
	Recipe  recipe.Recipe
	Data    Batches

	Steps        int
	Batch        int // sequences per step
	Microbatches int // per step; a divisor of Batch
	Sequence     int // tokens per sequence

	// HoldQuantized holds the weights that the recipe quantizes as codes and scales between steps,
	// like Megatron-LM's --fp8-param-gather: only the optimizer has the FP32 master weights, and
	// the saved model has the decoded values.
	HoldQuantized bool

	Optimizer    AdamW
	LearningRate float64 // peak
	Schedule     Schedule
	Warmup       float64 // fraction of the steps
	Clip         float64 // maximum gradient norm; 0: no clipping

	Parallel Parallel // ranks that share the run

	Seed    uint64 // of initialization, data order and stochastic rounding
	Threads int    // goroutines; 0: one per processor

	ValidationTokens int // per validation
	ValidateEvery    int // steps; 0: only at the end

	Out             string   // directory of checkpoints and of the model; "": nothing is written
	CheckpointEvery int      // steps; 0: only at the start and when interrupted
	Resume          bool     // resume from the checkpoint in Out, or start if Out is an empty directory
	Force           bool     // replace the run or model in Out
	Arguments       []string // stored in checkpoints; see LastCheckpoint

	Progress func(Event) // called from the goroutine of Run on rank 0; may be nil

	// Observer returns the observer of a step, counted from 1; nil observes nothing. It observes the
	// microbatches of rank 0. An observer slows the step down.
	Observer func(step int) nn.Observer
}

// An Event reports the progress of a run.
type Event struct {
	Kind        EventKind
	Step, Steps int // steps done and steps of the run

	Loss float64 // nats per token: of the batch before the update, or of the validation data

	// Of a step.
	GradientNorm float64 // before clipping
	LearningRate float64
	Tokens       int // without padding
	Elapsed      time.Duration

	Err error // of a resume: why a later checkpoint was not used; otherwise nil
}

// String returns the event in one line.
func (e Event) String() string {
	switch e.Kind {
	case Step:
		return fmt.Sprintf("step %d of %d: loss %.4f", e.Step, e.Steps, e.Loss)
	case Validation:
		return fmt.Sprintf("step %d of %d: validation loss %.4f", e.Step, e.Steps, e.Loss)
	}
	text := "the run starts from the beginning"
	if e.Step > 0 {
		text = fmt.Sprintf("the run resumes after step %d of %d", e.Step, e.Steps)
	}
	if e.Err != nil {
		text += fmt.Sprintf(" (%v)", e.Err)
	}
	return text
}

// An EventKind is what an event reports.
type EventKind uint8

const (
	Resume     EventKind = iota // the run begins, or resumes after a step
	Step                        // a step is done
	Validation                  // the loss of the validation data is known
)

var eventNames = []string{"resume", "step", "validation"}

// String returns the name, such as "step".
func (k EventKind) String() string { return naming.String("EventKind", eventNames, k) }

// report calls Progress.
func (c *Config) report(e Event) {
	if c.Progress != nil && c.Parallel.rank() == 0 {
		e.Steps = c.Steps
		c.Progress(e)
	}
}

// Batches provides the data of a run. Its methods are functions of their arguments alone, so that
// runs resume bit-exactly. A run calls them from one goroutine at a time; runs that are ranks of one
// process call those of a common Batches concurrently.
//
// A batch is a number of contiguous sequences of equal length: token ids of the model's vocabulary,
// and for each token its target, the token that follows. Targets below 0 do not count. Shorter
// sequences end with Padding, as token and as target: losses and gradients do not depend on it.
type Batches interface {
	// Training returns the sequences of a step, counted from 0. Each microbatch takes consecutive
	// ones.
	Training(seed uint64, step, sequences, length int) (tokens, targets []int32, err error)

	// Validation returns at most the given number of sequences, at least one, which no step trains
	// on.
	Validation(sequences, length int) (tokens, targets []int32, err error)

	// Digest identifies the data. A run resumes only with data of the same digest.
	Digest() string
}

// DefaultConfig returns a model of about a million parameters and a run of a minute or two, without
// Recipe and Data.
func DefaultConfig() Config {
	return Config{
		Model: decoder.Config{
			VocabSize: 256, HiddenSize: 128, IntermediateSize: 384, NumHiddenLayers: 4, NumAttentionHeads: 4, NumKeyValueHeads: 2,
		},
		Steps: 300, Batch: 8, Microbatches: 1, Sequence: 128,
		Optimizer:    AdamW{Beta1: 0.9, Beta2: 0.95, Epsilon: 1e-8, Decay: 0.1}, // of the Llama papers
		LearningRate: 1e-3, Schedule: cosine, Warmup: 0.1, Clip: 1,
		Seed: 1, ValidationTokens: 8192, ValidateEvery: 50, CheckpointEvery: 50,
	}
}

// A ConfigError is an invalid field of a Config.
type ConfigError struct {
	Field   string // such as "Steps" or "Model.HiddenSize"
	Problem string // such as "is 0, want at least 1"

	keys error // a *configjson.KeyError: the field and the problem
}

func (e *ConfigError) Error() string { return fmt.Sprintf("Config.%s %s", e.Field, e.Problem) }

// Unwrap returns an error whose text is the field and the problem.
func (e *ConfigError) Unwrap() error { return e.keys }

// invalid returns a *ConfigError. args of type configjson.Key are names of other fields.
func invalid(field, format string, args ...any) error {
	return &ConfigError{field, fmt.Sprintf(format, args...),
		configjson.Invalid("%s "+format, append([]any{configjson.Key(field)}, args...)...)}
}

// Validate returns a *ConfigError if a field other than Data is invalid.
func (c *Config) Validate() error {
	for _, n := range []struct {
		field      string
		value, min int
	}{
		{"Steps", c.Steps, 1}, {"Batch", c.Batch, 1}, {"Microbatches", c.Microbatches, 1}, {"Sequence", c.Sequence, 1},
		{"ValidationTokens", c.ValidationTokens, c.Sequence}, {"ValidateEvery", c.ValidateEvery, 0}, {"CheckpointEvery", c.CheckpointEvery, 0},
	} {
		if n.value < n.min {
			return invalid(n.field, "is %d, want at least %d", n.value, n.min)
		}
	}
	for _, n := range []struct {
		field      string
		value, max float64
		positive   bool
	}{
		{"LearningRate", c.LearningRate, 1e30, true}, {"Warmup", c.Warmup, 1, false}, {"Clip", c.Clip, 1e30, false},
		{"Optimizer.Decay", c.Optimizer.Decay, 1e30, false},
	} {
		if !(n.value >= 0 && n.value <= n.max) || n.positive && n.value == 0 {
			return invalid(n.field, "is %g, want a number from 0 to %g", n.value, n.max)
		}
	}
	if c.Batch%c.Microbatches != 0 {
		return invalid("Microbatches", "is %d, want a divisor of the batch of %d sequences", c.Microbatches, c.Batch)
	}
	if err := c.CheckRanks(c.Parallel.ranks()); err != nil {
		return err
	}
	if first, last, n := c.Options.FirstBF16, c.Options.LastBF16, c.Model.NumHiddenLayers; first < 0 || first > n {
		return invalid("Options.FirstBF16", "is %d, want 0 to %d, the number of layers", first, n)
	} else if last < 0 || last > n-first {
		return invalid("Options.LastBF16", "is %d, want 0 to %d: %d of %d layers are in BF16 at the start", last, n-first, first, n)
	}
	if _, err := c.Schedule.MarshalText(); err != nil {
		return invalid("Schedule", "is %q, want one of %s", string(c.Schedule), strings.Join(scheduleNames(), ", "))
	}
	if err := c.checkWidths(); err != nil {
		return err
	}
	if c.HoldQuantized && !c.Recipe.HoldsWeights() {
		return invalid("HoldQuantized", "is true, but the recipe %s does not quantize weights to values that can be held", c.Recipe.Name)
	}
	return nil
}

// Under returns c with the recipe r, for a comparison of recipes: HoldQuantized is false if r does
// not support it, and so are the options of the gather of quantized weights.
func (c Config) Under(r recipe.Recipe) Config {
	c.Recipe, c.HoldQuantized = r, c.HoldQuantized && r.HoldsWeights()
	if p := &c.Parallel; !c.HoldQuantized {
		p.GatherBF16, p.OverlapParamGather, p.ReuseGradBuffer = false, false, false
	}
	return c
}

// checkWidths returns an error if the recipe cannot quantize a width of the model.
func (c *Config) checkWidths() error {
	m := c.Model.WithDefaults()
	if c.Options.FirstBF16+c.Options.LastBF16 == m.NumHiddenLayers {
		return nil
	}
	rows, cols := c.Recipe.Divisor()
	n := max(rows, cols)
	q, kv := m.NumAttentionHeads*m.HeadDim, m.NumKeyValueHeads*m.HeadDim
	for _, w := range []struct {
		field        string
		value, width int
		what         string
	}{
		{"Model.HiddenSize", m.HiddenSize, m.HiddenSize, "the width of the model"},
		{"Model.IntermediateSize", m.IntermediateSize, m.IntermediateSize, "the width of the feed-forward layers"},
		{"Model.NumAttentionHeads", m.NumAttentionHeads, q, "the width of the queries"},
		{"Model.NumKeyValueHeads", m.NumKeyValueHeads, q + 2*kv, "the width of queries, keys and values together"},
	} {
		if w.width%n != 0 {
			return invalid(w.field, "is %d: %s is %d, want a multiple of %d for the recipe %s", w.value, w.what, w.width, n, c.Recipe.Name)
		}
	}
	return nil
}

// An Interrupted error reports that the context of a run ended.
type Interrupted struct {
	Step int    // steps done
	Out  string // directory of the checkpoint; "" if there is none
}

func (e *Interrupted) Error() string {
	if e.Out == "" {
		return fmt.Sprintf("interrupted after %d steps: nothing was written", e.Step)
	}
	return fmt.Sprintf("interrupted after %d steps: the checkpoint is in %s", e.Step, e.Out)
}

// Unwrap returns context.Canceled.
func (e *Interrupted) Unwrap() error { return context.Canceled }
