package nn

import (
	"fmt"
	"math"
	"slices"
	"sync"

	"github.com/microscale-go/microscale/internal/parallel"
	"github.com/microscale-go/microscale/quant"
	"github.com/microscale-go/microscale/tensor"
)

// Attention is causal self-attention of grouped heads (Ainslie et al., "GQA", 2023) with rotary
// position embedding. For each head, with tokens in rows,
//
//	S = Q·Kᵀ/√d     P = softmax(S) up to each token      O = P·V
//	dV = Pᵀ·dO      dP = dO·Vᵀ     dS = P∘(dP − Σ P∘dP)      dQ = dS·K/√d     dK = dSᵀ·Q/√d
//
// The heads of a group share K and V, so their Q, P and dO are stacked and each formula is one
// product. S, the softmax and dS are float32. The operands of the six products are
//
//	with recipe.Attention.DotProduct: Q, K, V and P quantized as inputs, dO and dS as gradients
//	otherwise:                        rounded to the recipe's Activations
//
// With per-tensor scales, Q, K, V and dO have one scale for all heads. The scale of P is that of
// amax 1, because the first token of a sequence attends only to itself. dS has one scale per
// product, or its delayed scale. The backward pass recomputes P from Q and K, so nothing of size
// tokens × tokens is saved.
//
// QueryNorm, KeyNorm, Softcap and Sinks have no backward pass.
type Attention struct {
	Name                    string
	Heads, KVHeads, HeadDim int
	Rotary                  *Rotary // nil: positions are not embedded
	Scale                   float32 // of the scores; 0: 1/√HeadDim
	Window                  int     // a token attends to itself and the Window−1 tokens before it; 0: to all
	Softcap                 float32 // scores become Softcap·tanh(score/Softcap); 0: they stay as they are

	// QueryNorm and KeyNorm normalize Q and K before rotation: each head if they are HeadDim wide,
	// otherwise all heads of a token together. nil: Q and K are not normalized.
	QueryNorm, KeyNorm *RMSNorm

	Sinks *Param // 1 × Heads: a score that joins the denominator of the head's softmax; nil: none

	CacheScales *CacheScales // of an FP8 KV cache; nil: the cache is not quantized

	operands attentionOperands
}

// attentionSaved holds Q, K and V after rotation.
type attentionSaved struct {
	qkv    *quant.Tensor // all three; nil if they are saved as operands
	codes  attentionCodes
	length int // of a sequence
}

// Bytes implements Saved.
func (s *attentionSaved) Bytes() int { return tensorBytes(s.qkv) + s.codes.bytes() }

// Width returns the number of columns of the input: the heads of Q, K and V, side by side.
func (a *Attention) Width() int { return (a.Heads + 2*a.KVHeads) * a.HeadDim }

// Forward returns O, tokens × Heads·HeadDim, for a batch of contiguous sequences of equal length,
// padding included (Scope.Lengths). It takes ownership of qkv, whose Q and K it rotates in place.
// saved is nil under Scope.Inference.
func (a *Attention) Forward(s *Scope, qkv tensor.Dense, batch int) (o tensor.Dense, saved Saved, err error) {
	if err := checkWidth(a.Name, qkv, a.Width()); err != nil {
		return tensor.Dense{}, nil, err
	}
	if batch < 1 || qkv.Rows%batch != 0 {
		return tensor.Dense{}, nil, fmt.Errorf("%s: got %d tokens, want a multiple of the batch of %d sequences", a.Name, qkv.Rows, batch)
	}
	if missing := a.forwardOnly(); missing != "" && !s.Inference {
		return tensor.Dense{}, nil, fmt.Errorf("%s: %s has no backward pass: use Scope.Inference", a.Name, missing)
	}
	length := qkv.Rows / batch
	if err := s.CheckLengths(batch, length); err != nil {
		return tensor.Dense{}, nil, fmt.Errorf("%s: %w", a.Name, err)
	}
	s.ClearPadding(qkv)
	if err := a.prepare(s, qkv, length, 0, length); err != nil {
		return tensor.Dense{}, nil, err
	}
	if s.Observer.KeysValues != nil {
		k, v := a.keysValues(qkv)
		s.Observer.KeysValues(a.Name, k, v)
	}
	if s.Inference {
		a.spread(s, qkv)
	}
	if err := a.roundCached(s, qkv); err != nil {
		return tensor.Dense{}, nil, err
	}
	run, err := a.newRun(s, qkv, qkv, length, nil)
	if err != nil {
		return tensor.Dense{}, nil, err
	}
	if o, err = run.forward(batch); err != nil {
		return tensor.Dense{}, nil, err
	}
	if s.Inference {
		a.spread(s, o)
		return o, nil, nil
	}
	kept := &attentionSaved{length: length}
	if s.savesCodes() {
		kept.codes, err = run.saveCodes()
	} else {
		kept.qkv, err = s.save(qkv)
	}
	if err != nil {
		return tensor.Dense{}, nil, fmt.Errorf("%s: %w", a.Name, err)
	}
	return o, kept, nil
}

// keysValues returns the columns of K and of V.
func (a *Attention) keysValues(qkv tensor.Dense) (k, v tensor.Dense) {
	from, middle := a.Heads*a.HeadDim, (a.Heads+a.KVHeads)*a.HeadDim
	return qkv.View(0, qkv.Rows, from, middle), qkv.View(0, qkv.Rows, middle, qkv.Cols)
}

// forwardOnly names what has no backward pass, or returns "".
func (a *Attention) forwardOnly() string {
	switch {
	case a.QueryNorm != nil || a.KeyNorm != nil:
		return "the norm of queries and keys"
	case a.Softcap != 0:
		return "the softcap of scores"
	case a.Sinks != nil:
		return "an attention sink"
	}
	return ""
}

// prepare normalizes and rotates Q and K of sequences of the given length that start at position
// first and may grow to longest tokens.
func (a *Attention) prepare(s *Scope, qkv tensor.Dense, length, first, longest int) error {
	p := preparation{Attention: a, s: s, qkv: qkv, length: length, queryWeight: a.QueryNorm.weight(s), keyWeight: a.KeyNorm.weight(s)}
	if a.Rotary != nil {
		if first+length > a.Rotary.Positions() {
			return fmt.Errorf("%s: a sequence has %d tokens, want at most max_position_embeddings, %d", a.Name, first+length, a.Rotary.Positions())
		}
		p.rotation = a.Rotary.rotation(first, length, longest)
	}
	parallel.ForState(qkv.Rows, parallel.RowGrain((a.Heads+a.KVHeads)*a.HeadDim), s.Threads, p, preparation.rows)
	return nil
}

// A preparation normalizes and rotates Q and K.
type preparation struct {
	*Attention
	s                      *Scope
	qkv                    tensor.Dense
	length                 int
	queryWeight, keyWeight []float32 // of the norms, rounded
	rotation               rotation  // if there is a Rotary
}

func (p preparation) rows(from, to int) {
	q, rotated := p.Heads*p.HeadDim, (p.Heads+p.KVHeads)*p.HeadDim
	for i := from; i < to; i++ {
		row := p.qkv.Row(i)[:rotated]
		if p.QueryNorm != nil {
			p.QueryNorm.inPlace(p.s, row[:q], p.queryWeight)
		}
		if p.KeyNorm != nil {
			p.KeyNorm.inPlace(p.s, row[q:], p.keyWeight)
		}
		if p.Rotary != nil {
			p.rotation.apply(row, i%p.length)
		}
		p.s.round(row)
	}
}

// Backward returns dQKV before rotation for do = dO. It consumes saved.
func (a *Attention) Backward(s *Scope, saved Saved, do tensor.Dense) (dqkv tensor.Dense, err error) {
	kept, _ := saved.(*attentionSaved)
	if kept == nil || kept.qkv == nil && kept.codes.scales == nil {
		return tensor.Dense{}, nothingSaved(a.Name)
	}
	var qkv tensor.Dense
	scales := kept.codes.scales
	if kept.qkv != nil {
		qkv = s.restore(&kept.qkv)
	} else {
		qkv = kept.codes.restore(s)
	}
	if err := checkGradient(a.Name, do, qkv.Rows, a.Heads*a.HeadDim); err != nil {
		return tensor.Dense{}, err
	}
	if qkv.Rows == 0 {
		return tensor.New(0, a.Width()), nil
	}
	again := *s // Q, K, V and P have the scales and amaxes of the forward pass
	again.Recompute = true
	run, err := a.newRun(&again, qkv, qkv, kept.length, scales)
	if err != nil {
		return tensor.Dense{}, err
	}
	if dqkv, err = run.backward(do); err != nil {
		return tensor.Dense{}, err
	}
	if a.Rotary == nil {
		return dqkv, nil
	}
	rotated, rotation := (a.Heads+a.KVHeads)*a.HeadDim, a.Rotary.rotation(0, kept.length, kept.length)
	parallel.For(dqkv.Rows, parallel.RowGrain(dqkv.Cols), s.Threads, func(from, to int) {
		for i := from; i < to; i++ {
			row := dqkv.Row(i)
			rotation.invert(row[:rotated], i%kept.length)
			s.round(row)
		}
	})
	return dqkv, nil
}

// EndForward ends a forward pass for delayed scaling, like Linear.EndForward.
func (a *Attention) EndForward(s *Scope) { a.operands.update(s, false) }

// EndBackward ends a backward pass for delayed scaling, like Linear.EndBackward.
func (a *Attention) EndBackward(s *Scope) { a.operands.update(s, true) }

// Amaxes returns the amaxes that the end of a pass will use, like Linear.Amaxes.
func (a *Attention) Amaxes(s *Scope, gradients bool) []*float32 {
	if !s.delayedAttention() {
		return nil
	}
	return currentAmaxes(s, a.operands.delayed[:], func(o int) bool {
		return Operand(o) >= query && Operand(o).isGradient() == gradients
	})
}

// State returns the state of delayed scaling of the operands, like Linear.State.
func (a *Attention) State() []float32 { return packScales(a.operands.delayed[query:]) }

// SetState restores what State returned.
func (a *Attention) SetState(state []float32) error {
	if err := unpackScales(a.operands.delayed[query:], state); err != nil {
		return fmt.Errorf("%s: %w", a.Name, err)
	}
	return nil
}

// wholeScales has, by operand, the scale or amax that the parts of a tensor share
// (attentionOperands.begin).
type wholeScales [operands]*float32

// An attentionRun is one forward or backward pass: what its heads share.
type attentionRun struct {
	*Attention
	s       *Scope
	queries tensor.Dense // Q in the first columns
	keys    tensor.Dense // K and V in the last columns
	length  int          // of a sequence of keys

	scale float32 // of the scores
	whole wholeScales

	restored bool // Q, K and V are decoded: the forward pass observed their sources
}

// newRun begins a run. scales are those of the forward pass if it saved them; nil computes them.
func (a *Attention) newRun(s *Scope, queries, keys tensor.Dense, length int, scales *wholeScales) (*attentionRun, error) {
	r := &attentionRun{Attention: a, s: s, queries: queries, keys: keys, length: length, scale: a.Scale}
	if r.scale == 0 {
		r.scale = float32(1 / math.Sqrt(float64(a.HeadDim)))
	}
	if scales != nil {
		r.whole, r.restored = *scales, true
		return r, nil
	}
	first := keys.Cols - a.KVHeads*a.HeadDim // column of V
	return r, firstError(
		r.begin(query, queries.View(0, queries.Rows, 0, a.Heads*a.HeadDim)),
		r.begin(key, keys.View(0, keys.Rows, first-a.KVHeads*a.HeadDim, first)),
		r.begin(value, keys.View(0, keys.Rows, first, keys.Cols)),
		r.begin(probability, tensor.Of(1, 1, []float32{1})))
}

// begin finds the scale or amax that the parts of an operand share.
func (r *attentionRun) begin(o Operand, x tensor.Dense) (err error) {
	if r.whole[o], err = r.operands.begin(r.s, o, x); err != nil {
		return fmt.Errorf("%s: %w", r.Name, err)
	}
	return nil
}

// realTokens returns the number of queries of a sequence that has longest rows with its padding.
func (r *attentionRun) realTokens(sequence, longest int) int {
	if r.s.Lengths == nil {
		return longest
	}
	return r.s.Lengths[sequence]
}

// each calls body for every pair of a sequence and a head of K and V. Goroutines take one pair after another, so that
// fast processors take more of them; each has its own worker.
func (r *attentionRun) each(batch int, body func(w *worker, sequence, head int) error) error {
	pairs := batch * r.KVHeads
	threads := parallel.Threads(r.s.Threads)
	if r.s.Observer.Operand != nil || r.s.Observer.Product != nil {
		threads = 1
	}
	failed := make([]error, pairs)
	workers := sync.Pool{New: func() any {
		w := &worker{attentionRun: r, scope: *r.s}
		w.scope.Threads = 1
		w.silent = w.scope
		w.silent.Observer = Observer{}
		return w
	}}
	parallel.For(pairs, 1, threads, func(from, to int) {
		w := workers.Get().(*worker)
		defer workers.Put(w)
		for i := from; i < to && failed[from] == nil; i++ {
			if err := body(w, i/r.KVHeads, i%r.KVHeads); err != nil {
				failed[from] = fmt.Errorf("%s: %w", r.Name, err)
			}
		}
	})
	return firstError(failed...)
}

func (r *attentionRun) forward(batch int) (tensor.Dense, error) {
	o := r.s.Arena.Dense(r.queries.Rows, r.Heads*r.HeadDim)
	r.s.ClearPadding(o)
	tokens := r.queries.Rows / batch
	err := r.each(batch, func(w *worker, sequence, head int) error {
		for from := 0; from < r.realTokens(sequence, tokens); from += chunkTokens {
			c := w.chunk(sequence, head, tokens, from)
			p, err := w.probabilities(c)
			if err != nil {
				return err
			}
			out := w.dense(&w.o, c.rows(), r.HeadDim)
			err = w.multiply(out, 1, false,
				w.operand(probability, quant.Rowwise, p),
				w.operand(value, quant.Columnwise, c.v))
			if err != nil {
				return err
			}
			c.unstack(o, out)
		}
		return nil
	})
	if err != nil {
		return tensor.Dense{}, err
	}
	if r.s.Recipe.Attention.MultiHead {
		t, err := r.s.attentionQuantizer(Input).Rowwise(o, quant.With{Threads: r.s.Threads})
		if err != nil {
			return tensor.Dense{}, fmt.Errorf("%s: %w", r.Name, err)
		}
		o = t.Dequantize(r.s.Threads)
	}
	parallel.For(o.Rows, parallel.RowGrain(o.Cols), r.s.Threads, func(from, to int) {
		r.s.round(o.Data[from*o.Cols : to*o.Cols])
	})
	return o, nil
}

func (r *attentionRun) backward(do tensor.Dense) (tensor.Dense, error) {
	if err := r.begin(gradOutput, do); err != nil {
		return tensor.Dense{}, err
	}
	r.whole[gradProbability] = r.operands.beginParts(r.s, gradProbability)
	d := r.s.Arena.Dense(do.Rows, r.Width())
	clear(d.Data) // chunks add to dK and dV
	batch := do.Rows / r.length
	amaxes := make([]float32, batch*r.KVHeads) // of dS
	err := r.each(batch, func(w *worker, sequence, head int) error {
		for from := 0; from < r.realTokens(sequence, r.length); from += chunkTokens {
			c := w.chunk(sequence, head, r.length, from)
			p, err := w.probabilities(c)
			if err != nil {
				return err
			}
			dOut := w.dense(&w.o, c.rows(), r.HeadDim)
			c.stack(dOut, do)
			dp := w.dense(&w.dp, p.Rows, p.Cols)
			dq := w.dense(&w.dq, c.rows(), r.HeadDim)
			dk, dv := w.keyValue(d, head, c.key+c.skip, c.key+c.first+c.tokens)
			err = firstError(
				w.multiply(dv, 1, true,
					w.operand(probability, quant.Columnwise, p),
					w.operand(gradOutput, quant.Columnwise, dOut)),
				w.multiply(dp, 1, false,
					w.operand(gradOutput, quant.Rowwise, dOut),
					w.operand(value, quant.Rowwise, c.v)))
			if err != nil {
				return err
			}
			softmaxBackward(dp, p)
			err = firstError(
				w.multiply(dq, r.scale, false,
					w.operand(gradProbability, quant.Rowwise, dp),
					w.operand(key, quant.Columnwise, c.k)),
				w.multiply(dk, r.scale, true,
					w.operand(gradProbability, quant.Columnwise, dp),
					w.operand(query, quant.Columnwise, w.q)))
			if err != nil {
				return err
			}
			c.unstack(d, dq)
		}
		amaxes[sequence*r.KVHeads+head] = w.amax
		return nil
	})
	if err != nil {
		return tensor.Dense{}, err
	}
	r.operands.endParts(r.s, gradProbability, slices.Max(amaxes))
	return d, nil
}

func firstError(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}
