package gemm

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/microscale-go/microscale/format"
	"github.com/microscale-go/microscale/internal/cpu"
	"github.com/microscale-go/microscale/quant"
)

// A plan describes one product: the kernel, and how each operand is packed for it.
type plan struct {
	kernel  *kernel
	unit    *unitPlan // instead of kernel, with Options.Accumulator
	a, b    side
	m, n, k int
	chunk   int     // positions that share a panel scale; KC if all do
	alpha   float32 // includes the global scales that the elements do not
}

// A side is one operand of a plan.
type side struct {
	t      *quant.Tensor
	form   form
	kernel *kernel
	chunk  int
	isA    bool
	scales scaleMode
	other  int32 // of A in int8 panels: the bias of B
	lo, hi byte  // range to which E8M0 codes are clamped; only blocks of zeros are outside
	fast   packFunc
}

// A form says how the codes of an operand are stored.
type form uint8

const (
	rowMajor    form = iota
	inPanels         // and row-major: the operand is packed already
	interleaved      // as in Interleaved
)

// A scaleMode says where packing puts the scales of an operand.
type scaleMode uint8

const (
	folded    scaleMode = iota // multiplied into the elements; the panel's scales are 1
	perChunk                   // the panel's scales
	exponents                  // the panel's scales, powers of two (see kernel)
)

// order returns the kernels in the order in which a processor tries them: that of the table, but for the
// tile kernels of float panels. These follow by the rates of their instructions, fastest first, and the
// wider panel first where two are equal.
func order(table []*kernel, p cpu.Part) []*kernel {
	list := slices.Clone(table)
	var places []int
	var tiles []*kernel
	for i, k := range list {
		if k.vector == nil && k.panel != panelInt8 && k.needs != 0 {
			places, tiles = append(places, i), append(tiles, k)
		}
	}
	slices.SortStableFunc(tiles, func(a, b *kernel) int {
		return cmp.Or(-cmp.Compare(p.Rate(a.Peak), p.Rate(b.Peak)), cmp.Compare(a.panel, b.panel))
	})
	for i, at := range places {
		list[at] = tiles[i]
	}
	return list
}

// ordered is the kernel table in the order of this processor.
var ordered = func() []*kernel {
	tune(kernels, cpu.This())
	return order(kernels, cpu.This())
}()

// newPlan returns the plan of the first kernel that this processor runs and that supports the
// formats and scales of the operands. The portable float32 kernel supports all.
func newPlan(a, b *quant.Tensor, stored form, o Options) (plan, error) {
	a, b = withFloatScales(a), withFloatScales(b)
	if o.Accumulator.Model != nil {
		return planUnit(a, b, o)
	}
	return choosePlan(a, b, stored, cpu.Best() >= cpu.AMX, o)
}

// withFloatScales returns t with FP32 scales, in the same memory, if its scales are BF16: kernels have one case for both.
func withFloatScales(t *quant.Tensor) *quant.Tensor {
	if t.Format.Scale != format.BF16 {
		return t
	}
	wide := *t
	wide.Format.Scale = format.F32
	return &wide
}

// choosePlan is newPlan with the row limits of vector kernels for a processor with AMX if
// tiles is set. If no tile kernel supports the operands, it retries with the other limits.
func choosePlan(a, b *quant.Tensor, stored form, tiles bool, o Options) (plan, error) {
	for _, k := range ordered {
		if o.Kernel != "" && o.Kernel != k.Name || o.Kernel == "" && (!k.runs() || k.isTwin()) {
			continue
		}
		if m, maxRows := a.StoredRows(), k.maxRows(stored, tiles); o.Kernel == "" && maxRows < math.MaxInt && (m == 0 || m > maxRows) {
			continue
		}
		if o.Kernel == "" && a.StoredRows() < k.leastRows(stored) {
			continue
		}
		if !cpu.Has(k.needs) {
			return plan{}, fmt.Errorf("gemm: kernel %s: unsupported by this processor", k.Name)
		}
		p, why := k.plan(a, b, stored, o)
		if why == "" {
			return p, nil
		}
		if k.macro != nil && tiles && o.Kernel == "" {
			return choosePlan(a, b, stored, false, o)
		}
		if o.Kernel != "" {
			return plan{}, fmt.Errorf("gemm: kernel %s does not support %s × %s: %s", k.Name, a.Format, b.Format, why)
		}
	}
	names := make([]string, len(ordered))
	for i, k := range ordered {
		names[i] = k.Name
	}
	return plan{}, fmt.Errorf("gemm: unknown kernel: got %q, want one of %s", o.Kernel, strings.Join(names, ", "))
}

// runs reports whether k may be chosen: whether this processor has its features, and none with which other
// kernels are faster.
func (k *kernel) runs() bool { return cpu.Uses(k.needs) && (k.unless == 0 || !cpu.Uses(k.unless)) }

// leastRows returns the number of rows of A from which on k is chosen, for b in the given form.
func (k *kernel) leastRows(stored form) int {
	switch {
	case k.vector != nil && k.vector.interleaved != nil && stored != interleaved:
		return cmp.Or(k.rows.rowMajor, math.MaxInt)
	case k.vector == nil && stored == inPanels: // b needs no packing
		return 0
	}
	return k.rows.least
}

// maxRows returns the number of rows of A up to which k is chosen, for b in the given form.
// tiles reports whether a tile kernel handles more rows.
func (k *kernel) maxRows(stored form, tiles bool) int {
	limits := k.rows
	if tiles {
		limits = k.rowsBeforeTiles
	}
	if stored == inPanels {
		return limits.packed
	}
	return limits.most
}

// dequantized reports whether the operand is multiplied as Dequantize returns it, global scale
// included.
func (s *side) dequantized() bool {
	return s.kernel.panel == panelF32 && (s.isA || s.kernel.vector == nil || s.kernel.vector.generic())
}

// A packing is a packing function in assembly, the processor features that it needs, and the operands that it
// is for, by name and by supports.
type packing struct {
	needs    cpu.Set
	of       string
	supports func(side) bool // by value, so that plans stay on the stack
	pack     packFunc
}

func init() {
	cpu.AddTable("gemm", &packings, func(p *packing) (string, cpu.Set) { return "packing, " + p.of, p.needs })
}

// fastPack returns the packing function in assembly for the operand, or nil if there is none. missing
// reports whether there is one that this processor cannot run.
func fastPack(s *side) (pack packFunc, missing bool) {
	if s.kernel.needs == 0 {
		return nil, false
	}
	for _, p := range packings {
		if p.supports(*s) {
			if cpu.Uses(p.needs) {
				return p.pack, false
			}
			missing = true
		}
	}
	return nil, missing
}

// isTwin reports whether k exists only to test another kernel and is never chosen by default.
func (k *kernel) isTwin() bool { return k.needs == 0 && k.panel != panelF32 }

// plan returns how k multiplies a by b, or the reason why it cannot.
func (k *kernel) plan(a, b *quant.Tensor, stored form, o Options) (p plan, why string) {
	p = plan{kernel: k, m: a.StoredRows(), n: b.StoredRows(), k: a.StoredCols(), chunk: k.KC}
	p.a, p.b = side{t: a, kernel: k, isA: true, hi: 255}, side{t: b, form: stored, kernel: k, hi: 255}
	alpha := float64(o.Alpha)
	if alpha == 0 {
		alpha = 1
	}
	switch {
	case k.vector != nil && k.vector.interleaved == nil && stored == interleaved:
		return p, "b is interleaved"
	case k.vector != nil && k.vector.interleaved != nil && stored != interleaved && !k.vector.integers:
		return p, "b is not interleaved"
	case k.vector != nil:
		if why = k.planVector(&p); why != "" {
			return p, why
		}
	case k.panel == panelF32: // the panels hold the values of Dequantize, global scales included
		p.alpha = float32(alpha)
	case k.panel == panelBF16:
		if p.chunk = min(k.KC, commonChunk(a.Format), commonChunk(b.Format)); !fitsChunk(a.Format, p.chunk) || !fitsChunk(b.Format, p.chunk) ||
			k.KC%p.chunk != 0 || p.chunk%k.positions() != 0 {
			return p, "the blocks of their FP32 scales differ"
		}
	case k.panel == panelInt8:
		p.chunk = k.block
	}
	if !k.wide {
		p.a.other = int8Forms[b.Format.Element].bias
	}
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
		if p.alpha = float32(alpha); p.alpha == p.alpha && !k.supportsAlpha(p.alpha) { // a NaN makes all of C NaN with every kernel
			return p, "alpha times the global scales is out of range"
		}
	}
	if k.vector != nil {
		return p, ""
	}
	var missing [2]bool
	p.a.fast, missing[0] = fastPack(&p.a)
	p.b.fast, missing[1] = fastPack(&p.b)
	if o.Kernel == "" && (missing[0] || missing[1]) { // packing in Go takes longer than a slower kernel
		return p, "this processor has no instructions to pack it"
	}
	return p, ""
}

// positions returns the unit of a chunk's length: the positions of a step, of two in wide panels, or of a tile.
func (k *kernel) positions() int {
	if k.macro != nil {
		return k.panel.perStep() * tileSteps
	}
	if k.wide {
		return 2 * k.panel.perStep()
	}
	return k.panel.perStep()
}

// commonChunk returns the number of positions over which every row of the format has one FP32
// scale.
func commonChunk(f quant.Format) int {
	if f.Scale == format.F32 && f.Block.Cols > 0 {
		return f.Block.Cols
	}
	return math.MaxInt
}

// fitsChunk reports whether f's blocks coincide with chunks of the given length.
func fitsChunk(f quant.Format, chunk int) bool {
	c := commonChunk(f)
	return c == math.MaxInt || c == chunk
}

// minExponent and maxExponent bound the E8M0 codes of A and B that int8 kernels support.
// 1.5·2²³ times a scale and every product of a block are normal float32 numbers. The sum of KC
// products of integers up to 2⁷ times both scales stays below the largest float32:
// 2¹¹⁺¹⁴⁺²·⁽¹⁷⁸⁻¹²⁷⁾.
const minExponent, maxExponent = 72, 178

// fit sets how the operand converts to BF16 or int8 panels without loss, or returns the reason
// why it cannot.
func (s *side) fit() (why string) {
	f := s.t.Format
	if s.kernel.panel == panelInt8 {
		switch _, ok := int8Forms[f.Element]; {
		case !ok:
			return "the elements are not small integers"
		case f.Block.Cols != s.kernel.block:
			return "unsupported block size"
		case s.kernel.pow2 && f.Scale == format.E8M0:
			s.scales, s.lo, s.hi = exponents, minExponent, maxExponent
			return s.checkExponents()
		case !s.kernel.pow2 && f.Scale == format.E4M3:
			s.scales, s.hi = perChunk, byte(format.E4M3.MaxCode())
			return ""
		}
		return "unsupported scale format"
	}
	const bf16Significand = 8
	switch e := f.Element; {
	case e == format.BF16:
		return ""
	case e == format.F32:
		return "float32 elements do not fit BF16"
	case f.Scale == format.F32:
		s.scales = perChunk
		for _, x := range s.t.Scales32 {
			if !isModerate(x) {
				return "an FP32 scale is out of range or NaN"
			}
		}
		return ""
	case f.Scale == format.E8M0:
		// The smallest element stays normal, the largest stays finite.
		smallest := math.Ilogb(float64(e.Smallest()))
		s.lo, s.hi = byte(1-smallest), byte(253-e.MaxExponent())
		return s.checkExponents()
	case e.Integer || e.Mantissa+1+format.E4M3.Mantissa+1 > bf16Significand:
		return "elements times E4M3 scales do not fit BF16"
	}
	return ""
}

// isModerate reports whether products and quotients of a few such factors are normal float32
// numbers.
func isModerate(x float32) bool {
	const lowest, highest, sign = (127 - 40) << 23, (127 + 40) << 23, 1 << 31 // bits of 2⁻⁴⁰, 2⁴⁰ and -0
	b := math.Float32bits(x) &^ sign
	return b == 0 || b-lowest <= highest-lowest
}

// supportsAlpha reports whether k computes a product with the factor alpha, which includes global
// scales, within the bound. Int8 kernels multiply each sum by alpha once, at the end, so any normal
// number keeps the bound. The others multiply it by scales first.
func (k *kernel) supportsAlpha(alpha float32) bool {
	const smallestNormal = 0x1p-126
	if k.panel == panelInt8 && k.vector == nil {
		a := max(alpha, -alpha)
		return a == 0 || a >= smallestNormal && a <= math.MaxFloat32
	}
	return isModerate(alpha)
}

// checkExponents returns a reason if an E8M0 scale is NaN or outside [lo, hi]. A block of
// zeros may have any scale but NaN.
func (s *side) checkExponents() (why string) {
	codes := s.t.Scales
	const ones = 0x0101010101010101
	i := 0
	for ; i+8 <= len(codes); i += 8 { // eight at a time
		x := binary.LittleEndian.Uint64(codes[i:])
		low := (x - ones*uint64(s.lo)) &^ x
		high := (^x - ones*uint64(255-s.hi)) & x
		if (low|high)&(0x80*ones) != 0 && !s.zerosOutside(i, i+8) {
			return "an E8M0 scale is out of range or NaN"
		}
	}
	if !s.zerosOutside(i, len(codes)) {
		return "an E8M0 scale is out of range or NaN"
	}
	return ""
}

// zerosOutside reports whether those of the blocks from..to whose scale is outside [lo, hi]
// are all zeros.
func (s *side) zerosOutside(from, to int) bool {
	const nan = 0xff
	f := s.t.Format
	_, cols := s.t.ScaleShape()
	for i := from; i < to; i++ {
		code := s.t.Scales[i]
		if code >= s.lo && code <= s.hi {
			continue
		}
		if code == nan || s.form == interleaved { // Interleave has replaced the scales of zeros
			return false
		}
		rows, width := f.Block.Rows, f.Block.Cols
		if rows == 0 {
			rows = s.t.StoredRows()
		}
		if width == 0 {
			width = s.t.StoredCols()
		}
		l0, k0 := i/cols*rows, i%cols*width
		for l := l0; l < min(l0+rows, s.t.StoredRows()); l++ {
			if !s.isZero(l, k0, min(k0+width, s.t.StoredCols())) {
				return false
			}
		}
	}
	return true
}

// isZero reports whether elements k0..k1 of row l are zeros of either sign. The operand must
// have scales.
func (s *side) isZero(l, k0, k1 int) bool {
	e, n := s.t.Format.Element, s.t.RowBytes() // elements with scales have at most eight bits
	row := s.t.Codes[l*n : (l+1)*n]
	var values [64]float32
	for ; k0 < k1; k0 += len(values) {
		part := values[:min(len(values), k1-k0)]
		s.narrow(part, row[k0*e.StoredBits()/8:])
		for _, v := range part {
			if v != 0 {
				return false
			}
		}
	}
	return true
}
