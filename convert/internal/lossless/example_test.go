package lossless_test

import (
	"fmt"

	"github.com/microscale-go/microscale/convert/internal/lossless"
	"github.com/microscale-go/microscale/quant"
)

// A block of MXFP4 becomes two of NVFP4 with the same codes, if its scale times the inverse of the global scale is an
// E4M3 number.
func Example() {
	row, _ := lossless.Lookup(quant.MXFP4, quant.NVFP4)
	src, err := quant.NewTensor(row.From, 1, 32)
	if err != nil {
		panic(err)
	}
	src.Scales[0], src.Codes[0] = 127-3, 0x5f // -6 and 3, times 2^-3
	dst, err := quant.NewTensor(row.To, 1, 32)
	if err != nil {
		panic(err)
	}
	const global = 1.0 / 2048
	c := lossless.New(row, func(code byte) float32 { return row.To.Scale.Decode(uint32(code)) * global })
	inexact, err := c.Tile(dst, src, false)
	if err != nil {
		panic(err)
	}
	fmt.Printf("scales %v, first codes %#x, %d inexact blocks\n", row.To.Scale.Decode(uint32(dst.Scales[0])), dst.Codes[0], len(inexact))
	// Output: scales 256, first codes 0x5f, 0 inexact blocks
}
