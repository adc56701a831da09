package gemm

import (
	"unsafe"

	"github.com/microscale-go/microscale/internal/cpu"
	"github.com/microscale-go/microscale/quant"
)

// A microkernel multiplies a panel of A by panels of B into a tile of C.
//
// A panel holds some lines of an operand (its lanes: 16 or 8) over some
// positions along K, as a sequence of chunks. A chunk is the run of positions in
// which every line has one scale:
//
//	chunk   steps × lanes × 4 bytes   the elements
//	                lanes × float32   their scales
//	                lanes × int32     panels of A of the type int8 only: see below
//
// A step is 4 bytes of every lane, one lane behind the other: one float32, two
// BF16 elements that follow each other along K, or four int8 elements: of eight
// that follow each other the even ones in one step, the odd ones in the next. The
// kernel computes,
// for the MR lanes i of A and the lanes j of one to NR/Lanes panels of B,
//
//	C[i][j] (+)= alpha · Σ over chunks of scale_a[i] · scale_b[j] · Σ over the chunk of a[i][k]·b[j][k]
//
// where BF16 and float32 kernels round alpha·scale_b, then times scale_a, and add
// each chunk to C with one fused multiply-add. "(+)=" adds to C where accumulate
// is set, and does not read C where it is not: C may be NaN then. A tile is
// always whole: the loops give the kernel a scratch tile where C ends within it,
// and panels are filled up with zeros.
//
// int8 panels hold the elements as integers, the factor 2^-u of each element
// format aside. Those of A are signed; those of B are unsigned, offset by the
// bias of their format, because VPDPBUSD wants one of each. The product of the
// block is then too large by bias·Σa, and the int32 behind the scales of A is
// -bias·Σa, from which the kernel starts its sum. Everything until there is exact.
// The scales of E8M0 formats are stored as exponents shifted to a float32's
// exponent field, whose sum (less what B's subtracts) is their product's; other
// scales are float32 and multiplied.
//
// A strip kernel multiplies tiles of BF16: 16 lines of A by 16 of B over 32 positions. Its
// panels of B are those of above, 16 steps of which are a tile. In its panels of A a tile
// has the 32 positions of one line, then those of the next; the scales follow the last
// tile of the chunk. Chunks end with whole tiles, filled up with zeros, and are at most span
// positions long, so that those of B stay in the first cache. The kernel walks down a strip
// of C, NR columns wide, with each chunk in turn, and writes no more than C has.
type kernel struct {
	Name  string
	Tier  cpu.Tier
	Peak  string // the instruction that bounds it
	panel panelType
	block int  // int8: elements per scale
	pow2  bool // int8: scales are exponents

	Lanes      int // lines in a panel
	MR, NR     int // lanes of A, and of B at most, in one tile of C; MR divides Lanes, but in strips, and Lanes NR
	MC, NC, KC int // lines of A, lines of B and positions packed at a time
	fewNC      int // lines of B instead, where A has at most half as many; 0: as ever
	span       int // positions of a chunk at most, where scales leave it free; 0: KC

	dot    []dotFunc    // by panels of B less one
	strips []stripFunc  // in place of dot: by panels of B less one
	stream []streamFunc // by panels of B less one; nil: C is written as it is computed

	vector *vectorKernel // in place of all from Lanes on: takes B as it is

	// Lines of A up to which the kernel is chosen where there are kernels of tiles behind it,
	// and where B was packed beforehand, which is for those then; nil: as without them.
	few []int
}

// A dotFunc is a microkernel: chunks of steps each, a panel of A from its first
// lane that counts, the first of the panels of B, which are bPanel bytes apart,
// and a tile of C whose rows are ldc elements apart.
type dotFunc func(chunks, steps int, a, b unsafe.Pointer, bPanel int, c *float32, ldc int, alpha float32, accumulate bool)

// A stripFunc is a strip kernel: chunks of so many tiles of the panels of A for all lines,
// and of B, which are aPanel and bPanel bytes apart, and next bytes on those of the next
// strip; and C, whose rows are ldc bytes apart. columns has a bit for each column of C that
// there is. Between chunks C is in running, whose rows are whole panels. The sums of MR
// lines, and their scales, are in work until they are scaled: each lines of them while a
// tile is multiplied.
type stripFunc func(chunks, tiles, each int, a, b unsafe.Pointer, aPanel, bPanel, next, lines int, columns uint32, accumulate bool,
	work unsafe.Pointer, running, c *float32, ldc int, alpha float32)

// A streamFunc copies lines of running to C past the caches. Those of C begin with cache
// lines.
type streamFunc func(c, running *float32, ldc, lines int)

// A panelType is what a panel holds.
type panelType uint8

const (
	panelF32 panelType = iota
	panelBF16
	panelInt8
)

// perStep returns the elements of one lane in a step.
func (t panelType) perStep() int { return [...]int{panelF32: 1, panelBF16: 2, panelInt8: 4}[t] }

// String returns the type's name.
func (t panelType) String() string {
	return [...]string{panelF32: "f32", panelBF16: "bf16", panelInt8: "int8"}[t]
}

// A Kernel says what one row of the kernel table is.
type Kernel struct {
	Name  string   // as Options.Kernel takes it
	Tier  cpu.Tier // the instructions it needs
	Panel string   // what operands are decoded to: f32, bf16 or int8
	Batch int      // lines of A up to which kernels that do not pack B are chosen; 0: any number (fewer where B is packed beforehand, more where tiles cannot take the operands)
	Peak  string   // the instruction whose rate bounds it; "" where it is plain Go
}

// Kernels returns the kernels of this build in the order in which this processor
// tries them. Mul takes the first that supports the operands:
//
//   - up to Batch rows of A: a vector kernel, which reads the codes of B. With A in
//     integer blocks (mxint8, or the format of B) and B in mxfp4, mxfp6-e2m3, mxint8 or
//     nvfp4, the products of a block are exact integers; quantizing A is the caller's
//     choice, since it changes the result. Otherwise B is decoded to BF16 or float32.
//   - AMX tiles, for all but float32 operands;
//   - int8 panels, for operands whose elements are small integers;
//   - BF16 panels; on processors whose BF16 dot products are no faster than float32
//     ones, float32 panels come first (internal/cpu has the facts);
//   - float32 panels, which support every operand.
func Kernels() []Kernel {
	list := make([]Kernel, len(ordered))
	for i, k := range ordered {
		list[i] = k.describe()
	}
	return list
}

func (k *kernel) describe() Kernel {
	d := Kernel{Name: k.Name, Tier: k.Tier, Panel: k.panel.String(), Peak: k.Peak}
	if k.vector != nil {
		d.Batch = k.most(false, cpu.Best() >= cpu.AMX)
	}
	return d
}

// Choose returns the kernel that Mul takes for the operands. It fails where Mul
// would, but for the shape of C and the bias.
func Choose(a, b *quant.Tensor, o Options) (Kernel, error) {
	return choose(a, b, false, o)
}

func choose(a, b *quant.Tensor, packed bool, o Options) (Kernel, error) {
	o.Bias = nil
	m, n := 0, 0
	if a != nil && b != nil && len(a.Shape) > 0 && len(b.Shape) > 0 {
		m, n = a.Lines(), b.Lines()
	}
	if err := check(m, n, a, b, o); err != nil {
		return Kernel{}, err
	}
	p, err := newPlan(a, b, packed, o)
	if err != nil {
		return Kernel{}, err
	}
	return p.kernel.describe(), nil
}
