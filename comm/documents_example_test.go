package comm_test

import (
	"fmt"

	"github.com/microscale-go/microscale/comm"
	"github.com/microscale-go/microscale/quant"
	"github.com/microscale-go/microscale/tensor"
)

// Current scaling of a tensor that is gathered: all ranks use the largest amax, so that their codes
// have one scale and can be gathered as they are.
func Example_quantizedAllGather() {
	err := comm.Run(2, comm.Options{}, func(g *comm.Group) error {
		x := tensor.Of(1, 2, []float32{1, float32(1 + 6*g.Rank())})
		amax := []float32{quant.Amax(x, 1)}
		if err := g.Max(amax); err != nil {
			return err
		}
		t, err := quant.Quantizer{Format: quant.FP8Tensor}.Rowwise(x, quant.With{Amax: &amax[0]})
		if err != nil {
			return err
		}
		parts, err := g.GatherAll(t.Codes)
		if err == nil && g.Rank() == 0 {
			fmt.Printf("amax %v, scale %v, codes % x\n", amax[0], t.Scales32[0], parts)
		}
		return err
	})
	fmt.Println(err)
	// Output:
	// amax 7, scale 0.015625, codes [68 68 68 7e]
	// <nil>
}
