package train

import (
	"encoding/json"
	"fmt"
	"runtime"

	"github.com/microscale-go/microscale/comm"
	"github.com/microscale-go/microscale/internal/cpu"
)

// An agreement is what all ranks of a job have in common. Other kernels may round other bits; with
// other options, ranks would wait for messages that no rank sends.
type agreement struct {
	Program         string          `json:"program"`
	Kernels         string          `json:"kernels"`
	Ranks           int             `json:"ranks"`
	Tensor          int             `json:"tensor"`
	Sequence        bool            `json:"sequence_parallel"`
	TensorAmaxOnly  bool            `json:"tensor_amax_only"`
	GradReduce      string          `json:"grad_reduce"`
	Distributed     bool            `json:"distributed_optimizer"`
	GatherBF16      bool            `json:"gather_bf16"`
	Overlap         bool            `json:"overlap_param_gather"`
	ReuseGradBuffer bool            `json:"reuse_grad_buffer"`
	Writes          bool            `json:"writes_checkpoints"`
	CheckpointEvery int             `json:"checkpoint_every"`
	Configuration   json.RawMessage `json:"configuration"`
}

// handshake returns an error on every rank unless the ranks agree.
func (r *run) handshake() error {
	if r.Parallel.ranks() == 1 {
		return nil
	}
	configuration, err := r.identity()
	if err != nil {
		return err
	}
	p := &r.Parallel
	own, err := json.Marshal(agreement{
		Program: p.Program, Kernels: fmt.Sprintf("%s, %s, %s, %s", runtime.GOARCH, cpu.Best(), cpu.Detected(), cpu.This().Name),
		Ranks: p.ranks(), Tensor: p.tensor(), Sequence: p.Sequence, TensorAmaxOnly: p.TensorAmaxOnly, GradReduce: p.wire().String(),
		Distributed: p.DistributedOptimizer,
		GatherBF16:  p.GatherBF16, Overlap: p.OverlapParamGather, ReuseGradBuffer: p.ReuseGradBuffer,
		Writes: r.Out != "", CheckpointEvery: r.CheckpointEvery, Configuration: configuration,
	})
	if err != nil {
		return err
	}
	all, err := p.group(trafficControl).GatherAll(own)
	if err != nil {
		return err
	}
	for rank, other := range all {
		path, a, b, err := firstDifference(all[0], other)
		if err != nil {
			return err
		}
		if path != "" {
			return &comm.AgreedError{Err: fmt.Errorf("the ranks of the job differ: %s is %s on rank 0 and %s on rank %d: start all with the "+
				"same program, command and data", path, a, b, rank)}
		}
	}
	return nil
}
