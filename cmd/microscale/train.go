package main

import (
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"github.com/microscale-go/microscale/cmd/microscale/internal/flags"
	"github.com/microscale-go/microscale/cmd/microscale/internal/ranks"
	"github.com/microscale-go/microscale/cmd/microscale/internal/show"
	"github.com/microscale-go/microscale/cmd/microscale/internal/training"
	"github.com/microscale-go/microscale/train"
)

const trainLong = `Train a byte-level language model of the Llama architecture, with its linear
layers in low precision as a recipe specifies. Save it as a Hugging Face
directory for eval, run and quantize.

The same seed gives the same losses bit for bit, with any number of threads,
resumed or not. The directory holds a checkpoint during the run. To resume an
interrupted run, repeat the command with --resume.`

func trainCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "train",
		Short: "Train a small language model with a low-precision recipe",
		Long:  trainLong,
		Example: `  microscale train
  microscale train --recipe nvfp4 --steps 500 --out model
  microscale train --out model --resume
  microscale train --recipe bf16 --data book.txt --layers 2 --json
  microscale train --dp 2 --distributed-optimizer --fp8-param-gather
  mpirun -np 4 microscale train --tp 2 --out model`,
		Args: noArguments,
	}
	f := trainFlags{recipes: flags.AddRecipe(cmd), training: flags.AddTraining(cmd, train.DefaultConfig()), parallel: ranks.Add(cmd)}
	flags.Counts(cmd, "dp", "tp")
	flags.AddConfig(cmd)
	cmd.Flags().StringVar(&f.out, "out", "", "save the model in new directory `DIR` (default trained-RECIPE, numbered if it exists)")
	cmd.Flags().BoolVar(&f.resume, "resume", false, "resume the run in DIR, or start it if DIR is empty; its other flags may be omitted")
	cmd.Flags().BoolVar(&f.force, "force", false, "replace the run and the model in DIR")
	flags.Exclusive(cmd, "resume", "force")
	f.every = cmd.Flags().Uint("checkpoint-every", uint(train.DefaultConfig().CheckpointEvery),
		"write a checkpoint every `N` steps; 0: only when interrupted")
	f.asJSON = addJSON(cmd)
	flags.Essential(cmd, "recipe", "steps", "seed", "data", "hidden", "layers", "learning-rate", "out", "resume", "json")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error { return f.run(cmd) }
	return cmd
}

// trainFlags are the flags of train.
type trainFlags struct {
	recipes  *flags.RecipeFlags
	training *flags.TrainingFlags
	parallel *ranks.Flags
	trainOptions
	every  *uint
	asJSON *bool
}

// run trains, and prints the result.
func (f *trainFlags) run(cmd *cobra.Command) error {
	flags.BoundGarbage()
	job, err := f.parallel.Start(cmd)
	if err != nil {
		return err
	}
	done, err := f.directory(cmd, job)
	if err != nil {
		return err
	}
	if done { // the end of a job that restarts
		fmt.Fprintf(cmd.ErrOrStderr(), "microscale: %s\n", show.OneLine(fmt.Errorf("%s: %w", f.out, train.ErrDone)))
		return training.PrintDone(cmd.OutOrStdout(), f.out, *f.asJSON)
	}
	job.Resize()
	c, corpus, err := f.config(cmd, job)
	if err != nil {
		return err
	}
	if f.out == "" {
		if f.out, err = ranks.FromFirst(job, func() (string, error) { return training.NewDirectory("trained-" + c.Recipe.Name) }); err != nil {
			return err
		}
		defer os.Remove(f.out) // if nothing was written there
	}
	c.Out, c.Resume, c.Force = f.out, f.resume, f.force
	result, err := training.Train(cmd.Context(), c, job.Train, cmd.ErrOrStderr())
	if err != nil {
		return flags.WithFlag(err)
	}
	return training.PrintTraining(cmd.OutOrStdout(), &c, corpus, result, *f.asJSON)
}

// config returns the run of the flags, without its directory, and opens its text.
func (f *trainFlags) config(cmd *cobra.Command, job *ranks.Job) (c train.Config, corpus *train.Corpus, err error) {
	r, err := f.recipes.Recipe()
	if err == nil {
		err = job.Prepare(cmd)
	}
	if err != nil {
		return c, nil, err
	}
	c, corpus, err = f.training.Config(cmd, r)
	if err == nil {
		err = job.Configure(cmd, &c, r)
	}
	if err != nil {
		return c, nil, err
	}
	c.CheckpointEvery, c.Arguments = flags.Int(f.every), flags.StoredArguments(cmd, corpus)
	return c, corpus, nil
}
