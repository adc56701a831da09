package evaluation

import (
	"github.com/microscale-go/microscale/cmd/microscale/internal/evaluation/windows"
	"github.com/microscale-go/microscale/cmd/microscale/internal/show"
)

// A Document is an evaluation as JSON. Losses are in nats.
type Document struct {
	Model     string `json:"model"`
	Reference string `json:"reference,omitempty"`
	Text      string `json:"text"`
	SHA256    string `json:"sha256,omitempty"` // of the text of --text
	Bytes     int    `json:"bytes"`            // of the text
	Tokens    int    `json:"tokens"`           // of the text
	Method    string `json:"method"`
	Context   int    `json:"context"`
	Windows   int    `json:"windows"`
	Scored    int    `json:"scored"`              // tokens
	Head      string `json:"head,omitempty"`      // format of the head of the quantized model, if it was quantized here
	KVFormat  string `json:"kv_format,omitempty"` // of keys and values of the quantized model

	LossDocument
	*BytesDocument                           // without --text
	*DivergenceDocument                      // with a reference
	Against             *AgainstDocument     `json:"against,omitempty"` // this model less that of another receipt
	Beside              []BesideDocument     `json:"beside,omitempty"`  // further models with the same original
	Formats             []FormatDocument     `json:"formats,omitempty"`
	Layers              []LayerErrorDocument `json:"layers,omitempty"` // with a reference

	Seconds float64 `json:"seconds"` // of all runs

	RunSeconds float64 `json:"run_seconds,omitempty"` // of the last run, if it resumed an interrupted one
}

// BytesDocument is what an evaluation of a byte-level model adds.
type BytesDocument struct {
	Quantized   bool `json:"quantized"`
	Activations bool `json:"activations"`

	// Weights whose input has a stored scale, weights whose input gets a scale per token,
	// and attention layers with an FP8 KV cache.
	StoredScales int `json:"stored_activation_scales"`
	TokenScales  int `json:"token_activation_scales"`
	KVCaches     int `json:"fp8_kv_caches"`

	Accumulate string   `json:"accumulate"` // how the products of linear layers are added
	Data       []string `json:"data"`
}

// LossDocument is the loss of a model. Standard errors are null where the losses of single tokens are not kept.
type LossDocument struct {
	NLL             show.Number `json:"nll"` // mean per scored token
	NLLError        show.Number `json:"nll_stderr"`
	Perplexity      show.Number `json:"perplexity"`
	PerplexityError show.Number `json:"stderr"`
	BitsPerByte     show.Number `json:"bits_per_byte"`
}

// DivergenceDocument is the divergence of a model from its original.
type DivergenceDocument struct {
	KL           DistributionDocument `json:"kl"`
	SameTop      show.Number          `json:"same_top"`
	SameTopError show.Number          `json:"same_top_stderr"`
	DeltaP       DeltaDocument        `json:"delta_p"`
	LnRatio      show.Number          `json:"ln_ratio"` // of perplexities
	LnRatioError show.Number          `json:"ln_ratio_stderr"`

	ReferenceNLL        show.Number `json:"reference_nll"`
	ReferencePerplexity show.Number `json:"reference_perplexity"`
}

// DistributionDocument is the distribution of divergences.
type DistributionDocument struct {
	Mean   show.Number `json:"mean"`
	Error  show.Number `json:"stderr"`
	Median show.Number `json:"median"`
	P90    show.Number `json:"p90"`
	P95    show.Number `json:"p95"`
	P99    show.Number `json:"p99"`
	P999   show.Number `json:"p999"`
	Max    show.Number `json:"max"`
}

// DeltaDocument is the distribution of changes of the probability of the right token.
type DeltaDocument struct {
	DistributionDocument
	RMS show.Number `json:"rms"`
	P1  show.Number `json:"p1"`
	P5  show.Number `json:"p5"`
	P10 show.Number `json:"p10"`
	Min show.Number `json:"min"`
}

// FormatDocument is the model in a format.
type FormatDocument struct {
	Format string      `json:"format"`
	Bits   show.Number `json:"bits_per_weight"` // of linear layers
	Size   int         `json:"size"`            // in bytes, with all other weights in BF16
	LossDocument
	DivergenceDocument
	Layers []LayerErrorDocument `json:"layers,omitempty"`
}

// BesideDocument is a further model.
type BesideDocument struct {
	Model string `json:"model"`
	LossDocument
	DivergenceDocument
	Layers []LayerErrorDocument `json:"layers,omitempty"`
}

// LayerErrorDocument has the relative squared errors of a layer, ‖S−T‖²/‖T‖².
type LayerErrorDocument struct {
	Layer   int                   `json:"layer"`
	Output  show.Number           `json:"output"` // accumulated
	Linears []LinearErrorDocument `json:"linears"`
}

// LinearErrorDocument has the error of a linear layer for the input that it has in the original.
type LinearErrorDocument struct {
	Name  string      `json:"name"`
	Error show.Number `json:"error"`
}

// Document returns the result as JSON prints it.
func (r *Evaluated) Document() Document {
	d := Document{
		Model: r.Model, Reference: r.Reference, Text: r.document.path, SHA256: r.document.digest, Bytes: r.document.bytes, Tokens: r.tokens,
		Method: r.Method.Name, Context: r.Context, Windows: r.windows, Seconds: r.earlier + r.seconds, RunSeconds: r.runSeconds(),
		Head: r.Head.Format.Name, KVFormat: r.Cache.Name, Against: r.against.document(),
	}
	loss := r.loss()
	d.Scored, d.LossDocument = loss.Scored, r.lossDocument(loss)
	for i, c := range r.result.Comparisons {
		divergence := c.Divergence()
		if i > 0 && r.Reference != "" {
			d.Beside = append(d.Beside, BesideDocument{r.name(i), r.lossDocument(divergence.Model), divergenceDocument(&divergence),
				r.layerDocuments(i)})
			continue
		}
		if r.Reference != "" {
			both := divergenceDocument(&divergence)
			d.DivergenceDocument, d.Layers = &both, r.layerDocuments(i)
			continue
		}
		f := r.Formats[i]
		d.Formats = append(d.Formats, FormatDocument{
			Format: f.Name, Bits: show.Number(f.BitsPerElement()), Size: bytesIn(r.size, f),
			LossDocument: r.lossDocument(divergence.Model), DivergenceDocument: divergenceDocument(&divergence), Layers: r.layerDocuments(i),
		})
	}
	return d
}

// loss returns the losses of the model.
func (r *Evaluated) loss() windows.Summary {
	switch {
	case len(r.Formats) > 0:
		return r.result.Comparisons[0].Original.Summary()
	case r.Reference != "":
		return r.result.Comparisons[0].Model.Summary()
	}
	return r.result.Scores.Summary()
}

func (r *Evaluated) bitsPerByte(s windows.Summary) float64 {
	return windows.BitsPerByte(s.NLL.Value, r.tokens, r.document.bytes)
}

func (r *Evaluated) lossDocument(s windows.Summary) LossDocument {
	return LossDocument{
		NLL: show.Number(s.NLL.Value), NLLError: show.Number(s.NLL.Error),
		Perplexity: show.Number(s.Perplexity.Value), PerplexityError: show.Number(s.Perplexity.Error), BitsPerByte: show.Number(r.bitsPerByte(s)),
	}
}

func distributionDocument(d *windows.Distribution) DistributionDocument {
	at := func(p float64) show.Number { return show.Number(d.At(p)) }
	return DistributionDocument{
		Mean: show.Number(d.Value), Error: show.Number(d.Error), Median: at(0.5),
		P90: at(0.9), P95: at(0.95), P99: at(0.99), P999: at(0.999), Max: at(1),
	}
}

func divergenceDocument(d *windows.Divergence) DivergenceDocument {
	change := &d.DeltaP
	return DivergenceDocument{
		KL:      distributionDocument(&d.KL),
		SameTop: show.Number(d.SameTop.Value), SameTopError: show.Number(d.SameTop.Error),
		DeltaP: DeltaDocument{
			DistributionDocument: distributionDocument(change), RMS: show.Number(change.RMS()),
			P1: show.Number(change.At(0.01)), P5: show.Number(change.At(0.05)), P10: show.Number(change.At(0.1)), Min: show.Number(change.At(0)),
		},
		LnRatio: show.Number(d.LnRatio.Value), LnRatioError: show.Number(d.LnRatio.Error),
		ReferenceNLL: show.Number(d.Original.NLL.Value), ReferencePerplexity: show.Number(d.Original.Perplexity.Value),
	}
}

// layerDocuments returns the errors of the layers of model i, if they were measured.
func (r *Evaluated) layerDocuments(i int) []LayerErrorDocument {
	if !r.Evaluation.Layers {
		return nil
	}
	var list []LayerErrorDocument
	for l, e := range r.result.Layers[i] {
		d := LayerErrorDocument{Layer: l, Output: show.Number(e.Output.Relative()), Linears: []LinearErrorDocument{}}
		for _, linear := range e.Linears {
			d.Linears = append(d.Linears, LinearErrorDocument{linear.Name, show.Number(linear.Error.Relative())})
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
