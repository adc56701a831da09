package layout_test

import (
	"fmt"

	"github.com/microscale-go/microscale/layout"
	"github.com/microscale-go/microscale/quant"
	"github.com/microscale-go/microscale/tensor"
)

func Example() {
	scales := make([]byte, 64*2) // of 64 rows, two blocks each
	for i := range scales {
		scales[i] = byte(i)
	}
	swizzled := make([]byte, layout.Swizzled.Size(64, 2))
	layout.Reorder(swizzled, layout.Swizzled, scales, layout.RowMajor, 64, 2)
	for i := 0; i < 32; i += 16 {
		fmt.Println(swizzled[i : i+16])
	}
	// Output:
	// [0 1 0 0 64 65 0 0 0 0 0 0 0 0 0 0]
	// [2 3 0 0 66 67 0 0 0 0 0 0 0 0 0 0]
}

func ExampleQuantizeSwizzled() {
	x := tensor.New(2, 64)
	for i := range x.Data {
		x.Data[i] = float32(i)
	}
	for _, d := range []quant.Direction{quant.Rowwise, quant.Columnwise} {
		t, scales, err := layout.QuantizeSwizzled(quant.Quantizer{Format: quant.MXFP8}, x, d, quant.With{})
		if err != nil {
			fmt.Println(err)
			return
		}
		rows, cols := t.ScaleShape()
		fmt.Println(d, rows, "rows,", cols, "blocks; the tile starts with", scales[0], scales[1], "and", scales[16], scales[17])
	}
	// Output:
	// rowwise 2 rows, 2 blocks; the tile starts with 124 125 and 125 126
	// columnwise 64 rows, 1 blocks; the tile starts with 125 0 and 125 0
}

func ExampleReorder() {
	scales := []byte{1, 2, 3, 4, 5, 6} // two rows of three blocks
	columnMajor := make([]byte, 6)
	layout.Reorder(columnMajor, layout.ColumnMajor, scales, layout.RowMajor, 2, 3)
	fmt.Println(columnMajor)
	for _, o := range layout.Orders() {
		fmt.Printf("%-18s %4d bytes, row 1, block 2 at %d\n", o, o.Size(2, 3), o.Offset(1, 2, 2, 3))
	}
	// Output:
	// [1 4 2 5 3 6]
	// row-major             6 bytes, row 1, block 2 at 5
	// column-major          6 bytes, row 1, block 2 at 5
	// compact             512 bytes, row 1, block 2 at 6
	// compact-columnwise  512 bytes, row 1, block 2 at 257
	// swizzled            512 bytes, row 1, block 2 at 18
	// packed               16 bytes, row 1, block 2 at 6
	// shuffled           2048 bytes, row 1, block 2 at 132
	// aligned-columns      12 bytes, row 1, block 2 at 9
	// aligned-rows          8 bytes, row 1, block 2 at 6
}

// The rows of a tile of scales in the order of Transformer Engine's page on MXFP8.
func Example_interleaved() {
	const rows, blocks = 128, 4
	scales := make([]byte, rows*blocks)
	for i := range scales {
		scales[i] = byte(i / blocks) // its row
	}
	tile := make([]byte, layout.Swizzled.Size(rows, blocks))
	layout.Reorder(tile, layout.Swizzled, scales, layout.RowMajor, rows, blocks)
	var order []byte
	for i := 0; i < len(tile); i += blocks {
		order = append(order, tile[i])
	}
	fmt.Println(order[:8], "…", order[124:])
	// Output: [0 32 64 96 1 33 65 97] … [31 63 95 127]
}
