package training

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/microscale-go/microscale/cmd/microscale/internal/flags"
	"github.com/microscale-go/microscale/cmd/microscale/internal/show"
	"github.com/microscale-go/microscale/mma"
	"github.com/microscale-go/microscale/train"
)

// A Document is a training run as JSON.
type Document struct {
	Recipe          string               `json:"recipe"`
	Accumulate      [3]mma.Accumulator   `json:"accumulate"` // of fprop, dgrad and wgrad
	Steps           int                  `json:"steps"`
	TrainLoss       show.Number          `json:"train_loss"` // nats per byte, of the last step
	ValLoss         show.Number          `json:"val_loss"`
	Seed            uint64               `json:"seed"`
	Data            []string             `json:"data"`
	DataBytes       int                  `json:"data_bytes"`
	Parameters      int                  `json:"parameters"`
	Tokens          int                  `json:"tokens"`
	Seconds         float64              `json:"seconds"`
	SecondsPerStep  show.Number          `json:"seconds_per_step"`
	TokensPerSecond show.Number          `json:"tokens_per_second"`
	Memory          memoryDocument       `json:"memory"`
	Activations     activationsDocument  `json:"activations"` // memory.activations is the sum
	Out             string               `json:"out"`
	Ranks           *ranksDocument       `json:"parallel,omitempty"` // of more than one rank
	TrainLosses     []show.Number        `json:"train_losses"`       // of each step
	ValLosses       []validationDocument `json:"val_losses"`
}

// ranksDocument is what the ranks of a run sent.
type ranksDocument struct {
	Ranks      int              `json:"ranks"`
	GradReduce string           `json:"grad_reduce"`
	GradSQNR   show.Number      `json:"grad_sqnr_db"`        // of gradients as rank 0 sent them; null: exact
	Sent       map[string]int64 `json:"bytes_sent_per_step"` // by all ranks, by purpose
}

type validationDocument struct {
	Step int         `json:"step"`
	Loss show.Number `json:"loss"`
}

// activationsDocument is what the forward pass saves for the backward pass, in bytes.
type activationsDocument struct {
	Linear    int `json:"linear"`
	Norms     int `json:"norms"`
	SwiGLU    int `json:"swiglu"`
	Attention int `json:"attention"`
	Layers    int `json:"layers"` // inputs of recomputed layers
	Loss      int `json:"loss"`
}

// A Trainer runs a configuration, as train.Run does on one rank.
type Trainer func(context.Context, train.Config) (*train.Result, error)

// Train trains under c and prints the progress to stderr. The error of an interruption
// names the command that resumes the run.
func Train(ctx context.Context, c train.Config, run Trainer, stderr io.Writer) (*train.Result, error) {
	m := flags.NewTrainMeter(stderr, c.Recipe.Name, c.Steps)
	c.Progress = func(e train.Event) {
		if e.Kind == train.Resume {
			fmt.Fprintf(stderr, "microscale: %s\n", show.Escaped(c.Out+": "+e.String()))
		}
		m.Report(e)
	}
	result, err := run(ctx, c)
	m.Close()
	if interruption := (*train.Interrupted)(nil); errors.As(err, &interruption) {
		err = fmt.Errorf("%w; to resume, run microscale train --resume --out %s", err, show.Printable(interruption.Out))
	}
	return result, err
}

// NewDirectory creates a directory with the given name, or the first numbered one that
// does not exist. Concurrent runs get different directories.
func NewDirectory(name string) (string, error) {
	dir := name
	for i := 2; ; i++ {
		err := os.Mkdir(dir, 0o777)
		if !errors.Is(err, os.ErrExist) {
			return dir, err
		}
		dir = fmt.Sprintf("%s-%d", name, i)
	}
}

// A DoneDocument is a run that had finished before, as JSON.
type DoneDocument struct {
	Out      string `json:"out"`
	Finished bool   `json:"finished"`
}

// PrintDone prints the JSON document of a run that had finished before.
func PrintDone(w io.Writer, out string, asJSON bool) error {
	if !asJSON {
		return nil
	}
	return show.PrintJSON(w, DoneDocument{out, true})
}

// PrintTraining prints the result of a training run as text or JSON.
func PrintTraining(w io.Writer, c *train.Config, corpus *train.Corpus, r *train.Result, asJSON bool) error {
	training, validation := r.FinalLoss()
	if asJSON {
		doc := Document{
			Recipe: c.Recipe.Name, Accumulate: c.Recipe.Accumulate, Steps: c.Steps, TrainLoss: show.Number(training),
			ValLoss: show.Number(validation), Seed: c.Seed, Data: corpus.Sources, DataBytes: corpus.Bytes(),
			Parameters: r.Parameters, Tokens: r.Tokens, Seconds: r.Seconds, SecondsPerStep: show.Number(r.SecondsPerStep()),
			TokensPerSecond: show.Number(r.TokensPerSecond()),
			Memory:          newMemoryDocument(reportedMemory(r.Memory)), Out: c.Out,
			Activations: activationsDocument{r.Memory.Linear, r.Memory.Norms, r.Memory.SwiGLU, r.Memory.Attention, r.Memory.Layers, r.Memory.Loss},
		}
		if r.Ranks > 1 {
			doc.Ranks = &ranksDocument{Ranks: r.Ranks, GradReduce: c.Parallel.GradReduce.String(), GradSQNR: show.Number(r.GradSQNR),
				Sent: r.Traffic}
		}
		for _, l := range r.TrainLoss {
			doc.TrainLosses = append(doc.TrainLosses, show.Number(l))
		}
		for _, p := range r.Validation {
			doc.ValLosses = append(doc.ValLosses, validationDocument{p.Step, show.Number(p.Loss)})
		}
		return show.PrintJSON(w, doc)
	}
	out := show.Printable(c.Out)
	_, err := fmt.Fprintf(w, `%s: %s, %s of %d tokens on %s
training loss %.4f, validation loss %.4f nats per byte
%s per step, %s; peak memory of a step %s
the model is in %s; next, run microscale eval %s or microscale quantize %s
`, c.Recipe.Name, show.ParametersText(float64(r.Parameters)), show.Counted(c.Steps, "step"), r.Tokens/c.Steps,
		show.Printable(corpus.Name()), training, validation,
		show.DurationText(r.SecondsPerStep()), flags.TokenRate(r.TokensPerSecond()), show.BytesText(float64(r.Memory.Total())), out, out, out)
	return err
}
