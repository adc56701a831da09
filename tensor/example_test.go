package tensor_test

import (
	"fmt"

	"github.com/microscale-go/microscale/tensor"
)

// A matrix over a slice of the caller, without a copy.
func Example() {
	d := tensor.Of(2, 3, []float32{
		1, 2, 3,
		4, 5, 6,
	})
	d.Set(1, 2, 60)
	fmt.Println(d.Row(1), d.Transpose().Row(2))
	// Output: [4 5 60] [3 60]
}

func ExampleDense_View() {
	d := tensor.Of(2, 4, []float32{
		1, 2, 3, 4,
		5, 6, 7, 8,
	})
	right := d.View(0, 2, 2, 4)
	right.Set(0, 0, 30) // shared with d
	fmt.Println(d.Row(0), right.Row(1), right.Transpose().Row(0))
	// Output: [1 2 30 4] [7 8] [30 7]
}
