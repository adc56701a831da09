package verify

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"math"

	"github.com/microscale-go/microscale/checkpoint"
	"github.com/microscale-go/microscale/measure"
	"github.com/microscale-go/microscale/quant"
	"github.com/microscale-go/microscale/safetensors"
	"github.com/microscale-go/microscale/tensor"
)

// A pair is a weight of the source and its counterpart.
type pair struct {
	want, got  *checkpoint.Weight
	calibrated bool // a method chose the codes of got that moves errors between elements
	trained    bool // as a norm, after quantization
}

// dense reports whether values are compared, rather than bytes.
func (p pair) dense() bool { return p.want.Dense() && p.got.Dense() }

// integers reports whether got is quantized in a type of ggml, and want is not.
func (p pair) integers() bool {
	return p.got.Decoded() && p.dense() && p.got.FormatName() != p.want.FormatName()
}

// check returns how the pair is compared.
func (p pair) check() Check {
	switch {
	case p.trained:
		return Unbounded
	case p.got.Quantized() && p.dense() && p.calibrated:
		return Calibrated
	case p.got.Quantized() && p.dense():
		return Bounded
	case p.integers():
		if _, _, ok := p.got.Blocks(); !ok {
			return Unbounded
		}
		return DecodedOnly
	case p.want.Quantized(), p.dense() && (p.want.Dtype != p.got.Dtype || p.want.Rearranged() || p.got.Rearranged()):
		return Rounded
	}
	return Identical
}

// tiling returns the tiles of the comparison.
func (p pair) tiling() checkpoint.Tiling {
	if p.dense() {
		return p.want.Tiling(p.want.Format, p.got.Format)
	}
	return p.want.Flat()
}

// compared is the result for a tile, or the sum over tiles.
type compared struct {
	sums    *measure.Accumulator // nil if bytes are compared
	near    *measure.Accumulator // of Tensor.Nearest; nil if not measured
	equal   bool                 // the bytes are equal
	differ  int64                // wrong elements of an unquantized weight
	element deviation            // the first of them
	blocks  Blocks               // of a quantized weight
	unbound int64                // elements without a bound, of a weight whose others have one
	recoded int64                // elements of a quantized weight that differ from those of a quantized source
}

// compare measures the pairs, tile by tile on all threads.
func (r *Report) compare(ctx context.Context, pairs []pair, o Options, progress *progress) error {
	near, err := quantizers(pairs, o.Nearest)
	if err != nil {
		return err
	}
	totals := make([]compared, len(pairs))
	for i := range totals {
		totals[i] = compared{sums: measure.New(checkpoint.BlockLength), near: measure.New(checkpoint.BlockLength), equal: true}
	}
	job := checkpoint.Job[compared]{
		Weights: len(pairs),
		Tiling:  func(i int) checkpoint.Tiling { return pairs[i].tiling() },
		Work:    func(t checkpoint.Tile) (compared, error) { return pairs[t.Weight].tile(t, near) },
		Done: func(t checkpoint.Tile, c compared) {
			totals[t.Weight].merge(c)
			p := pairs[t.Weight]
			progress.add("comparing", p.tiling().Share(t, p.want.StoredBytes()))
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
	r.noteCast()
	var unchecked, unbound, whole int64
	for _, b := range r.Blocks {
		unchecked += b.Unchecked
	}
	for i := range totals {
		unbound += totals[i].unbound
		if r.Checks[i] == Unbounded {
			whole += r.Tensors[i].Result.Elements
		}
	}
	if whole > 0 {
		r.NotCompared = append(r.NotCompared, fmt.Sprintf("elements without a bound, of types that have none and of norms that were trained "+
			"(%d weights, %d elements): only their SQNR is", r.Checked(Unbounded), whole))
	}
	if unbound > 0 {
		r.NotCompared = append(r.NotCompared, fmt.Sprintf("elements of blocks with NaN or Inf in the source (%d): they have no bound", unbound))
	}
	if unchecked > 0 {
		r.NotCompared = append(r.NotCompared,
			fmt.Sprintf("elements of blocks with NaN or Inf in the source, or with a scale that is zero or subnormal (%d): they have no bound",
				unchecked))
	}
	return nil
}

// merge adds the result of a later tile.
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
	c.unbound += d.unbound
	c.recoded += d.recoded
	c.blocks.merge(d.blocks)
}

// unboundedSQNR is the least SQNR in dB of a weight whose type has no bound of an element. Zeros and twice the values have 0 dB, values
// unrelated to the source less; one bit per normally distributed value already has 4.4 dB.
const unboundedSQNR = 3

// add reports a compared pair and its faults.
func (r *Report) add(p pair, c *compared, minSQNR float64) {
	rows, cols := p.want.Matrix()
	result := c.sums.Result()
	// not a copy: other bytes, or zeros of another sign
	if (!c.equal || c.differ > 0 && p.check() == Identical) && math.IsInf(result.SQNR, 1) {
		result.SQNR, result.MeanBlockSQNR, result.Cosine, result.Bias = math.NaN(), math.NaN(), math.NaN(), math.NaN()
	}
	t := Tensor{Name: p.want.Name, Format: p.got.FormatName(), Rows: rows, Cols: cols, Result: result}
	check := p.check()
	if p.got.Quantized() && p.want.Quantized() && c.recoded == 0 { // whatever rule made the scales
		check = Equal
		c.blocks.Beyond, c.blocks.BadScales = 0, 0
	}
	if nearest := c.near.Result(); nearest.Elements > 0 {
		t.Nearest = nearest
	}
	r.Tensors, r.Checks = append(r.Tensors, t), append(r.Checks, check)
	if result.NonFinite > 0 {
		r.fault(t.Name, "%d of its values are NaN or Inf but finite in the source", result.NonFinite)
	}
	if check == Bounded || check == Equal || check == Calibrated {
		if check == Calibrated {
			c.blocks.Beyond = 0
		}
		c.blocks.Tensor = t.Name
		c.blocks.finish()
		r.Blocks = append(r.Blocks, c.blocks)
		for _, fault := range c.blocks.faults(p.got.Format) {
			r.fault(t.Name, "%s", fault)
		}
		if minSQNR > 0 && !(result.SQNR >= minSQNR) {
			r.fault(t.Name, "its SQNR is %.2f dB, below the minimum of %g dB", result.SQNR, minSQNR)
		}
		return
	}
	if least := max(minSQNR, unboundedSQNR); check == Unbounded && result.SQNR < least {
		r.fault(t.Name, "its SQNR is %.2f dB, below the minimum of %g dB: these are not the values of the source, or too coarse for them; "+
			"convert it again", result.SQNR, least)
	}
	want, got := p.want.FormatName(), p.got.FormatName()
	switch d := c.element; {
	case !c.equal && mentioned(r.Problems, t.Name):
	case !c.equal && want != got:
		r.fault(t.Name, "its elements are %s, those of the source %s: they cannot be compared", got, want)
	case !c.equal:
		r.fault(t.Name, "its %s elements differ from the source's", want)
	case c.differ <= result.NonFinite:
	case check == Identical:
		r.fault(
			t.Name,
			"%d of its %s elements differ from the source; the first, at row %d, column %d, is %g in the source and %g here",
			c.differ,
			got,
			d.row,
			d.col,
			d.want,
			d.got,
		)
	case check == DecodedOnly:
		r.fault(
			t.Name,
			"%d of its elements are further from the source than a block of %s allows; the first, at row %d, column %d, is %g in the source and "+
				"%g here",
			c.differ,
			got,
			d.row,
			d.col,
			d.want,
			d.got,
		)
	default:
		r.fault(t.Name, "%d of its %s elements are not the source's values rounded to %s; the first, at row %d, column %d, is %g, want %g",
			c.differ, got, got, d.row, d.col, d.got, d.want)
	}
}

// tile compares a tile: values if both weights have values, else bytes.
func (p pair) tile(t checkpoint.Tile, near map[string]quant.Quantizer) (compared, error) {
	if !p.dense() {
		return p.bytes(t)
	}
	want, err := p.want.ReadTile(t)
	if err != nil {
		return compared{}, err
	}
	sums := measure.New(checkpoint.BlockLength)
	if !p.got.Quantized() {
		got, err := p.got.ReadTile(t)
		if err != nil {
			return compared{}, err
		}
		for i := range want.Rows {
			sums.Add(want.Row(i), got.Row(i))
		}
		done := compared{sums: sums, equal: true}
		if p.trained {
			return done, nil
		}
		if p.integers() {
			done.integers(t, want, got, p.got)
			return done, nil
		}
		return done, done.copied(t, want, got, p.got.Dtype)
	}
	q, err := p.got.ReadDecoded(t)
	if err != nil {
		return compared{}, err
	}
	var c checkpoint.Comparer
	c.Tile(sums, want, q)
	done := compared{sums: sums, equal: true, blocks: blocksOf(t, p.got.Format, p.got.Global, want, q)}
	if p.want.Quantized() {
		done.recoded = recoded(want, q.Dequantize(1))
	}
	if rule, ok := near[p.got.Format.Name]; ok {
		plain, err := nearestOf(rule, want, p.got)
		if err != nil {
			return compared{}, err
		}
		done.near = measure.New(checkpoint.BlockLength)
		c.Tile(done.near, want, plain)
	}
	return done, nil
}

// recoded counts the elements that differ. NaN are equal.
func recoded(want, got tensor.Dense) (n int64) {
	for i := range want.Rows {
		y := got.Row(i)
		for j, x := range want.Row(i) {
			if math.Float32bits(x) != math.Float32bits(y[j]) && (x == x || y[j] == y[j]) {
				n++
			}
		}
	}
	return n
}

// noteCast adds a note if scales are out of range where every element is within the bound: casts keep the scales of
// another format.
func (r *Report) noteCast() {
	n, first := 0, ""
	for _, b := range r.Blocks {
		if b.Beyond > 0 {
			return
		}
		if b.BadScales > 0 {
			n, first = n+1, cmp.Or(first, b.Tensor)
		}
	}
	if n > 0 {
		r.Notes = append(r.Notes, fmt.Sprintf("%d weights, the first %s, have scales out of range where all elements are in theirs, as a "+
			"cast from another block format leaves them: if it was cast, compare it with the checkpoint that it was cast from", n, first))
	}
}

// copied counts the elements of a tile that differ from the source's, rounded to dtype. It
// modifies want.
func (c *compared) copied(t checkpoint.Tile, want, got tensor.Dense, dtype safetensors.Dtype) error {
	stored, _ := dtype.Dense()
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

// bytes compares the bytes of a tile.
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
