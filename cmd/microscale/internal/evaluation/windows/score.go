package windows

import (
	"fmt"
	"math"

	"github.com/microscale-go/microscale/internal/parallel"
	"github.com/microscale-go/microscale/tensor"
)

// Scores holds the results of a model for all scored tokens, in the order of the text.
type Scores struct {
	NLL []float64 // negative log-likelihood of the right token in nats
}

// A Comparison holds the results of a model and its original for all scored tokens, in the order of the text.
type Comparison struct {
	Original, Model Scores

	KL      []float64 // divergence of the model from the original in nats
	SameTop []bool    // both prefer the same token
}

// A Head returns the logits of the rows of a window for the tokens from ≤ token < to of the
// vocabulary. The result is valid until the next call.
type Head func(from, to int) (tensor.Dense, error)

// blockSize is the number of tokens of the vocabulary whose logits are in memory at once, for each
// scored row. Results depend on it by rounding only.
const blockSize = 4096

// A scorer adds the scored tokens of windows to Scores and Comparisons.
type scorer struct {
	vocabulary int
	threads    int
}

// blocks calls f for the blocks of the vocabulary.
func (s scorer) blocks(f func(from, to int) error) error {
	for from := 0; from < s.vocabulary; from += blockSize {
		if err := f(from, min(from+blockSize, s.vocabulary)); err != nil {
			return err
		}
	}
	return nil
}

// rows calls f for every row of a window, concurrently.
func (s scorer) rows(n int, f func(i int)) {
	parallel.For(n, 1, s.threads, func(from, to int) {
		for i := from; i < to; i++ {
			f(i)
		}
	})
}

// score adds the tokens of a window that one model reads. The head has a row for each target.
func (s scorer) score(to *Scores, head Head, targets []int32) error {
	rows := make([]softmax, len(targets))
	for i := range rows {
		rows[i] = newSoftmax()
	}
	err := s.blocks(func(from, end int) error {
		logits, err := head(from, end)
		if err != nil {
			return err
		}
		s.rows(len(rows), func(i int) { rows[i].add(from, logits.Row(i), targets[i]) })
		return nil
	})
	if err != nil {
		return err
	}
	for i := range rows {
		if err := to.add(&rows[i], i); err != nil {
			return err
		}
	}
	return nil
}

// compare adds the tokens of a window that several models and their original read.
func (s scorer) compare(to []*Comparison, original Head, models []Head, targets []int32) error {
	pairs := make([][]pair, len(models))
	for k := range pairs {
		pairs[k] = make([]pair, len(targets))
		for i := range pairs[k] {
			pairs[k][i] = newPair()
		}
	}
	err := s.blocks(func(from, end int) error {
		t, err := original(from, end)
		if err != nil {
			return fmt.Errorf("original: %w", err)
		}
		for k, model := range models {
			m, err := model(from, end)
			if err != nil {
				return err
			}
			s.rows(len(targets), func(i int) { pairs[k][i].add(from, t.Row(i), m.Row(i), targets[i]) })
		}
		return nil
	})
	if err != nil {
		return err
	}
	for k, c := range to {
		for i := range pairs[k] {
			if err := c.add(&pairs[k][i], i); err != nil {
				return err
			}
		}
	}
	return nil
}

// add appends row i of a window.
func (s *Scores) add(row *softmax, i int) error {
	nll := row.nll()
	if math.IsNaN(nll) || math.IsInf(nll, 0) {
		return fmt.Errorf("the logits of scored token %d of the window are NaN or infinite", i)
	}
	s.NLL = append(s.NLL, nll)
	return nil
}

func (c *Comparison) add(p *pair, i int) error {
	if err := c.Original.add(&p.original, i); err != nil {
		return fmt.Errorf("original: %w", err)
	}
	if err := c.Model.add(&p.model, i); err != nil {
		return err
	}
	c.KL = append(c.KL, p.kl())
	c.SameTop = append(c.SameTop, p.original.top == p.model.top)
	return nil
}
