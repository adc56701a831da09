package train

import (
	"context"
	"encoding/binary"
	"fmt"
	"math"
)

// evaluate evaluates the model on the validation data. The ranks with different microbatches divide
// the batches: rank i modulo their number computes batch i. Ranks that share a layer compute a batch
// together, so they finish it even if the context ends. If the context of one rank ends, all ranks
// return context.Canceled.
func (r *run) evaluate(ctx context.Context) (Evaluation, error) {
	p := &r.Parallel
	if p.ranks() == 1 {
		e, err := Evaluate(ctx, r.model, r.scope(r.state.Step), r.validationTokens, r.validationTargets, r.Sequence)
		if ctx.Err() != nil {
			return e, context.Canceled
		}
		return e, err
	}
	d, end := &r.data, ctx
	if r.tensor.Size() > 1 {
		ctx = context.Background()
	}
	own, err := evaluateBatches(ctx, r.model, r.scope(r.state.Step), r.validationTokens, r.validationTargets, r.Sequence,
		func(batch int) bool {
			return batch%d.ranks() == d.rank()
		})
	if interrupted, exchanged := p.any(end.Err() != nil && (err != nil || r.tensor.Size() > 1)); exchanged != nil {
		return Evaluation{}, exchanged
	} else if interrupted {
		return Evaluation{}, context.Canceled
	}
	if err := p.agree(err); err != nil {
		return Evaluation{}, err
	}
	all, err := d.group(trafficControl).GatherAll(marshalLosses(own))
	if err != nil {
		return Evaluation{}, err
	}
	ranks := make([][]batchLoss, len(all))
	total := 0
	for rank, data := range all {
		if ranks[rank], err = unmarshalLosses(data); err != nil {
			return Evaluation{}, err
		}
		total += len(ranks[rank])
	}
	batches := make([]batchLoss, total)
	for i := range batches {
		batches[i] = ranks[i%d.ranks()][i/d.ranks()]
	}
	return combine(batches)
}

// any reports whether a flag is set on one of the ranks.
func (p *Parallel) any(flag bool) (bool, error) {
	own := []byte{0}
	if flag {
		own[0] = 1
	}
	all, err := p.group(trafficControl).GatherAll(own)
	for _, b := range all {
		flag = flag || b[0] != 0
	}
	return flag, err
}

// marshalLosses returns the losses of batches as float64: for each the number of targets, the loss,
// the number of sequences and their losses.
func marshalLosses(batches []batchLoss) (data []byte) {
	for _, b := range batches {
		for _, v := range append([]float64{float64(b.Targets), b.Loss, float64(len(b.Sequences))}, b.Sequences...) {
			data = binary.LittleEndian.AppendUint64(data, math.Float64bits(v))
		}
	}
	return data
}

func unmarshalLosses(data []byte) (batches []batchLoss, err error) {
	next := func() (v float64) {
		if len(data) < 8 {
			err = fmt.Errorf("losses of another rank: the message ends early")
			return 0
		}
		v = math.Float64frombits(binary.LittleEndian.Uint64(data))
		data = data[8:]
		return v
	}
	for len(data) > 0 && err == nil {
		b := batchLoss{Targets: int(next()), Loss: next()}
		for n := int(next()); len(b.Sequences) < n && err == nil; {
			b.Sequences = append(b.Sequences, next())
		}
		batches = append(batches, b)
	}
	return batches, err
}
