// Package layout permutes the codes and scales of quantized tensors into the
// orders that hardware and other software keep them in, and back.
//
// Tensor cores read the one-byte scales of MX and NVFP4 operands in tiles of 128
// lines × 4 blocks, each 512 bytes. A line is a row of a rowwise operand or a
// column of a columnwise one; tiles follow each other along the blocks first. In
// a tile, four lines that are 32 apart share 16 bytes:
//
//	byte    0          4           8           12
//	  0     line 0     line 32     line 64     line 96     4 blocks each
//	 16     line 1     line 33     line 65     line 97
//	  …
//	496     line 31    line 63     line 95     line 127
//
//	offset(line, block) = ((line/128)·⌈blocks/4⌉ + block/4)·512
//	                    + (line%32)·16 + (line%128/32)·4 + block%4
//
// Lines are filled up to a multiple of 128 and blocks to one of 4 with zero bytes.
//
// Sources: the cuBLAS documentation, "Block Scaling Factors Layout" (the same
// bytes are SWIZZLE_32_4_4 in PyTorch); Transformer Engine for the compact orders.
package layout

import "fmt"

// An Order is one way to keep the scales of a matrix in bytes: a place for each
// line and block. Places that belong to none are padding, and zero. The rows
// below are the only values.
type Order struct {
	Name string
	Doc  string // one line: who keeps scales so

	tileLines, tileBlocks int // lines and blocks are filled up to multiples of these
	offset                func(line, block, lines, blocks int) int
}

// The table of orders.
var (
	RowMajor = Order{
		Name:       "row-major",
		Doc:        "[lines][blocks] without padding: quant.Tensor and checkpoints",
		tileLines:  1,
		tileBlocks: 1,
		offset:     rowMajor,
	}
	ColumnMajor = Order{
		Name:       "column-major",
		Doc:        "[blocks][lines] without padding: columnwise scales beside untransposed codes",
		tileLines:  1,
		tileBlocks: 1,
		offset:     columnMajor,
	}
	Compact = Order{
		Name:       "compact",
		Doc:        "[lines][blocks] filled up to 128 and 4: Transformer Engine, rowwise MXFP8 and NVFP4 of both directions",
		tileLines:  tileLines,
		tileBlocks: tileBlocks,
		offset:     rowMajor,
	}
	CompactColumnwise = Order{
		Name:       "compact-columnwise",
		Doc:        "[blocks][lines] filled up to 4 and 128: Transformer Engine, columnwise MXFP8",
		tileLines:  tileLines,
		tileBlocks: tileBlocks,
		offset:     columnMajor,
	}
	Swizzled = Order{
		Name:       "swizzled",
		Doc:        "tiles of 128 lines × 4 blocks: tensor cores from Blackwell on, cuBLAS, CUTLASS, PyTorch's scaled_mm",
		tileLines:  tileLines,
		tileBlocks: tileBlocks,
		offset:     swizzled,
	}
)

// Orders returns the rows of the table.
func Orders() []Order { return []Order{RowMajor, ColumnMajor, Compact, CompactColumnwise, Swizzled} }

// The tile of the swizzle. Its lines are in groups of which four interleave.
const (
	tileLines  = 128
	tileBlocks = 4
	tileBytes  = tileLines * tileBlocks
	groupLines = 32
)

func rowMajor(line, block, _, blocks int) int { return line*blocks + block }

func columnMajor(line, block, lines, _ int) int { return block*lines + line }

func swizzled(line, block, _, blocks int) int {
	tile := line/tileLines*(blocks/tileBlocks) + block/tileBlocks
	const rowBytes = tileBytes / groupLines
	return tile*tileBytes + line%groupLines*rowBytes + line%tileLines/groupLines*tileBlocks + block%tileBlocks
}

// String returns the order's name.
func (o Order) String() string { return o.Name }

// Size returns the bytes of lines × blocks scales, padding included.
func (o Order) Size(lines, blocks int) int {
	lines, blocks = o.padded(lines, blocks)
	return lines * blocks
}

// Offset returns the place of a scale among lines × blocks of them. It takes
// those of the padding too.
func (o Order) Offset(line, block, lines, blocks int) int {
	lines, blocks = o.padded(lines, blocks)
	return o.offset(line, block, lines, blocks)
}

func (o Order) padded(lines, blocks int) (paddedLines, paddedBlocks int) {
	return roundUp(lines, o.tileLines), roundUp(blocks, o.tileBlocks)
}

func roundUp(n, multiple int) int { return (n + multiple - 1) / multiple * multiple }

// Reorder sets dst to the lines × blocks scales of src: from one order to
// another, and back with dst and src exchanged. Padding becomes zero; what src
// has there is dropped. It panics where the lengths are not those of the orders.
// dst and src do not overlap.
func Reorder(dst []byte, to Order, src []byte, from Order, lines, blocks int) {
	from.check("src", src, lines, blocks)
	to.check("dst", dst, lines, blocks)
	clear(dst)
	for i := range lines {
		for j := range blocks {
			dst[to.Offset(i, j, lines, blocks)] = src[from.Offset(i, j, lines, blocks)]
		}
	}
}

func (o Order) check(name string, b []byte, lines, blocks int) {
	if lines < 0 || blocks < 0 || len(b) != o.Size(lines, blocks) {
		panic(fmt.Sprintf("layout: %s has %d bytes, which are not %d×%d scales in %s order", name, len(b), lines, blocks, o))
	}
}

// SwizzledSize returns the bytes of rows × cols scales after Swizzle.
func SwizzledSize(rows, cols int) int { return Swizzled.Size(rows, cols) }

// Swizzle sets dst, of SwizzledSize bytes, to the rows × cols scales of src in
// tiles of 128×4.
func Swizzle(dst, src []byte, rows, cols int) { Reorder(dst, Swizzled, src, RowMajor, rows, cols) }

// Unswizzle sets dst to the rows × cols scales of src: the inverse of Swizzle.
func Unswizzle(dst, src []byte, rows, cols int) { Reorder(dst, RowMajor, src, Swizzled, rows, cols) }

// SwizzleColumnwise sets dst to the rows × cols scales of src, of which a row
// holds one block of each column: tiles of 4×128, of the bytes that Swizzle
// makes of src transposed. dst has SwizzledSize(cols, rows) bytes.
func SwizzleColumnwise(dst, src []byte, rows, cols int) {
	Reorder(dst, Swizzled, src, ColumnMajor, cols, rows)
}

// UnswizzleColumnwise is the inverse of SwizzleColumnwise.
func UnswizzleColumnwise(dst, src []byte, rows, cols int) {
	Reorder(dst, ColumnMajor, src, Swizzled, cols, rows)
}
