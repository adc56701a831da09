package llamacpp_test

import (
	"fmt"

	"github.com/microscale-go/microscale/checkpoint/llamacpp"
)

// The tensor of a GGUF file that holds the global scale of a weight.
func ExampleScaleName() {
	fmt.Println(llamacpp.ScaleName("blk.0.attn_q.weight"))
	// Output: blk.0.attn_q.scale
}
