package nn

import (
	"encoding/binary"
	"math"

	"github.com/microscale-go/microscale/format"
	"github.com/microscale-go/microscale/internal/comm"
	"github.com/microscale-go/microscale/tensor"
)

// Ranks are the ranks of a job that share the layers of a model, as in tensor parallelism (Shoeybi
// et al., "Megatron-LM", 2019): each has some rows or some columns of every matrix (Linear.Divide,
// Embedding.Divide). Every rank runs the same passes. The zero value is one rank.
type Ranks struct {
	Group *comm.Group // nil: one rank
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

// sumRanks replaces x with its sum over the ranks. The values of each rank are rounded to the recipe's
// Activations, added in float32 in the order of comm.Sum, and rounded again. Rows are contiguous.
func (s *Scope) sumRanks(x tensor.Dense) error {
	if s.Ranks.Size() == 1 {
		return nil
	}
	return s.group(TrafficActivations).AllReduce(x.Data, s.wire())
}

// maxRanks replaces amaxes with their maxima over the ranks.
func (s *Scope) maxRanks(amaxes []float32) error {
	if s.Ranks.Size() == 1 || len(amaxes) == 0 {
		return nil
	}
	return s.group(TrafficAmaxes).Max(amaxes)
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
