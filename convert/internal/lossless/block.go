package lossless

import (
	"math"
	"slices"

	"github.com/microscale-go/microscale/format"
)

// Why says why a block has no exact cast. The zero Why is that of an exact one.
type Why uint8

const (
	Exact     Why = iota
	NotNumber     // a scale is NaN
	Bits          // a value has more significant bits than any code times any scale of the target
	Range         // no scale of the target is large or small enough for a value
	Spread        // each value has an exact code, but under different scales
)

// String returns the reason.
func (w Why) String() string {
	return [...]string{"exact", "a scale is NaN", "too many significant bits", "beyond the range of scales", "needs several scales"}[w]
}

// A codeSet is a set of codes of one byte.
type codeSet [4]uint64

func (s *codeSet) add(code byte) { s[code>>6] |= 1 << (code & 63) }

// A group is the codes of a target block that have the same decode scale in the source.
type group struct {
	scale float32
	codes codeSet
	list  []byte    // the codes, in the order of their values
	to    [256]byte // the codes of the target, by code of the source
}

// A block is what the elements of a target block are multiplied by, and which codes they have.
type block struct {
	groups []group
	n      int // groups in use
}

// reset empties the block.
func (b *block) reset() { b.n = 0 }

// at returns the group of a scale.
func (b *block) at(scale float32) *group {
	for i := b.n - 1; i >= 0; i-- {
		if g := &b.groups[i]; math.Float32bits(g.scale) == math.Float32bits(scale) {
			return g
		}
	}
	if b.n == len(b.groups) {
		b.groups = append(b.groups, group{})
	}
	g := &b.groups[b.n]
	b.n++
	g.scale, g.codes, g.list = scale, codeSet{}, g.list[:0]
	return g
}

// used returns the groups.
func (b *block) used() []group { return b.groups[:b.n] }

// A mapper maps codes of one element format to those of another.
type mapper struct {
	from, to *format.Scalar
	value    [256]float32 // of the codes of from
	back     [256]float32 // of those of to

	alone map[single]Why // of elements without others
}

// A single is a code under a scale.
type single struct {
	scale uint32
	code  byte
}

func newMapper(from, to *format.Scalar) *mapper {
	m := &mapper{from: from, to: to, alone: map[single]Why{}}
	for code := range 1 << from.Bits() {
		m.value[code] = from.Decode(uint32(code))
	}
	for code := range 1 << to.Bits() {
		m.back[code] = to.Decode(uint32(code))
	}
	return m
}

// code returns the code that decodes to the same bits under scale b as a code of the source does under
// scale a. ok is false if there is none.
func (m *mapper) code(a, b float32, code byte) (to byte, ok bool) {
	x := m.value[code]
	want := float32(a * x)
	if want != want {
		return byte(m.to.EncodeWith(x, format.Conversion{NaN: format.KeepSign}, 0)), x != x && m.to.HasNaN() && a == a
	}
	quotient := float64(want) / float64(b)
	if math.IsInf(float64(want), 0) { // the product of both sides is beyond FP32
		quotient = float64(a) * float64(x) / float64(b)
	}
	to = m.nearest(float32(quotient))
	return to, math.Float32bits(float32(b*m.back[to])) == math.Float32bits(want)
}

// nearest returns the code nearest to x. It uses the most negative code of integers, which encoders leave out.
func (m *mapper) nearest(x float32) byte {
	if m.to.Integer {
		if least := byte(1 << (m.to.Bits() - 1)); x == m.back[least] {
			return least
		}
	}
	return byte(m.to.Encode(x))
}

// maps sets the codes of the target under scale b. It returns false at the first element without one.
func (m *mapper) maps(groups []group, b float32) bool {
	for i := range groups {
		g := &groups[i]
		if m.from == m.to && math.Float32bits(g.scale) == math.Float32bits(b) && b == b {
			for _, code := range g.list {
				g.to[code] = code
			}
			continue
		}
		for _, code := range g.list {
			to, ok := m.code(g.scale, b, code)
			if !ok {
				return false
			}
			g.to[code] = to
		}
	}
	return true
}

// unit returns the ratio of the scales for which the integers of both element formats are equal: 64 from S8 to
// INT8, whose codes are multiples of 1/64.
func (m *mapper) unit() float32 {
	if m.from.Integer && m.to.Integer {
		return m.from.Smallest() / m.to.Smallest()
	}
	return 1
}

// extent returns the smallest and the largest magnitude of the values other than zeros and NaN; 0 if there are none.
// They are not rounded where float32 overflows.
func (m *mapper) extent(groups []group) (least, largest float64) {
	least = math.Inf(1)
	for _, g := range groups {
		for _, code := range g.list {
			v := math.Abs(float64(float32(g.scale * m.value[code])))
			if math.IsInf(v, 0) {
				v = math.Abs(float64(g.scale) * float64(m.value[code]))
			}
			if v > 0 {
				least, largest = min(least, v), max(largest, v)
			}
		}
	}
	if largest == 0 {
		least = 0
	}
	return least, largest
}

// scales are the decode scales of a target format with scales of one byte, by code: block scale times
// global scale, as clients compute them. They do not decrease up to the last finite one.
type scales struct {
	value [256]float32
	last  int // code of the largest finite one
	nan   byte
}

// newScales describes the codes of a scale format, whose decode scales are those of level.
func newScales(f *format.Scalar, level func(code byte) float32) *scales {
	s := &scales{last: int(f.MaxCode()), nan: byte(f.Encode(float32(math.NaN())))}
	for code := range s.value {
		s.value[code] = level(byte(code))
	}
	return s
}

// nearest returns the code of the largest scale that is not above x; 0 if there is none.
func (s *scales) nearest(x float32) int {
	code, found := slices.BinarySearch(s.value[:s.last+1], x)
	if !found {
		code--
	}
	return min(max(code, 0), s.last)
}

// solve finds the scale of the target for a block: of those that are exact, the one nearest to that of the
// source. It sets the codes of the groups.
func (s *scales) solve(m *mapper, groups []group) (code byte, why Why) {
	if nan := hasNaN(groups); nan != Exact {
		return s.nan, nan
	}
	if code, ok := s.find(m, groups); ok {
		return code, Exact
	}
	return 0, m.why(groups, func(one []group) Why {
		if _, ok := s.find(m, one); ok {
			return Exact
		}
		if x, _ := m.extent(one); x < float64(s.value[1]*m.to.Smallest()) || x > float64(s.value[s.last]*m.to.Max()) {
			return Range
		}
		return Bits
	})
}

// slack is more than the relative error of two roundings to float32.
const slack = 1.0 / (1 << 20)

// find returns the exact scale that is nearest to that of the source. It tries all that can represent the smallest and the
// largest value.
func (s *scales) find(m *mapper, groups []group) (code byte, ok bool) {
	least, largest := m.extent(groups)
	smallest, most := float64(m.to.Smallest()), m.largest()
	first := s.nearest(m.preferred(groups))
	for distance := 0; distance <= s.last; distance++ {
		for _, at := range [2]int{first - distance, first + distance} {
			if at < 0 || s.last < at {
				continue
			}
			scale := float64(s.value[at])
			if scale == 0 && !zeroScales(groups) || largest > 0 && (scale*most < largest*(1-slack) || scale*smallest > least*(1+slack)) {
				continue
			}
			if m.maps(groups, s.value[at]) {
				return byte(at), true
			}
		}
	}
	return 0, false
}

// largest returns the largest magnitude of the elements of the target.
func (m *mapper) largest() float64 {
	if m.to.Integer { // the most negative one
		return math.Abs(float64(m.back[1<<(m.to.Bits()-1)]))
	}
	return float64(m.to.Max())
}

// preferred returns the scale of the target that keeps the integers of the elements of the first group with values.
func (m *mapper) preferred(groups []group) float32 {
	for _, g := range groups {
		if slices.ContainsFunc(g.list, func(code byte) bool { return m.value[code] != 0 }) {
			return float32(g.scale * m.unit())
		}
	}
	return float32(groups[0].scale * m.unit())
}

// zeroScales reports whether all scales are 0.
func zeroScales(groups []group) bool {
	return !slices.ContainsFunc(groups, func(g group) bool { return g.scale != 0 })
}

// hasNaN returns NotNumber if a scale is NaN.
func hasNaN(groups []group) Why {
	if slices.ContainsFunc(groups, func(g group) bool { return g.scale != g.scale }) {
		return NotNumber
	}
	return Exact
}

// why returns Spread if each code alone has an exact cast, or else why the first has none.
func (m *mapper) why(groups []group, alone func(one []group) Why) Why {
	for _, g := range groups {
		for _, code := range g.list {
			key := single{math.Float32bits(g.scale), code}
			why, known := m.alone[key]
			if !known {
				why = alone([]group{{scale: g.scale, list: []byte{code}}})
				m.alone[key] = why
			}
			if why != Exact {
				return why
			}
		}
	}
	return Spread
}

// solveFP32 is scales.solve for FP32 scales. A scale must give the largest value with some code, so that it is
// that value over one of the codes, or next to the rounded quotient.
func solveFP32(m *mapper, groups []group) (scale float32, why Why) {
	if nan := hasNaN(groups); nan != Exact {
		return float32(math.NaN()), nan
	}
	for _, g := range groups {
		if first := float32(g.scale * m.unit()); first > 0 && !math.IsInf(float64(first), 0) && m.maps(groups, first) {
			return first, Exact
		}
	}
	_, x := m.extent(groups)
	if x == 0 {
		m.maps(groups, 1)
		return 1, Exact
	}
	for code := m.to.MaxCode(); code > 0; code-- {
		near := float32(x / float64(m.back[code]))
		for _, scale := range [3]float32{near, math.Nextafter32(near, 0), math.Nextafter32(near, math.MaxFloat32)} {
			if scale > 0 && scale <= math.MaxFloat32 && m.maps(groups, scale) {
				return scale, Exact
			}
		}
	}
	return 0, Spread // each value alone is the product of 1 and a scale
}
