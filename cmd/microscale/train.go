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

func trainCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "train",
		Short: "a small language model under a low-precision recipe",
		Long: `Trains a language model of bytes, in the architecture of Llama, whose linear
layers are computed in low precision as a recipe says, and saves it as a Hugging
Face directory that eval, generate and quantize take.

The same seed gives the same losses to the bit, on any number of threads and
resumed or not. While a run goes on, its directory has a checkpoint: after
Ctrl-C, or a kill at any time, the same command with --resume continues from
there, or starts if no checkpoint was written yet.`,
		Example: `  microscale train
  microscale train --recipe nvfp4 --steps 500 --out model
  microscale train --out model --resume
  microscale train --recipe bf16 --data book.txt --layers 2 --json`,
		Args: noArguments,
	}
	recipes := cli.AddRecipe(cmd)
	training := cli.AddTraining(cmd, train.DefaultConfig())
	out := cmd.Flags().String("out", "", "save the model in the new directory `DIR` (default trained-RECIPE, with a number where that is taken)")
	resume := cmd.Flags().Bool("resume", false, "continue the run in DIR, whose other flags may be left out")
	force := cmd.Flags().Bool("force", false, "replace the run in DIR, and the model that it left")
	cli.Exclusive(cmd, "resume", "force")
	every := cmd.Flags().Uint("checkpoint-every", uint(train.DefaultConfig().CheckpointEvery), "steps `N` from one checkpoint to the next; 0: when interrupted")
	asJSON := cmd.Flags().Bool("json", false, "print one JSON document")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		cli.BoundGarbage()
		dir, err := outDirectory(cmd, *out, recipes, *resume, *force)
		if errors.Is(err, train.ErrDone) { // a job that restarts ends here
			return printDone(cmd, *out, err, *asJSON)
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
		if *out == "" {
			if dir, err = newDirectory(dir); err != nil {
				return err
			}
			defer os.Remove(dir) // where nothing was written there
		}
		c.Out, c.Resume, c.Force, c.CheckpointEvery, c.Arguments = dir, *resume, *force, int(*every), cli.StoredArguments(cmd, corpus)
		m := cli.NewTrainMeter(cmd.ErrOrStderr(), c.Recipe.Name, c.Steps)
		c.Progress = func(e train.Event) {
			if e.Name == "resume" {
				fmt.Fprintf(cmd.ErrOrStderr(), "microscale: %s\n", cli.Escaped(c.Out+": "+e.String()))
			}
			m.Report(e)
		}
		result, err := train.Run(cmd.Context(), c)
		m.Close()
		if interruption := (*train.Interrupted)(nil); errors.As(err, &interruption) {
			return fmt.Errorf("%w; continue with microscale train --resume --out %s", err, cli.Printable(interruption.Out))
		}
		if err != nil {
			return err
		}
		return study.PrintTraining(cmd.OutOrStdout(), &c, corpus, result, *asJSON)
	}
	return cmd
}

// noArguments is the check of a command that takes flags alone.
func noArguments(_ *cobra.Command, args []string) error {
	if len(args) > 0 {
		return cli.Misuse("%q is an argument, and there are none: text is named with --data, a directory with --out", args[0])
	}
	return nil
}

// outDirectory returns where a run is written, less the number of a directory that
// --out does not name. To resume takes the flags of the
// run there that the command line does not give.
func outDirectory(cmd *cobra.Command, out string, recipes *cli.RecipeFlags, resume, force bool) (string, error) {
	if resume {
		if out == "" {
			return "", cli.Misuse("--resume needs --out: the directory of the run that was interrupted")
		}
		_, arguments, err := train.LastCheckpoint(out)
		if err != nil {
			return "", err
		}
		return out, cli.TakeArguments(cmd, arguments)
	}
	if force && out == "" {
		return "", cli.Misuse("--force needs --out: the directory of the run to replace")
	}
	if force {
		return out, nil
	}
	if out != "" {
		err := (&train.Config{Out: out}).CheckOut()
		if errors.Is(err, fs.ErrExist) {
			err = fmt.Errorf("%w (--resume, --force or another --out)", err)
		}
		return out, err
	}
	r, err := recipes.Recipe()
	if err != nil {
		return "", err
	}
	return "trained-" + r.Name, nil
}

// newDirectory makes a directory of that name, with a number where it is taken: by
// another run that starts at the same time, too.
func newDirectory(name string) (string, error) {
	dir := name
	for i := 2; ; i++ {
		err := os.Mkdir(dir, 0o777)
		if !errors.Is(err, os.ErrExist) {
			return dir, err
		}
		dir = fmt.Sprintf("%s-%d", name, i)
	}
}

// doneDocument is what train --resume prints of a run that is done.
type doneDocument struct {
	Out      string `json:"out"`
	Finished bool   `json:"finished"`
}

// printDone reports that a run is done already.
func printDone(cmd *cobra.Command, out string, done error, asJSON bool) error {
	fmt.Fprintf(cmd.ErrOrStderr(), "microscale: %s\n", cli.OneLine(done))
	if asJSON {
		return cli.PrintJSON(cmd.OutOrStdout(), doneDocument{out, true})
	}
	return nil
}
