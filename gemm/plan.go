package gemm

import (
	"encoding/binary"
	"fmt"
	"math"
	"strings"

	"github.com/microscale-go/microscale/format"
	"github.com/microscale-go/microscale/internal/cpu"
	"github.com/microscale-go/microscale/quant"
)

// A plan is one product: the kernel, and how each operand is packed for it.
type plan struct {
	kernel  *kernel
	a, b    side
	m, n, k int
	chunk   int     // positions that share their scales in a panel; KC where all do
	alpha   float32 // with the global scales, where elements do not hold them
}

// A side is one operand of a plan.
type side struct {
	t      *quant.Tensor
	kernel *kernel
	chunk  int
	isA    bool
	scales scaleMode
	other  int32 // of A in int8 panels: the bias of B
	lo, hi byte  // what E8M0 codes are clamped to: only blocks of zeros are beyond
	fast   packFunc
}

// A scaleMode says where the scales of an operand go.
type scaleMode uint8

const (
	folded    scaleMode = iota // into the elements; the panel's scales are 1
	perChunk                   // into the panel's scales
	exponents                  // the same, as exponent fields
)

// slowBF16 reports whether products in BF16 are no faster than in float32: an instruction
// has two for each one of a multiply-add.
func slowBF16(p cpu.Part) bool { return p.BF16Rate*2 <= 1 }

// order returns the kernels of the table as a processor tries them: those of BF16
// panels after the next ones of their tier where these are as fast.
func order(table []*kernel, p cpu.Part) []*kernel {
	list := append([]*kernel(nil), table...)
	for i := 0; i+1 < len(list); i++ {
		k, next := list[i], list[i+1]
		if k.panel == panelBF16 && k.vector == nil && k.Tier == next.Tier && !k.isTwin() && slowBF16(p) {
			list[i], list[i+1] = next, k
			i++
		}
	}
	return list
}

// ordered is the table as this processor tries it.
var (
	processor = cpu.This()
	ordered   = order(kernels, processor)
)

// newPlan takes the first kernel that this processor runs and that can hold the
// operands: their formats, and their scales as they are. The plain float32 one takes
// everything. packed says that b is packed beforehand.
func newPlan(a, b *quant.Tensor, packed bool, o Options) (plan, error) {
	return choosePlan(a, b, packed, cpu.Best() >= cpu.AMX, o)
}

// choosePlan is newPlan where tiles says whether a kernel of tiles is expected to take the
// operands where those before it have too many lines.
func choosePlan(a, b *quant.Tensor, packed, tiles bool, o Options) (plan, error) {
	for _, k := range ordered {
		if o.Kernel != "" && o.Kernel != k.Name || o.Kernel == "" && (k.Tier > cpu.Best() || k.isTwin()) {
			continue
		}
		if m, most := a.Lines(), k.most(packed, tiles); o.Kernel == "" && most < math.MaxInt && (m == 0 || m > most) {
			continue
		}
		if o.Kernel == "" && k.vector != nil && a.Lines() < k.vector.least && slowBF16(processor) {
			continue
		}
		if !cpu.Has(k.Tier) {
			return plan{}, fmt.Errorf("gemm: this processor cannot run the kernel %s", k.Name)
		}
		p, why := k.plan(a, b, o)
		if why == "" {
			return p, nil
		}
		if k.strips != nil && tiles && o.Kernel == "" {
			return choosePlan(a, b, packed, false, o)
		}
		if o.Kernel != "" {
			return plan{}, fmt.Errorf("gemm: the kernel %s cannot multiply %s by %s: %s", k.Name, a.Format, b.Format, why)
		}
	}
	names := make([]string, len(ordered))
	for i, k := range ordered {
		names[i] = k.Name
	}
	return plan{}, fmt.Errorf("gemm: unknown kernel %q: use one of %s", o.Kernel, strings.Join(names, ", "))
}

// most returns the lines of A up to which k is chosen. packed says that b is packed
// beforehand, tiles that a kernel of tiles takes more.
func (k *kernel) most(packed, tiles bool) int {
	switch {
	case k.few != nil && tiles && packed:
		return k.few[1]
	case k.few != nil && tiles:
		return k.few[0]
	case k.vector != nil && packed:
		return k.vector.batchPacked
	case k.vector != nil:
		return k.vector.batch
	}
	return math.MaxInt
}

// dequantized reports whether the operand is multiplied as Dequantize returns it,
// global scales included.
func (s *side) dequantized() bool {
	return s.kernel.panel == panelF32 && (s.isA || s.kernel.vector == nil || s.kernel.vector.dots == nil)
}

// isTwin reports whether k is there to check another kernel, and too slow to be
// chosen.
func (k *kernel) isTwin() bool { return k.Tier == cpu.Plain && k.panel != panelF32 }

// plan returns how k multiplies a by b, or why it cannot.
func (k *kernel) plan(a, b *quant.Tensor, o Options) (p plan, why string) {
	p = plan{kernel: k, m: a.Lines(), n: b.Lines(), k: a.Width(), chunk: k.KC}
	p.a, p.b = side{t: a, kernel: k, isA: true, hi: 255}, side{t: b, kernel: k, hi: 255}
	alpha := float64(o.Alpha)
	if alpha == 0 {
		alpha = 1
	}
	switch {
	case k.vector != nil:
		if why = k.planVector(&p); why != "" {
			return p, why
		}
	case k.panel == panelF32: // holds what Dequantize returns, global scales included
		p.alpha = float32(alpha)
	case k.panel == panelBF16:
		if p.chunk = min(k.KC, commonChunk(a.Format), commonChunk(b.Format)); !fitsChunk(a.Format, p.chunk) || !fitsChunk(b.Format, p.chunk) || k.KC%p.chunk != 0 || p.chunk%k.positions() != 0 {
			return p, "their FP32 scales change at different positions"
		}
	case k.panel == panelInt8:
		p.chunk = k.block
	}
	p.a.other = int8Forms[b.Format.Element].bias
	p.a.chunk, p.b.chunk = p.chunk, p.chunk
	if k.panel != panelF32 || k.vector != nil {
		for _, s := range []*side{&p.a, &p.b} {
			if k.vector == nil {
				if why = s.fit(); why != "" {
					return p, why
				}
			}
			if s.t.Format.Global && !s.dequantized() {
				alpha *= float64(s.t.Global)
			}
			if k.panel == panelInt8 && k.vector == nil {
				alpha *= float64(int8Forms[s.t.Format.Element].unit)
			}
		}
		if p.alpha = float32(alpha); p.alpha == p.alpha && !isModerate(p.alpha) { // NaN makes all of C NaN by every kernel
			return p, "alpha times the global scales is too large or too small"
		}
	}
	if k.vector != nil {
		return p, ""
	}
	p.a.fast, p.b.fast = fastPack(&p.a), fastPack(&p.b)
	return p, ""
}

// positions returns what a chunk is a multiple of: the positions of a step, or of a tile.
func (k *kernel) positions() int {
	if k.strips != nil {
		return k.panel.perStep() * tileSteps
	}
	return k.panel.perStep()
}

// commonChunk returns the positions over which every line of the format has one
// FP32 scale.
func commonChunk(f quant.Format) int {
	if f.Scale == format.F32 && f.Block.Cols > 0 {
		return f.Block.Cols
	}
	return math.MaxInt
}

// fitsChunk reports whether chunks of that many positions end with f's blocks.
func fitsChunk(f quant.Format, chunk int) bool {
	c := commonChunk(f)
	return c == math.MaxInt || c == chunk
}

// The E8M0 codes of A and of B that integer kernels take: the sum of two, less 127, is
// an exponent field, also where units of the elements are added to it, and KC products of
// integers up to 2⁷ times the scales stay below float32's largest: 2¹⁰⁺¹⁴⁺²·⁽¹⁷⁸⁻¹²⁷⁾.
const leastExponent, largestExponent = 72, 178

// fit settles how the operand goes into BF16 or int8 panels without loss, or
// says why it does not.
func (s *side) fit() (why string) {
	f := s.t.Format
	if s.kernel.panel == panelInt8 {
		switch _, ok := int8Forms[f.Element]; {
		case !ok:
			return "the elements are no small integers"
		case f.Block.Cols != s.kernel.block:
			return "the blocks are not those of the kernel"
		case s.kernel.pow2 && f.Scale == format.E8M0:
			s.scales, s.lo, s.hi = exponents, leastExponent, largestExponent
			return s.checkExponents()
		case !s.kernel.pow2 && f.Scale == format.E4M3:
			s.scales, s.hi = perChunk, byte(format.E4M3.MaxCode())
			return ""
		}
		return "the scales are not those of the kernel"
	}
	const bf16Significand = 8
	switch e := f.Element; {
	case e == format.BF16:
		return ""
	case e == format.F32:
		return "float32 elements do not fit into BF16"
	case f.Scale == format.F32:
		s.scales = perChunk
		for _, x := range s.t.Scales32 {
			if !isModerate(x) {
				return "FP32 scales are too large, too small or NaN"
			}
		}
		return ""
	case f.Scale == format.E8M0:
		// The least element stays normal, the largest finite.
		least := math.Ilogb(float64(e.Smallest()))
		s.lo, s.hi = byte(1-least), byte(253-e.MaxExponent())
		return s.checkExponents()
	case e.Integer || e.Mantissa+1+format.E4M3.Mantissa+1 > bf16Significand:
		return "elements times E4M3 scales do not fit into BF16"
	}
	return ""
}

// isModerate reports whether products of a few such factors, and quotients of
// them, stay normal float32 numbers.
func isModerate(x float32) bool {
	const limit = 1 << 40
	x = max(x, -x)
	return x == 0 || x >= 1.0/limit && x <= limit
}

// checkExponents reports E8M0 scales outside [lo, hi], NaN among them. Blocks of
// zeros may have any scale but NaN.
func (s *side) checkExponents() (why string) {
	codes := s.t.Scales
	const ones = 0x0101010101010101
	i := 0
	for ; i+8 <= len(codes); i += 8 { // eight at a time, as long as all are within
		x := binary.LittleEndian.Uint64(codes[i:])
		low := (x - ones*uint64(s.lo)) &^ x
		high := (^x - ones*uint64(255-s.hi)) & x
		if (low|high)&(0x80*ones) != 0 && !s.zerosOutside(i, i+8) {
			return "E8M0 scales are too large, too small or NaN"
		}
	}
	if !s.zerosOutside(i, len(codes)) {
		return "E8M0 scales are too large, too small or NaN"
	}
	return ""
}

// zerosOutside reports whether blocks from..to whose scale is outside [lo, hi]
// are zeros.
func (s *side) zerosOutside(from, to int) bool {
	const nan = 0xff
	f := s.t.Format
	_, cols := s.t.ScaleShape()
	for i := from; i < to; i++ {
		code := s.t.Scales[i]
		if code >= s.lo && code <= s.hi {
			continue
		}
		if code == nan {
			return false
		}
		rows, width := f.Block.Rows, f.Block.Cols
		if rows == 0 {
			rows = s.t.Lines()
		}
		if width == 0 {
			width = s.t.Width()
		}
		l0, k0 := i/cols*rows, i%cols*width
		for l := l0; l < min(l0+rows, s.t.Lines()); l++ {
			if !s.isZero(l, k0, min(k0+width, s.t.Width())) {
				return false
			}
		}
	}
	return true
}

// isZero reports whether elements k0..k1 of a line with scales are zeros of either sign.
func (s *side) isZero(l, k0, k1 int) bool {
	e, n := s.t.Format.Element, s.t.LineBytes() // elements with scales have at most eight bits
	line := s.t.Codes[l*n : (l+1)*n]
	var values [64]float32
	for ; k0 < k1; k0 += len(values) {
		part := values[:min(len(values), k1-k0)]
		s.narrow(part, line[k0*e.StoredBits()/8:])
		for _, v := range part {
			if v != 0 {
				return false
			}
		}
	}
	return true
}
