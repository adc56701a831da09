package train

import (
	"fmt"

	"github.com/microscale-go/microscale/internal/parallel"
	"github.com/microscale-go/microscale/nn"
)

// gradients sets the gradients to the mean over the microbatches of a step, and returns the mean of
// their losses. The gradient of each microbatch is complete before it is added (see gradientTree),
// and losses are added in the order of the microbatches.
func (r *run) gradients(scope nn.Scope) (float64, error) {
	for _, p := range r.params {
		clear(p.Grad.Data)
	}
	tokens, targets, err := r.Data.Training(r.Seed, int(scope.Random.Step), r.Batch, r.Sequence)
	if err == nil {
		err = checkBatch(tokens, targets, r.Batch, r.Batch, r.Sequence)
	}
	if err != nil {
		return 0, fmt.Errorf("training data: %w", err)
	}
	sequences := r.Batch / r.Microbatches
	n := sequences * r.Sequence
	var sum float64
	for i := range r.Microbatches {
		if i > 0 {
			r.tree.push(r.params, r.Threads)
		}
		scope.Random.Microbatch, scope.ReuseWeights = i, i > 0
		loss, err := r.model.Train(&scope, tokens[i*n:(i+1)*n], targets[i*n:(i+1)*n], sequences, 1/float32(r.Microbatches))
		if err != nil {
			return 0, err
		}
		sum += loss
	}
	parallel.For(len(r.params), 1, r.Threads, func(from, to int) {
		for i := from; i < to; i++ {
			r.tree.finish(i, r.params[i])
		}
	})
	r.tree.reset()
	return sum / float64(r.Microbatches), nil
}

// checkBatch returns an error unless a batch has min to max sequences.
func checkBatch(tokens, targets []int32, minSequences, maxSequences, length int) error {
	n := len(tokens) / length
	if len(tokens) != n*length || len(targets) != len(tokens) || n < minSequences || n > maxSequences {
		return fmt.Errorf("got %d tokens and %d targets, want %d to %d sequences of %d", len(tokens), len(targets), minSequences, maxSequences, length)
	}
	return nil
}
