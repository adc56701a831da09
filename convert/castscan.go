package convert

import (
	"context"
	"fmt"
	"math"
	"slices"

	"github.com/microscale-go/microscale/checkpoint"
	"github.com/microscale-go/microscale/convert/internal/lossless"
	"github.com/microscale-go/microscale/quant"
	"github.com/microscale-go/microscale/verify"
)

// A castScan finds global scales and the blocks without an exact cast, by reading codes and scales.
type castScan struct {
	*Plan
	progress verify.Progress
}

// findExact chooses global scales, and fills Casts. Weights that share a global scale are read together, so that
// memory does not grow with the checkpoint.
func (p *Plan) findExact(ctx context.Context) error {
	s := castScan{Plan: p}
	sets, order := map[string][]int{}, []string{}
	for i, d := range p.decisions {
		if d.cast == nil {
			continue
		}
		set := d.Name
		if p.convention.ReadsGlobal(d.cast.To) {
			set, _ = p.source.Family().Joined(d.Name)
		}
		if sets[set] == nil {
			order = append(order, set)
		}
		sets[set] = append(sets[set], i)
		if !d.cast.Always {
			s.progress.Total += d.StoredBytes()
		}
	}
	for _, set := range order {
		if err := s.set(ctx, sets[set]); err != nil {
			return err
		}
	}
	for _, d := range p.decisions {
		if d.cast != nil {
			p.Casts = append(p.Casts, d.cast.found)
		}
	}
	return nil
}

// set finds the global scale and the inexact blocks of weights that share a global scale.
func (s *castScan) set(ctx context.Context, members []int) error {
	c, f := s.convention, s.casting.Format
	if !f.ByteScales() {
		return s.list(ctx, members)
	}
	number, inexact := c.GlobalNumber(f, 1), int64(1) // if it is not counted, there may be some
	if f.Global {
		histograms, err := s.histograms(ctx, members)
		if err != nil {
			return err
		}
		if number, inexact, err = s.chooseGlobal(members, histograms); err != nil {
			return err
		}
	}
	levels, err := c.Levels(f, number)
	if err != nil {
		return err
	}
	input := s.sharedInput(members)
	for _, i := range members {
		d := &s.decisions[i]
		if d.cast.levels = levels; !f.Global {
			continue
		}
		given := d.cast.input
		if own, ok := d.InputScale(); given == nil && ok && own != input {
			given = &input
		}
		for k, s := range d.Cast(c, f, number, given)[:len(d.stored)] { // their names may be those of a GGUF file
			d.stored[k].Value = s.Value
		}
	}
	if inexact == 0 {
		return nil
	}
	return s.list(ctx, members)
}

// sharedInput returns the largest scale of activations of weights that are fused: all have the same activations.
func (s *castScan) sharedInput(members []int) (largest float32) {
	for _, i := range members {
		if scale, ok := s.decisions[i].InputScale(); ok {
			largest = max(largest, scale)
		}
	}
	return largest
}

// histograms counts the blocks of each weight.
func (s *castScan) histograms(ctx context.Context, members []int) ([]lossless.Histogram, error) {
	all := make([]lossless.Histogram, len(members))
	for i := range all {
		all[i] = lossless.NewHistogram()
	}
	return all, scan(ctx, s, members, func(d decision, t checkpoint.Tile) (lossless.Histogram, error) {
		src, err := d.cast.source(d.Weight, t)
		h := lossless.NewHistogram()
		if err == nil {
			h.Add(d.cast.Cast, src)
		}
		return h, err
	}, func(i int, h lossless.Histogram) { all[i].Merge(h) })
}

// scan runs work on the tiles of weights, and done in their order with the index of the member.
func scan[R any](ctx context.Context, s *castScan, members []int, work func(decision, checkpoint.Tile) (R, error),
	done func(int, R)) error {
	tiling := func(i int) checkpoint.Tiling {
		d := s.decisions[members[i]]
		return d.Tiling(d.Format, d.cast.To)
	}
	job := checkpoint.Job[R]{
		Weights: len(members),
		Tiling:  tiling,
		Work:    func(t checkpoint.Tile) (R, error) { return work(s.decisions[members[t.Weight]], t) },
		Done: func(t checkpoint.Tile, r R) {
			done(t.Weight, r)
			if s.casting.Progress != nil {
				s.progress.Done += tiling(t.Weight).Share(t, s.decisions[members[t.Weight]].StoredBytes())
				s.casting.Progress(s.progress)
			}
		},
		Threads: s.casting.Threads,
	}
	return job.Run(ctx)
}

// octaves is the number of powers of two up and down that are tried for a global scale: the binades of E4M3.
const octaves = 18

// chooseGlobal returns the number that the convention stores for the global scale with the fewest inexact blocks, and how many
// these are. The first of equals is the largest one of the source, or the one that makes the largest scale of MXFP4 the largest
// power of two of E4M3.
func (s *castScan) chooseGlobal(members []int, histograms []lossless.Histogram) (best float32, fewest int64, err error) {
	c, f := s.convention, s.casting.Format
	fewest = math.MaxInt64
	for _, number := range s.globals(members, histograms) {
		levels, err := c.Levels(f, number)
		if err != nil {
			return 0, 0, err
		}
		inexact := int64(0)
		casters := map[string]*lossless.Caster{}
		for i, h := range histograms {
			row := s.decisions[members[i]].cast.Cast
			caster := casters[row.From.Name]
			if caster == nil {
				caster = lossless.New(row, func(code byte) float32 { return levels[code] })
				casters[row.From.Name] = caster
			}
			if inexact += h.Inexact(caster); inexact >= fewest {
				break
			}
		}
		if inexact < fewest {
			fewest, best = inexact, number
		}
		if fewest == 0 {
			break
		}
	}
	return best, fewest, nil
}

// globals returns the numbers of the global scales to try, the preferred first.
func (s *castScan) globals(members []int, histograms []lossless.Histogram) (numbers []float32) {
	c, f := s.convention, s.casting.Format
	if !c.ReadsGlobal(f) || slices.ContainsFunc(members, func(i int) bool { return s.decisions[i].cast.unscaled }) {
		return []float32{c.GlobalNumber(f, 1)}
	}
	var own []float32 // of the source
	top := float32(0)
	for i, m := range members {
		if d := s.decisions[m]; d.Format.Global && d.Global > 0 {
			own = append(own, d.GlobalIn(c, f))
		} else if !d.Format.Global {
			top = max(top, histograms[i].Top())
		}
	}
	if own == nil {
		if top == 0 {
			return []float32{c.GlobalNumber(f, 1)}
		}
		const limit = 126 // of exponents whose inverse is a normal number, too
		exponent := math.Ilogb(float64(top)) - f.Scale.MaxExponent()
		own = []float32{c.GlobalNumber(f, float32(math.Ldexp(1, min(max(exponent, -limit), limit))))}
	}
	slices.Sort(own)
	if c.GlobalNumber(f, 2) > c.GlobalNumber(f, 1) { // the largest scale first
		slices.Reverse(own)
	}
	for octave := range octaves + 1 {
		for _, sign := range []int{1, -1} {
			for _, number := range slices.Compact(slices.Clone(own)) {
				scaled := float32(math.Ldexp(float64(number), sign*octave))
				if inverse := 1 / scaled; scaled > 0 && inverse > 0 && !math.IsInf(float64(scaled), 0) && !math.IsInf(float64(inverse), 0) {
					numbers = append(numbers, scaled)
				}
			}
		}
	}
	return numbers
}

// list finds the inexact blocks of weights.
func (s *castScan) list(ctx context.Context, members []int) error {
	members = slices.DeleteFunc(slices.Clone(members), func(i int) bool { return s.decisions[i].cast.Always })
	return scan(ctx, s, members, func(d decision, t checkpoint.Tile) ([]lossless.Block, error) {
		_, inexact, err := d.cast.blocks(d.Weight, t, false)
		wide := d.cast.To.Block.Cols
		for i := range inexact {
			inexact[i].Row += t.From
			if wide > 0 {
				inexact[i].Col += t.FromCol / wide
			}
		}
		return inexact, err
	}, func(i int, inexact []lossless.Block) {
		found := &s.decisions[members[i]].cast.found
		found.Inexact += int64(len(inexact))
		for _, b := range inexact {
			found.Reasons[b.Why.String()]++
			if len(found.First) < listedBlocks {
				found.First = append(found.First, InexactBlock{b.Row, b.Col, b.Why.String()})
			}
		}
	})
}

// source reads a tile with the decode scales that clients of the source compute. If both formats have a global scale, they are
// those of clients of the result, so that a global scale that is kept keeps all scales, as in another convention without a cast.
func (c *cast) source(w *checkpoint.Weight, t checkpoint.Tile) (*quant.Tensor, error) {
	if c.From.Global && c.To.Global {
		return w.ReadFor(c.convention, c.To, t)
	}
	q, err := w.ReadCodes(t)
	if err != nil || !w.Divided() {
		return q, err
	}
	return w.ReadDecoded(t)
}

// blocks casts a tile.
func (c *cast) blocks(w *checkpoint.Weight, t checkpoint.Tile, requantize bool) (*quant.Tensor, []lossless.Block, error) {
	src, err := c.source(w, t)
	if err != nil {
		return nil, nil, err
	}
	dst, err := quant.NewTensor(c.To, src.Rows(), src.Cols())
	if err != nil {
		return nil, nil, err
	}
	inexact, err := lossless.New(c.Cast, func(code byte) float32 { return c.levels[code] }).Tile(dst, src, requantize)
	return dst, inexact, err
}

// tile casts a tile for the result.
func (c *cast) tile(w *checkpoint.Weight, t checkpoint.Tile, requantize bool) (*quant.Tensor, error) {
	dst, inexact, err := c.blocks(w, t, requantize)
	if err == nil && len(inexact) > 0 && !requantize {
		err = because(ErrChanged, fmt.Errorf("%s: a block that had an exact cast has none: the source changed", w.Name))
	}
	return dst, err
}
