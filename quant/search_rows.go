package quant

import (
	"math"

	"github.com/microscale-go/microscale/format"
)

// A rowSearch is what a copy searches the scales of rows with, one block after another (With.Mean).
type rowSearch struct {
	variances []float32 // of the inputs
	lanes     int       // of the sums of a block: at least as many as it has candidates
	constants sumConstants
	kernels   [2]sumKernel // those that multiply, and that divide; nil for elements that they do not round
}

// sumConstants are what a sum kernel rounds elements with.
type sumConstants struct {
	limit  float32 // largest element
	lowest float32 // most negative one
	least  float32 // smallest normal element, a power of two; of an integer, the power of two that is at least as large as all
	anchor float32 // 1½·2^23 times the step of elements in [least, 2·least), over least
}

// Candidates of a block fill sumLanes or maxLanes lanes.
const (
	sumLanes = 8
	maxLanes = 2 * sumLanes
)

// A sumKernel is one of sumKernels.
type sumKernel = func(b blockSums, c *sumConstants)

// blockSums are the sums of errors of adjacent blocks under candidates of their scales. Lane i of a block with start s has
//
//	Σ variance·e²  and  Σ mean·e,  e = decodes[s+i]·q - x
//
// over its elements x in their order, q that of x times, or divided by, factors[s+i].
type blockSums struct {
	sums                []float32 // for each block, lanes of the first, then of the second
	x, variances, means []float32
	starts              []int // of blocks of the same extent
	factors, decodes    []float32
	lanes               int // sumLanes or maxLanes
	used                int // lanes of candidates; the sums of others may be anything
}

// rowScratch is the scratch memory of a search of rows.
type rowScratch struct {
	starts     []int
	sums       []float32 // of blocks whose candidates are codes
	other      [2 * maxLanes]float32
	candidates candidates
}

// searchesRows reports whether the scales of a row are searched for one after another.
func (o *output) searchesRows() bool { return o.with.Mean != nil && o.q.Search == LeastSquares }

// newRowSearch returns the search of rows of which a block has at most n candidates that are codes.
func (o *output) newRowSearch(n int) (s rowSearch) {
	s.variances = make([]float32, len(o.with.Mean))
	for i := range s.variances {
		s.variances[i] = o.with.variance(i)
	}
	element := o.q.Format.Element
	if s.lanes = sumLanes; n > sumLanes {
		s.lanes = maxLanes
	}
	if o.q.Rounding != format.NearestEven || element.Unsigned {
		return s
	}
	s.constants = sumConstants{element.Max(), -element.Max(), element.SmallestNormal(), 0}
	if !isSymmetric(element) {
		s.constants.lowest = float32(math.Floor(float64(-element.HalfRange())))
	}
	if element.Integer || !isSymmetric(element) {
		s.constants.least = float32(math.Exp2(math.Ceil(math.Log2(float64(-s.constants.lowest)))))
	}
	s.constants.anchor = 1.5 * element.Smallest() / s.constants.least * (1 << mantissaBits)
	for i := range s.kernels {
		kernel, ok := find(sumKernels, variant{divides: i == 1})
		if !ok {
			kernel = plainSums(i == 1)
		}
		s.kernels[i] = kernel
	}
	return s
}

// plainSums is the twin of a sum kernel.
func plainSums(divides bool) sumKernel {
	return func(b blockSums, c *sumConstants) {
		extent := len(b.x) / len(b.starts)
		for j, start := range b.starts {
			from, to := j*extent, (j+1)*extent
			x, variances, means := b.x[from:to], b.variances[from:to], b.means[from:to]
			for i := range b.used {
				factor, decode := b.factors[start+i], b.decodes[start+i]
				var squares, sum float32
				for k, v := range x {
					q := float32(v * factor)
					if divides {
						q = v / factor
					}
					q = max(min(q, c.limit), c.lowest)
					step := float32(max(math.Float32frombits(math.Float32bits(q)&exponentMask), c.least) * c.anchor)
					q = float32(float32(q+step) - step)
					e := float32(decode*q) - v
					squares += float32(variances[k] * float32(e*e))
					sum += float32(means[k] * e)
				}
				b.sums[2*j*b.lanes+i], b.sums[(2*j+1)*b.lanes+i] = squares, sum
			}
		}
	}
}

// searchRow replaces the scales of n adjacent blocks, which are a row: those of the tile from index at on.
func (w *worker) searchRow(o *output, x []float32, at, n, extent int) {
	rows, s := &o.search.rows, &w.search.rows
	lanes, sums := rows.lanes, w.sumCodes(o, x, at, n, extent)
	carried := float32(0) // what the errors of the row add up to in the mean of the output
	for j := range n {
		i := at + j
		if !w.searches(i) {
			continue // as it is
		}
		if sums != nil && o.search.isNear(w, i) {
			code := int(w.scales[i])
			from, to := o.search.near(code)
			var best int
			best, carried = pick(sums[2*lanes*j:][:to-from], sums[(2*j+1)*lanes:][:to-from], code-from, carried)
			w.blocks[i], w.scales[i] = o.search.elements[from+best], byte(from+best)
			continue
		}
		b, to := &s.candidates, min((j+1)*extent, len(x))
		w.listCandidates(o, b, i)
		w.sumBlock(o, x[j*extent:to], j*extent, b)
		var best int
		best, carried = pick(s.other[:b.n], s.other[maxLanes:][:b.n], 0, carried)
		w.blocks[i] = b.factors[best]
		if o.t.Scales32 != nil {
			floats(w.scales)[i] = b.decodes[best]
		} else {
			w.scales[i] = b.codes[best]
		}
	}
}

// pick returns the candidate with the least error and what the errors of the row then add up to. Of equal errors the rule's wins, then
// the first. Magnitudes are compared by their bits, after which NaN is above Inf.
func pick(squares, means []float32, rule int, carried float32) (best int, after float32) {
	key := func(k, order int) uint64 {
		sum := carried + means[k]
		return uint64(math.Float32bits(squares[k]+float32(sum*sum)))<<8 | uint64(order)
	}
	least := key(rule, 0)
	means = means[:len(squares)]
	for k := range squares {
		least = min(least, key(k, k+1))
	}
	if best = int(least&0xff) - 1; best < 0 {
		best = rule
	}
	return best, carried + means[best]
}

// near returns the codes of the candidates of a block whose scale by the rule has the given one.
func (s *scaleSearch) near(code int) (from, to int) {
	return max(code-s.below, s.least), min(code+s.above, s.most) + 1
}

// isNear reports whether the candidates of block i are adjacent codes that a kernel supports.
func (s *scaleSearch) isNear(w *worker, i int) bool {
	code := int(w.scales[i])
	from, to := s.near(code)
	return code >= s.least && s.unlike[from] == s.unlike[to] && w.blocks[i] == s.elements[code]
}

// sumCodes returns the sums of n adjacent blocks whose candidates are adjacent codes; nil if they are not, or without a kernel.
func (w *worker) sumCodes(o *output, x []float32, at, n, extent int) []float32 {
	rows, s := &o.search.rows, &w.search.rows
	kernel := rows.kernels[index(o.search.elements[o.search.most].divide)]
	if o.search.most == 0 || kernel == nil {
		return nil
	}
	starts, sums := grow(&s.starts, n), grow(&s.sums, 2*rows.lanes*n)
	for j := range starts {
		from, _ := o.search.near(int(w.scales[at+j]))
		starts[j] = from
	}
	b := blockSums{factors: o.search.values[:], decodes: o.search.decodes[:], lanes: rows.lanes,
		used: o.search.below + 1 + o.search.above}
	whole := len(x) / extent
	for _, part := range [][2]int{{0, whole}, {whole, n}} {
		if from, to := part[0]*extent, min(part[1]*extent, len(x)); from < to {
			b.sums, b.starts = sums[2*rows.lanes*part[0]:], starts[part[0]:part[1]]
			b.x, b.variances, b.means = x[from:to], rows.variances[from:to], o.with.Mean[from:to]
			kernel(b, &rows.constants)
		}
	}
	return sums
}

// sumBlock sets the other sums to those of the block x, which begins at position pos, under its candidates.
func (w *worker) sumBlock(o *output, x []float32, pos int, c *candidates) {
	rows, s := &o.search.rows, &w.search.rows
	variances, means := rows.variances[pos:][:len(x)], o.with.Mean[pos:][:len(x)]
	if kernel := rows.kernels[index(c.factors[0].divide)]; kernel != nil && c.alike {
		start := [1]int{}
		kernel(blockSums{s.other[:], x, variances, means, start[:], c.values[:], c.decodes[:], maxLanes, c.n}, &rows.constants)
		return
	}
	codes := grow(&w.search.codes, len(x))
	for k := range c.n {
		w.encodeReference(o, codes, x, c.factors[k], nil)
		var squares, sum float32
		for i, v := range x {
			e := float32(c.decodes[k]*o.q.Format.Element.Decode(uint32(codes[i]))) - v
			squares += float32(variances[i] * float32(e*e))
			sum += float32(means[i] * e)
		}
		s.other[k], s.other[maxLanes+k] = squares, sum
	}
}
