package identify

import (
	"cmp"
	"math"
	"slices"
	"strings"

	"github.com/microscale-go/microscale/checkpoint"
	"github.com/microscale-go/microscale/format"
	"github.com/microscale-go/microscale/quant"
)

// A rule is how amax becomes a scale, and which codes the amax of a block can then have.
type rule struct {
	name  string
	holds func(f quant.Format) bool
	// low is the smallest quotient of amax and scale, in multiples of the largest power of two of the elements; the
	// largest is below twice that.
	low func(e *format.Scalar) float64
}

// rules are those of E8M0 scales, with the writers that use them.
var rules = []rule{
	{"smallest scale without saturation (te, modelopt, mlx)", always, func(e *format.Scalar) float64 { return topRatio(e) / 2 }},
	{"nearest (mlx before 0.32)", always, func(e *format.Scalar) float64 { return topRatio(e) / math.Sqrt2 }},
	{"floor (ocp, torchao, ggml, microxcaling)", always, func(*format.Scalar) float64 { return 1 }},
	{"even (compressed-tensors, quark)", fp4, func(e *format.Scalar) float64 { return evenLow(e.Mantissa) }},
	{"even at FP4's mantissa (compressed-tensors)", not4, func(*format.Scalar) float64 { return evenLow(format.E2M1.Mantissa) }},
	{"even (quark)", not4, func(e *format.Scalar) float64 { return evenLow(e.Mantissa) }},
}

func always(quant.Format) bool { return true }
func fp4(f quant.Format) bool  { return f.Element == format.E2M1 }
func not4(f quant.Format) bool { return !fp4(f) }

// topRatio returns the largest element as a multiple of the largest power of two.
func topRatio(e *format.Scalar) float64 { return float64(e.Max()) / math.Ldexp(1, e.MaxExponent()) }

// evenLow returns the quotient from which a mantissa of some bits rounds to the next power of two, halved.
func evenLow(mantissa int) float64 { return 1 - math.Ldexp(1, -mantissa-2) }

// least is the number of blocks from which the largest codes tell the rule.
const least = 64

// allowed is the share of blocks that may contradict a rule: those whose scales reach a limit.
const allowed = 0.002

// byStatistics finds the rule of scales from the largest code of each block.
func (one *Weight) byStatistics(w *checkpoint.Weight) error {
	f := w.Format
	counts := map[float32]int64{} // blocks by largest magnitude of their codes
	exponents := map[byte]int64{} // blocks by scale
	for t := range w.Tiling(f).Tiles(0) {
		if one.Blocks >= sampleBlocks {
			break
		}
		q, err := w.ReadCodes(t)
		if err != nil {
			return err
		}
		one.Blocks += largest(counts, q)
		for _, scale := range q.Scales {
			exponents[scale]++
		}
	}
	n := int64(0)
	for m, blocks := range counts {
		if m > 0 {
			n += blocks
		}
	}
	switch {
	case n < least:
		one.Verdict = unknown + ": too few blocks with values"
	case f.Scale == format.E8M0 && !f.Element.Integer:
		one.ruleOf(f, counts, n, spread(exponents, one.Blocks))
	case f.Element.Integer:
		one.Verdict = unknown + ": integers show no rule without the source"
	case float64(counts[f.Element.Max()]) >= (1-allowed)*float64(n):
		one.Verdict, one.Known = "amax: the largest element of every block has the largest code", true
	default:
		one.Verdict = unknown + ": scales that do not follow from the amax (a search, four over six, or a cast)"
	}
	return nil
}

// largest counts the blocks of a tensor by the largest magnitude of their codes.
func largest(counts map[float32]int64, q *quant.Tensor) (blocks int64) {
	f := q.Format
	rows, cols := q.ScaleShape()
	width := f.PaddedCols(q.Cols())
	codes := q.Codes
	if f.Element.StoredBits() < 8 {
		codes = make([]byte, q.Rows()*width)
		f.Element.Split(codes, q.Codes)
	}
	high, wide := cmp.Or(f.Block.Rows, q.Rows()), cmp.Or(f.Block.Cols, width)
	for i := range rows {
		for j := range cols {
			top := float32(0)
			for row := i * high; row < min((i+1)*high, q.Rows()); row++ {
				for _, code := range codes[row*width+j*wide : min(row*width+(j+1)*wide, (row+1)*width)] {
					if v := float32(math.Abs(float64(f.Element.Decode(uint32(code))))); v > top {
						top = v
					}
				}
			}
			counts[top]++
			blocks++
		}
	}
	return blocks
}

// spread reports whether the scales have so many exponents that the logarithms of amaxes are about uniform between powers of two.
func spread(exponents map[byte]int64, blocks int64) bool {
	const wanted, share = 5, 0.05
	n := 0
	for _, count := range exponents {
		if float64(count) >= share*float64(blocks) {
			n++
		}
	}
	return n >= wanted
}

// ruleOf decides between the rules of E8M0 scales under which every largest code can occur: where amaxes spread, by the shares of these
// codes.
func (one *Weight) ruleOf(f quant.Format, counts map[float32]int64, n int64, spread bool) {
	var names []string
	bestFit := math.Inf(-1)
	fits := map[string]float64{}
	for _, r := range rules {
		if !r.holds(f) {
			continue
		}
		shares := r.shares(f.Element)
		c := Candidate{Name: r.name}
		fit := 0.0
		for m, blocks := range counts {
			if m == 0 {
				continue
			}
			if shares[m] == 0 {
				c.Scales += blocks
			}
			fit += float64(blocks) * math.Log(max(shares[m], rare))
		}
		if one.Candidates = append(one.Candidates, c); float64(c.Scales) <= allowed*float64(n) {
			fits[r.name], bestFit = fit, max(bestFit, fit)
		}
	}
	for _, c := range one.Candidates {
		if fit, ok := fits[c.Name]; ok && (!spread || fit >= bestFit-decisive) {
			names = append(names, c.Name)
		}
	}
	slices.SortStableFunc(one.Candidates, func(a, b Candidate) int { return int(min(max(a.Scales-b.Scales, -1), 1)) })
	switch {
	case len(names) == 0:
		one.Verdict = unknown + ": no rule has such largest codes (a search, clipping, GPTQ or a cast)"
	case len(names) == 1:
		one.Verdict, one.Known = names[0], true
	default:
		one.Verdict = unknown + ": " + strings.Join(names, ", or ")
	}
}

// rare is the share of a code that a rule excludes, and decisive the logarithm of the ratio of likelihoods from which one rule is
// named alone.
const (
	rare     = 1e-4
	decisive = 5
)

// shares returns the share of the blocks with each largest magnitude of codes, for amaxes whose logarithms are uniform.
func (r rule) shares(e *format.Scalar) map[float32]float64 {
	const steps = 1 << 12
	shares := map[float32]float64{}
	low := r.low(e) * math.Ldexp(1, e.MaxExponent())
	for i := range steps {
		quotient := low * math.Exp2((float64(i)+0.5)/steps)
		shares[e.Decode(e.Encode(float32(quotient)))] += 1.0 / steps
	}
	return shares
}
