package hf_test

import (
	"context"
	"fmt"
	"log"
	"os"

	"github.com/microscale-go/microscale/hf"
	"github.com/microscale-go/microscale/internal/sample"
)

// Open a directory and look at the first tensors of each shard.
func Example() {
	dir, err := os.MkdirTemp("", "checkpoint")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	if err := sample.Write(context.Background(), dir); err != nil {
		log.Fatal(err)
	}

	c, err := hf.Open(dir)
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close()
	for _, s := range c.Shards() {
		fmt.Println(s.Name)
		for _, t := range s.File.Tensors()[:2] {
			fmt.Println(" ", t.Name, t.Dtype, t.Shape)
		}
	}
	first := make([]byte, 2)
	if err := c.ReadTensorAt("model.norm.weight", first, 0); err != nil {
		log.Fatal(err)
	}
	fmt.Printf("model.norm.weight starts with % x\n", first)
	for _, o := range c.Others() {
		fmt.Println(o.Name, o.Size, "bytes")
	}
	// Output:
	// model-00001-of-00002.safetensors
	//   model.embed_tokens.weight BF16 [384 384]
	//   model.layers.0.input_layernorm.weight BF16 [384]
	// model-00002-of-00002.safetensors
	//   lm_head.weight BF16 [384 384]
	//   model.layers.3.mlp.down_proj.weight BF16 [384 1024]
	// model.norm.weight starts with 73 3f
	// README.md 316 bytes
	// generation_config.json 66 bytes
	// tokenizer_config.json 160 bytes
}
