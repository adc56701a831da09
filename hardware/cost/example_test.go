package cost_test

import (
	"fmt"
	"log"

	"github.com/microscale-go/microscale/hardware/cost"
	"github.com/microscale-go/microscale/recipe"
)

// The bytes that MXFP8 weights of 4096×4096 take in training, against those of BF16.
func Example() {
	for _, name := range []string{"bf16", "mxfp8"} {
		r, err := recipe.Lookup(name)
		if err != nil {
			log.Fatal(err)
		}
		fmt.Printf("%s: %.0f bytes\n", name, cost.WeightBytes(r, 4096, 4096))
	}
	// Output:
	// bf16: 33554432 bytes
	// mxfp8: 34603008 bytes
}
