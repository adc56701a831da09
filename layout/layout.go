// Package layout permutes the codes and scales of quantized tensors between row-major order
// and the orders of hardware and other software.
//
// Tensor cores read the one-byte scales of MX and NVFP4 operands in tiles of 128 rows × 4
// blocks, 512 bytes each. Rows are stored rows: rows of a rowwise operand, columns of a
// columnwise one. Tiles are in row-major order. In a tile, four rows that are 32 apart share
// 16 bytes:
//
//	byte    0          4           8           12
//	  0     row 0      row 32      row 64      row 96      4 blocks each
//	 16     row 1      row 33      row 65      row 97
//	  …
//	496     row 31     row 63      row 95      row 127
//
//	offset(row, block) = ((row/128)·⌈blocks/4⌉ + block/4)·512
//	                    + (row%32)·16 + (row%128/32)·4 + block%4
//
// Zero bytes pad rows to a multiple of 128 and blocks to a multiple of 4.
//
// Sources: the cuBLAS documentation, "Block Scaling Factors Layout" (the same bytes are
// SWIZZLE_32_4_4 in PyTorch); Transformer Engine for the compact orders.
package layout

import "fmt"

// An Order is an order of the scales of a matrix in memory, by row and block, with zero bytes
// as padding. The values below are the only ones.
type Order struct {
	Name    string
	Aliases []string // of libraries
	Doc     string   // one sentence: layout and its users

	tileRows, tileBlocks int // rows and blocks are padded to multiples of these
	offset               func(row, block, rows, blocks int) int
}

// The table of orders.
var (
	RowMajor = Order{
		Name:       "row-major",
		Aliases:    []string{"checkpoint", "mlx"},
		Doc:        "[rows][blocks] without padding: quant.Tensor, checkpoints, and MLX, whose U32 words hold the same bytes",
		tileRows:   1,
		tileBlocks: 1,
		offset:     rowMajor,
	}
	ColumnMajor = Order{
		Name:       "column-major",
		Aliases:    []string{"vec128"},
		Doc:        "[blocks][rows] without padding: columnwise scales beside untransposed codes, and cuBLAS's 1×128 FP32 scales",
		tileRows:   1,
		tileBlocks: 1,
		offset:     columnMajor,
	}
	Compact = Order{
		Name:       "compact",
		Aliases:    []string{"te"},
		Doc:        "[rows][blocks] padded to 128 and 4: Transformer Engine, rowwise MXFP8 and NVFP4 of both directions",
		tileRows:   tileRows,
		tileBlocks: tileBlocks,
		offset:     rowMajor,
	}
	CompactColumnwise = Order{
		Name:       "compact-columnwise",
		Aliases:    []string{"te-columnwise"},
		Doc:        "[blocks][rows] padded to 4 and 128: Transformer Engine, columnwise MXFP8",
		tileRows:   tileRows,
		tileBlocks: tileBlocks,
		offset:     columnMajor,
	}
	Swizzled = Order{
		Name:       "swizzled",
		Aliases:    []string{"cublas", "128x4"},
		Doc:        "tiles of 128 rows × 4 blocks: tensor cores from Blackwell on, cuBLAS, CUTLASS, PyTorch's scaled_mm",
		tileRows:   tileRows,
		tileBlocks: tileBlocks,
		offset:     swizzled,
	}
)

// Orders returns all orders.
func Orders() []Order {
	return []Order{RowMajor, ColumnMajor, Compact, CompactColumnwise, Swizzled, Packed, Shuffled, AlignedColumns, AlignedRows}
}

// The tile of the swizzle. Rows are in groups; a row of each of the four groups interleave.
const (
	tileRows   = 128
	tileBlocks = 4
	tileBytes  = tileRows * tileBlocks
	groupRows  = 32
)

func rowMajor(row, block, _, blocks int) int { return row*blocks + block }

func columnMajor(row, block, rows, _ int) int { return block*rows + row }

func swizzled(row, block, _, blocks int) int {
	tile := row/tileRows*(blocks/tileBlocks) + block/tileBlocks
	const rowBytes = tileBytes / groupRows
	return tile*tileBytes + row%groupRows*rowBytes + row%tileRows/groupRows*tileBlocks + block%tileBlocks
}

// String returns the order's name.
func (o Order) String() string { return o.Name }

// Size returns the number of scales that rows × blocks take, padding included: the bytes of
// one-byte scales.
func (o Order) Size(rows, blocks int) int {
	rows, blocks = o.padded(rows, blocks)
	return rows * blocks
}

// Offset returns the position of a scale of a matrix of rows × blocks, counted in scales: the
// offset in bytes of one-byte scales. It also accepts rows and blocks of the padding.
func (o Order) Offset(row, block, rows, blocks int) int {
	rows, blocks = o.padded(rows, blocks)
	return o.offset(row, block, rows, blocks)
}

func (o Order) padded(rows, blocks int) (paddedRows, paddedBlocks int) {
	return roundUp(rows, o.tileRows), roundUp(blocks, o.tileBlocks)
}

func roundUp(n, multiple int) int { return (n + multiple - 1) / multiple * multiple }

// Reorder converts the rows × blocks scales of src from one order to another, in dst. Padding
// becomes zero. It panics if the lengths do not match the orders. dst and src must not
// overlap.
func Reorder(dst []byte, to Order, src []byte, from Order, rows, blocks int) {
	from.check("src", src, rows, blocks, 1)
	to.check("dst", dst, rows, blocks, 1)
	clear(dst)
	for i := range rows {
		for j := range blocks {
			dst[to.Offset(i, j, rows, blocks)] = src[from.Offset(i, j, rows, blocks)]
		}
	}
}

// ReorderWide is Reorder of scales of width bytes each: 4 for FP32. Sizes and offsets of the
// orders count scales.
func ReorderWide(dst []byte, to Order, src []byte, from Order, rows, blocks, width int) {
	from.check("src", src, rows, blocks, width)
	to.check("dst", dst, rows, blocks, width)
	clear(dst)
	for i := range rows {
		for j := range blocks {
			copy(dst[to.Offset(i, j, rows, blocks)*width:][:width], src[from.Offset(i, j, rows, blocks)*width:][:width])
		}
	}
}

func (o Order) check(name string, b []byte, rows, blocks, width int) {
	if rows < 0 || blocks < 0 || len(b) != o.Size(rows, blocks)*width {
		panic(fmt.Sprintf("layout: %s: got %d bytes, want %d×%d scales in %s order", name, len(b), rows, blocks, o))
	}
}

// SwizzledSize returns the bytes of rows × cols scales after Swizzle.
func SwizzledSize(rows, cols int) int { return Swizzled.Size(rows, cols) }

// Swizzle sets dst, of SwizzledSize bytes, to the rows × cols scales of src in tiles of 128×4.
func Swizzle(dst, src []byte, rows, cols int) { Reorder(dst, Swizzled, src, RowMajor, rows, cols) }

// Unswizzle sets dst to the rows × cols scales of src. It is the inverse of Swizzle.
func Unswizzle(dst, src []byte, rows, cols int) { Reorder(dst, RowMajor, src, Swizzled, rows, cols) }

// SwizzleColumnwise is Swizzle of src transposed: src holds rows × cols scales, one block of
// each column per row. dst has SwizzledSize(cols, rows) bytes.
func SwizzleColumnwise(dst, src []byte, rows, cols int) {
	Reorder(dst, Swizzled, src, ColumnMajor, cols, rows)
}

// UnswizzleColumnwise is the inverse of SwizzleColumnwise.
func UnswizzleColumnwise(dst, src []byte, rows, cols int) {
	Reorder(dst, ColumnMajor, src, Swizzled, cols, rows)
}
