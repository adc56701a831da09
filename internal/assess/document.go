package assess

import (
	"github.com/microscale-go/microscale/internal/cli"
	"github.com/microscale-go/microscale/internal/evaluate"
)

// A Document is an evaluation as JSON. Losses are in nats.
type Document struct {
	Model     string `json:"model"`
	Reference string `json:"reference,omitempty"`
	Text      string `json:"text"`
	SHA256    string `json:"sha256"` // of the text
	Bytes     int    `json:"bytes"`  // of the text
	Tokens    int    `json:"tokens"` // of the text
	Method    string `json:"method"`
	Context   int    `json:"context"`
	Windows   int    `json:"windows"`
	Scored    int    `json:"scored"`              // tokens
	Head      string `json:"head,omitempty"`      // format of the head of the quantized model, if it was quantized here
	KVFormat  string `json:"kv_format,omitempty"` // of keys and values of the quantized model

	LossDocument
	*DivergenceDocument                      // with a reference
	Formats             []FormatDocument     `json:"formats,omitempty"`
	Layers              []LayerErrorDocument `json:"layers,omitempty"` // with a reference

	Seconds float64 `json:"seconds"` // of all runs

	RunSeconds float64 `json:"run_seconds,omitempty"` // of the last run, if it resumed an interrupted one
}

// LossDocument is the loss of a model.
type LossDocument struct {
	NLL             cli.Number `json:"nll"` // mean per scored token
	NLLError        cli.Number `json:"nll_stderr"`
	Perplexity      cli.Number `json:"perplexity"`
	PerplexityError cli.Number `json:"stderr"`
	BitsPerByte     cli.Number `json:"bits_per_byte"`
}

// DivergenceDocument is the divergence of a model from its original.
type DivergenceDocument struct {
	KL           DistributionDocument `json:"kl"`
	SameTop      cli.Number           `json:"same_top"`
	SameTopError cli.Number           `json:"same_top_stderr"`
	DeltaP       DeltaDocument        `json:"delta_p"`
	LnRatio      cli.Number           `json:"ln_ratio"` // of perplexities
	LnRatioError cli.Number           `json:"ln_ratio_stderr"`

	ReferenceNLL        cli.Number `json:"reference_nll"`
	ReferencePerplexity cli.Number `json:"reference_perplexity"`
}

// DistributionDocument is the distribution of divergences.
type DistributionDocument struct {
	Mean   cli.Number `json:"mean"`
	Error  cli.Number `json:"stderr"`
	Median cli.Number `json:"median"`
	P90    cli.Number `json:"p90"`
	P95    cli.Number `json:"p95"`
	P99    cli.Number `json:"p99"`
	P999   cli.Number `json:"p999"`
	Max    cli.Number `json:"max"`
}

// DeltaDocument is the distribution of changes of the probability of the right token.
type DeltaDocument struct {
	DistributionDocument
	RMS cli.Number `json:"rms"`
	P1  cli.Number `json:"p1"`
	P5  cli.Number `json:"p5"`
	P10 cli.Number `json:"p10"`
	Min cli.Number `json:"min"`
}

// FormatDocument is the model in a format.
type FormatDocument struct {
	Format string     `json:"format"`
	Bits   cli.Number `json:"bits_per_weight"` // of linear layers
	Size   int        `json:"size"`            // in bytes, with all other weights in BF16
	LossDocument
	DivergenceDocument
	Layers []LayerErrorDocument `json:"layers,omitempty"`
}

// LayerErrorDocument has the relative squared errors of a layer, ‖S−T‖²/‖T‖².
type LayerErrorDocument struct {
	Layer   int                   `json:"layer"`
	Output  cli.Number            `json:"output"` // accumulated
	Linears []LinearErrorDocument `json:"linears"`
}

// LinearErrorDocument has the error of a linear layer for the input that it has in the original.
type LinearErrorDocument struct {
	Name  string     `json:"name"`
	Error cli.Number `json:"error"`
}

// Document returns the result as JSON prints it.
func (r *Evaluated) Document() Document {
	d := Document{
		Model: r.Model, Reference: r.Reference, Text: r.document.path, SHA256: r.document.digest, Bytes: r.document.bytes, Tokens: r.tokens,
		Method: r.Method.Name, Context: r.Context, Windows: r.windows, Seconds: r.earlier + r.seconds, RunSeconds: r.runSeconds(),
		Head: r.Head.Format.Name, KVFormat: r.Cache.Name,
	}
	loss := r.loss()
	d.Scored, d.LossDocument = loss.Scored, r.lossDocument(loss)
	for i, c := range r.result.Comparisons {
		divergence := c.Divergence()
		if r.Reference != "" {
			both := divergenceDocument(&divergence)
			d.DivergenceDocument, d.Layers = &both, r.layerDocuments(i)
			continue
		}
		f := r.Formats[i]
		d.Formats = append(d.Formats, FormatDocument{
			Format: f.Name, Bits: cli.Number(f.BitsPerElement()), Size: bytesIn(r.size, f),
			LossDocument: r.lossDocument(divergence.Model), DivergenceDocument: divergenceDocument(&divergence), Layers: r.layerDocuments(i),
		})
	}
	return d
}

// loss returns the losses of the model.
func (r *Evaluated) loss() evaluate.Summary {
	switch {
	case len(r.Formats) > 0:
		return r.result.Comparisons[0].Original.Summary()
	case r.Reference != "":
		return r.result.Comparisons[0].Model.Summary()
	}
	return r.result.Scores.Summary()
}

func (r *Evaluated) bitsPerByte(s evaluate.Summary) float64 {
	return evaluate.BitsPerByte(s.NLL.Value, r.tokens, r.document.bytes)
}

func (r *Evaluated) lossDocument(s evaluate.Summary) LossDocument {
	return LossDocument{
		NLL: cli.Number(s.NLL.Value), NLLError: cli.Number(s.NLL.Error),
		Perplexity: cli.Number(s.Perplexity.Value), PerplexityError: cli.Number(s.Perplexity.Error), BitsPerByte: cli.Number(r.bitsPerByte(s)),
	}
}

func distributionDocument(d *evaluate.Distribution) DistributionDocument {
	at := func(p float64) cli.Number { return cli.Number(d.At(p)) }
	return DistributionDocument{
		Mean: cli.Number(d.Value), Error: cli.Number(d.Error), Median: at(0.5),
		P90: at(0.9), P95: at(0.95), P99: at(0.99), P999: at(0.999), Max: at(1),
	}
}

func divergenceDocument(d *evaluate.Divergence) DivergenceDocument {
	change := &d.DeltaP
	return DivergenceDocument{
		KL:      distributionDocument(&d.KL),
		SameTop: cli.Number(d.SameTop.Value), SameTopError: cli.Number(d.SameTop.Error),
		DeltaP: DeltaDocument{
			DistributionDocument: distributionDocument(change), RMS: cli.Number(change.RMS()),
			P1: cli.Number(change.At(0.01)), P5: cli.Number(change.At(0.05)), P10: cli.Number(change.At(0.1)), Min: cli.Number(change.At(0)),
		},
		LnRatio: cli.Number(d.LnRatio.Value), LnRatioError: cli.Number(d.LnRatio.Error),
		ReferenceNLL: cli.Number(d.Original.NLL.Value), ReferencePerplexity: cli.Number(d.Original.Perplexity.Value),
	}
}

// layerDocuments returns the errors of the layers of model i, if they were measured.
func (r *Evaluated) layerDocuments(i int) []LayerErrorDocument {
	if !r.Evaluation.Layers {
		return nil
	}
	var list []LayerErrorDocument
	for l, e := range r.result.Layers[i] {
		d := LayerErrorDocument{Layer: l, Output: cli.Number(e.Output.Relative()), Linears: []LinearErrorDocument{}}
		for _, linear := range e.Linears {
			d.Linears = append(d.Linears, LinearErrorDocument{linear.Name, cli.Number(linear.Error.Relative())})
		}
		list = append(list, d)
	}
	return list
}

// runSeconds returns the time of this run if it resumed an interrupted one.
func (r *Evaluated) runSeconds() float64 {
	if r.earlier == 0 {
		return 0
	}
	return r.seconds
}
