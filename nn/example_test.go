package nn_test

import (
	"fmt"
	"log"
	"math/rand/v2"

	"github.com/microscale-go/microscale/measure"
	"github.com/microscale-go/microscale/nn"
	"github.com/microscale-go/microscale/recipe"
	"github.com/microscale-go/microscale/tensor"
)

// A forward and a backward pass of Linear(1024, 1024) under MXFP8, and under the same scope with low
// precision disabled.
func Example() {
	const batch, sequence, width = 2, 128, 1024
	mxfp8, err := recipe.Lookup("mxfp8")
	if err != nil {
		log.Fatal(err)
	}
	linear := nn.NewLinear("proj", width, width, true)
	linear.Weight.InitNormal(0.02, 1)

	scope := nn.Scope{Recipe: mxfp8}
	x := random(&scope, batch*sequence, width, 1)
	dy := random(&scope, batch*sequence, width, 2)

	run := func(scope nn.Scope) (y tensor.Dense) {
		y, saved, err := linear.Forward(&scope, x)
		if err != nil {
			log.Fatal(err)
		}
		bytes := saved.Bytes()
		dx, err := linear.Backward(&scope, saved, dy)
		if err != nil {
			log.Fatal(err)
		}
		fmt.Printf("%-5s y %d×%d, dx %d×%d, saved for the backward pass: %d bytes\n", scope.Recipe.Name, y.Rows, y.Cols, dx.Rows, dx.Cols, bytes)
		return y
	}
	y := run(scope)
	inner := scope.Disabled()
	e := measure.New(32)
	e.Add(run(inner).Data, y.Data)
	fmt.Printf("SQNR of y under MXFP8: %.0f dB\n", e.Result().SQNR)
	// Output:
	// mxfp8 y 256×1024, dx 256×1024, saved for the backward pass: 270336 bytes
	// bf16  y 256×1024, dx 256×1024, saved for the backward pass: 524288 bytes
	// SQNR of y under MXFP8: 28 dB
}

// random returns normal values rounded to the recipe's Activations.
func random(scope *nn.Scope, rows, cols int, seed uint64) tensor.Dense {
	rng := rand.New(rand.NewPCG(seed, 0))
	x := tensor.New(rows, cols)
	for i := range x.Data {
		x.Data[i] = float32(rng.NormFloat64())
	}
	scope.Round(x)
	return x
}

// Linear(1024, 1024) under FP8 current scaling, HYBRID: E4M3 forward, E5M2 for gradients. The loss is
// the sum of the output, whose gradient is one everywhere.
func Example_currentScaling() {
	const tokens, width = 128, 1024
	r, err := recipe.Lookup("tensorwise")
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("weight", r.Weight.Rowwise.Format, "gradient", r.Grad.Rowwise.Format)
	linear := nn.NewLinear("proj", width, width, false)
	linear.Weight.InitNormal(0.02, 1)
	scope := nn.Scope{Recipe: r}
	y, saved, err := linear.Forward(&scope, random(&scope, tokens, width, 1))
	if err != nil {
		log.Fatal(err)
	}
	ones := tensor.New(tokens, width)
	for i := range ones.Data {
		ones.Data[i] = 1
	}
	dx, err := linear.Backward(&scope, saved, ones)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("y %d×%d, dx %d×%d, dw %d×%d\n", y.Rows, y.Cols, dx.Rows, dx.Cols, linear.Weight.Grad.Rows, linear.Weight.Grad.Cols)
	// Output:
	// weight fp8-tensor gradient fp8-tensor-e5m2
	// y 128×1024, dx 128×1024, dw 1024×1024
}
