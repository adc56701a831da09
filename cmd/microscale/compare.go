package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/microscale-go/microscale/internal/bench"
	"github.com/microscale-go/microscale/internal/report"
	"github.com/microscale-go/microscale/llama"
	"github.com/microscale-go/microscale/recipe"
	"github.com/microscale-go/microscale/train"
)

func compareCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "compare",
		Short: "recipes side by side: the same model, text and seed under each",
		Long: `Trains the same small language model under each recipe, from the same seed on the
same text in the same order, and prints what each cost: losses, the gap to bf16,
time, bytes, and how many elements were saturated or flushed. Then quantizes the
model of bf16 to every format and evaluates it. All of it, with curves, errors of
operands and distributions of scales, is in DIR/report.html, which opens in any
browser and loads nothing.

The recipe bf16 is always among them, for the others are compared with it. One
that diverges does not keep the others from ending. With --seeds the gaps are means
over several seeds, with their standard errors; all but losses is of the first.`,
		Example: `  microscale compare
  microscale compare --recipes bf16,mxfp8,nvfp4 --steps 500 --data book.txt
  microscale compare --recipes mxfp8,nvfp4 --seeds 3
  microscale compare --recipes mxfp8,my-recipe.toml --seed 2 --out mine --json`,
		Args: noArguments,
	}
	recipes := addRecipes(cmd, "bf16,tensorwise,blockwise,mxfp8,nvfp4")
	defaults := train.DefaultConfig() // shorter, for there are several runs
	defaults.Steps, defaults.ValidateEvery, defaults.ValidationTokens = 120, 20, 4096
	training := addTraining(cmd, defaults)
	seeds := cmd.Flags().Uint("seeds", 1, "train under each recipe from `N` seeds: --seed and those after it")
	out := cmd.Flags().String("out", "comparison", "write the report to the directory `DIR`, in place of an earlier report")
	asJSON := cmd.Flags().Bool("json", false, "print one JSON document")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		boundGarbage()
		if *out == "" {
			return misuse("--out names no directory: name one for the report")
		}
		if err := reportable(*out); err != nil {
			return err
		}
		all := withBaseline(recipes.recipes)
		c, err := training.config(cmd, all...)
		if err != nil {
			return err
		}
		if *seeds == 0 {
			return misuse("--seeds is 0: at least 1 is needed")
		}
		k := &comparison{config: c, stderr: cmd.ErrOrStderr()}
		for i := range uint64(*seeds) {
			for _, r := range all {
				if err := k.train(cmd.Context(), r, c.Seed+i); err != nil {
					return k.end(cmd, *out, *asJSON, err)
				}
			}
		}
		return k.end(cmd, *out, *asJSON, k.quantize(cmd.Context()))
	}
	return cmd
}

// A comparison is a run of compare.
type comparison struct {
	config train.Config // of each run, but for its recipe and, where there are several, its seed
	stderr io.Writer

	recipes []report.Recipe
	formats []report.Format
	failed  []string // recipes that ended early, but not for a loss that is not finite
	model   *llama.Model
}

// Operands are observed at about so many steps of a run, and at most every so
// many, for to measure them takes as long as a step.
const observedSteps, observedEvery = 12, 4

// train trains under one recipe. It fails where it was interrupted. Of seeds after
// the first the losses at the end are kept, and a recipe that did not finish is not
// tried again.
func (k *comparison) train(ctx context.Context, r recipe.Recipe, seed uint64) error {
	c := k.config.Under(r)
	c.Seed = seed
	if seed != k.config.Seed {
		return k.again(ctx, c)
	}
	w := newWatcher(r)
	every := max(observedEvery, (c.Steps+observedSteps-1)/observedSteps)
	observed := func(step int) bool { return (step-1)%every == 0 || step == c.Steps }
	row := report.Recipe{Name: r.Name, Doc: r.Doc, TrainLoss: nan, ValidationLoss: nan}
	var plain, all bench.Laps // the steps that were not observed, and all
	m := newTrainMeter(k.stderr, r.Name, c.Steps)
	plain.Start()
	all.Start()
	result, err := train.Run(ctx, c, train.Hooks{
		Step: func(e train.StepEvent) {
			m.Step(e)
			row.Steps = e.Step
			row.Train = append(row.Train, report.Point{Step: e.Step, Loss: e.Loss})
			all.End(e.Elapsed)
			if !observed(e.Step) {
				plain.End(e.Elapsed)
			}
			plain.Start()
		},
		Validated: func(p train.ValidationPoint) {
			m.Validated(p)
			row.Validation = append(row.Validation, report.Point{Step: p.Step, Loss: p.Loss})
			plain.Start() // validation is no part of a step
			all.Start()
		},
		Observe: w.observe, Observed: observed,
	})
	m.Close()
	if plain.Len() == 0 {
		plain = all
	}
	times := plain.Sample()
	row.SecondsPerStep, row.Busy = times.Median, times.Busy
	row.TokensPerSecond = float64(c.Batch*c.Sequence) / row.SecondsPerStep
	row.Operands, row.Scales = w.rows()
	switch {
	case err == nil:
		row.TrainLoss, row.ValidationLoss = result.FinalLoss()
		row.Runs = []report.Run{{Seed: seed, TrainLoss: row.TrainLoss, ValidationLoss: row.ValidationLoss}}
		row.Memory = reportedMemory(result.Memory)
		if r.Name == baselineRecipe {
			k.model = result.Model
		}
	case errors.Is(err, context.Canceled):
		return err
	default:
		k.fail(&row, err)
	}
	k.recipes = append(k.recipes, row)
	if row.Busy {
		warnBusy(k.stderr, "steps of "+printable(r.Name))
	}
	if row.Failed == "" {
		fmt.Fprintf(k.stderr, "%s: %s, validation loss %.4f nats per byte, %s per step\n", printable(r.Name), counted(row.Steps, "step"), row.ValidationLoss, durationText(row.SecondsPerStep))
	}
	return nil
}

// reportedMemory returns what a run held as the report has it.
func reportedMemory(m train.Memory) report.Memory {
	return report.Memory{
		Masters: int64(m.Masters), Gradients: int64(m.Gradients), Moments: int64(m.Moments), Rowwise: int64(m.Rowwise), Columnwise: int64(m.Columnwise),
		Activations: int64(m.Activations()), Scratch: int64(m.Scratch),
	}
}

// fail notes why a recipe did not finish.
func (k *comparison) fail(row *report.Recipe, err error) {
	row.Failed = oneLine(err)
	if diverged := (*train.Diverged)(nil); !errors.As(err, &diverged) {
		k.failed = append(k.failed, fmt.Sprintf("%s: %s", printable(row.Name), row.Failed))
	}
	fmt.Fprintf(k.stderr, "%s did not finish: %s\n", printable(row.Name), row.Failed)
}

// again trains under a recipe of the comparison from another seed.
func (k *comparison) again(ctx context.Context, c train.Config) error {
	row := &k.recipes[slices.IndexFunc(k.recipes, func(r report.Recipe) bool { return r.Name == c.Recipe.Name })]
	if row.Failed != "" {
		return nil
	}
	m := newTrainMeter(k.stderr, c.Recipe.Name, c.Steps)
	result, err := train.Run(ctx, c, train.Hooks{Step: m.Step, Validated: m.Validated})
	m.Close()
	switch {
	case err == nil:
		run := report.Run{Seed: c.Seed}
		run.TrainLoss, run.ValidationLoss = result.FinalLoss()
		row.Runs = append(row.Runs, run)
		fmt.Fprintf(k.stderr, "%s, seed %d: validation loss %.4f nats per byte\n", printable(row.Name), c.Seed, run.ValidationLoss)
	case errors.Is(err, context.Canceled):
		return err
	default:
		k.fail(row, fmt.Errorf("from seed %d: %w", c.Seed, err))
	}
	return nil
}

// seeds names the seeds of which there are runs.
func (k *comparison) seeds() report.Fact {
	first, runs := k.config.Seed, 1
	for _, r := range k.recipes {
		runs = max(runs, len(r.Runs))
	}
	if runs == 1 {
		return report.Fact{Name: "seed", Text: fmt.Sprint(first)}
	}
	return report.Fact{Name: "seeds", Text: fmt.Sprintf("%d to %d", first, first+uint64(runs)-1)}
}

// parameters returns the number of weights of the model, the same under each recipe.
func (k *comparison) parameters() int { return k.config.Model.WithDefaults().Parameters() }

// report returns the rows of the page.
func (k *comparison) report(cmd *cobra.Command) *report.Comparison {
	c, m := &k.config, bench.ThisMachine()
	model, seeds := parametersText(float64(k.parameters())), k.seeds()
	return &report.Comparison{
		Title:    "Training under " + strings.Join(names(k.recipes), ", "),
		Subtitle: fmt.Sprintf("%s, %s of %d bytes, %s %s, text %s", model, counted(c.Steps, "step"), c.Batch*c.Sequence, seeds.Name, seeds.Text, c.Corpus.Name()),
		Baseline: baselineRecipe, Token: "byte", Recipes: k.recipes, Formats: k.formats,
		How: []report.Fact{
			{Name: "command", Text: commandLine(cmd), Code: true},
			seeds,
			{Name: "model", Text: fmt.Sprintf("Llama of %s: %s of width %d, %s of attention that share %d of keys and values, feed-forward width %d, a vocabulary of bytes", model,
				counted(c.Model.NumHiddenLayers, "layer"), c.Model.HiddenSize, counted(c.Model.NumAttentionHeads, "head"), c.Model.NumKeyValueHeads, c.Model.IntermediateSize)},
			{Name: "data", Text: fmt.Sprintf("%s, %s", c.Corpus.Name(), bytesText(float64(c.Corpus.Bytes())))},
			{Name: "training", Text: fmt.Sprintf("%s of %d sequences of %d bytes, AdamW, schedule %s with a peak of %g", counted(c.Steps, "step"), c.Batch, c.Sequence, c.Schedule, c.LearningRate)},
			{Name: "validation", Text: fmt.Sprintf("%d bytes that are never trained on, the same for all", c.ValidationTokens)},
			{Name: "machine", Text: fmt.Sprintf("%s, %s, %s %s, %s kernels", m.CPU, counted(m.Processors, "processor"), m.System, m.Go, m.Tier)},
			{Name: "program", Text: "microscale " + version()},
		},
	}
}

func names(recipes []report.Recipe) []string {
	var list []string
	for _, r := range recipes {
		list = append(list, r.Name)
	}
	return list
}

// commandLine writes the command with the flags that were given.
func commandLine(cmd *cobra.Command) string {
	line := []string{cmd.CommandPath()}
	cmd.Flags().Visit(func(f *pflag.Flag) {
		values := []string{f.Value.String()}
		if list, ok := f.Value.(pflag.SliceValue); ok {
			values = list.GetSlice()
		}
		for _, v := range values {
			switch {
			case f.Value.Type() == "bool":
				line = append(line, fmt.Sprintf("--%s=%s", f.Name, v))
			case strings.ContainsAny(v, " \t\"'\\$*?"):
				line = append(line, fmt.Sprintf("--%s %q", f.Name, v))
			default:
				line = append(line, fmt.Sprintf("--%s %s", f.Name, v))
			}
		}
	})
	return strings.Join(line, " ")
}
