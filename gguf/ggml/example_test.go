package ggml_test

import (
	"fmt"

	"github.com/microscale-go/microscale/gguf/ggml"
)

// The structs that hold codes and scales together.
func ExampleStructs() {
	for _, s := range ggml.Structs() {
		fmt.Printf("%s: %d bits and %d bytes of scale for %d elements\n", s.Name, s.CodeBits, s.ScaleBytes, s.Elements)
	}
	// Output:
	// block_mxfp4: 4 bits and 1 bytes of scale for 32 elements
	// block_nvfp4: 4 bits and 1 bytes of scale for 16 elements
	// block_q8_0: 8 bits and 2 bytes of scale for 32 elements
}
