package study

import (
	"github.com/microscale-go/microscale/internal/cli"
	"github.com/microscale-go/microscale/internal/report"
)

// ComparisonDocument is a comparison as JSON.
type ComparisonDocument struct {
	Recipes    []comparedDocument      `json:"recipes"`
	Formats    []comparedAfterDocument `json:"formats"` // of the model of the baseline, quantized after training
	Steps      int                     `json:"steps"`
	Seed       uint64                  `json:"seed"`
	Data       []string                `json:"data"`
	Parameters int                     `json:"parameters"`
	Report     string                  `json:"report"`
}

type comparedDocument struct {
	Recipe          string               `json:"recipe"`
	Steps           int                  `json:"steps"`
	TrainLoss       cli.Number           `json:"train_loss"` // nats per byte, of the last step; this and the next three are means over the seeds
	ValLoss         cli.Number           `json:"val_loss"`
	GapPercent      cli.Number           `json:"gap_percent"`                // of the validation loss to that of bf16 with the same seed
	GapError        cli.Number           `json:"gap_standard_error_percent"` // null for one seed
	WindowError     cli.Number           `json:"gap_window_error_percent"`   // standard error over the windows of the validation text, of the first seed
	Noise           cli.Number           `json:"gap_noise_percent"`          // gaps below this may be chance; null for the baseline
	Runs            []runDocument        `json:"runs"`                       // final losses by seed; all fields below are of the first seed
	SecondsPerStep  cli.Number           `json:"seconds_per_step"`
	TokensPerSecond cli.Number           `json:"tokens_per_second"`
	Busy            bool                 `json:"busy"` // other programs used the processors during most steps
	Memory          memoryDocument       `json:"memory"`
	Saturated       cli.Number           `json:"saturated"` // fractions of the elements of observed operands
	Flushed         cli.Number           `json:"flushed"`
	Failed          string               `json:"failed,omitempty"`
	TrainLosses     []cli.Number         `json:"train_losses"`
	ValLosses       []validationDocument `json:"val_losses"`
}

// memoryDocument is the memory of a run at the peak of a step, in bytes.
type memoryDocument struct {
	Masters     int64 `json:"masters"`   // FP32 weights
	Gradients   int64 `json:"gradients"` // FP32
	Moments     int64 `json:"moments"`   // FP32
	Rowwise     int64 `json:"rowwise"`   // copies of weights
	Columnwise  int64 `json:"columnwise"`
	Activations int64 `json:"activations"`
	Scratch     int64 `json:"scratch"`
	All         int64 `json:"all"`
}

func newMemoryDocument(m report.Memory) memoryDocument {
	return memoryDocument{m.Masters, m.Gradients, m.Moments, m.Rowwise, m.Columnwise, m.Activations, m.Scratch, m.Total()}
}

type runDocument struct {
	Seed      uint64     `json:"seed"`
	TrainLoss cli.Number `json:"train_loss"`
	ValLoss   cli.Number `json:"val_loss"`
}

type comparedAfterDocument struct {
	Format     string     `json:"format"`
	Bits       cli.Number `json:"bits_per_element"`
	ValLoss    cli.Number `json:"val_loss"`
	Perplexity cli.Number `json:"perplexity"`
}

func (k *Comparison) document(c *report.Comparison, path string) ComparisonDocument {
	doc := ComparisonDocument{
		Recipes: []comparedDocument{}, Formats: []comparedAfterDocument{},
		Steps: k.Config.Steps, Seed: k.Config.Seed, Data: k.Corpus.Sources, Parameters: k.parameters(), Report: path,
	}
	for i := range c.Recipes {
		r := &c.Recipes[i]
		training, validation := r.Losses()
		d := comparedDocument{
			Recipe: r.Name, Steps: r.Steps, TrainLoss: cli.Number(training), ValLoss: cli.Number(validation), GapPercent: cli.Number(100 * c.Gap(r)), GapError: cli.Number(100 * c.GapError(r)), WindowError: cli.Number(100 * c.WindowError(r)), Noise: cli.Number(100 * c.Noise(r)), Runs: []runDocument{},
			SecondsPerStep: cli.Number(r.SecondsPerStep), TokensPerSecond: cli.Number(r.TokensPerSecond), Busy: r.Busy, Memory: newMemoryDocument(r.Memory),
			Saturated: cli.Number(r.Saturated()), Flushed: cli.Number(r.Flushed()), Failed: r.Failed, TrainLosses: []cli.Number{}, ValLosses: []validationDocument{},
		}
		if r.Name == c.Baseline {
			d.WindowError, d.Noise = cli.Number(nan), cli.Number(nan)
		}
		for _, run := range r.Runs {
			d.Runs = append(d.Runs, runDocument{run.Seed, cli.Number(run.TrainLoss), cli.Number(run.ValidationLoss)})
		}
		for _, p := range r.Train {
			d.TrainLosses = append(d.TrainLosses, cli.Number(p.Loss))
		}
		for _, p := range r.Validation {
			d.ValLosses = append(d.ValLosses, validationDocument{p.Step, cli.Number(p.Loss)})
		}
		doc.Recipes = append(doc.Recipes, d)
	}
	for _, f := range c.Formats {
		doc.Formats = append(doc.Formats, comparedAfterDocument{f.Name, cli.Number(f.Bits), cli.Number(f.Loss), cli.Number(report.Perplexity(f.Loss))})
	}
	return doc
}
