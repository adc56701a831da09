package train

import (
	"encoding/json"
	"fmt"
	"runtime"

	"github.com/microscale-go/microscale/internal/cpu"
)

// handshake returns an error on every rank unless all ranks have the same program, kernels,
// configuration and data. Other kernels may round other bits.
func (r *run) handshake() error {
	if r.Parallel.ranks() == 1 {
		return nil
	}
	configuration, err := r.identity()
	if err != nil {
		return err
	}
	own, err := json.Marshal(struct {
		Program       string          `json:"program"`
		Kernels       string          `json:"kernels"`
		Ranks         int             `json:"ranks"`
		Tensor        int             `json:"tensor"`
		Sequence      bool            `json:"sequence_parallel"`
		GradReduce    string          `json:"grad_reduce"`
		Configuration json.RawMessage `json:"configuration"`
	}{
		r.Parallel.Program, fmt.Sprintf("%s, %s, %v", runtime.GOARCH, cpu.Best(), cpu.This()), r.Parallel.ranks(), r.Parallel.tensor(), r.Parallel.Sequence, r.Parallel.wire().String(), configuration,
	})
	if err != nil {
		return err
	}
	all, err := r.Parallel.group(trafficControl).GatherAll(own)
	if err != nil {
		return err
	}
	for rank, other := range all {
		path, a, b, err := firstDifference(all[0], other)
		if err != nil {
			return err
		}
		if path != "" {
			return &AgreedError{fmt.Errorf("the ranks of the job differ: %s is %s on rank 0 and %s on rank %d: start all with the same program, command and data", path, a, b, rank)}
		}
	}
	return nil
}
