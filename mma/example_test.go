package mma_test

import (
	"fmt"
	"math"

	"github.com/microscale-go/microscale/mma"
)

// Hopper's FP8 accumulator has 13 fraction bits: adding products of 1·1 to 16384 changes nothing.
func Example() {
	model, err := mma.Lookup("hopper-wgmma")
	if err != nil {
		panic(err)
	}
	e4m3, err := mma.LookupType("e4m3")
	if err != nil {
		panic(err)
	}
	unit, err := model.Unit(mma.Options{A: e4m3}) // B is e4m3 too, the result f32
	if err != nil {
		panic(err)
	}
	ones := make([]uint64, unit.K)
	for i := range ones {
		ones[i] = 0x38 // 1 in E4M3
	}
	for _, c := range []float32{0, 16352, 16384} {
		result := unit.Dot(ones, ones, uint64(math.Float32bits(c)), nil, nil)
		fmt.Printf("%v + 32 = %v\n", c, unit.Out.Value(result))
	}
	// Output:
	// 0 + 32 = 32
	// 16352 + 32 = 16384
	// 16384 + 32 = 16384
}
