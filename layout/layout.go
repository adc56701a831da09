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

// Reorder converts the rows × blocks scales of src from one order to another, in dst. Scales have
// one byte, or four if src is that long: FP32 scales. Padding becomes zero. Reorder panics if the
// lengths of src and dst do not match the orders. dst and src must not overlap.
func Reorder(dst []byte, to Order, src []byte, from Order, rows, blocks int) {
	width := 1
	if len(src) == 4*from.Size(rows, blocks) {
		width = 4
	}
	from.check("src", src, rows, blocks, width)
	to.check("dst", dst, rows, blocks, width)
	clear(dst)
	for i := range rows {
		for j := range blocks {
			a, b := to.Offset(i, j, rows, blocks), from.Offset(i, j, rows, blocks)
			if width == 1 {
				dst[a] = src[b]
			} else {
				copy(dst[a*width:][:width], src[b*width:][:width])
			}
		}
	}
}

func (o Order) check(name string, b []byte, rows, blocks, width int) {
	if rows < 0 || blocks < 0 || len(b) != o.Size(rows, blocks)*width {
		panic(fmt.Sprintf("layout: %s: got %d bytes, want %d×%d scales in %s order", name, len(b), rows, blocks, o))
	}
}
