package quant

import (
	"fmt"
	"math"

	"github.com/microscale-go/microscale/format"
)

// Search selects the scale of a block: that of the rule or the arithmetic (NoSearch), or the
// candidate with the smallest error in the block. Blocks of zeros, and blocks with NaN or Inf, are
// not searched.
//
// LeastSquares minimizes the sum of (value-x)², each times its With.Importance, in float64. It tries the scale s of the rule or
// the arithmetic first, then
//
//	E8M0  s/2 and 2·s
//	E4M3  the scales whose codes are 2 and 1 below and 1 to 6 above that of s
//	FP32  the scales of amax·f, f = 1⅛ to 1⅞ in steps of ⅛; for INT8, f = 29/32 to 35/32 in steps of 1/32;
//	      for powers of two, f = ½ and 2
//
// With the mean m and the mean square h of each input (With.Mean, With.Importance), it chooses for one block of a row after another,
// and minimizes
//
//	Σ (h-m²)·e² + (B + Σ m·e)²,   e = value-x,   B the Σ m·e of the blocks before
//
// which is what the errors of the row so far add to the mean square of the output if the inputs are independent: B is 0 for the first
// block, and for each block after it what the chosen scales leave. Values and sums are of float32, in the order of the elements.
//
// FourOverSixMAE and FourOverSixMSE are Transformer Engine's NVFP4 option, which maps the amax to
// 6 or to 4. With b = amax/6·E, E the inverse of the global scale, they try
//
//	e4m3(min(b, 448)), then e4m3(min(1.5·b, 448))
//
// The error is Σ|d| or Σd² in float32, in the order of the elements, with
// d = ((code·scale)·amax of the tensor)/(6·TopScale) - x. The sums of the rows of a 16×16 block are
// added as a tree.
//
// Of equal errors, the first wins.
type Search uint8

const (
	NoSearch       Search = iota // the rule or the arithmetic alone
	LeastSquares                 // the smallest squared error
	FourOverSixMSE               // 6 or 4, by the squared error
	FourOverSixMAE               // 6 or 4, by the absolute error
)

// FourOverSixTop is Transformer Engine's default TopScale with four-over-six: 1.5 times it, 384, is
// within E4M3.
const FourOverSixTop = 256

func (s Search) fourOverSix() bool { return s == FourOverSixMAE || s == FourOverSixMSE }

// checkSearch returns an error if the search of q, or its TopScale, is unsupported.
func (q *Quantizer) checkSearch() error {
	f := q.Format
	switch hasTop := f.Global && !q.Arithmetic.FixesGlobal(); {
	case int(q.Search) >= len(searchNames):
		return fmt.Errorf("quantizer of %s: unknown scale search %d", f, q.Search)
	case q.TopScale != 0 && !(hasTop && 0 < q.TopScale && q.TopScale <= scaleFormat.Max()):
		return fmt.Errorf("quantizer of %s: got TopScale %g, want 0, or for a format with a global scale at most %g", f, q.TopScale,
			scaleFormat.Max())
	case q.Search == NoSearch:
		return nil
	case !f.Scaled() || f.PerTensor():
		return fmt.Errorf("quantizer of %s: got search %s, want none: only scales of blocks and rows are searched", f, q.Search)
	case q.Rounding == format.Stochastic:
		return fmt.Errorf("quantizer of %s: got search %s with stochastic rounding, want another rounding or no search", f, q.Search)
	case q.Search.fourOverSix() && (!f.Global || f.Element != format.E2M1 || q.Arithmetic != EncodeFirst || q.Hadamard):
		return fmt.Errorf("quantizer of %s: got search %s, want mse: four-over-six needs NVFP4 with the arithmetic of Transformer Engine and "+
			"without the Hadamard transform", f, q.Search)
	}
	return nil
}

// top returns the E4M3 scale of a block with the amax of the tensor.
func (q *Quantizer) top() float32 {
	if q.TopScale > 0 {
		return q.TopScale
	}
	return scaleFormat.Max()
}

// Neighbors of the scale that the rule gives, as steps of its code, ascending and without gaps but that of the code, or factors of
// the amax that it is made of.
var (
	exponentSteps  = []int{-1, 1}
	codeSteps      = []int{-2, -1, 1, 2, 3, 4, 5, 6}
	floatFactors   = []float32{1.125, 1.25, 1.375, 1.5, 1.625, 1.75, 1.875}
	integerFactors = []float32{0.90625, 0.9375, 0.96875, 1.03125, 1.0625, 1.09375}
	binadeFactors  = []float32{0.5, 2}
)

// maxCandidates is the maximum number of candidates of a block.
const maxCandidates = 9

// candidates are the scales that a block may get, the rule's first.
type candidates struct {
	n       int
	factors [maxCandidates]factor
	values  [maxLanes]float32   // of the factors
	decodes [maxLanes]float32   // scales of the block and the tensor together
	codes   [maxCandidates]byte // of scales that take one byte
	alike   bool                // a kernel supports all
}

func (c *candidates) add(f factor, decode float32, code byte) {
	i := c.n
	c.factors[i], c.values[i], c.decodes[i], c.codes[i] = f, f.value, decode, code
	c.alike = (i == 0 || c.alike) && factor{value: f.value}.isFactor() && f.isPlain() && f.divide == c.factors[0].divide
	c.n++
}

const searchUnit = 16

// searchConstants are what a search kernel rounds elements with.
type searchConstants struct {
	limit  float32 // largest element
	least  float32 // smallest normal element; of an integer, 1
	anchor float32 // the step of elements in [1, 2), times 2^23
}

// A scaleSearch is what a copy searches scales with.
type scaleSearch struct {
	elements  [256]factor             // by code of a scale of one byte
	values    [256 + maxLanes]float32 // of elements
	decodes   [256 + maxLanes]float32 // by code
	unlike    [257]int                // codes below, of which elements are not multiplied or divided by as kernels do
	least     int                     // code of a candidate, and the largest
	most      int
	below     int // the steps of codes: each of the rule's code -below to +above
	above     int
	constants searchConstants
	// kernels are those that multiply, and that divide; nil where there is none.
	kernels [2]searchKernel
	rows    rowSearch
}

// A searchKernel is one of searchKernels.
type searchKernel = func(errors []float64, src, weights, factors, decodes []float32, n int, c *searchConstants)

// searchScratch is the scratch memory of a search.
type searchScratch struct {
	blocks []candidates
	errors []float64    // by row of the blocks, block and candidate
	padded [2][]float32 // a partial block, and its weights
	codes  []byte
	rows   rowScratch
}

func (o *output) newScaleSearch() *scaleSearch {
	s := &scaleSearch{}
	switch o.q.Format.Scale {
	case format.E4M3:
		s.least, s.most, s.below, s.above = 1, int(scaleFormat.MaxCode()), -codeSteps[0], codeSteps[len(codeSteps)-1]
		for code := range s.most + 1 {
			s.elements[code] = arithmetics[o.q.Arithmetic].element(byte(code), o.global)
			s.decodes[code] = float32(scaleFormat.Decode(uint32(code)) * o.global.decode)
		}
	case format.E8M0:
		s.most, s.below, s.above = e8m0Max, -exponentSteps[0], exponentSteps[len(exponentSteps)-1]
		for code := range s.most + 1 {
			s.elements[code], s.decodes[code] = factor{value: o.q.exponentFactor(byte(code))}, exp2(code-format.E8M0.Bias)
		}
	}
	if o.searchesRows() {
		s.rows = o.newRowSearch(s.below + 1 + s.above)
	}
	for code, f := range s.elements {
		s.values[code], s.unlike[code+1] = f.value, s.unlike[code]
		if !f.isFactor() || f.divide != s.elements[s.most].divide {
			s.unlike[code+1]++
		}
	}
	element := o.q.Format.Element
	if o.q.Search != LeastSquares || o.q.Rounding != format.NearestEven || element.Unsigned || !isSymmetric(element) {
		return s
	}
	s.constants = searchConstants{limit: element.Max(), least: element.SmallestNormal()}
	if element.Integer {
		s.constants.least = 1
	}
	s.constants.anchor = element.Smallest() / s.constants.least * (1 << mantissaBits)
	for i := range s.kernels {
		s.kernels[i], _ = find(searchKernels, variant{divides: i == 1, weights: o.with.Importance != nil})
	}
	return s
}

// searchScales replaces the scales of the blocks of x, which begins at position pos, by the best candidates.
func (w *worker) searchScales(o *output, x source, g grid, pos int) {
	if o.searchesRows() {
		for i := range g.rows {
			w.searchRow(o, x.row(i, 0, g.cols, &w.values), i*g.blocks, g.blocks, g.width)
		}
		w.exceptional = w.exceptional[:0]
		w.setFactors(o, g.down*g.blocks)
		return
	}
	var importance []float32
	if o.with.Importance != nil {
		importance = o.with.Importance[pos:]
	}
	for b := range g.down {
		from, to := b*g.height, min((b+1)*g.height, g.rows)
		w.searchBlockRow(o, x.view(from, to, 0, g.cols), importance, b*g.blocks, g.blocks, g.width)
	}
	w.exceptional = w.exceptional[:0]
	w.setFactors(o, g.down*g.blocks)
}

// searchBlockRow is searchScales of n adjacent blocks, from the given one on.
func (w *worker) searchBlockRow(o *output, x source, importance []float32, at, n, extent int) {
	if x.rows > 1 || o.search.most == 0 || o.q.Search != LeastSquares || o.search.kernels[0] == nil {
		w.searchBlocks(o, x, importance, at, n, extent)
		return
	}
	values := x.row(0, 0, x.cols, &w.values)
	for j := range n {
		from, to := j*extent, min((j+1)*extent, x.cols)
		var weights []float32
		if importance != nil {
			weights = importance[from:to]
		}
		if !w.searchCode(o, values[from:to], weights, at+j) {
			w.searchBlocks(o, x.view(0, 1, from, to), weights, at+j, 1, extent)
			values = x.row(0, 0, x.cols, &w.values)
		}
	}
}

// searches reports whether block j has candidates: it has values, and all are finite.
func (w *worker) searches(j int) bool {
	amax := w.amaxes[j]
	return amax != 0 && amax < exponentMask && !w.blocks[j].poison
}

// searchCode is searchBlocks of a block in one row with a scale of one byte, whose candidates are a range of codes that a kernel
// supports. It returns false for others.
func (w *worker) searchCode(o *output, x, weights []float32, j int) bool {
	if !w.searches(j) {
		return true // as it is
	}
	s, code := o.search, int(w.scales[j])
	if !s.isNear(w, j) {
		return false
	}
	from, to := s.near(code)
	errors := grow(&w.search.errors, to-from)
	s.kernels[index(s.elements[code].divide)](errors, wholeUnits(&w.search.padded[0], x), wholeUnits(&w.search.padded[1], weights),
		s.values[from:to], s.decodes[from:to], to-from, &s.constants)
	best, least := code, errors[code-from]
	for k, e := range errors {
		if e < least {
			best, least = from+k, e
		}
	}
	w.blocks[j], w.scales[j] = s.elements[best], byte(best)
	return true
}

// searchBlocks is searchBlockRow for all blocks.
func (w *worker) searchBlocks(o *output, x source, importance []float32, at, n, extent int) {
	rows, cols := x.rows, x.cols
	blocks := grow(&w.search.blocks, n)
	for j := range blocks {
		w.listCandidates(o, &blocks[j], at+j)
	}
	perRow := n * maxCandidates
	errors := grow(&w.search.errors, rows*perRow)
	for i := range rows {
		values := x.row(i, 0, cols, &w.values)
		for j := range blocks {
			from, to := j*extent, min((j+1)*extent, cols)
			var weights []float32
			if importance != nil {
				weights = importance[from:to]
			}
			w.rowErrors(o, errors[i*perRow+j*maxCandidates:], values[from:to], weights, &blocks[j])
		}
	}
	for j := range blocks {
		b, best, least := &blocks[j], 0, 0.0
		if b.n == 0 {
			continue
		}
		for k := range b.n {
			if e := o.blockError(errors[j*maxCandidates+k:], rows, perRow); k == 0 || e < least {
				best, least = k, e
			}
		}
		w.blocks[at+j] = b.factors[best]
		if o.t.Scales32 != nil {
			floats(w.scales)[at+j] = b.decodes[best]
		} else {
			w.scales[at+j] = b.codes[best]
		}
	}
}

// listCandidates sets b to the candidates of block j, whose scale by the rule is known;
// none where it is not searched.
func (w *worker) listCandidates(o *output, b *candidates, j int) {
	b.n = 0
	if !w.searches(j) {
		return
	}
	f, a, element := w.blocks[j], math.Float32frombits(w.amaxes[j]), o.q.Format.Element
	addCode := func(code uint32) { b.add(o.search.elements[code], o.search.decodes[code], byte(code)) }
	switch {
	case o.q.Format.Scale == format.E8M0:
		code, bias := int(w.scales[j]), format.E8M0.Bias
		b.add(f, exp2(code-bias), byte(code))
		for _, d := range exponentSteps {
			if c := code + d; 0 <= c && c <= e8m0Max {
				b.add(factor{value: o.q.exponentFactor(byte(c))}, exp2(c-bias), byte(c))
			}
		}
	case o.q.Search.fourOverSix():
		wanted := float32(float32(a/element.Max()) * o.global.encode)
		addCode(scaleFormat.Encode(min(wanted, scaleFormat.Max())))
		addCode(scaleFormat.Encode(min(float32(wanted*1.5), scaleFormat.Max())))
	case o.q.Format.Scale == format.E4M3:
		code := int(w.scales[j])
		addCode(uint32(code))
		for _, d := range codeSteps {
			if c := code + d; 1 <= c && c <= int(scaleFormat.MaxCode()) {
				addCode(uint32(c))
			}
		}
	default:
		b.add(f, floats(w.scales)[j], 0)
		for _, times := range o.q.amaxFactors() {
			if near := float32(a * times); isUsable(near) {
				decode, f := o.q.floatScale(near)
				b.add(f, decode, 0)
			}
		}
	}
}

// amaxFactors returns the factors of the amax that give the candidates of FP32 scales.
func (q *Quantizer) amaxFactors() []float32 {
	switch {
	case q.PowerOfTwo:
		return binadeFactors
	case q.Format.Element.Integer:
		return integerFactors
	}
	return floatFactors
}

// rowErrors sets errors to those of the elements of a block in one row, with their weights unless
// nil, under each of its candidates.
func (w *worker) rowErrors(o *output, errors []float64, x, weights []float32, b *candidates) {
	if b.n == 0 {
		return
	}
	if kernel := o.search.kernels[index(b.factors[0].divide)]; kernel != nil && b.alike {
		kernel(errors, wholeUnits(&w.search.padded[0], x), wholeUnits(&w.search.padded[1], weights), b.values[:], b.decodes[:], b.n,
			&o.search.constants)
		return
	}
	codes := grow(&w.search.codes, len(x))
	for k := range b.n {
		w.encodeReference(o, codes, x, b.factors[k], nil)
		if o.q.Search.fourOverSix() {
			errors[k] = o.fourOverSixError(x, codes, b.codes[k])
		} else {
			errors[k] = o.squaredError(x, weights, codes, b.decodes[k])
		}
	}
}

// wholeUnits returns x, followed by zeros in memory of padded if it is not a multiple of searchUnit.
func wholeUnits(padded *[]float32, x []float32) []float32 {
	if len(x)%searchUnit == 0 {
		return x
	}
	whole := grow(padded, ceilDiv(len(x), searchUnit)*searchUnit)
	clear(whole[copy(whole, x):])
	return whole
}

// squaredError is the error of LeastSquares: eight sums by position, joined by halves.
func (o *output) squaredError(x, weights []float32, codes []byte, decode float32) float64 {
	var sums [8]float64
	for i, v := range x {
		e := float64(float32(decode*o.q.Format.Element.Decode(uint32(codes[i])))) - float64(v)
		weight := 1.0
		if weights != nil {
			weight = float64(weights[i])
		}
		sums[i%len(sums)] += float64(weight * float64(e*e))
	}
	return ((sums[0] + sums[4]) + (sums[2] + sums[6])) + ((sums[1] + sums[5]) + (sums[3] + sums[7]))
}

func (o *output) fourOverSixError(x []float32, codes []byte, scale byte) float64 {
	var sum float32
	element := o.q.Format.Element
	decode, all := scaleFormat.Decode(uint32(scale)), float32(element.Max()*o.q.top())
	for i, v := range x {
		d := float32(float32(float32(element.Decode(uint32(codes[i]))*decode)*o.t.Amax)/all) - v
		if o.q.Search == FourOverSixMSE {
			d = float32(d * d)
		}
		sum += max(d, -d)
	}
	return float64(sum)
}

// blockError returns the error of a block from those of its rows, which are perRow apart.
func (o *output) blockError(errors []float64, rows, perRow int) (sum float64) {
	if !o.q.Search.fourOverSix() || rows == 1 {
		for i := range rows {
			sum += errors[i*perRow]
		}
		return sum
	}
	var tree [16]float32
	for i := range rows {
		tree[i%len(tree)] += float32(errors[i*perRow])
	}
	for half := len(tree) / 2; half > 0; half /= 2 {
		for i := range half {
			tree[i] += tree[i+half]
		}
	}
	return float64(tree[0])
}
