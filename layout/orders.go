package layout

import (
	"fmt"
	"strings"

	"github.com/microscale-go/microscale/internal/naming"
)

// An Order is an order of the scales of a matrix in memory, by row and block, with zero bytes as
// padding. The text form is its name, such as "swizzled". The zero value is RowMajor.
//
// Sources: the cuBLAS documentation, "Scaling factors layouts"; Transformer Engine; DeepGEMM's
// csrc/utils/layout.hpp for "packed" and "aligned-columns"; AITER's e8m0_shuffle for "shuffled".
type Order uint8

// The orders of checkpoints and tensor cores. [Orders] and UnmarshalText also return "compact" and
// "compact-columnwise" (Transformer Engine), "packed" (DeepGEMM), "shuffled" (AITER) and
// "aligned-rows" (cuBLAS).
const (
	RowMajor          Order = iota // [rows][blocks] without padding
	ColumnMajor                    // [blocks][rows] without padding
	compact                        // [rows][blocks], padded to 128 and 4
	compactColumnwise              // [blocks][rows], padded to 4 and 128
	Swizzled                       // tiles of 128 rows × 4 blocks; see the package comment
	packed                         // [blocks/4][rows] words of 4 blocks, the first in the low byte; rows padded to 4
	shuffled                       // [rows/32][blocks/8][4 blocks][16 rows][2 blocks][2 rows]; padded to 256 rows and 8 blocks
	AlignedColumns                 // [blocks][rows], rows padded to 4: 16 bytes of FP32 scales
	alignedRows                    // [rows][blocks], blocks padded to 4: 16 bytes of FP32 scales
)

// orders has a row for each Order.
var orders = [...]struct {
	name    string
	aliases []string // of libraries
	doc     string

	tileRows, tileBlocks int // rows and blocks are padded to multiples of these
	offset               func(row, block, rows, blocks int) int
}{
	RowMajor: {"row-major", []string{"checkpoint", "mlx"},
		"[rows][blocks] without padding: quant.Tensor, checkpoints, and MLX, whose U32 words hold the same bytes", 1, 1, rowMajor},
	ColumnMajor: {"column-major", []string{"vec128"},
		"[blocks][rows] without padding: columnwise scales beside untransposed codes, and cuBLAS's 1×128 FP32 scales", 1, 1, columnMajor},
	compact: {"compact", []string{"te"},
		"[rows][blocks] padded to 128 and 4: Transformer Engine, rowwise MXFP8 and NVFP4 of both directions", tileRows, tileBlocks, rowMajor},
	compactColumnwise: {"compact-columnwise", []string{"te-columnwise"},
		"[blocks][rows] padded to 4 and 128: Transformer Engine, columnwise MXFP8", tileRows, tileBlocks, columnMajor},
	Swizzled: {"swizzled", []string{"cublas", "128x4"},
		"tiles of 128 rows × 4 blocks: tensor cores from Blackwell on, cuBLAS, CUTLASS, PyTorch's scaled_mm", tileRows, tileBlocks, swizzled},
	packed: {"packed", []string{"deepgemm"},
		"[blocks/4][rows] int32 words of 4 blocks, rows padded to 4: DeepGEMM's UE8M0 on Blackwell", alignedWords, wordBlocks, packedOffset},
	shuffled: {"shuffled", []string{"aiter"},
		"tiles of 32 rows × 8 blocks, padded to 256 and 8: AITER's e8m0_shuffle on CDNA4", 256, 8, shuffledOffset},
	AlignedColumns: {"aligned-columns", []string{"tma"},
		"[blocks][rows] with rows padded to 4: FP32 scales of DeepGEMM and Transformer Engine for 1×128 blocks", alignedWords, 1, columnMajor},
	alignedRows: {"aligned-rows", []string{"blk128x128"},
		"[rows][blocks] with blocks padded to 4: cuBLAS, FP32 scales of 128×128 blocks", 1, alignedWords, rowMajor},
}

// alignedWords is the number of four-byte words in the 16 bytes to which TMA aligns.
const alignedWords = 4

// wordBlocks is the number of E8M0 scales in an int32.
const wordBlocks = 4

func packedOffset(row, block, rows, _ int) int {
	return (block/wordBlocks*rows+row)*wordBlocks + block%wordBlocks
}

func shuffledOffset(row, block, _, blocks int) int {
	const tile = 32 * 8
	return (row/32*(blocks/8)+block/8)*tile + (block%4*16+row%16)*4 + block%8/4*2 + row%32/16
}

// Orders returns all orders.
func Orders() []Order {
	list := make([]Order, len(orders))
	for i := range orders {
		list[i] = Order(i)
	}
	return list
}

// String returns the order's name, or "Order(N)" for an unknown order.
func (o Order) String() string {
	if int(o) >= len(orders) {
		return fmt.Sprintf("Order(%d)", uint8(o))
	}
	return orders[o].name
}

// Aliases returns the names that libraries use for the order. The caller must not modify them. It
// panics for an unknown order.
func (o Order) Aliases() []string { return orders[o].aliases }

// Doc returns one sentence: the layout and the libraries that use it. It panics for an unknown order.
func (o Order) Doc() string { return orders[o].doc }

// MarshalText returns the order's name. It returns an error for an unknown order.
func (o Order) MarshalText() ([]byte, error) {
	if int(o) >= len(orders) {
		return nil, fmt.Errorf("unknown order: got %d, want less than %d", uint8(o), len(orders))
	}
	return []byte(orders[o].name), nil
}

// UnmarshalText sets o to the order with the given name or alias, ignoring case. On error, o is
// unchanged.
func (o *Order) UnmarshalText(text []byte) error {
	var names []string
	for i, row := range orders {
		for _, name := range append([]string{row.name}, row.aliases...) {
			if strings.EqualFold(name, string(text)) {
				*o = Order(i)
				return nil
			}
		}
		names = append(names, row.name)
	}
	return naming.Unknown("order", string(text), names)
}

// Size returns the number of scales of a matrix of rows × blocks, including padding: the bytes of
// one-byte scales. It panics for an unknown order.
func (o Order) Size(rows, blocks int) int {
	rows, blocks = o.Padded(rows, blocks)
	return rows * blocks
}

// Offset returns the position of the scale of a row and block in a matrix of rows × blocks,
// counted in scales: the offset in bytes of one-byte scales. row and block may be in the padding.
// It panics for an unknown order.
func (o Order) Offset(row, block, rows, blocks int) int {
	rows, blocks = o.Padded(rows, blocks)
	return orders[o].offset(row, block, rows, blocks)
}

// Padded returns the rows and blocks of a matrix with its padding. It panics for an unknown order.
func (o Order) Padded(rows, blocks int) (paddedRows, paddedBlocks int) {
	if int(o) >= len(orders) {
		panic(fmt.Sprintf("layout: unknown order: got %d, want less than %d", uint8(o), len(orders)))
	}
	return roundUp(rows, orders[o].tileRows), roundUp(blocks, orders[o].tileBlocks)
}

func roundUp(n, multiple int) int { return (n + multiple - 1) / multiple * multiple }
