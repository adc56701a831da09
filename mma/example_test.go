package mma_test

import (
	"fmt"
	"math"

	"github.com/microscale-go/microscale/mma"
)

// Hopper's FP8 accumulator keeps 13 fraction bits. Once it is 16384, each
// product of 1·1 lies below the unit of the alignment and is cut off.
func ExampleUnit_Dot() {
	model, err := mma.Lookup("hopper-wgmma")
	if err != nil {
		panic(err)
	}
	unit, err := model.Unit(mma.Options{A: mma.E4M3})
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
