package identify

import "math"

// The likelihood of the codes of blocks under a rule of E8M0 scales. The amax of a block lies in [low, 2·low) of its scale, and low differs
// by rule. How likely each code is depends on the distribution of the values, which is not known: elements of a block are taken as
// independent, of one of the shapes, times a width for each block, whose distribution is whatever makes the codes most likely (by
// expectation maximization). The likelihood of a rule is that of its best shape.

// Widths are multiples of the largest power of two of the elements, as logarithms in steps of 1/perOctave.
const (
	perOctave = 8
	narrowest = -8 * perOctave
	widths    = 10*perOctave + 1
)

// rounds is the number of steps of expectation maximization: more change no decision.
const rounds = 20

// shapes are the probabilities that a magnitude of width 1 is above x: of Student's t with heavy tails, of the Laplace and the normal
// distribution, and of columns of which a few are wider.
var shapes = []func(x float64) float64{
	above(func(x float64) float64 { return math.Pow(1+x*x/1.5, -1.25) }),
	above(func(x float64) float64 { return math.Pow(1+x*x/3, -2) }),
	above(func(x float64) float64 { return math.Pow(1+x*x/6, -3.5) }),
	func(x float64) float64 { return math.Exp(-x) },
	normal,
	func(x float64) float64 { return 31./32*normal(x) + 1./32*normal(x/6) },
	func(x float64) float64 { return 63./64*normal(x) + 1./64*normal(x/14) },
}

func normal(x float64) float64 { return math.Erfc(x / math.Sqrt2) }

// above integrates a density, which need not be normalized, over the logarithm of x.
func above(density func(x float64) float64) func(x float64) float64 {
	const steps, from, to = 4000, -14.0, 14.0
	const step = (to - from) / steps
	sums := make([]float64, steps+1)
	for i := steps - 1; i >= 0; i-- {
		x := math.Exp(from + (float64(i)+0.5)*step)
		sums[i] = sums[i+1] + x*density(x)*step
	}
	return func(x float64) float64 {
		at := (math.Log(x) - from) / step
		switch {
		case !(at > 0):
			return 1
		case at >= steps:
			return 0
		}
		i := int(at)
		return (sums[i] + (at-float64(i))*(sums[i+1]-sums[i])) / sums[0]
	}
}

// impossible is a probability that counts as zero, and rare that of a block whose largest code the rule excludes.
const (
	impossible = 1e-300
	rare       = 1e-9
)

// likelihoods returns the logarithm of the likelihood of the blocks for each rule, by its smallest quotient. A block whose largest code the
// rule excludes counts as rare.
func (c *census) likelihoods(blocks []codes, lows []float64) []float64 {
	e := c.f.Element
	unit := math.Ldexp(1, -e.MaxExponent())
	edges := make([]float64, magnitudes(e)+1) // of the values of each magnitude
	for n := range edges[1:] {
		_, to := c.edges(n)
		edges[n+1] = to * unit
	}
	best := make([]float64, len(lows))
	for i := range best {
		best[i] = math.Inf(-1)
	}
	for _, shape := range shapes {
		body := bodies(blocks, edges, shape)
		for i, low := range lows {
			best[i] = max(best[i], mixed(blocks, body, tops(blocks, edges, low, shape)))
		}
	}
	return best
}

// width returns the width of a number.
func width(i int) float64 { return math.Exp2(float64(narrowest+i) / perOctave) }

// bodies returns, by block and width, the logarithm of the probability of the elements below the largest magnitude.
func bodies(blocks []codes, edges []float64, shape func(float64) float64) [][]float64 {
	table := make([][]float64, len(edges)-1)
	for n := range table {
		table[n] = make([]float64, widths)
	}
	for i := range widths {
		beyond := shape(edges[0] / width(i))
		for n := range table {
			next := shape(edges[n+1] / width(i))
			table[n][i] = math.Log(max(beyond-next, impossible))
			beyond = next
		}
	}
	all := make([][]float64, len(blocks))
	for b, one := range blocks {
		sum := make([]float64, widths)
		for n, count := range one.elements[:one.top] {
			if count == 0 {
				continue
			}
			for i, p := range table[n] {
				sum[i] += float64(count) * p
			}
		}
		all[b] = sum
	}
	return all
}

// tops returns, by block and width, the logarithm of the probability that the elements of the largest magnitude have it, and that the
// largest of them is at least low.
func tops(blocks []codes, edges []float64, low float64, shape func(float64) float64) [][]float64 {
	known := map[[2]int][]float64{}
	all := make([][]float64, len(blocks))
	for b, one := range blocks {
		key := [2]int{one.top, int(one.elements[one.top])}
		if known[key] == nil {
			from, to := edges[one.top], min(edges[one.top+1], 2*low)
			p := make([]float64, widths)
			for i := range p {
				if from >= 2*low || to <= low {
					p[i] = math.Log(rare)
					continue
				}
				w := width(i)
				whole := max(shape(from/w)-shape(to/w), impossible)
				below := max(shape(from/w)-shape(max(from, low)/w), 0) / whole
				p[i] = float64(key[1])*math.Log(whole) + math.Log(max(1-math.Pow(min(below, 1), float64(key[1])), impossible))
			}
			known[key] = p
		}
		all[b] = known[key]
	}
	return all
}

// mixed returns the logarithm of the likelihood of the blocks under the best distribution of widths.
func mixed(blocks []codes, body, top [][]float64) (sum float64) {
	first, last := 255, 0
	for _, one := range blocks {
		first, last = min(first, int(one.code)), max(last, int(one.code))
	}
	share := make([]float64, (last-first)*perOctave+widths)
	for i := range share {
		share[i] = 1 / float64(len(share))
	}
	p := make([]float64, widths*len(blocks))
	for b := range blocks {
		of := p[b*widths : (b+1)*widths]
		highest := math.Inf(-1)
		for i := range of {
			of[i] = body[b][i] + top[b][i]
			highest = max(highest, of[i])
		}
		for i := range of {
			of[i] = math.Exp(of[i] - highest)
		}
		sum += highest
	}
	next := make([]float64, len(share))
	for round := range rounds {
		clear(next)
		for b, one := range blocks {
			at := (int(one.code) - first) * perOctave
			of, mine := p[b*widths:(b+1)*widths], share[at:at+widths]
			whole := 0.0
			for i := range of {
				whole += of[i] * mine[i]
			}
			if round == rounds-1 {
				sum += math.Log(whole)
				continue
			}
			for i := range of {
				next[at+i] += of[i] * mine[i] / whole
			}
		}
		for i := range share {
			share[i] = next[i] / float64(len(blocks))
		}
	}
	return sum
}
