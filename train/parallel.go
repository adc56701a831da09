package train

import (
	"encoding/json"
	"errors"
	"math/bits"

	"github.com/microscale-go/microscale/comm"
	"github.com/microscale-go/microscale/internal/configjson"
	"github.com/microscale-go/microscale/nn"
)

// Parallel divides a run among the ranks of a job. Each rank calls Run with the same configuration
// and its own group, and trains a copy of the model on an equal part of the microbatches of every step.
// The zero value is a run of one rank. comm.Run makes groups of goroutines, comm/mpi one of processes.
//
// With gradients in FP32 the losses are those of one rank with the same microbatches, bit by bit,
// under every recipe but delayed scaling, whose scales depend on the microbatches that are computed
// at a time. With other formats they depend on the number of ranks.
type Parallel struct {
	Group *comm.Group // all ranks of the job; nil: one rank

	// GradReduce is the format in which gradients travel; nil: comm.F32. Sums are FP32.
	GradReduce comm.Wire

	// DistributedOptimizer gives each rank a part of the rows of every parameter to optimize: it has
	// the moments of these rows only. The other ranks receive their new values, rounded to the
	// recipe's Activations. With Config.HoldQuantized, like Megatron-LM's --fp8-param-gather, each
	// rank quantizes its rows and the codes and scales of all copies are gathered; the master weights
	// of the other rows are freed.
	DistributedOptimizer bool

	// Tensor is the number of consecutive ranks that share every layer (tensor parallelism): each has
	// a part of the heads, of the feed-forward layers and of the vocabulary. 0: 1. The other
	// dimension of the job, ranks/Tensor, divides the microbatches. The fields above apply to it.
	Tensor int

	// Sequence divides the tokens among the ranks that share a layer, where they otherwise compute the
	// same (sequence parallelism): norms, residual connections, and saved inputs of layers. It has no
	// effect if Tensor is 1, as in Megatron-LM.
	Sequence bool

	// TensorAmaxOnly reduces the amaxes of delayed scaling over the ranks that share a layer only,
	// like Megatron-LM's tp_only_amax_red, and not over all. It has no effect under other recipes.
	TensorAmaxOnly bool

	// Options of the gather of quantized weights.
	GatherBF16         bool // gather BF16, which every rank quantizes whole
	OverlapParamGather bool // gather a weight while layers before it compute; no effect if the optimizer gathers values
	ReuseGradBuffer    bool // use the memory of gradients for the transfer

	Local   int    // ranks on this machine, which share its memory; 0: one
	Program string // version of the program, which all ranks must share
}

// wire returns the format in which gradients travel.
func (p *Parallel) wire() comm.Wire {
	if p.GradReduce == nil {
		return comm.F32
	}
	return p.GradReduce
}

// ranks returns the number of ranks.
func (p *Parallel) ranks() int {
	if p.Group == nil {
		return 1
	}
	return p.Group.Size()
}

// tensor returns the number of ranks that share a layer.
func (p *Parallel) tensor() int { return max(1, p.Tensor) }

// dataRanks returns the number of ranks that have different microbatches.
func (p *Parallel) dataRanks() int { return p.ranks() / p.tensor() }

// groups are the two dimensions of a job.
type groups struct {
	data   Parallel // ranks with the same part of the model and different microbatches
	tensor nn.Ranks // ranks with the same microbatches, which share the model
}

// split returns the groups that this rank belongs to. Every rank of a job calls it first.
func (p *Parallel) split() (g groups, err error) {
	g.data = *p
	if p.Group == nil {
		return g, nil
	}
	g.tensor.Sequence = p.Sequence
	if g.tensor.Group, err = p.Group.Split("tensor", p.rank()/p.tensor()); err != nil {
		return g, err
	}
	g.data.Group, err = p.Group.Split("data", p.rank()%p.tensor())
	return g, err
}

// distributed reports whether ranks optimize different rows.
func (p *Parallel) distributed() bool { return p.DistributedOptimizer && p.ranks() > 1 }

// rank returns the number of this rank.
func (p *Parallel) rank() int {
	if p.Group == nil {
		return 0
	}
	return p.Group.Rank()
}

// group returns the group with a name for what it transfers.
func (p *Parallel) group(purpose string) *comm.Group {
	if p.Group == nil {
		return comm.Self().For(purpose)
	}
	return p.Group.For(purpose)
}

// Fields that errors of other fields name.
const (
	keyDistributed configjson.Key = "Parallel.DistributedOptimizer"
	keyHold        configjson.Key = "HoldQuantized"
)

// CheckRanks returns a *ConfigError if the model and the microbatches cannot be divided among n ranks,
// or options of Parallel conflict.
func (c *Config) CheckRanks(n int) error {
	p := &c.Parallel
	if err := c.checkTensor(n); err != nil {
		return err
	}
	n /= p.tensor()
	if !p.DistributedOptimizer || !c.HoldQuantized {
		for _, o := range []struct {
			field string
			set   bool
		}{{"GatherBF16", p.GatherBF16}, {"OverlapParamGather", p.OverlapParamGather && !p.DistributedOptimizer},
			{"ReuseGradBuffer", p.ReuseGradBuffer}} {
			if o.set {
				return invalid("Parallel."+o.field, "is true, but applies to the gather of quantized weights: set %s and %s, too", keyDistributed,
					keyHold)
			}
		}
	} else if _, ok := c.Recipe.ShardRows(); !ok && c.Recipe.HoldsWeights() {
		return invalid(string(keyDistributed), "is true with %s, but the recipe %s has scales of weights that depend on all rows: omit one "+
			"of them", keyHold, c.Recipe.Name)
	}
	each := c.Microbatches / n
	if n > 1 && (c.Microbatches%n != 0 || bits.OnesCount(uint(each)) != 1) {
		return invalid("Microbatches", "is %d, want %d, %d, %d or so on: each of %d ranks computes a power of two of them", c.Microbatches, n,
			2*n, 4*n, n)
	}
	return nil
}

// checkTensor returns a *ConfigError if the ranks that share a layer cannot divide n ranks or the model.
func (c *Config) checkTensor(n int) error {
	p := &c.Parallel
	switch {
	case p.Tensor < 0 || n%p.tensor() != 0:
		return invalid("Parallel.Tensor", "is %d, want a divisor of the number of ranks, %d", p.Tensor, n)
	case p.tensor() == 1:
		return nil
	}
	multiple, ok := c.Recipe.PartMultiple()
	if !ok {
		return invalid("Parallel.Tensor", "is %d, but the recipe %s has scales of whole rows or columns, or rounds weights with random bits: "+
			"ranks cannot share its layers", p.Tensor, c.Recipe.Name)
	}
	if c.Options.FirstBF16+c.Options.LastBF16 == c.Model.NumHiddenLayers {
		multiple = 1
	}
	if err := c.Model.CheckRanks(p.Tensor, multiple); err != nil {
		return invalid("Parallel.Tensor", "is %d: %v", p.Tensor, err)
	}
	if n := p.Tensor * multiple; p.Sequence && c.Sequence%n != 0 {
		return invalid("Sequence", "is %d, want a multiple of %d: each of %d ranks has %d tokens of a block under the recipe %s", c.Sequence, n,
			p.Tensor, multiple, c.Recipe.Name)
	}
	return nil
}

// agree returns nil if err is nil on every rank, and otherwise an error on every rank: its own, or
// that of the first rank that has one.
func (p *Parallel) agree(err error) error {
	if p.ranks() == 1 {
		return err
	}
	if agreed := (*comm.AgreedError)(nil); errors.As(err, &agreed) {
		return err
	}
	all, failed := p.group(trafficControl).GatherAll(comm.EncodeError(err))
	if failed != nil {
		return failed
	}
	for rank, data := range all {
		switch other := comm.DecodeError(data); {
		case err != nil:
			return &comm.AgreedError{Err: err}
		case other != nil:
			return &comm.AgreedError{Err: &comm.RankError{Rank: rank, Err: other}}
		}
	}
	return nil
}

// onFirst calls f on rank 0, and returns its error on every rank.
func (p *Parallel) onFirst(f func() error) error {
	if p.rank() > 0 {
		return p.agree(nil)
	}
	return p.agree(f())
}

// fromFirst calls f on rank 0, and returns its result on every rank.
func fromFirst[T any](p *Parallel, f func() (T, error)) (result T, err error) {
	if p.ranks() == 1 {
		return f()
	}
	var text []byte
	if p.rank() == 0 {
		if result, err = f(); err == nil {
			text, err = json.Marshal(result)
		}
	}
	if err := p.agree(err); err != nil {
		return result, err
	}
	all, err := p.group(trafficControl).GatherAll(text)
	if err != nil {
		return result, err
	}
	err = json.Unmarshal(all[0], &result)
	return result, err
}

// agreed marks an error that all ranks return.
func (p *Parallel) agreed(err error) error {
	if p.ranks() == 1 {
		return err
	}
	return &comm.AgreedError{Err: err}
}
