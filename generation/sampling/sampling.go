// Package sampling draws the next token of a text from the logits of a language model.
//
// The steps and their order are those of llama.cpp's sampler chain:
//
//	repeat penalty   logits of recent tokens move toward less likely
//	top-k            keep the K tokens of highest logits
//	top-p            keep the smallest set of most likely tokens with probability P (Holtzman et al., 2019)
//	min-p            keep tokens with at least P times the highest probability (Nguyen et al., 2024)
//	temperature      divide logits by T
//	draw             one token from the softmax of what is left, in order of ids
//
// Of equal logits, the one of the lower id ranks first. Filters find a threshold by partial
// selection and keep the order of ids, so the vocabulary is never sorted.
package sampling

import (
	"fmt"
	"math"
	"slices"

	"github.com/microscale-go/microscale/quant"
)

// Options configures a Sampler. The zero value takes the token of the highest logit.
type Options struct {
	Temperature   float64 // divisor of logits; 0: take the token of the highest logit
	TopK          int     // 0: all tokens
	TopP          float64 // 1: all tokens; 0: only the most likely one
	MinP          float64 // 0: all tokens
	RepeatPenalty float64 // divisor of positive and factor of negative logits of recent tokens, 0.001 to 1000; 0 or 1: none
	Seed          uint64
}

// repeatWindow is the number of recent tokens that the repeat penalty applies to, llama.cpp's
// default.
const repeatWindow = 64

// OutOfRange is the error of an option.
type OutOfRange struct {
	Name      string // as top-p
	Value     float64
	Low, High float64
}

func (e *OutOfRange) Error() string {
	return fmt.Sprintf("sampling: %s is %.10g, want %.10g to %.10g", e.Name, e.Value, e.Low, e.High)
}

// Validate returns an OutOfRange error for the first invalid value.
func (o Options) Validate() error {
	const hottest = 1000
	least := 0.0
	if o.RepeatPenalty > 0 {
		least = 1.0 / hottest // quotients of logits are finite
	}
	for _, v := range []struct {
		name      string
		value     float64
		low, high float64
	}{
		{"temperature", o.Temperature, 0, hottest}, {"top-k", float64(o.TopK), 0, math.MaxInt32},
		{"top-p", o.TopP, 0, 1}, {"min-p", o.MinP, 0, 1}, {"repeat penalty", o.RepeatPenalty, least, hottest},
	} {
		if !(v.value >= v.low && v.value <= v.high) {
			return &OutOfRange{v.name, v.value, v.low, v.high}
		}
	}
	return nil
}

// A Sampler draws the tokens of one text. The random bits of draw i are those of element i of
// quant.Stream, so a text depends only on logits and options.
type Sampler struct {
	options Options
	stream  quant.Stream
	drawn   uint64
	kept    []candidate // in order of ids
	scratch []candidate
}

// A candidate is a token that may be drawn. Its weight is 1 until a step needs its share of the
// softmax.
type candidate struct {
	logit  float32
	id     int32
	weight float64
}

// before reports whether a ranks before b.
func (a candidate) before(b candidate) bool {
	return a.logit > b.logit || a.logit == b.logit && a.id < b.id
}

// New returns a sampler for a new text.
func New(o Options) (*Sampler, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	return &Sampler{options: o, stream: quant.Stream{Seed: o.Seed}}, nil
}

// Next returns the token to follow the tokens of a text. Logits that have no finite maximum are an
// error. Tokens whose logit is NaN are never drawn.
func (s *Sampler) Next(logits []float32, text []int32) (int32, error) {
	s.kept = s.kept[:0]
	for id, logit := range logits {
		if logit == logit {
			s.kept = append(s.kept, candidate{logit, int32(id), 1})
		}
	}
	top, err := s.penalize(logits, text)
	if err != nil {
		return 0, err
	}
	if s.options.Temperature == 0 {
		return top.id, nil
	}
	s.topK()
	s.topP(top)
	s.minP(top)
	return s.draw(top), nil
}

// penalize applies the repeat penalty and returns the candidate that ranks first.
func (s *Sampler) penalize(logits []float32, text []int32) (top candidate, err error) {
	if p := float32(s.options.RepeatPenalty); p != 0 && p != 1 {
		recent := slices.Clone(text[max(0, len(text)-repeatWindow):])
		slices.Sort(recent)
		for _, id := range slices.Compact(recent) {
			at, ok := slices.BinarySearchFunc(s.kept, id, func(c candidate, id int32) int { return int(c.id) - int(id) })
			if !ok {
				continue
			}
			if c := &s.kept[at]; c.logit > 0 {
				c.logit /= p
			} else {
				c.logit *= p
			}
		}
	}
	if len(s.kept) == 0 {
		return top, fmt.Errorf("sampling: none of the %d logits is a number", len(logits))
	}
	top = s.kept[0]
	for _, c := range s.kept {
		if c.before(top) {
			top = c
		}
	}
	if math.IsInf(float64(top.logit), 0) {
		return top, fmt.Errorf("sampling: the highest logit is %g", top.logit)
	}
	return top, nil
}

// topK ranks only the few candidates that come before the K-th of those already seen.
func (s *Sampler) topK() {
	k := s.options.TopK
	if k == 0 || k >= len(s.kept) {
		return
	}
	best := s.scratch[:0]
	limited := false
	var limit candidate // the K-th of those seen
	for _, c := range s.kept {
		if limited && limit.before(c) {
			continue
		}
		if best = append(best, c); len(best) == 2*k {
			limit, limited = last(best, float64(k)), true
			best = slices.DeleteFunc(best, limit.before)
		}
	}
	s.keep(last(best, float64(k)))
	s.scratch = best
}

func (s *Sampler) topP(top candidate) {
	p := s.options.TopP
	if p == 1 {
		return
	}
	sum := s.weigh(top, 1)
	s.scratch = append(s.scratch[:0], s.kept...)
	s.keep(last(s.scratch, p*sum))
}

// weigh sets the weights to the softmax of the logits over a temperature, times their sum, which it
// returns.
func (s *Sampler) weigh(top candidate, temperature float64) (sum float64) {
	for i := range s.kept {
		c := &s.kept[i]
		c.weight = math.Exp((float64(c.logit) - float64(top.logit)) / temperature)
		sum += c.weight
	}
	return sum
}

func (s *Sampler) minP(top candidate) {
	if p := s.options.MinP; p > 0 {
		least := float64(top.logit) + math.Log(p)
		s.kept = slices.DeleteFunc(s.kept, func(c candidate) bool { return float64(c.logit) < least })
	}
}

// keep removes the candidates that rank after last.
func (s *Sampler) keep(last candidate) { s.kept = slices.DeleteFunc(s.kept, last.before) }

// last returns the last candidate of the shortest ranking whose weights sum to goal. It is
// quickselect: each step ranks one pivot, and discards the side that the answer is not on. It
// reorders c.
func last(c []candidate, goal float64) candidate {
	for len(c) > 1 {
		at := partition(c)
		sum := 0.0
		for _, x := range c[:at] {
			sum += x.weight
		}
		switch {
		case at > 0 && sum >= goal:
			c = c[:at]
		case sum+c[at].weight >= goal || at == len(c)-1:
			return c[at]
		default:
			goal -= sum + c[at].weight
			c = c[at+1:]
		}
	}
	return c[0]
}

// partition returns the index of a pivot after moving candidates that rank before it to the front.
// The pivot is the median of three.
func partition(c []candidate) int {
	last, middle := len(c)-1, len(c)/2
	if c[middle].before(c[0]) {
		c[0], c[middle] = c[middle], c[0]
	}
	if c[last].before(c[0]) {
		c[0], c[last] = c[last], c[0]
	}
	if c[middle].before(c[last]) {
		c[middle], c[last] = c[last], c[middle]
	}
	at := 0
	for i, x := range c[:last] {
		if x.before(c[last]) {
			c[at], c[i] = x, c[at]
			at++
		}
	}
	c[at], c[last] = c[last], c[at]
	return at
}

// draw returns a token of the softmax of the kept logits over the temperature.
func (s *Sampler) draw(top candidate) int32 {
	left := s.weigh(top, s.options.Temperature) * (float64(s.stream.At(s.drawn)) / (1 << 32))
	s.drawn++
	for _, c := range s.kept {
		if left -= c.weight; left < 0 {
			return c.id
		}
	}
	return top.id // rounding left a rest
}
