package lossless

import (
	"cmp"
	"fmt"
	"math"
	"math/bits"

	"github.com/microscale-go/microscale/format"
	"github.com/microscale-go/microscale/quant"
)

// A Block is a target block without an exact cast.
type Block struct {
	Row int // the first row of the block
	Col int // the index of the block in its rows
	Why Why
}

// A Caster casts tiles of one weight. It is not safe for concurrent use.
type Caster struct {
	Cast
	mapper *mapper
	scales *scales // nil: FP32

	known   map[key]solution // of blocks of one group of E2M1 codes
	rounded map[pair]*[256]byte
	block   block

	codes, out   []byte // a row of blocks, a byte for each element
	sourceScales []float32
}

// A key is a group of E2M1 codes with a scale.
type key struct {
	scale      uint32
	magnitudes uint8 // a bit for each code without sign
}

// signE2M1 is the sign of a code of E2M1.
const signE2M1 = 1 << 3

// keyOf returns the key of a group.
func keyOf(scale float32, codes uint64) key {
	return key{math.Float32bits(scale), uint8(codes | codes>>signE2M1)}
}

// A solution is the cast of a key.
type solution struct {
	scale float32 // FP32
	code  byte    // or of one byte
	why   Why
	to    [16]byte
}

// A pair is the bits of a decode scale of the source and of one of the target.
type pair [2]uint32

// New returns a caster. level returns the decode scale of a code of the target's block scales: times the
// global scale, as clients compute it. It is ignored for FP32 scales.
func New(c Cast, level func(code byte) float32) *Caster {
	t := &Caster{Cast: c, mapper: newMapper(c.From.Element, c.To.Element), known: map[key]solution{},
		rounded: map[pair]*[256]byte{}}
	if c.To.ByteScales() {
		t.scales = newScales(c.To.Scale, level)
	}
	return t
}

// Tile sets the codes and scales of dst to those of src, a rowwise tensor of the same shape whose RowScales are the
// decode scales that clients compute. It returns the blocks without an exact cast. With nearest, they have the
// nearest codes under the scale that Caster.nearest finds, and are else zeros.
func (c *Caster) Tile(dst, src *quant.Tensor, nearest bool) (inexact []Block, err error) {
	if src.Rows() != dst.Rows() || src.Cols() != dst.Cols() || dst.Format.Name != c.To.Name {
		return nil, fmt.Errorf("cast %s to %s: got tensors of %v and %v", c.From, c.To, src.Shape, dst.Shape)
	}
	high, wide := cmp.Or(c.To.Block.Rows, src.Rows()), cmp.Or(c.To.Block.Cols, src.Cols())
	from, to := c.From.PaddedCols(src.Cols()), c.To.PaddedCols(dst.Cols())
	_, blocks := src.ScaleShape()
	_, targets := dst.ScaleShape()
	c.codes, c.out = grown(c.codes, high*from), grown(c.out, high*to)
	c.sourceScales = grown(c.sourceScales, high*blocks)
	for row := 0; row < src.Rows(); row += high {
		n := min(high, src.Rows()-row)
		for i := range n {
			split(src.Format.Element, c.codes[i*from:(i+1)*from], src.Codes[(row+i)*src.RowBytes():])
			src.RowScales(c.sourceScales[i*blocks:(i+1)*blocks], row+i)
		}
		clear(c.out)
		for j := range targets {
			at := area{rows: n, col: j * wide, end: min((j+1)*wide, src.Cols()), from: from, to: to, blocks: blocks}
			scale, code, why := c.cast(at, nearest)
			if why != Exact {
				inexact = append(inexact, Block{row, j, why})
			}
			if c.scales == nil {
				dst.Scales32[row/high*targets+j] = scale
			} else {
				dst.Scales[row/high*targets+j] = code
			}
		}
		for i := range n {
			join(dst.Format.Element, dst.Codes[(row+i)*dst.RowBytes():(row+i+1)*dst.RowBytes()], c.out[i*to:(i+1)*to])
		}
	}
	return inexact, nil
}

// grown returns a slice of n elements, s if that is large enough.
func grown[E any](s []E, n int) []E {
	if cap(s) < n {
		return make([]E, n)
	}
	return s[:n]
}

func split(f *format.Scalar, codes, stored []byte) {
	if f.StoredBits() == 8 {
		copy(codes, stored)
		return
	}
	f.Split(codes, stored)
}

func join(f *format.Scalar, stored, codes []byte) {
	if f.StoredBits() == 8 {
		copy(stored, codes)
		return
	}
	f.Join(stored, codes)
}

// An area is a target block in the rows of blocks of a Caster.
type area struct {
	rows, col, end int // rows [0, rows), columns [col, end)
	from, to       int // elements of a row of the source and of the target
	blocks         int // scales of a row of the source
}

// runs calls f for the runs of elements with one scale of the source: row, and columns [begin, end).
func (c *Caster) runs(a area, f func(scale float32, row, begin, end int)) {
	width := c.From.Block.Cols
	if width == 0 {
		width = a.from
	}
	for i := range a.rows {
		for begin := a.col; begin < a.end; {
			block := begin / width
			end := min((block+1)*width, a.end)
			f(c.sourceScales[i*a.blocks+block], i, begin, end)
			begin = end
		}
	}
}

// cast casts one block.
func (c *Caster) cast(a area, nearest bool) (scale float32, code byte, why Why) {
	c.block.reset()
	c.runs(a, func(scale float32, row, begin, end int) {
		g := c.block.at(scale)
		for _, code := range c.codes[row*a.from+begin : row*a.from+end] {
			g.codes.add(code)
		}
	})
	scale, code, why = c.solve()
	if why != Exact && nearest {
		scale, code = c.nearest(a)
	} else if why != Exact {
		return scale, code, why
	}
	c.runs(a, func(scale float32, row, begin, end int) {
		g := c.block.at(scale)
		out := c.out[row*a.to+begin : row*a.to+end]
		for k, code := range c.codes[row*a.from+begin : row*a.from+end] {
			out[k] = g.to[code]
		}
	})
	return scale, code, why
}

// solve finds the scale of c.block, and sets the codes of its groups.
func (c *Caster) solve() (scale float32, code byte, why Why) {
	groups := c.block.used()
	if len(groups) == 1 && c.From.Element == format.E2M1 {
		s := c.solution(keyOf(groups[0].scale, groups[0].codes[0]))
		copy(groups[0].to[:], s.to[:])
		return s.scale, s.code, s.why
	}
	for i := range groups {
		groups[i].fill()
	}
	return c.search(groups)
}

// fill lists the codes of a group.
func (g *group) fill() {
	g.list = g.list[:0]
	for i, word := range g.codes {
		for ; word != 0; word &= word - 1 {
			g.list = append(g.list, byte(64*i+bits.TrailingZeros64(word)))
		}
	}
}

// solution returns the cast of a key.
func (c *Caster) solution(k key) solution {
	if s, ok := c.known[k]; ok {
		return s
	}
	one := []group{{scale: math.Float32frombits(k.scale), codes: codeSet{uint64(k.magnitudes)}}}
	one[0].fill()
	var s solution
	s.scale, s.code, s.why = c.search(one)
	sign := byte(1) << (c.To.Element.Bits() - 1)
	for code := range byte(signE2M1) {
		s.to[code], s.to[code|signE2M1] = one[0].to[code], one[0].to[code]|sign
	}
	c.known[k] = s
	return s
}

// search solves a block of any groups. A NaN scale is kept if the target has scales of the same format.
func (c *Caster) search(groups []group) (scale float32, code byte, why Why) {
	if c.scales == nil {
		scale, why = solveFP32(c.mapper, groups)
	} else {
		code, why = c.scales.solve(c.mapper, groups)
	}
	if why == NotNumber && len(groups) == 1 && c.From.Scale == c.To.Scale && !c.To.Global {
		values := []group{{scale: 1, list: groups[0].list}}
		if c.mapper.maps(values, 1/c.mapper.unit()) {
			groups[0].to, why = values[0].to, Exact
		}
	}
	return scale, code, why
}

// nearest rounds a block, and sets the codes of its groups. The scale is that which the largest element needs, or of
// one byte, the one near it with the least squared error. NaN stays NaN.
func (c *Caster) nearest(a area) (scale float32, code byte) {
	groups := c.block.used()
	for i := range groups {
		groups[i].fill()
	}
	if c.scales != nil && hasNaN(groups) != Exact {
		for i := range groups {
			groups[i].to = [256]byte{} // codes of blocks before
		}
		return 0, c.scales.nan
	}
	_, largest := c.mapper.extent(groups)
	top := float32(largest / float64(c.To.Element.Max()))
	if c.scales == nil {
		top = cmp.Or(top, 1)
		c.round(groups, top)
		return top, 0
	}
	first, nearby := c.scales.nearest(top), 1<<c.To.Scale.Mantissa // an octave
	least, code := math.Inf(1), byte(max(first, 1))
	for at := max(first-nearby, 0); at <= min(first+nearby, c.scales.last); at++ {
		if c.scales.value[at] == 0 {
			continue
		}
		c.round(groups, c.scales.value[at])
		if e := c.squared(a, c.scales.value[at]); e < least {
			least, code = e, byte(at)
		}
	}
	c.round(groups, c.scales.value[code])
	return 0, code
}

// round sets the codes of the groups to the nearest ones under a scale.
func (c *Caster) round(groups []group, scale float32) {
	for i := range groups {
		g := &groups[i]
		key := pair{math.Float32bits(g.scale), math.Float32bits(scale)}
		to := c.rounded[key]
		if to == nil {
			to = new([256]byte)
			for code := range 1 << c.From.Element.Bits() {
				to[code] = c.mapper.nearest(float32(float32(g.scale*c.mapper.value[code]) / scale))
			}
			c.rounded[key] = to
		}
		g.to = *to
	}
}

// squared returns the squared error of the codes of the groups under a scale, without elements that are not finite.
func (c *Caster) squared(a area, scale float32) (sum float64) {
	c.runs(a, func(of float32, row, begin, end int) {
		g := c.block.at(of)
		for _, code := range c.codes[row*a.from+begin : row*a.from+end] {
			e := float64(float32(of*c.mapper.value[code])) - float64(float32(scale*c.mapper.back[g.to[code]]))
			if e-e == 0 {
				sum += float64(e * e)
			}
		}
	})
	return sum
}
