package nn

import (
	"cmp"
	"fmt"

	"github.com/microscale-go/microscale/quant"
	"github.com/microscale-go/microscale/tensor"
)

// A Cache holds the rotated keys and the values of the tokens of one sequence: in float32, tokens ×
// 2·KVHeads·HeadDim, K and V side by side, or in the format Scope.Cache. All tokens of a cache must
// be added under the same format.
type Cache struct {
	// Positions is the maximum length of the sequence, which selects the frequencies of rotary
	// embeddings that depend on it, unless Length does. 0: the length after each call.
	Positions int
	Length    int // of the text that selects these frequencies; 0: Positions

	length int
	rows   tensor.Dense
	coded  codedCache

	decode decodeRun
}

// Len returns the number of tokens.
func (c *Cache) Len() int { return c.length }

// Bytes returns the bytes that the cache holds.
func (c *Cache) Bytes() int { return 4*len(c.rows.Data) + c.coded.bytes() }

// Truncate keeps the first n tokens. It panics unless 0 ≤ n ≤ Len.
func (c *Cache) Truncate(n int) {
	if n < 0 || n > c.Len() {
		panic(fmt.Sprintf("nn: truncate a cache of %d tokens to %d", c.Len(), n))
	}
	c.length = n
	c.coded.truncate(n)
	if c.rows.Rows > n {
		c.rows = tensor.Of(n, c.rows.Cols, c.rows.Data[:n*c.rows.Cols])
	}
}

// Extend is Forward for the next tokens of one sequence. It adds their keys and values to the
// cache. The result is valid until the cache's next call. Without tokens, it is empty.
func (a *Attention) Extend(s *Scope, qkv tensor.Dense, cache *Cache) (o tensor.Dense, err error) {
	if err := checkWidth(a.Name, qkv, a.Width()); err != nil {
		return tensor.Dense{}, err
	}
	if qkv.Rows == 0 {
		return tensor.New(0, a.Heads*a.HeadDim), nil
	}
	if err := a.prepare(s, qkv, qkv.Rows, cache.Len(), max(cmp.Or(cache.Length, cache.Positions), cache.Len()+qkv.Rows)); err != nil {
		return tensor.Dense{}, err
	}
	a.spread(s, qkv)
	if err := a.extend(s, qkv, cache); err != nil {
		return tensor.Dense{}, err
	}
	if o, err = a.attend(s, qkv, cache); err != nil {
		return tensor.Dense{}, err
	}
	a.spread(s, o)
	return o, nil
}

// attend returns O for the last tokens of the cache, whose queries are in qkv.
func (a *Attention) attend(s *Scope, qkv tensor.Dense, cache *Cache) (tensor.Dense, error) {
	if a.decodes(s, qkv.Rows) {
		return a.decode(s, qkv, cache), nil
	}
	rows := cache.rows
	if s.codesCache() {
		rows = cache.coded.dense(s)
	}
	run, err := a.newRun(s, qkv, rows, cache.Len(), nil)
	if err != nil {
		return tensor.Dense{}, err
	}
	return run.forward(1)
}

// ExtendEach is Extend for one token of each of several sequences: row i of qkv extends cache i.
func (a *Attention) ExtendEach(s *Scope, qkv tensor.Dense, caches []*Cache) (o tensor.Dense, err error) {
	if qkv.Rows != len(caches) {
		return tensor.Dense{}, fmt.Errorf("%s: got %d tokens, want one for each of %d caches", a.Name, qkv.Rows, len(caches))
	}
	o = s.Arena.Dense(qkv.Rows, a.Heads*a.HeadDim)
	for i, cache := range caches {
		one, err := a.Extend(s, qkv.View(i, i+1, 0, qkv.Cols), cache)
		if err != nil {
			return tensor.Dense{}, err
		}
		copy(o.Row(i), one.Row(0))
	}
	return o, nil
}

// extend adds the keys and values in qkv to the cache.
func (a *Attention) extend(s *Scope, qkv tensor.Dense, cache *Cache) error {
	from := a.Heads * a.HeadDim
	if s.codesCache() {
		if err := cache.coded.append(s, qkv.View(0, qkv.Rows, from, qkv.Cols), a.HeadDim); err != nil {
			return fmt.Errorf("%s: KV cache: %w", a.Name, err)
		}
	} else {
		if err := a.roundCached(s, qkv); err != nil {
			return err
		}
		cache.add(qkv.View(0, qkv.Rows, from, a.Width()))
	}
	cache.length += qkv.Rows
	return nil
}

// minCache is the minimum number of tokens that a cache has memory for.
const minCache = 64

// add appends the keys and values of tokens. The memory doubles, up to that of Positions.
func (c *Cache) add(tokens tensor.Dense) {
	n, data := c.Len()+tokens.Rows, c.rows.Data
	if cap(data) < n*tokens.Cols {
		capacity := max(minCache, 2*c.Len())
		if c.Positions > 0 {
			capacity = min(capacity, c.Positions)
		}
		data = append(make([]float32, 0, max(n, capacity)*tokens.Cols), data...)
	}
	for i := range tokens.Rows {
		data = append(data, tokens.Row(i)...)
	}
	c.rows = tensor.Of(n, tokens.Cols, data)
}

// CacheScales are the decode scales of an FP8 KV cache: rotated keys and values are E4M3 codes
// times their scale, and saturate at 448 times it.
type CacheScales struct{ Key, Value float32 }

// roundCached replaces the keys and values in qkv with those that the KV cache returns, rounded to
// the recipe's Activations. It applies only to inference, as the cache does.
func (a *Attention) roundCached(s *Scope, qkv tensor.Dense) error {
	switch {
	case !s.Inference:
		return nil
	case s.codesCache():
		return a.roundCoded(s, qkv)
	case a.CacheScales == nil:
		return nil
	}
	k, v := a.keysValues(qkv)
	for _, part := range []struct {
		name  string
		x     tensor.Dense
		scale float32
	}{{"keys", k, a.CacheScales.Key}, {"values", v, a.CacheScales.Value}} {
		inverse := 1 / part.scale
		t, err := quant.Quantizer{Format: quant.FP8Tensor}.Rowwise(part.x, quant.With{Inverse: &inverse, Threads: s.Threads})
		if err != nil {
			return fmt.Errorf("%s: KV cache: %s: %w", a.Name, part.name, err)
		}
		t.Scales32[0] = part.scale // the stored number, not the inverse of its inverse
		cached := t.Dequantize(s.Threads)
		for i := range cached.Rows {
			s.round(cached.Row(i))
			copy(part.x.Row(i), cached.Row(i))
		}
	}
	return nil
}
