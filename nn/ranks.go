package nn

import (
	"encoding/binary"
	"fmt"
	"math"
	"slices"

	"github.com/microscale-go/microscale/comm"
	"github.com/microscale-go/microscale/format"
	"github.com/microscale-go/microscale/quant"
	"github.com/microscale-go/microscale/tensor"
)

// Ranks are the ranks of a job that share the layers of a model, as in tensor parallelism (Shoeybi
// et al., "Megatron-LM", 2019): each has some rows or some columns of every matrix (Linear.Divide,
// Embedding.Divide). Every rank runs the same passes. The zero value is one rank.
type Ranks struct {
	Group *comm.Group // nil: one rank

	// Sequence divides the tokens between the parts of layers, where ranks otherwise compute the
	// same, in equal runs (sequence parallelism, Korthikanti et al., "Reducing activation
	// recomputation", 2022). The number of tokens is a multiple of the ranks times
	// recipe.Recipe.PartMultiple.
	Sequence bool
}

// Purposes of transfers in comm.Group.Traffic. Those of inference are not counted.
const (
	TrafficActivations = "activations"
	TrafficAmaxes      = "amaxes"
)

// Size returns the number of ranks.
func (r Ranks) Size() int {
	if r.Group == nil {
		return 1
	}
	return r.Group.Size()
}

// Rank returns the number of this rank.
func (r Ranks) Rank() int {
	if r.Group == nil {
		return 0
	}
	return r.Group.Rank()
}

// group returns the group of the ranks with a name for what it transfers.
func (s *Scope) group(purpose string) *comm.Group {
	if s.Inference {
		purpose = ""
	}
	return s.Ranks.Group.For(purpose)
}

// wire returns the format in which activations travel: the recipe's Activations.
func (s *Scope) wire() comm.Wire {
	if s.Recipe.Activations.Element == format.F32 {
		return comm.F32
	}
	return comm.BF16
}

// sequence reports whether ranks have different tokens between the parts of layers.
func (s *Scope) sequence() bool { return s.Ranks.Sequence && s.Ranks.Size() > 1 }

// sumRanks returns the sum of x over the ranks, in x or, with Ranks.Sequence, the tokens of this rank.
// The values of each rank are rounded to the recipe's Activations, added in float32 in the order of
// comm.Sum, and rounded again. Rows are contiguous.
func (s *Scope) sumRanks(x tensor.Dense) (tensor.Dense, error) {
	switch {
	case s.Ranks.Size() == 1:
		return x, nil
	case !s.Ranks.Sequence:
		return x, s.group(TrafficActivations).AllReduce(x.Data, s.wire())
	}
	cuts, err := s.tokenCuts(x.Rows, x.Cols)
	if err != nil {
		return x, err
	}
	own := tensor.New(x.Rows/s.Ranks.Size(), x.Cols)
	err = s.group(TrafficActivations).ReduceScatter(own.Data, x.Data, cuts, s.wire())
	s.Round(own)
	return own, err
}

// tokenCuts returns where the elements of the tokens of each rank begin.
func (s *Scope) tokenCuts(rows, cols int) ([]int, error) {
	n := s.Ranks.Size()
	if rows%n != 0 {
		return nil, fmt.Errorf("got %d tokens, want a multiple of the %d ranks that divide them", rows, n)
	}
	return comm.Cut(rows*cols, n, rows/n*cols), nil
}

// gatherTokens returns the tokens of all ranks for those of this one, whose values are rounded to the
// recipe's Activations; x itself without Ranks.Sequence.
func (s *Scope) gatherTokens(x tensor.Dense) (tensor.Dense, error) {
	if !s.sequence() {
		return x, nil
	}
	whole := tensor.New(s.Ranks.Size()*x.Rows, x.Cols)
	for i := range x.Rows {
		copy(whole.Row(s.Ranks.Rank()*x.Rows+i), x.Row(i))
	}
	cuts, err := s.tokenCuts(whole.Rows, whole.Cols)
	if err != nil {
		return x, err
	}
	return whole, s.group(TrafficActivations).AllGatherFloats(whole.Data, cuts, s.wire())
}

// gatherCodes returns the quantized tokens of all ranks for those of this one: codes and scales of
// blocks travel, in the compact order of quant.Tensor. Whole blocks and a common scale of the whole
// tensor make it the tensor that is quantized from all tokens.
func (s *Scope) gatherCodes(t *quant.Tensor) (*quant.Tensor, error) {
	parts, all := make([]*quant.Tensor, s.Ranks.Size()), make([][]byte, s.Ranks.Size())
	own := slices.Concat(t.Planes()...)
	for i := range all {
		parts[i], all[i] = t.Like(t.Rows()), make([]byte, len(own))
	}
	if err := s.group(TrafficActivations).AllGather(all, own); err != nil {
		return nil, err
	}
	for i, data := range all {
		for _, plane := range parts[i].Planes() {
			data = data[copy(plane, data):]
		}
	}
	return quant.Concat(parts...)
}

// maxRanks replaces x with the maxima over the ranks, for a purpose.
func (s *Scope) maxRanks(purpose string, x []float32) error {
	if s.Ranks.Size() == 1 || len(x) == 0 {
		return nil
	}
	return s.group(purpose).Max(x)
}

// sumRanks64 replaces x with its sum over the ranks in float64, added in their order.
func (s *Scope) sumRanks64(x []float64) error {
	if s.Ranks.Size() == 1 {
		return nil
	}
	own := make([]byte, 0, 8*len(x))
	for _, v := range x {
		own = binary.LittleEndian.AppendUint64(own, math.Float64bits(v))
	}
	all, err := s.group(TrafficActivations).GatherAll(own)
	if err != nil {
		return err
	}
	clear(x)
	for _, data := range all {
		for i := range x {
			x[i] += math.Float64frombits(binary.LittleEndian.Uint64(data[8*i:]))
		}
	}
	return nil
}
