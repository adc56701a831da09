package train

import (
	"github.com/microscale-go/microscale/comm"
	"github.com/microscale-go/microscale/internal/parallel"
	"github.com/microscale-go/microscale/nn"
)

// A gradientTree adds the gradients of the microbatches of a step in a binary tree over their
// index, the order of comm.Sum. The sum of 2^k consecutive microbatches that begin at a multiple of
// 2^k is a subtree: ranks with 2^k microbatches each compute theirs alone, and comm.Sum of their
// sums has the bits of one process with all microbatches.
//
// It works like a binary counter: Param.Grad receives the gradient of a microbatch, and pending
// holds the sums of earlier runs, whose lengths are the powers of two in their number.
type gradientTree struct {
	pending []subtree
	free    [][][]float32 // buffers of subtrees, by parameter
}

// A subtree is the sum of the gradients of a run of microbatches.
type subtree struct {
	length int         // microbatches
	sum    [][]float32 // by parameter
}

// push moves the gradients in params, those of one microbatch, into the tree.
func (t *gradientTree) push(params []*nn.Param, threads int) {
	length := 1
	for n := len(t.pending); n > 0 && t.pending[n-1].length == length; n-- {
		last := t.pending[n-1].sum
		parallel.For(len(params), 1, threads, func(from, to int) {
			for i := from; i < to; i++ {
				comm.Sum(params[i].Grad.Data, last[i], params[i].Grad.Data)
			}
		})
		t.free, t.pending = append(t.free, last), t.pending[:n-1]
		length *= 2
	}
	sum := t.buffers(params)
	parallel.For(len(params), 1, threads, func(from, to int) {
		for i := from; i < to; i++ {
			copy(sum[i], params[i].Grad.Data)
			clear(params[i].Grad.Data)
		}
	})
	t.pending = append(t.pending, subtree{length, sum})
}

// finish adds the sums of earlier microbatches to the gradient of parameter i, that of the last
// microbatch.
func (t *gradientTree) finish(i int, p *nn.Param) {
	for n := len(t.pending) - 1; n >= 0; n-- {
		comm.Sum(p.Grad.Data, t.pending[n].sum[i], p.Grad.Data)
	}
}

// reset ends a step.
func (t *gradientTree) reset() {
	for _, s := range t.pending {
		t.free = append(t.free, s.sum)
	}
	t.pending = t.pending[:0]
}

// buffers returns memory for a subtree.
func (t *gradientTree) buffers(params []*nn.Param) [][]float32 {
	if n := len(t.free); n > 0 {
		b := t.free[n-1]
		t.free = t.free[:n-1]
		return b
	}
	b := make([][]float32, len(params))
	for i, p := range params {
		b[i] = make([]float32, len(p.Grad.Data))
	}
	return b
}

// bytes returns the memory of the tree between steps.
func (t *gradientTree) bytes() int {
	n := 0
	for _, sum := range t.free {
		for _, s := range sum {
			n += 4 * len(s)
		}
	}
	return n
}
