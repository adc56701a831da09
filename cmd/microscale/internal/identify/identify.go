// Package identify finds which rule and library wrote the codes and scales of a quantized checkpoint.
package identify

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/microscale-go/microscale/checkpoint"
	"github.com/microscale-go/microscale/format"
	"github.com/microscale-go/microscale/profile"
	"github.com/microscale-go/microscale/quant"
	"github.com/microscale-go/microscale/safetensors"
)

// A Candidate is a writer, or a scale rule, with the blocks that contradict it.
type Candidate struct {
	Name    string
	Version string // of the library that the profile follows; "" if none
	Scales  int64  // blocks with other scales; without the source, with a largest code that it does not make
	Codes   int64  // blocks with the same scale and other codes
	Global  bool   // its global scale differs

	// Without the source:
	Rule     string   // of its scales, which it may share with others
	Marks    []string // that it does not leave in a file
	Unlikely float64  // logarithm of how many times less likely the codes are than under the best candidate
}

// title returns the name and the version.
func (c Candidate) title() string { return strings.TrimSpace(c.Name + " " + c.Version) }

// exact reports whether nothing contradicts the candidate.
func (c Candidate) exact() bool { return c.Scales == 0 && c.Codes == 0 && !c.Global }

// A Weight is what is known about the writer of one weight.
type Weight struct {
	Name, Format string
	Blocks       int64 // that were read
	Verdict      string
	Known        bool        // the verdict names writers or rules
	Candidates   []Candidate // the least contradicted first
}

// sampleBlocks is the number of blocks of a weight that are read: more do not change the verdict.
const sampleBlocks = 4096

// unknown is the verdict without an answer.
const unknown = "unknown"

// CheckQuantized returns an error if no weight of a checkpoint, which the error calls name, has codes and scales.
func CheckQuantized(m *checkpoint.Model, name string) error {
	switch {
	case m.Quantized() > 0:
		return nil
	case len(m.Problems) > 0:
		return fmt.Errorf("%s: %s", name, m.Problems[0])
	}
	return fmt.Errorf("%s: not quantized, or in a type without a block format (q4_k): there are no codes and scales to identify", name)
}

// Identify identifies the writer of every quantized weight. Those that are only decoded, or cannot be read, are
// unknown. source is the checkpoint before quantization; nil if there is none, which leaves the rule of scales.
func Identify(ctx context.Context, m, source *checkpoint.Model) (weights []Weight, err error) {
	amaxes, writers, searched := map[string]float32{}, map[string][]writer{}, searchedScales(m)
	for _, w := range m.Weights {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		if w.Decoded() {
			weights = append(weights, Weight{Name: w.Name, Format: w.FormatName(), Verdict: unknown + ": a type that is only decoded"})
		}
		if !w.Quantized() {
			continue
		}
		one := Weight{Name: w.Name, Format: w.Format.Name}
		if source == nil && searched != "" {
			one.Verdict = unknown + ": " + searched
		} else if source == nil {
			err = one.byStatistics(w, writers)
		} else if original, ok := source.Lookup(w.Name); !ok || !slices.Equal(original.Shape, w.Shape) || !original.Dense() {
			one.Verdict = unknown + ": the source has no such weight"
		} else {
			err = one.bySource(ctx, m, source, w, original, amaxes)
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", w.Name, err)
		}
		weights = append(weights, one)
	}
	named := map[string]bool{}
	for _, p := range m.Problems {
		if module := moduleOf(p.Tensor); !p.Harmless() && p.Tensor != "" && !named[module] {
			named[module] = true
			weights = append(weights, Weight{Name: module, Verdict: unknown + ": not read as a weight; microscale lint says why"})
		}
	}
	return weights, nil
}

// searchedScales returns what the metadata say about scales that no rule gives; "" if they say nothing.
func searchedScales(m *checkpoint.Model) string {
	switch {
	case m.Method() != "":
		return fmt.Sprintf("by its metadata, method %s chose scales and codes", m.Method())
	case m.ScaleSearch() == quant.LeastSquares.String():
		return fmt.Sprintf("by its metadata, a search chose the scales (%s)", m.ScaleSearch())
	}
	return ""
}

// moduleOf returns the module of a tensor that holds a weight or a part of one, such as X of X.weight_packed. Other names stay.
func moduleOf(tensor string) string {
	module, part, ok := cutLast(tensor, ".")
	if ok && (strings.HasPrefix(strings.TrimPrefix(part, "q"), "weight") || strings.HasPrefix(part, "scale") || part == "biases") {
		return module
	}
	if module, part, ok = cutLast(tensor, "_"); ok && (part == "blocks" || part == "scales") {
		return module
	}
	return tensor
}

// cutLast cuts a name at the last separator.
func cutLast(name, separator string) (before, after string, ok bool) {
	i := strings.LastIndex(name, separator)
	if i < 0 {
		return name, "", false
	}
	return name[:i], name[i+1:], true
}

// profiles returns the profiles of a format, with their variants.
func profiles(f quant.Format) (all []profile.Profile) {
	known := profile.All()
	for _, name := range []string{"torchao-rceil", "mlx-0.31"} {
		if p, err := profile.Lookup(name); err == nil {
			known = append(known, p)
		}
	}
	for _, p := range known {
		if _, err := p.Quantizer(f); err == nil {
			all = append(all, p)
		}
	}
	return all
}

// bySource quantizes the first blocks of the original by each profile, and counts those that differ from the file's.
func (one *Weight) bySource(ctx context.Context, m, source *checkpoint.Model, w, original *checkpoint.Weight,
	amaxes map[string]float32) error {
	scopes, err := scopesOf(ctx, m, source, w, amaxes)
	if err != nil {
		return err
	}
	for _, p := range profiles(w.Format) {
		q, err := p.Quantizer(w.Format)
		if err != nil {
			return err
		}
		best := Candidate{Scales: math.MaxInt64}
		for _, amax := range scopes {
			c := Candidate{Name: p.Name, Version: p.Version}
			if one.Blocks, err = c.compare(q, w, original, amax); err != nil {
				return err
			}
			if c.contradicted() < best.contradicted() {
				best = c
			}
		}
		one.Candidates = append(one.Candidates, best)
	}
	slices.SortStableFunc(one.Candidates, func(a, b Candidate) int { return int(min(max(a.contradicted()-b.contradicted(), -1), 1)) })
	one.decide()
	return nil
}

// contradicted returns the blocks that contradict a candidate, scales first.
func (c Candidate) contradicted() int64 {
	if c.Scales == math.MaxInt64 {
		return c.Scales
	}
	n := 2*c.Scales + c.Codes
	if c.Global {
		n++
	}
	return n
}

// scopesOf returns the amaxes from which the global scale may follow: that of the weight, and that of the weights that are fused with it.
func scopesOf(ctx context.Context, m, source *checkpoint.Model, w *checkpoint.Weight, amaxes map[string]float32) ([]float32, error) {
	if !w.Format.NeedsAmax() {
		return []float32{0}, nil
	}
	matrix, parts := m.Family().FusedWith(w.Name)
	own, err := amaxOf(ctx, source, w.Name, amaxes)
	if err != nil || len(parts) == 0 {
		return []float32{own}, err
	}
	shared := own
	for _, other := range source.Weights {
		if of, _ := m.Family().Joined(other.Name); of == matrix && other.Dense() {
			amax, err := amaxOf(ctx, source, other.Name, amaxes)
			if err != nil {
				return nil, err
			}
			shared = max(shared, amax)
		}
	}
	return slices.Compact([]float32{own, shared}), nil
}

// amaxOf returns the amax of a weight of the source, which it reads once.
func amaxOf(ctx context.Context, source *checkpoint.Model, name string, known map[string]float32) (amax float32, err error) {
	if amax, ok := known[name]; ok {
		return amax, nil
	}
	w, ok := source.Lookup(name)
	if !ok {
		return 0, nil
	}
	for t := range w.Tiling().Tiles(0) {
		if err := ctx.Err(); err != nil {
			return 0, err
		}
		x, err := w.ReadTile(t)
		if err != nil {
			return 0, err
		}
		amax = max(amax, quant.Amax(x, 1))
	}
	known[name] = amax
	return amax, nil
}

// compare counts the blocks of a weight that differ from those of a quantizer, and returns how many it read.
func (c *Candidate) compare(q quant.Quantizer, w, original *checkpoint.Weight, amax float32) (blocks int64, err error) {
	for t := range original.Tiling(w.Format).Tiles(0) {
		if blocks >= sampleBlocks {
			break
		}
		with := quant.With{FirstRow: t.From}
		if w.Format.NeedsAmax() {
			with.Amax = &amax
		}
		want, err := quantized(q, original, t, with)
		if err != nil {
			return 0, err
		}
		got, err := w.ReadCodes(t)
		if err != nil {
			return 0, err
		}
		if part, ok := w.Part(checkpoint.Scales); ok && part.Dtype == safetensors.BF16 && want.Scales32 != nil {
			for i, s := range want.Scales32 {
				want.Scales32[i] = format.BF16.Decode(format.BF16.Encode(s))
			}
		}
		c.Global = c.Global || w.Format.Global && !nearly(want.Global, got.Global)
		blocks += c.count(want, got)
	}
	return blocks, nil
}

// quantized quantizes a tile, in the dtype of the source, which some libraries compute in.
func quantized(q quant.Quantizer, original *checkpoint.Weight, t checkpoint.Tile, with quant.With) (*quant.Tensor, error) {
	if x, ok, err := original.ReadBF16(t, nil); ok || err != nil {
		if err != nil {
			return nil, err
		}
		return q.RowwiseBF16(x, with)
	}
	x, err := original.ReadTile(t)
	if err != nil {
		return nil, err
	}
	return q.Rowwise(x, with)
}

// nearly reports whether two global scales are as near as the rounding of an inverse leaves them.
func nearly(a, b float32) bool { return math.Abs(float64(a-b)) <= 2.4e-7*math.Abs(float64(a)) }

// count counts the blocks that differ.
func (c *Candidate) count(want, got *quant.Tensor) (blocks int64) {
	f := want.Format
	rows, cols := want.ScaleShape()
	high, wide := cmp.Or(f.Block.Rows, want.Rows()), cmp.Or(f.Block.Cols, want.Cols())
	width := want.RowBytes()
	bytes := func(n int) int { return n * f.Element.StoredBits() / 8 }
	for i := range rows {
		for j := range cols {
			blocks++
			at := i*cols + j
			if want.Scales32 != nil && math.Float32bits(want.Scales32[at]) != math.Float32bits(got.Scales32[at]) ||
				want.Scales32 == nil && want.Scales[at] != got.Scales[at] {
				c.Scales++
				continue
			}
			for row := i * high; row < min((i+1)*high, want.Rows()); row++ {
				from, to := row*width+bytes(j*wide), min(row*width+bytes((j+1)*wide), (row+1)*width)
				if string(want.Codes[from:to]) != string(got.Codes[from:to]) {
					c.Codes++
					break
				}
			}
		}
	}
	return blocks
}

// decide states the verdict of candidates: the writers that nothing contradicts, or a rule of scales with other codes.
func (one *Weight) decide() {
	var exact, scales []string
	for _, c := range one.Candidates {
		switch {
		case c.exact():
			exact = append(exact, c.title())
		case c.Scales == 0 && !c.Global:
			scales = append(scales, c.title())
		}
	}
	switch {
	case len(exact) > 0:
		one.Verdict, one.Known = strings.Join(exact, " or "), true
	case len(scales) > 0:
		one.Verdict = unknown + ": scales of " + strings.Join(scales, " or ") + ", codes of another method"
	default:
		one.Verdict = unknown + ": every profile contradicts some scales"
	}
}
