package train

import (
	"fmt"
	"slices"

	"github.com/microscale-go/microscale/comm"
	"github.com/microscale-go/microscale/format"
	"github.com/microscale-go/microscale/internal/memory"
	"github.com/microscale-go/microscale/nn"
	"github.com/microscale-go/microscale/quant"
	"github.com/microscale-go/microscale/tensor"
)

// gather gives every rank the weights that the ranks have optimized. Quantized weights are fetched
// when the next forward pass needs them if the gather overlaps, otherwise at once.
func (r *run) gather(s *nn.Scope) error {
	if err := r.gatherRest(); err != nil {
		return err
	}
	amaxes, err := r.shardAmaxes(s)
	if err != nil {
		return err
	}
	for i, u := range r.shards {
		start := r.gatherCodes
		if r.data.GatherBF16 {
			start = r.gatherBF16
		}
		fetch, err := start(s, u, amaxes[i])
		if err != nil {
			return err
		}
		u.linear.HoldCopies(s, fetch)
		if !r.data.OverlapParamGather {
			if err := u.linear.FetchCopies(); err != nil {
				return err
			}
		}
	}
	return nil
}

// gatherRest gathers the parameters that are not quantized, rounded to the recipe's Activations, to
// which modules round them anyway. The rows of this rank keep the master values.
func (r *run) gatherRest() error {
	wire := comm.BF16
	if r.Recipe.Activations.Element == format.F32 {
		wire = comm.F32
	}
	rank := r.data.rank()
	for _, b := range r.rest {
		parts := slices.Clone(b.parts)
		own := make([]float32, 0, parts[rank].Len())
		for _, i := range b.params {
			own = append(own, r.own[i].Value.Data...)
		}
		parts[rank] = parts[rank].Like(own)
		if err := r.data.group(trafficParameters).StartAllGatherFloats(parts, wire).Wait(); err != nil {
			return err
		}
	}
	return nil
}

// shardAmaxes returns the largest magnitude of each sharded weight, over all ranks of the job, if the recipe
// needs it.
func (r *run) shardAmaxes(s *nn.Scope) ([]float32, error) {
	amaxes := make([]float32, len(r.shards))
	w := &r.Recipe.Weight
	if !w.Rowwise.Format.NeedsAmax() && !w.Columnwise.Format.NeedsAmax() {
		return amaxes, nil
	}
	for i, u := range r.shards {
		rounded := u.own.Clone()
		s.Round(rounded)
		amaxes[i] = quant.Amax(rounded, s.Threads)
	}
	if len(amaxes) == 0 {
		return amaxes, nil
	}
	return amaxes, r.Parallel.group(trafficAmax).Max(amaxes)
}

// stage returns a buffer of n bytes for the transfer of a weight. With ReuseGradBuffer it is memory of
// the weight's gradient, which is zero between steps; release clears it.
func (r *run) stage(u *shard, n int) (stage []byte, release func()) {
	grad := u.linear.Weight.Grad.Data
	if !r.data.ReuseGradBuffer || n > 4*len(grad) {
		stage = make([]byte, n)
		r.staged += n
		r.stagedPeak = max(r.stagedPeak, r.staged)
		return stage, func() { r.staged -= n }
	}
	if r.handOver != nil {
		r.handOver(grad)
	}
	return memory.Bytes(grad)[:n], func() { clear(grad) }
}

// gatherCodes starts the gather of a quantized weight. Each rank quantizes its rows; their codes
// and scales travel, of the columnwise copy as well unless it is the transpose. The scale of a whole
// tensor does not travel: every rank computes it from the same amax.
func (r *run) gatherCodes(s *nn.Scope, u *shard, amax float32) (fetch func() (rowwise, columnwise *quant.Tensor, err error), err error) {
	rank := r.data.rank()
	row, col, err := u.linear.QuantizeRows(s, u.own, u.cuts[rank], amax)
	if err != nil {
		return nil, err
	}
	sizes, total := make([]int, r.data.ranks()), 0
	for i := range sizes {
		sizes[i] = r.copyBytes(row, u, i) + r.copyBytes(col, u, i)
		total += sizes[i]
	}
	stage, release := r.stage(u, total)
	slots := make([][]byte, len(sizes))
	for i, n := range sizes {
		slots[i], stage = stage[:n], stage[n:]
	}
	own := slots[rank]
	for _, t := range []*quant.Tensor{row, col} {
		if t == nil {
			continue
		}
		for _, part := range t.Planes() {
			own = own[copy(own, part):]
		}
	}
	request := r.data.group(trafficWeights).StartAllGather(slots, slots[rank])
	return func() (rowwise, columnwise *quant.Tensor, err error) {
		if err := request.Wait(); err != nil {
			return nil, nil, err
		}
		defer release()
		rowwise, err = r.join(row, u, slots)
		if err == nil && col != nil {
			columnwise, err = r.join(col, u, slots)
		}
		return rowwise, columnwise, err
	}, nil
}

// copyBytes returns the number of bytes that a rank sends of its copy, which is like t.
func (r *run) copyBytes(t *quant.Tensor, u *shard, rank int) (n int) {
	if t == nil {
		return 0
	}
	for _, part := range t.Like(u.rows(rank)).Planes() {
		n += len(part)
	}
	return n
}

// join concatenates the copies of all ranks, which are like own. It advances slots past them.
func (r *run) join(own *quant.Tensor, u *shard, slots [][]byte) (*quant.Tensor, error) {
	var parts []*quant.Tensor
	for rank := range slots {
		t := own.Like(u.rows(rank))
		for _, plane := range t.Planes() {
			slots[rank] = slots[rank][copy(plane, slots[rank]):]
		}
		if t.Rows() > 0 {
			parts = append(parts, t)
		}
	}
	return quant.Concat(parts...)
}

// gatherBF16 starts the gather of a weight in BF16, which every rank then quantizes whole, like
// Megatron-LM with MXFP8.
func (r *run) gatherBF16(s *nn.Scope, u *shard, amax float32) (fetch func() (rowwise, columnwise *quant.Tensor, err error), err error) {
	scope, cols := *s, u.own.Cols
	size := func(rank int) int { return comm.BF16.Size((u.cuts[rank+1] - u.cuts[rank]) * cols) }
	last := u.cuts[len(u.cuts)-1]
	whole, release := r.stage(u, comm.BF16.Size(last*cols))
	slots, rest := make([][]byte, r.data.ranks()), whole
	for i := range slots {
		slots[i], rest = rest[:size(i)], rest[size(i):]
	}
	own := slots[r.data.rank()]
	comm.BF16.Encode(own, u.own.Data)
	request := r.data.group(trafficWeights).StartAllGather(slots, own)
	return func() (rowwise, columnwise *quant.Tensor, err error) {
		if err := request.Wait(); err != nil {
			return nil, nil, err
		}
		w := tensor.New(last, cols)
		comm.BF16.Decode(w.Data, whole)
		release()
		rounded := []float32{amax}
		comm.Round(rounded, rounded, comm.BF16)
		rowwise, columnwise, err = u.linear.QuantizeRows(&scope, w, 0, rounded[0])
		if err != nil {
			err = fmt.Errorf("quantize gathered weights: %w", err)
		}
		return rowwise, columnwise, err
	}, nil
}
