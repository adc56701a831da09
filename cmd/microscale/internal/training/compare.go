package training

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/microscale-go/microscale/cmd/microscale/internal/flags"
	"github.com/microscale-go/microscale/cmd/microscale/internal/host"
	"github.com/microscale-go/microscale/cmd/microscale/internal/report"
	"github.com/microscale-go/microscale/cmd/microscale/internal/show"
	"github.com/microscale-go/microscale/decoder"
	"github.com/microscale-go/microscale/nn"
	"github.com/microscale-go/microscale/quant"
	"github.com/microscale-go/microscale/recipe"
	"github.com/microscale-go/microscale/train"
)

// A Comparison trains a model with several recipes and compares the results.
type Comparison struct {
	Config  train.Config  // of each run, except recipe and seed
	Corpus  *train.Corpus // the data of Config
	Trainer Trainer
	Stderr  io.Writer
	Command string // the command line, for the report
	Version string // of the program

	// Divide returns the results of task for the numbers below n. It may divide them among the ranks of a
	// job, all of which call it.
	Divide func(n int, task func(i int) (report.Format, error)) ([]report.Format, error)

	recipes []report.Recipe
	formats []report.Format
	failed  []string // recipes that failed for another reason than divergence
	model   *decoder.Model
	batch   int // mean tokens of a step, without padding
}

// Run trains with each recipe from each of the seeds, then quantizes the model of the
// baseline to every format. Its error is that of an interruption; a failed recipe is
// part of the result.
func (k *Comparison) Run(ctx context.Context, recipes []recipe.Recipe, seeds int) error {
	for i := range uint64(seeds) {
		for _, r := range recipes {
			if err := k.train(ctx, r, k.Config.Seed+i); err != nil {
				return err
			}
		}
	}
	return k.quantize(ctx)
}

// train trains with one recipe. Its error is that of an interruption. Of the seeds after
// the first, it keeps the final losses.
func (k *Comparison) train(ctx context.Context, r recipe.Recipe, seed uint64) error {
	c := k.Config.Under(r)
	c.Seed = seed
	if seed != k.Config.Seed {
		return k.again(ctx, c)
	}
	t := newTrial(r, c.Steps)
	m := flags.NewTrainMeter(k.Stderr, r.Name, c.Steps)
	c.Progress = func(e train.Event) {
		m.Report(e)
		t.progress(e)
	}
	c.Observer = t.observer
	t.start()
	result, err := k.Trainer(ctx, c)
	m.Close()
	if errors.Is(err, context.Canceled) {
		return err
	}
	row := t.row()
	if row.Steps > 0 {
		k.batch = t.tokens / row.Steps
	}
	row.TokensPerSecond = float64(k.batch) / row.SecondsPerStep
	if err != nil {
		k.fail(&row, err)
	} else {
		k.finish(&row, seed, result)
	}
	k.recipes = append(k.recipes, row)
	if row.Busy {
		flags.WarnBusy(k.Stderr, "steps of "+show.Printable(r.Name))
	}
	if row.Failed == "" {
		fmt.Fprintf(k.Stderr, "%s: %s, validation loss %.4f nats per byte, %s per step\n", show.Printable(r.Name),
			show.Counted(row.Steps, "step"), row.ValidationLoss, show.DurationText(row.SecondsPerStep))
	}
	return nil
}

// finish records the result of a run.
func (k *Comparison) finish(row *report.Recipe, seed uint64, result *train.Result) {
	row.TrainLoss, row.ValidationLoss = result.FinalLoss()
	row.Runs = []report.Run{{Seed: seed, TrainLoss: row.TrainLoss, ValidationLoss: row.ValidationLoss}}
	row.Windows = result.Sequences
	row.Memory = reportedMemory(result.Memory)
	if row.Name == flags.BaselineRecipe {
		k.model = result.Model
	}
}

// reportedMemory returns the memory of a run for the report.
func reportedMemory(m decoder.Memory) report.Memory {
	return report.Memory{
		Masters: int64(m.Masters), Gradients: int64(m.Gradients), Moments: int64(m.Moments), Rowwise: int64(m.Rowwise),
		Columnwise:  int64(m.Columnwise),
		Activations: int64(m.Activations()), Scratch: int64(m.Scratch + m.Messages + m.Staging),
	}
}

// fail records why a recipe did not finish.
func (k *Comparison) fail(row *report.Recipe, err error) {
	row.Failed = show.OneLine(err)
	if diverged := (*train.Diverged)(nil); !errors.As(err, &diverged) {
		k.failed = append(k.failed, fmt.Sprintf("%s: %s", show.Printable(row.Name), row.Failed))
	}
	fmt.Fprintf(k.Stderr, "%s did not finish: %s\n", show.Printable(row.Name), row.Failed)
}

// again trains from another seed, unless the recipe failed before.
func (k *Comparison) again(ctx context.Context, c train.Config) error {
	row := &k.recipes[slices.IndexFunc(k.recipes, func(r report.Recipe) bool { return r.Name == c.Recipe.Name })]
	if row.Failed != "" {
		return nil
	}
	m := flags.NewTrainMeter(k.Stderr, c.Recipe.Name, c.Steps)
	c.Progress = m.Report
	result, err := k.Trainer(ctx, c)
	m.Close()
	switch {
	case err == nil:
		run := report.Run{Seed: c.Seed}
		run.TrainLoss, run.ValidationLoss = result.FinalLoss()
		row.Runs = append(row.Runs, run)
		fmt.Fprintf(k.Stderr, "%s, seed %d: validation loss %.4f nats per byte\n", show.Printable(row.Name), c.Seed, run.ValidationLoss)
	case errors.Is(err, context.Canceled):
		return err
	default:
		k.fail(row, fmt.Errorf("seed %d: %w", c.Seed, err))
	}
	return nil
}

// seeds returns the seeds of the runs.
func (k *Comparison) seeds() report.Fact {
	first, runs := k.Config.Seed, 1
	for _, r := range k.recipes {
		runs = max(runs, len(r.Runs))
	}
	if runs == 1 {
		return report.Fact{Name: "seed", Text: fmt.Sprint(first)}
	}
	return report.Fact{Name: "seeds", Text: fmt.Sprintf("%d to %d", first, first+uint64(runs)-1)}
}

// parameters returns the number of parameters of the model.
func (k *Comparison) parameters() int { return k.Config.Model.WithDefaults().Parameters() }

// report returns the content of the report.
func (k *Comparison) report() *report.Comparison {
	c, m := &k.Config, host.ThisMachine()
	model, seeds := show.ParametersText(float64(k.parameters())), k.seeds()
	return &report.Comparison{
		Title: "Training with " + strings.Join(names(k.recipes), ", "),
		Subtitle: fmt.Sprintf("%s, %s of %d bytes, %s %s, text %s", model, show.Counted(c.Steps, "step"), k.batch, seeds.Name, seeds.Text,
			k.Corpus.Name()),
		Baseline: flags.BaselineRecipe, Token: "byte", Recipes: k.recipes, Formats: k.formats,
		How: []report.Fact{
			{Name: "command", Text: k.Command, Code: true},
			seeds,
			{Name: "model", Text: fmt.Sprintf("Llama of %s: %s of width %d, %s of attention and %d of keys and values, feed-forward width %d, "+
				"byte vocabulary", model,
				show.Counted(c.Model.NumHiddenLayers, "layer"), c.Model.HiddenSize, show.Counted(c.Model.NumAttentionHeads, "head"),
				c.Model.NumKeyValueHeads, c.Model.IntermediateSize)},
			{Name: "data", Text: fmt.Sprintf("%s, %s", k.Corpus.Name(), show.BytesText(float64(k.Corpus.Bytes())))},
			{Name: "training", Text: fmt.Sprintf("%s of %d sequences of at most %d bytes, AdamW, schedule %s, peak learning rate %g",
				show.Counted(c.Steps, "step"), c.Batch, c.Sequence, c.Schedule, c.LearningRate)},
			{Name: "validation", Text: fmt.Sprintf("at most %d bytes, the same for all, not used for training", c.ValidationTokens)},
			{Name: "machine", Text: fmt.Sprintf("%s, %s, %s %s, %s kernels", m.CPU, show.Counted(m.Processors, "processor"), m.System, m.Go,
				m.Tier)},
			{Name: "program", Text: "microscale " + k.Version},
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

// quantize evaluates the model of the baseline with its weights in every format.
func (k *Comparison) quantize(ctx context.Context) error {
	if k.model == nil {
		return nil
	}
	c := &k.Config
	base, err := recipe.Lookup(flags.BaselineRecipe)
	if err != nil {
		return err
	}
	tokens, targets, err := c.Data.Validation(max(c.ValidationTokens/c.Sequence, 1), c.Sequence)
	if err != nil {
		return err
	}
	fmt.Fprintf(k.Stderr, "microscale: quantizing the model of %s to every format\n", flags.BaselineRecipe)
	formats := slices.DeleteFunc(quant.Formats(), func(f quant.Format) bool { return !f.Scaled() })
	k.formats, err = k.Divide(len(formats), func(i int) (report.Format, error) {
		f := formats[i]
		m, err := k.model.Quantize(quant.Quantizer{Format: f}, false, c.Threads)
		if err != nil {
			return report.Format{}, err
		}
		e, err := train.Evaluate(ctx, m, nn.Scope{Recipe: base, Threads: c.Threads}, tokens, targets, c.Sequence)
		return report.Format{Name: f.Name, Bits: f.BitsPerElement(), Loss: e.Loss, Windows: e.Sequences}, err
	})
	return err
}

// End writes the report to dir and prints the results. cause is the error of Run.
func (k *Comparison) End(out io.Writer, dir string, asJSON bool, cause error) error {
	switch {
	case len(k.recipes) == 0:
		return show.Interrupted(cause, "no recipe finished, nothing was written")
	case len(k.recipes) == len(k.failed):
		return errors.New(strings.Join(k.failed, "; "))
	}
	c := k.report()
	path := ""
	page, unwritten := c.HTML()
	if unwritten == nil {
		path, unwritten = WriteReport(dir, page)
	}
	var err error
	if asJSON {
		err = show.PrintJSON(out, k.document(c, path))
	} else {
		err = PrintComparison(out, c, path)
	}
	switch {
	case unwritten != nil:
		return fmt.Errorf("write the report: %w", unwritten)
	case err != nil:
		return err
	case cause != nil:
		return show.Interrupted(cause, fmt.Sprintf("the report has the finished recipes: %s", strings.Join(names(k.recipes), ", ")))
	case len(k.failed) > 0:
		return errors.New(strings.Join(k.failed, "; "))
	case !slices.ContainsFunc(k.recipes, func(r report.Recipe) bool { return r.Failed == "" }):
		return fmt.Errorf("no recipe finished (%s): try a lower --learning-rate or a longer --warmup", strings.Join(names(k.recipes), ", "))
	}
	return nil
}
