package train

import (
	"math"
	"sync/atomic"

	"github.com/microscale-go/microscale/comm"
	"github.com/microscale-go/microscale/internal/parallel"
	"github.com/microscale-go/microscale/nn"
	"github.com/microscale-go/microscale/tensor"
)

// A reducer sums gradients over the ranks. The backward pass of the last microbatch reports
// gradients that are complete; the reducer sends a bucket of them as soon as it is full, while the
// pass continues.
type reducer struct {
	*Parallel
	params  []*nn.Param
	index   map[*nn.Param]int
	buckets []*bucket
	of      []*bucket // by parameter
	threads int

	nonFinite atomic.Bool // a gradient of this rank, in a format that hides it
	noise     noise
}

// A bucket is a number of parameters that travel together. parts[i] are the rows that rank i optimizes
// or adds, in the order of the parameters.
type bucket struct {
	params   []int
	parts    []comm.Vector
	elements int
	missing  int // parameters whose gradients are not complete
	request  *comm.Request
}

// bucketElements is the minimum number of elements of a bucket but the last.
const bucketElements = 1 << 20

// newReducer returns the reducer of parameters whose rows are divided by cuts.
func newReducer(p *Parallel, params []*nn.Param, cuts [][]int, threads int) *reducer {
	r := &reducer{Parallel: p, params: params, index: map[*nn.Param]int{}, of: make([]*bucket, len(params)), threads: threads}
	var order []int // of the backward pass
	for i := len(params) - 1; i >= 0; i-- {
		order = append(order, i)
		r.index[params[i]] = i
	}
	r.buckets = newBuckets(order, cuts, func(i int) tensor.Dense { return params[i].Grad })
	for _, b := range r.buckets {
		for _, i := range b.params {
			r.of[i] = b
		}
	}
	return r
}

// newBuckets divides parameters into buckets, in order. matrix returns the values or the gradient of a
// parameter, whose rows are divided by cuts.
func newBuckets(order []int, cuts [][]int, matrix func(i int) tensor.Dense) (buckets []*bucket) {
	var b *bucket
	for _, i := range order {
		ranks := len(cuts[i]) - 1
		if b == nil || b.elements >= bucketElements {
			b = &bucket{parts: make([]comm.Vector, ranks)}
			buckets = append(buckets, b)
		}
		m := matrix(i)
		b.params = append(b.params, i)
		b.elements += m.Rows * m.Cols
		for rank := range ranks {
			b.parts[rank] = append(b.parts[rank], m.Data[cuts[i][rank]*m.Cols:cuts[i][rank+1]*m.Cols])
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
	r.nonFinite.Store(false)
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
	wire := r.wire()
	if r.noise.enabled && wire != comm.F32 {
		for _, part := range b.parts {
			r.noise.measure(part, wire)
		}
	}
	if wire.Block() > 1 { // quantizing may saturate
		wire = finiteWire{wire, &r.nonFinite}
	}
	b.request = r.group(trafficGradients).StartReduceScatter(b.parts, wire)
}

// finish sets the gradients to the sums over all ranks: of all rows, or with the distributed
// optimizer of those of this rank.
func (r *reducer) finish() error {
	for _, b := range r.buckets {
		if err := b.request.Wait(); err != nil {
			return err
		}
		if !r.distributed() {
			b.request = r.group(trafficGradients).StartAllGatherFloats(b.parts, r.wire())
		}
	}
	for _, b := range r.buckets {
		if err := b.request.Wait(); err != nil {
			return err
		}
	}
	return nil
}

// bytes returns the memory of messages when all buckets are under way: what the rank sends to the others,
// and what each rank adds to its part. The messages in which the sums travel back reuse this memory. In
// FP32, gradients travel from and to their own memory.
func (r *reducer) bytes() (n int) {
	wire := r.wire()
	for _, b := range r.buckets {
		own := wire.Size(b.parts[r.rank()].Len())
		for rank, part := range b.parts {
			switch {
			case wire != comm.F32:
				n += own + wire.Size(part.Len())
			case rank != r.rank():
				n += own
			}
		}
		if wire != comm.F32 {
			n -= own // which is not sent
		}
	}
	return n
}

// A finiteWire reports NaN and Inf among the values that it encodes, which are in the caches then.
type finiteWire struct {
	comm.Wire
	nonFinite *atomic.Bool
}

// Encode checks and encodes src.
func (w finiteWire) Encode(dst []byte, src []float32) {
	if !allFinite(src) {
		w.nonFinite.Store(true)
	}
	w.Wire.Encode(dst, src)
}

// allFinite reports whether x has neither NaN nor Inf: their products with 0 are NaN. Four sums hide the
// latency of additions.
func allFinite(x []float32) bool {
	var a, b, c, d float32
	for ; len(x) >= 4; x = x[4:] {
		a += x[0] * 0
		b += x[1] * 0
		c += x[2] * 0
		d += x[3] * 0
	}
	for _, v := range x {
		a += v * 0
	}
	return a+b+c+d == 0
}

// noise is the error of gradients that travel in a format other than FP32, as this rank sends them.
type noise struct {
	enabled       bool
	signal, error float64 // sums of squares
}

// measure adds the error of the values of v in the format of a wire.
func (n *noise) measure(v comm.Vector, wire comm.Wire) {
	var rounded []float32
	for x := range v.Chunks() {
		if rounded == nil {
			rounded = make([]float32, len(x))
		}
		comm.Round(rounded[:len(x)], x, wire)
		for i, v := range x {
			d := float64(v) - float64(rounded[i])
			n.signal += float64(v) * float64(v)
			n.error += d * d
		}
	}
}

// sqnr returns the ratio of signal to error in dB; +Inf without an error.
func (n *noise) sqnr() float64 { return 10 * math.Log10(n.signal/n.error) }
