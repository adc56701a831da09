package interop

import (
	"math"
	"math/rand/v2"

	"github.com/microscale-go/microscale/format"
	"github.com/microscale-go/microscale/quant"
	"github.com/microscale-go/microscale/tensor"
)

// bitsInputs returns tensors of one shape with blocks on which libraries differ: every exponent
// of amax, with mantissas around the thresholds of the scale rules; elements at the values and
// midpoints of the codes and next to them; zeros, subnormals, the largest float32, Inf and NaN;
// and random blocks. If narrow is set, all values are BF16.
func bitsInputs(f quant.Format, narrow bool) []tensor.Dense {
	g := blockMaker{
		random:  rand.New(rand.NewPCG(uint64(len(f.Name)), 7)),
		element: f.Element,
		narrow:  narrow,
	}
	width := f.Block.Cols
	if width == 0 || width > 64 {
		width = 64 // a partial block, where blocks are wider
	}
	if !f.Global {
		blocks := g.blocks(width)
		if f.Block.Rows == 1 { // one tensor: no block knows of another
			x := tensor.New(len(blocks), width)
			for i, b := range blocks {
				copy(x.Row(i), b)
			}
			return []tensor.Dense{x}
		}
		var all []tensor.Dense
		for _, b := range blocks {
			all = append(all, tensor.Of(1, width, b))
		}
		return all
	}
	// Blocks under a global scale: the first has the amax of the tensor, the others decreasing
	// ones, and the last that of a block without global scale.
	const perTensor = 4
	var all []tensor.Dense
	for _, first := range g.blocks(width) {
		x := tensor.New(1, perTensor*width)
		copy(x.Data, first)
		amax := maxFinite(first)
		for j := 1; j < perTensor; j++ {
			down := math.Exp2(-8 * g.random.Float64() * float64(j))
			a := g.round(float32(float64(amax) * down))
			if j == perTensor-1 && g.random.IntN(4) == 0 {
				a = 0
			}
			copy(x.Data[j*width:], g.block(width, math.Float32bits(a)))
		}
		all = append(all, x)
	}
	return append(all, g.scaleTies(f, perTensor)...)
}

// scaleTies returns tensors of n blocks whose quotients amax/max are the midpoints of the codes of
// the scale, and next to them: those of libraries without a global scale.
func (g *blockMaker) scaleTies(f quant.Format, n int) []tensor.Dense {
	var all []tensor.Dense
	for code := range f.Scale.MaxCode() {
		x := tensor.New(1, n*f.Block.Cols)
		for j := range n {
			a := math.Float32bits((f.Scale.Decode(code) + f.Scale.Decode(code+1)) / 2 * f.Element.Max())
			ulp := uint32(1)
			if g.narrow {
				ulp = 1 << 16
			}
			copy(x.Data[j*f.Block.Cols:], g.block(f.Block.Cols, a+ulp*uint32(j%3)-ulp))
		}
		all = append(all, x)
	}
	return all
}

type blockMaker struct {
	random  *rand.Rand
	element *format.Scalar
	narrow  bool
}

// round rounds a value to the dtype of the source.
func (g *blockMaker) round(x float32) float32 {
	if g.narrow {
		return math.Float32frombits(math.Float32bits(x) &^ 0xffff)
	}
	return x
}

// mantissas returns mantissas near the thresholds of scale rules: powers of two, the largest
// element, values that round up to the next power of two at each width up to seven bits, those
// over √2, and a few random ones.
func (g *blockMaker) mantissas() []uint32 {
	const all = 1<<23 - 1
	ulp := uint32(1)
	if g.narrow {
		ulp = 1 << 16
	}
	largest := math.Float32bits(g.element.Max()) & all
	at := []uint32{0, largest, 0x400000, math.Float32bits(math.Sqrt2) & all}
	for width := range 8 {
		at = append(at, 1<<23-1<<(22-width)) // rounds up to 2 at that many bits
	}
	half := float64(g.element.Max()) / math.Sqrt2
	at = append(at, math.Float32bits(float32(half))&all)
	seen := map[uint32]bool{}
	var mantissas []uint32
	add := func(m uint32) {
		m &= all &^ (ulp - 1)
		if !seen[m] {
			seen[m] = true
			mantissas = append(mantissas, m)
		}
	}
	for _, m := range at {
		add(m)
		add(m + ulp)
		add(m - ulp)
	}
	for range 4 {
		add(g.random.Uint32())
	}
	return mantissas
}

// blocks returns blocks with various amaxes, some with special values.
func (g *blockMaker) blocks(width int) [][]float32 {
	var all [][]float32
	mantissas := g.mantissas()
	for exponent := range uint32(255) {
		for _, m := range mantissas {
			all = append(all, g.block(width, exponent<<23|m))
		}
	}
	nan, inf := float32(math.NaN()), float32(math.Inf(1))
	minusNaN := math.Float32frombits(0xffc00000)
	zero, minusZero := float32(0), float32(math.Copysign(0, -1))
	for _, special := range [][]float32{
		{nan}, {minusNaN}, {inf}, {-inf}, {nan, inf}, {-inf, inf, minusNaN}, {zero}, {minusZero}, {zero, minusZero},
	} {
		for _, amax := range []uint32{0, 0x3f800000, 0x43e00000, 0x7f7f0000, 0x00400000, 0x04e00000} {
			b := g.block(width, amax)
			copy(b[1:], special)
			all = append(all, b)
		}
		alone := make([]float32, width)
		for i := range alone {
			alone[i] = special[i%len(special)]
		}
		all = append(all, alone)
	}
	for range 500 { // random blocks, some with a wide range of magnitudes
		spread := 8 * g.random.Float64()
		scale := math.Exp2(float64(g.random.IntN(60) - 30))
		b := make([]float32, width)
		for i := range b {
			b[i] = g.round(float32(g.random.NormFloat64() * scale * math.Exp2(-spread*g.random.Float64())))
		}
		all = append(all, b)
	}
	return all
}

// block returns a block of the given amax. Its other elements are the values of codes under the
// scales of all rules, the midpoints between them, the neighbors of both, and zeros.
func (g *blockMaker) block(width int, amax uint32) []float32 {
	a := math.Float32frombits(amax)
	floor := math.Exp2(float64(max(int(amax>>23), 1) - 127 - g.element.MaxExponent()))
	units := []float64{floor, 2 * floor, floor / 2, float64(a) / float64(g.element.Max())}
	codes := int(g.element.MaxCode()) + 1
	b := make([]float32, width)
	for i := range b {
		code := uint32(g.random.IntN(codes))
		low, high := float64(g.element.Decode(code)), float64(g.element.Max())
		if code < g.element.MaxCode() {
			high = float64(g.element.Decode(code + 1))
		}
		x := low
		if g.random.IntN(4) > 0 {
			x = (low + high) / 2
		}
		v := g.round(float32(x * units[g.random.IntN(len(units))]))
		ulp := uint32(1)
		if g.narrow {
			ulp = 1 << 16
		}
		bits := math.Float32bits(v)
		switch g.random.IntN(4) {
		case 0:
			bits += ulp
		case 1:
			bits -= min(ulp, bits)
		}
		if bits > amax {
			bits = amax
		}
		v = math.Float32frombits(bits)
		if g.random.IntN(2) == 0 {
			v = -v
		}
		b[i] = v
	}
	b[0] = a
	if g.random.IntN(2) == 0 {
		b[0] = -a
	}
	if width > 8 { // the last of a block are what is often forgotten
		b[width-1] = float32(math.Copysign(0, -1))
		b[width-2] = g.round(math.Float32frombits(min(amax, g.random.Uint32()&0x7fffff)))
	}
	return b
}

func maxFinite(x []float32) float32 {
	var most float32
	for _, v := range x {
		if a := float32(math.Abs(float64(v))); a > most && a <= math.MaxFloat32 {
			most = a
		}
	}
	return most
}
