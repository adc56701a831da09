package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/spf13/cobra"

	"github.com/microscale-go/microscale/internal/cli"
	"github.com/microscale-go/microscale/internal/study"
	"github.com/microscale-go/microscale/train"
)

const trainLong = `Train a byte-level language model of the Llama architecture, with its linear
layers in low precision as a recipe specifies. Save it as a Hugging Face
directory for eval, generate and quantize.

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
  microscale train --recipe bf16 --data book.txt --layers 2 --json`,
		Args: noArguments,
	}
	recipes := cli.AddRecipe(cmd)
	training := cli.AddTraining(cmd, train.DefaultConfig())
	var o trainOptions
	cmd.Flags().StringVar(&o.out, "out", "", "save the model in new directory `DIR` (default trained-RECIPE, numbered if it exists)")
	cmd.Flags().BoolVar(&o.resume, "resume", false, "resume the run in DIR; its other flags may be omitted")
	cmd.Flags().BoolVar(&o.force, "force", false, "replace the run and the model in DIR")
	cli.Exclusive(cmd, "resume", "force")
	every := cmd.Flags().Uint("checkpoint-every", uint(train.DefaultConfig().CheckpointEvery), "write a checkpoint every `N` steps; 0: only when interrupted")
	asJSON := addJSON(cmd)
	cli.Essential(cmd, "recipe", "steps", "seed", "data", "hidden", "layers", "learning-rate", "out", "resume", "json")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		cli.BoundGarbage()
		err := o.directory(cmd)
		if errors.Is(err, train.ErrDone) { // the end of a job that restarts
			fmt.Fprintf(cmd.ErrOrStderr(), "microscale: %s\n", cli.OneLine(err))
			return study.PrintDone(cmd.OutOrStdout(), o.out, *asJSON)
		}
		if err != nil {
			return err
		}
		r, err := recipes.Recipe()
		if err != nil {
			return err
		}
		c, corpus, err := training.Config(cmd, r)
		if err != nil {
			return err
		}
		if o.out == "" {
			if o.out, err = study.NewDirectory("trained-" + r.Name); err != nil {
				return err
			}
			defer os.Remove(o.out) // if nothing was written there
		}
		c.Out, c.Resume, c.Force, c.CheckpointEvery, c.Arguments = o.out, o.resume, o.force, int(*every), cli.StoredArguments(cmd, corpus)
		result, err := study.Train(cmd.Context(), c, cmd.ErrOrStderr())
		if err != nil {
			return err
		}
		return study.PrintTraining(cmd.OutOrStdout(), &c, corpus, result, *asJSON)
	}
	return cmd
}

type trainOptions struct {
	out           string
	resume, force bool
}

// directory checks the flags of the output directory. With --resume, it sets the flags
// of the run there that the command line does not give.
func (o *trainOptions) directory(cmd *cobra.Command) error {
	switch {
	case o.resume && o.out == "":
		return cli.Misuse("--resume needs --out: name the directory of the interrupted run")
	case o.force && o.out == "":
		return cli.Misuse("--force needs --out: name the directory of the run to replace")
	case o.resume:
		_, arguments, err := train.LastCheckpoint(o.out)
		if err != nil {
			return err
		}
		return cli.TakeArguments(cmd, arguments)
	case o.out != "" && !o.force:
		err := (&train.Config{Out: o.out}).CheckOut()
		if errors.Is(err, fs.ErrExist) {
			err = fmt.Errorf("%w; use --resume, --force or another --out", err)
		}
		return err
	}
	return nil
}
