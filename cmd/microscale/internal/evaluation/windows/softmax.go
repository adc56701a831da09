package windows

import "math"

// A softmax accumulates log Σ exp of the logits of one token over blocks of the vocabulary, and
// finds the largest logit and that of the right token.
type softmax struct {
	max   float64 // of the logits so far
	sum   float64 // of exp(logit − max)
	top   int     // index of the largest logit, the first of equal ones
	right float64 // logit of the right token
}

// newSoftmax returns an accumulator of no logits.
func newSoftmax() softmax { return softmax{max: math.Inf(-1), top: -1, right: math.NaN()} }

// grow sets the maximum to that of the logits seen so far and of a block that starts at index from.
// It returns the factor that existing sums need: exp(old − new).
func (s *softmax) grow(from int, block []float32) float64 {
	old := s.max
	for i, v := range block {
		if float64(v) > s.max {
			s.max, s.top = float64(v), from+i
		}
	}
	if old == s.max {
		return 1
	}
	return math.Exp(old - s.max)
}

// pick keeps the logit of the right token if the block has it.
func (s *softmax) pick(from int, block []float32, right int32) {
	if i := int(right) - from; i >= 0 && i < len(block) {
		s.right = float64(block[i])
	}
}

// add accumulates a block of logits that starts at index from.
func (s *softmax) add(from int, block []float32, right int32) {
	s.sum *= s.grow(from, block)
	for _, v := range block {
		s.sum += math.Exp(float64(v) - s.max)
	}
	s.pick(from, block, right)
}

// logSum returns log Σ exp of all logits.
func (s *softmax) logSum() float64 { return s.max + math.Log(s.sum) }

// nll returns the negative log-likelihood of the right token in nats.
func (s *softmax) nll() float64 { return s.logSum() - s.right }

// A pair compares the logits of two models for one token, block by block of the vocabulary:
//
//	KL = Σ p·(ln p − ln q) = Σ e^(t−max)·(t−s) / Σ e^(t−max) − (logΣeᵗ − logΣeˢ)
//
// where t are the logits of the original, s those of the model, p and q their softmax.
type pair struct {
	original, model softmax
	shift           float64 // Σ e^(t−max)·(t−s)
}

func newPair() pair { return pair{original: newSoftmax(), model: newSoftmax()} }

// add accumulates a block of both models' logits that starts at index from.
func (p *pair) add(from int, original, model []float32, right int32) {
	p.model.add(from, model, right)
	factor := p.original.grow(from, original)
	p.original.sum *= factor
	p.shift *= factor
	for i, t := range original {
		e := math.Exp(float64(t) - p.original.max)
		p.original.sum += e
		if e > 0 { // a logit of −Inf in both models adds nothing
			p.shift += e * (float64(t) - float64(model[i]))
		}
	}
	p.original.pick(from, original, right)
}

// kl returns the divergence of the model from the original in nats. Rounding can make it less than
// zero by about 1e-16 of the logits.
func (p *pair) kl() float64 {
	return p.shift/p.original.sum - (p.original.logSum() - p.model.logSum())
}
