package training

import (
	"github.com/microscale-go/microscale/cmd/microscale/internal/report"
	"github.com/microscale-go/microscale/cmd/microscale/internal/show"
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
	Recipe string `json:"recipe"`
	Steps  int    `json:"steps"`
	// nats per byte, of the last step; this and the next three are means over the seeds
	TrainLoss  show.Number `json:"train_loss"`
	ValLoss    show.Number `json:"val_loss"`
	GapPercent show.Number `json:"gap_percent"`                // of the validation loss to that of bf16 with the same seed
	GapError   show.Number `json:"gap_standard_error_percent"` // null for one seed
	// standard error over the windows of the validation text, of the first seed
	WindowError     show.Number          `json:"gap_window_error_percent"`
	Noise           show.Number          `json:"gap_noise_percent"` // gaps below this may be chance; null for the baseline
	Runs            []runDocument        `json:"runs"`              // final losses by seed; all fields below are of the first seed
	SecondsPerStep  show.Number          `json:"seconds_per_step"`
	TokensPerSecond show.Number          `json:"tokens_per_second"`
	Busy            bool                 `json:"busy"` // other programs used the processors during most steps
	Memory          memoryDocument       `json:"memory"`
	Saturated       show.Number          `json:"saturated"` // fractions of the elements of observed operands
	Flushed         show.Number          `json:"flushed"`
	Failed          string               `json:"failed,omitempty"`
	TrainLosses     []show.Number        `json:"train_losses"`
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
	Seed      uint64      `json:"seed"`
	TrainLoss show.Number `json:"train_loss"`
	ValLoss   show.Number `json:"val_loss"`
}

type comparedAfterDocument struct {
	Format     string      `json:"format"`
	Bits       show.Number `json:"bits_per_element"`
	ValLoss    show.Number `json:"val_loss"`
	Perplexity show.Number `json:"perplexity"`
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
			Recipe: r.Name, Steps: r.Steps, TrainLoss: show.Number(training), ValLoss: show.Number(validation),
			GapPercent: show.Number(100 * c.Gap(r)), GapError: show.Number(100 * c.GapError(r)), WindowError: show.Number(100 * c.WindowError(r)),
			Noise: show.Number(100 * c.Noise(r)), Runs: []runDocument{},
			SecondsPerStep: show.Number(r.SecondsPerStep), TokensPerSecond: show.Number(r.TokensPerSecond), Busy: r.Busy,
			Memory:    newMemoryDocument(r.Memory),
			Saturated: show.Number(r.Saturated()), Flushed: show.Number(r.Flushed()), Failed: r.Failed, TrainLosses: []show.Number{},
			ValLosses: []validationDocument{},
		}
		if r.Name == c.Baseline {
			d.WindowError, d.Noise = show.Number(nan), show.Number(nan)
		}
		for _, run := range r.Runs {
			d.Runs = append(d.Runs, runDocument{run.Seed, show.Number(run.TrainLoss), show.Number(run.ValidationLoss)})
		}
		for _, p := range r.Train {
			d.TrainLosses = append(d.TrainLosses, show.Number(p.Loss))
		}
		for _, p := range r.Validation {
			d.ValLosses = append(d.ValLosses, validationDocument{p.Step, show.Number(p.Loss)})
		}
		doc.Recipes = append(doc.Recipes, d)
	}
	for _, f := range c.Formats {
		doc.Formats = append(doc.Formats, comparedAfterDocument{f.Name, show.Number(f.Bits), show.Number(f.Loss),
			show.Number(report.Perplexity(f.Loss))})
	}
	return doc
}
