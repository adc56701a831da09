package mmatest_test

import (
	"fmt"

	"github.com/microscale-go/microscale/mma/mmatest"
)

// A source gives the numbers of SplitMix64, so that other implementations can be compared on the same operands.
func Example() {
	s := mmatest.Source(0)
	fmt.Printf("%x\n", s.Next())
	// Output: e220a8397b1dcdaf
}
