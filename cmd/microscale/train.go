package main

import (
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

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
	recipes := addRecipe(cmd)
	training := addTraining(cmd, train.DefaultConfig())
	out := cmd.Flags().String("out", "", "save the model in the new directory `DIR` (default trained-RECIPE, with a number where that is taken)")
	resume := cmd.Flags().Bool("resume", false, "continue the run in DIR, whose other flags may be left out")
	force := cmd.Flags().Bool("force", false, "replace the run in DIR, and the model that it left")
	exclusive(cmd, "resume", "force")
	every := cmd.Flags().Uint("checkpoint-every", uint(train.DefaultConfig().CheckpointEvery), "steps `N` from one checkpoint to the next; 0: when interrupted")
	asJSON := cmd.Flags().Bool("json", false, "print one JSON document")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		boundGarbage()
		dir, err := outDirectory(cmd, *out, recipes, *resume, *force)
		if errors.Is(err, train.ErrDone) { // a job that restarts ends here
			return printDone(cmd, *out, err, *asJSON)
		}
		if err != nil {
			return err
		}
		r, err := recipes.recipe()
		if err != nil {
			return err
		}
		c, err := training.config(cmd, r)
		if err != nil {
			return err
		}
		if *out == "" {
			if dir, err = newDirectory(dir); err != nil {
				return err
			}
			defer os.Remove(dir) // where nothing was written there
		}
		c.Out, c.Resume, c.Force, c.CheckpointEvery, c.Arguments = dir, *resume, *force, int(*every), arguments(cmd, c.Corpus)
		m := newTrainMeter(cmd.ErrOrStderr(), c.Recipe.Name, c.Steps)
		result, err := train.Run(cmd.Context(), c, train.Hooks{Step: m.Step, Validated: m.Validated, Resumed: func(line string) {
			fmt.Fprintf(cmd.ErrOrStderr(), "microscale: %s\n", escaped(line))
		}})
		m.Close()
		if interruption := (*train.Interrupted)(nil); errors.As(err, &interruption) {
			return fmt.Errorf("%w; continue with microscale train --resume --out %s", err, printable(interruption.Out))
		}
		if err != nil {
			return err
		}
		return printTraining(cmd.OutOrStdout(), &c, result, *asJSON)
	}
	return cmd
}

// noArguments is the check of a command that takes flags alone.
func noArguments(_ *cobra.Command, args []string) error {
	if len(args) > 0 {
		return misuse("%q is an argument, and there are none: text is named with --data, a directory with --out", args[0])
	}
	return nil
}

// outDirectory returns where a run is written, less the number of a directory that
// --out does not name. To resume takes the flags of the
// run there that the command line does not give.
func outDirectory(cmd *cobra.Command, out string, recipes *recipeFlags, resume, force bool) (string, error) {
	if resume {
		if out == "" {
			return "", misuse("--resume needs --out: the directory of the run that was interrupted")
		}
		stored, err := train.ReadStored(out)
		if err != nil {
			return "", err
		}
		return out, takeArguments(cmd, stored.Arguments)
	}
	if force && out == "" {
		return "", misuse("--force needs --out: the directory of the run to replace")
	}
	if force {
		return out, nil
	}
	if out != "" {
		return out, train.Vacant(out)
	}
	r, err := recipes.recipe()
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

// own are the flags of a command line that the next one of the same run need not
// agree in.
var own = map[string]bool{"out": true, "resume": true, "force": true, "json": true, "threads": true, "checkpoint-every": true, "data": true}

// arguments returns the flags of a run, as pairs of name and value, for those who
// resume it.
func arguments(cmd *cobra.Command, corpus *train.Corpus) []string {
	var list []string
	cmd.Flags().Visit(func(f *pflag.Flag) {
		if !own[f.Name] {
			list = append(list, f.Name, f.Value.String())
		}
	})
	for _, s := range corpus.Sources {
		list = append(list, "data", s)
	}
	return list
}

// takeArguments sets the flags that arguments listed and the command line lacks.
func takeArguments(cmd *cobra.Command, list []string) error {
	given := map[string]bool{}
	cmd.Flags().Visit(func(f *pflag.Flag) { given[f.Name] = true })
	for i := 0; i+1 < len(list); i += 2 {
		if given[list[i]] {
			continue
		}
		if err := cmd.Flags().Set(list[i], list[i+1]); err != nil {
			return fmt.Errorf("the checkpoint was written with --%s %s, which this program does not take: resume with the program that wrote it", list[i], list[i+1])
		}
	}
	return nil
}

// trainingDocument is a run as JSON.
type trainingDocument struct {
	Recipe          string               `json:"recipe"`
	Steps           int                  `json:"steps"`
	TrainLoss       number               `json:"train_loss"` // nats per byte, of the last step
	ValLoss         number               `json:"val_loss"`
	Seed            uint64               `json:"seed"`
	Data            []string             `json:"data"`
	DataBytes       int                  `json:"data_bytes"`
	Parameters      int                  `json:"parameters"`
	Tokens          int                  `json:"tokens"`
	Seconds         float64              `json:"seconds"`
	SecondsPerStep  number               `json:"seconds_per_step"`
	TokensPerSecond number               `json:"tokens_per_second"`
	Memory          memoryDocument       `json:"memory"`
	Activations     activationsDocument  `json:"activations"` // of which memory.activations is the sum
	Out             string               `json:"out"`
	TrainLosses     []number             `json:"train_losses"` // of each step
	ValLosses       []validationDocument `json:"val_losses"`
}

// doneDocument is what train --resume prints of a run that is done.
type doneDocument struct {
	Out      string `json:"out"`
	Finished bool   `json:"finished"`
}

// printDone reports that a run is done already.
func printDone(cmd *cobra.Command, out string, done error, asJSON bool) error {
	fmt.Fprintf(cmd.ErrOrStderr(), "microscale: %s\n", oneLine(done))
	if asJSON {
		return printJSON(cmd.OutOrStdout(), doneDocument{out, true})
	}
	return nil
}

type validationDocument struct {
	Step int    `json:"step"`
	Loss number `json:"loss"`
}

// activationsDocument is what the forward pass saves for the backward pass, in bytes by
// module.
type activationsDocument struct {
	Linear    int `json:"linear"`
	Norms     int `json:"norms"`
	SwiGLU    int `json:"swiglu"`
	Attention int `json:"attention"`
	Layers    int `json:"layers"` // inputs of layers that are computed again
	Loss      int `json:"loss"`
}

func printTraining(w io.Writer, c *train.Config, r *train.Result, asJSON bool) error {
	training, validation := r.FinalLoss()
	if asJSON {
		doc := trainingDocument{
			Recipe: c.Recipe.Name, Steps: c.Steps, TrainLoss: number(training), ValLoss: number(validation), Seed: c.Seed, Data: c.Corpus.Sources, DataBytes: c.Corpus.Bytes(),
			Parameters: r.Parameters, Tokens: r.Tokens, Seconds: r.Seconds, SecondsPerStep: number(r.SecondsPerStep()), TokensPerSecond: number(r.TokensPerSecond()),
			Memory: newMemoryDocument(reportedMemory(r.Memory)), Out: c.Out,
			Activations: activationsDocument{r.Memory.Linear, r.Memory.Norms, r.Memory.SwiGLU, r.Memory.Attention, r.Memory.Layers, r.Memory.Loss},
		}
		for _, l := range r.TrainLoss {
			doc.TrainLosses = append(doc.TrainLosses, number(l))
		}
		for _, p := range r.Validation {
			doc.ValLosses = append(doc.ValLosses, validationDocument{p.Step, number(p.Loss)})
		}
		return printJSON(w, doc)
	}
	out := printable(c.Out)
	_, err := fmt.Fprintf(w, `%s: %s, %s of %d tokens on %s
training loss %.4f, validation loss %.4f nats per byte
%s per step, %s; %s held at the peak of a step
the model is in %s: see microscale eval %s, or microscale quantize %s
`, c.Recipe.Name, parametersText(float64(r.Parameters)), counted(c.Steps, "step"), c.Batch*c.Sequence, printable(c.Corpus.Name()), training, validation,
		durationText(r.SecondsPerStep()), tokenRate(r.TokensPerSecond()), bytesText(float64(r.Memory.Total())), out, out, out)
	return err
}
