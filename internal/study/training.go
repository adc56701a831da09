package study

import (
	"fmt"
	"io"

	"github.com/microscale-go/microscale/internal/cli"
	"github.com/microscale-go/microscale/train"
)

// TrainingDocument is a run as JSON.
type TrainingDocument struct {
	Recipe          string               `json:"recipe"`
	Steps           int                  `json:"steps"`
	TrainLoss       cli.Number           `json:"train_loss"` // nats per byte, of the last step
	ValLoss         cli.Number           `json:"val_loss"`
	Seed            uint64               `json:"seed"`
	Data            []string             `json:"data"`
	DataBytes       int                  `json:"data_bytes"`
	Parameters      int                  `json:"parameters"`
	Tokens          int                  `json:"tokens"`
	Seconds         float64              `json:"seconds"`
	SecondsPerStep  cli.Number           `json:"seconds_per_step"`
	TokensPerSecond cli.Number           `json:"tokens_per_second"`
	Memory          memoryDocument       `json:"memory"`
	Activations     activationsDocument  `json:"activations"` // of which memory.activations is the sum
	Out             string               `json:"out"`
	TrainLosses     []cli.Number         `json:"train_losses"` // of each step
	ValLosses       []validationDocument `json:"val_losses"`
}

type validationDocument struct {
	Step int        `json:"step"`
	Loss cli.Number `json:"loss"`
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

// PrintTraining prints the result of a training run as text or JSON.
func PrintTraining(w io.Writer, c *train.Config, corpus *train.Corpus, r *train.Result, asJSON bool) error {
	training, validation := r.FinalLoss()
	if asJSON {
		doc := TrainingDocument{
			Recipe: c.Recipe.Name, Steps: c.Steps, TrainLoss: cli.Number(training), ValLoss: cli.Number(validation), Seed: c.Seed, Data: corpus.Sources, DataBytes: corpus.Bytes(),
			Parameters: r.Parameters, Tokens: r.Tokens, Seconds: r.Seconds, SecondsPerStep: cli.Number(r.SecondsPerStep()), TokensPerSecond: cli.Number(r.TokensPerSecond()),
			Memory: newMemoryDocument(reportedMemory(r.Memory)), Out: c.Out,
			Activations: activationsDocument{r.Memory.Linear, r.Memory.Norms, r.Memory.SwiGLU, r.Memory.Attention, r.Memory.Layers, r.Memory.Loss},
		}
		for _, l := range r.TrainLoss {
			doc.TrainLosses = append(doc.TrainLosses, cli.Number(l))
		}
		for _, p := range r.Validation {
			doc.ValLosses = append(doc.ValLosses, validationDocument{p.Step, cli.Number(p.Loss)})
		}
		return cli.PrintJSON(w, doc)
	}
	out := cli.Printable(c.Out)
	_, err := fmt.Fprintf(w, `%s: %s, %s of %d tokens on %s
training loss %.4f, validation loss %.4f nats per byte
%s per step, %s; %s held at the peak of a step
the model is in %s: see microscale eval %s, or microscale quantize %s
`, c.Recipe.Name, cli.ParametersText(float64(r.Parameters)), cli.Counted(c.Steps, "step"), c.Batch*c.Sequence, cli.Printable(corpus.Name()), training, validation,
		cli.DurationText(r.SecondsPerStep()), cli.TokenRate(r.TokensPerSecond()), cli.BytesText(float64(r.Memory.Total())), out, out, out)
	return err
}
