// Package verify compares a checkpoint with what it was made from: is every
// weight there, is each stored as its convention asks, and how far are the
// decoded values from the source.
//
// Low precision is not a fault: a report is OK unless the structure is broken or
// values that were finite are not any more.
package verify

import (
	"bytes"
	"context"
	"fmt"
	"math"
	"slices"

	"github.com/microscale-go/microscale/checkpoint"
	"github.com/microscale-go/microscale/measure"
	"github.com/microscale-go/microscale/quant"
)

// BlockLength is the number of elements of the blocks over which
// measure.Result.MeanBlockSQNR is taken, the same for every format so that
// formats can be compared.
const BlockLength = 32

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
	Tensors  []Tensor             // of those that both have, in the order of the source
	Blocks   []Blocks             // of the quantized ones, in the same order
	Problems []checkpoint.Problem // what makes the checkpoint unfit
}

// OK reports whether the checkpoint is a faithful copy in its format.
func (r *Report) OK() bool { return len(r.Problems) == 0 }

// Options of a comparison.
type Options struct {
	Threads  int               // goroutines; 0: one per processor
	Progress func(bytes int64) // called as bytes of the source are compared; may be nil
	Clients  []Client          // what they would refuse is among the problems

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
		case !ok && !mentioned(dst.Problems, want.Name):
			r.fault(want.Name, "it is missing")
		case ok && !slices.Equal(want.Shape, got.Shape):
			r.fault(want.Name, "its shape is %v, the source's %v", got.Shape, want.Shape)
		case ok:
			pairs = append(pairs, pair{want, got})
		}
	}
	for _, got := range dst.Weights {
		if _, scale := checkpoint.CacheOwner(got.Name); !known[got.Name] && !scale && !mentioned(dst.Problems, got.Name) {
			r.fault(got.Name, "the source has no such tensor")
		}
	}
	if err := r.compare(ctx, pairs, o); err != nil {
		return nil, err
	}
	for _, c := range o.Clients {
		r.Problems = append(r.Problems, c.Refuses(dst)...)
	}
	return r, nil
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

// mentioned reports whether a problem is known of the tensor.
func mentioned(problems []checkpoint.Problem, tensor string) bool {
	return slices.ContainsFunc(problems, func(p checkpoint.Problem) bool { return p.Tensor == tensor })
}

func (r *Report) fault(tensor, text string, args ...any) {
	r.Problems = append(r.Problems, checkpoint.Problem{Tensor: tensor, Text: fmt.Sprintf(text, args...)})
}

// A pair is a weight of the source and its copy.
type pair struct{ want, got *checkpoint.Weight }

// dense reports whether values are compared, and not bytes.
func (p pair) dense() bool { return p.want.Dense() && p.got.Dense() }

// tiling returns the tiles of the comparison.
func (p pair) tiling() checkpoint.Tiling {
	if p.dense() {
		return p.want.Tiling(p.want.Format, p.got.Format)
	}
	return p.want.Line()
}

// What is learned of a tile.
type compared struct {
	sums   *measure.Accumulator // nil where bytes are compared
	near   *measure.Accumulator // of Tensor.Nearest; nil where that is not asked for
	equal  bool
	blocks Blocks // where it is quantized
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
			total := &totals[t.Weight]
			total.equal = total.equal && c.equal
			if c.sums != nil {
				total.sums.Merge(c.sums)
			}
			if c.near != nil {
				total.near.Merge(c.near)
			}
			total.blocks.merge(c.blocks)
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
	for i, p := range pairs {
		rows, cols := p.want.Matrix()
		result := totals[i].sums.Result()
		compared := Tensor{Name: p.want.Name, Format: p.got.FormatName(), Rows: rows, Cols: cols, Result: result}
		if nearest := totals[i].near.Result(); nearest.Elements > 0 {
			compared.Nearest = nearest
		}
		r.Tensors = append(r.Tensors, compared)
		if p.got.Quantized() && p.dense() {
			blocks := totals[i].blocks
			blocks.Tensor = p.want.Name
			blocks.finish()
			r.Blocks = append(r.Blocks, blocks)
		}
		if result.NonFinite > 0 {
			r.fault(p.want.Name, "%d of its values are NaN or Inf, and finite in the source", result.NonFinite)
		}
		want, got := p.want.FormatName(), p.got.FormatName()
		switch {
		case totals[i].equal || mentioned(r.Problems, p.want.Name):
		case want != got:
			r.fault(p.want.Name, "its elements are %s, and %s in the source: they cannot be compared", got, want)
		default:
			r.fault(p.want.Name, "its %s elements differ from the source's", want)
		}
	}
	return nil
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
	if p.got.Quantized() {
		q, err := p.got.ReadDecoded(t)
		if err != nil {
			return compared{}, err
		}
		var c Comparer
		c.Tile(sums, want, q)
		done := compared{sums: sums, equal: true, blocks: blocksOf(t, want, q.Dequantize(1), q)}
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
	got, err := p.got.ReadTile(t)
	if err != nil {
		return compared{}, err
	}
	for i := range want.Rows {
		sums.Add(want.Row(i), got.Row(i))
	}
	return compared{sums: sums, equal: true}, nil
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
