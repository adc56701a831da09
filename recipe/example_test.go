package recipe_test

import (
	"fmt"
	"log"

	"github.com/microscale-go/microscale/recipe"
)

// Change a recipe, and list the products that it leaves in BF16.
func Example() {
	r, err := recipe.Lookup("nvfp4")
	if err != nil {
		log.Fatal(err)
	}
	for _, s := range [][2]string{{"stochastic_rounding", "false"}, {"high_precision", "wgrad"}} {
		if err := r.Set(s[0], s[1]); err != nil {
			log.Fatal(err)
		}
	}
	if err := r.Validate(); err != nil {
		log.Fatal(err)
	}
	fmt.Println("weights:", r.Weight.Rowwise.Format, "in both directions:", r.Weight.Shared())
	for g := recipe.Fprop; g <= recipe.Wgrad; g++ {
		fmt.Println(g, "high precision:", r.HighPrecision[g])
	}
	// Output:
	// weights: nvfp4-16x16 in both directions: true
	// fprop high precision: false
	// dgrad high precision: false
	// wgrad high precision: true
}

// The multiple to which tokens are padded (Megatron-LM's get_fp8_align_size).
func ExampleRecipe_Alignment() {
	for _, r := range recipe.Recipes() {
		if r.Alignment() > 1 {
			fmt.Println(r.Name, r.Alignment())
		}
	}
	// Output:
	// delayed 16
	// tensorwise 16
	// blockwise 16
	// mxfp8 32
	// nvfp4 128
	// mxfp6 32
	// mxfp4 32
	// mxfp4-rht-sr 32
}
