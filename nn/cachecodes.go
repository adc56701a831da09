package nn

import (
	"errors"
	"fmt"
	"slices"

	"github.com/microscale-go/microscale/quant"
	"github.com/microscale-go/microscale/tensor"
)

// CheckCacheFormat returns an error that matches errors.ErrUnsupported unless a KV cache can hold
// keys and values in format f: each head of a token must have its own scales. A global scale is 1.
func CheckCacheFormat(f quant.Format) error {
	if f.PerTensor() || f.Block.Rows > 1 {
		return fmt.Errorf("a KV cache in %s: %w: want a format whose scales belong to one row, such as %s", f, errors.ErrUnsupported, quant.MXFP8)
	}
	return nil
}

// A codedCache holds keys and values as codes: for each head of K, then for each of V, a tensor of
// tokens × HeadDim. Scales lie along HeadDim.
type codedCache struct {
	heads []*quant.Tensor
	tiles []float32 // of decode: codedTile rows for each head of K
	last  *quant.Tensor
}

// codedTile is the number of tokens that decode decodes at a time. With 128 elements in a head,
// they are 16 KiB.
const codedTile = 32

// quantizeHeads quantizes heads, tokens × (n·dim), as a tensor of (tokens·n) × dim. It reuses the
// memory of into if that has as many rows.
func quantizeHeads(s *Scope, heads tensor.Dense, dim int, into *quant.Tensor) (*quant.Tensor, error) {
	rows := heads.Rows * heads.Cols / dim
	x := tensor.Dense{Rows: rows, Cols: dim, Stride: dim}
	if heads.Rows == 1 {
		x.Data = heads.Row(0)
	} else {
		x.Data = make([]float32, 0, rows*dim)
		for i := range heads.Rows {
			x.Data = append(x.Data, heads.Row(i)...)
		}
	}
	if into != nil && into.Rows() != rows {
		into = nil
	}
	with := quant.With{Threads: s.Threads, Into: into}
	if s.Cache.Global {
		with.Amax = new(s.Cache.Scale.Max() * s.Cache.Element.Max())
	}
	return quant.Quantizer{Format: s.Cache}.Rowwise(x, with)
}

// append adds the keys and values of tokens, whose heads are dim wide.
func (c *codedCache) append(s *Scope, kv tensor.Dense, dim int) error {
	t, err := quantizeHeads(s, kv, dim, c.last)
	if err != nil {
		return err
	}
	n := kv.Cols / dim
	if c.heads == nil {
		for range n {
			c.heads = append(c.heads, t.Like(0))
		}
	}
	codes, scales, scales32 := t.RowBytes(), len(t.Scales)/t.Rows(), len(t.Scales32)/t.Rows()
	for i := range t.Rows() {
		h := c.heads[i%n]
		h.Codes = append(h.Codes, t.Codes[i*codes:(i+1)*codes]...)
		h.Scales = append(h.Scales, t.Scales[i*scales:(i+1)*scales]...)
		h.Scales32 = append(h.Scales32, t.Scales32[i*scales32:(i+1)*scales32]...)
		h.Shape[0]++
	}
	c.last = t
	return nil
}

// truncate keeps the first n tokens.
func (c *codedCache) truncate(n int) {
	for _, h := range c.heads {
		rows := max(1, h.Rows())
		h.Codes, h.Scales, h.Scales32 = h.Codes[:n*h.RowBytes()], h.Scales[:n*(len(h.Scales)/rows)], h.Scales32[:n*(len(h.Scales32)/rows)]
		h.Shape[0] = n
	}
}

// bytes returns the bytes of codes and scales.
func (c *codedCache) bytes() int {
	n := 0
	for _, h := range c.heads {
		n += len(h.Codes) + len(h.Scales) + 4*len(h.Scales32)
	}
	return n
}

// rows decodes tokens from first on of a head into dst, rounded to the recipe's Activations.
func (c *codedCache) rows(s *Scope, dst tensor.Dense, head, first int) {
	c.heads[head].DequantizeRows(dst, first, 1)
	if s.Recipe.Activations.Element != quant.F32.Element {
		for i := range dst.Rows {
			s.round(dst.Row(i))
		}
	}
}

// tile decodes tokens from first on of a head of K or V, into the memory of owner, a head of K.
func (c *codedCache) tile(s *Scope, head, owner, first, tokens int) []float32 {
	dim := c.heads[head].Cols()
	dst := c.tiles[owner*codedTile*dim:][:tokens*dim]
	c.rows(s, tensor.Dense{Rows: tokens, Cols: dim, Stride: dim, Data: dst}, head, first)
	return dst
}

// dense returns all keys and values, side by side.
func (c *codedCache) dense(s *Scope) tensor.Dense {
	dim, tokens := c.heads[0].Cols(), c.heads[0].Rows()
	all := tensor.New(tokens, len(c.heads)*dim)
	for h := range c.heads {
		c.rows(s, all.View(0, tokens, h*dim, (h+1)*dim), h, 0)
	}
	return all
}

// roundCoded replaces keys and values with those that a cache in the scope's format returns.
func (a *Attention) roundCoded(s *Scope, qkv tensor.Dense) error {
	from := a.Heads * a.HeadDim
	kv := qkv.View(0, qkv.Rows, from, qkv.Cols)
	t, err := quantizeHeads(s, kv, a.HeadDim, nil)
	if err != nil {
		return fmt.Errorf("%s: KV cache: %w", a.Name, err)
	}
	d := t.Dequantize(s.Threads)
	for i := range kv.Rows {
		copy(kv.Row(i), d.Data[i*kv.Cols:])
		s.round(kv.Row(i))
	}
	return nil
}

// grownTiles makes the memory of tiles for a number of heads of K.
func (c *codedCache) grownTiles(heads, dim int) {
	if n := heads * codedTile * dim; len(c.tiles) < n {
		c.tiles = slices.Grow(c.tiles[:0], n)[:n]
	}
}
