package parallel_test

import (
	"fmt"

	"github.com/microscale-go/microscale/internal/parallel"
)

// Each item has a separate element for its result, so the result does not depend on how For
// splits the range.
func ExampleFor() {
	squares := make([]int, 10)
	parallel.For(len(squares), 4, 2, func(from, to int) {
		for i := from; i < to; i++ {
			squares[i] = i * i
		}
	})
	fmt.Println(squares)
	// Output: [0 1 4 9 16 25 36 49 64 81]
}
