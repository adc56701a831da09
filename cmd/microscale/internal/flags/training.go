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
	config    train.Config // as the flags set it, without recipe and data
	bf16Ends  bool         // the next two are set
	bf16First int
	bf16Last  int
	data      *[]string
	separator *string
	threads   *uint
}

// A trainingFlag is a flag that sets a value of the configuration.
type trainingFlag struct {
	name  string
	value any    // what it sets, from its default: an *int of 0 or more, *uint64, *float64, *bool or *train.Schedule
	keys  string // the fields of train.Config and keys of the model's configuration that errors name for it
	usage string
}

// rows returns the flags, in the order of the help.
func (f *TrainingFlags) rows() []trainingFlag {
	c := &f.config
	return []trainingFlag{
		{"steps", &c.Steps, "Steps", "train for `N` steps"},
		{"seed", &c.Seed, "", "seed `N` for initialization, data order and stochastic rounding"},
		{"hidden", &c.Model.HiddenSize, "Model.HiddenSize hidden_size", "model width `N`"},
		{"layers", &c.Model.NumHiddenLayers, "Model.NumHiddenLayers num_hidden_layers", "layers `N`"},
		{"heads", &c.Model.NumAttentionHeads, "Model.NumAttentionHeads num_attention_heads", "attention heads `N`; divides --hidden"},
		{"kv-heads", &c.Model.NumKeyValueHeads, "Model.NumKeyValueHeads num_key_value_heads", "key and value heads `N`; divides --heads"},
		{"intermediate", &c.Model.IntermediateSize, "Model.IntermediateSize intermediate_size", "feed-forward width `N`"},
		{"sequence", &c.Sequence, "Sequence max_position_embeddings", "tokens `N` per sequence"},
		{"batch", &c.Batch, "Batch", "sequences `N` per step"},
		{"microbatches", &c.Microbatches, "Microbatches", "split a batch into `N` microbatches and sum their gradients"},
		{"learning-rate", &c.LearningRate, "LearningRate", "peak learning rate `R`"},
		{"schedule", &c.Schedule, "Schedule", "learning-rate schedule `NAME`: cosine, wsd (warm-up, stable, decay), constant"},
		{"warmup", &c.Warmup, "Warmup", "fraction `F` of the steps for warm-up of the learning rate"},
		{"clip", &c.Clip, "Clip", "clip gradients to norm `X`; 0: no clipping"},
		{"weight-decay", &c.Optimizer.Decay, "Optimizer.Decay", "AdamW weight decay `X` of matrices"},
		{"eval-tokens", &c.ValidationTokens, "ValidationTokens", "validate on `N` tokens, the same each time"},
		{"eval-every", &c.ValidateEvery, "ValidateEvery", "validate every `N` steps; 0: at the end only"},
		{"first-last-layers-bf16", &f.bf16Ends, "", "keep the first and last layers in BF16; the next two flags set how many"},
		{"num-layers-at-start-in-bf16", &f.bf16First, "Options.FirstBF16", "first layers `N` for --first-last-layers-bf16"},
		{"num-layers-at-end-in-bf16", &f.bf16Last, "Options.LastBF16", "last layers `N` for --first-last-layers-bf16"},
		{"recompute", &c.Options.Recompute, "", "recompute activations in the backward pass instead of storing them"},
		{"fp8-param", &c.HoldQuantized, "HoldQuantized", "store quantized weights as rowwise codes beside the FP32 weights of the optimizer, " +
			"and compute columnwise codes one layer at a time, to save memory; the saved model has the values of the codes, rounded to BF16, " +
			"which is exact if scales are powers of two"},
	}
}

// AddTraining adds the flags of a training run, with the defaults d, to cmd.
func AddTraining(cmd *cobra.Command, d train.Config) *TrainingFlags {
	f := &TrainingFlags{config: d, bf16First: 1, bf16Last: 1}
	for _, r := range f.rows() {
		r.add(cmd)
		if r.name == "seed" {
			f.data = AddData(cmd, "train")
			f.separator = cmd.Flags().String("separator", "", "train on documents, padded to --sequence or cut: each ends with its file "+
				"and after `TEXT`, such as '\\n' for lines; '' for files only (default: parts of the whole text)")
		}
	}
	f.threads = AddThreads(cmd)
	return f
}

// add adds the flag to cmd.
func (r trainingFlag) add(cmd *cobra.Command) {
	switch v := r.value.(type) {
	case *int:
		cmd.Flags().Var((*count)(v), r.name, r.usage)
	case *uint64:
		cmd.Flags().Uint64Var(v, r.name, *v, r.usage)
	case *float64:
		cmd.Flags().Float64Var(v, r.name, *v, r.usage)
	case *bool:
		cmd.Flags().BoolVar(v, r.name, *v, r.usage)
	case *train.Schedule:
		AddChoice(cmd, r.name, r.usage, v.String(), Names(train.Schedules()), func(name string) (train.Schedule, error) {
			return *v, v.UnmarshalText([]byte(name))
		})
	default:
		panic(fmt.Sprintf("flags: a value of type %T", v))
	}
}

// A count is the value of a flag: an integer of 0 or more, or the maximum of int if it is beyond.
type count int

func (c *count) String() string { return strconv.Itoa(int(*c)) }

// Type returns the type of the value, for pflag.
func (c *count) Type() string { return "uint" }

// Set parses an integer.
func (c *count) Set(s string) error {
	n, err := strconv.ParseUint(s, 0, 64)
	if err == nil {
		*c = count(min(n, math.MaxInt))
	}
	return err
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
	return cmd.Flags().StringArray("data", nil, doing+" on `TEXT`: a file, a directory, goroot: (the Go standard library) or synthetic: "+
		"(generated); repeatable (default goroot: if Go is installed, else synthetic:)")
}

// Config returns the training run of the flags with the first recipe, and opens its
// text. The run must be valid with every recipe.
func (f *TrainingFlags) Config(cmd *cobra.Command, recipes ...recipe.Recipe) (c train.Config, corpus *train.Corpus, err error) {
	c = f.config
	c.Model.MaxPositionEmbeddings, c.Threads = c.Sequence, Int(f.threads)
	for _, n := range []string{"num-layers-at-start-in-bf16", "num-layers-at-end-in-bf16"} {
		if cmd.Flags().Changed(n) && !f.bf16Ends {
			return c, nil, show.Misuse("--%s applies to --first-last-layers-bf16: add that, or omit both", n)
		}
	}
	if c.Model.NumKeyValueHeads == 0 { // which a decoder.Config takes for its default
		return c, nil, show.Misuse("--kv-heads is 0, want a divisor of --heads, %d", c.Model.NumAttentionHeads)
	}
	if f.bf16Ends {
		c.Options.FirstBF16, c.Options.LastBF16 = f.bf16First, f.bf16Last
	}
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

// configFlags are the flags that set fields of train.Config and keys of the model's configuration.
var configFlags = func() map[configjson.Key]string {
	all := map[configjson.Key]string{
		"CheckpointEvery": "--checkpoint-every", "Resume": "--resume", "Force": "--force", "Out": "--out", "head_dim": "--hidden/--heads",
		"Parallel.DistributedOptimizer": "--distributed-optimizer", "Parallel.GatherBF16": "--param-gather-format",
		"Parallel.Tensor": "--tp", "Parallel.Sequence": "--sequence-parallel", "Parallel.TensorAmaxOnly": "--tp-only-amax-red",
		"Parallel.OverlapParamGather": "--overlap-param-gather", "Parallel.ReuseGradBuffer": "--reuse-grad-buf-for-mxfp8-param-ag",
	}
	for _, r := range new(TrainingFlags).rows() {
		for key := range strings.FieldsSeq(r.keys) {
			all[configjson.Key(key)] = "--" + r.name
		}
	}
	return all
}()

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
