package nn

import (
	"fmt"
	"math"
	"runtime"
	"slices"

	"github.com/microscale-go/microscale/internal/parallel"
	"github.com/microscale-go/microscale/quant"
	"github.com/microscale-go/microscale/tensor"
)

// Attention is causal self-attention of grouped heads (Ainslie et al., "GQA",
// 2023) with rotary position embedding. For each head, with rows of tokens,
//
//	S = Q·Kᵀ/√d     P = softmax(S) up to each token      O = P·V
//	dV = Pᵀ·dO      dP = dO·Vᵀ     dS = P∘(dP − Σ P∘dP)      dQ = dS·K/√d     dK = dSᵀ·Q/√d
//
// The heads of a group share their K and V, so Q, P and dO of a group are stacked
// and each line above is one product. S, softmax and dS are float32; the operands
// of the six products are what the recipe says of attention:
//
//	Attention.DotProduct  Q, K, V and P quantized as inputs are, dO and dS as gradients are
//	otherwise             rounded to the format of activations
//
// Where a tensor has one scale, Q, K, V and dO have one for all heads and P that of
// its amax, which is 1: the first token of a sequence attends to itself alone. dS
// has one for each product, or its delayed one. The backward computes P again from
// Q and K, and so nothing of the size of tokens × tokens is kept.
type Attention struct {
	Name                    string
	Heads, KVHeads, HeadDim int
	Rotary                  *Rotary
	CacheScales             *CacheScales // of an FP8 KV cache; nil: keys and values stay as they are

	operands attentionOperands
}

// AttentionSaved is what a forward pass saves for its backward pass: Q, K and V after
// rotation.
type AttentionSaved struct {
	qkv    *quant.Tensor // all three; nil where they are saved as operands
	codes  attentionCodes
	length int
}

// Bytes returns the memory that it takes.
func (s *AttentionSaved) Bytes() int { return tensorBytes(s.qkv) + s.codes.bytes() }

// Params returns nothing.
func (a *Attention) Params() []*Param { return nil }

// Width returns the columns of the input: the heads of Q, of K and of V, side by
// side.
func (a *Attention) Width() int { return (a.Heads + 2*a.KVHeads) * a.HeadDim }

// Forward returns O, tokens × Heads·HeadDim, of batch sequences of equal length,
// one behind the other. It takes qkv over, whose Q and K it rotates in place.
// saved is nil where the scope is one of inference.
func (a *Attention) Forward(s *Scope, qkv tensor.Dense, batch int) (o tensor.Dense, saved *AttentionSaved, err error) {
	if err := checkWidth(a.Name, qkv, a.Width()); err != nil {
		return tensor.Dense{}, nil, err
	}
	if batch < 1 || qkv.Rows%batch != 0 {
		return tensor.Dense{}, nil, fmt.Errorf("%s: %d tokens are not %d sequences of equal length", a.Name, qkv.Rows, batch)
	}
	length := qkv.Rows / batch
	if err := a.rotate(s, qkv, length, 0); err != nil {
		return tensor.Dense{}, nil, err
	}
	if s.Cached != nil {
		k, v := a.Heads*a.HeadDim, (a.Heads+a.KVHeads)*a.HeadDim
		s.Cached(KeysValues{a.Name, qkv.View(0, qkv.Rows, k, v), qkv.View(0, qkv.Rows, v, qkv.Cols)})
	}
	if err := a.roundCached(s, qkv); err != nil {
		return tensor.Dense{}, nil, err
	}
	run := a.newRun(s, qkv, qkv, length, nil)
	if o, err = run.forward(batch); err != nil {
		return tensor.Dense{}, nil, err
	}
	if s.Inference {
		return o, nil, nil
	}
	if s.savesCodes() {
		codes, err := run.saveCodes()
		if err != nil {
			return tensor.Dense{}, nil, fmt.Errorf("%s: %w", a.Name, err)
		}
		return o, &AttentionSaved{codes: codes, length: length}, nil
	}
	kept, err := s.keep(qkv)
	if err != nil {
		return tensor.Dense{}, nil, fmt.Errorf("%s: %w", a.Name, err)
	}
	return o, &AttentionSaved{qkv: kept, length: length}, nil
}

// rotate rotates Q and K, in sequences of the given length that start at a
// position.
func (a *Attention) rotate(s *Scope, qkv tensor.Dense, length, first int) error {
	if first+length > a.Rotary.Positions() {
		return fmt.Errorf("%s: %d tokens in a sequence, more than max_position_embeddings, %d", a.Name, first+length, a.Rotary.Positions())
	}
	rotated, rotation := (a.Heads+a.KVHeads)*a.HeadDim, a.Rotary.rotation(first, length)
	parallel.For(qkv.Rows, rowGrain(rotated), s.Threads, func(from, to int) {
		for i := from; i < to; i++ {
			row := qkv.Row(i)[:rotated]
			rotation.apply(row, i%length)
			s.round(row)
		}
	})
	return nil
}

// Backward returns dQKV, before rotation.
func (a *Attention) Backward(s *Scope, saved *AttentionSaved, do tensor.Dense) (dqkv tensor.Dense, err error) {
	var qkv tensor.Dense
	var scales *[len(operandNames)]*float32
	switch {
	case saved != nil && saved.qkv != nil:
		qkv = s.restore(&saved.qkv)
	case saved != nil && saved.codes.scales != nil:
		scales = saved.codes.scales
		qkv = saved.codes.restore(s)
	default:
		return tensor.Dense{}, nothingSaved(a.Name)
	}
	if do.Rows != qkv.Rows || do.Cols != a.Heads*a.HeadDim {
		return tensor.Dense{}, fmt.Errorf("%s: the gradient is %d×%d, not %d×%d", a.Name, do.Rows, do.Cols, qkv.Rows, a.Heads*a.HeadDim)
	}
	again := *s // Q, K, V and P have the scales and amaxes that they had
	again.Recompute = true
	if dqkv, err = a.newRun(&again, qkv, qkv, saved.length, scales).backward(do); err != nil {
		return tensor.Dense{}, err
	}
	rotated, rotation := (a.Heads+a.KVHeads)*a.HeadDim, a.Rotary.rotation(0, saved.length)
	parallel.For(dqkv.Rows, rowGrain(dqkv.Cols), s.Threads, func(from, to int) {
		for i := from; i < to; i++ {
			row := dqkv.Row(i)
			rotation.invert(row[:rotated], i%saved.length)
			s.round(row)
		}
	})
	return dqkv, nil
}

// EndForward and EndBackward move the scales of delayed scaling on, as those of
// Linear do.
func (a *Attention) EndForward(s *Scope) { a.operands.endForward(s) }

// EndBackward is the one after a backward pass.
func (a *Attention) EndBackward(s *Scope) { a.operands.endBackward(s) }

// State returns the state of delayed scaling of the operands, as Linear.State does.
func (a *Attention) State() []float32 { return packScales(a.operands.delayed[Query:]) }

// SetState takes what State returned.
func (a *Attention) SetState(state []float32) error {
	if err := unpackScales(a.operands.delayed[Query:], state); err != nil {
		return fmt.Errorf("%s: %w", a.Name, err)
	}
	return nil
}

// An attentionRun is one forward or one backward: what its heads share.
type attentionRun struct {
	*Attention
	s       *Scope
	queries tensor.Dense // the first columns are Q
	keys    tensor.Dense // the last columns are K and V
	length  int          // of a sequence of keys

	scale float32                     // 1/√d
	whole [len(operandNames)]*float32 // by operand, what its parts share (attentionOperands.begin)

	restored bool // Q, K and V are decoded: the forward pass observed their sources
}

// newRun begins a run. scales are those of the forward pass that a backward pass belongs
// to, where it saved them; nil computes them.
func (a *Attention) newRun(s *Scope, queries, keys tensor.Dense, length int, scales *[len(operandNames)]*float32) *attentionRun {
	r := &attentionRun{Attention: a, s: s, queries: queries, keys: keys, length: length, scale: float32(1 / math.Sqrt(float64(a.HeadDim)))}
	if scales != nil {
		r.whole, r.restored = *scales, true
		return r
	}
	value := keys.Cols - a.KVHeads*a.HeadDim
	r.whole[Query] = a.operands.begin(s, Query, queries.View(0, queries.Rows, 0, a.Heads*a.HeadDim))
	r.whole[Key] = a.operands.begin(s, Key, keys.View(0, keys.Rows, value-a.KVHeads*a.HeadDim, value))
	r.whole[Value] = a.operands.begin(s, Value, keys.View(0, keys.Rows, value, keys.Cols))
	r.whole[Probability] = a.operands.begin(s, Probability, tensor.Of(1, 1, []float32{1}))
	return r
}

// each calls body for every pair of a sequence and a head of K and V, the pairs
// split over goroutines that have a worker each.
func (r *attentionRun) each(batch int, body func(w *worker, sequence, head int) error) error {
	pairs := batch * r.KVHeads
	threads := r.s.Threads
	if threads <= 0 {
		threads = runtime.GOMAXPROCS(0)
	}
	if r.s.Observe != nil || r.s.Products != nil {
		threads = 1 // these are called one at a time
	}
	failed := make([]error, pairs)
	parallel.For(pairs, (pairs+threads-1)/threads, threads, func(from, to int) {
		w := &worker{attentionRun: r, scope: *r.s}
		w.scope.Threads = 1
		w.silent = w.scope
		w.silent.Observe = nil
		for i := from; i < to && failed[from] == nil; i++ {
			if err := body(w, i/r.KVHeads, i%r.KVHeads); err != nil {
				failed[from] = fmt.Errorf("%s: %w", r.Name, err)
			}
		}
	})
	for _, err := range failed {
		if err != nil {
			return err
		}
	}
	return nil
}

func (r *attentionRun) forward(batch int) (tensor.Dense, error) {
	o := tensor.New(r.queries.Rows, r.Heads*r.HeadDim)
	tokens := r.queries.Rows / batch
	err := r.each(batch, func(w *worker, sequence, head int) error {
		for from := 0; from < tokens; from += chunkTokens {
			c := w.chunk(sequence, head, tokens, from)
			p, err := w.probabilities(c)
			if err != nil {
				return err
			}
			out := w.dense(&w.o, c.rows(), r.HeadDim)
			err = w.multiply(out, 1, false,
				w.operand(Probability, quant.Rowwise, p),
				w.operand(Value, quant.Columnwise, c.v))
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
	parallel.For(o.Rows, rowGrain(o.Cols), r.s.Threads, func(from, to int) {
		r.s.round(o.Data[from*o.Cols : to*o.Cols])
	})
	return o, nil
}

func (r *attentionRun) backward(do tensor.Dense) (tensor.Dense, error) {
	r.whole[GradOutput] = r.operands.begin(r.s, GradOutput, do)
	r.whole[GradProbability] = r.operands.beginEach(r.s, GradProbability)
	d := tensor.New(do.Rows, r.Width())
	batch := do.Rows / r.length
	amaxes := make([]float32, batch*r.KVHeads) // of dS
	err := r.each(batch, func(w *worker, sequence, head int) error {
		for from := 0; from < r.length; from += chunkTokens {
			c := w.chunk(sequence, head, r.length, from)
			p, err := w.probabilities(c)
			if err != nil {
				return err
			}
			dOut := w.dense(&w.o, c.rows(), r.HeadDim)
			c.stack(dOut, do)
			dp := w.dense(&w.dp, p.Rows, p.Cols)
			dq := w.dense(&w.dq, c.rows(), r.HeadDim)
			dk, dv := c.keyValue(d)
			err = firstError(
				w.multiply(dv, 1, true,
					w.operand(Probability, quant.Columnwise, p),
					w.operand(GradOutput, quant.Columnwise, dOut)),
				w.multiply(dp, 1, false,
					w.operand(GradOutput, quant.Rowwise, dOut),
					w.operand(Value, quant.Rowwise, c.v)))
			if err != nil {
				return err
			}
			softmaxBackward(dp, p)
			err = firstError(
				w.multiply(dq, r.scale, false,
					w.operand(GradProbability, quant.Rowwise, dp),
					w.operand(Key, quant.Columnwise, c.k)),
				w.multiply(dk, r.scale, true,
					w.operand(GradProbability, quant.Columnwise, dp),
					w.operand(Query, quant.Columnwise, w.q)))
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
	r.operands.endEach(r.s, GradProbability, slices.Max(amaxes))
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
