package nn

import (
	"math"

	"github.com/microscale-go/microscale/internal/cpu"
	"github.com/microscale-go/microscale/internal/parallel"
	"github.com/microscale-go/microscale/tensor"
)

// Attention of few tokens over a KV cache. It reads keys and values in place. All heads of a group
// use a few rows while these are in the first-level cache.

const (
	decodeTokens = 8       // maximum number of tokens; with more, products of stacked queries are faster
	decodeTile   = 8       // keys that all heads of a group use before the next keys are read
	decodeGrain  = 1 << 16 // minimum number of products for one goroutine
)

// decodes reports whether decode computes attention of n tokens over a cache. It computes in the
// recipe's Activations and calls no observer.
func (a *Attention) decodes(s *Scope, n int) bool {
	return n <= decodeTokens && s.Inference && s.Observer.Operand == nil && s.Observer.Product == nil && !s.Recipe.Attention.DotProduct &&
		!s.Recipe.Attention.MultiHead
}

// decode returns O for the last tokens of the cache, whose queries are in qkv. The result is valid
// until the cache's next call.
func (a *Attention) decode(s *Scope, qkv tensor.Dense, c *Cache) tensor.Dense {
	r := &c.decode
	if r.body == nil {
		r.body = r.heads
	}
	r.Attention, r.s, r.cache, r.queries, r.scale = a, s, c, qkv, a.Scale
	if r.scale == 0 {
		r.scale = float32(1 / math.Sqrt(float64(a.HeadDim)))
	}
	length, tokens, group := c.Len(), qkv.Rows, a.Heads/a.KVHeads
	r.output = tensor.Of(tokens, a.Heads*a.HeadDim, grown(r.output.Data, tokens*a.Heads*a.HeadDim))
	r.scores = grown(r.scores, a.Heads*length)
	if s.codesCache() {
		c.coded.grownTiles(a.KVHeads, a.HeadDim)
	}
	grain := max(1, decodeGrain/(2*tokens*group*length*a.HeadDim))
	parallel.For(a.KVHeads, grain, s.Threads, r.body)
	return r.output
}

// grown returns a slice of n elements in the memory of x if that is large enough.
func grown(x []float32, n int) []float32 {
	if cap(x) < n {
		x = make([]float32, n, n+n/4)
	}
	return x[:n]
}

// A decodeRun is decode in progress. A cache keeps it with its memory.
type decodeRun struct {
	*Attention
	s       *Scope
	cache   *Cache
	queries tensor.Dense
	scale   float32
	output  tensor.Dense
	scores  []float32 // of each head with the tokens of the cache

	body func(from, to int) // heads, bound to the run
}

// heads computes the heads of groups from ≤ group < to for all tokens.
func (r *decodeRun) heads(from, to int) {
	for head := from; head < to; head++ {
		for i := range r.queries.Rows {
			r.group(r.output.Row(i), r.queries.Row(i), head, r.cache.Len()-r.queries.Rows+i+1)
		}
	}
}

// group sets the heads of a group in out, for a token that attends to the first length tokens
// of the cache.
func (r *decodeRun) group(out, query []float32, head, length int) {
	a, s, c := r.Attention, r.s, r.cache
	d, group := a.HeadDim, a.Heads/a.KVHeads
	first := 0
	if a.Window > 0 {
		first = max(0, length-a.Window)
	}
	n := length - first
	row := func(h int) []float32 { return r.scores[(head*group+h)*c.Len():][:n] }
	part := func(x []float32, h int) []float32 { return x[(head*group+h)*d:][:d] }
	tile := c.tileTokens(s)
	for i := 0; i < n; i += tile {
		rows := min(tile, n-i)
		keys, stride := a.tile(s, c, head, head, first+i, rows)
		for h := range group {
			scores(row(h)[i:i+rows], part(query, h), keys, stride)
		}
	}
	for h := range group {
		p := row(h)
		for i := range p {
			p[i] *= r.scale
		}
		if a.Softcap != 0 {
			softcap(p, a.Softcap)
		}
		softmax([][]float32{p}, []float32{a.sink(head*group + h)})
		s.round(p)
		clear(part(out, h))
	}
	for i := 0; i < n; i += tile {
		rows := min(tile, n-i)
		values, stride := a.tile(s, c, a.KVHeads+head, head, first+i, rows)
		for h := range group {
			addRows(part(out, h), row(h)[i:i+rows], values, stride)
		}
	}
	for h := range group {
		s.round(part(out, h))
	}
}

// tileTokens returns the number of tokens that all heads of a group use before the next are read.
func (c *Cache) tileTokens(s *Scope) int {
	if s.codesCache() {
		return codedTile
	}
	return decodeTile
}

// tile returns tokens from first on of a head, and the stride between two tokens in elements. Heads
// from KVHeads on are those of V. Codes are decoded to the memory of owner, a head of K.
func (a *Attention) tile(s *Scope, c *Cache, head, owner, first, tokens int) (rows []float32, stride int) {
	if s.codesCache() {
		return c.coded.tile(s, head, owner, first, tokens), a.HeadDim
	}
	return c.rows.Data[first*c.rows.Cols+head*a.HeadDim:], c.rows.Cols
}

// sink returns the score of a head's sink, -Inf if it has none.
func (a *Attention) sink(head int) float32 {
	if a.Sinks == nil {
		return float32(math.Inf(-1))
	}
	return a.Sinks.Value.Row(0)[head]
}

// laneCount is the number of interleaved sums of scores.
const laneCount = 16

// scores sets dst to the dot products of q with rows of k, stride elements apart.
func scores(dst, q, k []float32, stride int) {
	const float = 4
	if kernel := decodeKernelFor(len(q)); kernel != nil {
		kernel.scores(&dst[0], &q[0], &k[0], len(dst), float*stride, len(q)/laneCount)
		return
	}
	for i := range dst {
		var lanes [laneCount]float32
		for j, v := range k[i*stride:][:len(q)] {
			lanes[j%laneCount] += float32(q[j] * v)
		}
		for n := laneCount / 2; n > 0; n /= 2 {
			for l := range n {
				lanes[l] += lanes[l+n]
			}
		}
		dst[i] = lanes[0]
	}
}

// addRows adds to dst rows of v, stride elements apart, each times an element of p.
func addRows(dst, p, v []float32, stride int) {
	const float = 4
	if kernel := decodeKernelFor(len(dst)); kernel != nil {
		kernel.addRows(&dst[0], &p[0], &v[0], len(p), float*stride, len(dst)/laneCount)
		return
	}
	for i, f := range p {
		for j, x := range v[i*stride:][:len(dst)] {
			dst[j] += float32(f * x)
		}
	}
}

// decodeKernelFor returns the kernel for heads of a number of elements, nil if there is none.
func decodeKernelFor(dim int) *rowKernel {
	for i := range rowKernels {
		if k := &rowKernels[i]; cpu.Uses(k.needs) && dim%laneCount == 0 {
			return k
		}
	}
	return nil
}
