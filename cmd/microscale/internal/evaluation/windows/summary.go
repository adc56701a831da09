package windows

import "math"

// A Summary describes the scored tokens of a model.
type Summary struct {
	NLL        Mean // nats per token
	Perplexity Mean // e^NLL; its error is that of NLL times the perplexity, as in llama.cpp
	Scored     int
}

// Summary summarizes scores.
func (s *Scores) Summary() Summary {
	nll := meanOf(s.NLL)
	perplexity := math.Exp(nll.Value)
	return Summary{NLL: nll, Perplexity: Mean{perplexity, perplexity * nll.Error}, Scored: len(s.NLL)}
}

// BitsPerByte converts a loss in nats per token to bits per byte of a text.
func BitsPerByte(nats float64, tokens, bytes int) float64 {
	return nats / math.Ln2 * float64(tokens) / float64(bytes)
}

// A Divergence describes how a model differs from its original.
type Divergence struct {
	Original Summary
	Model    Summary

	KL      Distribution // nats
	SameTop Mean         // share of tokens for which both prefer the same token; error √(p(1−p)/(n−1))
	DeltaP  Distribution // probability of the right token, model minus original

	// LnRatio is ln(perplexity of the model / perplexity of the original), with the error of the
	// paired differences.
	LnRatio Mean
}

// Divergence summarizes a comparison.
func (c *Comparison) Divergence() Divergence {
	n := len(c.KL)
	same := make([]float64, n)
	change := make([]float64, n)
	ratio := make([]float64, n)
	for i := range n {
		if c.SameTop[i] {
			same[i] = 1
		}
		original, model := c.Original.NLL[i], c.Model.NLL[i]
		change[i] = math.Exp(-model) - math.Exp(-original)
		ratio[i] = model - original
	}
	return Divergence{
		Original: c.Original.Summary(), Model: c.Model.Summary(),
		KL: distributionOf(c.KL), SameTop: meanOf(same), DeltaP: distributionOf(change), LnRatio: meanOf(ratio),
	}
}
