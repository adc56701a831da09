package cli

import (
	"errors"
	"fmt"
	"runtime/debug"

	"github.com/spf13/cobra"

	"github.com/microscale-go/microscale/recipe"
	"github.com/microscale-go/microscale/train"
)

// TrainingFlags are the flags of the commands that train: everything of a run but
// its recipe and where it is written.
type TrainingFlags struct {
	steps, batch, microbatches, sequence, hidden, layers, heads, kvHeads, intermediate *uint
	evalTokens, evalEvery, threads                                                     *uint
	startBF16, endBF16                                                                 *uint
	learningRate, warmup, clip, decay                                                  *float64
	schedule                                                                           *Choice[train.Schedule]
	seed                                                                               *uint64
	data                                                                               *[]string
	firstLast, recompute, fp8Param                                                     *bool
}

// AddTraining gives cmd the flags of a run, which d is without them.
func AddTraining(cmd *cobra.Command, d train.Config) *TrainingFlags {
	flags := cmd.Flags()
	count := func(name string, initial int, usage string) *uint { return flags.Uint(name, uint(initial), usage) }
	f := &TrainingFlags{}
	f.steps = count("steps", d.Steps, "train for `N` steps; warm-up and schedule are fractions of them")
	f.seed = flags.Uint64("seed", d.Seed, "the number `N` that the model, the order of the text and random bits come of")
	f.data = AddData(cmd, "train on")
	f.hidden = count("hidden", d.Model.HiddenSize, "width `N` of the model")
	f.layers = count("layers", d.Model.NumHiddenLayers, "number `N` of layers")
	f.heads = count("heads", d.Model.NumAttentionHeads, "heads `N` of attention, which share the width")
	f.kvHeads = count("kv-heads", d.Model.NumKeyValueHeads, "heads `N` of keys and values, a divisor of the heads")
	f.intermediate = count("intermediate", d.Model.IntermediateSize, "width `N` inside of the feed-forward layers")
	f.sequence = count("sequence", d.Sequence, "tokens `N` in a sequence")
	f.batch = count("batch", d.Batch, "sequences `N` in a step")
	f.microbatches = count("microbatches", d.Microbatches, "parts `N` of a batch, whose gradients are summed")
	f.learningRate = flags.Float64("learning-rate", d.LearningRate, "learning rate `R` at its peak")
	f.schedule = AddChoice(cmd, "schedule", "course `NAME` of the learning rate: cosine, wsd (warm-up, stable, decay), constant", d.Schedule.String(), Names(train.Schedules()), parseSchedule)
	f.warmup = flags.Float64("warmup", d.Warmup, "fraction `F` of the steps in which the learning rate rises")
	f.clip = flags.Float64("clip", d.Clip, "largest norm `X` of the gradients; 0: any")
	f.decay = flags.Float64("weight-decay", d.Optimizer.Decay, "weight decay `X` of AdamW, on matrices")
	f.evalTokens = count("eval-tokens", d.ValidationTokens, "tokens `N` of the validation text, the same ones every time")
	f.evalEvery = count("eval-every", d.ValidateEvery, "steps `N` from one validation to the next; 0: at the end only")
	f.firstLast = flags.Bool("first-last-layers-bf16", false, "keep the first and last layers in BF16, as many as the next two flags say")
	f.startBF16 = count("num-layers-at-start-in-bf16", 1, "layers `N` at the start that --first-last-layers-bf16 keeps")
	f.endBF16 = count("num-layers-at-end-in-bf16", 1, "layers `N` at the end that --first-last-layers-bf16 keeps")
	f.recompute = flags.Bool("recompute", false, "compute activations again for the backward pass, and do not keep them")
	f.fp8Param = flags.Bool("fp8-param", false, "hold the weights that a recipe quantizes as rowwise codes, beside the FP32 weights of the optimizer; columnwise codes are made for one layer at a time, which saves their memory")
	f.threads = AddThreads(cmd)
	return f
}

// BoundGarbage has the garbage collector run before garbage exceeds a fifth of the
// memory in use. Weights and moments are large arrays without pointers, which it does
// not read, so that this costs no time. A GOGC of the user's stays.
func BoundGarbage() {
	const fifth, standard = 20, 100
	if percent := debug.SetGCPercent(fifth); percent != standard {
		debug.SetGCPercent(percent)
	}
}

// AddData gives cmd --data, the text to do something on.
func AddData(cmd *cobra.Command, doing string) *[]string {
	return cmd.Flags().StringArray("data", nil, doing+" `TEXT`: a file, a directory, goroot: (the source of Go's library) or synthetic: (text made here); may be given several times (default goroot: where Go is, else synthetic:)")
}

// Config returns the run that the flags describe, with its text, under the first of
// the recipes. It must be one under each.
func (f *TrainingFlags) Config(cmd *cobra.Command, recipes ...recipe.Recipe) (c train.Config, corpus *train.Corpus, err error) {
	c = train.DefaultConfig()
	c.Steps, c.Batch, c.Microbatches, c.Sequence = int(*f.steps), int(*f.batch), int(*f.microbatches), int(*f.sequence)
	c.Model.HiddenSize, c.Model.NumHiddenLayers, c.Model.IntermediateSize = int(*f.hidden), int(*f.layers), int(*f.intermediate)
	c.Model.NumAttentionHeads, c.Model.NumKeyValueHeads = int(*f.heads), int(*f.kvHeads)
	c.Model.MaxPositionEmbeddings = c.Sequence
	c.LearningRate, c.Schedule, c.Warmup, c.Clip, c.Optimizer.Decay = *f.learningRate, f.schedule.Value, *f.warmup, *f.clip, *f.decay
	c.ValidationTokens, c.ValidateEvery = int(*f.evalTokens), int(*f.evalEvery)
	c.Seed, c.Threads = *f.seed, int(*f.threads)
	for _, n := range []string{"num-layers-at-start-in-bf16", "num-layers-at-end-in-bf16"} {
		if cmd.Flags().Changed(n) && !*f.firstLast {
			return c, nil, Misuse("--%s is for --first-last-layers-bf16: add that", n)
		}
	}
	if *f.firstLast {
		c.Options.FirstBF16, c.Options.LastBF16 = int(*f.startBF16), int(*f.endBF16)
	}
	c.Options.Recompute, c.HoldQuantized = *f.recompute, *f.fp8Param
	if err := c.Model.WithDefaults().Validate(); err != nil {
		return c, nil, Misuse("%v", err)
	}
	held := false
	for _, r := range recipes {
		run := c.Under(r)
		if err := run.Validate(); err != nil {
			return c, nil, Misuse("%v", withFlag(err))
		}
		held = held || run.HoldQuantized
	}
	if c.Recipe = recipes[0]; c.HoldQuantized && !held {
		return c, nil, Misuse("%v", withFlag(c.Validate()))
	}
	if err := c.CheckMemory(); err != nil {
		return c, nil, withFlag(err)
	}
	corpus, err = train.OpenCorpus(*f.data...)
	c.Data = corpus
	return c, corpus, err
}

func parseSchedule(name string) (s train.Schedule, err error) {
	return s, s.UnmarshalText([]byte(name))
}

// trainingFlagOf maps fields of train.Config to the flags that set them.
var trainingFlagOf = map[string]string{
	"Steps": "steps", "Batch": "batch", "Microbatches": "microbatches", "Sequence": "sequence",
	"ValidationTokens": "eval-tokens", "ValidateEvery": "eval-every", "CheckpointEvery": "checkpoint-every",
	"LearningRate": "learning-rate", "Schedule": "schedule", "Warmup": "warmup", "Clip": "clip", "Optimizer.Decay": "weight-decay",
	"Options.FirstBF16": "num-layers-at-start-in-bf16", "Options.LastBF16": "num-layers-at-end-in-bf16", "HoldQuantized": "fp8-param",
	"Model.HiddenSize": "hidden", "Model.IntermediateSize": "intermediate", "Model.NumHiddenLayers": "layers",
	"Model.NumAttentionHeads": "heads", "Model.NumKeyValueHeads": "kv-heads",
}

// withFlag names the flag in place of the field of a *train.ConfigError.
func withFlag(err error) error {
	if e, ok := errors.AsType[*train.ConfigError](err); ok && trainingFlagOf[e.Field] != "" {
		return fmt.Errorf("--%s %s", trainingFlagOf[e.Field], e.Problem)
	}
	return err
}
