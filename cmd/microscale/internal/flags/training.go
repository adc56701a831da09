package flags

import (
	"errors"
	"fmt"
	"math"
	"runtime/debug"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/microscale-go/microscale/cmd/microscale/internal/show"
	"github.com/microscale-go/microscale/internal/configjson"
	"github.com/microscale-go/microscale/recipe"
	"github.com/microscale-go/microscale/train"
)

// TrainingFlags are the flags of commands that train, except the recipe and the
// output.
type TrainingFlags struct {
	steps, batch, microbatches, sequence, hidden, layers, heads, kvHeads, intermediate *uint
	evalTokens, evalEvery, threads                                                     *uint
	startBF16, endBF16                                                                 *uint
	learningRate, warmup, clip, decay                                                  *float64
	schedule                                                                           *Choice[train.Schedule]
	seed                                                                               *uint64
	data                                                                               *[]string
	separator                                                                          *string
	firstLast, recompute, fp8Param                                                     *bool
}

// AddTraining adds the flags of a training run, with the defaults d, to cmd.
func AddTraining(cmd *cobra.Command, d train.Config) *TrainingFlags {
	flags := cmd.Flags()
	count := func(name string, initial int, usage string) *uint { return flags.Uint(name, uint(initial), usage) }
	f := &TrainingFlags{}
	f.steps = count("steps", d.Steps, "train for `N` steps")
	f.seed = flags.Uint64("seed", d.Seed, "seed `N` for initialization, data order and stochastic rounding")
	f.data = AddData(cmd, "train")
	f.separator = flags.String("separator", "", "train on documents, padded to --sequence or cut: each ends with its file and after `TEXT`, such as '\\n' for lines; '' for files only (default: parts of the whole text)")
	f.hidden = count("hidden", d.Model.HiddenSize, "model width `N`")
	f.layers = count("layers", d.Model.NumHiddenLayers, "layers `N`")
	f.heads = count("heads", d.Model.NumAttentionHeads, "attention heads `N`; divides --hidden")
	f.kvHeads = count("kv-heads", d.Model.NumKeyValueHeads, "key and value heads `N`; divides --heads")
	f.intermediate = count("intermediate", d.Model.IntermediateSize, "feed-forward width `N`")
	f.sequence = count("sequence", d.Sequence, "tokens `N` per sequence")
	f.batch = count("batch", d.Batch, "sequences `N` per step")
	f.microbatches = count("microbatches", d.Microbatches, "split a batch into `N` microbatches and sum their gradients")
	f.learningRate = flags.Float64("learning-rate", d.LearningRate, "peak learning rate `R`")
	f.schedule = AddChoice(cmd, "schedule", "learning-rate schedule `NAME`: cosine, wsd (warm-up, stable, decay), constant", d.Schedule.String(), Names(train.Schedules()), parseSchedule)
	f.warmup = flags.Float64("warmup", d.Warmup, "fraction `F` of the steps for warm-up of the learning rate")
	f.clip = flags.Float64("clip", d.Clip, "clip gradients to norm `X`; 0: no clipping")
	f.decay = flags.Float64("weight-decay", d.Optimizer.Decay, "AdamW weight decay `X` of matrices")
	f.evalTokens = count("eval-tokens", d.ValidationTokens, "validate on `N` tokens, the same each time")
	f.evalEvery = count("eval-every", d.ValidateEvery, "validate every `N` steps; 0: at the end only")
	f.firstLast = flags.Bool("first-last-layers-bf16", false, "keep the first and last layers in BF16; the next two flags set how many")
	f.startBF16 = count("num-layers-at-start-in-bf16", 1, "first layers `N` for --first-last-layers-bf16")
	f.endBF16 = count("num-layers-at-end-in-bf16", 1, "last layers `N` for --first-last-layers-bf16")
	f.recompute = flags.Bool("recompute", false, "recompute activations in the backward pass instead of storing them")
	f.fp8Param = flags.Bool("fp8-param", false, "store quantized weights as rowwise codes beside the FP32 weights of the optimizer, and compute columnwise codes one layer at a time, to save memory; the saved model has the values of the codes, rounded to BF16, which is exact if scales are powers of two")
	f.threads = AddThreads(cmd)
	return f
}

// BoundGarbage makes the garbage collector run before garbage exceeds a fifth of the
// memory in use. That costs little: weights and moments are large arrays without
// pointers, which it does not scan. It does not change a GOGC of the user.
func BoundGarbage() {
	const fifth, standard = 20, 100
	if percent := debug.SetGCPercent(fifth); percent != standard {
		debug.SetGCPercent(percent)
	}
}

// AddData adds --data, the text of the verb doing, to cmd.
func AddData(cmd *cobra.Command, doing string) *[]string {
	return cmd.Flags().StringArray("data", nil, doing+" on `TEXT`: a file, a directory, goroot: (the Go standard library) or synthetic: (generated); repeatable (default goroot: if Go is installed, else synthetic:)")
}

// Config returns the training run of the flags with the first recipe, and opens its
// text. The run must be valid with every recipe.
func (f *TrainingFlags) Config(cmd *cobra.Command, recipes ...recipe.Recipe) (c train.Config, corpus *train.Corpus, err error) {
	c = train.DefaultConfig()
	c.Steps, c.Batch, c.Microbatches, c.Sequence = Int(f.steps), Int(f.batch), Int(f.microbatches), Int(f.sequence)
	c.Model.HiddenSize, c.Model.NumHiddenLayers, c.Model.IntermediateSize = Int(f.hidden), Int(f.layers), Int(f.intermediate)
	c.Model.NumAttentionHeads, c.Model.NumKeyValueHeads = Int(f.heads), Int(f.kvHeads)
	c.Model.MaxPositionEmbeddings = c.Sequence
	c.LearningRate, c.Schedule, c.Warmup, c.Clip, c.Optimizer.Decay = *f.learningRate, f.schedule.Value, *f.warmup, *f.clip, *f.decay
	c.ValidationTokens, c.ValidateEvery = Int(f.evalTokens), Int(f.evalEvery)
	c.Seed, c.Threads = *f.seed, Int(f.threads)
	for _, n := range []string{"num-layers-at-start-in-bf16", "num-layers-at-end-in-bf16"} {
		if cmd.Flags().Changed(n) && !*f.firstLast {
			return c, nil, show.Misuse("--%s applies to --first-last-layers-bf16: add that, or omit both", n)
		}
	}
	if *f.kvHeads == 0 { // which a decoder.Config takes for its default
		return c, nil, show.Misuse("--kv-heads is 0, want a divisor of --heads, %d", *f.heads)
	}
	if *f.firstLast {
		c.Options.FirstBF16, c.Options.LastBF16 = Int(f.startBF16), Int(f.endBF16)
	}
	c.Options.Recompute, c.HoldQuantized = *f.recompute, *f.fp8Param
	if err := c.Model.WithDefaults().Validate(); err != nil {
		return c, nil, show.Misuse("%v", WithFlag(err))
	}
	held := false
	for _, r := range recipes {
		run := c.Under(r)
		if err := run.Validate(); err != nil {
			return c, nil, show.Misuse("%v", WithFlag(err))
		}
		held = held || run.HoldQuantized
	}
	if c.Recipe = recipes[0]; c.HoldQuantized && !held {
		return c, nil, show.Misuse("%v", WithFlag(c.Validate()))
	}
	if err := c.CheckMemory(); err != nil {
		return c, nil, WithFlag(err)
	}
	if cmd.Flags().Changed("separator") {
		documents, err := train.OpenDocuments(separator.Replace(*f.separator), *f.data...)
		if err != nil {
			return c, nil, err
		}
		c.Data = documents
		return c, &documents.Corpus, nil
	}
	corpus, err = train.OpenCorpus(*f.data...)
	c.Data = corpus
	return c, corpus, err
}

// Int returns the value of a flag as an int, or the maximum of int if it is beyond.
func Int(flag *uint) int { return int(min(*flag, math.MaxInt)) }

// Uint returns the value of an unsigned flag of cmd.
func Uint(cmd *cobra.Command, name string) uint64 {
	n, err := strconv.ParseUint(cmd.Flag(name).Value.String(), 10, 64)
	if err != nil {
		panic(err) // the name of another type of flag
	}
	return n
}

func parseSchedule(name string) (s train.Schedule, err error) {
	return s, s.UnmarshalText([]byte(name))
}

// configFlags are the flags that set fields of train.Config and keys of the model's configuration.
var configFlags = map[configjson.Key]string{
	"Steps": "--steps", "Batch": "--batch", "Microbatches": "--microbatches", "Sequence": "--sequence",
	"ValidationTokens": "--eval-tokens", "ValidateEvery": "--eval-every", "CheckpointEvery": "--checkpoint-every",
	"LearningRate": "--learning-rate", "Schedule": "--schedule", "Warmup": "--warmup", "Clip": "--clip", "Optimizer.Decay": "--weight-decay",
	"Options.FirstBF16": "--num-layers-at-start-in-bf16", "Options.LastBF16": "--num-layers-at-end-in-bf16", "HoldQuantized": "--fp8-param",
	"Parallel.DistributedOptimizer": "--distributed-optimizer", "Parallel.GatherBF16": "--param-gather-format",
	"Parallel.Tensor": "--tp", "Parallel.Sequence": "--sequence-parallel", "Parallel.TensorAmaxOnly": "--tp-only-amax-red",
	"Parallel.OverlapParamGather": "--overlap-param-gather", "Parallel.ReuseGradBuffer": "--reuse-grad-buf-for-mxfp8-param-ag",
	"Model.HiddenSize": "--hidden", "Model.IntermediateSize": "--intermediate", "Model.NumHiddenLayers": "--layers",
	"Model.NumAttentionHeads": "--heads", "Model.NumKeyValueHeads": "--kv-heads",
	"num_hidden_layers": "--layers", "num_attention_heads": "--heads", "num_key_value_heads": "--kv-heads", "hidden_size": "--hidden",
	"intermediate_size": "--intermediate", "max_position_embeddings": "--sequence", "head_dim": "--hidden/--heads",
	"Resume": "--resume", "Force": "--force", "Out": "--out",
}

// configFlag returns the flag for a field or key, or its own name if there is none.
func configFlag(k configjson.Key) string {
	if flag := configFlags[k]; flag != "" {
		return flag
	}
	return string(k)
}

// WithFlag names flags in place of the fields and keys in an error of a configuration. It adds the flags of
// the remedies to a *train.DirectoryError.
func WithFlag(err error) error {
	if e, ok := errors.AsType[*train.DirectoryError](err); ok && len(e.Remedies) > 0 {
		var flags []string
		for _, field := range e.Remedies {
			flags = append(flags, configFlag(configjson.Key(field)))
		}
		return fmt.Errorf("%w (%s)", err, strings.Join(flags, ", "))
	}
	if e, ok := errors.AsType[*train.ConfigError](err); ok && configFlags[configjson.Key(e.Field)] == "" {
		return err
	}
	if e, ok := errors.AsType[*configjson.KeyError](err); ok {
		return errors.New(e.Named(configFlag))
	}
	return err
}

// separator replaces the escape sequences \n, \r, \t and \\ of --separator.
var separator = strings.NewReplacer(`\n`, "\n", `\r`, "\r", `\t`, "\t", `\\`, `\`)
