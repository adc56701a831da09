package sample_test

import (
	"context"
	"fmt"
	"log"

	"github.com/microscale-go/microscale/hf/sample"
)

// Open a checkpoint that a user named: a path, or the sample.
func ExampleOpen() {
	c, err := sample.Open(context.Background(), sample.Name)
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close() // removes the sample's files

	parameters := int64(0)
	for _, t := range c.Tensors() {
		parameters += t.Elements()
	}
	fmt.Println(c.Path, len(c.Shards()), "shards,", len(c.Tensors()), "tensors,", parameters, "parameters")
	// Output: sample: 2 shards, 57 tensors, 9737088 parameters
}
