package gemm

import (
	"unsafe"

	"github.com/microscale-go/microscale/internal/cpu"
	"github.com/microscale-go/microscale/quant"
)

// A kernel is a row of the kernel table: a micro-kernel, which multiplies a panel of A by
// panels of B into a tile of C, a macro-kernel, or a vector kernel.
//
// A panel holds Lanes rows of an operand (16 or 8) over some positions along K, as a
// sequence of chunks. A chunk is a range of positions in which every row has one scale:
//
//	chunk   steps × lanes × 4 bytes   the elements
//	                lanes × float32   their scales
//	                lanes × int32     int8 panels of A only: see below
//
// A step holds 4 bytes of every lane, in lane order: one float32, two BF16 elements adjacent
// along K, or four int8 elements. Of eight adjacent int8 elements, the even ones are in one
// step, the odd ones in the next. Wide panels store two steps together: 8 bytes of each lane, whose int8
// elements are in order. An int8 panel of A consists of Lanes/MR sub-panels of MR
// lanes, one for each tile of C, so that a tile uses all bytes of the cache lines that it reads.
// A sub-panel is a sequence of chunks, too. For the MR lanes i of A and the lanes j of one to
// NR/Lanes panels of B, the kernel computes
//
//	C[i][j] (+)= alpha · Σ over chunks of scale_a[i] · scale_b[j] · Σ over the chunk of a[i][k]·b[j][k]
//
// BF16 and float32 kernels round alpha·scale_b, then the product with scale_a, and add each
// chunk to C with one fused multiply-add. "(+)=" adds to C if accumulate is set. If it is
// not, the kernel does not read C, which may be NaN. Tiles are always whole: for a partial
// tile of C the loops pass a scratch tile. Zeros pad the panels.
//
// int8 panels hold the elements as integers, without the unit 2^-u of the element format.
// VPDPBUSD takes one signed and one unsigned operand: A is signed, B is offset by the bias
// of its format. The product of a block is then too large by bias·Σa. The int32 after the
// scales of A is where the sum starts, so that the bias cancels. All integer arithmetic is
// exact. SMMLA takes signed operands: those of wide panels have no bias.
//
// Scales other than E8M0 are float32. The sum starts at -bias·Σa. The kernel converts it to
// float32 and multiplies it by both scales.
//
// E8M0 scales of A are stored as 1.5·2²³ times the scale, those of B as their exponents, or in wide panels
// as they are. All are float32. The sum starts at the bits of the word of A, minus bias·Σa. At the end, the sum read as
// float32 is 1.5·2²³ plus the dot product, times the scale of A, since a dot product is less than
// 2²². Subtracting the word of A and multiplying by the scale of B are exact. The product of a
// block is thus rounded once, when it is added.
//
// A macro-kernel computes NR columns of C for all rows of the packed block of A. It
// multiplies tiles of BF16: 16 rows of A by 16 of B over 32 positions. Its panels of B are
// those above; 16 steps are a tile. In its panels of A, a tile stores the 32 positions of
// one row, then those of the next; the scales follow the last tile of the chunk. Chunks are
// whole tiles, padded with zeros, and at most span positions long, so that those of B stay
// in the first-level cache. The macro-kernel handles partial tiles of C itself.
type kernel struct {
	Name   string
	needs  cpu.Set
	unless cpu.Set // features with which other kernels are faster; 0: none
	Peak   string  // the instruction whose rate bounds it, and its registers
	panel  panelType
	block  int  // of int8 kernels: elements per scale
	pow2   bool // of int8 kernels: scales are powers of two
	wide   bool // panels store two steps together

	Lanes  int // rows in a panel
	MR, NR int // rows of a tile of C, and its maximum columns; MR divides Lanes (except in macro-kernels), Lanes divides NR
	KC     int // positions packed at a time
	span   int // maximum positions of a chunk if the scales do not fix its length; 0: KC

	dot    []dotFunc    // indexed by panels of B minus one
	macro  []macroFunc  // instead of dot; indexed by panels of B minus one
	stream []streamFunc // non-temporal copy to C, indexed by panels of B minus one; nil: ordinary stores

	vector *vectorKernel // instead of all fields from Lanes on: reads the codes of B

	// From tuning.go. The packed block of B fits the third-level cache. The packed block of A and the panels
	// of B for NR columns fit the second-level cache; a larger KC writes C less often. The panels of B for NR
	// columns and span positions fit the first-level cache.
	MC, NC          int // rows of A and rows of B packed at a time
	fewNC           int // replaces NC if A has at most half as many rows; 0: never
	rows            rows
	rowsBeforeTiles rows // if a tile kernel takes products with more
}

func init() {
	cpu.AddTable("gemm", &ordered, func(k **kernel) (string, cpu.Set) { return (*k).Name, (*k).needs })
}

// A dotFunc is a micro-kernel. a points to the first of MR lanes in a panel of A, or to an int8
// sub-panel. b points to the first of the panels of B, bPanel bytes apart. Each has the given
// number of chunks and steps. The rows of the tile of C are ldc elements apart. Its calls are too short to pass a
// struct: that took up to 9 % of the time of small products.
type dotFunc func(chunks, steps int, a, b unsafe.Pointer, bPanel int, c *float32, ldc int, alpha float32, accumulate bool)

// A macroFunc is a macro-kernel. Between chunks, C is in running. The kernel scales the unscaled sums of a tile
// while it multiplies the next.
type macroFunc func(p macroArgs)

// macroArgs are the arguments of a macroFunc. internal/asm knows the fields of this type and of the arguments of
// the other kernels.
type macroArgs struct {
	chunks, tiles  int            // of a panel; of a chunk
	each           int            // rows of sums that are scaled with each tile
	a, b           unsafe.Pointer // the first panels of A and B
	aPanel, bPanel int            // bytes from a panel to the next
	next           int            // bytes from the last chunk of B to the panels of the next NR columns, for prefetching
	rows           int
	columns        uint32 // a bit for each column of C
	accumulate     bool
	work           unsafe.Pointer // the unscaled sums of MR rows, and their scales
	running        *float32       // rows of whole panels
	c              *float32
	ldc            int // bytes from a row of C to the next
	alpha          float32
}

// A streamFunc copies rows of running to C with non-temporal stores. The rows of C are
// aligned to cache lines.
type streamFunc func(c, running *float32, ldc, rows int)

// A panelType is the element type of a panel.
type panelType uint8

const (
	panelF32 panelType = iota
	panelBF16
	panelInt8
)

// perStep returns the number of elements of one lane in a step.
func (t panelType) perStep() int { return [...]int{panelF32: 1, panelBF16: 2, panelInt8: 4}[t] }

// String returns the type's name.
func (t panelType) String() string {
	return [...]string{panelF32: "f32", panelBF16: "bf16", panelInt8: "int8"}[t]
}

// A Kernel describes one row of the kernel table.
type Kernel struct {
	Name  string // value of Options.Kernel
	Needs string // the processor features that it needs, in the names of Linux, separated by spaces
	Panel string // element type of the multiplication: f32, bf16 or int8
	// maximum rows of A of kernels that do not pack B, math.MaxInt if there is none (fewer if B is already packed, more if no tile kernel
	// supports the operands); 0 for kernels that pack B
	Batch int
	Peak  string // the instruction whose rate bounds it, and its registers; "" for portable Go
}

// Kernels returns the kernels of this build in the order in which this processor
// tries them. Mul takes the first that supports the operands:
//
//   - up to Batch rows of A: a vector kernel, which reads the codes of B. With A in
//     integer blocks (mxint8, or the format of B) and B in mxfp4, mxfp6-e2m3, mxint8,
//     nvfp4 or, interleaved, q8_0, the products of a block are exact integers; quantizing A is the caller's
//     choice, since it changes the result. Otherwise B is decoded to BF16 or float32.
//     Kernels named interleaved take an Interleaved B, the others do not; some of them also
//     reorder the rows of any B if A has enough;
//   - AMX tiles, for all but float32 operands;
//   - int8 panels, for operands whose elements are small integers; on arm64 before vector kernels, if A has more
//     than 32 rows or B is packed;
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
	d := Kernel{Name: k.Name, Needs: k.needs.String(), Panel: k.panel.String(), Peak: k.Peak}
	if k.vector != nil {
		d.Batch = k.maxRows(rowMajor, cpu.Best() >= cpu.AMX)
	}
	return d
}

// Choose returns the kernel that Mul uses for the operands. It returns the errors of Mul,
// except those for the shape of C and the bias. With Options.Accumulator, the kernel has only that
// name.
func Choose(a, b *quant.Tensor, o Options) (Kernel, error) {
	return choose(a, b, rowMajor, o)
}

func choose(a, b *quant.Tensor, stored form, o Options) (Kernel, error) {
	o.Bias = nil
	m, n := 0, 0
	if a != nil && b != nil && len(a.Shape) > 0 && len(b.Shape) > 0 {
		m, n = a.StoredRows(), b.StoredRows()
	}
	if err := check(m, n, a, b, o); err != nil {
		return Kernel{}, err
	}
	p, err := newPlan(a, b, stored, o)
	if err != nil {
		return Kernel{}, err
	}
	if p.unit != nil {
		return Kernel{Name: o.Accumulator.String()}, nil
	}
	return p.kernel.describe(), nil
}
