package train

import (
	"math"

	"github.com/microscale-go/microscale/internal/comm"
	"github.com/microscale-go/microscale/internal/nn"
	"github.com/microscale-go/microscale/internal/parallel"
)

// A reducer sums gradients over the ranks. The backward pass of the last microbatch reports
// gradients that are complete; the reducer sends a bucket of them as soon as it is full, while the
// pass continues.
type reducer struct {
	*distribution
	params  []*nn.Param
	index   map[*nn.Param]int
	cuts    [][]int // by parameter: where the rows of each rank begin
	buckets []*bucket
	of      []*bucket // by parameter
	threads int

	scratch   [2][]float32 // each for the gradients of a bucket
	nonFinite bool         // a gradient of this rank, in a format that hides it
	noise     noise
}

// A bucket is a number of parameters whose gradients travel together. Its elements are ordered by
// the rank that adds them, then by parameter: the rows between the cuts of that rank. Zeros fill up
// the part of a rank to whole blocks of the format.
type bucket struct {
	params   []int
	cuts     []int // of the elements, by rank
	elements int   // without filling
	missing  int   // parameters whose gradients are not complete

	sum     []float32 // of the part of this rank; its memory is reused every step
	request *comm.Request
}

// bucketElements is the minimum number of elements of a bucket but the last.
const bucketElements = 1 << 20

// newReducer returns the reducer of parameters whose rows are divided by cuts.
func newReducer(p *distribution, params []*nn.Param, cuts [][]int, threads int) *reducer {
	r := &reducer{distribution: p, params: params, index: map[*nn.Param]int{}, cuts: cuts, of: make([]*bucket, len(params)), threads: threads}
	var order []int // of the backward pass
	for i := len(params) - 1; i >= 0; i-- {
		order = append(order, i)
		r.index[params[i]] = i
	}
	r.buckets = newBuckets(order, params, cuts, p.wire().Block())
	for _, b := range r.buckets {
		b.sum = make([]float32, b.cuts[p.rank()+1]-b.cuts[p.rank()])
		for _, i := range b.params {
			r.of[i] = b
		}
	}
	return r
}

// newBuckets divides parameters into buckets, in order, with the part of each rank filled up to a
// multiple of block elements.
func newBuckets(order []int, params []*nn.Param, cuts [][]int, block int) (buckets []*bucket) {
	var b *bucket
	for _, i := range order {
		if b == nil || b.elements >= bucketElements {
			b = &bucket{}
			buckets = append(buckets, b)
		}
		b.params = append(b.params, i)
		b.elements += params[i].Grad.Rows * params[i].Grad.Cols
	}
	for _, b := range buckets {
		b.cuts = []int{0}
		for rank := range len(cuts[0]) - 1 {
			n := 0
			for _, i := range b.params {
				n += (cuts[i][rank+1] - cuts[i][rank]) * params[i].Grad.Cols
			}
			b.cuts = append(b.cuts, b.cuts[rank]+(n+block-1)/block*block)
		}
	}
	return buckets
}

// begin prepares the backward pass of the last microbatch of a step: gradients are complete after
// it, with the sums of earlier microbatches in tree.
func (r *reducer) begin(tree *gradientTree, o *nn.Observer) {
	for _, b := range r.buckets {
		b.missing, b.request = len(b.params), nil
	}
	r.nonFinite = false
	before := o.Gradients
	o.Gradients = func(params []*nn.Param) {
		if before != nil {
			before(params)
		}
		r.complete(tree, params)
	}
}

// complete adds the sums of earlier microbatches to gradients, and starts the buckets that are full.
func (r *reducer) complete(tree *gradientTree, params []*nn.Param) {
	parallel.For(len(params), 1, r.threads, func(from, to int) {
		for _, p := range params[from:to] {
			tree.finish(r.index[p], p)
		}
	})
	for _, p := range params {
		b := r.of[r.index[p]]
		if b.missing--; b.missing == 0 {
			r.start(b)
		}
	}
}

// start sends a bucket to the ranks that add its parts.
func (r *reducer) start(b *bucket) {
	flat := r.buffer(0, b)
	for rank := range r.ranks() {
		part := flat[b.cuts[rank]:b.cuts[rank+1]]
		for _, i := range b.params {
			part = part[copy(part, r.rows(i, rank)):]
		}
		clear(part)
	}
	if r.wire().Block() > 1 && !allFinite(flat) { // quantizing may saturate
		r.nonFinite = true
	}
	if r.noise.enabled && r.wire() != comm.F32 {
		r.noise.measure(flat, r.buffer(1, b), r.wire())
	}
	b.request = r.group(trafficGradients).StartReduceScatter(b.sum, flat, b.cuts, r.wire())
}

// buffer returns scratch buffer i, as long as bucket b.
func (r *reducer) buffer(i int, b *bucket) []float32 {
	n := b.cuts[r.ranks()]
	if len(r.scratch[i]) < n {
		r.scratch[i] = make([]float32, n)
	}
	return r.scratch[i][:n]
}

// rows returns the gradients of parameter i that a rank adds.
func (r *reducer) rows(i, rank int) []float32 {
	g := r.params[i].Grad
	return g.Data[r.cuts[i][rank]*g.Cols : r.cuts[i][rank+1]*g.Cols]
}

// finish sets the gradients to the sums over all ranks: of all rows, or with the distributed
// optimizer of those of this rank.
func (r *reducer) finish() error {
	for k, b := range r.buckets {
		if err := b.request.Wait(); err != nil {
			return err
		}
		if r.distributed() {
			r.store(b, b.sum, r.rank())
			continue
		}
		// The sums of a bucket travel while those of the one before are stored.
		whole := r.buffer(k%2, b)
		copy(whole[b.cuts[r.rank()]:], b.sum)
		b.request = r.group(trafficGradients).StartAllGatherFloats(whole, b.cuts, r.wire())
		if k > 0 {
			if err := r.collect(k - 1); err != nil {
				return err
			}
		}
	}
	if r.distributed() {
		return nil
	}
	return r.collect(len(r.buckets) - 1)
}

// collect sets the gradients of bucket k to the sums that the ranks send.
func (r *reducer) collect(k int) error {
	b := r.buckets[k]
	if err := b.request.Wait(); err != nil {
		return err
	}
	for rank := range r.ranks() {
		r.store(b, r.scratch[k%2][b.cuts[rank]:], rank)
	}
	return nil
}

// store sets the rows of a bucket that a rank adds to their sums.
func (r *reducer) store(b *bucket, sums []float32, rank int) {
	for _, i := range b.params {
		sums = sums[copy(r.rows(i, rank), sums):]
	}
}

// bytes returns the memory of messages and buffers when all buckets are under way: what the rank sends
// to the others, what it receives of its part from them, and its sum. The messages in which the sums
// travel back reuse this memory.
func (r *reducer) bytes() int {
	wire, n := r.wire(), 4*(len(r.scratch[0])+len(r.scratch[1]))
	for _, b := range r.buckets {
		own := b.cuts[r.rank()+1] - b.cuts[r.rank()]
		n += 4 * own
		for rank := range r.ranks() {
			if rank != r.rank() {
				n += wire.Size(b.cuts[rank+1]-b.cuts[rank]) + wire.Size(own)
			}
		}
	}
	return n
}

// allFinite reports whether x has neither NaN nor Inf.
func allFinite(x []float32) bool {
	for _, v := range x {
		if v-v != 0 {
			return false
		}
	}
	return true
}

// noise is the error of gradients that travel in a format other than FP32, as this rank sends them.
type noise struct {
	enabled       bool
	signal, error float64 // sums of squares
}

// measure adds the error of x in the format of a wire. rounded is memory for as many values.
func (n *noise) measure(x, rounded []float32, wire comm.Wire) {
	comm.Round(rounded, x, wire)
	for i, v := range x {
		d := float64(v) - float64(rounded[i])
		n.signal += float64(v) * float64(v)
		n.error += d * d
	}
}

// sqnr returns the ratio of signal to error in dB; +Inf without an error.
func (n *noise) sqnr() float64 { return 10 * math.Log10(n.signal/n.error) }
