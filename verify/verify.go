// Package verify compares a checkpoint with what it was made from: is every
// weight there, is each stored as its convention asks, and are the values those
// that the source's become.
//
//	quantized weights        each scale and each element is within the bound of its format (quant.Bound)
//	weights in another dtype each element is the source's, rounded to nearest even
//	all others               each bit is the source's
//
// The bound is what any supported rule, search and rounding can do. It finds damage
// to one block. It does not find an element that moved to the other of its two
// neighbors, damage to blocks that every rule rounds to zeros, or low precision:
// see Options.MinSQNR.
package verify

import (
	"bytes"
	"context"
	"fmt"
	"math"
	"slices"

	"github.com/microscale-go/microscale/internal/checkpoint"
	"github.com/microscale-go/microscale/measure"
	"github.com/microscale-go/microscale/quant"
	"github.com/microscale-go/microscale/safetensors"
	"github.com/microscale-go/microscale/tensor"
)

// BlockLength is the number of elements of the blocks over which
// measure.Result.MeanBlockSQNR is taken, the same for every format so that
// formats can be compared.
const BlockLength = 32

// Check says how a weight is compared with the source.
type Check uint8

const (
	Bounded   Check = iota // quantized: elements and scales are within the bound of the format
	Rounded                // of another dtype: elements are the source's values rounded to it
	Identical              // elements are the source's to the bit
)

// String returns "bounded", "rounded" or "identical".
func (c Check) String() string { return [...]string{"bounded", "rounded", "identical"}[c] }

// A Tensor is one weight of the comparison.
type Tensor struct {
	Name       string
	Format     string // block format, or dtype in lower case
	Rows, Cols int
	Result     measure.Result
	Nearest    measure.Result // of the same format without a search of scales; no elements where that was not measured
}

// Gain returns by how many decibels the weight is better than without a search of
// scales; ok is false where that was not measured, or nothing was lost.
func (t Tensor) Gain() (db float64, ok bool) {
	db = t.Result.SQNR - t.Nearest.SQNR
	return db, t.Nearest.Elements > 0 && !math.IsNaN(db) && !math.IsInf(db, 0)
}

// A Report is the comparison of two checkpoints.
type Report struct {
	Tensors     []Tensor             // of those that both have, in the order of the source
	Checks      []Check              // how each of the tensors was compared
	Blocks      []Blocks             // of the quantized ones, in the same order
	Problems    []checkpoint.Problem // what makes the checkpoint unfit
	NotCompared []string             // what the comparison says nothing about, and why
}

// OK reports whether the comparison found no problem. It says nothing of what is
// NotCompared.
func (r *Report) OK() bool { return len(r.Problems) == 0 }

// Checked returns the number of weights that were compared in a way.
func (r *Report) Checked(c Check) (n int) {
	for _, check := range r.Checks {
		if check == c {
			n++
		}
	}
	return n
}

// Options of a comparison.
type Options struct {
	Threads  int               // goroutines; 0: one per processor
	Progress func(bytes int64) // called as bytes of the source are compared; may be nil
	Clients  []Client          // what they would refuse is among the problems
	MinSQNR  float64           // dB: a quantized weight with a lower SQNR is a problem; 0: none is

	// Nearest, where it is set, returns a quantizer of a block format: what it gives
	// without a search of scales is measured too (Tensor.Nearest).
	Nearest func(quant.Format) (quant.Quantizer, error)
}

// Compare reads both checkpoints whole and compares every weight. Errors are
// those of reading; what is wrong with dst is in the report.
func Compare(ctx context.Context, src, dst *checkpoint.Model, o Options) (*Report, error) {
	r := &Report{Problems: slices.Clone(dst.Problems)}
	var pairs []pair
	known := map[string]bool{}
	for _, want := range counterparts(src, dst) {
		known[want.Name] = true
		got, ok := dst.Lookup(want.Name)
		switch {
		case !ok && dst.Convention == nil && isCacheScale(want.Name): // it goes with the quantization
		case !ok && !mentioned(dst.Problems, want.Name):
			r.fault(want.Name, "it is missing")
		case ok && !slices.Equal(want.Shape, got.Shape):
			r.fault(want.Name, "its shape is %v, the source's %v", got.Shape, want.Shape)
		case ok:
			pairs = append(pairs, pair{want, got})
		}
	}
	for _, got := range dst.Weights {
		if !known[got.Name] && !isCacheScale(got.Name) && !mentioned(dst.Problems, got.Name) {
			r.fault(got.Name, "the source has no such tensor")
		}
	}
	if err := r.compare(ctx, pairs, o); err != nil {
		return nil, err
	}
	if err := r.checkRecord(ctx, dst); err != nil {
		return nil, err
	}
	for _, c := range o.Clients {
		r.Problems = append(r.Problems, c.Refuses(dst)...)
	}
	r.NotCompared = append(r.NotCompared, notCompared(dst, known)...)
	return r, nil
}

// notCompared describes the parts of a checkpoint that have no counterpart in the
// source's weights, which are known by their names.
func notCompared(dst *checkpoint.Model, known map[string]bool) (parts []string) {
	activations, caches := 0, 0
	for _, w := range dst.Weights {
		if _, ok := w.Part(checkpoint.Input); ok {
			activations++
		}
		if isCacheScale(w.Name) && !known[w.Name] {
			caches++
		}
	}
	if activations > 0 {
		parts = append(parts, fmt.Sprintf("scales of activations (%d): they depend on inputs", activations))
	}
	if caches > 0 {
		parts = append(parts, fmt.Sprintf("scales of the KV cache (%d): they depend on inputs", caches))
	}
	switch others := len(dst.Source.Others()); {
	case dst.Convention.Is(checkpoint.GGUF()):
		parts = append(parts, "metadata and tokenizer: only weights are compared")
	case !dst.Source.Single:
		parts = append(parts, fmt.Sprintf("config.json beyond its quantization, and other files (%d): only weights are compared", others))
	}
	return parts
}

// counterparts returns the weights of the source as the other checkpoint has them:
// experts of one tensor, where it has each by itself, are split.
func counterparts(src, dst *checkpoint.Model) []*checkpoint.Weight {
	var all []*checkpoint.Weight
	for _, w := range src.Weights {
		split := w.Split()
		if _, whole := dst.Lookup(w.Name); whole || split == nil {
			split = []*checkpoint.Weight{w}
		} else if _, ok := dst.Lookup(split[0].Name); !ok {
			split = []*checkpoint.Weight{w}
		}
		all = append(all, split...)
	}
	return all
}

// isCacheScale reports whether a tensor is a scale of the KV cache.
func isCacheScale(name string) bool {
	_, ok := checkpoint.CacheOwner(name)
	return ok
}

// mentioned reports whether a problem is known of the tensor.
func mentioned(problems []checkpoint.Problem, tensor string) bool {
	return slices.ContainsFunc(problems, func(p checkpoint.Problem) bool { return p.Tensor == tensor })
}

func (r *Report) fault(name, text string, args ...any) {
	r.Problems = append(r.Problems, checkpoint.Problem{Tensor: name, Text: fmt.Sprintf(text, args...)})
}

// A pair is a weight of the source and its copy.
type pair struct{ want, got *checkpoint.Weight }

// dense reports whether values are compared, and not bytes.
func (p pair) dense() bool { return p.want.Dense() && p.got.Dense() }

// check returns how the pair is compared.
func (p pair) check() Check {
	switch {
	case p.got.Quantized() && p.dense():
		return Bounded
	case p.want.Quantized(), p.dense() && p.want.Dtype != p.got.Dtype:
		return Rounded
	}
	return Identical
}

// tiling returns the tiles of the comparison.
func (p pair) tiling() checkpoint.Tiling {
	if p.dense() {
		return p.want.Tiling(p.want.Format, p.got.Format)
	}
	return p.want.Line()
}

// What is learned of a tile.
type compared struct {
	sums    *measure.Accumulator // nil where bytes are compared
	near    *measure.Accumulator // of Tensor.Nearest; nil where that is not asked for
	equal   bool                 // bytes are
	differ  int64                // elements that are not as they should be, of an unquantized weight
	element deviation            // the first of them
	blocks  Blocks               // where it is quantized
}

// compare measures the pairs, tile by tile on all threads.
func (r *Report) compare(ctx context.Context, pairs []pair, o Options) error {
	near, err := quantizers(pairs, o.Nearest)
	if err != nil {
		return err
	}
	totals := make([]compared, len(pairs))
	for i := range totals {
		totals[i] = compared{sums: measure.New(BlockLength), near: measure.New(BlockLength), equal: true}
	}
	job := checkpoint.Job[compared]{
		Weights: len(pairs),
		Tiling:  func(i int) checkpoint.Tiling { return pairs[i].tiling() },
		Work:    func(t checkpoint.Tile) (compared, error) { return pairs[t.Weight].tile(t, near) },
		Done: func(t checkpoint.Tile, c compared) {
			totals[t.Weight].merge(c)
			if o.Progress != nil {
				p := pairs[t.Weight]
				o.Progress(p.tiling().Share(t, p.want.StoredBytes()))
			}
		},
		Threads: o.Threads,
	}
	if err := job.Run(ctx); err != nil {
		return err
	}
	checkWholeScales(totals, pairs)
	for i, p := range pairs {
		r.add(p, &totals[i], o.MinSQNR)
	}
	var unchecked int64
	for _, b := range r.Blocks {
		unchecked += b.Unchecked
	}
	if unchecked > 0 {
		r.NotCompared = append(r.NotCompared, fmt.Sprintf("elements of blocks that hold NaN or Inf in the source, or have a subnormal scale (%d): they have no bound", unchecked))
	}
	return nil
}

// merge adds what is learned of a later tile.
func (c *compared) merge(d compared) {
	c.equal = c.equal && d.equal
	if d.sums != nil {
		c.sums.Merge(d.sums)
	}
	if d.near != nil {
		c.near.Merge(d.near)
	}
	if c.differ == 0 {
		c.element = d.element
	}
	c.differ += d.differ
	c.blocks.merge(d.blocks)
}

// add reports a pair that was compared, and what is wrong with it.
func (r *Report) add(p pair, c *compared, minSQNR float64) {
	rows, cols := p.want.Matrix()
	result := c.sums.Result()
	if (!c.equal || c.differ > 0 && p.check() == Identical) && math.IsInf(result.SQNR, 1) { // no copy: bytes, or the sign of zeros
		result.SQNR, result.MeanBlockSQNR, result.Cosine, result.Bias = math.NaN(), math.NaN(), math.NaN(), math.NaN()
	}
	t := Tensor{Name: p.want.Name, Format: p.got.FormatName(), Rows: rows, Cols: cols, Result: result}
	check := p.check()
	if nearest := c.near.Result(); nearest.Elements > 0 {
		t.Nearest = nearest
	}
	r.Tensors, r.Checks = append(r.Tensors, t), append(r.Checks, check)
	if result.NonFinite > 0 {
		r.fault(t.Name, "%d of its values are NaN or Inf, and finite in the source", result.NonFinite)
	}
	if check == Bounded {
		c.blocks.Tensor = t.Name
		c.blocks.finish()
		r.Blocks = append(r.Blocks, c.blocks)
		for _, fault := range c.blocks.faults(p.got.Format) {
			r.fault(t.Name, "%s", fault)
		}
		if minSQNR > 0 && !(result.SQNR >= minSQNR) {
			r.fault(t.Name, "its SQNR is %.2f dB, less than the %g dB asked for", result.SQNR, minSQNR)
		}
		return
	}
	want, got := p.want.FormatName(), p.got.FormatName()
	switch d := c.element; {
	case !c.equal && mentioned(r.Problems, t.Name):
	case !c.equal && want != got:
		r.fault(t.Name, "its elements are %s, and %s in the source: they cannot be compared", got, want)
	case !c.equal:
		r.fault(t.Name, "its %s elements differ from the source's", want)
	case c.differ <= result.NonFinite:
	case check == Identical:
		r.fault(t.Name, "%d of its %s elements differ from the source's, of which they must be a copy; the first, row %d, column %d, is %g in the source and %g here", c.differ, got, d.row, d.col, d.want, d.got)
	default:
		r.fault(t.Name, "%d of its %s elements are not the source's values rounded to %s; the first, row %d, column %d, is %g and not %g", c.differ, got, got, d.row, d.col, d.got, d.want)
	}
}

// tile compares a tile: values where both have some, else bytes.
func (p pair) tile(t checkpoint.Tile, near map[string]quant.Quantizer) (compared, error) {
	if !p.dense() {
		return p.bytes(t)
	}
	want, err := p.want.ReadTile(t)
	if err != nil {
		return compared{}, err
	}
	sums := measure.New(BlockLength)
	if !p.got.Quantized() {
		got, err := p.got.ReadTile(t)
		if err != nil {
			return compared{}, err
		}
		for i := range want.Rows {
			sums.Add(want.Row(i), got.Row(i))
		}
		done := compared{sums: sums, equal: true}
		return done, done.copied(t, want, got, p.got.Dtype)
	}
	q, err := p.got.ReadDecoded(t)
	if err != nil {
		return compared{}, err
	}
	var c Comparer
	c.Tile(sums, want, q)
	done := compared{sums: sums, equal: true, blocks: blocksOf(t, p.got.Format, p.got.Global, want, q)}
	if rule, ok := near[p.got.Format.Name]; ok {
		plain, err := nearestOf(rule, want, p.got)
		if err != nil {
			return compared{}, err
		}
		done.near = measure.New(BlockLength)
		c.Tile(done.near, want, plain)
	}
	return done, nil
}

// copied counts the elements of a tile that are not the source's rounded to a dtype:
// of the source's own dtype, those that are not the same. It changes want.
func (c *compared) copied(t checkpoint.Tile, want, got tensor.Dense, dtype safetensors.Dtype) error {
	stored, _ := checkpoint.DenseFormat(dtype)
	raw := make([]byte, want.Cols*stored.Bits()/8)
	for i := range want.Rows {
		x, y := want.Row(i), got.Row(i)
		if err := tensor.ToBytes(raw, x, stored); err != nil {
			return err
		}
		if err := tensor.FromBytes(x, raw, stored); err != nil {
			return err
		}
		for j, v := range y {
			if math.Float32bits(v) == math.Float32bits(x[j]) || v != v && x[j] != x[j] {
				continue
			}
			if c.differ == 0 {
				c.element = deviation{t.From + i, t.FromCol + j, x[j], v}
			}
			c.differ++
		}
	}
	return nil
}

// bytes compares a tile of tensors that are not both of values.
func (p pair) bytes(t checkpoint.Tile) (compared, error) {
	if p.want.FormatName() != p.got.FormatName() {
		return compared{}, nil
	}
	want, err := p.want.ReadBytes(t, nil)
	if err != nil {
		return compared{}, err
	}
	got, err := p.got.ReadBytes(t, nil)
	return compared{equal: bytes.Equal(want, got)}, err
}
