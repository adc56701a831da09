package train

import (
	"fmt"

	"github.com/microscale-go/microscale/internal/parallel"
	"github.com/microscale-go/microscale/nn"
)

// backward computes the gradients of this rank's microbatches of a step, and returns their losses,
// multiplied by the ratio of their targets to those of the mean microbatch.
// The gradient of each microbatch is complete before it is added (see gradientTree). With reduce,
// the sums over ranks are started during the last backward pass; otherwise the gradients are the
// sums over the microbatches of this rank. Gradients are zero before.
func (r *run) backward(scope nn.Scope, reduce bool) (losses []float64, err error) {
	r.tree.reset()
	tokens, targets, err := r.Data.Training(r.Seed, int(scope.Random.Step), r.Batch, r.Sequence)
	if err == nil {
		err = checkBatch(tokens, targets, r.Batch, r.Batch, r.Sequence)
	}
	if err != nil {
		return nil, fmt.Errorf("training data: %w", err)
	}
	r.tokens = countTokens(tokens)
	sequences := r.Batch / r.Microbatches
	n := sequences * r.Sequence
	total := counted(targets)
	each := r.Microbatches / r.data.ranks()
	for k := range each {
		if k > 0 {
			r.tree.push(r.params, r.Threads)
		}
		if reduce && k == each-1 {
			r.reducer.begin(&r.tree, &scope.Observer)
		}
		i := r.data.rank()*each + k
		scope.Random.Microbatch, scope.ReuseWeights = i, k > 0
		own, wanted := tokens[i*n:(i+1)*n], targets[i*n:(i+1)*n]
		scope.Lengths = lengths(own, r.Sequence)
		// Microbatches count by their targets: the loss is a mean over all targets of the step.
		count := float64(counted(wanted))
		loss, err := r.model.Train(&scope, own, wanted, sequences, float32(count/float64(total)))
		if err != nil {
			return nil, err
		}
		losses = append(losses, loss*(count*float64(r.Microbatches)/float64(total)))
	}
	if !reduce {
		parallel.For(len(r.params), 1, r.Threads, func(from, to int) {
			for i := from; i < to; i++ {
				r.tree.finish(i, r.params[i])
			}
		})
	}
	r.tree.reset()
	return losses, nil
}

// clearGradients sets all gradients to zero.
func (r *run) clearGradients() {
	parallel.For(len(r.params), 1, r.Threads, func(from, to int) {
		for _, p := range r.params[from:to] {
			clear(p.Grad.Data)
		}
	})
}

// checkBatch returns an error unless a batch has min to max sequences, with padding only at their end.
func checkBatch(tokens, targets []int32, minSequences, maxSequences, length int) error {
	n := len(tokens) / length
	if len(tokens) != n*length || len(targets) != len(tokens) || n < minSequences || n > maxSequences {
		return fmt.Errorf("got %d tokens and %d targets, want %d to %d sequences of %d", len(tokens), len(targets), minSequences, maxSequences,
			length)
	}
	return checkPadding(tokens, targets, length)
}
