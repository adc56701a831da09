package quant

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/microscale-go/microscale/format"
	"github.com/microscale-go/microscale/internal/cpu"
)

// Search says how a block finds its scale: by the rule or the arithmetic alone, or
// as the one of several candidates that leaves the least error in the block. The
// result decodes as any other does. Blocks of zeros, and those with NaN or Inf,
// are not searched.
//
//	LeastSquares  the sum of (value-x)², in float64; candidates are the scale of the rule and its neighbors:
//	  E8M0  half of it and twice it
//	  E4M3  the codes from 2 below to 6 above
//	  FP32  those of the amax times 1⅛ to 1⅞ in steps of ⅛, for INT8 times 29/32 to 35/32 in steps of 1/32;
//	        powers of two: half of it and twice it
//	FourOverSixMAE, FourOverSixMSE  Transformer Engine's NVFP4 option: the amax becomes 6 or 4
//	  candidates  e4m3(min(b, 448)) and, where its error is less, e4m3(min(1.5·b, 448)), b = amax/6·E
//	  error       Σ|d| or Σd² in float32, in the order of the elements, d = ((code·scale)·amax_tensor)/(6·TopScale) - x;
//	              the 16 lines of a block of 16×16 are added as a tree
//
// The first least error wins; the rule's scale comes first.
type Search uint8

const (
	NoSearch Search = iota
	LeastSquares
	FourOverSixMSE
	FourOverSixMAE
)

// FourOverSixTop is the TopScale that Transformer Engine takes with four-over-six
// unless told otherwise: 1.5 times it is an E4M3 scale still.
const FourOverSixTop = 256

var searchNames = []string{"none", "mse", "four-over-six", "four-over-six-mae"}

// String returns the name used on the command line.
func (s Search) String() string { return searchNames[s] }

// Searches returns all of them, NoSearch first.
func Searches() []Search { return []Search{NoSearch, LeastSquares, FourOverSixMSE, FourOverSixMAE} }

// ParseSearch finds a search by its name: none, mse, four-over-six or
// four-over-six-mae.
func ParseSearch(name string) (Search, error) {
	for i, n := range searchNames {
		if strings.EqualFold(n, name) {
			return Search(i), nil
		}
	}
	return 0, fmt.Errorf("unknown scale search %q: use one of %s", name, strings.Join(searchNames, ", "))
}

func (s Search) fourOverSix() bool { return s == FourOverSixMAE || s == FourOverSixMSE }

// checkSearch reports what makes the search of q, or its TopScale, unusable.
func (q *Quantizer) checkSearch() error {
	f := q.Format
	switch hasTop := f.Global && q.Arithmetic != BlockOnly; {
	case int(q.Search) >= len(searchNames):
		return fmt.Errorf("quantizer of %s: unknown scale search %d", f, q.Search)
	case q.TopScale != 0 && !(hasTop && 0 < q.TopScale && q.TopScale <= scaleFormat.Max()):
		return fmt.Errorf("quantizer of %s: TopScale, here %g, is an E4M3 scale of a format with a global one", f, q.TopScale)
	case q.Search == NoSearch:
		return nil
	case !f.Scaled() || f.PerTensor():
		return fmt.Errorf("quantizer of %s: scales of blocks and rows are searched, and it has none: leave the search out", f)
	case q.Rounding == format.Stochastic:
		return fmt.Errorf("quantizer of %s: scales are searched for rounding to nearest, not for stochastic rounding", f)
	case q.Search.fourOverSix() && (!f.Global || f.Element != format.E2M1 || q.Arithmetic != EncodeFirst || q.Hadamard):
		return fmt.Errorf("quantizer of %s: four-over-six is Transformer Engine's, of nvfp4 by its arithmetic and without the Hadamard transform: search by mse", f)
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

// Neighbors of the scale that the rule gives, as steps of its code or factors of
// the amax that it is made of.
var (
	exponentSteps  = []int{-1, 1}
	codeSteps      = []int{-2, -1, 1, 2, 3, 4, 5, 6}
	floatFactors   = []float32{1.125, 1.25, 1.375, 1.5, 1.625, 1.75, 1.875}
	integerFactors = []float32{0.90625, 0.9375, 0.96875, 1.03125, 1.0625, 1.09375}
	binadeFactors  = []float32{0.5, 2}
)

// mostCandidates is how many candidates a block has at most.
const mostCandidates = 9

// candidates are the scales that a block may get, the rule's first.
type candidates struct {
	n       int
	factors [mostCandidates]factor
	values  [mostCandidates]float32 // of the factors
	decodes [mostCandidates]float32 // scales of the block and the tensor together
	codes   [mostCandidates]byte    // of scales that take one byte
	alike   bool                    // a kernel serves all
}

func (c *candidates) add(f factor, decode float32, code byte) {
	i := c.n
	c.factors[i], c.values[i], c.decodes[i], c.codes[i] = f, f.value, decode, code
	c.alike = (i == 0 || c.alike) && blockFactor{factor: factor{value: f.value}}.isFactor() && f.isPlain() && f.divide == c.factors[0].divide
	c.n++
}

// A searchKernel sets errors[k] to the error of src, a multiple of searchUnit
// elements, under n factors.
type searchKernel struct {
	tier   cpu.Tier
	divide bool
	errors searchFunc
}

type searchFunc func(errors []float64, src, factors, decodes []float32, n int, c *searchConstants)

const searchUnit = 16

// searchConstants are what a search kernel rounds elements with.
type searchConstants struct {
	limit  float32 // largest element
	least  float32 // smallest normal element; of an integer, 1
	anchor float32 // the step of elements in [1, 2), times 2^23
}

// A searcher finds the scales of the lines of one goroutine.
type searcher struct {
	*run
	blocks    []candidates
	errors    []float64 // by line of a band, block and candidate
	codes     []byte
	scaled    []float32
	padded    []float32     // the end of a line
	elements  [256]factor   // by E4M3 code
	decodes   [256]float32  // by E4M3 code
	kernels   [2]searchFunc // that multiplies, and that divides
	constants searchConstants
}

// newSearcher returns nil where scales are not searched.
func (r *run) newSearcher() *searcher {
	if r.q.Search == NoSearch {
		return nil
	}
	width := r.t.storedWidth()
	s := &searcher{run: r, blocks: make([]candidates, r.t.scaleCols()), codes: make([]byte, width), scaled: make([]float32, width)}
	if r.q.Format.Scale == format.E4M3 {
		for code := range scaleFormat.MaxCode() + 1 {
			s.elements[code] = arithmetics[r.q.Arithmetic].element(byte(code), r.global)
			s.decodes[code] = float32(scaleFormat.Decode(code) * r.global.decode)
		}
	}
	element := r.q.Format.Element
	if r.q.Search != LeastSquares || r.q.Rounding != format.NearestEven || element.Unsigned {
		return s
	}
	s.constants = searchConstants{limit: element.Max(), least: element.SmallestNormal()}
	if element.Integer {
		s.constants.least = 1
	}
	s.constants.anchor = element.Smallest() / s.constants.least * (1 << mantissaBits)
	for _, k := range slices.Backward(searchKernels) {
		if k.tier <= cpu.Best() {
			s.kernels[index(k.divide)] = k.errors
		}
	}
	return s
}

// choose replaces the scales and factors of lines [l0, l1) by the best candidates.
// amaxes are the bits that scaleBand saw, beyond those of Inf where there is NaN.
func (s *searcher) choose(l0, l1, row int, amaxes []uint32, factors []blockFactor, room []float32) {
	for j, a := range amaxes {
		s.list(&s.blocks[j], a, row*len(factors)+j, factors[j])
	}
	perLine := len(factors) * mostCandidates
	grow(&s.errors, (l1-l0)*perLine)
	for l := l0; l < l1; l++ {
		x := s.x.row(l, room)
		for j := range factors {
			c0, c1 := s.blockCols(j)
			s.lineErrors(s.errors[(l-l0)*perLine+j*mostCandidates:], x[c0:c1], &s.blocks[j])
		}
	}
	for j := range factors {
		b, best, least := &s.blocks[j], 0, 0.0
		if b.n == 0 {
			continue
		}
		for k := range b.n {
			if e := s.blockError(j*mostCandidates+k, l1-l0, perLine); k == 0 || e < least {
				best, least = k, e
			}
		}
		factors[j].factor = b.factors[best]
		if i := row*len(factors) + j; s.t.Scales32 != nil {
			s.t.Scales32[i] = b.decodes[best]
		} else {
			s.t.Scales[i] = b.codes[best]
		}
	}
}

// list sets b to the candidates of block i, whose amax has the given bits; none
// where it is not searched. f is what the rule gives.
func (s *searcher) list(b *candidates, amax uint32, i int, f blockFactor) {
	b.n = 0
	if amax == 0 || amax >= exponentMask || f.poison {
		return
	}
	a, element := math.Float32frombits(amax), s.q.Format.Element
	switch {
	case s.q.Format.Scale == format.E8M0:
		code, bias := int(s.t.Scales[i]), format.E8M0.Bias
		b.add(f.factor, exp2(code-bias), byte(code))
		for _, d := range exponentSteps {
			if c := code + d; 0 <= c && c <= e8m0Max {
				b.add(factor{value: s.q.exponentFactor(byte(c))}, exp2(c-bias), byte(c))
			}
		}
	case s.q.Search.fourOverSix():
		wanted := float32(float32(a/element.Max()) * s.global.encode)
		s.addCode(b, scaleFormat.Encode(min(wanted, scaleFormat.Max())))
		s.addCode(b, scaleFormat.Encode(min(float32(wanted*1.5), scaleFormat.Max())))
	case s.q.Format.Scale == format.E4M3:
		code := int(s.t.Scales[i])
		s.addCode(b, uint32(code))
		for _, d := range codeSteps {
			if c := code + d; 1 <= c && c <= int(scaleFormat.MaxCode()) {
				s.addCode(b, uint32(c))
			}
		}
	default:
		b.add(f.factor, s.t.Scales32[i], 0)
		for _, times := range s.q.amaxFactors() {
			if near := float32(a * times); isUsable(near) {
				decode, f := arithmetics[s.q.Arithmetic].fp32(near, element.Max(), s.q.PowerOfTwo)
				b.add(f, decode, 0)
			}
		}
	}
}

func (s *searcher) addCode(b *candidates, code uint32) {
	b.add(s.elements[code], s.decodes[code], byte(code))
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

// lineErrors sets errors to those of the elements of a block in one line, under
// each of its candidates.
func (s *searcher) lineErrors(errors []float64, x []float32, b *candidates) {
	if b.n == 0 {
		return
	}
	if kernel := s.kernels[index(b.factors[0].divide)]; kernel != nil && b.alike {
		if len(x)%searchUnit > 0 {
			grow(&s.padded, len(x)+searchUnit)
			clear(s.padded[copy(s.padded, x):])
			x = s.padded[:ceilDiv(len(x), searchUnit)*searchUnit]
		}
		kernel(errors, x, b.values[:], b.decodes[:], b.n, &s.constants)
		return
	}
	for k := range b.n {
		codes := s.codes[:len(x)]
		s.encodePlain(codes, x, blockFactor{factor: b.factors[k]}, s.scaled)
		if s.q.Search.fourOverSix() {
			errors[k] = s.fourOverSixError(x, codes, b.codes[k])
		} else {
			errors[k] = s.squaredError(x, codes, b.decodes[k])
		}
	}
}

// squaredError is the error of LeastSquares: eight sums by position, joined by halves.
func (s *searcher) squaredError(x []float32, codes []byte, decode float32) float64 {
	var sums [8]float64
	for i, v := range x {
		e := float64(float32(decode*s.q.Format.Element.Decode(uint32(codes[i])))) - float64(v)
		sums[i%len(sums)] += float64(e * e)
	}
	return ((sums[0] + sums[4]) + (sums[2] + sums[6])) + ((sums[1] + sums[5]) + (sums[3] + sums[7]))
}

func (s *searcher) fourOverSixError(x []float32, codes []byte, scale byte) float64 {
	var sum float32
	element := s.q.Format.Element
	decode, all := scaleFormat.Decode(uint32(scale)), float32(element.Max()*s.q.top())
	for i, v := range x {
		d := float32(float32(float32(element.Decode(uint32(codes[i]))*decode)*s.t.Amax)/all) - v
		if s.q.Search == FourOverSixMSE {
			d = float32(d * d)
		}
		sum += max(d, -d)
	}
	return float64(sum)
}

// blockError returns the error of a block from those of its lines, which are
// perLine apart.
func (s *searcher) blockError(first, lines, perLine int) (sum float64) {
	if !s.q.Search.fourOverSix() || lines == 1 {
		for l := range lines {
			sum += s.errors[first+l*perLine]
		}
		return sum
	}
	var tree [16]float32
	for l := range lines {
		tree[l%len(tree)] += float32(s.errors[first+l*perLine])
	}
	for half := len(tree) / 2; half > 0; half /= 2 {
		for i := range half {
			tree[i] += tree[i+half]
		}
	}
	return float64(tree[0])
}
