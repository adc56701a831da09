package client_test

import (
	"fmt"
	"log"

	"github.com/microscale-go/microscale/checkpoint/client"
	"github.com/microscale-go/microscale/quant"
)

// What vLLM reads in NVFP4.
func Example() {
	vllm, err := client.Lookup("vllm")
	if err != nil {
		log.Fatal(err)
	}
	storages, err := vllm.Stores(quant.NVFP4)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(storages[0], vllm.Reads("quark", "fp4"), vllm.Reads("plain", ""))
	// Output: compressed-tensors NVFP4A16 true false
}
