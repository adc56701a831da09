package device_test

import (
	"fmt"
	"log"

	"github.com/microscale-go/microscale/hardware/device"
	"github.com/microscale-go/microscale/quant"
)

// Ask whether devices train a linear layer of 4096×4096 weights in MXFP8.
func Example() {
	for _, name := range []string{"h100", "b200"} {
		d, err := device.Lookup(name)
		if err != nil {
			log.Fatal(err)
		}
		f := quant.MXFP8
		answer, err := device.Check(device.Request{Device: d, Input: f, Weight: f, Grad: f, M: 8192, N: 4096, K: 4096})
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(d.Name, answer.OK)
		for _, p := range answer.Products {
			fmt.Print("  ", p.Name)
			for _, problem := range p.Problems {
				fmt.Print(": ", problem.What)
			}
			fmt.Println()
		}
	}
	// Output:
	// h100 false
	//   fprop: Hopper sm_90 has no unit for mxfp8
	//   dgrad: Hopper sm_90 has no unit for mxfp8
	//   wgrad: Hopper sm_90 has no unit for mxfp8
	// b200 true
	//   fprop
	//   dgrad
	//   wgrad
}
