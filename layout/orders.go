package layout

// Orders of libraries beside cuBLAS and Transformer Engine. Those of one-byte scales are
// permutations of bytes. The others hold FP32 scales, and offsets count scales.
//
// Sources: DeepGEMM csrc/utils/layout.hpp for the packed and aligned orders; AITER's
// e8m0_shuffle; the cuBLAS documentation, "Scaling factors layouts", for the FP32 ones.
var (
	// Packed holds four consecutive blocks of a row in an int32, the first in its low byte, and
	// the words of one column of words contiguously: offset = (block/4·rows + row)·4 + block%4.
	Packed = Order{
		Name:       "packed",
		Aliases:    []string{"deepgemm"},
		Doc:        "[blocks/4][rows] int32 words of 4 blocks, rows padded to 4: DeepGEMM's UE8M0 on Blackwell",
		tileRows:   alignedRows,
		tileBlocks: wordBlocks,
		offset:     packed,
	}
	// Shuffled is the reshape of AITER: rows as [rows/32][2][16], blocks as [blocks/8][2][4], in
	// the order rows/32, blocks/8, 4, 16, 2 of the blocks, 2 of the rows.
	Shuffled = Order{
		Name:       "shuffled",
		Aliases:    []string{"aiter"},
		Doc:        "tiles of 32 rows × 8 blocks, padded to 256 and 8: AITER's e8m0_shuffle on CDNA4",
		tileRows:   256,
		tileBlocks: 8,
		offset:     shuffled,
	}
	// AlignedColumns is column-major with columns of whole 16 bytes of FP32 scales.
	AlignedColumns = Order{
		Name:       "aligned-columns",
		Aliases:    []string{"tma"},
		Doc:        "[blocks][rows] with rows padded to 4: FP32 scales of DeepGEMM and Transformer Engine for 1×128 blocks",
		tileRows:   alignedRows,
		tileBlocks: 1,
		offset:     columnMajor,
	}
	// AlignedRows is row-major with rows of whole 16 bytes of FP32 scales.
	AlignedRows = Order{
		Name:       "aligned-rows",
		Aliases:    []string{"blk128x128"},
		Doc:        "[rows][blocks] with blocks padded to 4: cuBLAS, FP32 scales of 128×128 blocks",
		tileRows:   1,
		tileBlocks: alignedRows,
		offset:     rowMajor,
	}
)

// alignedRows is the number of four-byte words in the 16 bytes to which TMA aligns.
const alignedRows = 4

// wordBlocks is the number of E8M0 scales in an int32.
const wordBlocks = 4

func packed(row, block, rows, _ int) int {
	return (block/wordBlocks*rows+row)*wordBlocks + block%wordBlocks
}

func shuffled(row, block, _, blocks int) int {
	const tile = 32 * 8
	return (row/32*(blocks/8)+block/8)*tile + (block%4*16+row%16)*4 + block%8/4*2 + row%32/16
}
